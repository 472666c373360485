#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The module `yoke`: arrays train to the weights of the tool, outputs are those of the formulas, Ctrl-C keeps the weights,
and what does not fit is refused in one sentence.

usage: test_module.py ROOT, with the module installed or YOKE_LIBRARY and PYTHONPATH. Exit code 77: there is no numpy.
"""
import gc
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import weakref

try:
    import numpy
except ImportError:
    print("no numpy for this Python: pip install numpy, or apt-get install python3-numpy")
    sys.exit(77)
ROOT = pathlib.Path(sys.argv[1]).resolve()
FOLDER = tempfile.TemporaryDirectory(prefix="yoke-python-")
os.environ["XDG_CACHE_HOME"] = FOLDER.name  # the algorithm cache of the tool and the module, not the user's
os.chdir(FOLDER.name)
import yoke  # noqa: E402
from yoke._arguments import algorithm_cache  # noqa: E402

CIFAR_MEAN = numpy.array([0.4914, 0.4822, 0.4465], numpy.float32).reshape(3, 1, 1)
CIFAR_STD = numpy.array([0.2470, 0.2435, 0.2616], numpy.float32).reshape(3, 1, 1)
SMALL = {"devices": "2xcpu", "threads": 1, "batch": 16, "algorithm": "direct"}


def blobs(rows, seed, features=12):
    """Three classes that a linear model can tell apart."""
    random = numpy.random.default_rng(seed)
    labels = random.integers(0, 3, rows)
    inputs = random.normal(size=(rows, features)) + 2 * numpy.eye(3, features)[labels]
    return inputs.astype(numpy.float32), labels


def write_cifar(folder, file, rows, seed):
    """Writes a file of CIFAR-10 and returns its rows as the tool normalises them."""
    random = numpy.random.default_rng(seed)
    labels, pixels = random.integers(0, 10, rows), random.integers(0, 256, (rows, 3, 32, 32), numpy.uint8)
    records = numpy.concatenate([labels[:, None].astype(numpy.uint8), pixels.reshape(rows, -1)], axis=1)
    pathlib.Path(folder).mkdir(exist_ok=True)
    records.tofile(pathlib.Path(folder, file))
    return (pixels.astype(numpy.float32) / numpy.float32(255) - CIFAR_MEAN) / CIFAR_STD, labels


def mlp(weights, inputs):
    """The preset mlp, in float64."""
    values = inputs.reshape(len(inputs), -1).astype(numpy.float64)
    for layer in ("fc1", "fc2", "fc3"):
        values = values @ weights[f"{layer}.weight"].T.astype(numpy.float64) + weights[f"{layer}.bias"]
        values = values if layer == "fc3" else numpy.maximum(values, 0)
    return values


def cross_entropy(outputs, labels):
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    return float(numpy.mean(numpy.log(numpy.exp(shifted).sum(axis=1)) - shifted[numpy.arange(len(labels)), labels]))


def train(*arguments, on_event=None, **options):
    trainer = yoke.Trainer(*arguments, **options)
    trainer.run(on_event)
    return trainer


def interrupt_after(seconds):
    """Sends this process what Ctrl-C sends."""
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


class Training(unittest.TestCase):
    def test_arrays_and_a_dataset_train_to_the_bits_of_the_tool(self):
        training, test = write_cifar("cifar", "data_batch_1.bin", 48, 1), write_cifar("cifar", "test_batch.bin", 20, 2)
        words = ["--dataset", "cifar10:cifar", "--devices", "2xcpu", "--threads", 1, "--batch", 16, "--steps", 4]
        wanted = yoke.tool("train", *words, "--quiet")  # resnet20, algorithms by measurement
        options = {"devices": "2xcpu", "threads": 1, "batch": 16, "steps": 4}
        for trainer in (train(*("resnet20", *training), test=test, classes=10, **options),
                        train("resnet20", dataset="cifar10:cifar", **options)):
            for field in ("weights_hash", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "steps",
                          "parameters"):
                self.assertEqual(trainer.summary()[field], wanted[field])

    def test_the_loss_falls_and_events_come_to_the_calling_thread(self):
        events = []
        trainer = train("mlp", *blobs(50, 1), test=blobs(20, 2), epochs=5, **SMALL,
                             on_event=lambda event: events.append((event["kind"], threading.get_ident())))
        losses = [event["loss"] for event in trainer.history if event["kind"] == "step"]
        self.assertEqual(len(losses), 5 * 4)
        self.assertEqual([event["rows"] for event in trainer.history if event["kind"] == "step"][:4], [16, 16, 16, 2])
        self.assertLess(losses[-1], 0.5 * losses[0])
        self.assertEqual(events, [(event["kind"], threading.get_ident()) for event in trainer.history])
        self.assertEqual([kind for kind, _ in events][0], "ready")
        self.assertEqual([kind for kind, _ in events].count("evaluation"), 1)

    def test_arrays_live_as_long_as_the_trainer(self):
        inputs, labels = blobs(400, 3, 64)
        kept = train("mlp", inputs, labels, steps=30, **SMALL).summary()["weights_hash"]
        trainer = yoke.Trainer("mlp", inputs.copy(), labels.copy(), steps=30, **SMALL)
        gc.collect()
        rubbish = [numpy.full(inputs.shape, 1e6, numpy.float32) for _ in range(20)]
        self.assertEqual(trainer.run()["weights_hash"], kept)
        self.assertEqual(len(rubbish), 20)

    def test_targets_train_by_mean_squared_error(self):
        inputs, _ = blobs(60, 4)
        targets = inputs[:, :2] * numpy.float32(0.5)
        trainer = train("mlp", inputs, targets, test=(inputs, targets), epochs=30, learning_rate=0.02, **SMALL)
        error = numpy.mean((trainer.predict(inputs) - targets) ** 2)
        self.assertAlmostEqual(trainer.evaluate()["loss"], float(error), places=5)
        self.assertIsNone(trainer.evaluate()["accuracy"])
        self.assertLess(error, 0.5 * numpy.mean(targets**2))

    def test_other_threads_run_while_the_library_computes(self):
        """Twice as many rows mean twice as many chances: at last the system runs another thread meanwhile."""
        ticks, stop, rows, meanwhile = [], threading.Event(), 1000, 0

        def tick():
            while not stop.wait(0.001):
                ticks.append(time.monotonic())

        ticker = threading.Thread(target=tick)
        ticker.start()
        while meanwhile < 5 and rows < 100000:
            rows *= 2
            trainer = yoke.Trainer("mlp", *blobs(32, 5, 784), test=blobs(rows, 6, 784), **SMALL)
            begin = time.monotonic()
            trainer.evaluate()
            end = time.monotonic()
            meanwhile = sum(begin + 0.01 < at < end - 0.01 for at in ticks)
        stop.set()
        ticker.join()
        self.assertGreaterEqual(meanwhile, 5)


class Weights(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = blobs(50, 7)
        cls.trainer = train("mlp", *cls.rows, test=blobs(21, 8), epochs=2, **SMALL)

    def test_outputs_and_loss_are_those_of_the_formulas(self):
        inputs, labels = blobs(21, 8)
        wanted = mlp(self.trainer.weights(), inputs)
        numpy.testing.assert_allclose(self.trainer.predict(inputs), wanted, rtol=1e-4, atol=1e-4)
        result = self.trainer.evaluate()
        self.assertAlmostEqual(result["loss"], cross_entropy(wanted, labels), places=5)
        self.assertEqual(result["accuracy"], float((wanted.argmax(axis=1) == labels).mean()))

    def test_outputs_do_not_depend_on_the_layout_of_the_array(self):
        inputs, _ = blobs(21, 8)
        spread = numpy.asfortranarray(inputs)
        numpy.testing.assert_array_equal(self.trainer.predict(spread), self.trainer.predict(inputs))

    def test_a_file_of_weights_holds_the_arrays_and_comes_back(self):
        trainer = train("mlp", *self.rows, epochs=1, save="weights.safetensors", **SMALL)
        weights, content = trainer.weights(), pathlib.Path("weights.safetensors").read_bytes()
        length = int.from_bytes(content[:8], "little")
        header, body = json.loads(content[8:8 + length]), content[8 + length:]
        header.pop("__metadata__", None)
        self.assertEqual(set(header), set(weights))
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            stored = numpy.frombuffer(body[begin:end], numpy.float32).reshape(entry["shape"])
            numpy.testing.assert_array_equal(stored, weights[name])
        other = yoke.Trainer("mlp", *self.rows, seed=5, init=pathlib.Path("weights.safetensors"), **SMALL)
        self.assertEqual(other.summary()["weights_hash"], trainer.summary()["weights_hash"])

    def test_a_trainer_with_the_weights_of_another_is_its_twin(self):
        other = yoke.Trainer("mlp", *self.rows, seed=5, **SMALL)
        self.assertNotEqual(other.summary()["weights_hash"], self.trainer.summary()["weights_hash"])
        other.write(self.trainer.weights())
        self.assertEqual(other.summary()["weights_hash"], self.trainer.summary()["weights_hash"])

    def test_written_weights_are_read_back_and_used(self):
        trainer = yoke.Trainer("mlp", *self.rows, **SMALL)
        random = numpy.random.default_rng(9)
        weights = {name: random.normal(size=old.shape).astype(numpy.float32) * numpy.float32(0.05)
                   for name, old in trainer.weights().items()}
        trainer.write(weights)
        for name, values in trainer.weights().items():
            numpy.testing.assert_array_equal(values, weights[name])
        numpy.testing.assert_allclose(trainer.predict(self.rows[0]), mlp(weights, self.rows[0]), rtol=1e-4, atol=1e-4)

    def test_running_statistics_are_weights_too(self):
        trainer = train("resnet20", dataset="synthetic:3x16x16,rows=64", steps=3, evaluate_every=-1, **SMALL)
        weights = trainer.weights()
        self.assertNotEqual(weights["bn1.running_mean"].tolist(), [0] * 16)
        trainer.write({"bn1.running_var": weights["bn1.running_var"] * 2})
        numpy.testing.assert_array_equal(trainer.weights()["bn1.running_var"], weights["bn1.running_var"] * 2)

    def test_a_write_that_does_not_fit_changes_nothing(self):
        before, weights = self.trainer.summary()["weights_hash"], self.trainer.weights()
        zeros = numpy.zeros_like(weights["fc1.bias"])
        broken = zeros.copy()
        broken[7] = numpy.inf
        for name, values, text in (("fc9.bias", zeros, "the model has no tensor fc9.bias: see weights"),
                                   ("fc2.bias", zeros[1:], r"fc2.bias has shape \(1023,\), expected \(1024,\)"),
                                   ("fc2.bias", broken, r"fc2.bias\[7\] is inf")):
            with self.assertRaisesRegex(ValueError, text):
                self.trainer.write({"fc1.bias": zeros, name: values})
        self.assertEqual(self.trainer.summary()["weights_hash"], before)


class Ending(unittest.TestCase):
    def endless(self, **options):
        return yoke.Trainer("mlp", *blobs(64, 10), test=blobs(20, 11), steps=10**9, **SMALL, **options)

    def test_ctrl_c_finishes_the_step_and_saves(self):
        trainer = self.endless(save="interrupted.safetensors")
        with self.assertRaises(KeyboardInterrupt):
            trainer.run(lambda event: event["step"] == 3 and interrupt_after(0.05))
        steps = trainer.summary()["steps"]
        self.assertEqual(steps, sum(event["kind"] == "step" for event in trainer.history))
        self.assertGreater(steps, 0)
        again = yoke.Trainer("mlp", *blobs(64, 10), init="interrupted.safetensors", **SMALL)
        self.assertEqual(again.summary()["weights_hash"], trainer.summary()["weights_hash"])

    def test_ctrl_c_during_a_long_evaluation_ends_it(self):
        trainer = yoke.Trainer("mlp", *blobs(16, 10, 784), test=blobs(30000, 11, 784), steps=1, **SMALL)
        with self.assertRaises(KeyboardInterrupt):
            trainer.run(lambda event: event["kind"] == "step" and interrupt_after(0.05))
        self.assertEqual([event["kind"] for event in trainer.history], ["ready", "step"])  # no evaluation

    def test_an_exception_of_on_event_ends_the_run_and_comes_out(self):
        trainer = self.endless()

        def fail_at_three(event):
            if event["step"] == 3:
                raise LookupError("three")

        with self.assertRaisesRegex(LookupError, "three"):
            trainer.run(fail_at_three)
        self.assertGreaterEqual(trainer.summary()["steps"], 3)

    def test_a_run_inside_on_event_is_refused_in_words(self):
        trainer = yoke.Trainer("mlp", *blobs(64, 9), **SMALL)
        with self.assertRaisesRegex(RuntimeError, "run was called inside on_event"):
            trainer.run(lambda _event: trainer.run())
        self.assertGreater(len(trainer.history), 0)
        self.assertIn("weights_hash", trainer.run())

    def test_stop_is_no_error_and_the_run_goes_on(self):
        trainer = self.endless()
        for _ in range(2):
            before = trainer.summary()["steps"]
            after = trainer.run(lambda event: event["step"] == before + 2 and trainer.stop())["steps"]
            self.assertGreaterEqual(after, before + 2)
            trainer.stop()  # too late: it stops nothing later

    def test_a_run_after_a_second_ctrl_c_is_a_whole_one(self):
        trainer, seen = self.endless(), []
        with unittest.mock.patch.object(trainer, "stop", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                trainer.run(lambda event: [][0])
        trainer.stop()  # the first run may still be ending
        trainer.run(lambda event: (seen.append(event["kind"]), len(seen) > 3 and trainer.stop()))
        self.assertEqual(seen[:3], ["ready", "step", "step"])

    def test_the_last_reference_frees_the_trainer_and_its_arrays(self):
        trainer, (inputs, labels) = self.endless(), blobs(64, 10)
        trainer.run(lambda event: event["step"] == 2 and trainer.stop())
        kept = yoke.Trainer("mlp", inputs, labels, **SMALL)
        ends = [weakref.ref(trainer), weakref.ref(kept), weakref.ref(inputs)]
        del trainer, kept, inputs
        self.assertEqual([end() for end in ends], [None, None, None])  # without the garbage collector

    def test_a_run_that_ends_in_an_exception_holds_nothing_back(self):
        gc.disable()
        self.addCleanup(gc.enable)
        for options, on_event, wanted in [({}, lambda event: [][0], IndexError),
                                          ({"learning_rate": 1e30}, None, yoke.YokeError)]:
            trainer = self.endless(**options)
            with self.assertRaises(wanted):
                trainer.run(on_event)
            end = weakref.ref(trainer)
            del trainer
            self.assertIsNone(end())


class Refusals(unittest.TestCase):
    def test_arrays_that_do_not_fit(self):
        inputs, labels = blobs(32, 12)
        broken = inputs.copy()
        broken[3, 5] = numpy.nan
        for rows, kind, text in (
                ((inputs.astype(float), labels), TypeError, r"float64, expected float32: inputs.astype\("),
                (((inputs * 9).astype(numpy.uint8), labels), TypeError, r"astype\(numpy.float32\) / 255"),
                ((broken, labels), ValueError, r"inputs\[3, 5\] is nan: every value must be finite"),
                ((inputs[:, :, None], labels), ValueError, r"shape \(32, 12, 1\), expected \[rows, features\] or"),
                ((inputs[:0], labels[:0]), ValueError, r"shape \(0, 12\)"),
                ((inputs, labels[:-1]), ValueError, r"inputs has 32 rows, labels has shape \(31,\)"),
                ((inputs, None), ValueError, r"labels has shape \(\)"),
                ((inputs, labels - 1), ValueError, r"labels has shape \(32,\) and values -1 to 1: expected cl"),
                ((inputs, labels + 2**32), ValueError, "values 4294967296 to 4294967298: expected classes"),
                ((inputs, labels.astype(str)), TypeError, "labels has dtype"),
                ((numpy.ma.masked_less(inputs, 0), labels), ValueError, "inputs has masked values"),
                ((inputs, numpy.ma.masked_equal(labels, 1)), ValueError, "labels has masked values"),
                ((inputs, labels[:, None]), ValueError, r"labels has shape \(32, 1\) and values 0 to 2")):
            with self.assertRaisesRegex(kind, text):
                yoke.Trainer("mlp", *rows, **SMALL)
        images = numpy.zeros((32, 8, 8, 3), numpy.float32)
        for given in ({"inputs": images}, {"inputs": images.transpose(0, 3, 1, 2), "test": (images, labels)}):
            with self.assertRaisesRegex(ValueError, r"shape \(32, 8, 8, 3\) seems to be \[rows, height, width, channels\]"
                                        r", expected .*; inputs.transpose\(0, 3, 1, 2\) converts it"):
                yoke.Trainer("mlp", labels=labels, **given, **SMALL)
        taken = yoke.Trainer("mlp", images, labels, channels_first=True, epochs=1, **SMALL)
        self.assertEqual(taken.predict(images).shape, (32, 3))
        with self.assertRaisesRegex(yoke.YokeError, r"row \d+: label 2, expected 0..1") as caught:
            yoke.Trainer("mlp", inputs, labels, classes=2, **SMALL)
        self.assertEqual(caught.exception.status, "YOKE_ERROR_ARGUMENT")
        with self.assertRaisesRegex(ValueError, "'channels': 11.*the model reads.*'channels': 12"):
            yoke.Trainer("mlp", inputs, labels, **SMALL).predict(inputs[:, :11])

    def test_options_that_do_not_fit(self):
        rows = blobs(32, 13)
        for options, kind, text in (({"bath": 3}, TypeError, "no option bath, did you mean batch?"),
                                    ({"lr": 0.1}, TypeError, "no option lr: use learning_rate$"),
                                    ({"batch_size": 3}, TypeError, r"no option batch_size: use batch \(the whole batch"),
                                    ({"num_workers": 2}, TypeError, "use loader_threads"),
                                    ({"gpus": 2}, TypeError, "use devices"), ({"amp": True}, TypeError, "use precision"),
                                    ({"log_every": 2}, TypeError, "the tool has --log-every, the module nothing like it"),
                                    ({"nproc_per_node": 2}, TypeError, "yoke launch"),
                                    ({"devices": 2}, ValueError, r"devices is 2: .*: use 2xcuda \(two GPUs"),
                                    ({"devices": "gpu"}, yoke.YokeError, 'did you mean "cuda"?'),
                                    ({"optimizer": "lars"}, ValueError, "optimizer is 'lars': .*: use adamw"),
                                    ({"precision": "fp16"}, ValueError, "use float16"),
                                    ({"process_group": 3}, TypeError, "no option process_group"),
                                    ({"batch": "many"}, ValueError, "batch is 'many': .*int"),
                                    ({"batch": 2**40}, ValueError, "batch is 1099511627776: it does not fit"),
                                    ({"batch": numpy.int64(2**40)}, ValueError, "it does not fit"),
                                    ({"steps": -1}, ValueError, "steps is -1: it does not fit"),
                                    ({"nesterov": "no"}, ValueError, "nesterov is 'no': it does not fit"),
                                    ({"classes": 2**40}, ValueError, "classes is 1099511627776: it does not fit"),
                                    ({"save": "a\0b"}, ValueError, "save is .*: it does not fit"),
                                    ({"save": 5}, ValueError, "save is 5: .*str"),
                                    ({"mode": "ddp"}, yoke.YokeError, "process_group"),
                                    ({"schedule": "fast"}, ValueError, "expected overlap, classic, sharded, python"),
                                    ({"init": "nowhere"}, yoke.YokeError, "YOKE_ERROR_MISSING: .*nowhere"),
                                    ({"dataset": "synthetic"}, yoke.YokeError, "both set"),
                                    ({"evaluate_every": 1}, yoke.YokeError, "test_rows is NULL")):
            with self.assertRaisesRegex(kind, text):
                yoke.Trainer("mlp", *rows, **{**SMALL, "batch": 16, **options})

    def test_every_hint_names_an_option_of_the_module(self):
        named = {re.match(r": use (\w+)", hint)[1] for name, hint in yoke.LAYOUT["hints"].items()
                 if hint.startswith(": use ") and " " not in name}
        self.assertGreater(len(named), 30)
        for option in named:
            with self.assertRaises((TypeError, ValueError)) as caught:
                yoke.Trainer("mlp", *blobs(32, 13), **{**SMALL, option: object()})
            self.assertNotIn("there is no option", str(caught.exception))

    def test_the_page_lists_every_option(self):
        page = (ROOT / "docs/python.md").read_text().split("## Options")[1]
        listed = re.findall(r"`(\w+)`", "".join(line for line in page.splitlines() if line.startswith("| ")))
        fields = [name for struct in ("yoke_trainer_options", "yoke_data_parallel_options", "yoke_optimizer_options")
                  for name, kind, _ in yoke.LAYOUT["structs"][struct] if kind != "c_void_p"]
        own = {"struct_size", "model", "kind",  # of the library, and parameters with names of their own
               "pixels", "input_gradients", "inference", "other_model_count"}  # of an engine without a trainer
        self.assertEqual(sorted(listed), sorted({*fields, "optimizer"} - own))

    def test_options_may_be_scalars_of_numpy_and_tuples(self):
        given = {"batch": numpy.int64(16), "learning_rate": numpy.float32(0.5), "nesterov": numpy.bool_(True),
                 "epochs": 1, "devices": "2xcpu", "threads": 1, "algorithm": "direct"}
        plain = {**given, "batch": 16, "learning_rate": 0.5, "nesterov": True}
        runs = [yoke.Trainer("mlp", *blobs(32, 15), **options).run()["weights_hash"] for options in (given, plain)]
        self.assertEqual(*runs)
        shaken = yoke.Trainer(dataset="synthetic:3x16x16,rows=64", steps=1, color_jitter=(0.4, 0.4, 0.4, 0.1), **SMALL)
        self.assertEqual(shaken.run()["steps"], 1)

    def test_a_gradient_that_is_not_finite_names_its_status(self):
        inputs, labels = blobs(32, 14)
        with self.assertRaises(yoke.YokeError) as caught:
            train("mlp", inputs * numpy.float32(1e37), labels, **SMALL)
        self.assertEqual(caught.exception.status, "YOKE_ERROR_NUMERIC")


class Tool(unittest.TestCase):
    def test_results_are_dicts_and_errors_exceptions(self):
        self.assertEqual(yoke.tool("--version", text=True).split()[:2], ["yoke", yoke.__version__])
        self.assertIsInstance(yoke.tool("devices"), dict)
        with self.assertRaisesRegex(yoke.YokeError, "exit code 2: .*did you mean 'mlp'"):
            yoke.tool("train", "--model", "mpl")

    def test_ctrl_c_reaches_the_tool_which_saves(self):
        code = ("import yoke; yoke.tool('train', '--model', 'mlp', '--dataset', 'synthetic:1x8x8,rows=64', "
                "'--steps', 10**9, '--metrics', 'tool.jsonl', '--save', 'tool.safetensors')")
        with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stderr=subprocess.PIPE,
                              text=True) as process:
            metrics, limit = pathlib.Path("tool.jsonl"), time.monotonic() + 60
            while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < limit:
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGINT)  # a terminal interrupts the whole group
            complaint = process.communicate()[1]
        self.assertEqual(complaint.splitlines()[-1], "KeyboardInterrupt")
        self.assertTrue(pathlib.Path("tool.safetensors").exists())


class AlgorithmCache(unittest.TestCase):
    def test_the_algorithm_cache_is_the_tool_s(self):
        home, cache = str(pathlib.Path("home").resolve()), str(pathlib.Path("cache").resolve())
        for given, wanted in ((cache, cache), ("", home + "/.cache"), ("relative", home + "/.cache")):
            with unittest.mock.patch.dict(os.environ, {"XDG_CACHE_HOME": given, "HOME": home}):
                self.assertEqual(algorithm_cache(), pathlib.Path(wanted, "yoke/choices-1.txt"))
                self.assertTrue(algorithm_cache().parent.is_dir())
                yoke.tool("train", "--model", "mlp", "--dataset", "synthetic:1x8x8,rows=64", "--steps", 1, "--quiet")
                self.assertTrue(algorithm_cache().is_file())
                algorithm_cache().unlink()

    def test_a_home_that_keeps_no_file_is_no_error(self):
        with unittest.mock.patch.dict(os.environ, {"XDG_CACHE_HOME": "/proc/nowhere"}):
            self.assertIsNone(algorithm_cache())


class Loading(unittest.TestCase):
    def import_with(self, code="import yoke; print(yoke.__version__)", **environment):
        return subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, text=True,
                              capture_output=True, check=False)

    def test_a_library_that_is_not_there_or_not_one_is_named(self):
        pathlib.Path("text.so").write_text("no library", encoding="utf-8")
        for path, text in (("/nowhere/libyoke.so", "cannot load /nowhere/libyoke.so (no library"),
                           ("text.so", f"cannot load {pathlib.Path('text.so').resolve()} (no library")):
            done = self.import_with(YOKE_LIBRARY=path)
            self.assertEqual(done.returncode, 1)
            self.assertIn("ImportError: " + text, done.stderr.splitlines()[-1])
            self.assertIn("build the wheel here (pip install .)", done.stderr.splitlines()[-1])

    def test_a_library_without_its_layout_or_of_another_version_is_refused(self):
        compiler = os.environ.get("CC", "cc")
        if not shutil.which(compiler):
            self.skipTest("no compiler")
        command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", "other.so"]
        subprocess.run(command, input='const char *yoke_version(void) { return "9.1.0"; }', text=True, check=True)
        self.assertIn("layout.json", self.import_with(YOKE_LIBRARY="./other.so").stderr.splitlines()[-1])
        pathlib.Path("layout.json").write_text("{}", encoding="utf-8")
        done = self.import_with(YOKE_LIBRARY="./other.so")
        self.assertIn("is Yoke 9.1.0, this module needs 0.1", done.stderr.splitlines()[-1])

    def test_a_library_for_another_machine_is_named_with_this_one(self):
        foreign, name = (183, "aarch64") if platform.machine() == "x86_64" else (62, "x86_64")
        path = pathlib.Path("foreign.so")
        path.write_bytes(b"\x7fELF\2\1\1".ljust(16, b"\0") + b"\3\0" + foreign.to_bytes(2, "little") + bytes(2000))
        complaint = self.import_with(YOKE_LIBRARY="foreign.so").stderr.splitlines()[-1]
        self.assertIn(f"foreign.so ({name} library for glibc) on {platform.machine()} with glibc: ", complaint)

    def test_a_python_on_musl_is_told_so(self):
        code = "import platform; platform.libc_ver = lambda: ('', ''); import yoke"
        complaint = self.import_with(code, YOKE_LIBRARY="nowhere.so").stderr.splitlines()[-1]
        self.assertIn(f"library for glibc) on {platform.machine()} with musl: ", complaint)

    def test_onednn_without_avx2_trains(self):
        code = ("import numpy, yoke; x = numpy.eye(32, dtype=numpy.float32); "
                "print(yoke.Trainer('mlp', x, numpy.arange(32) % 4, batch=16, steps=3).run()['steps'])")
        done = self.import_with(code, DNNL_MAX_CPU_ISA="SSE41", ONEDNN_MAX_CPU_ISA="SSE41")
        self.assertEqual(done.stdout.split()[-1:], ["3"], done.stderr)


class Page(unittest.TestCase):
    def test_the_example_of_the_page_prints_what_the_page_shows(self):
        sys.path.insert(0, str(ROOT / "tests/house"))
        import pages
        found = list(pages.blocks((ROOT / "docs/python.md").read_text(encoding="utf-8")))
        example = next(i for i, (language, _, _) in enumerate(found) if language == "python")
        code, expected = found[example][1], found[example + 1][1]
        self.assertLessEqual(len([line for line in code.splitlines() if line.strip()]), 10)
        done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(pages.difference(expected, done.stdout, False), done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
