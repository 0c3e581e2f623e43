#!/usr/bin/env bash
# What the wrappers share: installs what is missing, then runs a command of the kit: lab.sh COMMAND [ARGUMENT ...]
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
export LAB_HOME="${LAB_HOME:-${root}/.lab}"
[[ "${LAB_HOME}" == /* ]] || LAB_HOME="${PWD}/${LAB_HOME}"
# Python leaves nothing in the checkout.
export PYTHONPYCACHEPREFIX="${LAB_HOME}/cache"

case "$1" in
  cleanup)
    if [[ ! -x "${LAB_HOME}/venv/bin/python" && ! -d "${LAB_HOME}/regions" && ! -d "${LAB_HOME}/access" ]] &&
      [[ " $* " != *" --all "* && " $* " != *" -i "* ]]; then
      echo "There is nothing to clean up."
      exit 0
    fi
    ;;
  setup) ;;
  *)
    # Two clusters of the user's own need no lab.
    if [[ ! -e "${LAB_HOME}/access/lab.json" && " $* " != *" --help "* && " $* " != *" -h "* ]] &&
      [[ " $* " != *" --source-config"* ]]; then
      echo "error: nothing is set up; run ./setup-03-broadcast.sh first" >&2
      exit 3
    fi
    ;;
esac

"${root}/scripts/bootstrap.sh"
exec "${LAB_HOME}/venv/bin/python" -m lab "$@"
