#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which PyTorch networks come in by yoke.from_torch: torchvision's classification models and those of
tests/python/torch_networks.py, with random weights. For each that comes in: how far outputs, gradients of one step and
weights after ten steps are from PyTorch's; for the others: the operator that stops it.

Columns: output, gradient, weights after ten steps of SGD and AdamW: how far from PyTorch's. gradient: the worst tensor's
distance, relative to its norm. sgd, adamw: relative to the weights; way: to how far they have moved. With 64: PyTorch's
float32 beside its float64, what rounding alone makes of a network of so few rows; own64: Yoke's gradient beside that.

usage: from_torch_zoo.py [--only NAME,...] [--largest MILLIONS] [--smooth] [--outputs], with torch,
torchvision, YOKE_LIBRARY and PYTHONPATH
"""
import argparse
import multiprocessing
import pathlib
import re
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests/python"))
warnings.filterwarnings("ignore")
ROWS, CLASSES, TIME_LIMIT = 4, 10, 900
BATCHES = 5  # a ReLU whose input is 0 but for rounding may differ: then another batch decides, of five at most
SIZES = {"inception_v3": 96, "googlenet": 64, "alexnet": 96, "vit_h_14": 56, "maxvit_t": 64}  # others: 64 x 64 pixels
NOTHING = 1e-6  # a tensor whose gradient is so much of the whole gradient's norm has none
WIDE = 1e-3  # a tensor's gradient counts at least as so much of the whole gradient's norm


def vision(name):
    """torchvision's model with few classes and no random parts, and a batch."""
    import torch
    import torchvision
    size = SIZES.get(name, 64)
    options = {"image_size": size} if name.startswith("vit") else {"input_size": (size, size)} if name == "maxvit_t" else {}
    options.update({"aux_logits": False} if name in ("googlenet", "inception_v3") else {})
    options.update({"init_weights": False} if name in ("googlenet", "inception_v3") else {})
    if name == "maxvit_t":
        options.update(stem_channels=64, block_channels=[64, 128, 256, 512], block_layers=[2, 2, 5, 2], head_dim=32,
                       stochastic_depth_prob=0.0, partition_size=2)
        module = torchvision.models.MaxVit(num_classes=CLASSES, **options)
    else:
        module = torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **options)
    return module, (torch.randn(ROWS, 3, size, size),), torch.randint(0, CLASSES, (ROWS,)), "cross-entropy"


def without_chance(module):
    """Dropout and stochastic depth have their own random numbers in every library."""
    import torch
    for part in module.modules():
        if isinstance(part, (torch.nn.Dropout, torch.nn.Dropout2d)) or type(part).__name__ == "StochasticDepth":
            part.p = 0.0
        if hasattr(part, "dropout") and isinstance(part.dropout, float):
            part.dropout = 0.0
        if isinstance(getattr(part, "attention_dropout", None), float):
            part.attention_dropout = 0.0
        if hasattr(part, "dropout_rate"):
            part.dropout_rate = 0.0
        if hasattr(part, "drop_rate"):
            part.drop_rate = 0.0
        if isinstance(part, torch.nn.Linear) and not bool(part.weight.any()):
            torch.nn.init.normal_(part.weight, std=0.02)  # a head of zeros would hide everything before it
    return module


def with_statistics(module, inputs):
    """Running statistics of the batch: with those of a new network, activations of a deep one vanish in eval mode."""
    import torch
    norms = [part for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)]
    before = [part.momentum for part in norms]
    for part in norms:
        part.momentum = 1.0
    with torch.no_grad():
        module(*inputs)
    for part, momentum in zip(norms, before):
        part.momentum = momentum


