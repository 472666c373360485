#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke verify as users and scripts run it: equal modes, planted differences, mistakes.

usage: test_verify.py YOKE [unittest arguments]
"""
import functools
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from launch_case import LIMIT_S, YOKE, environment

SMALL = ["--model", "mlp:width=512", "--dataset", "synthetic:1x8x8,classes=3,rows=40", "--batch", "9", "--threads", "1",
         "--steps", "3"]
NORMALIZED = ["--model", "resnet20", "--dataset", "synthetic:3x8x8,classes=3,rows=40"]


def verify(*arguments, env=None):
    return subprocess.run([YOKE, "verify", *SMALL, *arguments], capture_output=True, text=True, timeout=LIMIT_S,
                          check=False, env=environment(env))


@functools.cache
def told(*arguments):
    """What --json says; one run serves several tests."""
    result = verify("--json", "--quiet", *arguments)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr + result.stdout
    return json.loads(result.stdout)


@functools.cache
def recorded(*arguments):
    """The bytes of a recorded run."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.safetensors")
        result = verify("--devices", "cpu", "--reference", "no", "--record", path, *arguments)
        assert (result.returncode, result.stderr) == (0, ""), result.stderr
        return pathlib.Path(path).read_bytes()


def pairs_of(result):
    return {(pair["mode"], pair["with"]): pair for pair in result["pairs"]}


