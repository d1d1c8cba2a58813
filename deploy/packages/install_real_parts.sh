#!/bin/sh
# Installs the servers that tests marked `real` boot for themselves: Slurm with its accounting and
# REST daemons, MariaDB, munge, Prometheus, Alertmanager, PostgreSQL; and Chromium, for the board. No service is started or enabled. Safe to run again.
set -eu

PACKAGES="slurm-wlm slurm-client slurmdbd slurmrestd slurm-wlm-jwt-plugin munge mariadb-server prometheus prometheus-alertmanager postgresql chromium"

if ! command -v apt-get >/dev/null 2>&1; then
    echo "apt-get is not on this machine: the tests that need a real Slurm or Prometheus will be skipped."
    exit 0
fi

missing=""
for package in $PACKAGES; do
    state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
    if [ "$state" != "installed" ]; then
        missing="$missing $package"
    fi
done
if [ -z "$missing" ]; then
    echo "All packages are installed: $PACKAGES"
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "Missing packages:$missing"
    echo "Only root can install them. Run: sudo $0"
    echo "Without them the tests that need a real Slurm or Prometheus are skipped."
    exit 0
fi

# Services must not start by themselves: the tests boot their own, on free ports. Where a policy
# file is already there (as in containers) it is left alone.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT INT TERM
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # a list of words
apt-get install --yes --quiet --no-install-recommends $missing
echo "Installed:$missing"
