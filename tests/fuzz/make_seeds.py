#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes seeds for the fuzz targets: small valid inputs, and some that are almost valid.

usage: make_seeds.py FOLDER
"""
import gzip
import itertools
import json
import pathlib
import random
import struct
import sys

FACTS = {"format": "pt", "yoke.format": "1", "yoke.version": "0.1.0", "xxh3.header": "0" * 16, "step": "12", "epoch": "1",
         "epoch_batches": "4", "batches_tracked": "12", "best": "0.5", "config.model": "tiny for 2x1x1",
         "config.seed": "0", "config.batch": "1", "config.optimizer": "sgd", "config.momentum": "0.9",
         "xxh3.fc.weight": "2d06800538d394c2", "xxh3.fc.bias": "2d06800538d394c2",
         "xxh3.optimizer.fc.weight.momentum_buffer": "2d06800538d394c2"}
TINY = [("fc.weight", "F32", [2, 2]), ("fc.bias", "F32", [2]), ("optimizer.fc.weight.momentum_buffer", "F32", [2, 2]),
        ("optimizer.fc.bias.momentum_buffer", "F32", [2])]
LAYERS = [("conv.weight", "F32", [2, 2, 1, 1]), ("conv.bias", "F32", [2]), ("bn.weight", "F32", [2]), ("bn.bias", "F32", [2]),
          ("bn.running_mean", "F32", [2]), ("bn.running_var", "F32", [2]), ("bn.num_batches_tracked", "I64", []),
          ("fc.weight", "F32", [2, 8]), ("fc.bias", "F32", [2])]
BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}


def doctor_traces():
    """Two steps of PyTorch: of a CPU over gloo, and of two GPUs."""
    def span(category, name, begin, length, process=9, thread=9, **arguments):
        return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": begin, "dur": length,
                "args": arguments}
    host, devices = [], []
    for step in range(2):
        at = 100 * step
        host += [span("user_annotation", f"ProfilerStep#{step}", at, 100), span("cpu_op", "aten::linear", at + 5, 20, **{
                     "Input Dims": [[2, 3], [4, 3], []], "Input type": ["float", "float", ""]}),
                 span("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", at + 30, 20),
                 span("cpu_op", "torch::autograd::AccumulateGrad", at + 45, 4, **{"Input Dims": [[4, 3]]}),
                 span("user_annotation", "Optimizer.step#SGD.step", at + 70, 10)]
        devices += [span("cuda_runtime", "cudaLaunchKernel", at + 6, 1, correlation=step + 1),
                    span("kernel", "gemm", at + 10, 30, step % 2, 7, device=step % 2, correlation=step + 1),
                    span("gpu_memcpy", "Memcpy PtoP (Device -> Device)", at + 40, 9, 0, 7, device=0, bytes=9999),
                    span("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 31, 9, 0, 8, **{
                        "In msg nelems": 12, "dtype": "Float", "Group size": 2})]
    gloo = [span("user_annotation", "gloo:all_reduce", 52, 15, 9, 10, **{"Input Dims": [[12]], "Input type": ["float"]}),
            span("user_annotation", "DistributedDataParallel.forward", 4, 22),
            span("cpu_op", "c10d::allreduce_", 46, 2, **{"Input Dims": [[[12]], []], "Input type": ["TensorList", ""]})]
    whole = {"schemaVersion": 1, "deviceProperties": [{"name": "x"}], "distributedInfo": {"rank": 0, "world_size": 2}}
    yield json.dumps(dict(whole, traceEvents=host + gloo))
    yield json.dumps(dict(whole, traceEvents=host + devices + [span("user_annotation", "DataParallel.forward", 4, 22)]))
    yield json.dumps(host)[:-40]
    yield '{"otherData": {"program": "yoke"}}'


def safetensors(tensors, metadata=None, header=None):
    table, end = ({"__metadata__": metadata} if metadata else {}), 0
    for name, dtype, shape in tensors:
        size = BYTES[dtype]
        for extent in shape:
            size *= extent
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = (header or json.dumps(table, separators=(",", ":"))).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(i % 64 for i in range(end))


def frame(kind, body, sequence=1, version=2):
    return b"YOKE" + struct.pack(">HHII", version, kind, sequence, len(body)) + body


def pieces(data, sender):
    """For the keeper: each piece behind a byte with its length and who sends it."""
    parts = [data[i:i + 24] for i in range(0, len(data), 24)]
    return b"".join(bytes([(len(part) - 1) * 2 + sender]) + part for part in parts)


def field(number, value):
    """One field of protobuf: a whole number, or bytes and texts with their length."""
    def varint(number):
        number &= (1 << 64) - 1
        made = b""
        while number > 127:
            made, number = made + bytes([number % 128 + 128]), number // 128
        return made + bytes([number])
    if isinstance(value, int):
        return varint(number * 8) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number * 8 + 2) + varint(len(value)) + value


def onnx_tensor(name, sizes, kind=1, values=None):
    count = 1
    for size in sizes:
        count *= size
    data = struct.pack(f"<{count}f", *(i % 5 / 8 for i in range(count))) if kind == 1 else struct.pack(f"<{len(values)}q", *values)
    return b"".join(field(1, size) for size in sizes) + field(2, kind) + field(8, name) + field(9, data)


def onnx_node(kind, inputs, outputs, **attributes):
    made = b"".join(field(1, name) for name in inputs) + b"".join(field(2, name) for name in outputs) + field(4, kind)
    for name, value in attributes.items():
        values = b"".join(field(8, one) for one in value) + field(20, 7) if isinstance(value, (list, tuple)) else \
            field(4, value) + field(20, 3) if isinstance(value, str) else field(3, value) + field(20, 2)
        made += field(5, field(1, name) + values)
    return field(1, made)


def onnx_value(name, sizes, kind=1):
    dims = b"".join(field(1, field(1, size) if isinstance(size, int) else field(2, size)) for size in sizes)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def onnx_model(sizes, nodes, tensors, kind=1, opset=17):
    graph = b"".join(nodes) + b"".join(field(5, tensor) for tensor in tensors)
    graph += field(11, onnx_value("x", sizes, kind)) + field(12, onnx_value("y", ["N"]))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, opset))


def onnx_seeds():
    node, reals = onnx_node, onnx_tensor
    whole = lambda name, *values: onnx_tensor(name, [len(values)], 7, values)  # noqa: E731
    image = [node("Conv", ["x", "c.weight", "c.bias"], ["a"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
             node("BatchNormalization", ["a", "b.weight", "b.bias", "b.running_mean", "b.running_var"], ["b"]),
             node("Relu", ["b"], ["c"]), node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
             node("Flatten", ["d"], ["e"]), node("Gemm", ["e", "fc.weight", "fc.bias"], ["y"], transB=1)]
    norm = [reals(f"b.{word}", [2]) for word in ("weight", "bias", "running_mean", "running_var")]
    yield onnx_model(["N", 1, 4, 4], image, [reals("c.weight", [2, 1, 3, 3]), reals("c.bias", [2]), *norm,
                                              reals("fc.weight", [3, 8]), reals("fc.bias", [3])])
    text = [node("Gather", ["e.weight", "x"], ["a"]), node("LayerNormalization", ["a", "n.weight", "n.bias"], ["b"], axis=-1),
            node("MatMul", ["b", "onnx::MatMul_7"], ["c"]), node("Add", ["c", "q.bias"], ["d"]),
            node("Shape", ["d"], ["s"]), node("Slice", ["s", "zero", "one"], ["t"]),
            node("Concat", ["t", "tail"], ["u"], axis=0), node("Reshape", ["d", "u"], ["f"]),
            node("Transpose", ["f"], ["g"], perm=[0, 2, 1, 3]), node("Softmax", ["g"], ["h"]),
            node("ReduceMean", ["h"], ["i"], axes=[1, 2], keepdims=0), node("MatMul", ["i", "p.weight"], ["y"])]
    yield onnx_model(["N", 6], text, [reals("e.weight", [5, 4]), reals("n.weight", [4]), reals("n.bias", [4]),
                                      reals("onnx::MatMul_7", [4, 4]), reals("q.bias", [4]), whole("zero", 0), whole("one", 1),
                                      whole("tail", 6, 2, 2), reals("p.weight", [2, 3])], kind=7)
    cell = [node("Transpose", ["x"], ["a"], perm=[1, 0, 2]),
            node("LSTM", ["a", "w", "r", "b"], ["c", "d"], hidden_size=2), node("Squeeze", ["d", "zero"], ["e"]),
            node("Split", ["e"], ["f", "g"], axis=1), node("Concat", ["g", "f"], ["h"], axis=1),
            node("Expand", ["k", "sizes"], ["l"]), node("Add", ["h", "l"], ["m"]), node("Gemm", ["m", "v"], ["y"])]
    yield onnx_model(["N", 5, 3], cell, [reals("w", [1, 8, 3]), reals("r", [1, 8, 2]), reals("b", [1, 16]), whole("zero", 0),
                                         reals("k", [1, 2]), whole("sizes", 1, 2), reals("v", [2, 2])])
    moves = [node("Pad", ["x", "pads"], ["a"]), node("Slice", ["a", "one", "four", "axes", "two"], ["b"]),
             node("Gather", ["b", "ids"], ["c"], axis=1), node("Tile", ["c", "times"], ["d"]),
             node("Resize", ["d", "", "", "sizes"], ["e"], mode="nearest", coordinate_transformation_mode="asymmetric",
                  nearest_mode="floor"), node("InstanceNormalization", ["e", "s", "t"], ["f"]),
             node("Where", ["mask", "f", "low"], ["g"]), node("GlobalAveragePool", ["g"], ["h"]), node("Flatten", ["h"], ["y"])]
    yield onnx_model([2, 2, 4, 4], moves, [whole("pads", 0, 0, 1, 1, 0, 0, 1, 1), whole("one", 1), whole("four", 5),
                                           whole("axes", 2), whole("two", 2), whole("ids", 1, 0), whole("times", 1, 2, 1, 1),
                                           whole("sizes", 2, 4, 4, 12), reals("s", [4]), reals("t", [4]), whole("mask", 1),
                                           reals("low", [1])])


def idx(kind, *extents):
    count = 1
    for extent in extents:
        count *= extent
    return struct.pack(">I", 0x800 + kind) + b"".join(struct.pack(">I", e) for e in extents) + bytes(count)


def seeds():
    every_type = [(f"t{i}", dtype, [i % 3, 1]) for i, dtype in enumerate(BYTES)]
    files = [safetensors([]), safetensors(TINY), safetensors(every_type), safetensors(TINY, FACTS),
             safetensors([("n", "I64", [])], {"format": "pt"}),
             safetensors([], header='{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}'),
             safetensors(TINY, {"a\\\"b\u00e4": "\U0001f600"}), b"", b"\0" * 8, b"\xff" * 16]
    yield from (("safetensors", file) for file in files)
    yield from (("checkpoint", file) for file in [safetensors(TINY, FACTS), safetensors(TINY[:2], FACTS), files[1],
                                                  safetensors(TINY, dict(FACTS, **{"config.batch": "2"})),
                                                  safetensors(TINY, dict(FACTS, **{"yoke.format": "2"}))])
    event = {"ph": "X", "name": "step", "pid": 1, "tid": 0, "ts": 1.0, "dur": 9.5, "args": {"step": 0, "bytes": 1}}
    spans = [event, dict(event, name="forward", dur=4), dict(event, name="wait", ts=5, dur=2, tid=1),
             {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "</script><b>\u202e\u2028"}},
             {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "cpu:0 \u00b7 link"}},
             dict(event, name="reduce", dur=3, tid=2)]
    line = {"step": 1, "epoch": 1, "train_loss": 2.5, "lr": 0.05, "rows": 64, "step_ms": 56.0}
    for text in [json.dumps({"displayTimeUnit": "ms", "traceEvents": spans}), json.dumps(spans), "[", "{}",
                 json.dumps(line) + "\n" + json.dumps(dict(line, step=2, loss=None)) + "\n" +
                 json.dumps({"step": 2, "epoch": 1, "test_loss": 2, "test_accuracy": 0.5, "rows": 9}) + "\n"]:
        yield "report", text.encode()
    profile = {"yoke_profile": 1, "model": "m", "device": "d", "precision": "float32", "source": "s", "rows": 2, "layers": 3,
               "input_bytes": 64, "output_bytes": 8, "host_ms": 0.1, "forward_ms": 2.5, "loss_ms": 0, "update_ns_per_byte": 1,
               "segments": [{"backward_ms": 3, "bytes": 4096}, {"backward_ms": 1e3, "bytes": 10000000000}]}
    short = dict(profile, rows=1, output_bytes=1)
    for text in [json.dumps(profile), json.dumps(short), json.dumps(profile)[:-9]]:
        yield "profile", text.encode()
    yield from (("doctor", text.encode()) for text in doctor_traces())
    for text in ["", "conv 3x3 forward\t1\tdirect\t0.25\n", "a\t0\tb\t1\nc\t-1\td\tnan\n", "a\t1\n", "\t\t\t\n\n",
                 "yoke choices 1\n", "yoke choices 1\nm\t1\t0.5\tname\tkey\nother\t2\t1e3\tname\tkey\n"]:
        yield "algorithms", text.encode()
    for body in [frame(4, b"key\0value"), frame(7, b"sum\0" + struct.pack(">q", -3)), frame(5, b"key\0") + frame(6, b"key\0"),
                 frame(1, bytes(32)), frame(4, b"no end"), b"tcp://host:1234", b"tcp://[::1]:99999", b"4(x2),3",
                 b"gpu[03-05,9],head", b"1(x", b"2(x99999999999)"]:
        yield "rendezvous", body
    strangers = frame(4, b"key\0value") + frame(6, b"key\0") + frame(7, b"sum\0" + struct.pack(">q", -3)) + \
        frame(5, b"later\0")
    for first in range(8):  # which connections have passed the handshake, and whether there is a token
        yield "keeper", bytes([first]) + pieces(strangers, 0) + pieces(frame(4, b"later\0x"), 1)
        yield "keeper", bytes([first]) + pieces(frame(2, bytes(64) + b"run1"), 1) + pieces(strangers[:30], 0)
    answers = [frame(8, b"", 1), frame(8, struct.pack(">q", 3), 2), frame(8, b"value", 3), frame(9, b"", 3)]
    for body in [b"\1" + frame(1, bytes(32)) + frame(3, bytes(32), 1), b"\1" + frame(1, bytes(32)) + frame(10, b"why", 1),
                 b"\1" + frame(10, b""), b"\0" + b"".join(answers[:3]) + frame(8, bytes(80), 4), b"\0" + b"".join(answers),
                 b"\0" + frame(10, b"no", 1) + answers[1] + answers[3] + frame(8, b"late", 2) + frame(8, b"it", 4), b"\0"]:
        yield "client", body
    yield from (("weights", file) for file in [
        safetensors(LAYERS), safetensors(LAYERS[2:], {"yoke.model": "mlp", "yoke.classes": "2", "yoke.class_names": '["a","b"]'}),
        safetensors([(f"module.{name}", dtype, shape) for name, dtype, shape in LAYERS] + [("more", "U8", [3])]),
        safetensors([(name, "BF16", shape) for name, _, shape in LAYERS[:-1]] + LAYERS[-1:]), files[1]])
    said = {"yoke.classes": "2", "yoke.mean": "[0.5]", "yoke.deviation": "[0.25]"}
    small = [(f"fc{i}.{name}", "F32", shape) for i, inputs, outputs in ((1, 192, 4), (2, 4, 4), (3, 4, 2))
             for name, shape in (("weight", [outputs, inputs]), ("bias", [outputs]))]
    for model, tensors in [("mlp:width=4", small), ("mlp:width=50000", []), ("mlp:width=4,dropout=0.5", small[2:]),
                           ("resnet50", small), ("vgg11_bn:hidden=1000000", []), ("vit_tiny:layers=1000", [])]:
        yield "predict", safetensors(tensors, {**said, "yoke.model": model, "yoke.input": "[3,8,8]"})
    yield "predict", safetensors(small, {**said, "yoke.model": "resnet20", "yoke.input": "[3,1024,1024]"})
    for kind, texts in enumerate([
            ["synthetic", "synthetic:1x8x8,classes=3,rows=9", "csv:a.csv,label=y,ignore=b,validation=0.2", "npz:a,x=X,y=Y",
             "npy:X.npy,Y.npy,channels=first", "images:d,size=32,resize=40", "text:t,tokens=8", "mnist:d", "cifar10:d"],
            ["auto", "4xcpu", "cpu,cpu", "2xcuda:0", "cpu:0,cpu:1", "65xcpu"],
            ["resnet20", "mlp:width=8,dropout=0.5", "gpt2:layers=1,heads=1,width=8", "vit_tiny:patch=8", "vgg11_bn", "resnet2"],
            ["*.bias,layer1.*", "layer[1-3].?.conv*", "", "*,*"], ["pcie3", "12.5,3,bridge", "nvlink4,switch", "1e3,0"],
            ["12", "-1.5e3", "0x10", "nan", " 7", "999999999999999999999"]]):
        yield from (("specs", bytes([kind]) + text.encode()) for text in texts)
    for names in [["YOKE_RANK=1", "YOKE_WORLD_SIZE=4", "YOKE_LOCAL_RANK=1", "YOKE_LOCAL_WORLD_SIZE=2", "YOKE_NODE_RANK=0",
                   "YOKE_NODES=2", "YOKE_MASTER_ADDR=h", "YOKE_MASTER_PORT=29500", "YOKE_RUN_ID=r"],
                  ["RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=::1", "MASTER_PORT=1", "GROUP_RANK=0"],
                  ["OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", "PMIX_NAMESPACE=n"], ["PMI_RANK=1", "PMI_SIZE=2"],
                  ["SLURM_STEP_NUM_TASKS=7", "SLURM_PROCID=5", "SLURM_LOCALID=1", "SLURM_NODEID=1", "SLURM_NTASKS=7",
                   "SLURM_STEP_TASKS_PER_NODE=4,3", "SLURM_STEP_NODELIST=gpu[03-05,9],head", "SLURM_JOB_ID=1",
                   "SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=2", "SLURM_JOB_NODELIST=a[1-2]"],
                  ["PMIX_RANK=0", "SLURM_STEP_NUM_TASKS=1"], ["FLUX_TASK_RANK=0", "FLUX_JOB_SIZE=1", "FLUX_JOB_NNODES=1"],
                  ["PALS_RANKID=0", "PMI_SIZE=1"], ["JSM_NAMESPACE_RANK=0", "JSM_NAMESPACE_SIZE=1"], ["RANK=1"]]:
        yield "launch", "\n".join(names).encode()
    for words in [["train", "--lr", "0.1", "--epochs=3", "--nesterov", "--group", "a.*:lr=0.1,decay=0;b:lr=2"],
                  ["train", "--batch", "-1", "--class-weights", "1,0.5,2"], ["train", "--checkpoint_every=5m", "10s"],
                  ["launch", "--nproc-per-node", "2", "--", "train", "--mode", "ddp"], ["bench", "--json", "--straggler", "1:2"],
                  ["compare", "--lr-find", "--link=12.5,3"], ["help", "train"], ["predict", "a", "b", "--top", "3"], ["verify", "-h"],
                  ["simulate", "--", "--x"], ["train", "--lr-find", "--color-jitter", "0.4,0.4,0.4,0.1"], ["checkpoint", "show", "x"]]:
        yield "command", "\n".join(words).encode()
    for image in sorted((pathlib.Path(__file__).parent.parent / "fixtures/images").iterdir()):
        yield "image", image.read_bytes()
    for side, parts, scans in (13000, 3, 10), (600, 1, 3000):  # each empty scan walks over the whole picture
        frame_of = struct.pack(">HHBHHB", 0xffc2, 8 + 3 * parts, 8, side, side, parts) + b"".join(
            bytes([part + 1, 0x11, 0]) for part in range(parts))
        scan = struct.pack(">HHB", 0xffda, 6 + 2 * parts, parts) + b"".join(bytes([part + 1, 0]) for part in range(parts)) + bytes(3)
        yield "image", b"\xff\xd8\xff\xdb\0C\0" + b"\1" * 64 + frame_of + b"\xff\xc4\0\x14\0\1" + bytes(16) + scan * scans + b"\xff\xd9"
    for array in sorted((pathlib.Path(__file__).parent.parent / "fixtures/arrays").glob("*.np[yz]")):
        yield "npy", array.read_bytes()
    for text in ["x,y\n1,a\n2,b\n3,a\n4,b\n", "\ufeffy,x,z\r\n\"1\",2,-3e4\r\n\"07\",\" 5 \",.5\r\n", "x,y\n1\n", "x,y\n\"a",
                 "x,y\n\"1\"\"\n,\",b\n\n 2 ,\t-0.0\n", "1,2\n", "x;y\n", "y,y\n1,1\n"]:
        yield "csv", text.encode()
    for kind, body in enumerate([idx(3, 2, 2, 2), idx(1, 1), gzip.compress(idx(3, 1, 2, 2), mtime=0), bytes(3073),
                                 bytes([1, 2]) + bytes(3072)]):
        yield "dataset", bytes([kind]) + body
        yield "dataset", bytes([kind]) + body[:-1]
        yield "dataset", bytes([kind]) + body + b"\x09"


def graphs():
    """Any bytes are a graph; of these many are valid."""
    numbers = random.Random(1)
    for _ in range(60):
        shape = [numbers.randint(0, 1), *(numbers.randint(1, 4) for _ in range(3)), numbers.randint(0, 2)]
        yield "graph", bytes(shape + [numbers.randint(0, 255) for _ in range(numbers.randint(8, 90))])


def main():
    counts = {}
    for target, data in itertools.chain(seeds(), graphs(), (("onnx", data) for data in onnx_seeds())):
        folder = pathlib.Path(sys.argv[1]) / target
        folder.mkdir(parents=True, exist_ok=True)
        counts[target] = counts.get(target, 0) + 1
        (folder / f"{counts[target]:02}").write_bytes(data)


if __name__ == "__main__":
    main()
