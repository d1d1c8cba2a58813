#!/bin/sh
# Once a day, beside hourly.sh: did the alerts of the last weeks come true?
set -eu
: "${FOREWARN_SETTINGS:=/etc/forewarn/site.yaml}" "${FOREWARN_BIN:=/opt/forewarn/.venv/bin}"
export FOREWARN_SETTINGS
exec "$FOREWARN_BIN/forewarn" outcomes
