#!/usr/bin/env bash
# A run on a Slurm cluster: a Ray cluster over the job's machines, with the training loop on the first one.
#
#   sbatch examples/cluster/slurm.sh recipe.yaml /shared/runs/first [KEY=VALUE...]
#
# Half an hour before the time limit (more than a step takes), the run finishes its step, saves, and the job queues again. A job that is
# requeued, or submitted again with the same directory, resumes the run. To adapt: the lines below, and how the
# machines activate the environment with hacrl (the same on all of them).
#SBATCH --job-name=hacrl
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@1800
#SBATCH --requeue
#SBATCH --open-mode=append

set -euo pipefail

recipe=${1:?the recipe}
out=${2:?the run directory, on a file system that all machines share}
shift 2

# Anyone with the token can run code on the cluster: it is made for this job and readable for its user alone.
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_AUTH_TOKEN_PATH="$HOME/.hacrl-ray-token-$SLURM_JOB_ID"
(umask 077 && python -c 'import secrets; print(secrets.token_hex(32), end="")' >"$RAY_AUTH_TOKEN_PATH")
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=$(srun --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" hostname --ip-address | awk '{print $1}')
port=$((20000 + SLURM_JOB_ID % 10000))

srun --nodes=1 --ntasks=1 --overlap --nodelist="${nodes[0]}" \
    ray start --head --node-ip-address="$head" --port="$port" --include-dashboard=false --block &
sleep 20
if ((${#nodes[@]} > 1)); then
    others=$(IFS=, && echo "${nodes[*]:1}")
    srun --nodes=$((${#nodes[@]} - 1)) --ntasks=$((${#nodes[@]} - 1)) --overlap --nodelist="$others" \
        ray start --address="$head:$port" --block &
    sleep 20
fi

# Slurm's signal reaches this shell alone; `wait` returns for it, and again when the run has saved.
stopping=no run=
trap 'stopping=yes; [[ -z $run ]] || kill -TERM "$run"' TERM

resume=()
[[ -e $out/config.json ]] && resume=(--resume)
hacrl train "$recipe" "$@" runtime.name=ray "runtime.address=$head:$port" --out "$out" "${resume[@]}" &
run=$!

code=0
wait "$run" || code=$?
if [[ $stopping == yes ]]; then
    wait "$run" || code=$?
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
