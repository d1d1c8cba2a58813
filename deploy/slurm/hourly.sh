#!/bin/sh
# One hour of Forewarn as a job: land what is new, make the core tables, score. For a small site
# that has neither systemd nor containers to run Dagster and the scorer as services.
#
#   scrontab -e, then the two lines of `scrontab` beside this file
#   or by hand:  sbatch --cpus-per-task=2 --mem=4G --time=00:50:00 hourly.sh
#
# The last three hours are made again each time, so that an hour whose job did not run, or whose data
# came late, is made by the next; a longer gap is for `forewarn backfill`. What is there is made to
# the same rows. Scores are published once an hour at most.
set -eu
: "${FOREWARN_SETTINGS:=/etc/forewarn/site.yaml}" "${FOREWARN_BIN:=/opt/forewarn/.venv/bin}"
export FOREWARN_SETTINGS
export DAGSTER_HOME="${DAGSTER_HOME:-/var/lib/forewarn-scores/dagster}"
export DAGSTER_DISABLE_TELEMETRY=1 MLFLOW_DISABLE_TELEMETRY=true
export PATH="$FOREWARN_BIN:$PATH"

# Taken once, so that all hours below are of one moment; FOREWARN_NOW sets another, as `date` reads it.
now=$(date --date "${FOREWARN_NOW:-now}" +%s)

hour() {
    date --utc --date "@$((now - $1 * 3600))" +%Y-%m-%d-%H:00
}

make_tables() {
    names=$1
    shift
    dagster asset materialize --module-name pipelines.definitions --select "$names" "$@"
}

# First: it needs no Dagster, and what is not fetched before a source forgets it is lost.
forewarn ingest || echo "forewarn: an input failed; what the others gave is gone on with" >&2
forewarn dagster-home
make_tables raw/node_states,raw/job_log,raw/job_output,raw/training_metrics,raw/inventory,raw/coverage
make_tables raw/incidents,core/inventory,core/maintenance,core/topology
make_tables raw/gpu_telemetry,raw/kernel_log,core/gpu_telemetry,core/health_events \
    --partition-range "$(hour 3)...$(hour 1)"
make_tables core/jobs,core/node_states,core/incidents,core/training_metrics
forewarn score
