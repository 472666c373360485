#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke launch before its workers run: ranks, variables, mistakes, batch scripts; and what a worker finds at its start.

usage: test_launch.py YOKE RANK_SUM [unittest arguments]
"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import unittest

from launch_case import Case, LIMIT_S, YOKE, end, environment, is_running, launch, wait_until

RANK_SUM = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
TORCHRUN = """LOCAL_RANK RANK GROUP_RANK ROLE_RANK LOCAL_WORLD_SIZE WORLD_SIZE ROLE_WORLD_SIZE MASTER_ADDR
    MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID""".split()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Plan(Case):
    def explain(self, *options, env=None):
        result = launch("--explain", "--json", *options, env=env)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_ranks_are_counted_node_by_node(self):
        for nodes in [1, 2, 3]:
            for nproc in [1, 2, 3, 4, 5, 6, 7, 8]:
                said = self.explain("--nnodes", nodes, "--nproc-per-node", nproc)
                world = nodes * nproc
                self.assertEqual((said["world"], len(said["ranks"])), (world, world))
                for rank, row in enumerate(said["ranks"]):
                    place = (rank, rank % nproc, rank // nproc)
                    self.assertEqual((row["rank"], row["local_rank"], row["node_rank"]), place)
                    told = row["environment"]
                    for names, value in [("RANK ROLE_RANK YOKE_RANK", place[0]),
                                         ("LOCAL_RANK YOKE_LOCAL_RANK", place[1]),
                                         ("GROUP_RANK YOKE_NODE_RANK", place[2]),
                                         ("WORLD_SIZE ROLE_WORLD_SIZE YOKE_WORLD_SIZE", world),
                                         ("LOCAL_WORLD_SIZE YOKE_LOCAL_WORLD_SIZE", nproc),
                                         ("GROUP_WORLD_SIZE YOKE_NODES", nodes)]:
                        self.assertEqual({told[name] for name in names.split()}, {str(value)}, names)

    def test_gpus_are_dealt_by_local_rank_and_a_cpu_is_divided(self):
        devices = subprocess.run([YOKE, "devices", "--json"], capture_output=True, text=True, check=True,
                                 env=environment())
        names = [device["name"] for device in json.loads(devices.stdout)["devices"]]
        if names == ["cpu:0"]:
            names = ["cpu:0", "cpu:1", "cpu:2"]
        for row in self.explain("--nnodes", 2, "--nproc-per-node", 3)["ranks"]:
            self.assertEqual(row["device"], names[row["local_rank"] % len(names)])

    def test_ranks_of_one_machine_meet_in_the_folder_for_temporary_files(self):
        for given, used in [(None, "/tmp"), ("", "/tmp"), ("relative", "/tmp"), ("/" + 300 * "x", "/tmp"),
                            ("/var/tmp", "/var/tmp")]:
            rank = self.explain(env=None if given is None else {"TMPDIR": given})["ranks"][0]
            self.assertRegex(rank["environment"]["YOKE_MASTER_ADDR"], f"^file://{used}/yoke-launch-")
        result = launch("--", "true", env={"TMPDIR": "/absent"})
        self.assertEqual(result.returncode, 74, result.stderr)
        self.assertRegex(result.stderr, "yoke: /absent/yoke-launch-......: cannot create the folder: No such file")

    def test_ranks_meet_elsewhere_where_tmp_is_not_safe(self):
        """Other file systems lie over /tmp and /mnt, for this process alone: /tmp is read-only, or anybody may
        rename folders in it."""
        if any(str(YOKE).startswith(place) for place in ("/tmp/", "/mnt/")):
            self.skipTest("the tool lies in a folder that this test covers")
        for tmp in ["ro", "mode=777"]:
            for runtime, used in [("/mnt", "/mnt"), ("/absent", "/dev/shm")]:
                script = f"mount -t tmpfs -o {tmp} none /tmp && mount -t tmpfs -o mode=700 none /mnt && " \
                    f"echo mounted && exec '{YOKE}' launch -- sh -c 'echo $YOKE_MASTER_ADDR'"
                result = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True,
                                        check=False, timeout=LIMIT_S, env=environment({"XDG_RUNTIME_DIR": runtime}))
                if not result.stdout.startswith("mounted"):
                    self.skipTest(f"no file systems of the test's own: {result.stderr.strip()}")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, f"^mounted\nfile://{used}/yoke-launch-")

    def start_in(self, place):
        """A launcher whose folder lies there and is old; returns it, its guard and the folder."""
        before = set(place.iterdir())
        process = subprocess.Popen([YOKE, "launch", "--", "sleep", "1000"], env=environment({"TMPDIR": str(place)}))
        self.addCleanup(end, process)

        def children():
            pids = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            return {pathlib.Path(f"/proc/{pid}/comm").read_text().strip(): int(pid) for pid in pids}
        wait_until(lambda: {"yoke-guard", "sleep"} <= set(children()), "guard and worker")
        [folder] = set(place.iterdir()) - before
        for file in folder.iterdir():
            os.utime(file, (0, 0))
        return process, children()["yoke-guard"], folder

    def test_a_folder_whose_launcher_and_guard_were_killed_is_removed_by_the_next(self):
        place = self.folder / "place"
        place.mkdir()
        (place / "yoke-launch-abcdef").mkdir(mode=0o700)  # another program's
        dead, guard, stale = self.start_in(place)
        living, _, used = self.start_in(place)
        os.kill(guard, signal.SIGKILL)
        dead.kill()
        dead.wait()
        wait_until(lambda: not is_running(guard), "the end of the guard, who holds the folder's lock")
        self.assertTrue(stale.exists())
        self.assertEqual(launch("true", env={"TMPDIR": str(place)}).returncode, 0)
        self.assertEqual(set(place.iterdir()), {used, place / "yoke-launch-abcdef"})
        living.terminate()
        living.wait()
        self.assertEqual(set(place.iterdir()), {place / "yoke-launch-abcdef"})

    def test_a_person_reads_the_same_table(self):
        result = launch("--explain", "--nnodes=3", "--nproc_per_node=2", "--master-addr", "head",
                        "--master-port", "29400", "--node-rank", "1")
        self.assertIn("world    6 = 2 processes x 3 nodes\naddress  head port 29400\n", result.stdout)
        rows = [line.split()[:3] for line in result.stdout.splitlines() if line[:6].strip().isdigit()]
        self.assertEqual(rows, [[str(r), str(r % 2), str(r // 2)] for r in range(6)])
        self.assertIn("\nenvironment of rank 2\n  LOCAL_RANK=0\n  RANK=2\n", result.stdout)
        self.assertIn("  YOKE_MASTER_PORT=29400\n", result.stdout)

    def test_auto_and_cpu_count_what_is_here(self):
        cores = len(os.sched_getaffinity(0))
        self.assertEqual(self.explain("--nproc-per-node", "cpu")["world"], cores)
        first = self.explain()["ranks"][0]["device"]
        if first.startswith("cpu"):
            self.assertEqual(self.explain("--nproc-per-node", "auto")["world"], cores)
            self.assertIn("no usable GPU", launch("--explain", "--nproc-per-node", "gpu").stderr)

    def test_each_mistake_has_a_text_of_its_own(self):
        two = ["--nnodes", "2"]
        address = ["--master-addr", "head", "--master-port", "1"]
        for words, arguments in [
                ("needs a command", []),
                ("needs --node-rank", [*two, *address, "true"]),
                ("needs --master-addr", [*two, "--node-rank", "0", "--master-port", "1", "true"]),
                ("needs --master-port", [*two, "--node-rank", "0", "--master-addr", "head", "true"]),
                ("--node-rank is 2 but --nnodes is 2", [*two, *address, "--node-rank", "2", "true"]),
                ("--node-rank is 1 but --nnodes is 1", ["--node-rank", "1", "true"]),
                ("--standalone is for one machine", [*two, "--standalone", "true"]),
                ("--standalone chooses", ["--standalone", "--master-port", "5", "true"]),
                ("--max-restarts", [*two, *address, "--node-rank", "0", "--max-restarts", "1", "true"]),
                ("'0' is not a number from 1 to 1024", ["--nproc-per-node", "0", "true"]),
                ("'1025' is not a number from 1", ["--nproc-per-node", "1025", "true"]),
                ("did you mean 'gpu'", ["--nproc-per-node", "gpus", "true"]),
                ("more than 1000000", ["--explain", "--nnodes", "1000", "--nproc-per-node", "1001"]),
                ("is not a host", ["--master-addr", "tcp://head", "true"]),
                ("--master-port: '65536'", ["--master-port", "65536", "true"]),
                ("--rdzv-id must be one line", ["--rdzv-id", "x" * 64, "true"]),
                ("--log-ranks: '1,,2'", ["--log-ranks", "1,,2", "true"]),
                ("--json needs --explain", ["--json", "true"]),
                ("one at a time", ["--explain", "--print-sbatch"]),
                ("did you mean --nproc-per-node", ["--nproc-per-nod", "2", "true"]),
                ("has no option -r", ["-r", "3", "true"]),
                ("--print-sbatch needs a command", ["--print-sbatch"]),
                ("not 'gpu'", ["--print-sbatch", "--nproc-per-node", "gpu", "true"])]:
            with self.subTest(arguments=arguments):
                result = launch(*arguments)
                lines = result.stderr.splitlines()
                self.assertEqual((result.returncode, result.stdout, len(lines)), (2, "", 2), result.stderr)
                self.assertIn(words, lines[0])
                self.assertIn("yoke help launch", lines[1])

    def test_what_follows_the_command_is_its_own(self):
        for start in [[], ["--"], ["--no-python", "--standalone", "--nproc_per_node=1"]]:
            result = launch(*start, "echo", "--help", "--nnodes", "--", "-h")
            self.assertEqual(result.stdout, "--help --nnodes -- -h\n", result.stderr)
        self.assertIn("usage: yoke launch", launch("--tee", "--help").stdout)


class Script(Case):
    def run_script(self, *arguments, **variables):
        """As sbatch would, with a srun that starts one task here and says how it was called."""
        script = launch("--print-sbatch", *arguments).stdout
        for name, text in [("srun", 'shift; printf "<%s>" "$@" > called; exec "$@"'),
                           ("scontrol", "echo first; echo second"), ("yoke", f'exec "{YOKE}" "$@"')]:
            (self.folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.folder / name).chmod(0o755)
        env = environment({"HOME": str(self.folder), "SLURM_JOB_ID": "7", "SLURM_NODEID": "1",
                           "SLURM_JOB_NODELIST": "n[1-2]", **variables})
        env["PATH"] = f"{self.folder}:{env['PATH']}"
        result = subprocess.run(["bash", "-c", script], cwd=self.folder, env=env, capture_output=True,
                                text=True, check=False)
        return script, result, (self.folder / "called").read_text()

    def test_verbs_are_started_by_srun_one_task_a_device(self):
        script, _, called = self.run_script("--nnodes", 2, "--nproc-per-node", 4, "--", "help", "it's a")
        self.assertIn("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4 ", script)
        self.assertIn("#SBATCH --gpus-per-node=4\n", script)
        self.assertEqual(called, "<yoke><help><it's a>")

    def test_programs_are_started_by_a_launcher_on_each_node(self):
        script, result, _ = self.run_script(
            "--nnodes", 2, "--nproc-per-node", 3, "--gpus-per-node", 0, "--", "sh", "-c",
            'echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $TORCHELASTIC_RUN_ID "it\'s" $0', "a b")
        self.assertIn("--ntasks-per-node=1 ", script)
        self.assertNotIn("gpus", script)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "", "rank 0 is on another node")
        script, result, _ = self.run_script(
            "--nnodes", 2, "--nproc-per-node", 3, "--", "sh", "-c",
            'echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $TORCHELASTIC_RUN_ID "it\'s" $0', "a b",
            SLURM_NODEID="0")
        self.assertEqual(result.stdout, "0 6 first 20007 7 it's a b\n")

    def test_the_secret_is_made_for_its_owner_and_taken_away(self):
        look = 'stat -c %a "$YOKE_RDZV_TOKEN_FILE"'
        _, result, called = self.run_script("--nnodes", 2, "--", "sh", "-c", look, SLURM_NODEID="0")
        self.assertEqual(result.stdout, "600\n", result.stderr)
        self.assertEqual(list(self.folder.glob(".yoke-token*")), [])
        self.assertNotIn("TOKEN=", called)


class Environment(Case):
    def test_an_empty_environment_becomes_torchruns(self):
        ranks = self.variables("--nproc-per-node", 3, ranks=3)
        for rank, told in enumerate(ranks):
            self.assertEqual([name for name in TORCHRUN if name not in told], [])
            self.assertEqual([told[name] for name in TORCHRUN[:8]],
                             [str(rank), str(rank), "0", str(rank), "3", "3", "3", "127.0.0.1"])
            self.assertEqual((told["TORCHELASTIC_RESTART_COUNT"], told["TORCHELASTIC_MAX_RESTARTS"]),
                             ("0", "0"))
            self.assertEqual(told["OMP_NUM_THREADS"], "1")
            self.assertTrue(1024 <= int(told["MASTER_PORT"]) <= 65535)
        for name in ["MASTER_PORT", "TORCHELASTIC_RUN_ID", "YOKE_MASTER_ADDR"]:
            self.assertEqual(len({told[name] for told in ranks}), 1, name)
        self.assertNotIn("OMP_NUM_THREADS", self.variables()[0])
        self.assertEqual(self.variables("--nproc-per-node", 2, env={"OMP_NUM_THREADS": "7"})[0]
                         ["OMP_NUM_THREADS"], "7")

    def test_what_another_launcher_left_is_replaced(self):
        told = self.variables(env={"RANK": "5", "YOKE_RANK": "6", "YOKE_MASTER_PORT": "7", "WORLD_SIZE": "8",
                                   "TORCHELASTIC_USE_AGENT_STORE": "True", "OWN": "kept"})[0]
        self.assertEqual((told["RANK"], told["YOKE_RANK"], told["WORLD_SIZE"], told["OWN"]),
                         ("0", "0", "1", "kept"))
        self.assertEqual(told["TORCHELASTIC_USE_AGENT_STORE"], "False")
        self.assertNotIn("YOKE_MASTER_PORT", told)

    def test_the_second_node_goes_on_counting(self):
        ranks = self.variables("--nnodes", 2, "--node-rank", 1, "--nproc-per-node", 2, "--master-addr",
                               "127.0.0.1", "--master-port", 29999, "--rdzv-id", "seven", ranks=2, first=2)
        for rank, told in enumerate(ranks):
            self.assertEqual((told["RANK"], told["LOCAL_RANK"], told["GROUP_RANK"], told["WORLD_SIZE"]),
                             (str(2 + rank), str(rank), "1", "4"))
            self.assertEqual((told["YOKE_MASTER_ADDR"], told["YOKE_MASTER_PORT"], told["YOKE_RUN_ID"]),
                             ("127.0.0.1", "29999", "seven"))

    def test_a_worker_begins_as_if_nobody_had_started_it(self):
        look = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd; ls -d $YOKE_MASTER_ADDR"
        lines = self.sh(look).stdout.split()
        self.assertEqual(int(lines[1], 16), 0, "signals blocked")
        self.assertEqual(int(lines[3], 16) & 1 << 12, 0, "SIGPIPE ignored")
        self.assertEqual(lines[4:8], ["0", "1", "2", "3"], "3: ls itself")

    def test_rank_0_reads_what_is_piped_in(self):
        result = self.sh("cat > got$RANK", "--nproc-per-node", 2, input="words\n")
        self.assertEqual(result.returncode, 0)
        self.assertEqual([(self.folder / f"got{rank}").read_text() for rank in range(2)], ["words\n", ""])

    def test_a_token_travels_in_the_environment_alone(self):
        look = "echo $YOKE_RDZV_TOKEN; cat /proc/$PPID/cmdline /proc/self/cmdline"
        token, words = self.sh(look, env={"YOKE_RDZV_TOKEN": "hush"}).stdout.split("\n")
        self.assertEqual((token, "hush" in words), ("hush", False))

    def test_a_token_file_is_its_owners_alone(self):
        path = self.folder / "token"
        path.write_text("hush\n")
        for mode, words in [(0o644, "can be read by others"), (0o640, "can be read by others")]:
            path.chmod(mode)
            result = launch("true", env={"YOKE_RDZV_TOKEN_FILE": str(path)})
            self.assertEqual(result.returncode, 2)
            self.assertIn(words, result.stderr)
        path.chmod(0o600)
        self.assertEqual(launch("true", env={"YOKE_RDZV_TOKEN_FILE": str(path)}).returncode, 0)
        path.write_text("\nhush")
        for env, words in [({"YOKE_RDZV_TOKEN_FILE": str(path)}, "is empty"),
                           ({"YOKE_RDZV_TOKEN_FILE": str(self.folder)}, "is not a regular file"),
                           ({"YOKE_RDZV_TOKEN_FILE": "nowhere"}, "No such file"),
                           ({"YOKE_RDZV_TOKEN": ""}, "has 0 bytes"),
                           ({"YOKE_RDZV_TOKEN": "x", "YOKE_RDZV_TOKEN_FILE": "y"}, "unset one")]:
            result = launch("true", env=env)
            self.assertEqual(result.returncode, 2)
            self.assertIn(words, result.stderr)


class Meeting(Case):
    """rank_sum adds 10^rank + its argument over a process group and prints the sum on rank 0."""

    def start_sum(self, *arguments, env=None):
        process = subprocess.Popen([YOKE, "launch", *map(str, arguments)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=environment(env))
        self.addCleanup(end, process)
        return process

    def finish(self, process):
        stdout, stderr = process.communicate(timeout=900)
        self.assertEqual(process.returncode, 0, stderr)
        return stdout

    def test_launches_at_once_meet_apart(self):
        runs = [self.start_sum("--nproc-per-node", 2, "--rdzv-id", "same", "--", RANK_SUM, own)
                for own in [100, 500]]
        self.assertEqual([self.finish(run) for run in runs], ["211\n", "1011\n"])

    def test_launchers_of_several_nodes_make_one_run(self):
        common = ["--nnodes", 2, "--nproc-per-node", 2, "--master-addr", "127.0.0.1", "--master-port",
                  free_port()]
        token = {"YOKE_RDZV_TOKEN": "hush"}
        runs = [self.start_sum(*common, "--node-rank", node, "--", RANK_SUM, 0, env=token)
                for node in [0, 1]]
        self.assertEqual([self.finish(run) for run in runs], ["1111\n", ""])

    def test_a_port_is_used_with_a_token_alone(self):
        """Without one, every user of the machine could connect to it."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            one = ["--nproc-per-node", 2, "--master-port", port, "--", RANK_SUM, 0]
            result = launch(*one, env={"YOKE_RDZV_TOKEN": "hush"})
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(f"port {port} of 127.0.0.1 is taken", result.stderr)
            result = launch(*one)
            self.assertEqual(result.stdout, "11\n", result.stderr)
        result = launch(*one, env={"YOKE_RDZV_TOKEN": "hush"})
        self.assertEqual(result.stdout, "11\n", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
