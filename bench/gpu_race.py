# SPDX-License-Identifier: Apache-2.0
"""One setup's races on a GPU: Yoke's engine stays open, its rivals come and go one by one."""
import collections
import importlib.util
import json
import math
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

from gpu_rows import ALONE, FAKE_PACE, PACE, contender_seconds, contenders_of, open_seconds, row_gib
from pytorch_race import Driven, DrivenError, Late, interval, judge, largest_difference, words_of

BENCH = pathlib.Path(__file__).resolve().parent
NAMES = {"yoke": "yoke", "torch": "PyTorch", "jax": "JAX"}
WORKERS = {"torch": BENCH / "pytorch_gpu_worker.py", "jax": BENCH / "jax_worker.py"}
ONLY_ON_GPUS = ("graph", "data_parallel")
KERNELS, KERNEL_RUNS = ("alone", "in-order"), 20  # of Yoke's own kernels
MOST_STEPS = 2000        # of a turn
HELLO_S = 120            # PyTorch's first import on a bare machine
PATIENCE, SPARE_S = 3, 60  # an answer may take so many times its estimate, and so long beyond
KEPT_GIB = 1             # a worker that keeps more on the GPU after a contender is started anew
LOSS_TOLERANCE = {"float32": 1e-4, "tf32": 2e-3, "bfloat16": 3e-2}
TEXT_TOLERANCE = {"float32": 1e-4, "tf32": 1e-3, "bfloat16": 5e-3}  # without batch norm bits matter less
WINOGRAD_TOLERANCE = 1e-3  # what the CPU may choose
OUT_OF_MEMORY = re.compile(r"out of memory|no memory|MemoryAllocation|ALLOC_FAILED|ALLOCATION_FAILED|RESOURCE_EXHAUSTED",
                           re.IGNORECASE)


class OutOfTime(Exception):
    """The race's seconds do not suffice, or are over."""


class Failed(Exception):
    """A program answered with an error, ended, or did not answer."""

    def __init__(self, who, error):
        super().__init__(str(error))
        self.who = who


class Budget:
    """The seconds that a race may take; clock: a stand-in's, in tests."""

    def __init__(self, seconds, clock=time.monotonic):
        self.clock, self.end = clock, clock() + seconds

    def left(self):
        return self.end - self.clock()

    def require(self, seconds):
        if self.left() < seconds:
            raise OutOfTime(f"needs about {seconds:.0f} s, {max(self.left(), 0):.0f} s are left")


