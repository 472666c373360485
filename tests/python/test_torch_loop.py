#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A PyTorch user's loop with yoke.DataParallel: losses that are functions, of several outputs and targets, learn as in
PyTorch; groups take the module's parameters; tensors come in and go home without a copy; README.md's two loops run and
agree.

usage: test_torch_loop.py ROOT, with the module installed or YOKE_LIBRARY and PYTHONPATH. Exit code 77: there is no torch.
"""
import copy
import pathlib
import re
import subprocess
import sys
import unittest
import warnings

try:
    import numpy
    import torch
except ImportError:
    print("no torch for this Python: pip install torch")
    sys.exit(77)
from torch import nn
from torch.nn import functional as F

import yoke

ROOT = pathlib.Path(sys.argv[1]).resolve()
warnings.filterwarnings("ignore")
torch.set_num_threads(1)  # two libraries whose threads wait for each other's cores take minutes
SMALL = {"devices": "2xcpu", "threads": 1, "algorithm": "direct"}
ROWS = 12


class Two(nn.Module):
    """Two heads on one body."""

    def __init__(self):
        super().__init__()
        self.body, self.left, self.right = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 3)

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return self.left(hidden), self.right(hidden)


class Named(Two):
    def forward(self, x):
        left, right = super().forward(x)
        return {"left": left, "right": right}


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)

    def forward(self, x):
        return self.head(torch.tanh(self.words(x)))


def linear(*behind):
    return nn.Sequential(nn.Linear(6, 5), *behind)


def floats(*shape):
    return torch.randn(ROWS, *shape)


def ids(classes, *shape):
    return torch.randint(0, classes, (ROWS, *shape))


# name: module, rows (None: floats), targets, loss
LOSSES = {
    "mean squares": (linear, None, lambda: floats(5), lambda o, t: ((o - t) ** 2).mean()),
    "of each row": (linear, None, lambda: floats(5), lambda o, t: (o - t).pow(2).sum(1).mean()),
    "sum by rows": (linear, None, lambda: floats(5), lambda o, t: (o - t).abs().sum() / o.shape[0]),
    "two heads": (Two, None, lambda: (floats(4), ids(3)),
                  lambda o, a, b: F.mse_loss(o[0], a) + 0.3 * F.cross_entropy(o[1], b) + 1.0),
    "a dict": (Named, None, lambda: (floats(4), ids(3)),
               lambda o, a, b: F.l1_loss(o["left"], a) - F.cross_entropy(o["right"], b) / 4),
    "smoothing": (linear, None, lambda: ids(5), lambda o, t: F.cross_entropy(o, t, label_smoothing=0.2)),
    "known: a function of it alone": (linear, None, lambda: ids(5), lambda o, t: F.cross_entropy(o, t)),
    "known: squares by a function": (linear, None, lambda: floats(5), lambda o, t: F.mse_loss(o, t)),
    "known: pixels": (lambda: nn.Conv2d(2, 3, 1), lambda: floats(2, 4, 4), lambda: ids(3, 4, 4),
                      lambda o, t: F.cross_entropy(o, t)),
    "pixels": (lambda: nn.Conv2d(2, 3, 1), lambda: floats(2, 4, 4), lambda: ids(3, 4, 4),
               lambda o, t: 2 * F.cross_entropy(o, t)),
    "probabilities": (linear, None, lambda: torch.softmax(floats(5), 1), lambda o, t: F.cross_entropy(o, t)),
    "positions": (Words, lambda: ids(11, 7), lambda: ids(11, 7), lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten())),
    "positions last": (Words, lambda: ids(11, 7), lambda: ids(11, 7), lambda o, t: F.cross_entropy(o.transpose(1, 2), t)),
    "classes of a sequence in dimension 1": (lambda: nn.Conv1d(2, 3, 1), lambda: floats(2, 7), lambda: ids(3, 7),
                                             F.cross_entropy),
    "the same by an object": (lambda: nn.Conv1d(2, 3, 1), lambda: floats(2, 7), lambda: ids(3, 7),
                              nn.CrossEntropyLoss(label_smoothing=0.1)),
    "the same by a function": (lambda: nn.Conv1d(2, 3, 1), lambda: floats(2, 7), lambda: ids(3, 7),
                               lambda o, t: F.cross_entropy(o, t)),
    "nll": (lambda: linear(nn.LogSoftmax(1)), None, lambda: ids(5), nn.NLLLoss()),
    "smooth l1": (linear, None, lambda: floats(5), lambda o, t: 2 * F.smooth_l1_loss(o, t, beta=0.5)),
    "huber": (linear, None, lambda: floats(5), lambda o, t: F.huber_loss(o, t, delta=0.7)),
    "bce": (lambda: linear(nn.Sigmoid()), None, lambda: torch.rand(ROWS, 5), lambda o, t: F.binary_cross_entropy(o, t)),
    "bce of logits": (linear, None, lambda: torch.rand(ROWS, 5), lambda o, t: 3 * F.binary_cross_entropy_with_logits(o, t)),
    "divergence": (lambda: linear(nn.LogSoftmax(1)), None, lambda: torch.softmax(floats(5), 1),
                   lambda o, t: F.kl_div(o, t, reduction="batchmean")),
    "cosine": (linear, None, lambda: floats(5), lambda o, t: 1 - F.cosine_similarity(o, t).mean()),
    "no target": (linear, None, lambda: (), lambda o: o.square().mean()),
    "known: cross entropy": (linear, None, lambda: ids(5), F.cross_entropy),
    "known: smoothing": (linear, None, lambda: ids(5), nn.CrossEntropyLoss(label_smoothing=0.1)),
    "known: squares": (linear, None, lambda: floats(5), nn.MSELoss()),
    "known: bce": (linear, None, lambda: torch.rand(ROWS, 5), F.binary_cross_entropy_with_logits),
    "known: huber": (linear, None, lambda: floats(5), nn.HuberLoss()),
}


class Losses(unittest.TestCase):
    def check(self, name):
        make, rows, targets, loss = LOSSES[name]
        torch.manual_seed(1)
        module, inputs, targets = make(), rows() if rows else floats(6), targets()
        theirs = copy.deepcopy(module)
        optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
        model = yoke.DataParallel(module, loss=loss, learning_rate=0.1, **SMALL)
        for _ in range(4):
            optimizer.zero_grad()
            wanted = loss(theirs(inputs), *(targets if isinstance(targets, tuple) else (targets,)))
            wanted.backward()
            optimizer.step()
            self.assertAlmostEqual(model.step(inputs, targets), float(wanted), delta=1e-4 * max(1, abs(float(wanted))))
        self.assertEqual(model.model.traced_loss, not name.startswith("known"))
        for word, values in theirs.state_dict().items():
            numpy.testing.assert_allclose(model.state_dict()[word].numpy(), values.numpy(), atol=1e-5, err_msg=word)
        with torch.no_grad():
            outputs = torch.utils._pytree.tree_leaves(theirs.eval()(inputs))
        found = model(inputs)
        for own, other in zip(found if isinstance(found, tuple) else (found,), outputs):
            numpy.testing.assert_allclose(own, other.numpy(), atol=1e-4)
        evaluated = model.evaluate(inputs, targets)
        with torch.no_grad():
            wanted = loss(theirs(inputs), *(targets if isinstance(targets, tuple) else (targets,)))
        self.assertAlmostEqual(evaluated["loss"], float(wanted), delta=1e-4 * max(1, abs(float(wanted))))

    def test_what_is_no_mean_of_rows_is_told(self):
        for loss, text in ((lambda o, t: ((o - t) ** 2).sum(), "is a sum over the batch.*divide it by the rows"),
                           (lambda o, t: ((o - t) ** 2).mean().sqrt(), "aten.sqrt.*a function of a mean over the batch"),
                           (lambda o, t: (o - t) ** 2, "expected one number: the mean over the batch"),
                           (lambda o, t: (o - o.mean(0)).square().mean(), "rows cannot see each other"),
                           (lambda o, t: o.mean() if o.sum() > 0 else t.mean(), "flow depends on values"),
                           (lambda o, t: o.mean() * t.mean(), "a product or a quotient of two means"),
                           (lambda o, t: o.square().mean(), "read 1 of 2 inputs and targets"),
                           (lambda o, t: F.cross_entropy(o, t, weight=torch.ones(5)), "class_weights")):
            targets = ids(5) if text == "class_weights" else floats(5)
            with self.subTest(text), self.assertRaisesRegex(yoke.FromTorchError, f"(?s){text}"):
                yoke.DataParallel(linear(), loss=loss, **SMALL).step(floats(6), targets)

    def test_a_class_that_counts_nowhere_is_told(self):
        model = yoke.DataParallel(linear(), loss=lambda o, t: 2 * F.cross_entropy(o, t), **SMALL)
        model.step(floats(6), ids(5))
        with self.assertRaisesRegex(ValueError, "the class -100: a loss that is a function takes no ignore_index"):
            model.step(floats(6), torch.full((ROWS,), -100))
        known = yoke.DataParallel(linear(), loss=F.cross_entropy, **SMALL)
        module, inputs, labels = linear(), floats(6), ids(5)
        labels[3] = -100
        known = yoke.DataParallel(module, loss=F.cross_entropy, learning_rate=0.0, **SMALL)
        self.assertAlmostEqual(known.step(inputs, labels), float(F.cross_entropy(module(inputs), labels)), places=5)


for _number, _name in enumerate(LOSSES):
    setattr(Losses, f"test_{_number:02}_{re.sub('[^a-z0-9]+', '_', _name)}_learns_as_in_pytorch",
            lambda self, name=_name: self.check(name))


class Loop(unittest.TestCase):
    def test_groups_take_the_module_s_parameters(self):
        torch.manual_seed(2)
        module = Two()
        groups = [{"params": module.body.parameters(), "lr": 0.01}, {"params": [module.left.bias], "weight_decay": 0.0},
                  {"params": module.right.named_parameters()}]
        loss = lambda o, a, b: F.mse_loss(o[0], a) + F.cross_entropy(o[1], b)  # noqa: E731
        theirs = copy.deepcopy(module)
        optimizer = torch.optim.AdamW([
            {"params": theirs.body.parameters(), "lr": 0.01}, {"params": [theirs.left.bias], "weight_decay": 0.0},
            {"params": [theirs.left.weight, *theirs.right.parameters()]}], lr=0.1, weight_decay=0.05)
        model = yoke.DataParallel(module, loss=loss, optimizer="adamw", learning_rate=0.1, weight_decay=0.05,
                                  groups=groups, **SMALL)
        inputs, targets = floats(6), (floats(4), ids(3))
        for _ in range(5):
            optimizer.zero_grad()
            loss(theirs(inputs), *targets).backward()
            optimizer.step()
            model.step(inputs, targets)
        for word, values in theirs.state_dict().items():
            numpy.testing.assert_allclose(model.state_dict()[word].numpy(), values.numpy(), atol=1e-4, err_msg=word)

    def test_tensors_are_read_where_they_lie_and_outputs_become_tensors_without_a_copy(self):
        model, inputs = yoke.DataParallel(linear(), **SMALL), floats(6)
        model.step(inputs, ids(5))
        model._batch.fill(inputs, None)
        self.assertEqual(model._batch.struct.inputs, inputs.data_ptr())
        output = model(inputs)
        for tensor in (torch.from_numpy(output), torch.from_dlpack(output)):
            self.assertEqual(tensor.data_ptr(), output.ctypes.data)

    def test_tensors_of_every_kind_have_the_same_loss(self):
        model, inputs, labels = yoke.DataParallel(linear(), learning_rate=0.0, **SMALL), floats(6), ids(5)
        loss = model.step(inputs, labels)
        for given in (inputs.clone().requires_grad_(True), inputs.double(), inputs.t().contiguous().t(), nn.Parameter(inputs)):
            self.assertEqual(model.step(given, labels.int()), loss)
        for given, text in ((inputs.bfloat16(), "input has dtype torch.bfloat16: input.float()"),
                            (inputs.to("meta"), "input lies on meta"), (inputs.to_sparse(), "input has dtype")):
            with self.subTest(text), self.assertRaisesRegex(TypeError, re.escape(text)):
                model.step(given, labels)

    def test_a_state_dict_comes_in_before_the_first_call_and_after(self):
        torch.manual_seed(4)
        source, inputs, labels = linear(nn.BatchNorm1d(5)), floats(6), ids(5)
        with torch.no_grad():
            wanted = source.eval()(inputs).numpy()
        for calls in (0, 2):
            model = yoke.DataParallel(linear(nn.BatchNorm1d(5)), **SMALL)
            for _ in range(calls):
                model.step(inputs, labels)
            model.load_state_dict(source.state_dict())
            numpy.testing.assert_allclose(model(inputs), wanted, atol=1e-5)
        with self.assertRaisesRegex(ValueError, "no tensor nothing"):
            model.load_state_dict({"nothing": inputs})
        with self.assertRaisesRegex(ValueError, r"0.bias has shape \(4,\), expected \(5,\)"):
            model.load_state_dict({"0.bias": torch.zeros(4)})

    def test_a_checkpoint_of_a_module_goes_on(self):
        import tempfile
        torch.manual_seed(3)
        module, inputs, labels = linear(nn.BatchNorm1d(5)), floats(6), ids(5)
        first = yoke.DataParallel(module, optimizer="adam", **SMALL)
        for _ in range(3):
            first.step(inputs, labels)
        with tempfile.TemporaryDirectory() as folder:
            first.save(f"{folder}/state.safetensors")
            second = yoke.DataParallel(linear(nn.BatchNorm1d(5)), optimizer="adam", **SMALL)
            second.load(f"{folder}/state.safetensors")
            self.assertEqual(first.step(inputs, labels), second.step(inputs, labels))
        self.assertEqual(int(second.state_dict()["1.num_batches_tracked"]), 4)


class Readme(unittest.TestCase):
    def test_the_two_loops_run_and_differ_in_three_lines(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8").split("## From PyTorch")[1]
        lines = re.search(r"```diff\n(.*?)```", text, re.S)[1].splitlines()
        self.assertLessEqual(len([line for line in lines if line[0] != "-"]), 10)
        self.assertLessEqual(len([line for line in lines if line[0] == "+"]), 3)
        losses = []
        for sign in "-+":
            code = "\n".join(line[1:] for line in lines if line[0] in (" ", sign))
            code = code.replace("\n", "\ntorch.manual_seed(0); torch.set_num_threads(1)\n", 1)
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            losses.append(float(re.search(r"^loss ([\d.]+)$", done.stdout, re.M)[1]))
        self.assertLess(losses[0], 0.6)  # it has learned
        self.assertAlmostEqual(*losses, delta=0.011)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
