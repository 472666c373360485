# SPDX-License-Identifier: Apache-2.0
"""Yoke from Python: train on numpy arrays, predict, read and write weights, run the tool. docs/python.md shows how."""
import contextlib
import ctypes
import difflib
import os
import pathlib
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor, wait

import numpy

from ._library import LAYOUT, LIBRARY, TYPES, YokeError, make, plain, tool

__all__ = ["Trainer", "YokeError", "tool"]
__version__ = LIBRARY.yoke_version().decode()
EVENTS = {number: word for word, number in LAYOUT["enums"]["yoke_event_kind"].items()}


def _algorithm_cache():
    """The tool's file of measured algorithms, so that both compute the same bits; None where none can be kept."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    with contextlib.suppress(OSError, RuntimeError):
        folder = pathlib.Path(cache if os.path.isabs(cache) else "~/.cache", "yoke").expanduser()
        folder.mkdir(0o700, parents=True, exist_ok=True)
        return folder / "choices-1.txt"


def _set(structs, name, value):
    """Sets the option in the struct that has it; the tool's word of an enumerator becomes its number."""
    known = {field: (struct, kind) for struct in structs for field, kind, _ in LAYOUT["structs"][type(struct).__name__]
             if kind != "c_void_p" and field != "struct_size"}
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        raise TypeError(f"there is no option {name}" + LAYOUT["hints"].get(name, f", did you mean {near[0]}?" if near else ""))
    struct, kind = known[name]
    words, given = LAYOUT["enums"].get(kind), value
    try:
        if words:
            value = words[value]
        elif kind == "c_char_p":
            value = value and os.fsencode(value)
        setattr(struct, name, value)
        if value not in (0, 1) if kind == "c_bool" else (
                hasattr(value, "__index__") or isinstance(value, bytes)) and getattr(struct, name) != value:
            raise TypeError("it does not fit")
    except (KeyError, TypeError) as error:
        name = "optimizer" if name == "kind" else name
        hint = LAYOUT["hints"].get(f"{name} {given}".lower(), "")
        raise ValueError(f"{name} is {given!r}: {'expected ' + ', '.join(words) if words else error}{hint}") from None


def _floats(name, given, expected, dimensions=()):
    """given as contiguous float32, every value finite: of the expected shape, or of so many dimensions."""
    if numpy.ma.is_masked(given):
        raise ValueError(f"{name} has masked values, which would count like all others: fill or remove them")
    array = numpy.asarray(given)
    if array.dtype != numpy.float32:
        scale = " / 255" if array.dtype == numpy.uint8 else ""
        raise TypeError(f"{name} has dtype {array.dtype}, expected float32: {name}.astype(numpy.float32){scale}")
    if not (array.size and array.ndim in dimensions or array.shape == expected):
        raise ValueError(f"{name} has shape {array.shape}, expected {expected}")
    if not numpy.isfinite(array).all():
        place = numpy.argwhere(~numpy.isfinite(array))[0].tolist()
        raise ValueError(f"{name}{place} is {array[tuple(place)]}: every value must be finite")
    return numpy.ascontiguousarray(array)


def _inputs(given):
    """The inputs, and the shape of a row."""
    array = _floats("inputs", given, "[rows, features] or [rows, channels, height, width]", (2, 4))
    channels, height, width = (*array.shape[1:], 1, 1)[:3]
    return array, make("yoke_shape", channels=channels, height=height, width=width, flat=array.ndim == 2)


def _labels(given, rows):
    """Classes as int32 [rows], or targets as float32 [rows, targets]."""
    array = numpy.asarray(given)
    if numpy.ma.is_masked(given):
        raise ValueError("labels has masked values, which would count like all others: fill or remove them")
    if array.shape[:1] != (rows,):
        raise ValueError(f"inputs has {rows} rows, labels has shape {array.shape}")
    if array.dtype.kind not in "iu":
        return _floats("labels", array, "[rows] or [rows, targets]", (1, 2)).reshape(rows, -1)
    if array.ndim != 1 or array.min() < 0 or array.max() > 2**31 - 1:
        raise ValueError(f"labels has shape {array.shape} and values {array.min()} to {array.max()}: expected classes")
    return numpy.ascontiguousarray(array, numpy.int32)