class Field:
    """The programs that race, each started when it is first needed."""

    def __init__(self, yoke, budget, fake):
        options = ["--fake"] if fake else []
        self.commands = {"yoke": [yoke, "bench", "--drive"],
                         **{who: [sys.executable, path, *options] for who, path in WORKERS.items()}}
        self.yoke, self.budget, self.fake = yoke, budget, fake
        self.device = fake or "cuda:0"
        self.running, self.versions, self.reasons = {}, {}, {}
        self.gpu, self.free_gib = self.describe_gpu()

    def describe_gpu(self):
        """(name, free GiB); of a device that has no memory of its own, or none: (None, None)"""
        done = subprocess.run([self.yoke, "devices", "--json", "--devices", self.device], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        devices = json.loads(done.stdout)["devices"] if done.returncode == 0 else []
        if not devices or "memory_free" not in devices[0]:
            return None, None
        return devices[0]["description"], devices[0]["memory_free"] / 2**30

    def ask(self, who, *words, need_s=0):
        """need_s: how long the answer should take."""
        if who not in self.running:
            self.running[who] = Driven(NAMES[who], self.commands[who])
        try:
            return self.running[who].ask(*words, limit_s=min(PATIENCE * need_s + SPARE_S, self.budget.left()))
        except DrivenError as error:
            if isinstance(error, Late) or self.running[who].process.poll() is not None:
                self.stop(who)
            if self.budget.left() <= 0:
                raise OutOfTime(f"the race's seconds ended in the midst of it ({error})") from error
            raise Failed(who, error) from error

    def stop(self, who):
        if who in self.running:
            self.running.pop(who).kill()

    def why_absent(self, name):
        """Why this contender cannot race here; None: it can."""
        if self.fake and name in ONLY_ON_GPUS:
            return "only on GPUs"
        who = who_runs(name)
        if who not in self.reasons:
            self.reasons[who] = self.find(who)
        return self.reasons[who]

    def find(self, who):
        if importlib.util.find_spec(who) is None:
            return f"this Python has no {NAMES[who]}"
        try:
            self.versions.update(self.ask(who, "hello", need_s=HELLO_S))
        except Failed as failure:
            self.stop(who)
            return f"{NAMES[who]} does not start: {failure}"
        return None

    def close(self):
        for who in list(self.running):
            if who == "yoke" and self.budget.left() > 0:
                self.running.pop(who).close()
            else:
                self.stop(who)


def who_runs(name):
    return "jax" if name == "jax" else "torch"


# Turns.


def take_turns(turns, pace):
    """({name: ms of a step in each round}, steps); turns: {name: function of a number of steps}"""
    slowest = 0
    for turn in turns.values():
        milliseconds = turn(2)
        turn(max(1, min(int(pace.warm_s * 1e3 / max(milliseconds, 1e-3)), MOST_STEPS)))
        slowest = max(slowest, milliseconds)
    steps = min(max(int(pace.run_s * 1e3 / max(slowest, 1e-3)), pace.fewest_steps), MOST_STEPS)
    times, order = {name: [] for name in turns}, random.Random(7)
    for _ in range(pace.rounds):
        for name in order.sample(list(turns), len(turns)):
            times[name].append(turns[name](steps))
    return times, steps


class SetupRace:
    """The rows of one setup. Yoke's engine opens with the first of them that has somebody to race."""

    def __init__(self, setup, field):
        self.setup, self.field = setup, field
        self.pace = FAKE_PACE if field.fake else PACE
        self.step_s = open_seconds(setup, self.pace)  # no answer to `steps` should take longer
        self.is_open, self.losses, self.records, self.last = False, [], [], None  # last: of the pairs that ran
        self.kept = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.kept.name)

    # Yoke's engines.

    def ask_yoke(self, *words):
        return self.field.ask("yoke", *words, need_s=self.step_s)

    def open_engine(self, name, devices, variants, *words):
        self.ask_yoke("open", name, *words_of(self.setup), f"devices={devices}x{self.field.device}{variants}", *words)

    def first_losses(self, name):
        losses = [self.ask_yoke("steps", name, 1)["loss"] for _ in range(self.pace.loss_steps)]
        return [math.nan if loss is None else loss for loss in losses]

    def open(self):
        """With what the others start from, in files that Yoke writes."""
        if self.is_open:
            return
        self.open_engine("yoke", self.setup.devices, self.setup.variants)
        self.is_open = True
        told = {"setup": self.setup, **self.ask_yoke("weights", "yoke", self.folder / "weights"),
                **self.ask_yoke("batch", "yoke", self.folder / "batch")}
        (self.folder / "work.json").write_text(json.dumps(told))
        self.losses = self.first_losses("yoke")

    def engine_turn(self, name, processor_us=None):
        def turn(count):
            answer = self.ask_yoke("steps", name, count)
            if processor_us is not None:
                processor_us.append(answer["processor_ms"] * 1e3 / self.setup.devices)
            return answer["ms"]
        return turn

    def kernel_turn(self, how):
        return lambda count: self.ask_yoke("kernel_time", "yoke", how, min(count, KERNEL_RUNS))["ms"]

    # Rivals.

    def open_rival(self, name, found):
        """Its turns, by name; `found` gets its first losses."""
        if name == "processor":
            return {}
        if name == "kernel time":
            return {how: self.kernel_turn(how) for how in KERNELS}
        if name == "one device":
            self.open_engine("rival", 1, self.setup.variants)
            return {name: self.engine_turn("rival")}
        if name == "without":
            found["losses"] = self.losses_of_bits()
            self.open_engine("rival", self.setup.devices, "")
            return {name: self.engine_turn("rival")}
        return {name: self.open_contender(name, found)}

    def losses_of_bits(self):
        """Of two engines with fixed algorithms: what each measures for itself may round differently."""
        losses = {}
        for name, variants in (("yoke", self.setup.variants), ("without", "")):
            self.open_engine("bits", self.setup.devices, variants, "algorithm=direct")
            losses[name] = self.first_losses("bits")
            self.ask_yoke("close", "bits")
        return losses

    def open_contender(self, name, found):
        who, word = who_runs(name), name.replace(" ", "-")
        need_s = contender_seconds(self.setup, name, self.pace)
        found["settings"] = self.field.ask(who, "open", word, self.folder, need_s=need_s)
        losses = self.field.ask(who, "losses", word, self.pace.loss_steps, need_s=need_s)["losses"]
        found["losses"] = {"yoke": self.losses, name: losses}
        return lambda count: self.field.ask(who, "steps", word, count, need_s=need_s)["ms"]

    def close_rival(self, name, failed):
        """Its memory is free for the next one."""
        if name in ALONE:
            return
        who = "yoke" if name in ("one device", "without") else who_runs(name)
        word = "rival" if who == "yoke" else name.replace(" ", "-")
        try:
            if failed or who == "jax" or self.field.ask(who, "close", word).get("held_gib", 0) > KEPT_GIB:
                self.stop(who)
        except (Failed, OutOfTime):
            self.stop(who)

    def stop(self, who):
        self.is_open = self.is_open and who != "yoke"
        self.field.stop(who)

    def pair(self, name):
        """Yoke's engine and one rival, from the rival's opening to its end."""
        found = {"setup": self.setup._asdict(), "rival": name, "losses": {"yoke": self.losses}, "processor_us": []}
        failed = True
        try:
            own = self.engine_turn("yoke", found["processor_us"])
            turns = {"yoke": own, "yoke again": own, **self.open_rival(name, found)}
            found["ms"], found["steps"] = take_turns(turns, self.pace)
            failed = False
        finally:
            if failed:
                self.close_rival(name, True)
        self.close_rival(name, False)
        self.last = found
        return found

    # Rows.

    def too_large(self, row):
        free, need = self.field.free_gib, self.need_gib(row)
        return free is not None and need > free and f"needs about {need:.1f} GiB, the GPU has {free:.1f} free"

    def need_gib(self, row):
        return row_gib(row, 0) if self.field.fake else row_gib(row)  # the other contenders are on the CPU

    def no_memory(self, row):
        free = self.field.free_gib
        return (f"out of memory: needs about {self.need_gib(row):.1f} GiB, the GPU "
                + (f"had {free:.1f} free" if free is not None else "has not as much"))

    def result(self, row):
        """Of any failure but Yoke's own the other rows know nothing."""
        try:
            too_large = self.too_large(row)
            return left_out(row, "skipped", too_large) if too_large else self.race(row)
        except OutOfTime as late:
            return left_out(row, "out of time", str(late))
        except Failed as failure:
            self.stop("yoke")
            if OUT_OF_MEMORY.search(str(failure)):
                return left_out(row, "skipped", f"{self.no_memory(row)} ({failure})")
            return left_out(row, "MISS", str(failure))

    def race(self, row):
        """A contender's failure leaves the others their race; without Yoke there is none."""
        if row.against == "processor" and self.last:
            return self.judged(row, self.last)
        names, reasons, pairs = contenders_of(row), {}, []
        if row.against not in ALONE + ("one device", "without"):
            reasons = {name: why for name in names if (why := self.field.why_absent(name))}
        for name in names:
            if name in reasons:
                continue
            self.field.budget.require(contender_seconds(self.setup, name, self.pace)
                                      + (0 if self.is_open else open_seconds(self.setup, self.pace)))
            self.open()
            try:
                pairs.append(self.pair(name))
            except Failed as failure:
                if failure.who == "yoke":
                    raise
                reasons[name] = self.no_memory(row) if OUT_OF_MEMORY.search(str(failure)) else str(failure)
        self.records += pairs
        if not pairs:
            return left_out(row, "skipped", "; ".join(f"{name}: {why}" for name, why in reasons.items()))
        return self.judged(row, min(pairs, key=lambda pair: pair_interval(row, pair)[0]))

    def judged(self, row, pair):
        value, low, high = pair_interval(row, pair)
        found = {**named(row), "must_be": "<=" if row.most else ">=", "rounds": self.pace.rounds,
                 "steps": pair["steps"], "value": value, "low": low, "high": high, "noise": noise_of(pair),
                 "yoke_ms": statistics.median(pair["ms"]["yoke"]), "rival": rival_of(row, pair)}
        if found["rival"]:
            found["rival_ms"] = statistics.median(pair["ms"][found["rival"]])
        unequal = self.compare_losses(pair, found)
        found["verdict"] = "losses differ" if unequal else verdict_of(row, found)
        found["text"] = text_of(row, found, pair)
        return found

    def tolerance(self, rival):
        if rival == "without":
            return 0
        if self.setup.model.startswith("gpt2"):
            return TEXT_TOLERANCE[self.setup.precision]
        return WINOGRAD_TOLERANCE if self.field.fake else LOSS_TOLERANCE[self.setup.precision]

    def compare_losses(self, pair, found):
        """Whether they differ by more than rounding can; if so, `found` says what may explain it."""
        if found["rival"] not in pair["losses"]:
            return False
        own, other = pair["losses"]["yoke"], pair["losses"][found["rival"]]
        found["loss_difference"] = largest_difference(other, own)
        if found["loss_difference"] <= self.tolerance(found["rival"]):
            return False
        found["losses"] = pair["losses"]
        found["algorithms"] = count_algorithms(self.ask_yoke("algorithms", "yoke")["algorithms"])
        found["settings"] = pair.get("settings", {})
        return True

    def take_records(self):
        """Of the pairs that ran since the last call."""
        records, self.records = self.records, []
        return records

    def close(self):
        try:
            if self.is_open:
                self.ask_yoke("close", "yoke")
        except (Failed, OutOfTime):
            self.field.stop("yoke")
        self.kept.cleanup()


