#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast modules of PyTorch train by yoke.DataParallel on CPU devices, beside the same modules in PyTorch, eager and by
torch.compile, with as many threads: a process for each contender, which take turns in rounds of random order. Steps per
second are medians over the rounds; a ratio is the median of the rounds' own, Yoke by PyTorch: above 1 Yoke is faster. All
start from the same weights, and their first losses are compared. On a busy machine threads of PyTorch wait for each other's
cores: there only --devices 1 says anything.

usage: from_torch_speed.py [--only NAME,...] [--rounds N] [--seconds X] [--devices N] [--json FILE] [--stages], with torch,
torchvision, YOKE_LIBRARY and PYTHONPATH; --stages: where Yoke's steps spend their time
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests/python"))
warnings.filterwarnings("ignore")
RATE = 0.01
LOSS_TOLERANCE = 1e-2  # of first losses, which differ by rounding


def resnet18():
    import torch
    import torchvision
    return torchvision.models.resnet18(num_classes=10), torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))


def vit():
    import torch
    import torchvision
    module = torchvision.models.VisionTransformer(image_size=64, patch_size=8, num_layers=6, num_heads=6, hidden_dim=192,
                                                  mlp_dim=768, num_classes=10)
    torch.nn.init.normal_(module.heads.head.weight, std=0.02)  # zeros would hide everything before them
    return module, torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))


def gpt2():
    import torch
    import torch_networks
    return (torch_networks.GPT(words=2048, context=128, width=256, heads=4, layers=4), torch.randint(0, 2048, (8, 128)),
            torch.randint(0, 2048, (8, 128)))


def lstm():
    import torch

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(1000, 128)
            self.lstm, self.fc = torch.nn.LSTM(128, 256, 2, batch_first=True), torch.nn.Linear(256, 50)

        def forward(self, x):
            return self.fc(self.lstm(self.words(x))[0])

    return Tagger(), torch.randint(0, 1000, (16, 64)), torch.randint(0, 50, (16, 64))


def unet():
    import torch
    import torch_networks
    return torch_networks.UNet(16), torch.randn(4, 3, 64, 64), torch.randint(0, 4, (4, 64, 64))


MODELS = {one.__name__: one for one in (resnet18, vit, gpt2, lstm, unet)}
CONTENDERS = ("yoke", "eager", "compile")


def torch_step(contender, threads, module, inputs, labels):
    import torch
    torch.set_num_threads(threads)
    run = torch.compile(module) if contender == "compile" else module
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)

    def step():
        optimizer.zero_grad()
        outputs, wanted = run(inputs), labels
        if outputs.dim() == 3:
            outputs, wanted = outputs.flatten(0, 1), labels.flatten()
        loss = torch.nn.functional.cross_entropy(outputs, wanted)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def yoke_step(devices, module, inputs, labels):
    import torch
    import yoke
    torch.set_num_threads(1)
    model = yoke.DataParallel(module, f"{devices}xcpu", threads=1, learning_rate=RATE, momentum=0.9)
    return model, lambda: model.step(inputs, labels)


def work(contender, name, devices):
    """A contender: says its first loss, then for each line with a number of seconds steps for as long and says how many
    steps a second it made."""
    import torch
    torch.manual_seed(0)
    module, inputs, labels = MODELS[name]()
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0  # random numbers differ
    model = None
    if contender == "yoke":
        model, step = yoke_step(devices, module.train(), inputs, labels)
    else:
        step = torch_step(contender, devices, module.train(), inputs, labels)
    print(step(), flush=True)
    step()
    for line in sys.stdin:
        if line.startswith("trace"):
            model.write_trace(line.split(None, 1)[1].strip())
            print("done", flush=True)
            continue
        seconds, count, begin = float(line), 0, time.perf_counter()
        while count == 0 or time.perf_counter() - begin < seconds:
            step()
            count += 1
        print(count / (time.perf_counter() - begin), flush=True)


class Contender:
    def __init__(self, word, name, devices):
        self.word, self.rates = word, []
        environment = {**os.environ, "OMP_NUM_THREADS": str(1 if word == "yoke" else devices)}
        self.process = subprocess.Popen([sys.executable, __file__, "--worker", word, "--only", name, "--devices", str(devices)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.word} ended with exit code {self.process.wait()}")
        return line

    def ask(self, words):
        print(words, file=self.process.stdin, flush=True)
        return self.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def race(name, options):
    """{contender: steps per second, in each round}, and each one's first loss."""
    contenders, first = [], {}
    try:
        for word in CONTENDERS:
            made = Contender(word, name, options.devices)
            contenders.append(made)
            try:
                first[word] = float(made.read())
            except RuntimeError as error:
                print(f"{name}: {error}", file=sys.stderr)
                contenders.remove(made)
        for _ in range(options.rounds):
            for one in random.sample(contenders, len(contenders)):
                one.rates.append(float(one.ask(options.seconds)))
        if options.stages and contenders and contenders[0].word == "yoke":
            with tempfile.TemporaryDirectory() as folder:
                contenders[0].ask(f"trace {folder}/trace.json")
                show_stages(pathlib.Path(folder, "trace.json"))
    finally:
        for one in contenders:
            one.close()
    return {one.word: one.rates for one in contenders}, first


def show_stages(path):
    """The share of each stage in the steps of device 0."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X" and event["tid"] == 1]
    whole = sum(event["dur"] for event in spans if event["name"] == "step") or 1.0
    sums = {}
    for event in spans:
        sums[event["name"]] = sums.get(event["name"], 0.0) + event["dur"]
    print("   " + "  ".join(f"{stage} {100 * taken / whole:.0f} %" for stage, taken in
                            sorted(sums.items(), key=lambda pair: -pair[1]) if stage not in ("step", "load")))


def report(name, rates, first):
    words = [f"{word} {statistics.median(found):7.2f}/s" for word, found in rates.items()]
    ratios = {}
    for word in ("eager", "compile"):
        if word in rates and "yoke" in rates:
            each = [own / other for own, other in zip(rates["yoke"], rates[word])]
            ratios[word] = statistics.median(each)
            words.append(f"by {word} {ratios[word]:.2f} ({min(each):.2f} to {max(each):.2f})")
    print(f"{name:9} " + "  ".join(words), flush=True)
    if len(first) > 1 and max(first.values()) - min(first.values()) > LOSS_TOLERANCE * max(first.values()):
        print(f"   first losses differ: {first}")
    return {"rates": rates, "ratios": ratios, "first": first}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--json")
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--worker")
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.only, options.devices)
        return
    found = {name: report(name, *race(name, options)) for name in options.only.split(",")}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
