#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke doctor: real traces against a second computation, made-up ones of GPUs against known times, and bad input.

usage: test_doctor.py YOKE FIXTURES [unittest arguments]
"""
import functools
import gzip
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

YOKE, FIXTURES = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
TRACES = FIXTURES / "doctor"
sys.path.insert(0, str(FIXTURES))
import make_doctor_gpu_fixture as made  # noqa: E402  pylint: disable=wrong-import-position

LIMIT_S = 900
LOSSES = {"aten::cross_entropy_loss", "aten::nll_loss", "aten::nll_loss_nd"}
ANNOTATED = [(r"enumerate\(DataLoader\)#", "load"), (r"Optimizer\.(step|zero_grad)#", "update"),
             (r"DistributedDataParallel\.forward$", "forward"), (r"autograd::engine::evaluate_function:", "backward"),
             (r"torch::autograd::AccumulateGrad$", "backward"), (r"c10d::allreduce_$", "all_reduce"),
             (r"torch\.distributed\.ddp\.reducer::copy_bucket_to_grad$", "all_reduce")]


def yoke(*arguments):
    return subprocess.run([YOKE, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S, check=False)


def diagnosed(path, *arguments):
    result = yoke("doctor", path, "--json", *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@functools.cache
def folder():
    made_folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(made_folder.cleanup)
    return pathlib.Path(made_folder.name)


def written(name, content):
    path = folder() / name
    path.write_bytes(content if isinstance(content, bytes) else
                     (content if isinstance(content, str) else json.dumps(content)).encode())
    return path


def packed(path):
    return json.loads(gzip.decompress(path.read_bytes()))


def annotation(event):
    """The stage that an event's name states, or None."""
    if event["name"] in LOSSES:
        return "loss"
    return next((stage for pattern, stage in ANNOTATED if re.match(pattern, event["name"])), None)


def stage_of(moment, thread, others, backward_last, forward, optimizer_end):
    """The stage of the training thread at a moment, by the rules of docs/doctor.md; `others`: all-reduces."""
    around = [event for event in thread if event["ts"] <= moment < event["ts"] + event["dur"]]
    stated = [event for event in around if annotation(event)]
    if stated:
        inner = min(stated, key=lambda event: event["dur"])
        stage = annotation(inner)
    else:
        operations = [event for event in around if event["cat"] == "cpu_op"]
        if operations:
            begin = max(operations, key=lambda event: event["dur"])["ts"]
            if forward and begin < forward[0]:
                stage = "load"
            elif begin < backward_last:
                stage = "loss" if forward else "forward"
            else:
                stage = "update" if begin < optimizer_end else None
        else:
            stage = None
    runs = any(event["ts"] <= moment < event["ts"] + event["dur"] for event in others)
    if runs and stage in (None, "load"):
        stage = "all_reduce"
    return stage or "python", runs


def computed(trace):
    """Means over the steps of each stage in milliseconds, of all-reduces, and of those behind computation."""
    spans = [event for event in trace["traceEvents"] if event.get("ph") == "X" and event.get("dur", 0) > 0]
    marks = [event for event in spans if event["name"].startswith("ProfilerStep#")]
    others = [event for event in spans if event["name"] == "gloo:all_reduce"]
    main = marks[0]["tid"]
    sums, travel, hidden = {}, 0, 0
    for mark in marks:
        begin, end = mark["ts"], mark["ts"] + mark["dur"]
        thread = [event for event in spans if event["tid"] == main and event is not mark and event["ts"] < end and
                  event["ts"] + event["dur"] > begin]
        near = [event for event in others if event["ts"] < end and event["ts"] + event["dur"] > begin]
        backward_last = max(event["ts"] for event in thread if "evaluate_function" in event["name"])
        optimizer_end = max(event["ts"] + event["dur"] for event in thread if "Optimizer.step" in event["name"])
        forward = [event["ts"] for event in thread if event["name"] == "DistributedDataParallel.forward"]
        edges = {begin, end}
        for event in thread + near:
            edges |= {min(max(edge, begin), end) for edge in (event["ts"], event["ts"] + event["dur"])}
        edges = sorted(edges)
        for left, right in zip(edges, edges[1:]):
            stage, runs = stage_of((left + right) / 2, thread, near, backward_last, forward, optimizer_end)
            sums[stage] = sums.get(stage, 0) + right - left
            travel += runs * (right - left)
            hidden += runs * (stage in ("forward", "loss", "backward", "update")) * (right - left)
    scale = 1e-3 / len(marks)
    steps = sum(mark["dur"] for mark in marks) * scale
    return {stage: value * scale for stage, value in sums.items()}, steps, travel * scale, hidden * scale


