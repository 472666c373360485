#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Python costs nn.DataParallel: the microseconds that `yoke train --schedule python` imitates.

Needs PyTorch on any CPU, no GPU. Measures the least of many rounds:

  call   a forward of a small ResNet in Python, less the same kernels without Python (torch.jit.trace), per operation.
         Kernels release the interpreter's lock; what is left holds it.
  copy   replicate() of nn.DataParallel without its copies of tensors, per operation and replica
  start  a thread that starts, does nothing and is joined
  apply  a forward of 1, 2 and 4 replicas, as parallel_apply() runs them: each in a thread that is started for it. With
         a core for each thread and no lock, all would take the time of one
"""
import argparse
import copy
import importlib
import json
import os
import threading
import time
import warnings
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"  # torch.set_num_threads does not reach threads that start later

import torch

from pytorch_models import CLASSES, Row, network


def times(work, rounds):
    """Microseconds of `work` in each round."""
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        work()
        yield (time.perf_counter_ns() - begin) / 1e3


def least(work, rounds):
    return min(times(work, rounds))


def count_operations(model):
    """As Yoke counts layers: convolutions, norms, ReLUs, additions, pooling, flatten and linear layers."""
    modules, count = dict(model.named_modules()), 0
    for node in torch.fx.symbolic_trace(model).graph.nodes:
        identity = node.op == "call_module" and isinstance(modules[node.target], torch.nn.Identity)
        count += node.op in ("call_module", "call_function", "call_method") and not identity
    return count


def copy_in_python(model, replicas, rounds):
    """replicate() with tensors that were copied before."""
    module = importlib.import_module("torch.nn.parallel.replicate")
    copies = {}

    def copied(tensors, devices, detach=False):
        key = len(tensors)
        if key not in copies:
            copies[key] = [[tensor.detach().clone() for tensor in tensors] for _ in devices]
        return copies[key]

    with mock.patch.object(module, "_broadcast_coalesced_reshape", copied), \
         mock.patch.object(module, "_get_device_index", lambda device, optional: device):
        return least(lambda: module.replicate(model, list(range(replicas)), False), rounds)


def start_thread():
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def apply(replicas, inputs):
    threads = [threading.Thread(target=replica, args=(inputs,)) for replica in replicas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure(name, rounds, replicas):
    model, inputs = network(name, Row(CLASSES, 3, 8, 8)), torch.zeros(2, 3, 8, 8)
    operations = count_operations(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and has no equal without Python
        traced = torch.jit.trace(model, inputs, check_trace=False)
    for _ in range(20):  # the first runs of a trace profile
        model(inputs), traced(inputs)
    several = [copy.deepcopy(model) for _ in range(4)]
    forward, kernels = least(lambda: model(inputs), rounds), least(lambda: traced(inputs), rounds)
    return {"torch": torch.__version__, "model": name, "operations": operations, "forward_us": forward,
            "kernels_us": kernels, "call_us": (forward - kernels) / operations,
            "copy_us": copy_in_python(model, replicas, rounds) / operations / replicas,
            "start_us": least(start_thread, 10 * rounds), "cores": len(os.sched_getaffinity(0)),
            "apply_us": [round(least(lambda: apply(several[:count], inputs), rounds)) for count in (1, 2, 4)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["resnet20", "resnet18-cifar", "resnet50"], default="resnet20")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--replicas", type=int, default=4)
    arguments = parser.parse_args()
    figures = measure(arguments.model, arguments.rounds, arguments.replicas)
    print(json.dumps({name: round(value, 1) if isinstance(value, float) else value
                      for name, value in figures.items()}))


if __name__ == "__main__":
    main()