# Results.


def named(row):
    return {"name": f"{row.setup.name} {row.against}", "group": row.group, "line": row.line}


def left_out(row, verdict, text):
    return {**named(row), "verdict": verdict, "text": text}


def rival_of(row, pair):
    return {"processor": None, "kernel time": KERNELS[0]}.get(row.against, pair["rival"])


def pair_interval(row, pair):
    """The row's value over the rounds: (median, low, high)"""
    times, setup = pair["ms"], row.setup
    if row.against == "processor":
        return interval(pair["processor_us"])
    rival = times[rival_of(row, pair)]
    if row.against == "kernel time":
        return interval([own / other for own, other in zip(times["yoke"], rival)])
    if row.against == "one device":
        return interval([own / other / setup.devices for own, other in zip(times["yoke"], rival)])
    return interval([other / own for own, other in zip(times["yoke"], rival)])


def noise_of(pair):
    """How far Yoke's ratio to itself gets from 1."""
    _, low, high = interval([again / own for own, again in zip(pair["ms"]["yoke"], pair["ms"]["yoke again"])])
    return max(abs(low - 1), abs(high - 1))


def verdict_of(row, found):
    if row.against == "processor":
        return "reported"
    if row.line is None:
        return "measured"
    return judge(found["low"], found["high"], row.line, row.most, found["noise"])


