"""Yoke from Python: train on numpy arrays, predict, read and write weights, run the tool. docs/python.md shows how."""
import contextlib
import ctypes
import difflib
import os
import pathlib
import queue
import threading
import warnings

import numpy

from ._arrays import floats, inputs_of, open_splits
from ._library import ADAMW, ENUMS, EVENTS, LIBRARY, MIRRORS, YokeError, plain
from ._tool import tool

__all__ = ["Trainer", "YokeError", "devices", "tool", "train"]
__version__ = LIBRARY.yoke_version().decode()
BESIDES = ("struct_size", "optimizer", "on_event", "payload", "process_group", "groups", "group_count", "training_rows",
           "test_rows")  # fields that options do not set


def _nearest(name, known):
    near = difflib.get_close_matches(name, known, 1)
    return f", did you mean {near[0]}?" if near else ""


def _choices():
    """The tool's file of measured algorithms, so that both compute the same bits; None without a home."""
    folders = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", "") + "/.cache"
    folder = next((folder for folder in folders if folder.startswith("/") and folder != "/.cache"), None)
    if folder is None:
        return None
    path = pathlib.Path(folder, "yoke/choices-1.txt")
    with contextlib.suppress(OSError):  # what cannot be made shows in a warning of the run
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _set(structs, name, value):
    """Sets an option in the struct that has it; a word of ENUMS becomes its number."""
    known = [field for struct in structs for field, _ in struct._fields_ if field not in BESIDES]
    if name not in known:
        raise TypeError(f"there is no option {name}{_nearest(name, known)}")
    given = value
    if name in ENUMS:
        if value not in ENUMS[name]:
            more = "; ddp: yoke.tool('launch', '--nproc-per-node', '2', '--', 'train', '--mode', 'ddp')"
            raise ValueError(f"{name} is {value!r}, expected one of {', '.join(ENUMS[name])}" + more * (value == "ddp"))
        value = ENUMS[name].index(value)
    elif isinstance(value, (str, os.PathLike)):
        value = os.fsencode(value)
    elif isinstance(value, numpy.generic):
        value = value.item()
    struct = next(struct for struct in structs if hasattr(struct, name))
    try:
        setattr(struct, name, value)
    except TypeError as error:
        raise TypeError(f"{name}={given!r}: {error}") from None
    if getattr(struct, name) != value:
        raise ValueError(f"{name}={given!r} does not fit")


