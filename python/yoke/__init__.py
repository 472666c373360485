# SPDX-License-Identifier: Apache-2.0
"""Yoke from Python: train on numpy arrays, build networks or take PyTorch's, predict, read and write weights, run the tool.
docs/python.md shows how."""
import ctypes
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor, wait

import numpy

from ._arguments import algorithm_cache, floats, set_option
from ._library import LAYOUT, LIBRARY, TYPES, FromTorchError, YokeError, make, plain, tool
from .builder import Builder, Model, Node, shape_struct
from .data_parallel import DataParallel, as_array, freeze, write_weights
from .generator import Generator, Tokenizer

__all__ = ["Builder", "DataParallel", "FromTorchError", "Generator", "Model", "Node", "Tokenizer", "Trainer", "YokeError",
           "from_torch", "tool"]
__version__ = LIBRARY.yoke_version().decode()
EVENTS = {number: word for word, number in LAYOUT["enums"]["yoke_event_kind"].items()}


def from_torch(module, example, loss="cross-entropy", **options):
    """A torch.nn.Module as a yoke.Model with its names and weights; pytorch/convert.py says what example and options are."""
    from .pytorch import from_torch as convert
    return convert(module, example, loss, **options)


def _rows_of(model, given):
    """One array for each input of a model of the builder, as float32 rows of its shape."""
    arrays = [as_array(one) for one in (given if isinstance(given, (tuple, list)) else (given,))]
    if len(arrays) != len(model.inputs):
        raise ValueError(f"{len(arrays)} inputs, the model reads {len(model.inputs)}: {', '.join(model.inputs)}")
    ready = []
    for array, (name, shape) in zip(arrays, model.inputs.items()):
        array = array.astype(numpy.float32) if array.dtype.kind in "iub" else array
        if array.ndim == 0 or len(array) != len(arrays[0]) or array[:1].size != numpy.prod(shape):
            raise ValueError(f"{name} has shape {array.shape}, rows of it are {shape}")
        ready.append(floats(name, array.reshape(len(array), *shape), "[rows, ...]", (2, 3, 4)))
    return ready


def _open_for(owner, model, inputs, labels):
    """Opens a dataset of arrays for a model of the builder."""
    first, *others = arrays = _rows_of(model, inputs)
    given = make("yoke_arrays", rows=len(first), shape=shape_struct(first.shape[1:]), inputs=first.ctypes.data)
    more = (TYPES["yoke_row_input"] * len(others))(*(
        make("yoke_row_input", name=name.encode(), shape=shape_struct(array.shape[1:]), values=array.ctypes.data)
        for name, array in zip(list(model.inputs)[1:], others)))
    given.more_inputs, given.more_input_count = ctypes.cast(more, ctypes.c_void_p) if others else None, len(others)
    if labels is not None:
        labels = as_array(labels)
        if labels.shape[:1] != (len(first),):
            raise ValueError(f"inputs have {len(first)} rows, labels has shape {labels.shape}")
        if labels.dtype.kind in "iu":
            labels = numpy.ascontiguousarray(labels.reshape(len(first), -1), numpy.int32)
            given.classes, given.label_count = next(iter(model.outputs.values()))[-1], labels.shape[1]
            given.labels = labels.ctypes.data
        else:
            labels = floats("labels", labels, "[rows, ...]", range(1, 9)).reshape(len(first), -1)
            given.target_count, given.targets = labels.shape[1], labels.ctypes.data
    dataset = ctypes.c_void_p()
    LIBRARY.yoke_dataset_from_arrays(ctypes.byref(dataset), ctypes.byref(given))
    dataset.kept = arrays, labels
    weakref.finalize(owner, LIBRARY.yoke_dataset_close, dataset)
    return dataset


def _inputs(given):
    """The inputs, and the shape of a row."""
    array = floats("inputs", given, "[rows, features] or [rows, channels, height, width]", (2, 4))
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
        return floats("labels", array, "[rows] or [rows, targets]", (1, 2)).reshape(rows, -1)
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
        set_option((arrays,), "classes", classes or int(labels.max()) + 1)
        arrays.labels = labels.ctypes.data
    else:
        arrays.target_count, arrays.targets = labels.shape[1], labels.ctypes.data
    LIBRARY.yoke_dataset_from_arrays(ctypes.byref(dataset), ctypes.byref(arrays))
    dataset.kept = inputs, labels  # the library reads them in place
    weakref.finalize(owner, LIBRARY.yoke_dataset_close, dataset)
    return dataset, arrays.classes


class Trainer:
    """One run, with the defaults of yoke train. The last reference to it frees devices and memory.

    model: a preset's name, or a yoke.Model, which takes inputs of any shape whose rows fit, a tuple of them where it has
    several, and a label for each position where its output is a sequence.
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
        cache = {} if own else {"algorithm_cache": algorithm_cache(), "replace_broken_cache": True}
        built = model if isinstance(model, Model) else None
        for name, value in {**({} if built else {"model": model}), "kind": optimizer, **cache, **options}.items():
            set_option((rule, engine, run), name, value)
        if built:
            frozen, run.custom_model = freeze(engine, built), built.handle.value
        if built and inputs is not None:
            run.training_rows = _open_for(self, built, inputs, labels)
            if test is not None:
                run.test_rows = _open_for(self, built, *test)
            run.evaluate_every = run.evaluate_every or -(test is None)
        elif inputs is not None:
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
        if built:
            del frozen  # the engine has copied it
            if not run.init and not run.resume:
                write_weights(self._engine, built, built.weights)
        self._model = built or Model(LIBRARY.yoke_trainer_model(self._trainer))
        self._built = built is not None
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
        """The model's outputs for inputs: float32, for a preset [rows, outputs]; logits for classes."""
        if self._built:
            arrays = _rows_of(self._model, inputs)
        else:
            array, shape = _inputs(inputs)
            wanted = LIBRARY.yoke_model_input_shape(self._model.handle)
            if plain(shape) != plain(wanted):  # bytes would compare the padding, too
                raise ValueError(f"rows of inputs are {plain(shape)}, the model reads {plain(wanted)}")
            arrays = [array]
        shape = next(iter(self._model.outputs.values()))
        outputs = numpy.empty((len(arrays[0]), *shape), numpy.float32)
        for first in range(0, len(outputs), self._rows):
            parts = [array[first:first + self._rows] for array in arrays]
            more = (ctypes.c_void_p * len(parts))(*(part.ctypes.data for part in parts[1:]))
            batch = make("yoke_batch", rows=len(parts[0]), inputs=parts[0].ctypes.data, more_input_count=len(parts) - 1,
                         more_inputs=ctypes.cast(more, ctypes.c_void_p) if parts[1:] else None)
            LIBRARY.yoke_data_parallel_forward(self._engine, ctypes.byref(batch), False, outputs[first:].ctypes.data)
        return self._model.arrange(0, outputs)

    def weights(self):
        """Copies of all parameters and running statistics: {PyTorch's name: float32 of PyTorch's shape}."""
        found = {}
        for name, (own, shape) in self._model.tensors().items():
            found[name] = numpy.empty(shape, numpy.float32)
            LIBRARY.yoke_data_parallel_read(self._engine, own, found[name].ctypes.data, found[name].size)
        return found

    def write(self, weights):
        """Writes arrays by name, some or all; checks them all before it writes one."""
        known = self.weights()
        if not weights.keys() <= known.keys():
            raise ValueError(f"the model has no tensor {', '.join(weights.keys() - known.keys())}: see weights()")
        ready = {name: floats(name, values, known[name].shape) for name, values in weights.items()}
        write_weights(self._engine, self._model, ready)
