#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Yoke as a rank under mpirun of Open MPI and of MPICH, SLURM's srun, and torchrun's variables. Every launcher's run
must learn the weights of one process. The test skips launchers that are not installed and says so. YOKE_TEST_MPIEXEC
names the launcher of this build's MPI; test_each_mpi.py tries the others.

usage: test_launchers.py YOKE [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import slurm_cluster
from launch_case import LIMIT_S, YOKE, environment

# Regularly cut, and no algorithm measured: the same weights whoever starts the ranks.
TRAIN = ["train", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=4,rows=96", "--batch", "24", "--steps", "6",
         "--algorithm", "direct", "--threads", "1", "--json", "--quiet"]
DDP = [str(YOKE), *TRAIN, "--mode", "ddp"]
# As root, and with more ranks than cores.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def run(command, env=None):
    return subprocess.run(command, env=environment(env), text=True, check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def expect_one_result(self, ran, devices=2):
        """One rank speaks, and the weights are those of one process with as many devices."""
        self.assertEqual(ran.returncode, 0, ran.stderr)
        result = json.loads(ran.stdout)
        alone = run([str(YOKE), *TRAIN, "--devices", f"{devices}xcpu"])
        self.assertEqual(alone.returncode, 0, alone.stderr)
        wanted = json.loads(alone.stdout)
        self.assertEqual(result["mode"], "ddp")
        self.assertEqual(result["devices"], devices)
        self.assertEqual(result["weights_hash"], wanted["weights_hash"])


class Alone(unittest.TestCase):
    def test_a_second_signal_ends_the_only_task_of_a_step(self):
        """As in the shell of srun --pty, where no launcher ends it."""
        slow = [str(YOKE), "train", "--model", "resnet18", "--dataset", "synthetic:3x64x64,rows=128", "--batch", "128",
                "--algorithm", "direct", "--epochs", "1000", "--evaluate-every", "-1", "--devices", "cpu"]
        task = environment({"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_JOB_ID": "1"})
        with subprocess.Popen(slow, env=task, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as process:
            self.addCleanup(process.kill)
            for line in process.stderr:
                if line.startswith("epoch 1  "):  # the line at its end: step 2 lasts half a second or so
                    process.send_signal(signal.SIGINT)
                if "finishing the step" in line:
                    break
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=LIMIT_S)
            self.assertEqual(process.returncode, -signal.SIGTERM)


class Torchrun(Case):
    def ranks(self, world, **extra):
        shared = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                  "MASTER_PORT": str(slurm_cluster.free_ports(1)[0]), "TORCHELASTIC_RUN_ID": "none", **extra}
        return [environment({**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(world)]

    def start(self, environments):
        return [subprocess.Popen(DDP, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE) for env in environments]

    def finish(self, processes):
        return [subprocess.CompletedProcess([], process.wait(), *texts)
                for process, texts in [(process, process.communicate(timeout=LIMIT_S)) for process in processes]]

    def test_its_variables_make_a_run(self):
        ran = self.finish(self.start(self.ranks(3)))
        self.expect_one_result(ran[0], 3)
        self.assertEqual([(one.returncode, one.stdout) for one in ran[1:]], [(0, "")] * 2)

    def test_weights_that_rank_0_reads_are_every_ranks(self):
        """The file lies where rank 0 alone finds it."""
        saved = self.folder / "weights.safetensors"
        learned = run([str(YOKE), *TRAIN, "--devices", "2xcpu", "--seed", "5", "--save", str(saved)])
        self.assertEqual(learned.returncode, 0, learned.stderr)
        other = self.folder / "other"
        other.mkdir()
        init = ["--init", "weights.safetensors"]
        processes = [subprocess.Popen([*DDP, *init], env=env, cwd=folder, text=True, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                     for env, folder in zip(self.ranks(2), [self.folder, other])]
        ran = self.finish(processes)
        alone = run([str(YOKE), *TRAIN, "--devices", "2xcpu", "--init", str(saved)])
        self.assertEqual([one.returncode for one in [*ran, alone]], [0] * 3, ran[0].stderr + ran[1].stderr)
        result, wanted = json.loads(ran[0].stdout), json.loads(alone.stdout)
        self.assertEqual(result["weights_hash"], wanted["weights_hash"])
        self.assertNotEqual(wanted["weights_hash"], json.loads(learned.stdout)["weights_hash"])

    def test_both_ranks_report_one_that_came_twice(self):
        environments = self.ranks(3)
        environments[2]["RANK"] = "1"
        for one in self.finish(self.start(environments)):
            self.assertEqual(one.returncode, 76, one.stderr)
            self.assertIn("two processes claim rank 1", one.stderr)

    def test_a_missing_variable_is_named(self):
        environments = self.ranks(2)
        del environments[0]["WORLD_SIZE"]
        ran = self.finish(self.start(environments[:1]))[0]
        self.assertEqual(ran.returncode, 2)
        self.assertIn("WORLD_SIZE", ran.stderr)

    def test_several_processes_without_ddp_are_refused(self):
        ran = run([str(YOKE), *TRAIN], self.ranks(4)[0])
        self.assertEqual(ran.returncode, 2)
        self.assertIn("started 4 processes, but --mode dp is one process for all devices", ran.stderr)


@unittest.skipIf(shutil.which("torchrun") is None, "torchrun is not installed: it comes with PyTorch")
class RealTorchrun(Case):
    """--no-python starts any program."""

    def torchrun(self, ranks, *more):
        return run(["torchrun", "--no-python", "--standalone", "--nproc-per-node", str(ranks), *DDP, *more])

    def test_it_starts_ranks(self):
        for ranks in [1, 2, 3]:
            self.expect_one_result(self.torchrun(ranks), ranks)

    def test_it_reports_a_failing_rank(self):
        ran = self.torchrun(2, "--init", str(self.folder / "nothing.safetensors"))
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("nothing.safetensors", ran.stderr)

    def test_it_restarts_ranks_that_failed(self):
        script = (f'test "$RANK" = 0 || test -e {self.folder}/failed || {{ touch {self.folder}/failed; exit 3; }}; '
                  f'exec {" ".join(DDP)}')
        ran = run(["torchrun", "--no-python", "--standalone", "--max-restarts", "1", "--nproc-per-node", "2",
                   "sh", "-c", script])
        self.expect_one_result(ran)


    def test_a_second_machine_joins(self):
        """--nnodes 1:2: the agents start all ranks again when one comes, and the ranks go on from their checkpoint."""
        train = [str(YOKE), "train", "--model", "mlp:width=256", "--dataset", "synthetic:3x32x32,rows=2000", "--steps", "12000",
                 "--shards", "4", "--algorithm", "direct", "--threads", "1", "--json", "--quiet"]
        alone = run([*train, "--devices", "cpu"])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        checkpoints = self.folder / "checkpoints"
        agent = ["torchrun", "--no-python", "--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "9", "--rdzv-backend",
                 "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "grows", "--rdzv-conf", "last_call_timeout=1",
                 *train, "--mode", "ddp", "--checkpoint-dir", str(checkpoints), "--checkpoint-every", "200",
                 "--resume", "auto"]
        # A store that agents share fails when ranks get other numbers.
        variables = {**environment(), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        agents = []
        try:
            for number in range(2):
                agents.append(subprocess.Popen(agent, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
                self.wait_for(lambda: any(checkpoints.glob("*.safetensors")))
            ends = [one.communicate(timeout=LIMIT_S) for one in agents]
        finally:
            for one in agents:
                one.kill()
        results = [json.loads(line) for out, _ in ends for line in out.splitlines() if line.startswith("{")]
        self.assertEqual({result["devices"] for result in results if result["steps"] == 12000}, {2}, ends)
        self.assertEqual(results[-1]["weights_hash"], json.loads(alone.stdout)["weights_hash"])

    def wait_for(self, condition):
        end = time.monotonic() + LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), end, "no checkpoint was written")
            time.sleep(0.1)


class MpiCase(Case):
    program = os.environ.get("YOKE_TEST_MPIEXEC") or "mpirun"

    def setUp(self):
        super().setUp()
        if shutil.which(self.program) is None:
            self.skipTest(f"{self.program} is not installed")

    def mpirun(self, ranks, *more, env=None):
        return run([self.program, "-n", str(ranks), *DDP, *more], {**OPEN_MPI, **(env or {})})


class Mpi(MpiCase):
    def test_mpirun_starts_ranks(self):
        for ranks in [1, 2, 3]:
            self.expect_one_result(self.mpirun(ranks), ranks)

    def test_a_failing_rank_ends_the_job(self):
        ran = self.mpirun(2, "--init", str(self.folder / "nothing.safetensors"))
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("nothing.safetensors", ran.stderr)


class Mpich(Mpi):
    program = "mpirun.mpich"


@unittest.skipUnless(os.environ.get("YOKE_TEST_MPIEXEC"), "this build has no MPI")
class Transport(MpiCase):
    def test_gradients_carried_by_mpi_learn_the_same(self):
        for ranks in [2, 3]:
            # Open MPI's own plug-ins leak, and are gone when it would be told where.
            ran = self.mpirun(ranks, "--transport", "mpi", env={"ASAN_OPTIONS": "detect_leaks=0"})
            self.expect_one_result(ran, ranks)


@unittest.skipIf(slurm_cluster.missing(), slurm_cluster.missing())
class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.cluster = slurm_cluster.Cluster(cls.folder.name)
        cls.cluster.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__()
        cls.folder.cleanup()

    expect_one_result = Case.expect_one_result

    def test_srun_starts_ranks_on_one_node(self):
        self.expect_one_result(self.cluster.run("srun", "-N1", "-n2", *DDP))

    def test_srun_starts_ranks_on_two_nodes(self):
        # The nodes' names are the cluster's alone, so the address is told.
        ran = self.cluster.run("srun", "-N2", "-n2", *DDP, env={"MASTER_ADDR": "127.0.0.1"})
        self.expect_one_result(ran)

    def test_a_batch_script_learns_what_it_forgot(self):
        script = pathlib.Path(self.folder.name) / "job.sh"
        out = pathlib.Path(self.folder.name) / "job.out"
        script.write_text(f"#!/bin/sh\n#SBATCH -n 2 -o {out}\n{' '.join(DDP)}\necho code $?\n"
                          f"srun {' '.join(DDP[:-2])}\necho done\n")
        self.cluster.run("sbatch", str(script))
        self.cluster.wait(lambda: out.exists() and "done" in out.read_text(), "end of the job")
        self.assertIn("srun is missing", out.read_text())
        self.assertIn("code 2\n", out.read_text())
        self.assertIn("SLURM started 2 processes, but --mode dp is one process", out.read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
