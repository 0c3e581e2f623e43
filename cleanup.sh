#!/usr/bin/env bash
# Deletes everything that the lab made, and asks nothing. --help shows all options.
set -euo pipefail
exec "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/lab" cleanup "$@"
