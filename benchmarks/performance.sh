#!/bin/sh
# Measure everything again and rewrite the tables of docs/performance.md. About 20 minutes on a quiet machine.
set -eu
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1
hacrl=${HACRL:-.venv/bin/hacrl}
page=docs/performance.md
marker='<!-- Everything below is written by benchmarks/performance.sh -->'
tables=$(mktemp)

measure() {
    printf '\n    hacrl bench %s\n\n' "$*" >>"$tables"
    "$hacrl" bench "$@" --markdown >>"$tables"
}

measure --peer trl --size S
measure --peer trl --size M
measure --peer trl --size S --eos-hazard 0
measure --peer trl --size M --eos-hazard 0
measure --peer trl --size S --max-new 64
measure --peer trl --size M --max-new 64
measure --peer trl --size S --arch llama
measure --peer trl --size M --replay
measure --scaling
measure --steps
measure --runtime
measure --verifiers

{ awk -v marker="$marker" '{ print } $0 == marker { exit }' "$page"; cat "$tables"; } >"$page.new"
mv "$page.new" "$page"
rm "$tables"