class Modes(unittest.TestCase):
    def test_as_many_devices_agree_bit_for_bit_and_others_to_rounding(self):
        result = told("--devices", "3xcpu")
        pairs = pairs_of(result)
        self.assertTrue(result["passes"])
        self.assertEqual(set(pairs), {("single", "reference"), ("classic", "single"), ("overlap", "classic"),
                                      ("sharded", "classic"), ("ddp", "classic")})
        for names, pair in pairs.items():
            with self.subTest(names=names):
                bits = names[1] == "classic"
                self.assertEqual(pair["must_agree_by"], "bits" if bits else "tolerance")
                self.assertEqual(pair["steps"], 3)
                self.assertLess(pair["relative"], 1e-5)
                self.assertEqual(pair["equal_steps"] == 3, bits)
                self.assertEqual("first" in pair, not bits)

    def test_batch_norm_gives_several_devices_a_reference_of_their_own(self):
        pairs = pairs_of(told(*NORMALIZED, "--devices", "2xcpu"))
        self.assertEqual(pairs["classic", "single"]["must_agree_by"], "nothing")
        self.assertGreater(pairs["classic", "single"]["relative"], 1e-3)
        for mode in ("single", "classic"):  # a ReLU that switches moves a gradient by percents
            self.assertLess(pairs[mode, "reference"]["relative"], 0.1)
        self.assertEqual(pairs["ddp", "classic"]["equal_steps"], 3)

    def test_with_shards_one_device_and_several_agree_bit_for_bit(self):
        pairs = pairs_of(told(*NORMALIZED, "--devices", "2xcpu", "--shards", "4"))
        for pair, told_of in pairs.items():
            self.assertEqual(told_of["equal_steps"] == 3, "reference" not in pair, pair)
        self.assertEqual(pairs["classic", "single"]["must_agree_by"], "bits")

    def test_adamw_agrees_too(self):
        pairs = pairs_of(told("--optimizer", "adamw", "--devices", "2xcpu"))
        self.assertLess(pairs["single", "reference"]["relative"], 1e-4)
        self.assertEqual(pairs["sharded", "classic"]["equal_steps"], 3)

    def test_measured_algorithms_need_agree_to_rounding_only(self):
        pairs = pairs_of(told("--algorithm", "measured", "--devices", "2xcpu"))
        self.assertEqual({pair["must_agree_by"] for pair in pairs.values()}, {"tolerance"})

    def test_the_table_names_every_mode_and_fits_a_terminal(self):
        result = verify("--devices", "2xcpu")
        lines = result.stdout.splitlines()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertEqual([line for line in lines if line != line.rstrip()], [])
        for start in ("single ", "classic on 2 ", "overlap on 2 ", "sharded on 2 ", "ddp on 2 "):
            self.assertTrue(any(line.startswith(start) for line in lines), start)
        self.assertIn("All modes agree", lines[-1])

    def test_what_differs_by_more_than_the_tolerance_is_exit_code_1(self):
        result = verify("--devices", "cpu", "--tolerance", "0")
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertIn("DIFFERS", result.stdout)
        self.assertIn("first differ in step 1, the gradient of fc1.weight, element ", result.stdout)

    def test_a_mode_alone_proves_nothing(self):
        large = ["--model", "resnet18-cifar", "--dataset", "synthetic:3x32x32,rows=64", "--batch", "16", "--steps", "1"]
        for words, arguments in [("No float64 reference: a step has", large), ("--reference no leaves out",
                                                                               ["--reference", "no"])]:
            result = verify(*arguments, "--devices", "cpu")
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            self.assertIn("nothing to compare with one device: " + words, result.stderr)

    def test_a_large_model_has_no_reference_and_the_table_says_so(self):
        result = verify("--model", "resnet18-cifar", "--dataset", "synthetic:3x32x32,rows=64", "--batch", "16",
                        "--steps", "1", "--devices", "2xcpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("No float64 reference", result.stdout)

    def test_a_record_alone_says_that_it_proves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = ["--devices", "cpu", "--reference", "no", "--record", os.path.join(folder, "run")]
            result = verify(*alone, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("One mode alone: nothing was compared", result.stderr)
        self.assertIsNone(json.loads(result.stdout)["passes"])

    def test_dropout_agrees_with_its_reference_too(self):
        pairs = pairs_of(told("--model", "mlp-dropout", "--devices", "2xcpu"))
        self.assertLess(pairs["single", "reference"]["relative"], 1e-4)
        self.assertLess(pairs["classic", "single"]["relative"], 1e-4)
        self.assertEqual(pairs["ddp", "classic"]["equal_steps"], 3)


    def test_targets_and_layers_of_ones_own_agree_too(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "rows.csv")
            rows = "".join(f"{i % 7},{i % 5},{i % 3 - 1.5}\n" for i in range(40))
            path.write_text("a,b,y\n" + rows, encoding="utf-8")
            result = told("--model", "layers:linear=5,leaky_relu,linear=1", "--dataset", f"csv:{path},target=y")
        self.assertTrue(result["passes"], result)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "run.safetensors")

    def record(self, *arguments):
        pathlib.Path(self.path).write_bytes(recorded(*arguments))

    def against(self, *arguments):
        return verify("--devices", "cpu", "--reference", "no", "--against", self.path, *arguments)

    def header(self):
        data = pathlib.Path(self.path).read_bytes()
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        return json.loads(data[8:begin]), begin

    def flip(self, tensor, element):
        """Changes the lowest bit of one float32."""
        header, begin = self.header()
        data = bytearray(pathlib.Path(self.path).read_bytes())
        data[begin + header[tensor]["data_offsets"][0] + 4 * element] ^= 1
        pathlib.Path(self.path).write_bytes(data)

    def negate_gradients(self):
        """Flips the sign of every gradient."""
        header, begin = self.header()
        data = bytearray(pathlib.Path(self.path).read_bytes())
        for name, tensor in header.items():
            if name.startswith("gradient_"):
                first, end = tensor["data_offsets"]
                for place in range(begin + first + 3, begin + end, 4):
                    data[place] ^= 0x80
        pathlib.Path(self.path).write_bytes(data)

    def scale_gradients(self, factor, tensor=""):
        """Multiplies every float32 of the gradients, or of one tensor's."""
        header, begin = self.header()
        data = bytearray(pathlib.Path(self.path).read_bytes())
        for name, place in header.items():
            if name.startswith("gradient_") and name.endswith(tensor):
                first, end = (begin + offset for offset in place["data_offsets"])
                values = struct.unpack(f"<{(end - first) // 4}f", data[first:end])
                data[first:end] = struct.pack(f"<{len(values)}f", *(factor * value for value in values))
        pathlib.Path(self.path).write_bytes(data)

    def change_text(self, key, value):
        header, begin = self.header()
        data = pathlib.Path(self.path).read_bytes()[begin:]
        header["__metadata__"][key] = value
        if value is None:
            del header["__metadata__"][key]
        text = json.dumps(header).encode()
        pathlib.Path(self.path).write_bytes(struct.pack("<Q", len(text)) + text + data)

    def test_a_recorded_run_comes_back_bit_for_bit(self):
        self.record()
        result = self.against("--json")
        pair = json.loads(result.stdout)["pairs"][0]
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((pair["with"], pair["must_agree_by"], pair["equal_steps"]), ("file", "bits", 3))
        header, _ = self.header()
        self.assertEqual(header["batch_000003/inputs"]["shape"], [9, 1, 8, 8])
        self.assertEqual(header["step_000000/fc1.weight"]["shape"], [512, 64])
        self.assertIn("gradient_000002/fc3.bias", header)

    def test_every_second_step_alone_can_be_recorded(self):
        self.record("--record-every", "2")
        header, _ = self.header()
        self.assertEqual({name.split("/")[0] for name in header if name.startswith("step_")},
                         {"step_000000", "step_000002", "step_000003"})
        result = self.against("--json")
        self.assertEqual(json.loads(result.stdout)["pairs"][0]["equal_steps"], 2, result.stderr)

    def test_one_flipped_bit_is_found_by_step_tensor_and_element(self):
        for tensor, step, name, gradient in [("step_000002/fc2.weight", 2, "fc2.weight", False),
                                             ("step_000000/fc1.bias", 0, "fc1.bias", False),
                                             ("gradient_000003/fc3.weight", 3, "fc3.weight", True)]:
            with self.subTest(tensor=tensor):
                self.record()
                self.flip(tensor, 17)
                result = self.against("--json", "--quiet")
                pair = json.loads(result.stdout)["pairs"][0]
                self.assertEqual((result.returncode, pair["passes"], pair["largest_ulp"]), (1, False, 1))
                self.assertEqual([pair["first"][key] for key in ("step", "tensor", "gradient", "element", "ulp")],
                                 [step, name, gradient, 17, 1])
                self.assertEqual(pair["equal_steps"], 3 if step == 0 else 2)
        told_in_words = self.against().stdout
        self.assertIn("single and file first differ in step 3, the gradient of fc3.weight, element 17:", told_in_words)
        self.assertIn(", 1 ULP", told_in_words)

    def test_a_run_of_another_program_may_differ_by_rounding(self):
        self.record()
        self.flip("step_000002/fc2.weight", 17)
        self.change_text("writer", "pytorch 2")
        result = self.against("--json")
        self.assertEqual((result.returncode, json.loads(result.stdout)["pairs"][0]["must_agree_by"]), (0, "tolerance"))

    def test_gradients_of_another_program_are_judged_too(self):
        self.record()
        self.negate_gradients()
        self.change_text("writer", "pytorch 2")
        result = self.against("--json", "--quiet")
        pair = json.loads(result.stdout)["pairs"][0]
        self.assertEqual((result.returncode, pair["must_agree_by"], pair["passes"]), (1, "tolerance", False))
        self.assertAlmostEqual(pair["gradient_relative"], 2, places=5)
        self.assertEqual(pair["relative"], 0)

    def test_a_gradient_scaled_by_a_thousandth_is_found_whatever_the_tolerance(self):
        for tensor, name in [("", "fc1.weight"), ("/fc2.weight", "fc2.weight"), ("/fc2.bias", "fc2.bias")]:
            with self.subTest(tensor=tensor):
                self.record()
                self.scale_gradients(1 / 1.001, tensor)
                self.change_text("writer", "pytorch 2")
                result = self.against("--json", "--tolerance", "1")
                pair = json.loads(result.stdout)["pairs"][0]
                self.assertEqual((result.returncode, pair["passes"]), (1, False), pair)
                self.assertEqual((pair["scaled"]["step"], pair["scaled"]["tensor"]), (1, name))
                self.assertAlmostEqual(pair["scaled"]["factor"], 1.001, places=6)
                self.assertIn(f"single computes 1.001 times the gradient of file in step 1: {name}.", result.stderr)

    def fails(self, code, words, *arguments):
        result = self.against(*arguments)
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_a_file_of_another_configuration_is_refused_with_both_values(self):
        self.record()
        for arguments, words in [(["--batch", "8"], ["batch 9", "8"]), (["--seed", "4"], ["seed 0", "4"]),
                                 (["--steps", "2"], ["steps 3", "2"]), (["--lr", "0.5"], ["learning_rate", "0.5"]),
                                 (["--optimizer", "adamw"], ["sgd", "adamw"])]:
            with self.subTest(arguments=arguments):
                self.fails(2, words, *arguments)

    def test_damaged_and_foreign_files_are_named(self):
        self.fails(66, [self.path])
        self.record()
        whole = pathlib.Path(self.path).read_bytes()
        pathlib.Path(self.path).write_bytes(whole[:-5])
        self.fails(65, [self.path, "ends at byte"])
        pathlib.Path(self.path).write_bytes(whole)
        self.change_text("every", "no")
        self.fails(65, ["'every'"])
        self.change_text("model", None)
        self.fails(65, ["no recorded run", "'model'"])

    def test_a_file_without_a_step_is_refused_and_one_without_gradients_is_not(self):
        self.record()
        whole = pathlib.Path(self.path).read_bytes()
        pathlib.Path(self.path).write_bytes(whole.replace(b'"gradient_', b'"graduate_'))
        result = self.against("--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("gradient_relative", json.loads(result.stdout)["pairs"][0])
        pathlib.Path(self.path).write_bytes(whole.replace(b'"step_000002/fc1.bias', b'"step_000009/fc1.bias'))
        self.fails(66, ["step_000002/fc1.bias"])

    def test_a_record_must_fit_into_memory(self):
        result = verify("--devices", "cpu", "--reference", "no", "--steps", "9000", "--record", self.path)
        self.assertEqual(result.returncode, 2)
        self.assertIn("GiB", result.stderr)
        self.assertFalse(os.path.exists(self.path))


class Mistakes(unittest.TestCase):
    def test_each_is_named_with_its_exit_code(self):
        for code, words, arguments in [
                (2, ["--tolerence", "--tolerance"], ["--tolerence", "1"]),
                (2, ["'0'", "from 1"], ["--steps", "0"]),
                (2, ["'both'", "follow|free|no"], ["--reference", "both"]),
                (2, ["4xcpo"], ["--devices", "4xcpo"]),
                (2, ["41", "40 rows"], ["--batch", "41"]),
                (2, ["resnet21", "resnet20"], ["--model", "resnet21"]),
                (66, ["data_batch_1.bin"], ["--dataset", "cifar10:/nonexistent"]),
                (74, ["/nonexistent/run"], ["--devices", "cpu", "--record", "/nonexistent/run", "--lr", "1e30"]),
                (1, ["loss"], ["--lr", "1e30"])]:
            with self.subTest(arguments=arguments):
                result = verify(*arguments)
                self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
                for word in words:
                    self.assertIn(word, result.stderr)

    def test_verify_refuses_to_run_as_a_rank(self):
        variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
        result = verify(env=variables)
        self.assertEqual(result.returncode, 2)
        self.assertIn("torchrun started 2 processes, but verify starts its ranks itself", result.stderr)


if __name__ == "__main__":
    unittest.main()
