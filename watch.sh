#!/usr/bin/env bash
# Shows orders, stock, doors and sensors of every region live, and what is on its way or missing. --help tells more.
set -euo pipefail
exec "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/scripts/lab.sh" watch "$@"
