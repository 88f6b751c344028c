#!/bin/sh
# Measure everything again and rewrite the tables of docs/performance.md. Hours on a quiet machine; needs `make models`.
set -eu
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1
python=${PYTHON:-.venv/bin/python}
page=docs/performance.md
marker='<!-- Everything below is written by benchmarks/performance.sh -->'
tables=$(mktemp)

measure() {
    printf '\n    python -m benchmarks.%s\n\n' "$*" >>"$tables"
    "$python" -m "benchmarks.$@" --markdown >>"$tables"
}

measure trl --size S
measure trl --size M
measure trl --size S --eos-hazard 0
measure trl --size M --eos-hazard 0
measure trl --size S --max-new 64
measure trl --size M --max-new 64
measure trl --size S --arch llama
measure trl --size M --replay
measure scaling
measure two_cores
measure steps
measure runtimes
measure verifiers
for model in models/smollm2-135m models/gemma-3-270m; do
    measure exactness --model "$model"
    measure trl --model "$model" --repeats 3
done
measure real --model models/smollm2-135m --model models/gemma-3-270m

{ awk -v marker="$marker" '{ print } $0 == marker { exit }' "$page"; cat "$tables"; } >"$page.new"
mv "$page.new" "$page"
rm "$tables"
