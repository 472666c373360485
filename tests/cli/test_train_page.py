#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of yoke train --report: true to the run, the files of the dataset and a model computed in Python.

usage: test_train_page.py YOKE [unittest arguments]
"""
import base64
import functools
import json
import math
import operator
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import png_file
from page_case import LIMIT_S, YOKE, charts, check_self_contained, model, parse, yoke

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
RUN = ["--model", "mlp:width=512", "--threads", "1", "--algorithm", "direct", "--quiet", "--json"]
SMALL = ["--dataset", "synthetic:1x8x8,classes=3,rows=100", "--batch", "10"]
MISCLASSIFIED = 24


def write_cifar(folder, train, test):
    """Random pixels, lighter where the class is higher: learnable, but not by heart. The test split as (label, pixels)."""
    dice = random.Random(5)
    rows = []
    for i in range(train + test):
        label = dice.randrange(10)
        rows.append((label, bytes(min(255, 12 * label + dice.randrange(140)) for _ in range(3072))))
    pack = lambda part: b"".join(bytes([label]) + pixels for label, pixels in part)
    (folder / "data_batch_1.bin").write_bytes(pack(rows[:train]))
    (folder / "test_batch.bin").write_bytes(pack(rows[train:]))
    (folder / "batches.meta.txt").write_text("\n".join(NAMES) + "\n")
    return rows[train:]


def write_mnist(folder, train, test):
    dice = random.Random(6)
    rows = [(dice.randrange(10), bytes(dice.randrange(256) for _ in range(784))) for _ in range(train + test)]
    for name, part in [("train", rows[:train]), ("t10k", rows[train:])]:
        (folder / f"{name}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 0x803, len(part), 28, 28) + b"".join(pixels for _, pixels in part))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 0x801, len(part)) + bytes(label for label, _ in part))
    return rows[train:]


@functools.cache
def cifar():
    """One run: its page, its JSON object, its metrics and the rows of its test split."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = write_cifar(folder, 200, 90)
        result = yoke("train", *RUN, "--dataset", f"cifar10:{folder}", "--batch", "20", "--epochs", "4",
                      "--evaluate-every", "2", "--lr", "0.01", "--lr-schedule", "cosine", "--devices", "2xcpu",
                      "--metrics", folder / "metrics", "--report", folder / "page.html")
        assert result.returncode == 0, result.stderr
        lines = [json.loads(line) for line in (folder / "metrics").read_text().splitlines()]
        return (folder / "page.html").read_text(), json.loads(result.stdout), lines, rows


@functools.cache
def hundred():
    with tempfile.TemporaryDirectory() as name:
        page = pathlib.Path(name, "page.html")
        result = yoke("train", *RUN, "--dataset", "synthetic:2x80x80,classes=100,rows=5000", "--batch", "100", "--steps",
                      "3", "--devices", "2xcpu", "--report", page)
        assert result.returncode == 0, result.stderr
        return page.read_text()


def section(text, figure):
    return next((element for element in parse(text).iter("section") if element.get("id") == figure), None)


def table(text, figure, index=0):
    """The head, and the rows as lists; their first cell is their name."""
    found = section(text, figure).findall(".//table")[index]
    return [cell.text for cell in found.find("thead/tr")], [[cell.text or "" for cell in row] for row in found.find("tbody")]


def confusion(text):
    """[true class][predicted class]"""
    return [[int(cell or 0) for cell in row[1:]] for row in table(text, "confusion")[1]]


def pictures(text):
    """Of the misclassified rows, in the order of the table."""
    return [row["picture"] for row in model(text)["predictions"]["misclassified"]]


def decode_png(uri):
    head, _, body = uri.partition(",")
    assert head == "data:image/png;base64", head
    return png_file.decode(base64.b64decode(body, validate=True))


def planes(pixels, colours):
    """Pixel by pixel to channel by channel, as datasets have them."""
    return b"".join(pixels[channel::colours] for channel in range(colours))


