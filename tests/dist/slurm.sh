#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A Slurm cluster of this machine alone, for one command: `tests/dist/slurm.sh WORK COMMAND...` runs `srun -n 3 COMMAND`.
# Exit code 77 where Slurm is not installed or does not start here; its daemons end with the script.
work=$1
shift
for tool in srun sinfo slurmctld slurmd munged; do
  PATH=$PATH:/usr/sbin:/sbin command -v $tool >/dev/null || { echo "there is no $tool"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "slurmd needs root"; exit 77; }
export PATH=$PATH:/usr/sbin:/sbin SLURM_CONF=$work/slurm.conf
host=$(hostname -s)
port=$((20000 + $$ % 20000))
mkdir -p "$work/munge" "$work/state" "$work/spool"
chmod 755 "$work"
dd if=/dev/urandom of="$work/munge/key" bs=64 count=1 2>/dev/null
chmod 700 "$work/munge"
chmod 600 "$work/munge/key"
cat >"$work/slurm.conf" <<END
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/ctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
END
ended() {
  for file in slurmd.pid ctld.pid munge/pid; do
    [ -f "$work/$file" ] && kill "$(cat "$work/$file")" 2>/dev/null
  done
}
trap ended EXIT
munged --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
  --log-file="$work/munge/log" --seed-file="$work/munge/seed" || { cat "$work/munge/log"; exit 77; }
slurmctld -f "$work/slurm.conf" && slurmd -f "$work/slurm.conf" -N "$host" || { tail "$work"/*.log; exit 77; }
for i in $(seq 100); do
  sinfo -h -o %T 2>/dev/null | grep -q idle && break
  sleep 0.1
done
sinfo -h -o %T 2>/dev/null | grep -q idle || { tail "$work"/*.log; exit 77; }
srun -n 3 --overcommit --immediate=30 "$@"
code=$?
# The daemon of a step reports to slurmd before it ends.
for i in $(seq 100); do
  pgrep -f '^slurmstepd: \[' >/dev/null || break
  sleep 0.1
done
exit $code
