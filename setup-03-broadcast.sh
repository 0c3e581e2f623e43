#!/usr/bin/env bash
# Sets up the broadcast: events from Europe, mirrored to both Americas. --help shows all options.
set -euo pipefail
exec "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/lab" setup 03-broadcast "$@"
