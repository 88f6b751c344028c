#!/bin/sh
# Measure everything again and rewrite the tables of docs/performance.md. Hours on a quiet machine; needs `make models`, and
# `make test-vllm` for the environment of vLLM.
set -eu
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1
python=${PYTHON:-.venv/bin/python}
vllm_python=.venv-vllm/bin/python
page=docs/performance.md
marker='<!-- Everything below is written by benchmarks/performance.sh -->'
tables=$(mktemp)

measure() {
    printf '\n    python -m benchmarks.%s\n\n' "$*" >>"$tables"
    "$python" -m "benchmarks.$@" --markdown >>"$tables"
}

measure_in_vllm() (
    python=$vllm_python
    measure "$@"
)

measure trl --size S
measure trl --size M
measure trl --size S --eos-hazard 0
measure trl --size M --eos-hazard 0
measure trl --size S --max-new 64
measure trl --size M --max-new 64
measure trl --size S --arch llama
measure trl --size M --replay
measure scaling
measure long_responses
measure two_cores
measure steps
measure steps --method commons
measure runtimes
measure verifiers
for model in models/smollm2-135m models/gemma-3-270m; do
    measure loading --model "$model"
    measure exactness --model "$model"
    measure trl --model "$model" --repeats 3
    measure_in_vllm vllm --model "$model"
done
measure earlier 85f96a4 --model models/gemma-3-270m
measure real --model models/smollm2-135m --model models/gemma-3-270m
measure real --model models/smollm2-135m --model models/gemma-3-270m --method commons

{ awk -v marker="$marker" '{ print } $0 == marker { exit }' "$page"; cat "$tables"; } >"$page.new"
mv "$page.new" "$page"
rm "$tables"
