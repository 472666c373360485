#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's contenders on one GPU, in a process of their own that serves requests: one that hangs is killed with it,
and what one leaves on the GPU ends with it.

usage: pytorch_gpu_worker.py [--fake]     --fake: on the CPU

Requests come on stdin, a line each, and answers go to stdout, as those of `yoke bench --drive`:
  hello               PyTorch's version, its libraries' and the GPU
  open NAME FOLDER    a contender of pytorch_contenders.py; FOLDER: what Yoke wrote, with work.json
  losses NAME N       of the next N steps
  steps NAME N        mean milliseconds of N steps
  close NAME          held_gib: what PyTorch keeps on the GPU after it
"""
import functools
import gc
import sys

from served_requests import open_answers, serve

FAKE = "--fake" in sys.argv


def hello():
    import torch  # here, so that what hinders it is an answer
    version = torch.backends.cudnn.version()  # fails where another cuDNN comes first
    if FAKE:
        torch.set_num_threads(1)  # more would spin on cores that the other contenders need
    elif not torch.cuda.is_available():
        raise RuntimeError("this PyTorch finds no GPU")
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": version,
            "gpu": None if FAKE else torch.cuda.get_device_name()}


def open_contender(contenders, name, folder):
    from pytorch_contenders import CONTENDERS, read_work
    contender = contenders[name] = CONTENDERS[name.replace("-", " ")](*read_work(folder, FAKE))
    return contender.settings()


def close_contender(contenders, name):
    import torch
    contenders.pop(name, None)
    torch.compiler.reset()
    gc.collect()
    if FAKE:
        return {"held_gib": 0}
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return {"held_gib": torch.cuda.memory_reserved() / 2**30}


def answer(contenders, verb, name="", argument=""):
    if verb == "hello":
        return hello()
    if verb == "open":
        return open_contender(contenders, name, argument)
    if verb == "losses":
        return {"losses": contenders[name].losses(int(argument))}
    if verb == "steps":
        return {"ms": contenders[name].steps(int(argument))}
    return close_contender(contenders, name)


def main():
    serve(open_answers(), functools.partial(answer, {}))


if __name__ == "__main__":
    main()
