#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke train --trace and --straggler: every rank in one file that follows the Trace Event Format, and who waits for whom.

usage: test_traces.py YOKE [unittest arguments]. YOKE_TEST_MPIEXEC: mpiexec, where the build has MPI.
"""
import collections
import json
import os
import subprocess
import unittest

from launch_case import Case, LIMIT_S, YOKE, environment, launch

MPIEXEC = os.environ.get("YOKE_TEST_MPIEXEC", "")
STEPS = 6
RUN = ["train", "--model", "mlp", "--dataset", "synthetic:1x28x28,rows=2000", "--batch", "64", "--algorithm", "direct",
       "--evaluate-every", "-1", "--json", "--quiet"]


class Trace:
    """A file of the Trace Event Format; reading it checks the rules that viewers rely on."""

    def __init__(self, path):
        events = json.loads(path.read_text())["traceEvents"]
        self.names = {(event["pid"], event["tid"]): event["args"]["name"]
                      for event in events if event["name"] == "thread_name"}
        self.processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.spans = [event for event in events if event["ph"] == "X"]
        self.flows = collections.defaultdict(list)
        self.threads = collections.defaultdict(list)
        for span in self.spans:
            assert span["dur"] >= 0 and span["ts"] >= 0 and span["pid"] > 0 and span["tid"] > 0, span
            self.threads[span["pid"], span["tid"]].append(span)
        for event in events:
            if event["ph"] in "stf":
                self.flows[event["id"]].append(event)
        assert set(self.threads) <= set(self.names) and {pid for pid, _ in self.threads} <= set(self.processes)
        self.check_nesting()
        self.arrows = [self.arrow(flow) for flow in self.flows.values()]

    def check_nesting(self):
        """Spans of a thread lie in file order: each inside the one that is open when it begins, or after it."""
        for spans in self.threads.values():
            ends = []
            for before, span in zip([None, *spans], spans):
                end = span["ts"] + span["dur"]
                assert before is None or before["ts"] <= span["ts"], (before, span)
                while ends and ends[-1] <= span["ts"] + 1e-6:
                    ends.pop()
                assert not ends or end <= ends[-1] + 1e-6, span
                ends.append(end)

    def arrow(self, flow):
        """The category and the spans that the flow's events bind to."""
        assert [event["ph"] for event in flow] == ["s", *"t" * (len(flow) - 2), "f"], flow
        assert len({(event["cat"], event["name"]) for event in flow}) == 1, flow
        assert all(event["bp"] == "e" for event in flow[1:]), flow
        assert all(a["ts"] <= b["ts"] for a, b in zip(flow, flow[1:])), flow
        return flow[0]["cat"], [self.enclosing(event) for event in flow]

    def enclosing(self, event):
        around = [span for span in self.threads[event["pid"], event["tid"]]
                  if span["ts"] <= event["ts"] < span["ts"] + span["dur"]]
        return min(around, key=lambda span: span["dur"])

    def name(self, span):
        return self.names[span["pid"], span["tid"]]

    def causes(self):
        """Lane: the lane that it waited longest for, over all steps."""
        waited = collections.defaultdict(collections.Counter)
        for span in self.spans:
            if span["name"] == "wait":
                waited[self.name(span)][span["args"].get("cause")] += span["dur"]
        return {lane: causes.most_common(1)[0][0] for lane, causes in waited.items()}


