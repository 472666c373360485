#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke.train takes arrays, iterables of batches, loaders of PyTorch, a folder of images and a dataset's SPEC; reports steps
and epochs to callbacks, a terminal, a file and a notebook; and what its iterable raises comes out of it.

usage: test_train.py, with the module installed or YOKE_LIBRARY and PYTHONPATH. Exit code 77: there is no numpy.
"""
import io
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock
import zlib

try:
    import numpy
except ImportError:
    print("no numpy for this Python: pip install numpy, or apt-get install python3-numpy")
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None
import yoke

SMALL = {"devices": "2xcpu", "threads": 1, "algorithm": "direct", "learning_rate": 0.05}
QUIET = {"progress": False, **SMALL}


def rows(count=96, features=6, seed=0):
    random = numpy.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    inputs = random.normal(size=(count, features)) + 3 * numpy.eye(3, features)[labels]
    return inputs.astype(numpy.float32), labels


def batches(size=16, count=96):
    inputs, labels = rows(count)
    return [(inputs[i:i + size], labels[i:i + size]) for i in range(0, count, size)]


class Again:
    """An iterable that counts its passes."""

    def __init__(self, given):
        self.given, self.passes = given, 0

    def __iter__(self):
        self.passes += 1
        return iter(self.given)


def png(path, color):
    """A picture of one color."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    line = b"\0" + bytes(color) * 24
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 24, 24, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(line * 24)) + chunk(b"IEND", b""))


