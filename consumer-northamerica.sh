#!/usr/bin/env bash
# Shows the events as they arrive in North America; Ctrl-C ends it. --help shows all options.
set -euo pipefail
exec "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/lab" consume north-america "$@"
