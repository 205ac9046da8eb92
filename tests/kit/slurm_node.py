"""A Slurm of one node on this machine, from Debian's packages: apt-get install slurm-wlm munge

    python tests/kit/slurm_node.py DIR     starts it below DIR, says how to use it, and stops it at Ctrl-C

munged, slurmctld and slurmd run as root (a container's is enough) on loopback, with a
configuration, a key, a socket and ports of their own: a Slurm that is already on the machine is not
touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
CONFIGURATION = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={second_port}
AuthType=auth/munge
CredType=cred/munge
# a requeued job waits for as long as its old credential could live: two minutes unless said otherwise
AuthInfo=socket={folder}/munge.sock,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
# containers seldom have control groups to give away
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=1
KillWait=10
MinJobAge=3600
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def lacking() -> str:
    """Why it cannot run here; empty where it can."""
    programs = [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]
    if programs:
        return f"no {', '.join(programs)}: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "one-node Slurm needs root (in a container is enough)"


def search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_for(condition, what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} within {seconds:.0f} s")
        time.sleep(0.2)


@contextlib.contextmanager
def one_node(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which sbatch and the others speak to it."""
    folder = Path(folder).resolve()
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    port, second_port = free_ports(2)
    host = socket.gethostname().partition(".")[0]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 * 9 // 10  # MB
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            folder=folder,
            host=host,
            port=port,
            cpus=os.cpu_count(),
            second_port=second_port,
            memory=memory,
        )
    )
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": search_path()}
    commands = [
        [
            "munged",
            "--foreground",
            "--force",
            "--num-threads=1",
            f"--key-file={key}",
            *(f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")),
            f"--socket={folder}/munge.sock",
        ],
        ["slurmctld", "-D", "-c"],
        ["slurmd", "-D", "-c"],
    ]
    started: list[subprocess.Popen] = []

    def up() -> bool:
        shown = subprocess.run(
            ["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True, text=True
        )
        return shown.stdout.strip() in ("idle", "mix", "alloc")

    with (folder / "daemons.log").open("ab") as log:
        try:
            for command in commands:
                started.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdout=log,
                        stderr=log,
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                )
                if command[0] == "munged":
                    wait_for((folder / "munge.sock").exists, "munged made no socket")
            wait_for(up, f"no node came up (logs in {folder})", 60)
            yield environment
        finally:
            subprocess.run(["scancel", "--me"], env=environment, capture_output=True)
            time.sleep(1)
            for process in reversed(started):
                process.terminate()
            for process in reversed(started):
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    if reason := lacking():
        sys.exit(f"error: {reason}")
    # Both, also in the background of a script, where SIGINT is ignored.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.default_int_handler)
    with one_node(Path(sys.argv[1])) as environment:
        print(
            f"One-node Slurm is up. In another shell:\n\n    export SLURM_CONF={environment['SLURM_CONF']}\n"
            "    sinfo\n    python sweep.py experiment=smoke cluster=slurm cluster.gpus=0 cluster.cpus=1 "
            "cluster.follow=true\n\nCtrl-C stops it and its jobs.",
            flush=True,
        )
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