class RealTraces(unittest.TestCase):
    def agree(self, name):
        found, (stages, step, travel, hidden) = diagnosed(TRACES / name), computed(packed(TRACES / name))
        self.assertAlmostEqual(found["step_ms"], step, delta=1e-3)
        self.assertEqual(set(found["stage_ms"]), set(stages))
        for stage, value in stages.items():
            self.assertAlmostEqual(found["stage_ms"][stage], value, delta=2e-3, msg=stage)
        self.assertAlmostEqual(sum(found["stage_ms"].values()), found["step_ms"], delta=1e-6)
        self.assertAlmostEqual(found["all_reduce_ms"], travel, delta=2e-3)
        self.assertAlmostEqual(found["hidden_ms"], hidden, delta=2e-3)
        return found

    def test_ranks_over_gloo(self):
        for rank in range(2):
            with self.subTest(rank=rank):
                found = self.agree(f"ddp-gloo-{rank}.json.gz")
                self.assertEqual((found["run"], found["backend"], found["rank"], found["mode"]),
                                 ("DistributedDataParallel", "gloo", rank, "ddp-ring"))
                self.assertGreater(found["all_reduce_ms"], 0)
                self.assertGreater(found["stage_ms"]["backward"], 0)

    def test_one_process(self):
        found = self.agree("single.json.gz")
        self.assertEqual(found["run"], "one device")
        self.assertNotIn("error", found)

    def test_bytes_and_rows_are_those_of_the_model(self):
        layers = [(128, 256), (256, 256), (256, 256), (256, 256), (256, 10)]
        parameters = sum(inputs * outputs + outputs for inputs, outputs in layers)
        for name in ("ddp-gloo-0", "single"):
            found = diagnosed(TRACES / f"{name}.json.gz")
            self.assertEqual(sum(segment["bytes"] for segment in found["segments"]), 4 * parameters)
            self.assertEqual(found["rows"], {"origin": "measured", "text": "32 on each device, of 512 bytes"})
            # Five linear ones, four ReLU; without an annotation the first gradient counts, too.
            self.assertEqual(found["layers"], 9 if found["run"] == "DistributedDataParallel" else 10)

    def test_segments_are_the_backward_before_each_all_reduce(self):
        trace = packed(TRACES / "ddp-gloo-0.json.gz")
        found = diagnosed(TRACES / "ddp-gloo-0.json.gz")
        calls = [event for event in trace["traceEvents"] if event.get("name") == "c10d::allreduce_"]
        sizes = [4 * event["args"]["Input Dims"][0][0][0] for event in sorted(calls, key=lambda event: event["ts"])]
        self.assertEqual([segment["bytes"] for segment in found["segments"]], sizes[-len(found["segments"]):])
        self.assertAlmostEqual(sum(segment["backward_ms"] for segment in found["segments"]),
                               found["stage_ms"]["backward"], delta=1e-6)

    def test_the_link_gives_the_time_of_the_all_reduces(self):
        found = diagnosed(TRACES / "ddp-gloo-0.json.gz")
        size, count = sum(segment["bytes"] for segment in found["segments"]), len(found["segments"])
        travels_ms = 2 * (count * 50e-6 * 1e3 + size / 2 / found["gigabytes_per_second"] * 1e-6)
        self.assertAlmostEqual(travels_ms, found["all_reduce_ms"], delta=1e-3)

    def test_the_error_is_that_of_the_mode_that_ran(self):
        found = diagnosed(TRACES / "ddp-gloo-0.json.gz")
        ran = next(run for run in found["runs"] if run["mode"] == found["mode"])
        self.assertAlmostEqual(found["error"], ran["step_ms"] / found["step_ms"] - 1, delta=1e-9)
        self.assertEqual(ran["speed"], 1)


