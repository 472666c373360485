"""libyoke through ctypes: where it is, the functions and structs that this package uses, and its errors."""
import ctypes
import os
import pathlib
import platform
import sysconfig

FOLDER = pathlib.Path(__file__).resolve().parent
INTERFACE = "0.1"  # MAJOR.MINOR of the headers that are mirrored here

# A struct's fields as TYPE NAME or TYPE NAME=DEFAULT, the defaults being those of its INIT macro. struct_size comes
# first and is not listed. A mirror may end early: the library takes the fields that it lacks as zero.
STRUCTS = {
    "yoke_shape": "i channels, i height, i width, b flat, b sequence",
    "yoke_color_jitter": "d brightness, d contrast, d saturation, d hue",
    "yoke_arrays": "z rows, yoke_shape shape, p pixels, p inputs, i classes, p labels, p targets, i target_count",
    "yoke_batch": "i rows, p inputs, p labels, p targets",
    "yoke_devices_options": "s list, i threads",
    "yoke_device_info": "c32 name, c96 description, i threads, i first_core, i core_count, z memory_bytes, b bfloat16",
    "yoke_tensor_info": "s name, i ndim, q4 shape, z count, b trainable, b integer",
    "yoke_step_result": "d loss, i rows, i correct, d gradient_norm",
    "yoke_optimizer_options": "i kind, d learning_rate=0.1, d momentum, b nesterov, d weight_decay, d beta1, d beta2, "
                              "d epsilon, d clip_norm",
    "yoke_event": "i kind, u step, u steps, u epoch, d loss, d accuracy, d learning_rate, i rows, d step_ms, "
                  "d seconds_elapsed, s text, p skip, d test_loss, d test_accuracy, d images_per_second",
    "yoke_trainer_options":
        "s model, s dataset, s devices, i threads, i mode, i schedule, i precision, i algorithm, i collectives, "
        "i batch=64, i accumulate=1, i epochs=1, u steps, p optimizer, i lr_schedule, u warmup_steps, "
        "d label_smoothing, u seed, b no_shuffle, i augment, i evaluate_every, s init, s save, s metrics, s trace, "
        "p on_event, p payload, p process_group, z bucket_bytes, b broadcast_buffers=1, b mean_of_ranks, p groups, "
        "i group_count, s init_allow_missing, s init_allow_unknown, s checkpoint_dir, d checkpoint_every, "
        "i checkpoint_unit, i keep, b keep_best, s resume, s resume_anyway, s choices, i shards, "
        "b synchronize_batch_norm, i straggler, d straggler_factor, s link, d interpreter_us=13, "
        "i mistakes, p training_rows, p test_rows, yoke_color_jitter color_jitter, d erasing, z limit_rows, "
        "b drop_last, i sampling, i loader_threads, b skip_bad, b init_new_head, d lr_gamma, i lr_patience=10, "
        "i patience, d min_delta, d ema_decay, p loss, b balanced_class_weights, p own_model, p own_loss, "
        "p own_metrics, i metric_count, d mixup, b cache_choices, d measure_seconds",
    "yoke_trainer_summary":
        "s mode, s schedule, s model, s dataset, s precision, i devices, z parameters, i batch, u steps, "
        "d images_per_second, d step_ms_median, d step_ms_p90, d load_wait_share, d loss, d accuracy, z peak_bytes, "
        "u weights_hash, i rank, i world, s transport, s link, d train_loss, "
        "d train_accuracy, d test_loss, d test_accuracy",
}
BARE = ("yoke_shape", "yoke_color_jitter")  # without struct_size
ADAMW = {"kind": 1, "learning_rate": 1e-3, "momentum": 0, "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.999,
         "epsilon": 1e-8}
# The values of enumerations, by the words of the tool.
ENUMS = {
    "kind": ("sgd", "adamw"), "mode": ("dp", "single"), "schedule": ("overlap", "classic", "sharded", "python"),
    "precision": ("float32", "bfloat16", "tf32"), "algorithm": ("measured", "direct"),
    "collectives": ("auto", "nccl", "copy"), "lr_schedule": ("constant", "step", "cosine", "onecycle", "exponential",
                                                     "plateau"),
    "augment": ("none", "crop-flip", "crop-flip-cutout", "resized-crop-flip"),
    "checkpoint_unit": ("epochs", "steps", "seconds"),
}
EVENTS = ("ready", "step", "evaluation", "saved", "warning", "skipped", "resumed", "epoch",
          "stopped")