def smoothed(module):
    """SiLU and sigmoid in the place of activations with a kink, where rounding alone decides which gradient is right."""
    import torch
    kinds = {torch.nn.ReLU: torch.nn.SiLU, torch.nn.ReLU6: torch.nn.SiLU, torch.nn.Hardswish: torch.nn.SiLU,
             torch.nn.Hardsigmoid: torch.nn.Sigmoid}
    torch.nn.functional.relu = lambda value, inplace=False: torch.nn.functional.silu(value)
    for part in module.modules():
        for name, child in part.named_children():
            if type(child) in kinds:
                setattr(part, name, kinds[type(child)]())
    return module


def loss_of(outputs, labels, loss):
    import torch
    functional = torch.nn.functional
    if loss == "mse":
        return functional.mse_loss(outputs, labels)
    if loss == "bce":
        return functional.binary_cross_entropy_with_logits(outputs, labels)
    if outputs.dim() == 3:  # classes of positions
        outputs, labels = outputs.flatten(0, 1), labels.flatten()
    return functional.cross_entropy(outputs, labels)


def gradient_of(module, inputs, labels, loss):
    module.zero_grad()
    loss_of(module(*inputs), labels, loss).backward()
    return {name: value.grad.double() for name, value in module.named_parameters() if value.grad is not None}


def gradient_error(found, wanted):
    """The largest distance of a tensor's gradient, relative to its norm or to WIDE of the norm of all."""
    whole = sum(float(value.norm()) ** 2 for value in wanted.values()) ** 0.5
    return max(float((found[name] - value).norm()) / max(float(value.norm()), WIDE * whole) for name, value in wanted.items())


def distances(found, wanted, begin, gradient):
    """How far the weights are from PyTorch's, relative to the weights and relative to how far those have moved. A bias
    before a batch norm has no gradient but rounding, which AdamW makes as large as any other: such tensors do not count."""
    whole = sum(float(value.norm()) ** 2 for value in gradient.values()) ** 0.5
    counted = [name for name in wanted if name in gradient and float(gradient[name].norm()) > NOTHING * whole]
    norm = lambda values: sum(float(value.double().norm()) ** 2 for value in values) ** 0.5  # noqa: E731
    off = norm(found[name] - wanted[name] for name in counted)
    return off / norm(wanted[name] for name in counted), off / norm(begin[name] - wanted[name] for name in counted)


def learn(module, batch, kind):
    """PyTorch's parameters after ten steps."""
    import torch
    inputs, labels, loss = batch
    rule = (torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9) if kind == "sgd"
            else torch.optim.AdamW(module.parameters(), lr=1e-4, weight_decay=0.01))
    for _ in range(10):
        rule.zero_grad()
        loss_of(module(*inputs), labels, loss).backward()
        rule.step()
    return dict(module.named_parameters())


def ten_steps(module, model, batch, kind, gradient):
    """Distances of weights after ten steps: Yoke's from PyTorch's, and PyTorch's from those of float64."""
    import copy

    import yoke
    options = {"learning_rate": 1e-3, "momentum": 0.9} if kind == "sgd" else {"learning_rate": 1e-4, "weight_decay": 0.01}
    own = yoke.DataParallel(model, devices="cpu", optimizer=kind, algorithm="direct", **options)
    for _ in range(10):
        own.step(batch[0], batch[1])
    begin = {name: value.detach().clone() for name, value in module.named_parameters()}
    theirs = learn(copy.deepcopy(module), batch, kind)
    exact = learn(copy.deepcopy(module).double(), doubled(batch), kind)
    return distances(own.state_dict(), theirs, begin, gradient), distances(theirs, exact, begin, gradient)


def doubled(batch):
    """The batch in float64."""
    inputs, labels, loss = batch
    double = lambda one: one.double() if one.is_floating_point() else one  # noqa: E731
    return tuple(double(one) for one in inputs), double(labels), loss


