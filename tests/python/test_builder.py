#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke.Builder: every function of the headers that adds to a model is a method with the options of its struct as keywords,
a model built in Python has the bits of the preset built in C, and errors of the library come at the call.

usage: test_builder.py ROOT, with the module installed or YOKE_LIBRARY and PYTHONPATH. Exit code 77: there is no numpy.
"""
import pathlib
import re
import subprocess
import sys
import unittest

try:
    import numpy
except ImportError:
    print("no numpy for this Python: pip install numpy, or apt-get install python3-numpy")
    sys.exit(77)
ROOT = pathlib.Path(sys.argv[1]).resolve()
import yoke  # noqa: E402
from yoke._library import LAYOUT  # noqa: E402

SMALL = {"devices": "2xcpu", "threads": 1, "batch": 16, "algorithm": "direct"}


def rows(count, *shape, seed=0):
    return numpy.random.default_rng(seed).normal(size=(count, *shape)).astype(numpy.float32)


def two_layers(features=12):
    """The preset mlp:width=16, call by call."""
    builder = yoke.Builder(features)
    value = builder.input()
    for index in (1, 2):
        value = builder.relu(builder.linear(value, name=f"fc{index}", out_features=16))
    return builder.finish(builder.linear(value, name="fc3", out_features=3))


class Mirror(unittest.TestCase):
    def test_every_function_of_the_headers_that_adds_to_a_model_is_a_method(self):
        text = "\n".join(path.read_text() for path in sorted((ROOT / "include/yoke").glob("*.h")))
        declared = set(re.findall(r"YOKE_API \w+ \*?(yoke_\w+)\(yoke_model \*model[,)]", text)) - {"yoke_model_destroy"}
        self.assertGreater(len(declared), 70)
        self.assertEqual(set(LAYOUT["builders"]), declared)
        for name in declared:
            method = getattr(yoke.Builder, name.removeprefix("yoke_").removeprefix("model_"))
            self.assertTrue(method.__doc__, name)

    def test_every_function_of_elements_is_a_method(self):
        text = (ROOT / "include/yoke/function.h").read_text()
        for word in re.findall(r"YOKE_FN_(\w+)\b", text):
            self.assertTrue(callable(getattr(yoke.Builder, word.lower())), word)

    def test_parameters_have_the_names_of_the_headers(self):
        self.assertEqual([part[0] for part in LAYOUT["builders"]["yoke_slice"]["parameters"]],
                         ["input", "axis", "begin", "end", "fill"])


def sum_by_root(bucket):
    for device in range(1, bucket.devices):
        bucket.send(device, 0, 0, bucket.count)
        bucket.gradients[0] += bucket.inboxes[0]
    for device in range(1, bucket.devices):
        bucket.send(0, device, 0, bucket.count)
        bucket.gradients[device][:] = bucket.inboxes[device]


class Exchanges(unittest.TestCase):
    def weights(self, **options):
        engine = yoke.DataParallel(two_layers(), devices="3xcpu", threads=1, algorithm="direct", **options)
        for step in range(3):
            engine.step(rows(12, 12, seed=step), numpy.arange(12) % 3)
        return engine.state_dict()

    def test_sums_of_python_in_the_order_of_the_devices_give_the_bits_of_the_built_in_exchange(self):
        expected, found = self.weights(), self.weights(exchange=sum_by_root)
        for name, values in expected.items():
            self.assertEqual(numpy.asarray(values).tobytes(), numpy.asarray(found[name]).tobytes(), name)

    def test_an_exchange_that_does_nothing_learns_something_else(self):
        expected, found = self.weights(), self.weights(exchange=lambda bucket: None)
        self.assertNotEqual(*(numpy.asarray(one["fc1.weight"]).tobytes() for one in (expected, found)))

    def test_what_goes_wrong_in_it_comes_out_of_the_step(self):
        with self.assertRaisesRegex(KeyError, "cable"):
            self.weights(exchange=lambda bucket: {}["cable"])
        with self.assertRaisesRegex(yoke.YokeError, "send from device 0 to device 3"):
            self.weights(exchange=lambda bucket: bucket.send(0, 3, 0, 1))
        with self.assertRaisesRegex(ValueError, "from -1"):
            self.weights(exchange=lambda bucket: bucket.send(0, 1, -1, 1))
        with self.assertRaisesRegex(yoke.YokeError, "with shards"):
            self.weights(exchange=sum_by_root, shards=4)


class Models(unittest.TestCase):
    def test_a_model_of_python_trains_to_the_bits_of_the_preset(self):
        inputs, labels = rows(48, 12), numpy.arange(48) % 3
        hashes = [yoke.Trainer(model, inputs, labels, steps=5, **SMALL).run()["weights_hash"]
                  for model in ("mlp:width=16", two_layers())]
        self.assertEqual(hashes[0], hashes[1])

    def test_elementary_operations_compute_what_numpy_does(self):
        builder = yoke.Builder((4, 6))
        value = builder.input()
        scores = builder.matmul(value, builder.transpose(value, "height", "channels"), False, False)
        total = builder.reduce_axes(builder.tanh(scores * 0.1), "sum", ("height", "channels"))
        shifted = builder.clamp(builder.reshape(total, (1,)), -2, 2) + builder.constant((1,), [0.5])
        shifted = shifted * builder.parameter_value(name="one", shape=(1,), value=1.0)
        model = builder.finish(shifted, "mse")
        inputs = rows(5, 4, 6)
        wanted = numpy.clip(numpy.tanh(0.1 * inputs @ inputs.transpose(0, 2, 1)).sum((1, 2)), -2, 2) + 0.5
        found = yoke.DataParallel(model, devices="cpu", batch=5, algorithm="direct")(inputs)
        numpy.testing.assert_allclose(found[:, 0], wanted, rtol=1e-5, atol=1e-5)

    def test_several_inputs_and_a_loss_that_the_model_computes(self):
        builder = yoke.Builder(3)
        target = builder.add_input("target", 1)
        guess = builder.linear(builder.input(), name="fc", out_features=1)
        model = builder.finish(builder.l1_loss(guess, target), "output")
        engine = yoke.DataParallel(model, devices="2xcpu", learning_rate=0.1, algorithm="direct")
        inputs = rows(32, 3)
        targets = inputs.sum(1, keepdims=True)
        losses = [engine.step((inputs, targets)) for _ in range(60)]
        self.assertLess(losses[-1], 0.3 * losses[0])
        trainer = yoke.Trainer(model, (inputs, targets), None, steps=3, **SMALL)
        trainer.run()
        self.assertEqual(trainer.predict((inputs, targets)).shape, (32, 1))

    def test_labels_of_positions_train_a_sequence(self):
        builder = yoke.Builder(6)
        value = builder.embedding(builder.input(), name="words", count=9, features=8)
        value = builder.lstm(value, name="lstm", hidden=8, bidirectional=True)
        model = builder.finish(builder.linear(value, name="tags", out_features=9))
        ids = numpy.random.default_rng(1).integers(0, 9, (64, 6))
        trainer = yoke.Trainer(model, ids, ids, test=(ids, ids), epochs=60, optimizer="adam", learning_rate=0.02, **SMALL)
        self.assertGreater(trainer.run()["accuracy"], 0.9)
        self.assertEqual(trainer.predict(ids).shape, (64, 6, 9))


class Errors(unittest.TestCase):
    def test_the_library_refuses_a_call_at_once_in_its_words(self):
        builder = yoke.Builder((3, 8, 8))
        with self.assertRaisesRegex(yoke.YokeError, "fc: reads an image of 3 x 8 x 8"):
            builder.linear(builder.input(), name="fc", out_features=2)

    def test_words_and_shapes_that_do_not_exist_are_named(self):
        builder = yoke.Builder((3, 8, 8))
        value = builder.input()
        self.assertEqual(value.shape, (3, 8, 8))
        with self.assertRaisesRegex(TypeError, "yoke_conv2d_options has no field filters"):
            builder.conv2d(value, name="a", filters=3)
        with self.assertRaisesRegex(ValueError, "'depth' is not one of channels, height, width"):
            builder.slice(value, "depth", 0, 1, 0)
        with self.assertRaisesRegex(ValueError, "a row of shape"):
            yoke.Builder((1, 2, 3, 4))
        with self.assertRaisesRegex(TypeError, "transpose needs second"):
            builder.transpose(value, "height")

    def test_rows_that_do_not_fit_a_model_are_refused(self):
        with self.assertRaisesRegex(ValueError, r"input has shape \(4, 5\), rows of it are \(12,\)"):
            yoke.Trainer(two_layers(), rows(4, 5), numpy.zeros(4, int), **SMALL)

    def test_masked_values_are_refused(self):
        masked = numpy.ma.masked_array(rows(4, 12), mask=numpy.eye(4, 12))
        with self.assertRaisesRegex(ValueError, "masked values"):
            yoke.Trainer(two_layers(), masked, numpy.zeros(4, int), **SMALL)
        with self.assertRaisesRegex(ValueError, "masked values"):
            yoke.DataParallel(two_layers(), algorithm="direct").step(masked, numpy.zeros(4, int))


class Page(unittest.TestCase):
    def test_the_example_of_the_page_prints_what_the_page_shows(self):
        sys.path.insert(0, str(ROOT / "tests/house"))
        import pages
        found = list(pages.blocks((ROOT / "docs/python.md").read_text(encoding="utf-8")))
        place = next(i for i, (language, code, _) in enumerate(found) if language == "python" and "yoke.Builder" in code)
        done = subprocess.run([sys.executable, "-c", found[place][1]], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(pages.difference(found[place + 1][1], done.stdout, False), done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