def _open(owner, inputs, labels, classes, channels_first):
    """Opens a dataset of arrays that lives as long as its owner; returns it and its number of classes."""
    (inputs, shape), dataset = _inputs(inputs), ctypes.c_void_p()
    if not channels_first and inputs.ndim == 4 and min(inputs.shape[1:3]) > 4 and inputs.shape[3] in (1, 3, 4):
        raise ValueError(f"inputs: shape {inputs.shape} seems to be [rows, height, width, channels], expected [rows, "
                         'channels, height, width]; inputs.transpose(0, 3, 1, 2) converts it, channels_first=True does not')
    labels = _labels(labels, len(inputs))
    arrays = make("yoke_arrays", rows=len(inputs), shape=shape, inputs=inputs.ctypes.data)
    if labels.dtype == numpy.int32:
        _set((arrays,), "classes", classes or int(labels.max()) + 1)
        arrays.labels = labels.ctypes.data
    else:
        arrays.target_count, arrays.targets = labels.shape[1], labels.ctypes.data
    LIBRARY.yoke_dataset_from_arrays(ctypes.byref(dataset), ctypes.byref(arrays))
    dataset.kept = inputs, labels  # the library reads them in place
    weakref.finalize(owner, LIBRARY.yoke_dataset_close, dataset)
    return dataset, arrays.classes