class MadeUpTraces(unittest.TestCase):
    def check(self, found, truth):
        self.assertEqual(set(found["stage_ms"]), set(truth))
        for stage, value in truth.items():
            self.assertAlmostEqual(found["stage_ms"][stage], value, delta=1e-3, msg=stage)

    def test_files_are_those_of_the_script(self):
        for name, trace in {"ddp-gpu": made.ddp(), "dp-gpu": made.dp()}.items():
            self.assertEqual(packed(TRACES / f"{name}.json.gz"), trace)

    def test_ddp_over_nccl(self):
        found = diagnosed(TRACES / "ddp-gpu.json.gz")
        self.check(found, made.DDP_TRUTH_MS)
        self.assertAlmostEqual(found["all_reduce_ms"], made.DDP_TRAVEL_MS, delta=1e-6)
        self.assertAlmostEqual(found["hidden_ms"], made.DDP_HIDDEN_MS, delta=1e-6)
        self.assertEqual([segment["bytes"] for segment in found["segments"]], [4 * count for count in made.BUCKETS])
        # Eight of 20 kernels were launched before the first bucket.
        self.assertAlmostEqual(found["segments"][0]["backward_ms"], 4 * 8 / 20, delta=1e-6)
        self.assertEqual((found["simulated_devices"], found["device"]), (4, "Made-up GPU"))

    def test_data_parallel_with_copies(self):
        found = diagnosed(TRACES / "dp-gpu.json.gz")
        self.check(found, made.DP_TRUTH_MS)
        self.assertEqual((found["run"], found["mode"], found["traced_devices"]), ("nn.DataParallel", "dp-python", 2))
        self.assertAlmostEqual(found["gigabytes_per_second"], made.DP_GIGABYTES, delta=1e-6)
        self.assertEqual(sum(segment["bytes"] for segment in found["segments"]), made.DP_BYTES)
        self.assertEqual(found["layers"], 5)

    def test_data_parallel_with_nccl(self):
        found = diagnosed(written("nccl.json", made.dp(nccl=True)))
        self.check(found, made.DP_TRUTH_MS)
        self.assertEqual(found["mode"], "dp-nccl")
        self.assertAlmostEqual(found["outside_ms"], made.DP_TRUTH_MS["python"], delta=1e-6)

    def test_device_behind_the_host(self):
        """The host runs ahead by 2 ms in each step; a step is as long as the GPU needs."""
        trace = made.ddp(steps=6)
        for event in trace["traceEvents"]:
            step = math.floor((event["ts"] - made.ORIGIN_US) / made.STEP_US) if "ts" in event else 0
            if event.get("cat") in ("cpu_op", "user_annotation", "cuda_runtime") and 0 <= step < 6:
                since = event["ts"] - made.ORIGIN_US - step * made.STEP_US
                event["ts"] = round(made.ORIGIN_US + step * 8000 + since * 0.8, 3)
                event["dur"] = round(event["dur"] * 0.8, 3)
        found = diagnosed(written("ahead.json", trace))
        self.assertAlmostEqual(found["stage_ms"]["forward"], 2, delta=0.01)
        self.assertAlmostEqual(found["step_ms"], 9.75, delta=0.5)

    def test_steps_by_repetition(self):
        trace = made.ddp(steps=5)
        trace["traceEvents"] = [event for event in trace["traceEvents"] if "ProfilerStep" not in event["name"]]
        found = diagnosed(written("unmarked.json", trace))
        self.assertEqual((found["steps"], found["steps_from"]), (4, "the optimizer's steps"))
        trace["traceEvents"] = [event for event in trace["traceEvents"] if "Optimizer" not in event["name"]]
        found = diagnosed(written("forwards.json", trace))
        self.assertEqual((found["steps"], found["steps_from"]), (4, "forward"))

    def test_old_names(self):
        """PyTorch 1.8 to 1.13: other categories, and NCCL's old kernels."""
        text = json.dumps(made.ddp())
        for new, old in {'"cpu_op"': '"Operator"', '"user_annotation"': '"Operator"', '"cuda_runtime"': '"Runtime"',
                         '"kernel"': '"Kernel"', '"gpu_memcpy"': '"Memcpy"',
                         "ncclDevKernel_AllReduce_Sum_f32_RING_LL": "ncclAllReduceRingLLKernel_sum_f32"}.items():
            text = text.replace(new, old)
        self.check(diagnosed(written("old.json", text)), made.DDP_TRUTH_MS)

    def test_without_bytes(self):
        trace = made.ddp()
        for event in trace["traceEvents"]:
            event.get("args", {}).pop("In msg nelems", None)
            event.get("args", {}).pop("Input Dims", None)
        path = written("bare.json", trace)
        found = diagnosed(path)
        self.assertEqual((found["runs"], found["bytes"]), ([], {"origin": "assumed", "text": "unknown"}))
        self.assertTrue(any("--parameters" in note for note in found["notes"]))
        result = yoke("doctor", path, "--profile", folder() / "none.json")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--parameters", result.stderr)
        self.assertFalse((folder() / "none.json").exists())
        found = diagnosed(path, "--parameters", 5_000_000)
        self.assertEqual(found["bytes"]["origin"], "stated")
        self.assertEqual(sum(segment["bytes"] for segment in found["segments"]), 20_000_000)
        self.assertEqual(diagnosed(path, "--bytes", 20_000_000)["runs"], found["runs"])
        # As many bytes and buckets as the trace had: the time of its all-reduces gives the same link.
        self.assertEqual(found["gigabytes_per_second"], diagnosed(TRACES / "ddp-gpu.json.gz")["gigabytes_per_second"])
        self.assertEqual(found["link"]["origin"], "measured")

    def test_data_parallel_of_one_gpu(self):
        trace = made.dp()
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event["pid"] != 1]
        found = diagnosed(written("one.json", trace))
        self.assertEqual((found["run"], found["traced_devices"]), ("one device", 1))
        self.assertTrue(any("one device" in note for note in found["notes"]))

    def test_ranks_without_a_wrapper(self):
        text = json.dumps(made.ddp()).replace("DistributedDataParallel.forward", "my_forward")
        found = diagnosed(written("wrapper.json", text))
        self.assertEqual(found["run"], "DistributedDataParallel")
        self.assertTrue(any("taken for DDP" in note for note in found["notes"]))

    def test_sharded_data_parallel_is_not_simulated(self):
        text = json.dumps(made.ddp()).replace("DistributedDataParallel.forward", "FullyShardedDataParallel.forward")
        found = diagnosed(written("fsdp.json", text))
        self.assertNotIn("error", found)
        self.assertTrue(any("FSDP" in note for note in found["notes"]))
        text = json.dumps(made.ddp()).replace("DistributedDataParallel.forward", "FSDP::pre_forward (layers.0)")
        self.assertNotIn("error", diagnosed(written("fsdp2.json", text)))


