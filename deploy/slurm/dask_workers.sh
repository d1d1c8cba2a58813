#!/bin/sh
# Dask workers as one job, for sites that keep a scheduler of their own (docs/scale.md):
#
#   dask scheduler --port 8786 --dashboard-address 127.0.0.1:8787        on the head node
#   sbatch --nodes=4 --cpus-per-task=16 --mem=32G --time=08:00:00 dask_workers.sh tcp://head:8786
#
# As many workers on each node as the job has cores there, and its memory shared among them. A job
# that is requeued joins again; without a scheduler it ends after five minutes. With tls:// the
# certificates are named in the environment of sbatch, as docs/scale.md says.
#SBATCH --job-name=forewarn-workers
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
set -eu
scheduler=${1:?the address of the scheduler, such as tcp://head:8786}
# Without --cpus-per-task, as with --exclusive, Slurm tells only what the node has given.
cores=${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-1}}
memory=auto
if [ -n "${SLURM_MEM_PER_NODE:-}" ]; then
    memory=$((SLURM_MEM_PER_NODE / cores))MiB
elif [ -n "${SLURM_MEM_PER_CPU:-}" ]; then
    memory=${SLURM_MEM_PER_CPU}MiB
fi
export POLARS_MAX_THREADS=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
export SRUN_CPUS_PER_TASK="$cores"   # srun does not take it from the job

exec srun "${FOREWARN_BIN:-/opt/forewarn/.venv/bin}/dask" worker "$scheduler" \
    --nworkers "$cores" --nthreads 1 --memory-limit "$memory" --death-timeout 300 --no-dashboard
