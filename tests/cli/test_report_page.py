#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages of yoke report and yoke compare --html: self-contained, well-formed, readable, true to the files.

usage: test_report_page.py YOKE [unittest arguments]
"""
import functools
import itertools
import json
import pathlib
import re
import tempfile
import unittest

from page_case import EMBEDDED, charts, check_self_contained, contrast, distances, model, parse, themes, yoke

KINDS = [["python", "forward", "loss", "backward", "update"],
         ["scatter", "replicate", "reduce", "exchange", "all_reduce", "gather"], ["load", "wait"]]
CONTRAST = 4.5  # WCAG 2.2, success criterion 1.4.3, level AA
DISTANCE, WITHOUT_GREEN = 6, 3.5  # of two colours that differ in meaning, in hundredths of OKLab


def span(name, lane, begin, duration, step=1, **arguments):
    return {"ph": "X", "name": name, "pid": 1, "tid": lane, "ts": begin, "dur": duration,
            "args": {"step": step, "bytes": 4096, **arguments}}


def lane_name(lane, name):
    return {"ph": "M", "name": "thread_name", "pid": 1, "tid": lane, "args": {"name": name}}


def write_trace(path, events):
    path.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": events}))
    return path


def write_metrics(path, steps):
    lines = [{"step": step, "epoch": 0, "loss": 3 / step, "lr": 0.05, "rows": 64, "step_ms": 40 + step % 3}
             for step in range(1, steps + 1)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@functools.cache
def compared(*arguments):
    """The page and the JSON object of one comparison."""
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder, "page.html")
        result = yoke("compare", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=3,rows=40", "--batch", "9",
                      "--threads", "1", "--devices", "2xcpu", "--rounds", "3", "--steps", "2", "--seconds", "0.1",
                      "--learn-steps", "3", "--algorithm", "direct", "--json", "--quiet", "--html", page, *arguments)
        assert result.returncode == 0, result.stderr
        return page.read_text(), json.loads(result.stdout)


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def report(self, *files):
        page = self.folder / "page.html"
        result = yoke("report", "--html", page, *files)
        self.assertEqual(result.returncode, 0, result.stderr)
        return page.read_text()

    def small_trace(self, name="trace.json", device="cpu:0"):
        return write_trace(self.folder / name, [
            lane_name(0, device), lane_name(1, "cpu:1"), span("step", 0, 0, 10000), span("forward", 0, 0, 6000),
            span("update", 0, 6000, 4000, bucket=7), span("forward", 1, 0, 3000)])

    def every_page(self):
        yield "compare", compared()[0]
        yield "compare with links", compared("--devices", "3xcpu", "--counts", "doubling", "--link", "2,5,bridge")[0]
        yield "report", self.report(self.small_trace(), write_metrics(self.folder / "metrics.jsonl", 20))


class Structure(Page):
    def test_pages_are_well_formed_and_their_ids_are_unique(self):
        for name, text in self.every_page():
            with self.subTest(page=name):
                ids = [element.get("id") for element in parse(text).iter() if element.get("id")]
                self.assertEqual(sorted(ids), sorted(set(ids)))
                self.assertNotIn("yoke-page", ids)
                self.assertGreater(len(charts(parse(text))), 4)

    def test_pages_need_no_network_and_stay_below_a_megabyte(self):
        for name, text in self.every_page():
            with self.subTest(page=name):
                check_self_contained(self, text)

    def test_the_first_screen_has_the_title_the_subject_and_one_picture(self):
        for name, text in self.every_page():
            with self.subTest(page=name):
                page, data = parse(text), model(text)
                heading, *rest = page.find("body/main")
                self.assertEqual((heading.tag, heading.text), ("h1", data["title"]))
                self.assertEqual(page.find("head/title").text, data["title"])
                subject = [element.text for element in rest[:1] if element.get("class") == "subject"]
                self.assertEqual(subject, [data["subject"]] if data["title"] != data["subject"] else [])
                self.assertEqual(rest[len(subject)].get("data-figure"), "first")

    def test_every_figure_has_a_place_sentences_a_table_and_a_source(self):
        for name, text in self.every_page():
            figures = [element for element in parse(text).iter("section") if element.get("id") != "runs"]
            self.assertGreater(len(figures), 3)
            for figure in figures:
                with self.subTest(page=name, figure=figure.get("id")):
                    self.assertIn("figure", figure.get("class"))
                    self.assertEqual(charts(figure), [figure.get("id")])
                    self.assertEqual(figure.get("aria-labelledby"), figure.find("h2").get("id"))
                    self.assertGreater(len(figure.findall(".//details//table//td")), 0)
                    self.assertGreater(len([p for p in figure.findall("p") if p.get("class") is None]), 0)
                    self.assertIn("src/", "".join(figure.itertext()))

    def test_tables_scroll_by_keyboard_and_have_names(self):
        for name, text in self.every_page():
            for box in parse(text).iter("div"):
                if "table" in (box.get("class") or "").split():
                    table = box.find("table")
                    self.assertEqual((box.get("class"), box.get("role"), box.get("tabindex")), ("table scroll", "region", "0"))
                    self.assertEqual(box.get("aria-label"), table.find("caption").text)
                    widths = {len(row) for row in table.iter("tr")}
                    self.assertEqual(len(widths), 1, name)


class GoingOn(Page):
    """Runs that lost a device or a rank and went on: a trace holds several engines, or the last steps alone."""
    RUN = ["train", "--model", "mlp:width=16", "--dataset", "synthetic:1x8x8,classes=3,rows=64", "--batch", "16", "--shards", "4",
           "--threads", "1", "--steps", "30", "--evaluate-every", "-1", "--algorithm", "direct", "--no-cache", "--quiet"]

    def page_of(self, *command):
        """The page's only mode, and its notes."""
        trace = self.folder / "died.json"
        result = yoke(*command, "--trace", trace)
        self.assertEqual(result.returncode, 0, result.stderr)
        text = self.report(trace)
        mode, = model(text)["modes"]
        return mode, [note.text for note in parse(text).iter("p") if note.get("class") == "note"]

    def check_steps(self, note, mode, devices):
        found = re.fullmatch(rf"died.json: figures show steps (\d+) to 29, counted from 0, of {devices}\.", note)
        self.assertIsNotNone(found, note)
        self.assertEqual(30 - int(found[1]), mode["steps"])

    def test_the_page_shows_the_devices_that_are_left(self):
        for schedule, tail in ("classic", ["--link", "1,5"]), ("overlap", []):
            with self.subTest(schedule=schedule):
                mode, notes = self.page_of(*self.RUN, "--devices", "4xcpu", "--schedule", schedule, *tail, "--survive",
                                           "--fault", "error:0@9,error:2@19")
                left = ["cpu:1", "cpu:3"]
                links = [f"link of {name}" for name in left] if tail else []
                self.assertEqual(mode["devices"], 2)
                self.assertEqual(sorted(lane["name"] for lane in mode["lanes"]), left + links)
                self.assertRegex(notes[0], r"^died.json: lost cpu:0 after step 9: .*\. 3 of 4 devices go on from step \d+\.$")
                self.assertRegex(notes[1], r"^died.json: lost cpu:2 after step 19: .*\. 2 of 4 devices go on from step \d+\.$")
                self.check_steps(notes[2], mode, "2 devices")
                for lane in mode["lanes"]:
                    if lane["kind"] == "device":
                        self.assertAlmostEqual(sum(lane["stage_ms"].values()), mode["mean_step_ms"], delta=1e-3 * mode["mean_step_ms"])
                        self.assertLessEqual({span[5] and span[5].split()[1] for span in lane["spans"]} - {None, "link"}, set(left))

    def test_the_page_of_ranks_that_went_on_names_who_was_lost(self):
        mode, notes = self.page_of("launch", "--nproc-per-node", "3", "--min-ranks", "1", "--", *self.RUN, "--mode", "ddp",
                                   "--devices", "cpu", "--fault", "kill:1@12")
        self.assertEqual([lane["name"].split(" · ")[0] for lane in mode["lanes"]], ["rank 0", "rank 1"])
        self.assertRegex(notes[0], r"^died.json: lost rank 1 \(pid \d+\) after step \d+: .* 2 of 3 ranks go on from step \d+\.$")
        self.check_steps(notes[1], mode, "2 devices")

    def test_a_run_that_lost_nobody_has_no_such_note(self):
        _, notes = self.page_of(*self.RUN, "--devices", "2xcpu", "--survive")
        self.assertEqual(notes, [])


