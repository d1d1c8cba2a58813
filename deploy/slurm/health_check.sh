#!/bin/sh
# HealthCheckProgram of slurmd: leaves a file on the node while forewarn holds it, so that jobs and
# people on the node can know. It reads Slurm and changes nothing in it, and always exits with 0.
#
#   slurm.conf:  HealthCheckProgram=/usr/local/libexec/forewarn-health-check
#                HealthCheckInterval=300
#                HealthCheckNodeState=CYCLE
#
# CYCLE spreads the nodes over the interval; each asks slurmctld once, so on thousands of nodes
# leave the interval at five minutes or more. A training loop that finds the file may write a
# checkpoint, as after a notice.
folder=${FOREWARN_RUN:-/run/forewarn}
node=${SLURMD_NODENAME:-$(hostname -s)}

told=$(timeout 10 scontrol --oneliner show node "$node" 2>/dev/null) || exit 0
case $told in
    *" Reason=forewarn:"*) reason="forewarn:${told##* Reason=forewarn:}" ;;
    *) rm -f "$folder/held"; exit 0 ;;
esac
if [ ! -e "$folder/held" ]; then
    logger -t forewarn -- "this node is held: $reason" 2>/dev/null
fi
mkdir -p "$folder" && printf '%s\n' "$reason" >"$folder/.held" && mv "$folder/.held" "$folder/held"
exit 0
