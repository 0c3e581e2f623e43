#!/usr/bin/env bash
# All linters. Needs the environment that scripts/bootstrap.sh --dev makes, with its bin folder first on PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The slowest, on the other core. It ends with this script, whatever the others find.
ansible-lint --offline &
playbooks=$!
trap 'kill "${playbooks}" 2>/dev/null || true' EXIT

mapfile -t shell < <(git ls-files --cached --others --exclude-standard '*.sh' lab .ci/run loosehanger/cli/completion.bash)
ruff check .
ruff format --check .
mypy
yamllint --strict .
shellcheck "${shell[@]}"
shfmt -i 2 -ci -d "${shell[@]}"
wait "${playbooks}"
