#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of one user while another user tries to stop or enter them: by look-alikes of the folder where the ranks meet
(folders with forged records, files, FIFOs, links), by the folder itself, by the job's ports and by a false store at
the port that the job names. Root alone can be two users; without root, the test skips.

usage: test_strangers.py YOKE [--full]
"""
import collections
import ctypes
import encodings.idna  # now: the stranger may not be able to read Python's folder
import fcntl
import hashlib
import hmac
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

VICTIM, STRANGER = 4242, 65534  # user ids; every fourth job is root's
PLACES = [pathlib.Path(place) for place in ("/tmp", "/var/tmp", "/dev/shm")]
PORT = 29500
LIMIT_S, TIMEOUT_S = 600, 1200  # a job that waits in vain ends below the ranks' own time-out
TRAIN = ["train", "--mode", "ddp", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=4,rows=96", "--batch", "24",
         "--steps", "6", "--algorithm", "direct", "--threads", "1", "--timeout", str(TIMEOUT_S), "--json", "--quiet"]
FLOOD = 100  # names that stay


def isolate():
    """Temporary folders and a network of this test's own: the stranger meets these jobs, and no other program."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, new_network, all_private, no_devices = 0x20000, 0x40000000, 0x44000, 0x6
    if libc.unshare(new_mounts | new_network) != 0 or libc.mount(None, b"/", None, all_private, None) != 0:
        return False
    for place in PLACES:
        if libc.mount(b"tmpfs", bytes(place), b"tmpfs", no_devices, b"mode=1777") != 0:
            return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
    return True


# The stranger.

def become_stranger():
    os.setgroups([])
    os.setresgid(STRANGER, STRANGER, STRANGER)
    os.setresuid(STRANGER, STRANGER, STRANGER)


