#!/usr/bin/env bash
# Checks and tests everything; --fast leaves out what takes longer than a minute. Further arguments go to pytest.
set -euo pipefail
exec "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/scripts/test.sh" "$@"
