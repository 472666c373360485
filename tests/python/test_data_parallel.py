#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke.DataParallel beside numpy: parameter groups, schedules, clipping and accumulation have the formulas' weights; a
checkpoint goes on bit for bit; arrays of every kind are read where they lie; what does not fit is told; operations in
Python compute in the devices' threads, and their exceptions come out of the step.

usage: test_data_parallel.py, with the module installed or YOKE_LIBRARY and PYTHONPATH. Exit code 77: there is no numpy.
"""
import array
import gc
import json
import math
import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest
import weakref

try:
    import numpy
except ImportError:
    print("no numpy for this Python: pip install numpy, or apt-get install python3-numpy")
    sys.exit(77)
import yoke

SMALL = {"devices": "2xcpu", "threads": 1, "algorithm": "direct"}
RATE = 0.1


def batch(count=12, seed=0):
    random = numpy.random.default_rng(seed)
    inputs = random.normal(size=(count, 4)).astype(numpy.float32)
    return inputs, (inputs.argmax(1) % 3).astype(numpy.int32)


def network():
    builder = yoke.Builder(4)
    value = builder.relu(builder.linear(builder.input(), name="fc1", out_features=8))
    return builder.finish(builder.linear(value, name="fc2", out_features=3))



def moved(**options):
    """How far one step moves each tensor, and the gradient of its batch."""
    model = yoke.DataParallel(network(), schedule="classic", **{"learning_rate": RATE, **SMALL, **options})
    gradients = model.gradients(*batch())
    before = model.weights()
    model.step(*batch())
    after = model.weights()
    return {name: after[name] - before[name] for name in before}, gradients


class Options(unittest.TestCase):
    def test_groups_have_their_own_rate_and_decay_or_stay(self):
        groups = [{"params": "fc1.weight", "lr": 0.4}, {"params": ["*.bias"], "frozen": True},
                  {"params": ["fc2.weight"], "weight_decay": 0.5}]
        far, gradients = moved(groups=groups)
        model = yoke.DataParallel(network(), **SMALL)
        model(batch()[0])
        decay = 0.5 * model.weights()["fc2.weight"]
        numpy.testing.assert_allclose(far["fc1.weight"], -0.4 * gradients["fc1.weight"], atol=1e-6)
        numpy.testing.assert_allclose(far["fc2.weight"], -RATE * (gradients["fc2.weight"] + decay), atol=1e-6)
        self.assertEqual(float(abs(far["fc1.bias"]).max()), 0.0)

    def test_groups_that_do_not_fit_are_told(self):
        for groups, kind, text in (([{"params": "fc9.*"}], ValueError, "fc9.*, which matches no parameter: fc1.weight"),
                                   ([{"params": []}], ValueError, "has no parameters"),
                                   ([{"lr": 1}], TypeError, "a dict with params"), (["fc1.*"], TypeError, "a dict"),
                                   ([{"params": "*", "nesterov": 1}], TypeError, "no nesterov: expected"),
                                   ([{"params": [3]}], ValueError, "no parameter of the module")):
            with self.assertRaisesRegex(kind, text):
                yoke.DataParallel(network(), groups=groups, **SMALL).step(*batch())
        with self.assertRaisesRegex(ValueError, "must be above 0"):
            yoke.DataParallel(network(), groups=[{"params": "*", "lr": 1}], learning_rate=0.0, **SMALL).step(*batch())

    def test_the_rate_follows_a_schedule_or_a_function(self):
        seen = []
        model = yoke.DataParallel(network(), learning_rate=RATE, lr_schedule="cosine", steps=10, warmup_steps=2,
                                  on_step=lambda event: seen.append(event["learning_rate"]), **SMALL)
        for _ in range(10):
            model.step(*batch())
        self.assertAlmostEqual(seen[0], RATE / 2)
        self.assertAlmostEqual(seen[-1], RATE * (1 + math.cos(math.pi * 7 / 8)) / 2)
        seen.clear()
        own = yoke.DataParallel(network(), lr_schedule=lambda step: RATE / (step + 1), on_step=model.on_step, **SMALL)
        for _ in range(3):
            own.step(*batch())
        numpy.testing.assert_allclose(seen, [RATE, RATE / 2, RATE / 3])
        own.step(*batch(), learning_rate=0.0)
        self.assertEqual(seen[-1], 0.0)
        for options, text in (({"lr_schedule": "plateau"}, "expected constant"), ({"lr_schedule": "cosine"}, "needs steps"),
                              ({"lr_schedule": "exponential"}, "epoch_steps"), ({"optimizer": "lars"}, "expected sgd")):
            with self.assertRaisesRegex(ValueError, text):
                yoke.DataParallel(network(), **options)

    def test_clipping_bounds_the_update_and_reports_the_norm(self):
        seen = []
        far, gradients = moved(clip_norm=0.01, on_step=seen.append)
        norm = math.sqrt(sum(float((one ** 2).sum()) for one in gradients.values()))
        self.assertAlmostEqual(seen[0]["gradient_norm"], norm, places=5)
        self.assertAlmostEqual(math.sqrt(sum(float((one ** 2).sum()) for one in far.values())), RATE * 0.01, places=6)

    def test_micro_batches_add_up_to_the_batch(self):
        models = [yoke.DataParallel(network(), learning_rate=RATE, accumulate=count, **SMALL) for count in (1, 3)]
        for model in models:
            for seed in range(4):
                model.step(*batch(seed=seed))
        for name, values in models[0].weights().items():
            numpy.testing.assert_allclose(models[1].weights()[name], values, atol=1e-6)


class Checkpoints(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="yoke-checkpoint-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "state.safetensors")

    def made(self, **options):
        return yoke.DataParallel(network(), **{"optimizer": "adamw", "learning_rate": 0.01, "lr_schedule": "cosine",
                                               "steps": 8, **SMALL, **options})

    def test_a_run_goes_on_bit_for_bit(self):
        whole, part = self.made(), self.made()
        for seed in range(8):
            whole.step(*batch(seed=seed))
        for seed in range(4):
            part.step(*batch(seed=seed))
        part.save(self.path)
        for loads_first in (True, False):  # before there is an engine, and after
            other = self.made()
            if not loads_first:
                other.step(*batch(seed=9))
            other.load(str(self.path))
            self.assertEqual(other.steps, 4)
            if loads_first:
                for early in (other.weights, other.state_dict, lambda: other.load_state_dict({})):
                    self.assertRaisesRegex(RuntimeError, "comes in with the first step", early)
            for seed in range(4, 8):
                other.step(*batch(seed=seed))
            for name, values in whole.weights().items():
                self.assertTrue((other.weights()[name] == values).all(), name)

    def test_files_that_do_not_fit_are_told(self):
        with self.assertRaisesRegex(RuntimeError, "no state to save"):
            self.made().save(self.path)
        model = self.made()
        model.step(*batch())
        model.save(self.path)
        with self.assertRaises(yoke.YokeError) as caught:
            self.made().load(self.path.with_name("nowhere"))
        self.assertEqual(caught.exception.status, "YOKE_ERROR_MISSING")
        other = self.made(optimizer="sgd")
        other.load(self.path)
        with self.assertRaisesRegex(yoke.YokeError, "optimizer"):
            other.step(*batch())
        content = bytearray(self.path.read_bytes())
        content[-3] ^= 1
        self.path.write_bytes(content)
        with self.assertRaises(yoke.YokeError) as caught:
            self.made().load(self.path)
        self.assertEqual(caught.exception.status, "YOKE_ERROR_DATA")


class OnlyDlpack:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class Arrays(unittest.TestCase):
    def test_arrays_of_every_kind_have_the_same_loss(self):
        inputs, labels = batch()
        readonly = inputs.copy()
        readonly.flags.writeable = False
        buffer = memoryview(array.array("f", inputs.ravel())).cast("B").cast("f", inputs.shape)
        wanted = yoke.DataParallel(network(), learning_rate=0.0, **SMALL)
        loss = wanted.step(inputs, labels)
        kinds = {"read-only": readonly, "column by column": numpy.asfortranarray(inputs), "float64": inputs.astype(float),
                 "a buffer": buffer, "DLPack": OnlyDlpack(inputs), "a view": numpy.repeat(inputs, 2, 0)[::2]}
        try:
            import jax.numpy
            kinds["jax"] = jax.numpy.asarray(inputs)
        except ImportError:
            pass
        for name, given in kinds.items():
            with self.subTest(name):
                self.assertEqual(wanted.step(given, labels), loss)
        for name, given in {"int64": labels.astype(numpy.int64), "uint8": labels.astype(numpy.uint8), "list": labels.tolist(),
                            "column": labels[:, None], "strided": numpy.repeat(labels, 2)[::2]}.items():
            with self.subTest(name):
                self.assertEqual(wanted.step(inputs, given), loss)

    def test_contiguous_float32_is_read_where_it_lies(self):
        inputs, labels = batch()
        model = yoke.DataParallel(network(), **SMALL)
        model.step(inputs, labels)
        model._batch.fill(inputs, labels)
        self.assertEqual(model._batch.struct.inputs, inputs.ctypes.data)
        self.assertEqual(model._batch.struct.labels, labels.ctypes.data)

    def test_rows_that_nobody_else_holds_live_until_the_step_is_over(self):
        inputs, labels = batch()
        alive, held = [], []

        def forward(x):
            gc.collect()
            alive.append(held[-1]() is not None)
            return x

        builder = yoke.Builder(4)
        value = builder.python_operation(forward, lambda dy, x: dy, builder.input(), name="same")
        model = yoke.DataParallel(builder.finish(builder.linear(value, name="fc", out_features=3)), **SMALL)

        def rows():
            mine = inputs.copy()
            held.append(weakref.ref(mine))
            return mine

        for _ in range(3):
            model.step(rows(), labels)
        self.assertTrue(alive and all(alive))
        self.assertIsNone(held[-1]())  # and no longer

    def test_more_rows_than_a_batch_are_predicted_in_parts(self):
        for options in ({}, {"accumulate": 3}, {"shards": 4}):
            model = yoke.DataParallel(network(), batch=12, **SMALL, **options)
            model.step(*batch())
            inputs = batch(31)[0]
            parts = [model(inputs[i:i + 1]) for i in range(31)]
            numpy.testing.assert_allclose(model(inputs), numpy.concatenate(parts), atol=1e-6)

    def test_outputs_are_arrays_of_their_own(self):
        model = yoke.DataParallel(network(), **SMALL)
        first, second = model(batch()[0]), model(batch()[0])
        first[...] = 7
        self.assertTrue(second.flags.writeable and second.flags.c_contiguous and not (second == 7).any())

    def test_what_does_not_fit_is_told(self):
        inputs, labels = batch()
        model = yoke.DataParallel(network(), **SMALL)
        masked = numpy.ma.masked_less(inputs, 0)
        for given, kind, text in (((inputs[:, :3], labels), ValueError, r"input has shape \(12, 3\), rows of it are \(4,\)"),
                                  (((inputs, inputs), labels), ValueError, "2 inputs, the model reads 1: input"),
                                  ((inputs.astype(complex), labels), TypeError, "input has dtype complex128: expected float32"),
                                  ((inputs.astype(str), labels), TypeError, "input has dtype <U"),
                                  ((masked, labels), ValueError, "masked values"),
                                  ((numpy.float32(3), labels), ValueError, "scalar: dimension 0 is the batch"),
                                  ((inputs, labels.astype(str)), TypeError, "labels has dtype <U"),
                                  ((inputs, labels + numpy.int64(2**40)), ValueError, "labels has the value 10995116277"),
                                  ((inputs, labels[:-1]), yoke.YokeError, "labels"),
                                  ((inputs, labels + 5), yoke.YokeError, "label"),
                                  ((inputs,), yoke.YokeError, "labels"),
                                  ((inputs[:0], labels[:0]), yoke.YokeError, "0 rows")):
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                model.step(*given)
        self.assertEqual(model.steps, 0)
        self.assertGreater(model.step(inputs, labels), 0)  # and nothing has broken

    def test_a_second_thread_inside_is_told_and_hangs_nothing(self):
        inside, go = threading.Event(), threading.Event()

        def forward(x):
            inside.set()
            go.wait(20)
            return x

        builder = yoke.Builder(4)
        value = builder.python_operation(forward, lambda dy, x: dy, builder.input(), name="slow")
        model = yoke.DataParallel(builder.finish(builder.linear(value, name="fc", out_features=3)), devices="cpu", threads=1)
        other = threading.Thread(target=lambda: model.step(*batch()))
        other.start()
        self.assertTrue(inside.wait(20))
        with self.assertRaisesRegex(RuntimeError, "another thread"):
            model(batch()[0])
        go.set()
        other.join(20)
        self.assertEqual(model.steps, 1)


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


def swish(x, beta):
    return x * sigmoid(beta * x)


def swish_back(dy, x, beta):
    s = sigmoid(beta * x)
    return dy * (s + beta * x * s * (1 - s)), (dy * x * x * s * (1 - s)).sum(keepdims=True).reshape(1)


def own_network(forward=swish, backward=swish_back):
    builder = yoke.Builder(2)
    value = builder.linear(builder.input(), name="fc1", out_features=6)
    value = builder.python_operation(forward, backward, value, name="swish", parameters={"beta": {"shape": 1, "value": 1.0}})
    return builder.finish(builder.linear(value, name="fc2", out_features=1), "mse")


class Operations(unittest.TestCase):
    rows = numpy.random.default_rng(1).normal(size=(16, 2)).astype(numpy.float32)
    targets = numpy.sin(rows[:, :1])

    def test_gradients_agree_with_differences_of_the_loss(self):
        found = own_network().check_gradients()
        self.assertEqual(found["checked"], 6)
        self.assertLess(found["error"], 1e-2)
        with self.assertRaisesRegex(yoke.YokeError, "swish.beta") as caught:
            own_network(backward=lambda dy, x, beta: (swish_back(dy, x, beta)[0], None)).check_gradients()
        self.assertEqual(caught.exception.status, "YOKE_ERROR_NUMERIC")

    def test_a_network_with_one_is_the_network_of_the_library(self):
        builder = yoke.Builder(2)
        value = builder.silu(builder.linear(builder.input(), name="fc1", out_features=6))
        library = builder.finish(builder.linear(value, name="fc2", out_features=1), "mse")
        frozen = [{"params": "swish.beta", "frozen": True}]
        pairs = [yoke.DataParallel(own_network(), groups=frozen, learning_rate=RATE, **SMALL),
                 yoke.DataParallel(library, learning_rate=RATE, **SMALL)]
        pairs[0](self.rows)
        start = {name: values for name, values in pairs[0].weights().items() if name != "swish.beta"}
        for model in pairs:
            model(self.rows)
            model.load_state_dict(start)
            for _ in range(10):
                model.step(self.rows, self.targets)
        own, theirs = (model.weights() for model in pairs)
        for name, values in theirs.items():
            numpy.testing.assert_allclose(own[name], values, atol=1e-5, err_msg=name)

    def test_shards_have_the_same_bits_on_any_number_of_devices(self):
        found = []
        for devices in ("cpu", "2xcpu", "4xcpu"):
            model = yoke.DataParallel(own_network(), devices, threads=1, shards=4, algorithm="direct")
            found.append([model.step(self.rows, self.targets) for _ in range(4)])
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])

    def test_an_exception_comes_out_of_the_step_which_changes_nothing(self):
        for where in ("forward", "backward"):
            fails = [False]

            def guarded(function, own):
                def call(*arguments):
                    if fails[0] and own:
                        raise ZeroDivisionError("on purpose")
                    return function(*arguments)
                return call

            model = yoke.DataParallel(own_network(guarded(swish, where == "forward"), guarded(swish_back, where == "backward")),
                                      **SMALL)
            model.step(self.rows, self.targets)
            fails[0], begin = True, time.monotonic()
            before = model.weights()
            for _ in range(2):
                with self.assertRaisesRegex(ZeroDivisionError, "on purpose") as caught:
                    model.step(self.rows, self.targets)
                self.assertRegex(str(caught.exception.__cause__), f"swish: its {where}")
            self.assertLess(time.monotonic() - begin, 20)
            self.assertEqual(model.steps, 1)
            for name, values in model.weights().items():
                self.assertTrue((before[name] == values).all(), name)
            fails[0] = False
            model.step(self.rows, self.targets)

    def test_results_that_do_not_fit_are_told(self):
        for options, text in (({"forward": lambda x, beta: x[:1]}, r"forward returned \(1, 6\) of float32, expected \(8, 6\)"),
                              ({"forward": lambda x, beta: None}, "forward returned"),
                              ({"backward": lambda dy, x, beta: dy}, "1 gradients, expected 2"),
                              ({"backward": lambda dy, x, beta: (dy[:, :2], beta)}, r"gradient 0 of backward is \(8, 2\)")):
            with self.assertRaisesRegex(ValueError, text):
                yoke.DataParallel(own_network(**options), **SMALL).step(self.rows, self.targets)
        with self.assertRaisesRegex(ValueError, "read-only"):
            yoke.DataParallel(own_network(forward=lambda x, beta: numpy.multiply(x, 2, out=x)), **SMALL).step(
                self.rows, self.targets)
        with self.assertRaisesRegex(TypeError, "at least one value"):
            yoke.Builder(2).python_operation(swish, swish_back, name="none")

    def test_the_timeline_has_its_calls_by_name(self):
        model = yoke.DataParallel(own_network(), **SMALL)
        for _ in range(3):
            model.step(self.rows, self.targets)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            model.write_trace(path)
            events = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["traceEvents"]
        steps = [event for event in events if event["name"] == "step"]
        calls = [event for event in events if event["name"] in ("swish forward", "swish backward")]
        self.assertGreaterEqual(len(calls), 3 * 2 * 2)  # steps, devices, ways
        inside = [call for call in calls
                  if any(step["ts"] <= call["ts"] and call["ts"] + call["dur"] <= step["ts"] + step["dur"] for step in steps)]
        self.assertGreaterEqual(len(inside), 3 * 2 * 2)


class Ending(unittest.TestCase):
    def test_the_last_reference_frees_the_engine(self):
        gc.disable()
        self.addCleanup(gc.enable)
        model = yoke.DataParallel(own_network(), **SMALL)
        model.step(Operations.rows, Operations.targets)
        with self.assertRaises(ValueError):
            model.step(Operations.rows[:, :1], Operations.targets)
        end = weakref.ref(model)
        del model
        self.assertIsNone(end())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
