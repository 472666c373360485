#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the accuracy that `yoke train --recipe cifar10-94` reaches with that of PyTorch's own run of the same recipe.

usage: recipe_accuracy.py DIR [--yoke PROGRAM] [--seeds N] [--width W] [--rows N] [--batch N] [--epochs N] [--test-rows N]
                          [--threads N] [--devices LIST]

DIR has CIFAR-10's binary files. Both sides train the same network from the same distribution of weights, on the first
ROWS training images, and evaluate on the first test images with six views; the random numbers are each side's own. Printed
are mean and standard deviation over the seeds, and the difference of the means with its standard error. The original
is --width 64 --rows 50000 --test-rows 10000 --batch 2000 --epochs 8; the defaults are a short form for CPUs. Exits with 77 where this
Python has no PyTorch, and with 1 where the means differ by more than three standard errors.
"""
import argparse
import importlib.util
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests" / "fixtures"))
RECORD = 1 + 3 * 32 * 32
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
# airbench94_muon.py: rates of a loss that is summed over the rows.
FILTER_RATE, BIAS_RATE, HEAD_RATE, DECAY = 0.24, 0.053, 0.67, 2e-6
SMOOTHING, BIAS_EPOCHS, PADDING = 0.2, 3, 2


def read(paths, rows=None):
    data = b"".join(path.read_bytes() for path in paths)
    return data[:RECORD * rows] if rows else data


def group(pattern, rate, batch, more=""):
    return f"{pattern}:lr={rate * batch / FILTER_RATE:.9g},decay={DECAY / rate:.9g},momentum=0.85{more}"


def run_yoke(options, seed):
    """The recipe, with rates for another number of rows."""
    steps = BIAS_EPOCHS * (options.rows // options.batch)
    groups = ";".join([group("whiten.bias", BIAS_RATE, options.batch, f",steps={steps}"),
                       group("*.bias", BIAS_RATE, options.batch), group("head.*", HEAD_RATE, options.batch)])
    command = [options.yoke, "train", "--recipe", "cifar10-94", "--dataset", f"cifar10:{options.folder}",
               "--model", f"airbench94:width={options.width}", "--batch", options.batch, "--epochs", options.epochs,
               "--group", groups, "--seed", seed, "--devices", options.devices, "--threads", options.threads,
               "--json", "--quiet"]
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["test_accuracy"]


class Images:
    """CifarLoader of airbench94: mirrored in turn, shifted with reflection."""

    def __init__(self, torch, data, batch):
        self.torch, self.batch, self.epoch = torch, batch, 0
        records = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, RECORD)
        self.labels = records[:, 0].long()
        images = records[:, 1:].view(-1, 3, 32, 32).float() / 255
        self.images = (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)

    def crop(self, images):
        torch = self.torch
        padded = torch.nn.functional.pad(images, (PADDING,) * 4, "reflect")
        shifts = torch.randint(0, 2 * PADDING + 1, (len(images), 2))
        cropped = torch.empty_like(images)
        for down in range(2 * PADDING + 1):
            for right in range(2 * PADDING + 1):
                mask = (shifts[:, 0] == down) & (shifts[:, 1] == right)
                cropped[mask] = padded[mask, :, down:down + 32, right:right + 32]
        return cropped

    def __iter__(self):
        torch = self.torch
        if self.epoch == 0:
            self.mirrored = torch.rand(len(self.images)) < 0.5
        mirrored = self.mirrored if self.epoch % 2 == 0 else ~self.mirrored
        images = self.crop(torch.where(mirrored.view(-1, 1, 1, 1), self.images.flip(-1), self.images))
        self.epoch += 1
        order = torch.randperm(len(images))
        for i in range(len(images) // self.batch):
            chosen = order[i * self.batch:(i + 1) * self.batch]
            yield images[chosen], self.labels[chosen]


def make_model(torch, width, images):
    from make_airbench_fixture import Airbench
    model = Airbench(width, 10)
    for name, parameter in model.named_parameters():
        if "conv" in name:
            torch.nn.init.dirac_(parameter.data[:parameter.size(1)])
        if name == "head.weight":
            parameter.data /= parameter.data.std()
        parameter.requires_grad_(name != "whiten.weight" and "norm1.weight" not in name and "norm2.weight" not in name)
    patches = images[:5000].unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 12)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = vectors.T / torch.sqrt(values[:, None] + 5e-4)
    model.whiten.weight.data = torch.cat((filters, -filters)).view(24, 3, 2, 2)
    return model.to(memory_format=torch.channels_last)


def make_optimizers(torch, model):
    from make_airbench_fixture import MuonFilters
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]

    def chosen(rate, condition):
        return {"params": [p for name, p in named if condition(name)], "lr": rate, "weight_decay": None}
    groups = [chosen(BIAS_RATE, lambda name: name == "whiten.bias"),
              chosen(BIAS_RATE, lambda name: "norm" in name), chosen(HEAD_RATE, lambda name: name == "head.weight")]
    muon = MuonFilters([{"params": [p for name, p in named if "conv" in name]}], FILTER_RATE)
    return groups, muon


def views(torch, model, images):
    def mirrored(x):
        return 0.5 * model(x) + 0.5 * model(x.flip(-1))
    padded = torch.nn.functional.pad(images, (1,) * 4, "reflect")
    shifted = [mirrored(padded[:, :, at:at + 32, at:at + 32]) for at in (0, 2)]
    return 0.5 * mirrored(images) + 0.25 * (shifted[0] + shifted[1])


def evaluate(torch, model, test):
    model.eval()
    with torch.no_grad():
        right = sum((views(torch, model, images).argmax(1) == labels).sum().item()
                    for images, labels in zip(test.images.split(500), test.labels.split(500)))
    return right / len(test.labels)


def run_pytorch(torch, options, training, test, seed):
    torch.manual_seed(seed)
    batch = options.batch
    images = Images(torch, training, batch)
    model = make_model(torch, options.width, images.images)
    groups, muon = make_optimizers(torch, model)
    for one in groups:
        one["weight_decay"] = DECAY * batch / one["lr"]
    sgd = torch.optim.SGD(groups, lr=BIAS_RATE, momentum=0.85, nesterov=True)
    peaks = [one["lr"] for one in sgd.param_groups]
    steps = options.epochs * (len(images.images) // batch)
    bias_steps, step = BIAS_EPOCHS * (len(images.images) // batch), 0
    for _ in range(options.epochs):
        model.train()
        for inputs, labels in images:
            loss = torch.nn.functional.cross_entropy(model(inputs.contiguous(memory_format=torch.channels_last)), labels,
                                                     label_smoothing=SMOOTHING, reduction="sum")
            loss.backward()
            left = 1 - step / steps
            for one, peak in zip(sgd.param_groups, peaks):
                one["lr"] = peak * left
            muon.param_groups[0]["lr"] = FILTER_RATE * left
            if step >= bias_steps:
                model.whiten.bias.grad = None
            sgd.step()
            muon.step()
            model.zero_grad(set_to_none=True)
            step += 1
    return evaluate(torch, model, test)


def summarize(name, accuracies):
    spread = statistics.stdev(accuracies) if len(accuracies) > 1 else math.nan
    print(f"{name}: {100 * statistics.mean(accuracies):.2f} % +- {100 * spread:.2f} over {len(accuracies)} seeds ("
          + ", ".join(f"{100 * a:.2f}" for a in accuracies) + ")", flush=True)
    return statistics.mean(accuracies), spread ** 2 / len(accuracies)


def compare(options, folder):
    import torch
    torch.set_num_threads(options.threads)
    training = read(sorted(options.source.glob("data_batch_?.bin")), options.rows)
    test_bytes = read([options.source / "test_batch.bin"], options.test_rows)
    for i in range(5):                              # Yoke wants five files
        part = len(training) // RECORD // 5 * RECORD
        (folder / f"data_batch_{i + 1}.bin").write_bytes(training[i * part:(i + 1) * part if i < 4 else None])
    (folder / "test_batch.bin").write_bytes(test_bytes)
    options.folder = folder
    test = Images(torch, test_bytes, 500)
    own = summarize("Yoke", [run_yoke(options, seed) for seed in range(options.seeds)])
    theirs = summarize("PyTorch", [run_pytorch(torch, options, training, test, seed) for seed in range(options.seeds)])
    difference, error = own[0] - theirs[0], math.sqrt(own[1] + theirs[1])
    print(f"difference {100 * difference:+.2f} %, standard error {100 * error:.2f}")
    return 1 if abs(difference) > 3 * error else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--yoke", default=str(REPOSITORY / "build" / "release" / "yoke"))
    parser.add_argument("--devices", default="cpu")
    for name, value in (("seeds", 4), ("width", 8), ("rows", 4000), ("test-rows", 2000), ("batch", 200),
                        ("epochs", 4), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("no PyTorch here")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        return compare(options, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
