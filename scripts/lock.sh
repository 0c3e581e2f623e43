#!/usr/bin/env bash
# Regenerates every lock from pyproject.toml and scripts/lock_jars.py: the newest versions that fit together.
# A maintainer's tool. Review what it changed before you commit.
set -euo pipefail

# The one place that pins uv itself.
readonly UV_VERSION=0.13.9

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/bootstrap.sh --dev
home="${LAB_HOME:-.lab}"

# Writes the lock named first; further arguments go to uv.
compile() {
  local lock=$1
  shift
  "${home}/uv/bin/uv" pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --custom-compile-command scripts/lock.sh --output-file "${lock}" "$@"
}

compile requirements-build.lock - <<<"uv==${UV_VERSION}"$'\n'hatchling$'\n'editables$'\n'setuptools
readonly -a project=(pyproject.toml --extra spark --extra report --group lab)
compile requirements.lock "${project[@]}"
compile requirements-dev.lock "${project[@]}" --group dev --constraint requirements.lock
scripts/bootstrap.sh --dev # the jars of Spark's connector have PySpark's version
for lock in jars.lock kafka-releases.lock spark-jobs/connectors.lock scripts/apiserver/crds.lock; do
  "${home}/venv/bin/python" -m scripts.lock_jars "${lock}"
done
scripts/bootstrap.sh --dev
