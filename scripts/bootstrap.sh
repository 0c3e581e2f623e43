#!/usr/bin/env bash
# Installs what the kit needs into LAB_HOME (.lab in the checkout). ./lab calls it: when nothing has changed it returns
# within milliseconds. All its output goes to standard error.
#
# usage: bootstrap.sh [--dev | --python]
#   --dev      adds the tools that ./test.sh needs; they then stay
#   --python   installs nothing, and prints the Python that it would build on
#
# Variables: LAB_HOME, LAB_PYTHON (the Python to build on), LAB_MAVEN_REPOSITORY, and the usual ones for proxies
# (HTTPS_PROXY, NO_PROXY), certificate authorities (SSL_CERT_FILE) and package indexes (PIP_INDEX_URL).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
home="${LAB_HOME:-${root}/.lab}"
[[ "${home}" == /* ]] || home="${PWD}/${home}"
readonly root home stamp="${home}/installed"

# Prints the Python to build on.
find_python() {
  local python
  local -a candidates=(python3 python3.13 python3.12 python3.11)
  [[ -z "${LAB_PYTHON:-}" ]] || candidates=("${LAB_PYTHON}")
  for python in "${candidates[@]}"; do
    if "${python}" -B -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      echo "${python}"
      return
    fi
  done
  echo "error: ${LAB_PYTHON:-python3} is not Python 3.11, 3.12 or 3.13; install one of them, or set LAB_PYTHON to it" >&2
  return 2
}

if [[ "${1:-}" == --python ]]; then
  find_python
  exit
fi

lock="${root}/requirements.lock"
[[ "${1:-}" != --dev && ! -e "${home}/venv/dev" ]] || lock="${root}/requirements-dev.lock"

# A linked environment belongs to another checkout, which looks after it.
[[ ! -L "${home}/venv" ]] || exit 0

# An environment holds absolute paths, so a moved checkout needs a new one.
inputs="$(printf '%s\n' "${root}" "${home}" && cd "${root}" &&
  cat pyproject.toml requirements-build.lock "${lock}" jars.lock scripts/{bootstrap.sh,install.py,class_archives.py})"
if [[ -x "${home}/venv/bin/python" && -x "${home}/java/bin/java" && -x "${home}/java-spark/bin/java" ]] &&
  [[ -d "${home}/jars/kafka" && -r "${stamp}" && "$(<"${stamp}")" == "${inputs}" ]]; then
  exit 0
fi

python="$(find_python)"
LAB_HOME="${home}" "${python}" "${root}/scripts/install.py" "${lock}"
printf '%s\n' "${inputs}" >"${stamp}.new"
mv "${stamp}.new" "${stamp}"
