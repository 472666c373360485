# SPDX-License-Identifier: Apache-2.0
"""PyTorch as a contender of `yoke compare --with-torch`: one process for each rank. It needs torch and nothing else.

usage: torch_worker.py FOLDER RANK

FOLDER holds work.json, the weights, and the batch of the next step. Descriptor 3 is a socket. The first line that goes
out there says whether the contender is ready; then each line that comes in gets one that answers it:
  learn     one step on the batch: its loss, over the rows of all ranks
  run N     N steps on the batch with a rate that changes no weight: mean milliseconds of one; ranks begin together
An answer begins with `ok`; `refused`, if this PyTorch cannot do what is asked; or `failed`. With the socket the
process ends.
"""
import contextlib
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import socket
import sys
import time

CHANNEL = 3
WARM_STEPS = 2  # before the first run


class Refusal(Exception):
    """What the user can change."""


def find_torch():
    """The modules torch and pytorch_models; this process imports them late, to say what is missing."""
    here = f"{sys.executable} (Python {platform.python_version()})"
    if importlib.util.find_spec("torch") is None:
        raise Refusal(f"{here} has no torch; install it, '{sys.executable} -m pip install torch', or name an interpreter "
                      "that has it: --with-torch PATH")
    try:
        import torch
        import pytorch_models
    except Exception as error:  # of a library that does not load, say
        raise Refusal(f"{here} cannot import torch: {type(error).__name__}: {error}") from error
    return torch, pytorch_models