class Traces(Case):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "trace.json"

    def train(self, *arguments, launcher=(), steps=STEPS):
        tool = [] if YOKE in launcher else [YOKE]  # yoke launch runs its own program
        result = subprocess.run(
            [*launcher, *tool, *RUN, "--steps", str(steps), "--trace", self.path, "--force", *map(str, arguments)],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
            env=environment({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                             "OMPI_MCA_rmaps_base_oversubscribe": "1", "ASAN_OPTIONS": "detect_leaks=0"}
                            if launcher and launcher[0] == MPIEXEC else {}))
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def check_ranks(self, trace, ranks):
        self.assertEqual(trace.processes, {rank + 1: f"rank {rank}" for rank in range(ranks)})
        self.assertEqual({name.split(" · ")[0] for name in trace.names.values()}, set(trace.processes.values()))
        steps = collections.Counter(span["pid"] for span in trace.spans if span["name"] == "step")
        self.assertEqual(steps, {rank + 1: STEPS for rank in range(ranks)})
        crossing = [spans for category, spans in trace.arrows
                    if category == "gradient" and spans[0]["pid"] != spans[-1]["pid"]]
        self.assertGreater(len(crossing), 0)
        for spans in crossing:
            self.assertEqual(len({(span["args"]["step"], span["args"]["bucket"]) for span in spans}), 1)

    def test_every_rank_is_a_process_of_one_file(self):
        for schedule in ["overlap", "sharded"]:
            with self.subTest(schedule=schedule):
                self.train("--mode", "ddp", "--schedule", schedule,
                           launcher=[YOKE, "launch", "--nproc-per-node", "3", "--"])
                self.check_ranks(Trace(self.path), 3)
                self.assertEqual([path.name for path in self.folder.glob("trace*")], ["trace.json"])

    @unittest.skipUnless(MPIEXEC, "the build has no MPI")
    def test_every_rank_over_mpi(self):
        self.train("--mode", "ddp", "--transport", "mpi", launcher=[MPIEXEC, "-n", "2"])
        self.check_ranks(Trace(self.path), 2)

    def test_buckets_are_numbered_and_lead_to_their_update(self):
        for schedule in ["overlap", "classic", "sharded", "python"]:
            with self.subTest(schedule=schedule):
                self.train("--devices", "2xcpu", "--schedule", schedule, "--bucket-mb", "0.1")
                trace = Trace(self.path)
                buckets = {span["args"]["bucket"] for span in trace.spans if span["name"] == "backward"}
                self.assertEqual(buckets, set(range(len(buckets))))
                self.assertGreater(len(buckets), 1)
                phased = schedule in ["classic", "python"]
                last = "update" if phased else "exchange"
                ends = {(spans[0]["args"]["step"], spans[0]["args"]["bucket"], trace.name(spans[0]))
                        for category, spans in trace.arrows
                        if category == "gradient" and [spans[0]["name"], spans[-1]["name"]] == ["backward", last]}
                self.assertEqual(ends, {(step, bucket, device) for step in range(STEPS) for bucket in buckets
                                        for device in ["cpu:0", "cpu:1"]})
                published = sum(category == "publish" for category, _ in trace.arrows)
                self.assertEqual(published, 2 * (STEPS - 1) if phased else 0)

    def test_who_waits_for_the_interpreter_names_who_holds_it(self):
        self.train("--devices", "2xcpu", "--schedule", "python", "--interpreter-us", "500")
        trace = Trace(self.path)
        waits = [span for span in trace.spans if span["name"] == "wait" and
                 span["args"].get("cause_stage") == "python"]
        self.assertEqual({(trace.name(wait), wait["args"]["cause"]) for wait in waits},
                         {("cpu:0", "cpu:1"), ("cpu:1", "cpu:0")})
        self.assertGreater(max(wait["dur"] for wait in waits), 300)

    def test_a_straggler_is_the_cause_of_waits_and_changes_no_weight(self):
        plain = self.train("--devices", "2xcpu")["weights_hash"]
        for schedule in ["overlap", "classic", "sharded"]:
            with self.subTest(schedule=schedule):
                slow = self.train("--devices", "2xcpu", "--schedule", schedule, "--straggler", "1:20")
                self.assertEqual(slow["weights_hash"], plain)
                self.assertEqual(Trace(self.path).causes()["cpu:0"], "cpu:1")

    def test_a_slow_rank_is_the_cause_of_waits_and_changes_no_weight(self):
        ranks = ["--mode", "ddp"]
        for schedule in ["overlap", "sharded"]:
            with self.subTest(schedule=schedule):
                launcher = [YOKE, "launch", "--nproc-per-node", "3", "--"]
                plain = self.train(*ranks, "--schedule", schedule, launcher=launcher)
                slow = self.train(*ranks, "--schedule", schedule, "--straggler", "2:20", launcher=launcher)
                self.assertEqual(slow["weights_hash"], plain["weights_hash"])
                causes = Trace(self.path).causes()
                self.assertEqual({lane: causes[lane].split(" · ")[0] for lane in causes if lane < "rank 2"},
                                 {f"rank {rank} · cpu:{rank}": "rank 2" for rank in range(2)})

    def test_a_dead_rank_takes_no_other_rank_s_trace_with_it(self):
        command = " ".join(["exec", str(YOKE), *RUN, "--mode", "ddp", "--steps", "1000000", "--trace", "trace.json"])
        process = self.start(f"echo $$ > part-$RANK; mv part-$RANK pid-$RANK; "
                             f"[ $RANK = 0 ] && set -- --metrics lines; {command} $@", "--nproc-per-node", "3")
        pid = self.pid("pid-1")
        self.wait_for("lines")
        while (self.folder / "lines").read_text().count("\n") < 5:
            self.assertIsNone(process.poll())
        os.kill(pid, 9)
        _, errors = process.communicate(timeout=LIMIT_S)
        self.assertNotEqual(process.returncode, 0)
        for name, rank in [("trace.json", 0), ("trace.json.rank-2", 2)]:
            self.assertTrue((self.folder / name).exists(), errors)
            trace = Trace(self.folder / name)
            self.assertEqual(trace.processes, {rank + 1: f"rank {rank}"})
            self.assertGreater(sum(span["name"] == "step" for span in trace.spans), 3)

    def test_ranks_agree_on_whether_they_trace(self):
        command = " ".join([str(YOKE), *RUN, "--mode", "ddp", "--steps", "2"])
        result = self.sh(f"[ $RANK = 0 ] && set -- --trace trace.json; exec {command} $@", "--nproc-per-node", "2")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("trace yes", result.stderr)
        self.assertIn("trace no", result.stderr)

    def test_impossible_stragglers_are_usage_errors(self):
        for verb in ["train", "compare"]:
            for text in ["2:2", "1:0.5", "x:2", "1", "1:", "1:2x", "-1:2", "1:inf", "1:1e300", "1:nan", ":2", "99999999999:2"]:
                with self.subTest(verb=verb, text=text):
                    result = subprocess.run([YOKE, verb, "--devices", "2xcpu", "--straggler", text],
                                            capture_output=True, text=True, timeout=LIMIT_S, check=False,
                                            env=environment())
                    self.assertEqual(result.returncode, 2, result.stderr)
                    self.assertIn("straggler", result.stderr)
        result = launch("--nproc-per-node", "2", "--", "train", "--mode", "ddp", "--straggler", "2:2")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("straggler is 2: the ranks are 0 to 1", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