# Result, name, parameters. e: a yoke_status, which becomes an exception. v: none.
FUNCTIONS = """s yoke_version, s yoke_last_error, s yoke_status_name i, i yoke_status_exit_code i,
e yoke_dataset_from_arrays p p, v yoke_dataset_close p, e yoke_devices_open p p, i yoke_devices_count p,
e yoke_devices_describe p i p, v yoke_devices_close p,
i yoke_model_tensor_count p, e yoke_model_tensor p i p, yoke_shape yoke_model_input_shape p,
yoke_shape yoke_model_output_shape p, e yoke_data_parallel_forward p p b p, e yoke_data_parallel_read p s p z,
e yoke_data_parallel_write p s p z, e yoke_weights_save p p s, e yoke_weights_load p p s,
e yoke_trainer_create p p, e yoke_trainer_run p, v yoke_trainer_stop p, e yoke_trainer_evaluate p p,
e yoke_trainer_summarize p p, p yoke_trainer_engine p, p yoke_trainer_model p, v yoke_trainer_destroy p"""


class YokeError(RuntimeError):
    """A failed call. status: "YOKE_ERROR_DATA", for example. output: of the tool, what it printed."""

    def __init__(self, status, text, output=None):
        super().__init__(f"{status}: {text}")
        self.status, self.output = status, output


TYPES = {"s": ctypes.c_char_p, "p": ctypes.c_void_p, "i": ctypes.c_int, "z": ctypes.c_size_t, "u": ctypes.c_uint64,
         "d": ctypes.c_double, "b": ctypes.c_bool, "q4": ctypes.c_int64 * 4, "c32": ctypes.c_char * 32,
         "c96": ctypes.c_char * 96, "e": ctypes.c_int, "v": None}


def _mirror(name, text):
    fields, defaults = [] if name in BARE else [("struct_size", ctypes.c_size_t)], {}
    for field in text.split(", "):
        kind, _, rest = field.partition(" ")
        word, _, default = rest.partition("=")
        fields.append((word, TYPES[kind]))
        if default:
            defaults[word] = float(default) if kind == "d" else int(default)

    def __init__(self, **given):
        if name not in BARE:
            given = {"struct_size": ctypes.sizeof(self), **defaults, **given}
        ctypes.Structure.__init__(self, **given)

    TYPES[name] = type(name, (ctypes.Structure,), {"_fields_": fields, "__init__": __init__})
    return TYPES[name]


MIRRORS = {name: _mirror(name, text) for name, text in STRUCTS.items()}


def _refuse_processor(machine, cpuinfo):
    """Without AVX2, Yoke is slower; without SSE4.1, oneDNN's code ends the process."""
    flags = next((line.split() for line in cpuinfo.splitlines() if line.startswith("flags")), None)
    if machine == "x86_64" and flags and "sse4_1" not in flags:
        raise ImportError("this processor has no SSE4.1, which oneDNN needs: Yoke cannot run here")


def _explain(path, error, abi):
    if abi.endswith("musl"):
        return f"{path} was built for glibc, and this Python runs on musl: use a Python on glibc ({error})"
    return f"cannot load {path}: {error}; install what it names, or build the wheel on this machine: pip install ."


def _read(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _load():
    path = pathlib.Path(os.environ.get("YOKE_LIBRARY") or FOLDER / "libyoke.so").resolve()  # dlopen searches bare names
    _refuse_processor(platform.machine(), _read("/proc/cpuinfo"))
    if not path.is_file():
        raise ImportError(f"there is no {path}: pip install . builds it beside the module; YOKE_LIBRARY names another")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(_explain(path, error, sysconfig.get_config_var("SOABI") or "")) from None
    library.yoke_version.restype = ctypes.c_char_p
    version = library.yoke_version().decode()
    if not version.startswith(INTERFACE + "."):
        raise ImportError(f"{path} is Yoke {version}, this module needs {INTERFACE}: build both from one source")

    def check(status, _function, _arguments):
        if status:
            text = library.yoke_last_error().decode(errors="replace")
            raise YokeError(library.yoke_status_name(status).decode(), text)

    for declaration in FUNCTIONS.replace("\n", " ").split(", "):
        result, name, *parameters = declaration.split()
        function = getattr(library, name)
        function.restype = TYPES[result]
        if result == "e":
            function.errcheck = check
        function.argtypes = [TYPES[parameter] for parameter in parameters]
    return path, library


PATH, LIBRARY = _load()


def plain(struct):
    """A struct as a dict; texts as str, an accuracy or loss that there is not as None."""
    fields = {name: getattr(struct, name) for name, _ in struct._fields_ if name not in ("struct_size", "skip")}
    for name, value in fields.items():
        if isinstance(value, bytes):
            fields[name] = value.decode(errors="replace")
        if (name.endswith("accuracy") and value < 0) or (name.endswith("loss") and value != value):
            fields[name] = None
    return fields
