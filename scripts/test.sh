#!/usr/bin/env bash
# The linters, then the tests: test.sh [--fast] [PYTEST-ARGUMENT ...]
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "${root}"
export LAB_HOME="${LAB_HOME:-${root}/.lab}"
scripts/bootstrap.sh --dev
export PATH="${LAB_HOME}/venv/bin:${PATH}" ANSIBLE_HOME="${LAB_HOME}/ansible"
# As ./lab does.
export PYTHONPYCACHEPREFIX="${LAB_HOME}/cache"
unset PYTHONDONTWRITEBYTECODE

tests=(-m "")
if [[ "${1:-}" == --fast ]]; then
  shift
  tests=(-m "not spark and not lab and not molecule and not e2e and not browser and not kubernetes")
fi

scripts/check.sh
exec pytest "${tests[@]}" "$@"
