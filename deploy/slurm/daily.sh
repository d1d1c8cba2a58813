#!/bin/sh
# Once a day, beside hourly.sh: did the alerts of the last weeks come true? And away with what is
# kept no longer; without this the disk fills.
set -eu
: "${FOREWARN_SETTINGS:=/etc/forewarn/site.yaml}" "${FOREWARN_BIN:=/opt/forewarn/.venv/bin}"
export FOREWARN_SETTINGS
export DAGSTER_HOME="${DAGSTER_HOME:-/var/lib/forewarn-scores/dagster}"
export DAGSTER_DISABLE_TELEMETRY=1 MLFLOW_DISABLE_TELEMETRY=true

# Each is done whether the other failed or not.
failed=0
"$FOREWARN_BIN/forewarn" outcomes || failed=1
"$FOREWARN_BIN/forewarn" retain || failed=1
exit "$failed"