class Stranger:
    """Runs as another user until SIGTERM, and then reports what it did."""

    def __init__(self, victim_file):
        self.victim_file = victim_file
        self.stopped = False
        self.did = collections.Counter()
        self.held = []  # descriptors of the forged owners' locks
        # What anyone can compute from the variables of jobs that name their port.
        self.runs = {self.name_end(run, PORT): run for run in (f"{PORT}-0-none", f"port-{PORT}")}

    @staticmethod
    def name_end(run, port):
        return hashlib.sha256(f"{run}:{port}".encode()).hexdigest()[:16]

    def attempt(self, what, call, *arguments):
        try:
            call(*arguments)
        except OSError:
            return False
        self.did[what] += 1
        return True

    def forge(self, folder, run, mode):
        """A folder as rank 0 makes it, with the locks of a rank 0 that runs."""
        if not self.attempt("folders", os.mkdir, folder):
            return
        nonce = "ab" * 32
        owner = os.open(f"{folder}/yoke-owner-{nonce}", os.O_CREAT | os.O_RDWR, 0o666)
        fcntl.flock(owner, fcntl.LOCK_EX)
        rank = os.open(folder, os.O_RDONLY)
        fcntl.flock(rank, fcntl.LOCK_SH)
        self.held += [owner, rank]
        for name, text in [("yoke-run", f"yoke store 2\nnonce {nonce}\nowner here:1\nrun {run}\n"), ("yoke-guard", ""),
                           ("yoke-members", "")]:
            pathlib.Path(f"{folder}/{name}").write_text(text)
        os.chmod(folder, mode)

    def lay(self, place, start, run):
        """All kinds of look-alikes, under names of the moment."""
        moment = f"{time.monotonic_ns():x}"[-5:]
        names = [f"{place}/{start}-{letter}{moment}" for letter in "abcdefgh"]
        self.forge(names[0], run, 0o777)
        self.forge(names[1], run, 0o700)
        self.attempt("fifos", os.mkfifo, names[2], 0o666)
        self.attempt("links", os.symlink, self.victim_file, names[3])
        self.attempt("links", os.symlink, "/dev/zero", names[4])
        if self.attempt("folders", os.mkdir, names[5]):
            os.mkfifo(f"{names[5]}/yoke-run", 0o666)
            os.symlink(self.victim_file, f"{names[5]}/yoke-guard")
            os.chmod(names[5], 0o777)
        for folder in place.glob(f"{start}-??????"):
            self.attempt("links", os.symlink, folder, names[6])
        return names

    def clear(self, names):
        for name in names:
            if os.path.islink(name) or not os.path.isdir(name):
                self.attempt("removed", os.unlink, name)
            else:
                shutil.rmtree(name, ignore_errors=True)
        while self.held:
            os.close(self.held.pop())

    def enter(self, folder):
        """What a stranger must not be able to do with the ranks' folder."""
        for call in [(os.listdir, folder), (os.rename, folder, f"{folder}x"), (os.rmdir, folder),
                     (os.open, folder / "yoke-run", os.O_RDONLY), (os.chmod, folder, 0o777),
                     (os.open, folder / "yoke-key-a", os.O_CREAT | os.O_WRONLY)]:
            self.did["folder attacks"] += 1
            if self.attempt("entered", *call):
                print(f"entered: {call}", file=sys.stderr)

    def knock(self, port, run):
        """Enters a store without a token, if there is one, and ends its run."""
        with socket.create_connection(("127.0.0.1", port), timeout=0.2) as link:
            self.did["connections"] += 1
            head = link.recv(16, socket.MSG_WAITALL)
            if head[:4] != b"YOKE":
                return
            nonces = link.recv(32, socket.MSG_WAITALL) + bytes(32)
            proof = hmac.digest(b"", b"yoke store: client\0" + nonces + run.encode(), "sha256")
            self.send(link, 2, bytes(32) + proof + run.encode())
            if link.recv(16, socket.MSG_WAITALL)[6:8] == b"\0\3":  # welcome
                self.did["entered"] += 1
                self.send(link, 4, b"rendezvous/outcome\0" + b"8 poisoned")

    @staticmethod
    def send(link, kind, payload):
        link.sendall(struct.pack(">4sHHII", b"YOKE", 2, kind, 1, len(payload)) + payload)

    def knock_everywhere(self):
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in pathlib.Path(table).read_text().splitlines()[1:]:
                words = line.split()
                port = int(words[1].rsplit(":", 1)[1], 16)
                if words[3] == "0A" and int(words[7]) != STRANGER:
                    for run in self.runs.values():
                        self.attempt("knocks", self.knock, port, run)

    def serve_falsely(self, listener):
        """Takes the port that the job names, and refuses whoever comes."""
        try:
            link, _ = listener.accept()
        except OSError:
            return
        self.did["deceived"] += 1
        with link:
            self.send(link, 1, bytes(32))
            self.send(link, 10, b"poisoned")

    def look(self):
        """The names that anyone can list."""
        for place in PLACES:
            for user in (VICTIM, 0):
                for folder in place.glob(f"yoke-{user}-{'[0-9a-f]' * 16}-??????"):
                    self.runs.setdefault(folder.name.split("-")[2], "none")
            for folder in [*place.glob("yoke-[0-9]*-*-??????"), *place.glob("yoke-launch-??????")]:
                try:
                    if folder.lstat().st_uid in (VICTIM, 0) and not folder.is_symlink():
                        self.enter(folder)
                except OSError:
                    pass

    def run(self, output):
        become_stranger()
        os.umask(0)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopped", True))
        listener = socket.create_server(("127.0.0.1", PORT))
        listener.setblocking(False)
        flood = [f"/tmp/yoke-{VICTIM}-{end}-{i:06d}" for end in self.runs for i in range(FLOOD)]
        old = [f"{place}/yoke-{user}-{end}" for place in PLACES for user in (VICTIM, 0) for end in self.runs]
        for name in [*flood, *old]:
            self.attempt("folders", os.mkdir, name)
        lasting = [name for end, run in self.runs.items() for place in PLACES for user in (VICTIM, 0)
                   for name in self.lay(place, f"yoke-{user}-{end}", run)]
        locks, self.held = self.held, []
        while not self.stopped:
            self.look()
            names = []
            for end, run in list(self.runs.items())[-6:]:
                place = PLACES[self.did["rounds"] % len(PLACES)]
                names += [name for user in (VICTIM, 0) for name in self.lay(place, f"yoke-{user}-{end}", run)]
            self.knock_everywhere()
            if select.select([listener], [], [], 0)[0]:
                self.serve_falsely(listener)
            self.did["rounds"] += 1
            self.clear(names)
        self.held = locks
        self.clear([*flood, *old, *lasting])
        os.write(output, json.dumps(self.did).encode())


def start_stranger(victim_file):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            Stranger(victim_file).run(writing)
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)
    os.close(writing)
    return pid, reading


def stop_stranger(pid, reading):
    os.kill(pid, signal.SIGTERM)
    with os.fdopen(reading) as report:
        text = report.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else None


# The jobs.

