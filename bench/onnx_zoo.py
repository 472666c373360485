#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which networks come in as files of ONNX: torchvision's classification models and those of tests/python/torch_networks.py,
written by both exporters of torch.onnx, with random weights. For each: how far outputs are from PyTorch's, relative to
their scale, how many of PyTorch's tensors kept their names, or the operator and node that stop it.

usage: onnx_zoo.py [--only NAME,...] [--largest MILLIONS], with torch, torchvision, onnxscript, YOKE_LIBRARY and PYTHONPATH
"""
import argparse
import logging
import multiprocessing
import pathlib
import re
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests/python"))
import from_torch_zoo  # noqa: E402

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
TIME_LIMIT = 600


def network(name):
    """A module whose weights all differ, since exporters merge equal ones, in eval mode."""
    import torch
    import torch_networks
    torch.manual_seed(0)
    own = {function.__name__: function for function in torch_networks.NETWORKS}
    module, inputs, _labels, loss = own[name]() if name in own else from_torch_zoo.vision(name)
    from_torch_zoo.without_chance(module).train()
    from_torch_zoo.with_statistics(module, inputs)
    with torch.no_grad():
        for value in module.parameters():
            value += 0.02 * value.abs().mean() * torch.randn_like(value)
    return module.eval(), inputs, loss


def try_network(name, exporter, largest):
    """What comes of a network, as a line."""
    import torch
    import yoke
    from onnx_export import export
    torch.set_num_threads(2)
    module, inputs, loss = network(name)
    size = sum(value.numel() for value in module.parameters()) / 1e6
    head = f"{name:22} {size:7.1f}  {exporter:12}"
    if size > largest:
        return f"{head} -    larger than this machine's memory allows; not tried"
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/net.onnx"
        try:
            export(module, inputs, path, exporter == "dynamo")
        except Exception as error:  # torch has a dozen classes for it
            return f"{head} -    the exporter refuses: {first_line(error)}"
        try:
            model = yoke.from_onnx(path, loss)
        except yoke.YokeError as error:
            return f"{head} no   {first_line(str(error).replace(path + ': ', ''))}"
    with torch.no_grad():
        wanted = module(*inputs)
    wanted = wanted.movedim(1, -1) if loss == "cross-entropy" and wanted.dim() > 3 else wanted
    engine = yoke.DataParallel(model, devices="cpu", algorithm="direct", batch=len(inputs[0]), inference=True)
    found = torch.from_numpy(engine(*inputs)).reshape(wanted.shape)
    error = float((found - wanted).abs().max() / wanted.abs().max())
    state = {key for key in module.state_dict() if not key.endswith("num_batches_tracked")}
    return f"{head} yes {error:9.0e}  {len(state & set(model.tensors())):5} of {len(state)}"


def first_line(error):
    return re.sub(r"\s+", " ", str(error).strip().split("\n")[0])[:200]


def forked(*arguments):
    """The line of a network, tried in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send(try_network(*arguments)))
    child.start()
    theirs.close()
    line = f"{arguments[0]:22} {'':7}  {arguments[1]:12} -    not done in {TIME_LIMIT} s"
    try:
        if ours.poll(TIME_LIMIT):
            line = ours.recv()
    except EOFError:
        child.join()
        line = f"{arguments[0]:22} {'':7}  {arguments[1]:12} -    failed with exit code {child.exitcode}"
    child.kill()
    child.join()
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="these networks, with commas between them")
    parser.add_argument("--largest", type=float, default=100, help="millions of parameters")
    options = parser.parse_args()
    import onnxscript  # noqa: F401  its imports, once
    import torch  # noqa: F401
    import torchvision
    import torch_networks
    names = torchvision.models.list_models(module=torchvision.models) + [one.__name__ for one in torch_networks.NETWORKS]
    names = options.only.split(",") if options.only else names
    print(f"{'network':22} million  {'exporter':12} in  {'output':>9}  names kept")
    for name in names:
        for exporter in ("torchscript", "dynamo"):
            print(forked(name, exporter, options.largest), flush=True)


if __name__ == "__main__":
    main()
