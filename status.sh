#!/usr/bin/env bash
# Shows the health of every cluster, mirror, producer and consumer. --help tells more.
set -euo pipefail
exec "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/scripts/lab.sh" status "$@"