class Jobs:
    def __init__(self, yoke, folder):
        self.folder = folder
        self.yoke = folder / "yoke"
        self.yoke.write_bytes(yoke)
        self.yoke.chmod(0o755)
        self.kinds = [self.launch, self.torchrun, self.plain, self.alone]
        self.mpirun_program = shutil.which("mpirun")
        if self.mpirun_program is not None:
            self.kinds.insert(1, self.mpirun)

    def start(self, command, user, environment):
        home = self.folder / f"home-{user}"
        home.mkdir(exist_ok=True)
        os.chown(home, user, user)
        kept = {name: value for name, value in os.environ.items()
                if name.endswith("SAN_OPTIONS") or name.startswith("SIMCUDA_")}
        return subprocess.Popen(command, cwd=home, text=True, user=user, group=user, extra_groups=[],
                                env={"PATH": os.environ["PATH"], "HOME": str(home), **kept, **environment},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def launch(self, user):
        return [self.start([self.yoke, "launch", "--nproc-per-node", "2", "--", *TRAIN], user, {})]

    def mpirun(self, user):
        settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        return [self.start([self.mpirun_program, "-n", "2", self.yoke, *TRAIN], user, settings)]

    def ranks(self, user, world, **extra):
        shared = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(PORT), **extra}
        return [self.start([self.yoke, *TRAIN], user, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank),
                                                       "LOCAL_WORLD_SIZE": str(world)}) for rank in range(world)]

    def torchrun(self, user):
        return self.ranks(user, 2, TORCHELASTIC_RUN_ID="none")

    def plain(self, user):
        return self.ranks(user, 2)

    def alone(self, user):
        return self.ranks(user, 1)

    def run(self, index):
        """Returns the kind, the seconds, and what was wrong: None if nothing was."""
        kind = self.kinds[index % len(self.kinds)]
        user = 0 if index % 4 == 3 else VICTIM
        began = time.monotonic()
        processes = kind(user)
        wrong, hashes = None, []
        for process in processes:
            try:
                out, err = process.communicate(timeout=max(0.1, began + LIMIT_S - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                wrong = wrong or f"it ran for more than {LIMIT_S} s: {err}"
            if process.returncode != 0:
                wrong = wrong or f"exit code {process.returncode}: {err}"
            hashes += [json.loads(line)["weights_hash"] for line in out.splitlines() if '"weights_hash"' in line]
        if wrong is None and len(hashes) != 1:
            wrong = f"{len(hashes)} ranks printed weights"
        return kind.__name__, time.monotonic() - began, wrong, hashes


def folders_left():
    return [str(folder) for place in PLACES for folder in place.glob("yoke-*-??????")
            if not folder.is_symlink() and not folder.name.startswith("yoke-strangers-")]


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def main():
    arguments = [word for word in sys.argv[1:] if word != "--full"]
    count = 100 if "--full" in sys.argv else 10
    if os.geteuid() != 0:
        skip("root alone can run jobs as one user and strangers as another")
    yoke = pathlib.Path(arguments[0]).read_bytes()  # it may lie in /tmp
    if not isolate():
        skip("this machine gives the test no network and temporary folders of its own")
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="yoke-strangers-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        jobs = Jobs(yoke, folder)
        kept = folder / "kept"
        kept.write_text("the victim's")
        os.chown(kept, VICTIM, VICTIM)
        quiet = [jobs.run(index) for index in range(len(jobs.kinds))]
        stranger = start_stranger(kept)
        try:
            met = [jobs.run(index) for index in range(count)]
        finally:
            did = stop_stranger(*stranger)
        intact = kept.read_text() == "the victim's"
    return judge(quiet, met, did, intact)


def judge(quiet, met, did, intact):
    weights = {kind: hashes for kind, _, _, hashes in quiet}
    affected = 0
    for index, (kind, seconds, wrong, hashes) in enumerate(met):
        if wrong is None and hashes != weights[kind]:
            wrong = f"weights {hashes}, not {weights[kind]}"
        if wrong is not None:
            affected += 1
            print(f"job {index} ({kind}, {seconds:.1f} s): {wrong}")
    alone = [wrong for _, _, wrong, _ in quiet if wrong is not None]
    left = folders_left()
    for line in [*alone, *left]:
        print(f"wrong: {line}")
    if did is None or did["rounds"] < len(met) or not intact:
        print(f"wrong: the stranger did {did}, and the victim's file is {'intact' if intact else 'lost'}")
    print(", ".join(f"{number} {what}" for what, number in sorted((did or {}).items())))
    print(f"{len(met) - affected} of {len(met)} jobs unaffected by strangers, {(did or {}).get('entered', 0)} entered, "
          f"{len(left)} folders left, median {median([row[1] for row in met]):.2f} s, "
          f"alone {median([row[1] for row in quiet]):.2f} s")
    well = did is not None and did["rounds"] >= len(met) // 2 and "entered" not in did and "deceived" not in did
    return 0 if well and intact and not affected and not left and not alone else 1


if __name__ == "__main__":
    sys.exit(main())