def count_algorithms(calls):
    """{"conv2d forward: cuDNN 1": how many}"""
    return dict(collections.Counter(f"{operation} {direction}: {name}" for _, operation, direction, name in calls))


def text_of(row, found, pair):
    line = "" if row.line is None else f"line {found['must_be']} {row.line:g}, "
    unit = " us" if row.against == "processor" else ""
    text = (f"{found['value']:.3g}{unit} ({found['low']:.3g} .. {found['high']:.3g}), {line}"
            f"noise {100 * found['noise']:.1f} %; yoke {found['yoke_ms']:.4g} ms")
    if found["rival"]:
        text += f", {found['rival']} {found['rival_ms']:.4g} ms"
    if row.against == "kernel time":
        text += f", in order {statistics.median(pair['ms']['in-order']):.4g} ms"
    if "loss_difference" in found:
        text += f"; losses within {found['loss_difference']:.1e}"
    if "losses" in found:
        text += "".join(f"; losses of {name}: {' '.join(f'{loss:.7g}' for loss in losses)}"
                        for name, losses in found["losses"].items())
        text += "; Yoke's algorithms: " + ", ".join(f"{count} x {name}" for name, count in found["algorithms"].items())
        text += "".join(f"; {name} {value}" for name, value in found["settings"].items())
    return text
