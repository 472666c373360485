#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of ONNX: every preset computes under onnxruntime what it computes here and comes back with its names; networks that
torch.onnx.export writes, by both of its exporters, have PyTorch's outputs, gradients and weights after ten steps.

usage: test_onnx.py, with the module installed or YOKE_LIBRARY and PYTHONPATH. Exit code 77: there is no torch, onnx or
onnxruntime, or this build has no ONNX.
"""
import contextlib
import copy
import ctypes
import logging
import os
import pathlib
import sys
import tempfile
import unittest
import warnings

try:
    import numpy
    import onnx
    import onnxruntime
    import torch
except ImportError as error:
    print(f"no {error.name} for this Python: pip install torch onnx onnxruntime")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import torch_networks  # noqa: E402
from onnx_export import export  # noqa: E402
import yoke  # noqa: E402
from test_from_torch import loss_of, ten_steps  # noqa: E402
from yoke._library import LIBRARY, make  # noqa: E402
from yoke.builder import Model  # noqa: E402
from yoke.data_parallel import write_weights  # noqa: E402

try:
    yoke.from_onnx(os.devnull)
except yoke.YokeError as error:
    if "no ONNX" in str(error):
        print(error)
        sys.exit(77)

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
torch.set_num_threads(1)
EXACT = {"devices": "cpu", "threads": 1, "algorithm": "direct"}
SIDE = {"vgg11_bn": 64, "densenet121": 64, "convnext_tiny": 64, "efficientnet_b0": 64}  # of images of large models
NETWORKS = [one.__name__ for one in torch_networks.NETWORKS]


def presets():
    """(name, the model) of each preset, small where it takes any size."""
    info, index = make("yoke_preset_info"), 0
    while LIBRARY.yoke_model_preset_name(index):
        LIBRARY.yoke_model_preset_describe(index, ctypes.byref(info))
        name, shape, index = info.name.decode(), copy.copy(info.input), index + 1
        spec = "layers:conv=4x3,relu,flatten,linear=10" if name == "layers" else name
        if shape.height == 224:
            shape.height = shape.width = SIDE.get(name, 224 if name.startswith("vit") else 32)
        handle = ctypes.c_void_p()
        LIBRARY.yoke_model_preset(ctypes.byref(handle), spec.encode(), shape, info.classes, None)
        yield name, Model(handle), info.classes


def rows_for(name, model, classes, count=3):
    """Random rows for a preset: token ids, lengths or pixels."""
    draw, rows = numpy.random.default_rng(5), []
    for word, shape in model.inputs.items():
        if word.endswith("length"):
            made = draw.integers(1, 9, (count, *shape))
        elif name.startswith(("gpt2", "lstm", "transformer")):
            made = draw.integers(0, classes, (count, *shape))
        else:
            made = draw.standard_normal((count, *shape))
        rows.append(made.astype(numpy.float32))
    return rows


def perturbed(engine, model, spread=0.02):
    """New weights that differ from each other, and no running variance below 0."""
    draw, found = numpy.random.default_rng(7), {}
    for name, values in engine.weights().items():
        found[name] = values + spread * draw.random(values.shape, numpy.float32)
    write_weights(engine._engine, model, found)


def run_file(path, rows):
    """What onnxruntime computes of a file."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = {wanted.name: array.astype(numpy.int64) if "int64" in wanted.type else array
             for wanted, array in zip(session.get_inputs(), rows)}
    return session.run(None, given)


def distance(found, wanted):
    return float(numpy.abs(found.reshape(wanted.shape) - wanted).max() / (numpy.abs(wanted).max() or 1))


class Written(unittest.TestCase):
    def test_every_preset_computes_the_same_under_onnxruntime_and_comes_back_with_its_names(self):
        for name, model, classes in presets():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                path = f"{folder}/model.onnx"
                rows = rows_for(name, model, classes)
                engine = yoke.DataParallel(model, batch=len(rows[0]), inference=True, **EXACT)
                engine(*rows)
                perturbed(engine, model)
                wanted = engine(*rows)
                engine.write_onnx(path)
                onnx.checker.check_model(path)
                self.assertLess(distance(run_file(path, rows)[0], wanted), 1e-4)
                one = [array[:1] for array in rows]  # the batch is free
                self.assertLess(distance(run_file(path, one)[0], wanted[:1]), 1e-4)
                back = yoke.from_onnx(path)
                self.assertEqual({key: shape for key, (_, shape) in back.tensors().items()},
                                 {key: shape for key, (_, shape) in model.tensors().items()})
                again = yoke.DataParallel(back, batch=len(rows[0]), inference=True, **EXACT)
                self.assertLess(distance(again(*rows), wanted), 1e-4)

    def test_a_trainer_writes_what_it_has_learned(self):
        draw = numpy.random.default_rng(1)
        inputs, labels = draw.standard_normal((64, 8)).astype(numpy.float32), draw.integers(0, 3, 64)
        trainer = yoke.Trainer("mlp:width=16", inputs, labels, epochs=1, devices="cpu", batch=16)
        trainer.run()
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/mlp.onnx"
            trainer.write_onnx(path)
            self.assertLess(distance(run_file(path, [inputs])[0], trainer.predict(inputs)), 1e-4)
            more = yoke.Trainer(yoke.from_onnx(path), inputs, labels, epochs=1, devices="cpu", batch=16)
            for name, values in trainer.weights().items():  # it begins where the other one ended
                self.assertTrue(numpy.array_equal(more.weights()[name], values), name)
            named = yoke.Trainer(path, inputs, labels, epochs=1, devices="cpu", batch=16)
            for name, values in trainer.weights().items():
                self.assertTrue(numpy.array_equal(named.weights()[name], values), name)


