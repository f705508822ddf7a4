"""A real SLURM on this machine: a controller and two nodes with two GPUs each that are none.

The daemons listen on every address of their network, so they get a network of their own that has nothing but
the loopback device: nobody else can reach them, and their ports are free however many tests run. Its second
address leads nowhere; without it SLURM ignores 127.0.0.1. Each node has a host name of its own, as on a
cluster.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.sweep.cluster_grids import command_lines, kill, tree_below, wait_until

NODES = ("n1", "n2")
_PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "nsenter", "unshare", "ip")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def missing() -> str:
    """Why there can be no SLURM here; empty where there can."""
    absent = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    if absent:
        return f"needs {', '.join(absent)} (Debian: slurm-wlm, munge, iproute2)"
    if os.geteuid() != 0:
        return "needs root"
    alone = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True, check=False)
    return "needs a network namespace" if alone.returncode else ""


class SlurmCluster:
    """Started when made; everything it writes lies in `folder`.

    Args:
        silence: Seconds without an answer after which a node is taken for dead.
    """

    def __init__(self, folder: Path, silence: int = 10) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen] = {}
        self._make_files(silence)
        self._network = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        wait_until(self._has_own_network, 10, "a network of its own")
        lines = "ip link set lo up; ip addr add 10.9.9.9/32 dev lo; ip route add default dev lo src 10.9.9.9"
        subprocess.run([*self.before, "sh", "-ec", lines], check=True)
        try:
            self._start_daemons()
        except BaseException:
            self.stop()
            raise

    @property
    def before(self) -> list[str]:
        """Stands in front of a command that is to see the cluster."""
        seen = [f"SLURM_CONF={self.folder / 'slurm.conf'}", f"PATH={_PATH}"]
        return ["nsenter", f"--net=/proc/{self._network.pid}/ns/net", "--", "env", *seen]

    def ask(self, *words: str) -> str:
        """What a command of SLURM prints."""
        done = subprocess.run([*self.before, *words], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def queue(self) -> list[str]:
        """Elements that are queued or run."""
        return self.ask("squeue", "--noheader", "--array", "--format=%i %T %N").splitlines()

    def start_node(self, name: str) -> None:
        named = ["unshare", "--uts", "sh", "-c", f"hostname {name}; exec slurmd -D -N {name}"]
        self._start(name, *named)

    def kill_node(self, name: str) -> None:
        """As if its plug had been pulled: the daemon, its steps and all that they run."""
        steps = [
            pid
            for pid, words in command_lines().items()
            if words[0].startswith("slurmstepd") and self._host_of(pid) == self._host_of_node(name)
        ]
        every = [one for pid in (self._processes[name].pid, *steps) for one in tree_below(pid)]
        kill(*every)
        self._processes[name].wait()

    def stop(self) -> None:
        """Ends what runs, too."""
        if "slurmctld" in self._processes and self._processes["slurmctld"].poll() is None:
            with suppress(AssertionError, subprocess.TimeoutExpired):
                self.ask("scancel", "--user=root")
                wait_until(lambda: not self.queue(), 15, "an empty queue")
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()
        inside = self._inside()
        self._network.kill()
        self._network.wait()
        kill(*inside)

    def _start_daemons(self) -> None:
        munge = self.folder / "munge"
        files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
        # It wants folders that nobody else can write to, all the way up, which /tmp is not: --force.
        self._start("munged", "munged", "--foreground", "--force", f"--socket={munge / 'socket'}", *files)
        wait_until((munge / "socket").exists, 10, "munged")
        self._start("slurmctld", "slurmctld", "-D")
        for name in NODES:
            self.start_node(name)
        idle = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
        wait_until(lambda: self._says(*idle) == str(len(NODES)), 30, "two idle nodes")

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                [*self.before, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def _says(self, *words: str) -> str:
        """As `ask`, while the controller may not be there yet."""
        done = subprocess.run([*self.before, *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def _has_own_network(self) -> bool:
        return self._network_of(self._network.pid) not in ("", self._network_of(os.getpid()))

    def _inside(self) -> list[int]:
        """Whatever is left in the network of the cluster."""
        ours = self._network_of(self._network.pid)
        return [pid for pid in command_lines() if ours and self._network_of(pid) == ours]

    def _host_of_node(self, name: str) -> str:
        return self._host_of(self._processes[name].pid)

    @staticmethod
    def _host_of(pid: int) -> str:
        return _namespace(pid, "uts")

    @staticmethod
    def _network_of(pid: int) -> str:
        return _namespace(pid, "net")

    def _make_files(self, silence: int) -> None:
        for name in ("state", "munge", "spool-n1", "spool-n2"):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "munge" / "key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        devices = [self.folder / f"gpu{number}" for number in range(4)]
        for device in devices:  # it insists on devices, so they are /dev/null
            os.mknod(device, 0o600 | 0o020000, os.makedev(1, 3))
        gpus = zip(NODES, (devices[:2], devices[2:]), strict=True)
        lines = [f"NodeName={node} Name=gpu File={first},{second}" for node, (first, second) in gpus]
        (self.folder / "gres.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "slurm.conf").write_text(self._settings(silence))

    def _settings(self, silence: int) -> str:
        folder, host = self.folder, platform.node().partition(".")[0]
        nodes = [
            f"NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=16 RealMemory=64000 "
            "Gres=gpu:2 State=UNKNOWN"
            for port, name in enumerate(NODES, start=17001)
        ]
        lines: Sequence[str] = [
            "ClusterName=here",
            f"SlurmctldHost={host}(127.0.0.1)",
            "SlurmctldPort=16817",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            # A requeued job waits for the life of its credential, two minutes by default.
            f"AuthInfo=socket={folder / 'munge' / 'socket'},cred_expire=5",
            "CredType=cred/munge",
            f"StateSaveLocation={folder / 'state'}",
            f"SlurmdSpoolDir={folder}/spool-%n",
            f"SlurmctldPidFile={folder / 'slurmctld.pid'}",
            f"SlurmdPidFile={folder}/slurmd-%n.pid",
            f"SlurmctldLogFile={folder / 'slurmctld.log'}",
            f"SlurmdLogFile={folder}/slurmd-%n.log",
            "SlurmdParameters=config_overrides",  # nodes are as large as it says here
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            "GresTypes=gpu",
            "AccountingStorageType=accounting_storage/none",
            "JobAcctGatherType=jobacct_gather/none",
            "MpiDefault=none",
            "SwitchType=switch/none",
            "ReturnToService=2",
            f"SlurmdTimeout={silence}",
            "KillWait=10",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=sched_interval=1,batch_sched_delay=0,requeue_delay=1",
            *nodes,
            f"PartitionName=all Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP",
        ]
        return "\n".join(lines) + "\n"


def _namespace(pid: int, kind: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    except OSError:
        return ""