class Colours(Page):
    """Those of src/report/page/page.css."""

    def test_all_colours_but_faint_lines_contrast_with_the_page_in_light_dark_and_print(self):
        found = themes(compared()[0])
        self.assertEqual(len(found), 3)
        for colours in found:
            self.assertGreater(len(colours), 25)
            for name, colour in colours.items():
                if name not in ("page", "faint", "pale"):
                    self.assertGreaterEqual(contrast(colour, colours["page"]), CONTRAST, f"{name} {colour}")

    def test_no_two_contenders_stages_or_kinds_of_bytes_look_alike_with_and_without_green(self):
        for theme, colours in zip(("light", "dark", "print"), themes(compared()[0])):
            for kind in r"m\d|wrong", r"b-.*|wrong", r"s-.*":
                names = [name for name in colours if re.fullmatch(kind, name)]
                self.assertGreater(len(names), 5)
                for one, other in itertools.combinations(names, 2):
                    most, green = distances(colours[one], colours[other])
                    self.assertGreaterEqual(most, DISTANCE, f"{theme}: {one} and {other}")
                    self.assertGreaterEqual(green, WITHOUT_GREEN, f"{theme}: {one} and {other}")


class Counts(Page):
    """Figures over the number of devices."""

    def simulated(self, *arguments):
        """The page and the JSON object of a simulation, which is the same on every machine."""
        page = self.folder / "simulated.html"
        result = yoke("simulate", "h100:resnet50", "--json", "--html", page, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return page.read_text(), json.loads(result.stdout)

    def test_every_contender_is_in_the_tables_and_in_the_model(self):
        text, result = compared("--devices", "3xcpu", "--counts", "doubling", "--link", "2,5,bridge")
        self.assertEqual([(mode["name"], mode["devices"]) for mode in model(text)["modes"]],
                         [(contender["name"], contender["devices"]) for contender in result["contenders"]])
        for mode, contender in zip(model(text)["modes"], result["contenders"]):
            for key in "step_ms", "images_per_second", "speedup":
                for value, bound in zip(mode[key], ("median", "low", "high")):
                    self.assertAlmostEqual(value / contender[key][bound], 1, places=5)
        for figure in "throughput", "step-time":
            head, *rows = parse(text).find(f".//section[@id='{figure}']").iter("tr")
            names = [cell.text for cell in head][1:]
            filled = [(name, int(row[0].text)) for row in rows for name, cell in zip(names, row[1:]) if cell.text and name != "ideal"]
            self.assertEqual(sorted(filled), sorted((contender["name"], contender["devices"]) for contender in result["contenders"]))

    def test_the_table_has_the_ideal_of_every_count(self):
        text, result = self.simulated("--devices", "1,2,8", "--link", "0.1,20", "--mode", "dp-classic")
        rows = {int(row[0].text): [float(cell.text) for cell in row[1:] if cell.text]
                for row in parse(text).find(".//section[@id='throughput']//tbody")}
        self.assertEqual(sorted(rows), [1, 2, 8])
        one, = rows[1][:1]
        for count, cells in rows.items():
            self.assertAlmostEqual(cells[-1] / (count * one), 1, delta=0.01)

    def test_links_have_lanes_and_are_what_devices_wait_for_where_no_device_works(self):
        for mode, cause in ("ddp-ring", "link of device 0 runs all_reduce"), ("dp-classic", "device 0 runs scatter"):
            text, _ = self.simulated("--devices", "4", "--mode", mode, "--link", "0.3,20")
            lanes = [(lane["name"], lane["kind"]) for lane in model(text)["modes"][-1]["lanes"]]
            self.assertEqual(lanes, [(f"device {k}", "device") for k in range(4)] +
                             [(f"link of device {k}", "link") for k in range(4)])
            self.assertIn(f"while {cause}", text)

    def test_a_title_states_the_result_that_the_runs_have(self):
        text, result = self.simulated("--devices", "1,8", "--link", "0.3,20")
        runs = {run["mode"]: run["step_ms"] for run in result["runs"] if run["devices"] == 8}
        fast, slow = min(runs, key=runs.get), max(runs, key=runs.get)
        title = parse(text).find(".//section[@id='throughput']/h2").text
        self.assertRegex(title, rf"^{fast} is [\d.]+ times as fast as {slow} on 8 devices$")
        self.assertAlmostEqual(float(title.split()[2]), runs[slow] / runs[fast], delta=0.01 * runs[slow] / runs[fast])
        found = re.match(rf"{slow} (\d+) ms, {fast} (\d+) ms: ", model(text)["title"])
        self.assertIsNotNone(found, model(text)["title"])
        for number, mode in zip(found.groups(), (slow, fast)):
            self.assertAlmostEqual(float(number), runs[mode], delta=0.6)
        self.assertEqual([mode["name"] for mode in model(text)["modes"] if mode["first"]],
                         [run for run in runs if run in (fast, slow)])
        text = compared("--devices", "3xcpu", "--counts", "doubling", "--link", "2,5,bridge")[0]
        title = parse(text).find(".//section[@id='links']/h2").text
        self.assertRegex(title, r"^In dp \w+ on 3 the link of cpu:\d carries [\d.]+ times as much as that of cpu:\d$")
        disturbed = parse(compared()[0])  # three rounds of two steps say nothing
        self.assertEqual(disturbed.find(".//section[@id='throughput']/h2").text, "Throughput")
        self.assertEqual(model(compared()[0])["title"], model(compared()[0])["subject"])


class Links(Page):
    """The lanes of links, from what links carry."""

    def test_the_roots_link_carries_what_the_others_carry_one_after_the_other(self):
        text, _ = compared("--devices", "3xcpu", "--link", "0.1,5")
        classic, = [mode for mode in model(text)["modes"] if mode["name"] == "dp classic" and mode["devices"] == 3]
        links = {lane["name"]: lane["spans"] for lane in classic["lanes"] if lane["kind"] == "link"}
        self.assertEqual(list(links), [f"link of cpu:{k}" for k in range(3)])
        sums = {}
        for where, _, count in classic["links"]:
            sums[where] = sums.get(where, 0) + count
        for name, spans in links.items():
            self.assertAlmostEqual(sum(span[4] for span in spans) / sums[name.removeprefix("link of ")], 1, places=5)
            for begin, end, *_ in spans:
                self.assertLessEqual(0, begin)
                self.assertLess(begin, end)
                self.assertLessEqual(end, classic["shown_ms"] + 1e-6)
            for before, after in itertools.pairwise(spans):
                self.assertLessEqual(before[1], after[0] + 1e-6)
        for stage in "replicate", "reduce":
            root, one, other = [[span for span in spans if span[2] == stage] for spans in links.values()]
            self.assertEqual((len(root), len(one), len(other)), (1, 1, 1))
            self.assertLessEqual(one[0][1], other[0][0] + 1e-3)  # in the order of devices
            self.assertEqual(root[0][4], one[0][4] + other[0][4])

    def test_each_bucket_passes_every_link_once_all_devices_compute_it(self):
        text, _ = compared("--devices", "3xcpu", "--link", "0.1,5")
        for name, stage in ("dp overlap", "exchange"), ("ddp", "all_reduce"):
            mode, = [mode for mode in model(text)["modes"] if mode["name"] == name and mode["devices"] == 3]
            devices, links = ([lane for lane in mode["lanes"] if lane["kind"] == kind] for kind in ("device", "link"))
            self.assertEqual([link["name"] for link in links], [f"link of {device['name']}" for device in devices])
            for link in links:
                self.assertEqual({span[2] for span in link["spans"] if span[3] >= 0}, {stage})
                self.assertGreater(len(link["spans"]), 0)
                for begin, end, _, bucket, count, _ in link["spans"]:
                    starts = [span[0] for device in devices for span in device["spans"] if span[2:4] == ["backward", bucket]]
                    self.assertLessEqual(max(starts, default=0), begin)
                    self.assertLess(begin, end)
                    self.assertLessEqual(end, mode["shown_ms"] + 1e-6)
                    self.assertGreater(count, 0)

    def test_devices_without_modelled_links_have_no_lane_for_them(self):
        for mode in model(compared()[0])["modes"]:
            self.assertEqual({lane["kind"] for lane in mode["lanes"]} - {"device"}, set())


class Numbers(Page):
    def table(self, text, figure):
        section = next(element for element in parse(text).iter("section") if element.get("id") == figure)
        table = section.find(".//table")
        head = [cell.text for cell in table.find("thead/tr")]
        return head, {row[0].text: [cell.text for cell in row[1:]] for row in table.iter("tr") if row[0].get("scope") == "row"}

    def test_stages_of_every_mode_add_up_to_its_step(self):
        text, result = compared()
        _, rows = self.table(text, "stages")
        self.assertEqual(len(rows), len(result["contenders"]))
        for name, cells in rows.items():
            *parts, total = map(float, cells)
            self.assertAlmostEqual(sum(parts), total, delta=0.02 * total, msg=name)
        for contender in result["contenders"]:
            total = float(rows[contender["name"]][-1])
            self.assertAlmostEqual(total, contender["step_ms"]["median"], delta=0.02 * total, msg=contender["name"])

    def test_stages_of_a_trace_add_up_to_its_step_and_waits_name_their_cause(self):
        text = self.report(self.small_trace())
        head, rows = self.table(text, "stages")
        cells = dict(zip(head[1:], map(float, rows["trace.json"])))
        self.assertEqual(cells, {"forward": 4.5, "update": 2, "idle": 3.5, "sum": 10})
        _, rows = self.table(text, "devices")
        self.assertEqual([float(cell) for cell in rows["cpu:1"]] if "cpu:1" in rows else
                         [float(cell) for cell in rows["trace.json, cpu:1"]], [3, 0, 0, 7, 10])
        self.assertIn("while cpu:0 runs update", text)
        lanes = model(text)["modes"][0]["lanes"]
        self.assertEqual(lanes[0]["spans"], [[0, 6, "forward", -1, 4096, None], [6, 10, "update", 7, 4096, None]])
        self.assertEqual(lanes[1]["spans"], [[0, 3, "forward", -1, 4096, None], [3, 10, "idle", -1, 0, "while cpu:0 runs update"]])
        self.assertEqual(lanes[1]["stage_ms"], {"forward": 3, "idle": 7})
        self.assertEqual(model(text)["title"], "A step takes 10.0 ms: a device computes for 65 % of it")

    def test_threads_beside_a_gpu_are_no_devices(self):
        names = ["cuda:0", "cuda:1", "cuda:0 · copy", "cuda:1 · copy", "cuda:0 · communication", "cuda:0 · host"]
        text = self.report(write_trace(self.folder / "gpu.json", [lane_name(i, name) for i, name in enumerate(names)] + [
            span("step", 5, 0, 10000), span("backward", 0, 0, 6000), span("backward", 1, 0, 8000),
            span("scatter", 2, 0, 100), span("scatter", 3, 0, 100), span("exchange", 4, 6000, 3000)]))
        head, rows = self.table(text, "stages")
        self.assertEqual(dict(zip(head[1:], map(float, rows["gpu.json"]))), {"backward": 7, "exchange": 1.5, "idle": 1.5, "sum": 10})
        self.assertEqual([name.split(", ")[-1] for name in self.table(text, "devices")[1]], ["cuda:0", "cuda:1"])
        self.assertEqual([name.split(", ")[-1] for name in self.table(text, "moved")[1]], ["cuda:0", "cuda:1"])
        self.assertIn("this step takes 10.0 ms (median 10.0 ms). No device waits for long.", text)
        lanes = {lane["name"]: lane for lane in model(text)["modes"][0]["lanes"]}
        self.assertEqual([lane["kind"] for lane in lanes.values()], ["device"] * 2 + ["beside"] * 4)
        self.assertEqual(lanes["cuda:0"]["spans"][-1], [6, 10, "idle", -1, 0, "while cuda:0 · communication runs exchange"])

    def test_each_number_of_a_contender_is_the_same_in_table_bars_caption_and_json(self):
        """The step of the median in every table; of each device the same stages in both figures; one recorded step."""
        text, result = compared()
        heads = {figure: self.table(text, figure) for figure in ["stages", "devices"]}
        page = {element.get("id"): "".join(element.itertext()) for element in parse(text).iter("section")}
        shown = []
        for contender in result["contenders"]:
            name, median = contender["name"], contender["step_ms"]["median"]
            with self.subTest(name=name):
                head, rows = heads["stages"]
                cells = dict(zip(head[1:], map(float, rows[name])))
                for stage, cell in cells.items():
                    part = contender["stages"].get("step" if stage == "sum" else stage, {"ms": 0})
                    self.assertAlmostEqual(cell, part["ms"], delta=0.006 * max(part["ms"], 0.01), msg=stage)
                for index, part in enumerate(contender["parts"]):
                    device = f"rank {index} {part['name']}" if name == "ddp" else part["name"]
                    computes, communicates, waits, idle, whole = map(float, heads["devices"][1][f"{name}, {device}"])
                    times = {stage: value["ms"] for stage, value in part["stages"].items()}
                    expected = [sum(times.get(stage, 0) for stage in kind) for kind in KINDS] + [times["idle"], median]
                    for cell, ms in zip([computes, communicates, waits, idle, whole], expected):
                        self.assertAlmostEqual(cell, ms, delta=0.006 * max(ms, 0.01), msg=device)
                caption = re.search(rf"{name}: this step takes ([\d.]+) ms \(median ([\d.]+) ms\)", page["timeline"])
                self.assertAlmostEqual(float(caption[1]), contender["recorded_step"]["ms"], delta=0.006 * float(caption[1]))
                self.assertAlmostEqual(float(caption[2]), median, delta=0.006 * median)
                shown.append((median, contender["recorded_step"]["ms"]))
        lengths = [length for _, length in sorted(shown)]
        self.assertEqual("The timeline shows a longer step of" in text, lengths != sorted(lengths))

    def test_a_disturbed_race_gives_a_note_and_no_verdict(self):
        text, result = compared()
        self.assertEqual(f"disturbed {result['disturbed']} of the {result['rounds']} rounds" in text, result["disturbed"] > 0)
        verdict = re.search(r"On 2 devices a step takes .*?(does not say which is faster|</section>)", text, re.DOTALL)
        self.assertEqual(verdict[1], "does not say which is faster")  # three rounds are too few, too

    def test_links_have_the_bytes_of_the_comparison_their_name_and_the_roots_burden(self):
        text, result = compared("--devices", "3xcpu", "--counts", "doubling", "--link", "2,5,bridge")
        head, rows = self.table(text, "links")
        self.assertEqual(head[1:], ["out", "in", "sum"])
        parts = {contender["name"]: contender["parts"] for contender in result["contenders"]
                 if contender["devices"] == 3}
        factors = {"B": 1, "KiB": 2**10, "MiB": 2**20}
        for name, cells in rows.items():
            part = parts[name.split(" on 3, ")[0]][int(re.search(r"\d+$", name)[0])]
            for cell, key in zip(cells, ["sent_bytes", "received_bytes"]):
                number, unit = cell.split()
                self.assertAlmostEqual(float(number) * factors[unit] / part[key], 1, delta=0.02, msg=name)
        self.assertIn("2 GB/s, 5 us, bridge, modelled", text)
        root = parts["dp classic"][0]
        times = (root["sent_bytes"] + root["received_bytes"]) / sum(
            parts["dp classic"][1][key] for key in ["sent_bytes", "received_bytes"])
        self.assertRegex(text, rf"dp classic on 3: the link of cpu:0, the root, carries .*: {round(times, 1):g} times as much as")
        self.assertRegex(text, r"ddp on 3: every link carries about")
        self.assertNotIn('id="moved"', text)
        self.assertNotIn('id="links"', compared()[0])
        self.assertIn("They say nothing about links", compared()[0])

    def test_a_trace_with_links_shows_the_bytes_of_each_link(self):
        trace = self.folder / "linked.json"
        result = yoke("train", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=3,rows=40", "--batch", "8", "--threads",
                      "1", "--devices", "3xcpu", "--schedule", "classic", "--link", "1,5", "--steps", "3", "--json", "--quiet",
                      "--algorithm", "direct", "--trace", trace)
        self.assertEqual(result.returncode, 0, result.stderr)
        weights = 4 * json.loads(result.stdout)["parameters"]
        head, rows = self.table(self.report(trace), "links")
        sums = {name.split(", ")[-1]: float(cells[2].split()[0]) * 2**20 for name, cells in rows.items()}
        self.assertEqual(head[1:], ["out", "in", "sum"])
        for device, passes in [("cpu:0", 2), ("cpu:1", 1), ("cpu:2", 1)]:  # weights out and gradients in, of each other one
            self.assertAlmostEqual(sums[device] / (2 * passes * weights), 1, delta=0.02)

    def test_the_lesson_names_what_python_costs_and_shows_its_stage(self):
        text, _ = compared("--lesson", "--interpreter-us", "21")
        self.assertIn("in dp python: 21 us to call a layer or to copy it", text)
        python, = [mode for mode in model(text)["modes"] if mode["name"] == "dp python"]
        self.assertIn("python", {span[2] for lane in python["lanes"] for span in lane["spans"]})
        self.assertEqual([mode["name"] for mode in model(text)["modes"] if mode["first"]], ["dp classic", "dp overlap", "ddp"])
        self.assertNotIn("dp python", compared()[0])

    def test_modes_of_equal_weights_are_named_with_their_hash(self):
        text, result = compared()
        self.assertIn(f"Equal weights, bit for bit (hash {result['contenders'][-1]['weights_hash']})", text)

    def test_long_runs_and_many_lanes_make_a_page_below_a_megabyte(self):
        events = [lane_name(lane, f"cuda:{lane}") for lane in range(64)] + [span("step", 0, 0, 1e6)]
        events += [span("backward", lane, 100 * i, 60, bucket=i) for lane in range(64) for i in range(100)]
        files = [write_trace(self.folder / f"t{i}.json", events) for i in range(16)]
        files += [write_metrics(self.folder / f"m{i}.jsonl", 1000 + 97 * i) for i in range(16)]
        text = self.report(*files)
        self.assertLess(len(text.encode()), 1_000_000)
        self.assertRegex(text, r"Spans shorter than \S+ ms are not drawn")
        modes = model(text)["modes"]
        self.assertLessEqual(sum(len(mode["lanes"]) for mode in modes), 128)
        self.assertLessEqual(sum(len(lane["spans"]) for mode in modes for lane in mode["lanes"]), 2000)
        for mode in modes:
            for curve in mode["curves"].values():
                self.assertLessEqual(len(curve), 300)


class Limits(Page):
    def sections(self, text):
        return {element.get("id"): "".join(element.itertext()) for element in parse(text).iter("section")}

    def many(self, lanes):
        events = [lane_name(lane, f"cpu:{lane}") for lane in range(lanes)] + [span("step", 0, 0, 10000)]
        return self.report(write_trace(self.folder / "many.json", events + [
            span("forward", lane, 0, 5000) for lane in range(lanes)]))

    def test_what_a_page_has_no_room_for_is_noted(self):
        text = self.many(300)
        self.assertIn("many.json: left out 44 spans: a page reads the first 256 threads.", text)
        self.assertNotIn("does not know", text)
        sections = self.sections(text)
        self.assertIn("Only the first 96 of 256 lanes are drawn.", sections["timeline"])
        for figure in ["devices", "moved"]:
            self.assertIn("Only the first 96 of 256 devices are drawn.", sections[figure])

    def test_what_fits_has_no_such_note(self):
        text = EMBEDDED.sub("", self.many(96))
        self.assertNotIn("Only the first", text)
        self.assertNotIn("left out", text)
        self.assertNotIn("not drawn", text)


class BadInput(Page):
    HOSTILE = "</script><script>alert(1)</script><!--\"'&\x07\u202egnp.exe\u2066\u2028\udcff"
    SHOWN = "</script><script>alert(1)</script><!--\"'&\ufffd\\u202Egnp.exe\\u2066\\u2028\ufffd"

    def test_hostile_names_stay_texts(self):
        trace = self.small_trace("<b>&.json", device="@")
        trace.write_bytes(trace.read_bytes().replace(b'"@"', json.dumps(self.HOSTILE[:-1], ensure_ascii=False).encode()))
        text = self.report(trace, write_metrics(self.folder / "</script>".replace("/", "|"), 3))
        check_self_contained(self, text)
        self.assertNotIn("<b>", text)
        self.assertIn("&lt;script&gt;alert(1)", text)
        self.assertEqual(model(text)["modes"][0]["name"], "<b>&.json")
        self.assertEqual(model(text)["modes"][0]["lanes"][0]["name"], self.SHOWN[:-1])
        self.assertIn(self.SHOWN[:-1], [cell.text for cell in parse(text).find(".//section[@id='timeline']").iter("td")])

    def test_file_names_that_are_no_utf8_or_turn_the_line_stay_texts(self):
        path = self.folder / "\u202egnp.json\udcff\x01"
        text = self.report(write_trace(path, json.loads(self.small_trace().read_text())["traceEvents"]))
        self.assertEqual(model(text)["modes"][0]["label"], "\\u202Egnp.json\ufffd\ufffd")
        self.assertEqual(parse(text).find(".//section[@id='runs']//tbody/tr/th").text, "\\u202Egnp.json\ufffd\ufffd")
        self.assertNotIn("\u202e", text)

    def test_a_trace_cut_short_gives_a_page_with_a_note(self):
        path = self.small_trace()
        path.write_text(path.read_text()[:-30])
        self.assertIn("trace.json is cut short or damaged", self.report(path))

    def test_other_files_are_refused_and_no_page_appears(self):
        for content, code in [("hello", 65), ("", 65), ('{"traceEvents":[]}', 65)]:
            path = self.folder / "other.txt"
            path.write_text(content)
            result = yoke("report", "--html", self.folder / "no.html", path)
            self.assertEqual((result.returncode, result.stdout), (code, ""))
            self.assertIn("other.txt", result.stderr)
            self.assertFalse((self.folder / "no.html").exists())
        self.assertEqual(yoke("report", self.folder / "missing.json").returncode, 66)
        self.assertEqual(yoke("report").returncode, 2)

    def test_a_page_that_cannot_be_written_loses_no_result(self):
        result = yoke("report", "--html", "/nowhere/page.html", self.small_trace())
        self.assertEqual(result.returncode, 74)
        self.assertIn("/nowhere/page.html", result.stderr)
        result = yoke("compare", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=3,rows=40", "--batch", "9",
                      "--threads", "1", "--devices", "2xcpu", "--rounds", "3", "--steps", "2", "--seconds", "0.1",
                      "--learn-steps", "0", "--algorithm", "direct", "--json", "--quiet", "--html", "/nowhere/page.html")
        self.assertEqual(result.returncode, 74)
        self.assertGreater(len(json.loads(result.stdout)["contenders"]), 1)


if __name__ == "__main__":
    unittest.main()