class Trainer:
    """One run, with the defaults of yoke train. The last reference to it frees devices and memory.

    inputs: float32 [rows, features] or [rows, channels, height, width]. labels: integers [rows], or float32 targets
    [rows, targets]. test: (inputs, labels) to evaluate on. Contiguous arrays are read in place while the trainer lives.
    channels_first: take a shape that looks like [rows, height, width, channels] as it is. options: fields of
    yoke_trainer_options (dataset, devices, batch, epochs, ...), yoke_data_parallel_options and yoke_optimizer_options.
    """
    _engine = property(lambda self: LIBRARY.yoke_trainer_engine(self._trainer))  # another one after a lost device
    def __init__(self, model="resnet20", inputs=None, labels=None, *, test=None, classes=None, channels_first=False,
                 optimizer="sgd", **options):
        self._trainer, self._running, self._seen, self._reporting = ctypes.c_void_p(), None, 0, False  # in on_event
        history = self.history = []  # each yoke_event as a dict
        usual = {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 5e-4} if optimizer == "sgd" else {}
        rule = make("yoke_optimizer_options", f"YOKE_{optimizer}_OPTIONS_INIT".upper(), **usual)
        engine = make("yoke_data_parallel_options", "YOKE_DATA_PARALLEL_OPTIONS_INIT")
        run = make("yoke_trainer_options", "YOKE_TRAINER_OPTIONS_INIT", epochs=3, engine=ctypes.addressof(engine))
        own = "algorithm_cache" in options or options.get("algorithm") == "direct"
        cache = {} if own else {"algorithm_cache": _algorithm_cache(), "replace_broken_cache": True}
        for name, value in {"model": model, "kind": optimizer, **cache, **options}.items():
            _set((rule, engine, run), name, value)
        if inputs is not None:
            run.training_rows, classes = _open(self, inputs, labels, classes, channels_first)
            if test is not None:
                run.test_rows, _ = _open(self, *test, classes, channels_first)
            run.evaluate_every = run.evaluate_every or -(test is None)
        listener = ctypes.CFUNCTYPE(None, ctypes.POINTER(TYPES["yoke_event"]), ctypes.c_void_p)
        self._trainer.on_event = listener(lambda event, _payload: history.append(  # of self it would make a circle
            {**plain(event.contents), "kind": EVENTS[event.contents.kind]}))
        run.on_event, run.optimizer = ctypes.cast(self._trainer.on_event, ctypes.c_void_p), ctypes.addressof(rule)
        LIBRARY.yoke_trainer_create(ctypes.byref(self._trainer), ctypes.byref(run))
        weakref.finalize(self, LIBRARY.yoke_trainer_destroy, self._trainer)  # the last finalizer comes first
        self._model = LIBRARY.yoke_trainer_model(self._trainer)
        self._rows = max(1, run.batch // max(1, engine.accumulate) // max(1, engine.shards))

    def stop(self):
        """Lets run return after its step; any thread may call it. Without a run it does nothing."""
        if (running := self._running) and not running.done():  # run may end meanwhile
            LIBRARY.yoke_trainer_stop(self._trainer)

    def run(self, on_event=None):
        """Trains, and returns the summary. on_event gets each event as a dict, in the calling thread. Ctrl-C, or an
        exception of on_event, finishes the step and keeps its weights; run then raises it."""
        if self._reporting:
            raise RuntimeError("run was called inside on_event, while this trainer runs: call stop, and run afterwards")
        if self._running:  # a second Ctrl-C left it behind
            wait([self._running])
            self._seen = len(self.history)
        self._running = ThreadPoolExecutor(1).submit(lambda: LIBRARY.yoke_trainer_run(self._trainer))
        try:
            while not self._running.done() or self._seen < len(self.history):
                if self._seen == len(self.history):
                    wait([self._running], 0.02)  # Ctrl-C interrupts it, but no call of the library: hence the thread
                    continue
                event, self._seen = self.history[self._seen], self._seen + 1
                if event["kind"] in ("warning", "lost"):
                    warnings.warn(event["text"], stacklevel=2)
                if on_event:
                    self._reporting = True
                    on_event(event)
                    self._reporting = False
        except BaseException:
            self._reporting = False
            self.stop()
            wait([self._running])
            self._seen, self._running = len(self.history), None  # the frames of its exception hold self
            raise
        failure, self._running = [self._running.exception()], None
        if failure[0] and failure[0].status != "YOKE_ERROR_CANCELLED":
            raise failure.pop()  # of a variable it would make a circle
        return self.summary()

    def evaluate(self):
        """Loss and accuracy on the test rows."""
        result = make("yoke_step_result")
        LIBRARY.yoke_trainer_evaluate(self._trainer, ctypes.byref(result))
        return {"loss": result.loss, "accuracy": result.correct / result.rows if result.correct >= 0 else None}

    def summary(self):
        """What the run was and did: yoke_trainer_summary; weights_hash as yoke train prints it."""
        result = make("yoke_trainer_summary")
        LIBRARY.yoke_trainer_summarize(self._trainer, ctypes.byref(result))
        return {**plain(result), "weights_hash": f"{result.weights_hash:016x}"}

    def predict(self, inputs):
        """The model's outputs for inputs: float32 [rows, outputs]; logits for classes."""
        inputs, shape = _inputs(inputs)
        wanted = LIBRARY.yoke_model_input_shape(self._model)
        if plain(shape) != plain(wanted):  # bytes would compare the padding, too
            raise ValueError(f"rows of inputs are {plain(shape)}, the model reads {plain(wanted)}")
        outputs = numpy.empty((len(inputs), LIBRARY.yoke_model_output_shape(self._model).channels), numpy.float32)
        for first in range(0, len(inputs), self._rows):
            part = inputs[first:first + self._rows]
            batch = make("yoke_batch", rows=len(part), inputs=part.ctypes.data)
            LIBRARY.yoke_data_parallel_forward(self._engine, ctypes.byref(batch), False, outputs[first:].ctypes.data)
        return outputs

    def weights(self):
        """Copies of all parameters and running statistics: {PyTorch's name: float32 of PyTorch's shape}."""
        found, info = {}, make("yoke_tensor_info")
        for index in range(LIBRARY.yoke_model_tensor_count(self._model)):
            LIBRARY.yoke_model_tensor(self._model, index, ctypes.byref(info))
            if not info.integer:  # the engine keeps the counts of batches to itself
                values = found[info.name.decode()] = numpy.empty(info.shape[:info.ndim], numpy.float32)
                LIBRARY.yoke_data_parallel_read(self._engine, info.name, values.ctypes.data, values.size)
        return found

    def write(self, weights):
        """Writes arrays by name, some or all; checks them all before it writes one."""
        known = self.weights()
        if not weights.keys() <= known.keys():
            raise ValueError(f"the model has no tensor {', '.join(weights.keys() - known.keys())}: see weights()")
        ready = {name: _floats(name, values, known[name].shape) for name, values in weights.items()}
        for name, values in ready.items():
            LIBRARY.yoke_data_parallel_write(self._engine, name.encode(), values.ctypes.data, values.size)
