# SPDX-License-Identifier: Apache-2.0
"""A private SLURM cluster of two nodes on this machine: munge, the controller and both daemons keep their files in
one folder, listen on loopback and end with the cluster. Its daemons need root."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from launch_case import environment

PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "squeue", "scancel"]
LIMIT_S = 900
NODES = ["n1", "n2"]


def find(program):
    return shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")


def missing():
    """Why there is no cluster here; None when there can be one."""
    lacking = [program for program in PROGRAMS if find(program) is None]
    if lacking:
        return "not installed: " + ", ".join(lacking)
    return None if os.geteuid() == 0 else "SLURM's daemons need root"


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    def __init__(self, folder, cores=4):
        self.folder = pathlib.Path(folder)
        self.processes = []
        ports = free_ports(1 + len(NODES))
        (self.folder / "slurm.conf").write_text(f"""ClusterName=yoke
SlurmctldHost={socket.gethostname()}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge
CredType=cred/munge
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={",".join(NODES)} NodeAddr=127.0.0.1,127.0.0.1 Port={ports[1]},{ports[2]} CPUs={cores}
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
""")
        for name in ["state"] + [f"spool.{node}" for node in NODES]:
            (self.folder / name).mkdir()
        self.environment = environment({"SLURM_CONF": str(self.folder / "slurm.conf")})

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.end()
            raise
        return self

    def begin(self):
        self.folder.chmod(0o755)
        key = self.folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self.daemon("munged", "-F", "--force", f"--key-file={key}", f"--socket={self.folder}/munge",
                    f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log",
                    f"--seed-file={self.folder}/seed")
        self.wait(lambda: (self.folder / "munge").exists(), "munged")
        self.daemon("slurmctld", "-D")
        for node in NODES:
            self.daemon("slurmd", "-D", "-N", node)
        self.wait(lambda: self.run("sinfo", "-h", "-o", "%D %T").stdout.split() == [str(len(NODES)), "idle"],
                  "idle nodes")

    def __exit__(self, *_):
        self.run("scancel", "-u", "root")
        self.wait(lambda: self.run("squeue", "-h").stdout == "", "end of all jobs")
        self.end()

    def end(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def daemon(self, program, *arguments):
        with open(self.folder / f"{program}.out", "ab") as out:
            self.processes.append(subprocess.Popen([find(program), *arguments], env=self.environment,
                                                   stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def wait(self, condition, what):
        end = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"no {what}: see {sorted(path.name for path in self.folder.iterdir())}")
            time.sleep(0.05)

    def run(self, *command, env=None):
        return subprocess.run(command, env={**self.environment, **(env or {})}, text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=900)