def read_tensors(torch, path):
    """{name: tensor} of a safetensors file"""
    types = {"F32": (torch.float32, 4), "I32": (torch.int32, 4), "I64": (torch.int64, 8)}
    data = bytearray(pathlib.Path(path).read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        kind, size = types[entry["dtype"]]
        values = torch.frombuffer(data, dtype=kind, offset=begin + first, count=(last - first) // size)
        found[name] = values.view(entry["shape"])
    return found


def load(torch, model, weights, name):
    """Both must have the same tensors: another network would be raced otherwise."""
    state = model.state_dict()
    for tensor in sorted(state.keys() ^ weights.keys()):
        raise Refusal(f"--model {name}: {'Yoke' if tensor in state else 'PyTorch'} has no tensor {tensor}")
    with torch.no_grad():
        for tensor, values in state.items():
            if values.shape != weights[tensor].shape:
                raise Refusal(f"--model {name}: {tensor} is {list(weights[tensor].shape)} in Yoke, "
                              f"{list(values.shape)} in PyTorch")
            values.copy_(weights[tensor])


def make_optimizer(torch, parameters, of):
    rate, decay, betas, epsilon = of["learning_rate"], of["weight_decay"], (of["beta1"], of["beta2"]), of["epsilon"]
    makers = {
        "sgd": lambda: torch.optim.SGD(parameters, rate, of["momentum"], weight_decay=decay, nesterov=of["nesterov"]),
        "adamw": lambda: torch.optim.AdamW(parameters, rate, betas, epsilon, decay),
        "adam": lambda: torch.optim.Adam(parameters, rate, betas, epsilon, decay),
        "rmsprop": lambda: torch.optim.RMSprop(parameters, rate, of["alpha"], epsilon, decay, of["momentum"]),
        "adagrad": lambda: torch.optim.Adagrad(parameters, rate, weight_decay=decay, eps=epsilon)}
    if of["kind"] not in makers:
        raise Refusal(f"--optimizer {of['kind']}: PyTorch has {', '.join(makers)}")
    return makers[of["kind"]]()


class Contender:
    """Steps as PyTorch's tutorials write them, with its defaults."""

    def __init__(self, folder, rank):
        self.folder, self.rank = pathlib.Path(folder), rank
        self.work = json.loads((self.folder / "work.json").read_text())
        self.torch, self.models = find_torch()
        self.world, self.warm = self.work["ranks"], False
        self.set_threads()
        self.model = self.make_model().to(self.device)
        self.optimizer = make_optimizer(self.torch, self.model.parameters(), self.work["optimizer"])
        self.call = self.wrap()

    def set_threads(self):
        torch, threads = self.torch, self.work["threads"]
        if self.work["cuda"] and torch.cuda.device_count() < self.work["devices"]:
            raise Refusal(f"{sys.executable} has torch {torch.__version__}, which sees {torch.cuda.device_count()} GPUs")
        if threads > 0:
            torch.set_num_threads(threads)
        self.device = torch.device("cuda:0" if self.work["cuda"] else "cpu")
        if self.work["cuda"]:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.work["precision"] == "tf32"

    def make_model(self):
        row = self.models.Row(self.work["classes"], self.work["channels"], self.work["height"], self.work["width"])
        self.text = self.models.options_of(self.work["model"])[0] in self.models.TEXTS
        if self.text:  # its values are tokens in a row
            row = self.models.Row(row.classes, 1, row.channels * row.height * row.width, 1)
        try:
            model = self.models.network(self.work["model"], row)
        except self.models.NoModel as why:
            raise Refusal(f"--model {self.work['model']}: PyTorch has no such model here: {why}") from why
        load(self.torch, model, read_tensors(self.torch, self.folder / "weights"), self.work["model"])
        return model

    def wrap(self):
        if self.work["way"] == "dp":
            return self.torch.nn.DataParallel(self.model, list(range(self.work["devices"])))
        if self.work["way"] != "ddp":
            return self.model
        dist = self.torch.distributed
        if not dist.is_available() or not dist.is_gloo_available():
            raise Refusal(f"{sys.executable} has torch {self.torch.__version__} without gloo")
        dist.init_process_group("gloo", init_method=f"file://{self.folder}/store", rank=self.rank, world_size=self.world,
                                timeout=datetime.timedelta(seconds=self.work["deadline_s"]))
        buckets = {"bucket_cap_mb": self.work["bucket_mb"]} if self.work["bucket_mb"] > 0 else {}
        return self.torch.nn.parallel.DistributedDataParallel(self.model, **buckets)

    def read_batch(self):
        """This rank's rows."""
        batch = read_tensors(self.torch, self.folder / "batch")
        self.inputs, self.wanted = (self.part_of(batch[key]) for key in ("inputs", "wanted"))
        self.values = batch["wanted"].numel()  # what divides the loss of all ranks
        self.inputs = self.inputs.flatten(1).long() if self.text else self.inputs
        self.wanted = self.wanted.flatten(1) if self.work["regression"] else self.wanted.flatten().long()
        if self.work["cuda"]:
            self.inputs, self.wanted = self.inputs.pin_memory(), self.wanted.pin_memory()

    def part_of(self, tensor):
        if 0 in self.work["rows"]:
            raise Refusal(f"--batch {len(tensor)} leaves a rank of {self.world} without rows, and PyTorch's ranks all "
                          "need some")
        return tensor.split(self.work["rows"])[self.rank].clone()

    def loss(self):
        """DDP takes the mean of the ranks' gradients; the rows of all ranks divide Yoke's."""
        functional = self.torch.nn.functional
        outputs = self.call(self.inputs.to(self.device, non_blocking=True))
        wanted = self.wanted.to(self.device, non_blocking=True)
        of = functional.mse_loss if self.work["regression"] else functional.cross_entropy
        return of(outputs, wanted, reduction="sum") * (self.world / self.values)

    def step(self):
        self.optimizer.zero_grad()
        half = self.work["precision"] == "bfloat16"
        with self.torch.autocast(self.device.type, self.torch.bfloat16) if half else contextlib.nullcontext():
            loss = self.loss()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def wait(self):
        if self.work["cuda"]:
            self.torch.cuda.synchronize()

    def learn(self):
        self.read_batch()
        loss = self.step() / self.world
        if self.world > 1:
            self.torch.distributed.all_reduce(loss)
        return repr(loss.item())

    def run(self, steps):
        if not self.warm:
            self.warm = True
            self.read_batch()
            for group in self.optimizer.param_groups:
                group["lr"] = self.work["race_rate"]
            self.run(WARM_STEPS)
        if self.world > 1:
            self.torch.distributed.barrier()
        self.wait()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.wait()
        return repr((time.perf_counter() - begin) * 1e3 / steps)

    def facts(self):
        trained = sum(values.numel() for values in self.model.parameters())
        return f"{trained} torch {self.torch.__version__}, Python {platform.python_version()}"

    def answer(self, verb, *numbers):
        return self.learn() if verb == "learn" else self.run(int(numbers[0]))


def attempt(work, *arguments):
    """(what it returns or None, the answer's words)"""
    try:
        made = work(*arguments)
        return made, "ok"
    except Refusal as why:
        return None, f"refused {why}"
    except Exception as error:
        return None, f"failed {type(error).__name__}: {error}"


def serve(channel, folder, rank):
    def say(*words):
        channel.write(" ".join(" ".join(words).split()) + "\n")
        channel.flush()

    contender, answer = attempt(Contender, folder, rank)
    say(answer, contender.facts() if contender else "")
    for request in channel if contender else ():
        made, answer = attempt(contender.answer, *request.split())
        say(answer, made or "")
        if made is None:
            return


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(socket.socket(fileno=CHANNEL).makefile("rw"), sys.argv[1], int(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may wait for ranks that have gone
