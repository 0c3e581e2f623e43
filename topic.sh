#!/usr/bin/env bash
# Shows topics in all regions, and changes their configuration. --help tells more.
set -euo pipefail
exec "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/scripts/lab.sh" topic "$@"