def tensors(path):
    data = path.read_bytes()
    length, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    for name, entry in header.items():
        assert entry["dtype"] == "F32"
        begin, end = entry["data_offsets"]
        yield name, struct.unpack_from(f"<{(end - begin) // 4}f", data, 8 + length + begin)


def logits(weights, pixels, mean, std):
    """The model in float64."""
    values = [(pixel / 255 - mean) / std for pixel in pixels]
    for layer in ("fc1", "fc2", "fc3"):
        weight, bias = weights[f"{layer}.weight"], weights[f"{layer}.bias"]
        count = len(values)
        values = [sum(map(operator.mul, weight[i * count:(i + 1) * count], values)) + bias[i] for i in range(len(bias))]
        if layer != "fc3":
            values = [max(value, 0) for value in values]
    return values


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.page = self.folder / "page.html"

    def train(self, *arguments, code=0, tool=()):
        result = yoke(*tool, "train", *RUN, "--report", self.page, *arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        return result


class Structure(Case):
    def pages(self):
        yield "cifar", cifar()[0]
        yield "hundred", hundred()

    def test_pages_are_well_formed_and_their_ids_are_unique(self):
        for name, text in self.pages():
            with self.subTest(page=name):
                ids = [element.get("id") for element in parse(text).iter() if element.get("id")]
                self.assertEqual(sorted(ids), sorted(set(ids)))

    def test_pages_need_no_network_and_stay_below_a_megabyte(self):
        for name, text in self.pages():
            with self.subTest(page=name):
                check_self_contained(self, text)

    def test_every_figure_has_a_place_sentences_a_table_and_a_source(self):
        wanted = ["loss", "accuracy", "learning-rate", "images", "classes", "confusion", "misclassified"]
        for name, text in self.pages():
            figures = {element.get("id"): element for element in parse(text).iter("section") if element.get("id") != "runs"}
            self.assertLessEqual(set(wanted), set(figures))
            for identity, figure in figures.items():
                with self.subTest(page=name, figure=identity):
                    self.assertEqual(charts(figure), [identity])
                    self.assertEqual(figure.get("aria-labelledby"), figure.find("h2").get("id"))
                    self.assertGreater(len(figure.findall(".//table//td")), 0)
                    self.assertGreater(len([p for p in figure.findall("p") if p.get("class") is None]), 0)
                    self.assertIn("src/", "".join(figure.itertext()))

    def test_every_source_file_that_a_page_names_exists(self):
        root = pathlib.Path(__file__).parents[2]
        for name in set(re.findall(r"<code>(src/[^<]*)</code>", cifar()[0])):
            self.assertTrue((root / name).exists(), name)


class Numbers(Case):
    def test_curves_are_those_of_the_metrics(self):
        text, _, lines, _ = cifar()
        steps = {line["step"]: line for line in lines if "lr" in line}
        tests = {line["step"]: line for line in lines if "test_accuracy" in line}
        self.assertEqual(len(steps), 40)
        self.assertEqual(sorted(tests), [20, 40])
        close = lambda cell, value: self.assertAlmostEqual(float(cell), value, delta=0.006 * abs(value) + 1e-6)
        head, rows = table(text, "loss")
        self.assertEqual(head[1:], ["Training batches", "Test split"])
        self.assertEqual([int(row[0]) for row in rows], sorted(steps))
        for step, training, test in rows:
            close(training, steps[int(step)]["train_loss"])
            self.assertEqual(test != "", int(step) in tests)
            if test:
                close(test, tests[int(step)]["test_loss"])
        for step, _, test in table(text, "accuracy")[1]:
            if test:
                close(test, 100 * tests[int(step)]["test_accuracy"])
        for step, rate in table(text, "learning-rate")[1]:
            close(rate, steps[int(step)]["lr"])
        for step, rate in table(text, "images")[1]:
            close(rate, 1e3 * steps[int(step)]["rows"] / steps[int(step)]["step_ms"])

    def test_a_long_run_keeps_means_of_equal_parts(self):
        metrics = self.folder / "metrics"
        self.train(*SMALL, "--steps", "1000", "--metrics", metrics, "--devices", "cpu")
        losses = [json.loads(line)["train_loss"] for line in metrics.read_text().splitlines() if '"lr"' in line]
        rows = [row for row in table(self.page.read_text(), "loss")[1] if row[1]]
        self.assertEqual([int(row[0]) for row in rows], list(range(4, 1001, 4)))
        for step, loss, _ in rows:
            mean = sum(losses[int(step) - 4:int(step)]) / 4
            self.assertAlmostEqual(float(loss), mean, delta=0.006 * mean)
        self.assertIn("is the mean of 4 steps", self.page.read_text())

    def test_counts_add_up_to_the_split_and_to_the_accuracy(self):
        text, result, _, rows = cifar()
        head, cells = table(text, "confusion")
        counts = confusion(text)
        self.assertEqual(head[1:], NAMES)
        self.assertEqual([row[0] for row in cells], NAMES)
        self.assertEqual([sum(row) for row in counts], [sum(label == k for label, _ in rows) for k in range(10)])
        right = sum(counts[k][k] for k in range(10))
        self.assertAlmostEqual(right / len(rows), result["test_accuracy"], places=12)
        _, classes = table(text, "classes")
        for k, (name, of, hits, accuracy, taken, precision) in enumerate(classes):
            column = sum(row[k] for row in counts)
            self.assertEqual([name, int(of), int(hits), int(taken)], [NAMES[k], sum(counts[k]), counts[k][k], column])
            self.assertAlmostEqual(float(accuracy), 100 * counts[k][k] / sum(counts[k]), delta=0.5)
            self.assertEqual(precision == "", column == 0)
        most, label, other = max((counts[i][j], -i, -j) for i in range(10) for j in range(10) if i != j)
        self.assertIn(f"takes {NAMES[-label]} for {NAMES[-other]}: {most} of the {len(rows) - right} wrong rows", text)

    def test_pictures_are_the_pixels_of_the_rows(self):
        text, _, _, rows = cifar()
        _, cells = table(text, "misclassified")
        listed = model(text)["predictions"]["misclassified"]
        self.assertEqual((len(cells), len(listed)), (MISCLASSIFIED, MISCLASSIFIED))
        for (row, label, predicted, probability, loss), wrong in zip(cells, listed):
            width, height, colours, pixels = decode_png(wrong["picture"])
            self.assertEqual((width, height, colours), (32, 32, 3))
            self.assertEqual(planes(pixels, 3), rows[int(row)][1])
            self.assertEqual(label, NAMES[rows[int(row)][0]])
            self.assertEqual((wrong["row"], NAMES[wrong["label"]], NAMES[wrong["predicted"]]), (int(row), label, predicted))
            self.assertAlmostEqual(100 * wrong["probability"], float(probability), delta=0.6)
            self.assertAlmostEqual(wrong["loss"], float(loss), delta=0.006 * wrong["loss"])

    def test_pictures_of_files_are_decoded_again(self):
        rows = []  # of the test split: resize=16 leaves files of 16 x 16 pixels as they are
        for split, count in [("train", 20), ("val", 8)]:
            for name in ["ant", "bee"]:
                (self.folder / "photos" / split / name).mkdir(parents=True)
                for i in range(count):
                    pixels = os.urandom(3 * 16 * 16)
                    (self.folder / "photos" / split / name / f"{i:02}.png").write_bytes(png_file.encode(16, 16, pixels))
                    rows += [(name, pixels)] if split == "val" else []
        self.train("--dataset", f"images:{self.folder}/photos,size=16,resize=16", "--batch", "20", "--epochs", "2",
                   "--devices", "2xcpu")
        text = self.page.read_text()
        _, cells = table(text, "misclassified")
        self.assertGreater(len(cells), 0)
        for (row, label, *_), picture in zip(cells, pictures(text)):
            self.assertEqual((label, decode_png(picture)), (rows[int(row)][0], (16, 16, 3, rows[int(row)][1])))

    def test_the_worst_misclassified_rows_are_those_of_a_float64_model(self):
        rows = write_mnist(self.folder, 60, 40)
        weights = self.folder / "weights"
        self.train("--dataset", f"mnist:{self.folder}", "--batch", "20", "--epochs", "2", "--devices", "2xcpu", "--save",
                   weights)
        weights = dict(tensors(weights))
        counts, wrong = [[0] * 10 for _ in range(10)], []
        for number, (label, pixels) in enumerate(rows):
            outputs = logits(weights, pixels, 0.1307, 0.3081)
            total = math.log(sum(map(math.exp, outputs)))
            predicted = outputs.index(max(outputs))
            counts[label][predicted] += 1
            if predicted != label:
                wrong.append((total - outputs[label], number, label, predicted, math.exp(outputs[predicted] - total)))
        wrong = sorted(wrong, reverse=True)[:MISCLASSIFIED]
        text = self.page.read_text()
        _, cells = table(text, "misclassified")
        self.assertEqual(confusion(text), counts)
        self.assertGreater(len(wrong), 10)
        self.assertEqual([list(map(int, cell[:3])) for cell in cells], [[row, label, other] for _, row, label, other, _ in wrong])
        for cell, (loss, row, _, _, probability) in zip(cells, wrong):
            self.assertAlmostEqual(float(cell[3]), 100 * probability, delta=0.6)
            self.assertAlmostEqual(float(cell[4]), loss, delta=0.006 * loss)
        for picture, cell in zip(pictures(text), cells):
            width, height, colours, pixels = decode_png(picture)
            self.assertEqual((width, height, colours, pixels), (28, 28, 1, rows[int(cell[0])][1]))

    def test_a_hundred_classes_have_their_counts_and_their_most_frequent_confusions(self):
        text = hundred()
        _, listed = table(text, "confusion")
        _, rows = table(text, "confusion", 1)
        counts = [[int(cell or 0) for cell in row[1:]] for row in rows]
        self.assertEqual(sum(map(sum, counts)), 1000)
        wrong = sorted((-counts[i][j], i, j) for i in range(100) for j in range(100) if i != j)[:15]
        self.assertEqual([tuple(map(int, row[:3])) for row in listed], [(i, j, -count) for count, i, j in wrong])
        self.assertEqual(model(text)["predictions"]["counts"], counts)

    def test_the_model_has_the_counts_the_classes_and_the_curves(self):
        text, result, lines, _ = cifar()
        data = model(text)
        predictions, counts = data["predictions"], confusion(text)
        self.assertEqual((predictions["absent"], predictions["step"], predictions["classes"]), ("", 40, 10))
        self.assertEqual((predictions["names"], predictions["counts"]), (NAMES, counts))
        self.assertEqual(predictions["rows"], [sum(row) for row in counts])
        self.assertEqual(predictions["right"], [row[i] for i, row in enumerate(counts)])
        curves = data["modes"][0]["curves"]
        steps = [line for line in lines if "lr" in line]
        for name, key, factor in ("loss", "train_loss", 1), ("learning-rate", "lr", 1), ("step-ms", "step_ms", 1):
            for (step, value), line in zip(curves.get(name, []), steps):
                self.assertEqual(step, line["step"])
                self.assertAlmostEqual(value / (factor * line[key]), 1, places=5)
        self.assertEqual(len(curves["loss"]), 40)
        self.assertEqual([step for step, _ in curves["accuracy"]], [20, 40])
        self.assertAlmostEqual(curves["accuracy"][-1][1], 100 * result["test_accuracy"], delta=1e-4)

    def test_the_title_says_how_the_run_ended(self):
        text, result, _, _ = cifar()
        share = float(re.fullmatch(r"([\d.]+) % of the test rows are right after step 40", model(text)["title"])[1])
        self.assertAlmostEqual(share, 100 * result["test_accuracy"], delta=0.06)
        self.assertRegex(model(text)["subject"], r"^mlp:width=512 on cifar10:.*: a training run$")

    def test_hostile_names_of_classes_stay_texts(self):
        names = ["</script><b>", 'a "quoted" & \'name\'', "\u202egnp.exe", "bell\x07", "\u2028"]
        write_cifar(self.folder, 40, 30)
        meta = self.folder / "batches.meta.txt"
        meta.write_text("\n".join(names + NAMES[5:]) + "\n", encoding="utf-8")
        self.train("--dataset", f"cifar10:{self.folder}", "--batch", "20", "--steps", "2", "--devices", "cpu")
        text = self.page.read_text()
        check_self_contained(self, text)
        shown = ["</script><b>", 'a "quoted" & \'name\'', "\\u202Egnp.exe", "bell\ufffd", "\\u2028"]
        self.assertEqual(model(text)["predictions"]["names"], shown + NAMES[5:])
        self.assertEqual([row[0] for row in table(text, "classes")[1]], shown + NAMES[5:])

    def test_titles_state_the_result_and_name_the_classes(self):
        text, result, _, _ = cifar()
        titles = {figure.get("id"): figure.find("h2").text for figure in parse(text).iter("section")}
        counts = confusion(text)
        right, rows = sum(row[i] for i, row in enumerate(counts)), sum(map(sum, counts))
        share = float(re.fullmatch(r"At the end the accuracy is ([\d.]+) % on the test split", titles["accuracy"])[1])
        self.assertAlmostEqual(share, 100 * right / rows, delta=0.06)
        one, other = re.fullmatch(r"Most often the model takes (\w+) for (\w+)", titles["confusion"]).groups()
        most = max(counts[i][j] for i in range(10) for j in range(10) if i != j)
        self.assertEqual(counts[NAMES.index(one)][NAMES.index(other)], most)
        self.assertRegex(titles["misclassified"],
                         rf"^The worst misclassification is row \d+: ({'|'.join(NAMES)}), taken for ")

    def test_large_pictures_are_reduced(self):
        for picture in pictures(hundred()):
            self.assertEqual(decode_png(picture)[:3], (40, 40, 1))
        self.assertIn("The pictures are reduced", hundred())

    def test_the_facts_are_those_of_the_run(self):
        text, result, lines, _ = cifar()
        terms = parse(text).find(".//dl")
        facts = dict(zip([term.text for term in terms.findall("dt")], [value.text for value in terms.findall("dd")]))
        self.assertEqual(facts["weights hash"], result["weights_hash"])
        self.assertEqual(facts["model"], f"mlp:width=512, {result['parameters']} parameters, float32")
        self.assertEqual((facts["steps"], facts["seed"], facts["algorithms"]), ("40 of 40", "0", "direct"))
        self.assertEqual(facts["mode"], "dp, overlap")
        self.assertTrue(facts["devices"].startswith("2 x "))
        self.assertIn("oneDNN", facts["versions"])
        self.assertTrue(facts["command"].endswith("page.html"))


class Runs(Case):
    def test_any_number_of_devices_and_ddp_give_the_same_page_of_data(self):
        data = []
        for mode in [["--devices", "cpu"], ["--devices", "2xcpu"], ["--mode", "ddp"]]:
            tool = ["launch", "--nproc-per-node", "2", "--"] if "ddp" in mode else []
            self.train("--dataset", "synthetic:1x8x8,classes=4,rows=230", "--batch", "20", "--steps", "9", "--shards", "4",
                       *mode, tool=tool)
            text = self.page.read_text()
            data.append([everything(text, figure) for figure in ("loss", "classes", "confusion", "misclassified")])
            self.assertEqual(sum(map(sum, confusion(text))), 46)
            self.page.unlink()
        self.assertEqual(data[0], data[1])
        self.assertEqual(data[0], data[2])

    def test_ranks_that_differ_in_the_report_are_refused(self):
        script = f'[ $RANK = 0 ] && more="--report {self.page}"; exec {YOKE} train {" ".join(RUN)} ' \
                 f'{" ".join(SMALL)} --steps 2 --mode ddp $more'
        result = yoke("launch", "--nproc-per-node", "2", "--no-python", "--", "sh", "-c", script)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("misclassified", result.stderr)

    def start(self, *arguments):
        metrics = self.folder / "metrics"
        process = subprocess.Popen([YOKE, "train", *RUN, *SMALL, "--devices", "cpu", "--metrics", metrics, "--report",
                                    self.page, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        end = time.monotonic() + LIMIT_S
        while not (metrics.exists() and metrics.stat().st_size > 4000) and time.monotonic() < end:
            time.sleep(0.02)
        return process

    def test_an_interrupted_run_writes_its_page(self):
        process = self.start("--epochs", "1000000", "--evaluate-every", "0")
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, stderr)
        text, steps = self.page.read_text(), json.loads(stdout)["steps"]
        self.assertIn(f"The run ended early, after step {steps} of 10000000", text)
        self.assertIn("there are no predictions of the test split", text)
        self.assertIsNone(section(text, "confusion"))
        self.assertIsNotNone(section(text, "loss"))

    def test_an_interrupted_run_shows_its_last_complete_evaluation(self):
        process = self.start("--epochs", "1000000")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, stderr)
        text = self.page.read_text()
        self.assertEqual(sum(map(sum, confusion(text))), 20)
        self.assertRegex(text, r"After step \d*0 the model classifies")

    def test_a_page_that_cannot_be_written_at_the_end_loses_nothing(self):
        nested, metrics = self.folder / "nested", self.folder / "metrics"
        nested.mkdir()
        os.mkfifo(metrics)
        self.page = nested / "page.html"
        process = subprocess.Popen([YOKE, "train", *RUN, *SMALL, "--devices", "cpu", "--steps", "20", "--metrics", metrics,
                                    "--report", self.page, "--save", self.folder / "weights"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        with metrics.open() as lines:  # the run has checked its paths and waits for a reader
            nested.rmdir()
            self.assertEqual(len(lines.readlines()), 21)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 74, stderr)
        self.assertIn(str(self.page), stderr)
        self.assertEqual(json.loads(stdout)["steps"], 20)
        self.assertTrue((self.folder / "weights").exists())

    def test_a_path_that_cannot_be_written_is_refused_before_the_run(self):
        self.page = pathlib.Path("/nowhere/page.html")
        result = self.train(*SMALL, "--steps", "1000000000", code=74)
        self.assertIn("/nowhere/page.html", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_a_run_that_diverges_writes_its_page_with_the_cause(self):
        self.train(*SMALL, "--steps", "200", "--lr", "1e30", code=1)
        text = self.page.read_text()
        self.assertRegex(text, r"The run ended early, after step \d+ of 200: .*not finite")

    def test_a_run_without_evaluation_says_so(self):
        self.train(*SMALL, "--steps", "3", "--evaluate-every", "-1")
        self.assertIn("(--evaluate-every -1)", self.page.read_text())

    def test_a_resumed_run_says_where_its_curves_begin(self):
        saves = ["--checkpoint-dir", self.folder / "saves"]
        self.train(*SMALL, "--steps", "4", *saves)
        self.assertNotIn("went on from a checkpoint", self.page.read_text())
        self.train(*SMALL, "--steps", "9", *saves, "--resume", "auto")
        text = self.page.read_text()
        self.assertIn("went on from a checkpoint after step 4", text)
        self.assertEqual([row[0] for row in table(text, "loss")[1]], ["5", "6", "7", "8", "9"])

    def test_one_step_makes_a_page(self):
        self.train(*SMALL, "--steps", "1")
        text = self.page.read_text()
        parse(text)
        self.assertEqual(sum(map(sum, confusion(text))), 20)


def everything(text, figure):
    """All that a figure says, its tables included."""
    found = section(text, figure)
    return ["".join(element.itertext()) for element in found] + pictures(text)


if __name__ == "__main__":
    unittest.main()
