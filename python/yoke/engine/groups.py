# SPDX-License-Identifier: Apache-2.0
"""Parameter groups as torch.optim takes them, and the learning rate over a run, as structs of the library."""
from __future__ import annotations

import ctypes
import fnmatch

from .._library import LAYOUT, LIBRARY, TYPES, make
from ..builder import Model

WORDS = {"params", "lr", "learning_rate", "weight_decay", "momentum", "steps", "frozen"}


def listed(groups) -> list | None:
    """Groups whose parameters can be read again, where they come from a generator."""
    return groups and [{**group, "params": list(group["params"])} if isinstance(group, dict) and
                       hasattr(group.get("params"), "__next__") else group for group in groups]


def set_groups(options, rule, model: Model | None, module, groups) -> list:
    """Writes groups, and what the model freezes, to an engine's options; the result holds what they point to."""
    made = []
    if model is not None and model.frozen and not options.inference:
        made.append(_group(",".join(model.frozen).encode(), frozen=True))
    made += [_converted(group, rule, model, module) for group in groups or ()]
    kept: list = [(TYPES["yoke_parameter_group"] * len(made))(*made)]
    options.groups, options.group_count = ctypes.cast(kept[0], ctypes.c_void_p) if made else None, len(made)
    if model is not None and model.frozen_statistics and not options.freeze_statistics:
        options.freeze_statistics = ",".join(model.frozen_statistics).encode()
    return kept + made


def _group(pattern: bytes, **fields):
    return make("yoke_parameter_group", "YOKE_PARAMETER_GROUP_INIT", pattern=pattern, **fields)


def _converted(group: dict, rule, model: Model | None, module):
    if not isinstance(group, dict) or "params" not in group:
        raise TypeError("a parameter group is a dict with params: names, patterns of names, or parameters of the module")
    if unknown := group.keys() - WORDS:
        raise TypeError(f"a parameter group has no {', '.join(sorted(unknown))}: expected {', '.join(sorted(WORDS))}")
    found = _group(",".join(_names(group["params"], model, module)).encode(), frozen=bool(group.get("frozen", False)))
    rate = group.get("lr", group.get("learning_rate"))
    if rate is not None:
        if not rule.learning_rate > 0:
            raise ValueError("a group has a learning rate, which is relative to the optimizer's: that one must be above 0")
        found.learning_rate_scale = rate / rule.learning_rate
    if group.get("weight_decay") is not None:
        found.weight_decay, found.set_weight_decay = group["weight_decay"], True
    found.momentum, found.steps = group.get("momentum") or 0, group.get("steps") or 0
    return found


def _names(given, model: Model | None, module) -> list[str]:
    """The library's names of parameters given by name, by pattern or as the module's own objects."""
    if model is None:  # a preset: the library knows its names
        found = [given] if isinstance(given, str) else list(given)
        if not all(isinstance(one, str) for one in found):
            raise TypeError("a parameter group of a preset has names, or patterns of names")
        return found
    known = {name: own.decode() for name, (own, _shape) in model.tensors().items()}
    by_object = {}
    if hasattr(module, "named_parameters"):
        by_object = {id(value): name for name, value in module.named_parameters()}
    found = []
    for one in [given] if isinstance(given, str) or hasattr(given, "data_ptr") else list(given):
        if isinstance(one, tuple) and len(one) == 2:  # of named_parameters(), perhaps of a part
            one = one[1]
        if not isinstance(one, str):
            if id(one) not in by_object:
                raise ValueError("a parameter group has a tensor that is no parameter of the module")
            one = by_object[id(one)]
        one = model.aliases.get(one, one)
        matches = [one] if one in known else fnmatch.filter(known, one)
        if not matches:
            raise ValueError(f"a parameter group names {one}, which matches no parameter: {', '.join(list(known)[:5])}, ...")
        found += [known[name] for name in matches]
    if not found:
        raise ValueError("a parameter group has no parameters")
    return found


def frozen_names(model: Model, module, groups) -> set[str]:
    """The library's names of parameters that never change: the first group that names one counts."""
    seen, found = set(model.frozen), set(model.frozen)
    for group in groups or ():
        names = set(_names(group["params"], model, module)) - seen
        seen |= names
        found |= names if group.get("frozen") else set()
    return found


class Rate:
    """The learning rate of each step: a number, a schedule of the library or a function of the number of steps."""

    def __init__(self, rule, lr_schedule, steps: int, warmup_steps: int, lr_gamma: float, epoch_steps: int):
        self.function, self.schedule = None, None
        if callable(lr_schedule):
            self.function = lr_schedule
            return
        words = LAYOUT["enums"]["yoke_lr_schedule_kind"]
        if lr_schedule not in words or lr_schedule == "plateau":
            known = ", ".join(word for word in words if word != "plateau")
            raise ValueError(f"lr_schedule is {lr_schedule!r}: expected {known} or a function of the step")
        if lr_schedule in ("step", "cosine", "onecycle", "linear") and not steps:
            raise ValueError(f"lr_schedule {lr_schedule} needs steps, the length of the run")
        if lr_schedule == "exponential" and not epoch_steps:
            raise ValueError("lr_schedule exponential needs epoch_steps, the steps of an epoch")
        if lr_schedule != "constant" or warmup_steps:
            self.schedule = make("yoke_lr_schedule", kind=words[lr_schedule], learning_rate=rule.learning_rate,
                                 steps=steps, warmup_steps=warmup_steps, gamma=lr_gamma or 0.95,
                                 epoch_steps=epoch_steps)

    def of(self, step: int) -> float:
        """A negative one is the optimizer's own."""
        if self.function is not None:
            return float(self.function(step))
        if self.schedule is not None:
            return LIBRARY.yoke_lr_schedule_rate(ctypes.byref(self.schedule), step)
        return -1.0
