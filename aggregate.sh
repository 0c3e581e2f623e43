#!/usr/bin/env bash
# Adds up the events of every region, side by side. --help tells more.
set -euo pipefail
exec "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/scripts/lab.sh" aggregate "$@"
