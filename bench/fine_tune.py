#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning against training from scratch, with the same steps on the same few photographs: five classes of CIFAR-10
train a network, which then learns the other five.

usage: fine_tune.py YOKE CIFAR10_DIR [--model NAME] [--old N] [--new N] [--old-epochs E] [--epochs E] [--devices LIST]
                    [--precision NAME] [--weights FILE]

CIFAR10_DIR has CIFAR-10's binary files. --old and --new: photographs of each class. --weights: the network of the first
five classes, for another run; if there is no such file, it is trained and kept there. Needs Pillow, which writes the
folders. Prints the accuracy of both on 200 test photographs of each new class.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

from PIL import Image

RECORD = 1 + 3 * 32 * 32
OLD, NEW = (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)
TEST_ROWS = 200


def photographs(files, classes, count):
    """Yields (class, number, image), `count` of each class."""
    seen = dict.fromkeys(classes, 0)
    for path in files:
        data = path.read_bytes()
        for at in range(0, len(data), RECORD):
            label = data[at]
            if seen.get(label, count) == count:
                continue
            planes = [Image.frombytes("L", (32, 32), data[at + 1 + 1024 * c:at + 1025 + 1024 * c]) for c in range(3)]
            yield label, seen[label], Image.merge("RGB", planes)
            seen[label] += 1


def write_folders(folder, source, classes, count):
    splits = {"train": (sorted(source.glob("data_batch_*.bin")), count), "val": ([source / "test_batch.bin"], TEST_ROWS)}
    for split, (files, rows) in splits.items():
        for label, number, image in photographs(files, classes, rows):
            place = folder / split / str(label)
            place.mkdir(parents=True, exist_ok=True)
            image.save(place / f"{number}.png")
    return f"images:{folder},size=32,resize=32"


def train(options, dataset, epochs, *more):
    command = [options.yoke, "train", "--dataset", dataset, "--model", options.model, "--epochs", str(epochs), "--batch", "50",
               "--lr", "0.02", "--lr-schedule", "cosine", "--devices", options.devices, "--precision", options.precision,
               "--evaluate-every", "0", "--json", "--quiet", *map(str, more)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("yoke")
    parser.add_argument("cifar10", type=pathlib.Path)
    parser.add_argument("--model", default="resnet18-cifar")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--weights", type=pathlib.Path)
    for name, default in [("old", 2000), ("new", 100), ("old-epochs", 5), ("epochs", 3)]:
        parser.add_argument("--" + name, type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        weights, results = options.weights or folder / "old.safetensors", []
        if not weights.exists():
            old = write_folders(folder / "old", options.cifar10, OLD, options.old)
            results.append(("old classes", train(options, old, options.old_epochs, "--save", weights)))
        new = write_folders(folder / "new", options.cifar10, NEW, options.new)
        tuned = train(options, new, options.epochs, "--init", weights, "--new-head")
        scratch = train(options, new, options.epochs)
    results += [("new classes, fine-tuned", tuned), ("new classes, from scratch", scratch)]
    for name, result in results:
        print(f"{name:26} {result['steps']:6} steps {result['step_ms']['median']:8.1f} ms a step "
              f"{100 * result['test_accuracy']:6.2f} %")
    print(f"fine-tuning is {100 * (tuned['test_accuracy'] - scratch['test_accuracy']):+.2f} points ahead")


if __name__ == "__main__":
    main()