class Data(unittest.TestCase):
    def test_arrays_learn_and_come_back_as_a_result(self):
        inputs, labels = rows()
        steps, epochs = [], []
        result = yoke.train("mlp", inputs, labels, test=rows(24, seed=1), epochs=4, batch=16, evaluate_every=1,
                            on_step=steps.append, on_epoch=epochs.append, **QUIET)
        self.assertEqual((len(steps), len(epochs), result.summary["steps"]), (24, 4, 24))
        self.assertLess(result.history["loss"][-1], 0.5 * result.history["loss"][0])
        self.assertGreater(result.history["test_accuracy"][-1], 0.8)
        self.assertEqual([len(values) for values in result.history.values()], [4] * 6)
        self.assertEqual(result.predict(inputs[:5]).shape, (5, 3))
        self.assertIn("fc3.weight", result.weights())
        pair = yoke.train("mlp", (inputs, labels), test=rows(24, seed=1), epochs=4, batch=16, **QUIET)
        self.assertEqual(pair.summary["weights_hash"], result.summary["weights_hash"])

    def test_batches_of_an_iterable_are_the_rows_of_arrays_in_their_order(self):
        inputs, labels = rows()
        wanted = yoke.train("mlp", inputs, labels, epochs=3, batch=16, no_shuffle=True, **QUIET).summary["weights_hash"]
        given = Again(batches())
        found = yoke.train("mlp", given, classes=3, epochs=3, **QUIET)
        self.assertEqual(found.summary["weights_hash"], wanted)
        self.assertEqual(given.passes, 3)
        ragged = [(inputs[i:j], labels[i:j]) for i, j in ((0, 5), (5, 50), (50, 96))]
        cut = yoke.train("mlp", ragged, classes=3, epochs=3, batch=16, test=batches(7), **QUIET)
        self.assertEqual(cut.summary["weights_hash"], wanted)  # rows make new batches
        self.assertEqual(len([event for event in cut.events if event["kind"] == "evaluation"]), 1)

    def test_an_iterator_is_one_pass(self):
        once = yoke.train("mlp", iter(batches()), classes=3, **QUIET)
        self.assertEqual(once.summary["steps"], 6)
        with self.assertRaisesRegex(ValueError, "an iterator is one pass"):
            yoke.train("mlp", iter(batches()), classes=3, epochs=2, **QUIET)

    def test_every_mode_begins_with_the_weights_of_the_model(self):
        builder = yoke.Builder(6)
        model = builder.finish(builder.linear(builder.input(), name="fc", out_features=3))
        model.weights = {"fc.weight": numpy.ones((3, 6), numpy.float32), "fc.bias": numpy.arange(3, dtype=numpy.float32)}
        for mode in ("dp", "local", "async"):
            trainer = yoke.Trainer(model, *rows(), mode=mode, **{**SMALL, "learning_rate": 1e-30, "weight_decay": 0.0})
            trainer.run()
            for name, values in model.weights.items():
                numpy.testing.assert_allclose(trainer.weights()[name], values, rtol=1e-6, atol=1e-6, err_msg=mode)

    def test_targets_of_floats_are_regression(self):
        inputs, _ = rows()
        given = [(inputs[i:i + 16], inputs[i:i + 16, :2]) for i in range(0, 96, 16)]
        result = yoke.train("mlp", given, epochs=8, optimizer="adam", **{**QUIET, "learning_rate": 0.003})
        self.assertLess(result.history["loss"][-1], 0.3 * result.history["loss"][0])

    def test_a_folder_of_images_and_a_spec(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for word, color in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
                (folder / word).mkdir()
                for index in range(12):
                    png(folder / word / f"{index}.png", color)
            specs = [yoke.train("resnet20", given, steps=2, batch=8, **QUIET).summary["dataset"]
                     for given in (folder, f"images:{folder}", f"folder:{folder}")]
            self.assertEqual(len(set(specs)), 1)
            with self.assertRaisesRegex(FileNotFoundError, "is no folder"):
                yoke.train("resnet20", folder / "nowhere", **QUIET)
        result = yoke.train("mlp", "synthetic:1x8x8,rows=64", steps=2, batch=16, **QUIET)
        self.assertEqual(result.summary["steps"], 2)


class Refusals(unittest.TestCase):
    def test_what_an_iterable_raises_comes_out_and_hangs_nothing(self):
        def failing():
            yield from batches()[:2]
            raise OSError("the disk is gone")

        begin = time.monotonic()
        for _ in range(2):
            with self.assertRaisesRegex(OSError, "the disk is gone"):
                yoke.train("mlp", failing(), classes=3, **QUIET)
        self.assertLess(time.monotonic() - begin, 60)

    def test_a_model_of_several_inputs_takes_arrays_alone(self):
        builder = yoke.Builder(6)
        more = builder.add_input("more", 6)
        model = builder.finish(builder.linear(builder.add(builder.input(), more), name="fc", out_features=3))
        inputs, labels = rows()
        result = yoke.train(model, (inputs, inputs), labels, epochs=2, **QUIET)
        self.assertEqual(result.predict((inputs, inputs)).shape, (96, 3))
        with self.assertRaisesRegex(TypeError, "the model reads 2 inputs, and batches of an iterable have one"):
            yoke.train(model, [((inputs, inputs), labels)], **QUIET)

    def test_an_exception_of_a_callback_ends_the_run(self):
        for word in ("on_step", "on_epoch", "on_event"):
            with self.assertRaisesRegex(KeyError, "mine"):
                yoke.train("mlp", *rows(), **{word: lambda event: {}["mine"]}, **QUIET)

    def test_batches_that_do_not_fit_are_named(self):
        first = batches()[0]
        wrong = (first[0][:, :3], first[1])
        for given, kind, text in (([first, wrong], ValueError, r"batch 1 of the iterable has rows of \(3,\)"),
                                  ([first, (first[0], first[1][:-1])], ValueError, r"batch 1 .* labels has shape \(15,\)"),
                                  ([first, (first[0].astype(float), first[1])], TypeError, "batch 1.*float64"),
                                  ([first, (first[0], first[1].astype(str))], TypeError, "batch 1.*labels has dtype <U"),
                                  (Again([first[0]]), TypeError, "batch 0 of the iterable is a ndarray, expected a pair"),
                                  ([], ValueError, "empty"), (Again([]), ValueError, "empty")):
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                yoke.train("mlp", given, classes=3, **QUIET)
        with self.assertRaisesRegex(ValueError, "labels has .* 4294967297 to 4294967299"):
            yoke.train("mlp", rows()[0], rows()[1] + 2**32 + 1, **QUIET)
        with self.assertRaisesRegex(ValueError, "classes=10"):
            yoke.train("mlp", batches(), **QUIET)
        with self.assertRaisesRegex(yoke.YokeError, "label 2"):
            yoke.train("mlp", batches(), classes=2, **QUIET)
        with self.assertRaisesRegex(TypeError, "for a module of PyTorch"):
            yoke.train("mlp", batches(), classes=3, loss="mse", **QUIET)
        with self.assertRaisesRegex(TypeError, "no option lr: use learning_rate"):
            yoke.train("mlp", batches(), classes=3, lr=0.1, **QUIET)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Progress(unittest.TestCase):
    def run_with(self, **options):
        yoke.train("mlp", *rows(), test=rows(24), epochs=3, batch=16, evaluate_every=1, **{**SMALL, **options})

    def test_a_file_gets_a_line_an_epoch(self):
        file = io.StringIO()
        self.run_with(progress=file)
        lines = file.getvalue().splitlines()
        self.assertEqual(len(lines), 3)
        self.assertRegex(lines[0], r"^epoch 1/3  loss \d\.\d{4}  \d+\.\d %  test loss \d\.\d{4}  \d+\.\d %  \d+ rows/s$")

    def test_a_terminal_gets_one_line_that_changes(self):
        file = Terminal()
        with unittest.mock.patch("yoke.training.progress.REDRAW_SECONDS", 0):
            self.run_with(progress=file)
        printed = file.getvalue()
        self.assertEqual(printed.count("\n"), 3)
        self.assertRegex(printed, r"\repoch 1/3  step \d+/18  loss")
        self.assertNotRegex(printed.split("\n")[-1], r"\S")  # nothing is left behind

    def test_standard_output_stays_the_program_s(self):
        with unittest.mock.patch("sys.stdout", io.StringIO()) as out, unittest.mock.patch("sys.stderr", io.StringIO()) as err:
            self.run_with()
        self.assertEqual(out.getvalue(), "")
        self.assertEqual(len(err.getvalue().splitlines()), 3)

    def test_a_notebook_gets_a_table_that_changes(self):
        shown = []

        class Handle:
            def update(self, given, raw):
                shown.append(given)

        def display(given, raw, display_id):
            shown.append(given)
            return Handle()

        shell = types.SimpleNamespace(kernel=object())
        modules = {"IPython": types.SimpleNamespace(get_ipython=lambda: shell),
                   "IPython.display": types.SimpleNamespace(display=display)}
        with unittest.mock.patch.dict(sys.modules, modules):
            self.run_with()
        last = shown[-1]
        self.assertEqual(last["text/html"].count("<tr>"), 4)
        self.assertIn('<progress max="3" value="3">', last["text/html"])
        self.assertEqual(len(last["text/plain"].splitlines()), 3)

    def test_events_come_in_the_calling_thread(self):
        threads = set()
        self.run_with(progress=False, on_event=lambda event: threads.add(threading.current_thread()))
        self.assertEqual(threads, {threading.current_thread()})


@unittest.skipIf(torch is None, "no torch for this Python: pip install torch")
class Modules(unittest.TestCase):
    def made(self):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

    def test_a_loader_trains_a_module_which_then_has_the_weights(self):
        from torch.utils.data import DataLoader, TensorDataset
        inputs, labels = (torch.from_numpy(one) for one in rows())
        for workers in (0, 1):
            loader = DataLoader(TensorDataset(inputs, labels), batch_size=16, shuffle=True, num_workers=workers)
            module = self.made()
            result = yoke.train(module, loader, test=loader, epochs=5, **QUIET)
            self.assertLess(result.history["loss"][-1], 0.5 * result.history["loss"][0])
            with torch.no_grad():
                numpy.testing.assert_allclose(module.eval()(inputs).numpy(), result.predict(inputs.numpy()), atol=1e-4)

    def test_loaders_arrays_and_tensors_learn_the_same(self):
        from torch.utils.data import DataLoader, TensorDataset
        inputs, labels = (torch.from_numpy(one) for one in rows())
        dataset = TensorDataset(inputs, labels)
        hashes = {yoke.train(self.made(), *given, epochs=2, batch=16, no_shuffle=True, **QUIET).summary["weights_hash"]
                  for given in ((DataLoader(dataset, batch_size=24),), (dataset,), (inputs, labels), ((inputs, labels),),
                                (inputs.numpy(), labels.numpy()))}
        self.assertEqual(len(hashes), 1)

    def test_a_loss_that_is_a_function_takes_arrays(self):
        inputs, labels = rows()
        result = yoke.train(self.made(), inputs, labels, test=rows(24), epochs=5, batch=16,
                            loss=lambda output, target: 2 * torch.nn.functional.cross_entropy(output, target), **QUIET)
        self.assertLess(result.history["loss"][-1], 0.5 * result.history["loss"][0])
        self.assertIsNotNone(result.history["test_loss"][-1])
        self.assertEqual(result.predict(inputs).shape, (96, 3))
        with self.assertRaisesRegex(TypeError, "yoke.DataParallel's step takes them batch by batch"):
            yoke.train(self.made(), batches(), loss=lambda output, target: (output[:, 0] - target).square().mean(), **QUIET)

    def test_a_dataset_of_single_rows_is_told_what_to_do(self):
        class Single(torch.utils.data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                return torch.zeros(6), 0

        with self.assertRaisesRegex(TypeError, r"DataLoader\(dataset, batch_size=64, shuffle=True\)"):
            yoke.train(self.made(), Single(), **QUIET)


class Page(unittest.TestCase):
    def test_the_examples_of_the_page_print_what_the_page_shows(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        sys.path.insert(0, str(root / "tests/house"))
        import pages
        found = list(pages.blocks((root / "docs/python.md").read_text(encoding="utf-8")))
        words = ("yoke.train(", "builder.python_operation(", "yoke.launch(")
        places = [i for i, (language, code, _) in enumerate(found)
                  if language == "python" and any(word in code for word in words)]
        self.assertEqual(len(places), len(words))
        with tempfile.TemporaryDirectory() as folder:
            for place in places:
                example = pathlib.Path(folder, "example.py")
                example.write_text(found[place][1], encoding="utf-8")
                done = subprocess.run([sys.executable, str(example)], text=True, capture_output=True, check=False)
                self.assertIsNone(pages.difference(found[place + 1][1], done.stdout, False), done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
