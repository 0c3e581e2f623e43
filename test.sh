#!/usr/bin/env bash
# Checks and tests everything; --fast omits tests that take longer than a minute. Further arguments go to pytest.
set -euo pipefail
exec "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/scripts/test.sh" "$@"