def made(network):
    """A network of torch_networks.py whose weights all differ, as after training: exporters merge equal ones."""
    torch.manual_seed(3)
    module, inputs, labels, loss = getattr(torch_networks, network)()
    with torch.no_grad():
        for value in module.parameters():
            value += 0.02 * torch.randn_like(value)
    return module.train(), inputs, labels, loss


class Read(unittest.TestCase):
    def check(self, network, dynamo):
        module, inputs, labels, loss = made(network)
        batch_norms = any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in module.modules())
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/{network}.onnx"
            if dynamo:  # it folds batch norms into convolutions, which then train otherwise
                module.eval()
            export(module, inputs, path, dynamo)
            model = yoke.from_onnx(path, loss)
        with torch.no_grad():
            wanted = copy.deepcopy(module).eval()(*inputs)
        wanted = wanted.movedim(1, -1) if loss == "cross-entropy" and wanted.dim() > 3 else wanted
        engine = yoke.DataParallel(model, schedule="classic", learning_rate=0.01, momentum=0, weight_decay=0, **EXACT)
        found = engine(*inputs)
        self.assertLess(distance(found, wanted.numpy()), 1e-4)
        if dynamo and batch_norms:
            return
        engine = yoke.DataParallel(model, schedule="classic", learning_rate=0.01, momentum=0, weight_decay=0, **EXACT)
        gradients = engine.gradients(inputs, labels)
        module.zero_grad()
        loss_of(module(*inputs), labels, loss).backward()
        own = dict(module.named_parameters())
        scale = max(float(value.grad.abs().max()) for value in own.values() if value.grad is not None)
        common = [name for name in gradients if name in own and tuple(own[name].shape) == gradients[name].shape]
        self.assertGreater(len(common), len(own) * 2 // 3)
        for name in common:
            self.assertLess(float(abs(gradients[name] - own[name].grad.numpy()).max()), 1e-4 * scale, name)
        engine = yoke.DataParallel(model, schedule="classic", learning_rate=0.01, momentum=0, weight_decay=0, **EXACT)
        for _ in range(10):
            engine.step(inputs, labels)
        ten_steps(module, inputs, labels, loss, torch.optim.SGD(module.parameters(), lr=0.01))
        after = engine.weights()
        for name in common:
            self.assertLess(distance(after[name], own[name].detach().numpy()), 1e-3, name)


def add_test(network, dynamo):
    word = "dynamo" if dynamo else "torchscript"
    setattr(Read, f"test_{network}_by_{word}", lambda self: self.check(network, dynamo))


for _network in NETWORKS:
    add_test(_network, False)
    add_test(_network, True)


class Names(unittest.TestCase):
    def test_equal_elements_that_an_exporter_merges_train_apart(self):
        module = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 6),
                                     torch.nn.LayerNorm(6), torch.nn.Linear(6, 3))
        inputs = (torch.randn(4, 6),)
        for dynamo in (False, True):
            with self.subTest(dynamo=dynamo), tempfile.TemporaryDirectory() as folder:
                export(module, inputs, f"{folder}/net.onnx", dynamo)
                model = yoke.from_onnx(f"{folder}/net.onnx")
                self.assertEqual(set(model.tensors()), set(module.state_dict()))

    def test_weights_beside_the_file_are_read(self):
        module = torch.nn.Linear(64, 64)
        inputs = (torch.randn(4, 64),)
        with tempfile.TemporaryDirectory() as folder:
            export(module, inputs, f"{folder}/net.onnx", False)
            loaded = onnx.load(f"{folder}/net.onnx")
            onnx.save(loaded, f"{folder}/apart.onnx", save_as_external_data=True, location="apart.data", size_threshold=0)
            engine = yoke.DataParallel(yoke.from_onnx(f"{folder}/apart.onnx"), batch=4, inference=True, **EXACT)
            self.assertLess(distance(engine(*inputs), module(*inputs).detach().numpy()), 1e-5)
            for location in ("../apart.data", f"{folder}/apart.data", "link.data"):
                model = onnx.load(f"{folder}/apart.onnx", load_external_data=False)
                for tensor in model.graph.initializer:
                    for entry in tensor.external_data:
                        entry.value = location if entry.key == "location" else entry.value
                (pathlib.Path(folder) / "bad.onnx").write_bytes(model.SerializeToString())
                with contextlib.suppress(FileExistsError):
                    os.symlink(f"{folder}/apart.data", f"{folder}/link.data")
                with self.assertRaisesRegex(yoke.YokeError, "own folder|links are not followed"):
                    yoke.from_onnx(f"{folder}/bad.onnx")

    def test_an_operator_that_is_missing_is_named_with_its_node(self):
        class Sorts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(6, 6)

            def forward(self, x):
                return torch.cumsum(self.fc(x), 1)

        with tempfile.TemporaryDirectory() as folder:
            export(Sorts(), (torch.randn(4, 6),), f"{folder}/net.onnx", False)
            with self.assertRaisesRegex(yoke.YokeError, "CumSum '/CumSum': Yoke has no such operator"):
                yoke.from_onnx(f"{folder}/net.onnx")


if __name__ == "__main__":
    unittest.main()
