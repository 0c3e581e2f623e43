#!/usr/bin/env bash
# Proves, with numbers and an exit code, that everything was mirrored. --help shows all options.
set -euo pipefail
exec "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/lab" prove "$@"
