#!/usr/bin/env bash
# A SLURM of one node, for the tests: `start.sh start FOLDER`, `start.sh stop FOLDER`; then SLURM_CONF=FOLDER/slurm.conf.
# It runs as whoever starts it, on the loopback, and keeps everything in FOLDER; the system's own services are not touched.
set -euo pipefail

[[ $# == 2 && $1 =~ ^(start|stop)$ ]] || { echo "usage: $0 start|stop FOLDER" >&2; exit 2; }
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$2" && cd "$2" && FOLDER=$PWD
export SLURM_CONF=$FOLDER/slurm.conf

free_ports() {
    python3 -c 'import socket
sockets = [socket.socket() for _ in range(2)]
for each in sockets: each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in sockets))'
}

configure() {
    local node ports
    node=$(hostname -s)
    read -r -a ports <<< "$(free_ports)"
    cat > slurm.conf << EOF2
ClusterName=posenc
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
# Also how long a requeued job waits before it may start again; 120 s otherwise.
AuthInfo=socket=$FOLDER/munge.socket,cred_expire=5
StateSaveLocation=$FOLDER/state
SlurmdSpoolDir=$FOLDER/spool
SlurmctldPidFile=$FOLDER/slurmctld.pid
SlurmdPidFile=$FOLDER/slurmd.pid
SlurmctldLogFile=$FOLDER/slurmctld.log
SlurmdLogFile=$FOLDER/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
# Seconds from a job's SIGTERM to its SIGKILL.
KillWait=20
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,sched_interval=1,bf_interval=1,batch_sched_delay=0
# Two CPUs, whatever the machine has: two jobs at a time. Memory is not counted.
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName=$node NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
# A job in urgent takes the place of one in preemptible, which goes back into the queue.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=preemptible Nodes=ALL Default=YES PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=2
EOF2
}

start() {
    mkdir -p state spool
    [[ -e munge.key ]] || (umask 077 && head -c 1024 /dev/urandom > munge.key)
    configure
    munged --force --key-file="$FOLDER/munge.key" --socket="$FOLDER/munge.socket" --pid-file="$FOLDER/munged.pid" \
        --log-file="$FOLDER/munged.log" --seed-file="$FOLDER/munge.seed"
    slurmctld
    slurmd
    for _ in $(seq 100); do
        [[ $(sinfo --noheader --format=%T 2> /dev/null | sort -u) == idle ]] && return
        sleep 0.1
    done
    echo "SLURM did not start; see the logs in $FOLDER" >&2
    stop
    return 1
}

stop() {
    # Jobs first, which would outlive their daemon.
    timeout 10 scancel --quiet --user="$(id -un)" 2> /dev/null || true
    timeout 10 scancel --quiet --full --signal=KILL --user="$(id -un)" 2> /dev/null || true
    for _ in $(seq 50); do
        [[ -z $(timeout 10 squeue --noheader 2> /dev/null) ]] && break
        sleep 0.1
    done
    for daemon in slurmd slurmctld munged; do
        [[ -e $daemon.pid ]] || continue
        pid=$(cat $daemon.pid)
        kill "$pid" 2> /dev/null || true
        for _ in $(seq 100); do
            kill -0 "$pid" 2> /dev/null || break
            sleep 0.1
        done
    done
}

"$1"