class Options(unittest.TestCase):
    def test_the_profile_simulates_to_the_same_step(self):
        path = folder() / "profile.json"
        found = diagnosed(TRACES / "ddp-gpu.json.gz", "--profile", path, "--link", "5,10")
        result = yoke("simulate", path, "--devices", 4, "--mode", "ddp-ring", "--link", "5,10", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        ran = next(run for run in found["runs"] if run["mode"] == "ddp-ring")
        self.assertAlmostEqual(json.loads(result.stdout)["runs"][0]["step_ms"], ran["step_ms"], delta=1e-5)
        self.assertEqual(found["link"]["origin"], "stated")

    def test_the_result_is_printed_before_a_profile_that_cannot_be_written(self):
        result = yoke("doctor", TRACES / "ddp-gpu.json.gz", "--profile", folder())
        self.assertEqual(result.returncode, 74)
        self.assertIn("ran: 10.000 ms measured", result.stdout)

    def test_devices_and_rows(self):
        found = diagnosed(TRACES / "single.json.gz", "--devices", 8, "--rows", 7)
        self.assertEqual((found["simulated_devices"], found["devices"]["origin"]), (8, "stated"))
        self.assertEqual(found["rows"], {"origin": "stated", "text": "7 on each device"})

    def test_the_table(self):
        result = yoke("doctor", TRACES / "dp-gpu.json.gz")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for words in ("backward            2.000  20.0 %", "ran: 10.000 ms measured, error", "measured, on the root",
                      "link     measured", "Python   assumed", "would be"):
            self.assertIn(words, result.stdout)

    def test_the_page_shows_what_is_printed(self):
        page = (FIXTURES.parents[1] / "docs" / "doctor.md").read_text(encoding="utf-8")
        shown = re.search(r"\$ yoke doctor tests/fixtures/doctor/(\S+)\n(.*?)```", page, re.DOTALL)
        self.assertEqual(yoke("doctor", TRACES / shown[1]).stdout, shown[2])

    def test_refusals(self):
        trace = TRACES / "single.json.gz"
        for words, code, text in [([], 2, "doctor takes one TRACE"), ([trace, trace], 2, "doctor takes one TRACE"),
                                  ([trace, "--bytes", 4, "--parameters", 1], 2, "say the same"),
                                  ([trace, "--link", "warp"], 2, "warp"), ([trace, "--devices", 1], 2, "--devices"),
                                  ([trace, "--profile", trace], 2, "--profile"), (["/no/such"], 66, "/no/such"),
                                  ([folder()], 74, "folder")]:
            with self.subTest(words=words):
                result = yoke("doctor", *words)
                self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
                self.assertIn(text, result.stderr)


    def test_a_pipe(self):
        told = {}
        for name, command in (("file", '"$0" doctor "$1" --json'), ("plain", '"$0" doctor <(zcat "$1") --json'),
                              ("packed", '"$0" doctor <(cat "$1") --json')):
            result = subprocess.run(["bash", "-c", command, YOKE, TRACES / "single.json.gz"], capture_output=True, text=True,
                                    timeout=LIMIT_S, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            told[name] = json.loads(result.stdout)
        for found in told.values():
            del found["trace"]
        self.assertEqual(told["plain"], told["file"])
        self.assertEqual(told["packed"], told["file"])


class BadFiles(unittest.TestCase):
    def refused(self, name, content, *words):
        result = yoke("doctor", written(name, content))
        self.assertEqual((result.returncode, result.stdout), (65, ""), result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_no_trace(self):
        self.refused("empty.json", b"", "empty", "export_chrome_trace")
        self.refused("text.json", b"PyTorch", "no JSON")
        self.refused("object.json", b"{}", "no events")
        self.refused("bare.json", b"[]", "no events")
        self.refused("broken.json", b'{"traceEvents": [1]}', "no events", "damaged")
        self.refused("steps.json", {"schemaVersion": 1, "traceEvents": [
            {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}, "without steps",
            "prof.step()")

    def test_other_tools(self):
        span = {"ph": "X", "cat": "toplevel", "name": "task", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2}
        self.refused("chrome.json", {"traceEvents": [span]}, "another tool", "none of PyTorch's")
        self.refused("array.json", [span], "another tool")
        self.refused("devtools.json", {"metadata": {"source": "DevTools"}, "traceEvents": [span]}, "Chrome's own")
        self.refused("nsys.json", b'{"Type": 48, "NvtxEvent": {"Text": "step"}}\n{"Type": 79}\n', "Nsight")
        self.refused("perf.json", {"linux-perf-json-version": 1, "samples": []}, "perf")
        self.refused("perf.data", b"PERFILE2" + bytes(64), "perf")
        self.refused("nsys.sqlite", b"SQLite format 3\0" + bytes(64), "SQLite")
        self.refused("profile.json", {"yoke_profile": 1}, "yoke simulate")
        self.refused("program", pathlib.Path(YOKE).read_bytes()[:4096], "a program")

    def test_our_own(self):
        path = folder() / "own.json"
        result = yoke("train", "--model", "mlp", "--dataset", "synthetic:1x8x8", "--steps", 2, "--devices", "cpu",
                      "--trace", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        result = yoke("doctor", path)
        self.assertEqual(result.returncode, 65)
        self.assertIn("yoke report", result.stderr)

    def test_cut_short(self):
        plain = gzip.decompress((TRACES / "ddp-gpu.json.gz").read_bytes())
        whole = diagnosed(written("whole.json", plain))
        for part in (0.5, 0.7, 0.9):
            found = diagnosed(written("cut.json", plain[:int(len(plain) * part)]))
            self.assertRegex(found["cut"], "cut short at byte [0-9]+")
            self.assertLess(found["events"], whole["events"])
        self.assertNotIn("cut", whole)
        packed_bytes = (TRACES / "ddp-gpu.json.gz").read_bytes()
        found = diagnosed(written("cut.json.gz", packed_bytes[:len(packed_bytes) * 2 // 3]))
        self.assertIn("cut", found)
        damaged = bytearray(packed_bytes)
        damaged[len(damaged) * 2 // 3:] = bytes(len(damaged) - len(damaged) * 2 // 3)
        self.assertIn("cut", diagnosed(written("damaged.json.gz", bytes(damaged))))

    def test_hostile_names(self):
        trace = made.ddp()
        trace["deviceProperties"][0]["name"] = "\x1b[31m</script>\u202egpu"
        trace["traceEvents"].insert(0, {"ph": "X", "cat": "cpu_op", "name": "\x1b]0;\u202e" * 99, "pid": -5, "tid": "x",
                                        "ts": "soon", "dur": -1})
        result = yoke("doctor", written("hostile.json", trace))
        self.assertEqual(result.returncode, 65)  # a time that is none is damage at the first event
        self.assertIn("event 1 is damaged", result.stderr)
        del trace["traceEvents"][0]
        path = written("hostile\u202e.json", trace)
        for result in (yoke("doctor", path), yoke("doctor", path, "--json")):
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn("\x1b", result.stdout)
            self.assertNotIn("\u202e", result.stdout)
            self.assertIn("u001b[31m</script>", result.stdout)

    def test_huge_numbers(self):
        for key, value in [("ts", 10 ** 30), ("ts", -1), ("dur", -1), ("dur", "1e9"), ("ts", 4 * 10 ** 15)]:
            trace = made.ddp()
            trace["traceEvents"][30][key] = value
            result = yoke("doctor", written("huge.json", trace))
            self.assertIn(result.returncode, (0, 65), result.stderr)
        trace = made.ddp()
        for event in trace["traceEvents"]:
            if "In msg nelems" in event.get("args", {}):
                event["args"]["In msg nelems"] = 10 ** 18
                event["name"] = "ncclDevKernel_Generic"
        found = diagnosed(written("elements.json", trace))  # the calls tell the bytes
        self.assertEqual([segment["bytes"] for segment in found["segments"]], [4 * count for count in made.BUCKETS])


class LargeFiles(unittest.TestCase):
    def test_large(self):
        """The memory is that of the kept spans, 48 bytes each and their parts, not that of the file."""
        path, size = folder() / "large.json", 0
        block = made.ddp(steps=1)["traceEvents"]
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 4}, '
                       '"traceEvents": [')
            step = 0
            while size < 320 << 20:
                events = [dict(event, ts=round(event["ts"] + step * made.STEP_US, 3)) if "ts" in event else event
                          for event in block]
                for event in events:
                    if "correlation" in event.get("args", {}):
                        event["args"] = dict(event["args"], correlation=event["args"]["correlation"] + 1000 * step)
                size += file.write(("," if step else "") + json.dumps(events, indent=1)[1:-1])
                step += 1
            file.write("]}")
        result = subprocess.run(["/usr/bin/time", "-f", "%M %e", YOKE, "doctor", path, "--json"], capture_output=True,
                                text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        found, (kilobytes, seconds) = json.loads(result.stdout), map(float, result.stderr.split())
        print(f"{size / 2 ** 20:.0f} MiB, {found['spans']} of {found['events']} events kept: {seconds:.1f} s, "
              f"{kilobytes / 1024:.0f} MiB")
        self.assertEqual(found["steps"], step)
        self.assertAlmostEqual(found["stage_ms"]["backward"], 4, delta=1e-3)
        self.assertLess(kilobytes * 1024, 32 * 2 ** 20 + 300 * found["spans"])


if __name__ == "__main__":
    unittest.main()
