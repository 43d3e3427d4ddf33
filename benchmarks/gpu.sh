#!/usr/bin/env bash
# Measures training and decoding on one GPU, in under eight minutes, and writes docs/gpu.md and docs/gpu.json.
#
#   benchmarks/gpu.sh                          on the GPU
#   benchmarks/gpu.sh --quick --device cpu     does it run? tiny only, on the processor; writes to runs/bench/
#
# PYTHON names the interpreter to use; by default that of .venv-bench, which `make bench` installs.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${PYTHON:-}" ]; then
    make .venv-bench/.bench
    PYTHON=.venv-bench/bin/python
fi
exec "$PYTHON" -m benchmarks.gpu "$@"
