#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of a continued text: Yoke's generator against transformers' GPT2LMHeadModel with its cache, with the
same random weights, greedily, in float32. Each runs in a process of its own; rounds take turns, so that what else the
machine does meets both, and the ratio is the median of the rounds' ratios.

usage: PYTHONPATH=python YOKE_LIBRARY=build/release/libyoke.so bench/generate.py [--layers 12 --width 768 --heads 12]
           [--classes 50257] [--context 1024] [--prompt 32] [--tokens 128] [--rows 1] [--threads 2] [--rounds 7]
Needs torch, transformers and safetensors. Both must draw the same tokens, or it fails.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy


def arguments():
    parser = argparse.ArgumentParser(description="tokens a second against transformers with its cache")
    numbers = {"layers": 12, "width": 768, "heads": 12, "classes": 50257, "context": 1024, "prompt": 32, "tokens": 128,
               "rows": 1, "threads": 2, "rounds": 7}
    for name, usual in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--worker", choices=["yoke", "transformers", "make"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


def make(options):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(0)
    config = GPT2Config(n_layer=options.layers, n_embd=options.width, n_head=options.heads, n_positions=options.context,
                        vocab_size=options.classes, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(options.folder)


def yoke_worker(options):
    import yoke
    name = f"gpt2:layers={options.layers},width={options.width},heads={options.heads}"
    made = yoke.Generator(name, f"{options.folder}/model.safetensors", context=options.context, classes=options.classes,
                          rows=options.rows, devices="cpu", threads=options.threads)
    return made.generate


def transformers_worker(options):
    import torch
    from transformers import GPT2LMHeadModel
    torch.set_num_threads(options.threads)
    model = GPT2LMHeadModel.from_pretrained(options.folder).eval()

    def generate(prompts, count):
        with torch.no_grad():
            given = torch.tensor(prompts)
            found = model.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=count, do_sample=False,
                                   use_cache=True, eos_token_id=None, pad_token_id=0)
        return found[:, len(prompts[0]):].numpy()
    return generate


def serve(options):
    """Each line of stdin is a number of tokens; answers the seconds and the tokens."""
    generate = {"yoke": yoke_worker, "transformers": transformers_worker}[options.worker](options)
    random = numpy.random.default_rng(1)
    prompts = random.integers(0, options.classes, (options.rows, options.prompt)).tolist()
    for line in sys.stdin:
        begin = time.perf_counter()
        tokens = generate(prompts, int(line))
        print(json.dumps([time.perf_counter() - begin, [list(map(int, row)) for row in tokens]]), flush=True)


def start(options, worker):
    command = [sys.executable, __file__, "--worker", worker, "--folder", options.folder]
    for name, value in vars(options).items():
        if name not in ("worker", "folder"):
            command += [f"--{name}", str(value)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process, count):
    process.stdin.write(f"{count}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def race(options):
    names = ("yoke", "transformers")
    workers = {name: start(options, name) for name in names}
    seconds, prefill = {name: [] for name in names}, {name: [] for name in names}
    for name in names:
        ask(workers[name], 4)  # memory, threads and plans
    print(f"gpt2, {options.layers} layers, {options.width} wide, {options.classes} tokens; {options.rows} x "
          f"({options.prompt} + {options.tokens}) tokens, {options.threads} threads, float32, greedy")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n\nround  yoke tokens/s  transformers  ratio")
    for number in range(options.rounds):
        found = {}
        for name in names if number % 2 == 0 else reversed(names):
            prefill[name].append(ask(workers[name], 1)[0])
            taken, found[name] = ask(workers[name], options.tokens)
            seconds[name].append(taken)
        if found["yoke"] != found["transformers"]:
            sys.exit("the two drew different tokens")
        rates = [options.rows * options.tokens / seconds[name][-1] for name in names]
        print(f"{number + 1:5}  {rates[0]:13.1f}  {rates[1]:12.1f}  {rates[0] / rates[1]:5.2f}", flush=True)
    for process in workers.values():
        process.stdin.close()
        process.wait()
    ratios = [b / a for a, b in zip(seconds["yoke"], seconds["transformers"])]
    best = [options.rows * options.tokens / min(seconds[name]) for name in names]
    first = [statistics.median(prefill[name]) * 1000 for name in names]
    print(f"\nmedian ratio {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")
    print(f"best round: yoke {best[0]:.1f}, transformers {best[1]:.1f} tokens/s, ratio {best[0] / best[1]:.2f}")
    print(f"prompt and first token, median: yoke {first[0]:.0f} ms, transformers {first[1]:.0f} ms")


def main():
    options = arguments()
    if options.worker:
        return make(options) if options.worker == "make" else serve(options)
    with tempfile.TemporaryDirectory() as folder:
        options.folder = str(pathlib.Path(folder))
        with start(options, "make") as process:
            process.communicate()
        race(options)
    return None


if __name__ == "__main__":
    main()