def try_network(name, options):
    """What comes of a network, as a dict."""
    import torch
    import yoke
    import torch_networks
    torch.manual_seed(0)
    torch.set_num_threads(2)
    own = {function.__name__: function for function in torch_networks.NETWORKS}
    module, inputs, labels, loss = own[name]() if name in own else vision(name)
    without_chance(smoothed(module) if options.smooth else module).train()
    with_statistics(module, inputs)
    row = {"name": name, "parameters": sum(value.numel() for value in module.parameters())}
    if row["parameters"] > options.largest * 1e6:
        return {**row, "note": "larger than this machine's memory allows; not tried"}
    try:
        model = yoke.from_torch(module, inputs, loss)
    except yoke.FromTorchError as error:
        return {**row, "operator": error.operator, "note": re.sub(r"\s+", " ", str(error))[:300]}
    row["output"] = model.error
    if options.outputs:
        return row
    engine = yoke.DataParallel(model, devices="cpu", schedule="classic", algorithm="direct")
    for _ in range(BATCHES):
        errors = one_step(engine, module, (inputs, labels, loss))
        if row.get("gradient", 1) > errors[0]:
            row["gradient"], row["own64"], row["torch64"], exact = errors
        if row["gradient"] <= 1e-4:
            break
        inputs = tuple(torch.randn_like(one) if one.is_floating_point() else one for one in inputs)
    del engine
    for kind in ("sgd", "adamw"):
        own, theirs = ten_steps(module, model, (inputs, labels, loss), kind, exact)
        row[kind], row[f"{kind} way"], row[f"{kind}64"], row[f"{kind}64 way"] = *own, *theirs
    return row


def one_step(engine, module, batch):
    """Errors of the gradient: from PyTorch's, from that in float64, and of PyTorch's from that in float64; and the last."""
    import copy

    import torch
    inputs, labels, loss = batch
    found = {key: torch.from_numpy(value).double() for key, value in engine.gradients(inputs, labels).items()}
    plain = gradient_of(copy.deepcopy(module), inputs, labels, loss)
    exact = gradient_of(copy.deepcopy(module).double(), *doubled(batch))
    return (*(gradient_error(*pair) for pair in ((found, plain), (found, exact), (plain, exact))), exact)


COLUMNS = ("output", "gradient", "own64", "torch64", "sgd", "sgd64", "adamw", "adamw64", "sgd way", "sgd64 way", "adamw way",
           "adamw64 way")


def show(row):
    if "output" not in row:
        return f"{row['name']:20} {row['parameters'] / 1e6:6.1f}  no   {row.get('note', '')}"
    return f"{row['name']:20} {row['parameters'] / 1e6:6.1f}  yes " + "".join(f"{row[key]:{max(9, len(key) + 1)}.0e}"
                                                                              for key in COLUMNS if key in row)


def forked(*arguments):
    """The row of a network, tried in a process of its own: what it leaves behind is gone, and a crash is a row."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send(try_network(*arguments)))
    child.start()
    theirs.close()
    row = {"name": arguments[0], "parameters": 0, "note": f"not done in {TIME_LIMIT} s"}
    try:
        if ours.poll(TIME_LIMIT):
            row = ours.recv()
    except EOFError:
        child.join()
        row["note"] = f"failed with exit code {child.exitcode}"
    child.kill()
    child.join()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="these networks, with commas between them")
    parser.add_argument("--largest", type=float, default=210, help="millions of parameters")
    parser.add_argument("--outputs", action="store_true", help="compare outputs alone")
    parser.add_argument("--smooth", action="store_true", help="SiLU in the place of ReLU: nothing but arithmetic differs")
    options = parser.parse_args()
    import torch
    import torchvision
    import torch_networks
    torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(3, 2),))  # its imports, once
    names = torchvision.models.list_models(module=torchvision.models) + [one.__name__ for one in torch_networks.NETWORKS]
    names = options.only.split(",") if options.only else names
    print(f"{'network':20} million  in  " + "".join(f"{key:>{max(9, len(key) + 1)}}" for key in COLUMNS))
    for name in names:
        print(show(forked(name, options)), flush=True)


if __name__ == "__main__":
    main()
