#!/bin/sh
# Prolog of slurmd: notes when a job begins on a node that forewarn holds. It never refuses a job.
#
# Slurm begins no job on a node that is drained, so there is nothing to refuse. And a prolog that
# fails drains its node for a reason that is not forewarn's, and holds the job back: a mistake here
# could empty a cluster that is well. So this one reads a file that health_check.sh left, asks
# Slurm nothing (a prolog must not: every job start would wait for slurmctld), and exits with 0.
held=${FOREWARN_RUN:-/run/forewarn}/held
if [ -r "$held" ]; then
    logger -t forewarn -- "job ${SLURM_JOB_ID:-?} begins on a held node: $(head -c 300 "$held")" 2>/dev/null
fi
exit 0
