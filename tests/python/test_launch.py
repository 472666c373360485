#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks in Python: two processes of yoke.launch learn the bits of two devices of one, by a function, by a script and by
torchrun where it is; collectives compute on arrays; a rank that fails or dies ends the run with its own words.

usage: test_launch.py, with the module installed or YOKE_LIBRARY and PYTHONPATH. Exit code 77: there is no numpy.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import numpy
except ImportError:
    print("no numpy for this Python: pip install numpy, or apt-get install python3-numpy")
    sys.exit(77)
import yoke

ROWS, STEPS, WORLD = 12, 5, 2
OPTIONS = {"threads": 1, "batch": ROWS, "learning_rate": 0.1, "momentum": 0.9, "algorithm": "direct"}


def network():
    builder = yoke.Builder(6)
    value = builder.relu(builder.linear(builder.input(), name="fc1", out_features=16))
    return builder.finish(builder.linear(builder.dropout(value, 0.2), name="fc2", out_features=3))


def batches():
    random = numpy.random.default_rng(0)
    return random.normal(size=(STEPS, ROWS, 6)).astype(numpy.float32), random.integers(0, 3, (STEPS, ROWS))


def trained(rank_rows=None, path=None):
    """What a rank has learned, and what it saw of the others."""
    model = yoke.DistributedDataParallel(network(), "cpu", **OPTIONS)
    group, (inputs, labels) = model.process_group, batches()
    cut = [0, *numpy.cumsum(rank_rows or [ROWS // WORLD] * WORLD)]
    mine = slice(cut[group.rank], cut[group.rank + 1])
    losses = [model.step(inputs[k, mine], labels[k, mine]) for k in range(STEPS)]
    if path:
        model.save(path)
        model.load(path)
    alone = model(inputs[0]) if group.rank == 1 else None  # no call of all ranks
    total = group.all_reduce(numpy.array([group.rank + 1.0], numpy.float64))
    least = group.all_reduce(numpy.array([group.rank + 5]), "min")
    first = group.broadcast(numpy.full(3, group.rank, numpy.float32))
    everyone = group.all_gather(numpy.array([group.rank], numpy.int64))
    group.barrier()
    return {"losses": losses, "weights": model.weights(), "steps": model.steps, "alone": alone,
            "seen": (float(total[0]), int(least[0]), first.tolist(), everyone.ravel().tolist(), repr(group))}


def fails(how):
    model = yoke.DistributedDataParallel(network(), "cpu", **OPTIONS)
    inputs, labels = batches()
    model.step(inputs[0, :6], labels[0, :6])
    if model.process_group.rank == 1:
        if how == "raises":
            raise ZeroDivisionError("rank 1 on purpose")
        os._exit(9)
    for _ in range(1000):
        model.step(inputs[0, :6], labels[0, :6])


def run_as_rank():
    """A trainer of mode ddp."""
    random = numpy.random.default_rng(0)
    labels = random.integers(0, 3, 48)
    inputs = (random.normal(size=(48, 6)) + numpy.eye(3, 6)[labels]).astype(numpy.float32)
    return yoke.Trainer("mlp:width=16", inputs, labels, mode="ddp", devices="cpu", threads=1, algorithm="direct", batch=12,
                        epochs=2).run()


def run_of_own_weights():
    """A trainer whose model has other weights in each rank: what it begins and ends with."""
    model, rank = network(), int(os.environ["YOKE_RANK"])
    random = numpy.random.default_rng(rank)
    model.weights = {name: random.normal(size=shape).astype(numpy.float32) for name, (_own, shape) in model.tensors().items()}
    inputs, labels = batches()
    trainer = yoke.Trainer(model, inputs[0], labels[0], mode="ddp", devices="cpu", threads=1, algorithm="direct", batch=4,
                           epochs=1)
    begin = trainer.weights()
    hashed = trainer.run()["weights_hash"]
    alone = trainer.predict(inputs[0]) if rank == 0 else None  # no other rank takes part
    return model.weights, begin, hashed, alone


def rank_of(*words, **named):
    group = yoke.ProcessGroup("cpu")
    return group.rank, group.world, words, named


SCRIPT = '''
import sys
import numpy
import yoke
group = yoke.ProcessGroup("cpu")
total = group.all_reduce(numpy.array([group.rank + 1]))
open(f"{sys.argv[1]}/rank-{group.rank}", "w").write(f"{group.world} {total[0]}")
'''


class Launch(unittest.TestCase):
    def same(self, found, devices):
        for result in found:
            self.assertEqual(result["losses"], devices[0])
            for name, values in devices[1].items():
                self.assertTrue((result["weights"][name] == values).all(), name)

    def test_ranks_learn_the_bits_of_as_many_devices_in_one_process(self):
        model, (inputs, labels) = yoke.DataParallel(network(), f"{WORLD}xcpu", **OPTIONS), batches()
        losses = [model.step(inputs[k], labels[k]) for k in range(STEPS)]
        with tempfile.TemporaryDirectory() as folder:
            found = yoke.launch(trained, WORLD, path=f"{folder}/state.safetensors")
        self.same(found, (losses, model.weights()))
        numpy.testing.assert_array_equal(found[1]["alone"], model(inputs[0]))
        for rank, result in enumerate(found):
            self.assertEqual(result["steps"], STEPS)
            self.assertEqual(result["seen"], (3.0, 5, [0, 0, 0], [0, 1],
                                              f"<yoke.ProcessGroup rank {rank} of 2, shared memory>"))

    def test_trainers_of_mode_ddp_learn_the_same(self):
        found = yoke.launch(run_as_rank, WORLD)
        self.assertEqual([(one["mode"], one["rank"], one["world"], one["steps"]) for one in found],
                         [("ddp", 0, 2, 8), ("ddp", 1, 2, 8)])
        self.assertEqual(found[0]["weights_hash"], found[1]["weights_hash"])

    def test_trainers_begin_with_the_weights_of_rank_0(self):
        (own, first, hashed, alone), (_other, second, other_hash, _none) = yoke.launch(run_of_own_weights, WORLD)
        for name, values in own.items():
            numpy.testing.assert_array_equal(first[name], values)
            numpy.testing.assert_array_equal(second[name], values)
        self.assertEqual(hashed, other_hash)
        self.assertEqual(len(alone), len(batches()[0][0]))

    def test_results_come_in_the_order_of_ranks(self):
        self.assertEqual(yoke.launch(rank_of, 3, "a", b=4), [(rank, 3, ("a",), {"b": 4}) for rank in range(3)])

    def test_a_rank_that_fails_ends_the_run_with_its_words(self):
        for how, text in (("raises", "(?s)rank 1 of 2 failed:.*ZeroDivisionError: rank 1 on purpose"),
                          ("dies", "rank 1 of 2 failed:\nits process ended with exit code 9")):
            begin = time.monotonic()
            with self.assertRaisesRegex(RuntimeError, text):
                yoke.launch(fails, WORLD, how)
            self.assertLess(time.monotonic() - begin, 60)

    def test_arguments_that_do_not_fit_are_told(self):
        for processes in (0, -1, "2", True):
            with self.assertRaisesRegex(ValueError, "how many ranks"):
                yoke.launch(rank_of, processes)
        with self.assertRaisesRegex(TypeError, "words, no keywords"):
            yoke.launch("script.py", 2, a=1)

    def check_script(self, start):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(SCRIPT, encoding="utf-8")
            start(script, folder)
            for rank in range(WORLD):
                self.assertEqual(pathlib.Path(folder, f"rank-{rank}").read_text(encoding="utf-8"), "2 3")

    def test_a_script_runs_on_ranks(self):
        self.check_script(lambda script, folder: yoke.launch(script, WORLD, folder))
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(yoke.YokeError, "exit code"):
            yoke.launch(pathlib.Path(folder, "nowhere.py"), WORLD)

    def test_torchrun_starts_ranks_too(self):
        torchrun = shutil.which("torchrun", path=f"{pathlib.Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
        if torchrun is None:
            self.skipTest("no torchrun here: pip install torch")
        self.check_script(lambda script, folder: subprocess.run(
            [torchrun, "--nproc-per-node", str(WORLD), str(script), folder], check=True, capture_output=True))


class Collectives(unittest.TestCase):
    def test_a_process_alone_is_a_group_of_one(self):
        group = yoke.ProcessGroup("cpu")
        self.assertEqual((group.rank, group.world), (0, 1))
        values = numpy.arange(4, dtype=numpy.float32)
        numpy.testing.assert_array_equal(group.all_reduce(values.copy()), values)

    def test_arrays_that_do_not_fit_are_told(self):
        group, readonly = yoke.ProcessGroup("cpu"), numpy.zeros(3)
        readonly.flags.writeable = False
        for given, kind in (([1.0], TypeError), (numpy.zeros(3, numpy.int8), TypeError), (numpy.zeros((4, 4))[:, ::2], TypeError),
                            (readonly, ValueError)):
            with self.assertRaises(kind):
                group.all_reduce(given)
        with self.assertRaisesRegex(ValueError, "expected sum, mean, min, max"):
            group.all_reduce(numpy.zeros(3), "product")
        with self.assertRaisesRegex(ValueError, "transport is 'tcp'"):
            yoke.ProcessGroup("cpu", transport="tcp")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
