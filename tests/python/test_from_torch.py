#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke.from_torch: small networks of PyTorch come in with their outputs, gradients and weights after ten steps, go home as a
state_dict, and what does not come in is named with the line of the module.

usage: test_from_torch.py, with the module installed or YOKE_LIBRARY and PYTHONPATH. Exit code 77: there is no torch.
"""
import copy
import pathlib
import subprocess
import sys
import tempfile
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

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import torch_networks  # noqa: E402
import yoke  # noqa: E402

warnings.filterwarnings("ignore")
torch.set_num_threads(1)  # two libraries whose threads wait for each other's cores take minutes
EXACT = {"devices": "cpu", "threads": 1, "algorithm": "direct"}


def made(network):
    """A network of torch_networks.py in training mode, the same each time."""
    torch.manual_seed(3)
    module, inputs, labels, loss = getattr(torch_networks, network)()
    return module.train(), inputs, labels, loss


def loss_of(outputs, labels, loss):
    if loss == "mse":
        return F.mse_loss(outputs, labels)
    if loss == "bce":
        return F.binary_cross_entropy_with_logits(outputs, labels)
    if outputs.dim() == 3:
        outputs, labels = outputs.flatten(0, 1), labels.flatten()
    return F.cross_entropy(outputs, labels)


def ten_steps(module, inputs, labels, loss, optimizer):
    for _ in range(10):
        optimizer.zero_grad()
        loss_of(module(*inputs), labels, loss).backward()
        optimizer.step()


class OneLine(nn.Module):
    """A module whose forward is one function."""

    def __init__(self, function):
        super().__init__()
        self.fc, self.function = nn.Linear(6, 6), function

    def forward(self, x):
        return self.function(self.fc(x))


class Sums(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 1)


class Networks(unittest.TestCase):
    def check(self, network):
        module, inputs, labels, loss = made(network)
        model = yoke.from_torch(module, inputs, loss)  # compares outputs
        self.assertLessEqual(model.error, 1e-4)
        engine = yoke.DataParallel(model, schedule="classic", **EXACT)
        found = engine.gradients(inputs, labels)
        theirs = copy.deepcopy(module)
        loss_of(theirs(*inputs), labels, loss).backward()
        whole = max(float(value.grad.abs().max()) for value in theirs.parameters())
        for name, value in theirs.named_parameters():
            numpy.testing.assert_allclose(found[name], value.grad.numpy(), rtol=0, atol=1e-4 * whole, err_msg=name)
        for kind in ("sgd", "adamw"):
            with self.subTest(kind):
                self.check_steps(module, model, (inputs, labels, loss), kind)

    def check_steps(self, module, model, batch, kind):
        options = {"momentum": 0.9} if kind == "sgd" else {"weight_decay": 0.01}
        own = yoke.DataParallel(model, optimizer=kind, learning_rate=1e-3, **options, **EXACT)
        theirs = copy.deepcopy(module)
        ten_steps(theirs, *batch, {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[kind](
            theirs.parameters(), lr=1e-3, **options))
        for _ in range(10):
            own.step(batch[0], batch[1])
        home = copy.deepcopy(module)
        home.load_state_dict(own.state_dict())
        with torch.no_grad():
            outputs, wanted = home(*batch[0]), theirs(*batch[0])
        self.assertLess(float((outputs - wanted).abs().max()), 1e-3 * float(wanted.abs().max()))


for _function in torch_networks.NETWORKS:
    setattr(Networks, f"test_{_function.__name__}_comes_in_and_learns_as_in_pytorch",
            lambda self, name=_function.__name__: self.check(name))


class Faces(unittest.TestCase):
    def test_a_module_trains_on_two_devices_with_labels_of_pixels(self):
        module, inputs, labels, _loss = made("unet")
        engine = yoke.DataParallel(module, devices="2xcpu", threads=1, learning_rate=0.1, algorithm="direct")
        losses = [engine.step(inputs[0], labels) for _ in range(15)]
        self.assertLess(losses[-1], 0.9 * losses[0])
        self.assertEqual(engine(inputs[0]).shape, (4, 4, 16, 16))

    def test_a_trainer_takes_it_and_gives_weights_by_the_module_s_names(self):
        module, inputs, labels, _loss = made("gpt")
        trainer = yoke.Trainer(yoke.from_torch(module, inputs), inputs[0], labels, steps=2, batch=4, **EXACT)
        numpy.testing.assert_allclose(trainer.predict(inputs[0]), module.eval()(*inputs).detach().numpy(), atol=1e-4)
        trainer.run()
        self.assertEqual(set(trainer.weights()), {name for name, _ in module.named_parameters()})

    def test_shared_weights_stay_shared_and_buffers_go_home(self):
        module, inputs, labels, _loss = made("gpt_by_hand")
        engine = yoke.DataParallel(yoke.from_torch(module, inputs), **EXACT)
        engine.step(inputs, labels)
        state = engine.state_dict()
        self.assertEqual(set(state), set(module.state_dict()))
        self.assertTrue(bool((state["head.weight"] == state["wte.weight"]).all()))

    def test_frozen_parameters_and_statistics_stay(self):
        module, inputs, labels, _loss = made("residual_cnn")
        module[2].bn1.eval()
        module[0].weight.requires_grad_(False)
        before = {name: value.clone() for name, value in module.state_dict().items()}
        engine = yoke.DataParallel(yoke.from_torch(module, inputs), learning_rate=0.1, **EXACT)
        engine.step(inputs, labels)
        state = engine.state_dict()
        for name in ("0.weight", "2.bn1.running_mean"):
            self.assertTrue(bool((state[name] == before[name]).all()), name)
        self.assertFalse(bool((state["2.bn2.running_mean"] == before["2.bn2.running_mean"]).all()))
        self.assertFalse(module[2].bn1.training)

    def test_a_part_that_is_called_twice_has_one_weight(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.fc = nn.Embedding(9, 6), nn.Linear(6, 6)

            def forward(self, left, right):
                return self.fc(torch.relu(self.fc(self.words(left).mean(1)))) * self.words(right).mean(1)

        torch.manual_seed(0)
        module, inputs = Twice(), tuple(torch.randint(0, 9, (2, 5, 4)))
        labels = torch.randint(0, 6, (5,))
        found = yoke.DataParallel(yoke.from_torch(module, inputs), schedule="classic", **EXACT).gradients(inputs, labels)
        F.cross_entropy(module(*inputs), labels).backward()
        for name, value in module.named_parameters():
            numpy.testing.assert_allclose(found[name], value.grad.numpy(), atol=1e-6, err_msg=name)

    def test_dropout_is_off_in_eval_mode_and_on_in_training(self):
        module = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 4))
        engine = yoke.DataParallel(yoke.from_torch(module, torch.randn(4, 8)), batch=4, learning_rate=0.0, **EXACT)
        inputs = torch.randn(4, 8)
        numpy.testing.assert_allclose(engine(inputs), module.eval()(inputs).detach().numpy(), atol=1e-5)
        labels = torch.zeros(4, dtype=torch.long)
        self.assertNotEqual(engine.step(inputs, labels), engine.step(inputs, labels))


class Refusals(unittest.TestCase):
    def refused(self, module, example=None):
        with self.assertRaises(yoke.FromTorchError) as caught:
            yoke.from_torch(module, torch.randn(3, 6) if example is None else example)
        return caught.exception

    def test_an_operator_that_yoke_lacks_is_named_with_the_line(self):
        error = self.refused(nn.Sequential(nn.Linear(6, 6), Sums()))
        self.assertEqual(error.operator, "aten.cumsum.default")
        for word in ("in 1 (Sums)", "test_from_torch.py", "return torch.cumsum(x, 1)"):
            self.assertIn(word, str(error))

    def test_flow_that_depends_on_values_is_told(self):
        error = self.refused(OneLine(lambda x: x * 2 if x.sum() > 0 else x))
        self.assertIn("depends on values", str(error))
        self.assertIn("test_from_torch.py", str(error))

    def test_a_layer_s_parameter_in_arithmetic_is_told(self):
        module = OneLine(torch.relu)
        module.function = lambda x: x + module.fc.weight.sum()
        self.assertIn("which is also a layer's", str(self.refused(module)))

    def test_other_types_are_told_with_the_tensor(self):
        self.assertIn("fc.weight has dtype torch.bfloat16", str(self.refused(OneLine(torch.relu).bfloat16())))

    def test_rows_that_see_each_other_are_told(self):
        self.assertIn("rows cannot see each other", str(self.refused(OneLine(lambda x: x - x.mean(0)))))

    def test_outputs_that_differ_are_told(self):
        module = OneLine(torch.relu)
        module.forward = lambda x: torch.relu(module.fc(x)) + (0 if module.training else 1)
        self.assertIn("differs from the module's", str(self.refused(module)))


class Import(unittest.TestCase):
    def test_the_module_imports_no_torch(self):
        code = "import sys, yoke; sys.exit('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], check=False).returncode, 0)


class Page(unittest.TestCase):
    def test_the_examples_of_the_page_print_what_the_page_shows(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        sys.path.insert(0, str(root / "tests/house"))
        import pages
        found = list(pages.blocks((root / "docs/python.md").read_text(encoding="utf-8")))
        places = [i for i, (language, code, _) in enumerate(found) if language == "python" and "import torch" in code]
        self.assertEqual(len(places), 2)
        with tempfile.TemporaryDirectory() as folder:
            for place in places:
                pathlib.Path(folder, "example.py").write_text(found[place][1], encoding="utf-8")
                done = subprocess.run([sys.executable, "-W", "ignore", "example.py"], cwd=folder, text=True,
                                      capture_output=True, check=False)
                printed = done.stdout.replace(f"{folder}/", "")
                self.assertIsNone(pages.difference(found[place + 1][1], printed, False), printed + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