class Trainer:
    """One run, with the defaults of yoke train.

    inputs: float32 [rows, features] or [rows, channels, height, width]. labels: integers [rows], or float32 targets
    [rows, targets]. test: (inputs, labels) to evaluate on. Contiguous arrays are read in place while the run lasts.
    options: fields of yoke_trainer_options (dataset, devices, batch, epochs, ...) and of yoke_optimizer_options.
    """
    _trainer = _thread = None

    def __init__(self, model="resnet20", inputs=None, labels=None, *, test=None, classes=None, optimizer="sgd",
                 **options):
        self.history = []  # an event a dict, as yoke_event
        self._events, self._kept = queue.SimpleQueue(), []
        self._trainer, self._opened = ctypes.c_void_p(), (ctypes.c_void_p(), ctypes.c_void_p())
        rule = dict(ADAMW) if optimizer == "adamw" else {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
        update = MIRRORS["yoke_optimizer_options"](**rule)
        run = MIRRORS["yoke_trainer_options"](epochs=3)
        for name, value in {"model": model, "kind": optimizer, **options}.items():
            _set((run, update), name, value)
        if "choices" not in options and options.get("algorithm") != "direct":
            _set((run,), "choices", _choices())
            run.cache_choices, run.measure_seconds = True, 60
        if inputs is not None:
            self._kept += open_splits([(inputs, labels)] + [test] * (test is not None), classes, self._opened)
            run.training_rows, run.test_rows = self._opened
            run.evaluate_every = run.evaluate_every or -(test is None)
        events, history = self._events, self.history  # not self, which the callback would keep alive

        def receive(event, _payload):
            history.append({**plain(event.contents), "kind": EVENTS[event.contents.kind]})
            events.put(history[-1])

        callback = ctypes.CFUNCTYPE(None, ctypes.POINTER(MIRRORS["yoke_event"]), ctypes.c_void_p)(receive)
        self._kept.append(callback)
        run.on_event = ctypes.cast(callback, ctypes.c_void_p)
        run.optimizer = ctypes.cast(ctypes.pointer(update), ctypes.c_void_p)
        LIBRARY.yoke_trainer_create(ctypes.byref(self._trainer), ctypes.byref(run))
        self._rows = max(1, run.batch // max(1, run.accumulate) // max(1, run.shards))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def close(self):
        """Frees devices and memory; again does no harm."""
        if self._trainer is None:
            return
        if self._thread:
            self.stop()
            self._thread.join()
        LIBRARY.yoke_trainer_destroy(self._trainer)
        for rows in self._opened:
            LIBRARY.yoke_dataset_close(rows)
        self._trainer = None

    def _opened_trainer(self):
        if not self._trainer:
            raise ValueError("this Trainer is closed")
        return self._trainer

    @property
    def _engine(self):
        return LIBRARY.yoke_trainer_engine(self._opened_trainer())

    @property
    def _model(self):
        return LIBRARY.yoke_trainer_model(self._opened_trainer())

    def stop(self):
        """Lets run return after its step; any thread may call it. Without a run it does nothing."""
        trainer = self._opened_trainer()
        if self._thread and self._thread.is_alive():
            LIBRARY.yoke_trainer_stop(trainer)

    def _work(self):
        self._failure = None
        try:
            LIBRARY.yoke_trainer_run(self._trainer)
        except YokeError as error:
            self._failure = error
        self._events.put(None)  # the last one

    def _watch(self, on_event):
        while self._thread.is_alive() or not self._events.empty():
            try:
                event = self._events.get(timeout=0.1)
            except queue.Empty:
                continue
            if event is None:
                return
            if event["kind"] == "warning":
                warnings.warn(event["text"], stacklevel=3)
            if on_event:
                on_event(event)

    def run(self, on_event=None):
        """Trains, and returns the summary. on_event gets each event as a dict, in the calling thread. Ctrl-C, or an
        exception of on_event, finishes the step and keeps its weights; run then raises it."""
        self._opened_trainer()
        if self._thread:  # a second Ctrl-C left it behind
            self._thread.join()
            while not self._events.empty():
                self._events.get()
        self._thread = threading.Thread(target=self._work)  # a wait for events can be interrupted, a call cannot
        try:
            self._thread.start()
            self._watch(on_event)
        except BaseException:
            self.stop()
            self._watch(None)
            raise
        self._thread.join()
        if self._failure and self._failure.status != "YOKE_ERROR_CANCELLED":
            raise self._failure
        return self.summary()

    def evaluate(self):
        """Loss and accuracy on the test rows."""
        result = MIRRORS["yoke_step_result"]()
        LIBRARY.yoke_trainer_evaluate(self._opened_trainer(), ctypes.byref(result))
        accuracy = result.correct / result.rows if result.correct >= 0 else None
        return {"loss": result.loss, "accuracy": accuracy, "rows": result.rows}

    def summary(self):
        """What the run was and did: yoke_trainer_summary; weights_hash as yoke train prints it."""
        result = MIRRORS["yoke_trainer_summary"]()
        LIBRARY.yoke_trainer_summarize(self._opened_trainer(), ctypes.byref(result))
        return {**plain(result), "weights_hash": f"{result.weights_hash:016x}"}

    def predict(self, inputs):
        """The model's outputs for inputs: float32 [rows, outputs]; logits for classes."""
        inputs, shape = inputs_of(inputs)
        wanted = LIBRARY.yoke_model_input_shape(self._model)
        if plain(shape) != plain(wanted):  # bytes would compare the padding, too
            raise ValueError(f"rows of inputs are {plain(shape)}, the model reads {plain(wanted)}")
        outputs = numpy.empty((len(inputs), LIBRARY.yoke_model_output_shape(self._model).channels), numpy.float32)
        for first in range(0, len(inputs), self._rows):
            part = inputs[first:first + self._rows]
            batch = MIRRORS["yoke_batch"](rows=len(part), inputs=part.ctypes.data)
            LIBRARY.yoke_data_parallel_forward(self._engine, ctypes.byref(batch), False, outputs[first:].ctypes.data)
        return outputs

    def _shapes(self):
        """{name: shape} of the tensors of floats; the engine keeps the counts of batches to itself."""
        found, info = {}, MIRRORS["yoke_tensor_info"]()
        for index in range(LIBRARY.yoke_model_tensor_count(self._model)):
            LIBRARY.yoke_model_tensor(self._model, index, ctypes.byref(info))
            if not info.integer:
                found[info.name.decode()] = tuple(info.shape[:info.ndim])
        return found

    def weights(self):
        """Copies of all parameters and running statistics: {PyTorch's name: float32 of PyTorch's shape}."""
        found = {name: numpy.empty(shape, numpy.float32) for name, shape in self._shapes().items()}
        for name, values in found.items():
            LIBRARY.yoke_data_parallel_read(self._engine, name.encode(), values.ctypes.data, values.size)
        return found

    def write(self, weights):
        """Writes arrays by name, some or all; checks them all before it writes one."""
        shapes, ready = self._shapes(), {}
        for name, values in weights.items():
            if name not in shapes:
                raise ValueError(f"the model has no tensor {name}{_nearest(name, shapes)}")
            ready[name] = floats(name, values, (len(shapes[name]),), shapes[name])
            if ready[name].shape != shapes[name]:
                raise ValueError(f"{name} has shape {ready[name].shape}, expected {shapes[name]}")
        for name, values in ready.items():
            LIBRARY.yoke_data_parallel_write(self._engine, name.encode(), values.ctypes.data, values.size)

    def save(self, path):
        """Writes the weights as safetensors."""
        LIBRARY.yoke_weights_save(self._engine, self._model, os.fsencode(path))

    def load(self, path):
        """Reads the weights from safetensors; nothing changes unless all fit."""
        LIBRARY.yoke_weights_load(self._engine, self._model, os.fsencode(path))


def train(*arguments, on_event=None, **options):
    """Trains a new Trainer to the end and returns it; the parameters are Trainer's."""
    trainer = Trainer(*arguments, **options)
    trainer.run(on_event)
    return trainer


def devices(names="auto", threads=0):
    """What each device of a list is, as yoke_device_info: "auto", "2xcpu", "4xcuda"."""
    opened, options = ctypes.c_void_p(), MIRRORS["yoke_devices_options"](list=names.encode(), threads=threads)
    LIBRARY.yoke_devices_open(ctypes.byref(opened), ctypes.byref(options))
    infos = [MIRRORS["yoke_device_info"]() for _ in range(LIBRARY.yoke_devices_count(opened))]
    for index, info in enumerate(infos):
        LIBRARY.yoke_devices_describe(opened, index, ctypes.byref(info))
    LIBRARY.yoke_devices_close(opened)
    return [plain(info) for info in infos]
