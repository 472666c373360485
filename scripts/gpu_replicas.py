# SPDX-License-Identifier: Apache-2.0
"""The part of gpu-check.sh that trains the same model on one and on several replicas and compares their losses."""
import collections
import json
import math

from gpu_parts import last_line, need
from gpu_run import FAILED, PASSED, SKIPPED, Late

# What each engine trains: `like` names the engine whose losses must be the same.
Engine = collections.namedtuple("Engine", "name model devices count like tolerance words", defaults=("",))
MODELS = {"mlp": (20, "learning_rate=0.05"), "resnet20": (5, "learning_rate=0.01")}  # steps
ROWS = 64


def engines_of(gpus):
    """Those of one process. Batch norm sees one shard: as many CPU devices are what it must equal."""
    found = [Engine("mlp", "mlp", "cuda:0", 1, None, 0)]
    found += [Engine(f"mlp, {count} replicas", "mlp", f"{count}xcuda:0", count, "mlp", 1e-4) for count in (2, 4, 8)]
    found += [Engine(f"mlp, 4 replicas, {schedule}", "mlp", "4xcuda:0", 4, "mlp", 1e-4, f"schedule={schedule}")
              for schedule in ("classic", "sharded")]
    half = "precision=bfloat16"
    found += [Engine("mlp, bfloat16", "mlp", "cuda:0", 1, None, 0, half),
              Engine("mlp, bfloat16, 4 replicas", "mlp", "4xcuda:0", 4, "mlp, bfloat16", 2e-2, half),
              Engine("mlp, bfloat16, every variant", "mlp", "cuda:0+all", 1, "mlp, bfloat16", 2e-2, half)]
    for count in (1, 2, 4, 8):
        cpu = f"resnet20, {count} CPU devices"
        found += [Engine(cpu, "resnet20", f"{count}xcpu", count, None, 0),
                  Engine(f"resnet20, {count} replicas", "resnet20", f"{count}xcuda:0", count, cpu, 1e-3)]
    found += [Engine("resnet20, every variant", "resnet20", "cuda:0+all", 1, "resnet20, 1 CPU devices", 1e-3)]
    if gpus > 1:
        found += [Engine(f"mlp, {gpus} GPUs, {way}", "mlp", f"{gpus}xcuda", gpus, "mlp", 1e-4, f"collectives={way}")
                  for way in ("nccl", "copy")]
    return found


def check_of(engine):
    return f"{engine.name} = {engine.like}" if engine.like else engine.name


class Trainings:
    """The answers of `yoke bench --drive` to requests_of(engines); those wanted are checked as they come."""

    def __init__(self, run, engines, wanted):
        self.run, self.wanted, self.losses, self.error = run, wanted, {}, ""
        self.waiting = [(engine, word) for engine in engines for word, _ in requests_of(engine, run)]

    def hear(self, line):
        if not line.startswith("{"):
            return
        answer, (engine, word) = json.loads(line), self.waiting.pop(0)
        if word == "open":
            self.losses[engine.name], self.error = [], ""
        self.error = self.error or answer.get("error", "")
        if word == "steps" and "loss" in answer:
            self.losses[engine.name].append(answer["loss"])
        if word == "close":
            self.compare(engine)

    def give_up(self, reason):
        """The engine that trains has ended the process."""
        engine = self.waiting[0][0]
        self.waiting = [(other, word) for other, word in self.waiting if other != engine]
        self.losses[engine.name], self.error = [], reason
        self.compare(engine)

    def compare(self, engine):
        got, like = self.losses[engine.name], self.losses.get(engine.like or engine.name)
        if check_of(engine) not in self.wanted:
            return
        if self.error or not got:
            self.run.check(check_of(engine), FAILED, self.error or "no loss")
        elif engine.like is None:
            self.run.check(engine.name, PASSED, f"losses {got[0]:.4g} .. {got[-1]:.4g}", losses=got)
        elif not like:
            self.run.check(check_of(engine), SKIPPED, f"{engine.like} has no losses")
        else:
            apart = max((abs(a - b) / max(abs(b), 1e-6) for a, b in zip(got, like)), default=math.inf)
            good = len(got) == len(like) and apart <= engine.tolerance
            self.run.check(check_of(engine), PASSED if good else FAILED,
                           f"losses of {len(got)} steps within {apart:.1e}, allowed {engine.tolerance:.0e}",
                           losses=got, like=like, tolerance=engine.tolerance)


def requests_of(engine, run):
    """(word, line) of each request"""
    steps, rate = MODELS[engine.model]
    side = ""
    if run.simulated:
        steps, side = 5, "side=8" if engine.model != "mlp" else ""
    words = f"model={engine.model} devices={engine.devices} rows={ROWS // engine.count} {rate} {side} {engine.words}"
    return [("open", f"open e {words}"), *[("steps", "steps e 1")] * steps, ("close", "close e")]


def trained(run):
    """All engines that this machine can have."""
    return engines_of(8 if run.simulated else len(run.facts.get("gpus", [])))


ONE_GPU = "mlp, all GPUs"


def replicas_names(run):
    engines = [check_of(engine) for engine in trained(run)]
    return engines if any(" GPUs, " in name for name in engines) else [*engines, ONE_GPU]


def replicas(run, wanted):
    """the same losses from 1, 2, 4 and 8 replicas on one GPU, and from all GPUs, in one process"""
    need(run.yoke)
    if ONE_GPU in wanted:
        run.check(ONE_GPU, SKIPPED, "this machine has one GPU")
    chosen = [engine for engine in trained(run) if check_of(engine) in wanted]
    names = {engine.name for engine in chosen} | {engine.like for engine in chosen}
    trainings = Trainings(run, [engine for engine in trained(run) if engine.name in names], wanted)
    while trainings.waiting:
        left = {engine.name for engine, _ in trainings.waiting}
        requests = "".join(line + "\n" for engine in trained(run) if engine.name in left
                           for _, line in requests_of(engine, run))
        try:
            code, text = run.command([run.yoke, "bench", "--drive"], given=requests, heard=trainings.hear)
        except Late as late:
            raise Late(f"in {trainings.waiting[0][0].name}" if trainings.waiting else str(late)) from None
        if trainings.waiting:
            trainings.give_up(last_line(text, code))
