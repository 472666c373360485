#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke launch while its workers run: how they end, and how their output reaches the user.

usage: test_launch_life.py YOKE [unittest arguments]
"""
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import time
import unittest

from launch_case import Case, LIMIT_S, YOKE, environment, is_running, launch, state_of, wait_until

SAY_PID = "echo $$ > p$RANK.part; mv p$RANK.part p$RANK; "


class Ends(Case):
    def finish(self, process):
        stdout, stderr = process.communicate(timeout=LIMIT_S)
        return process.returncode, stdout, stderr

    @staticmethod
    def children(process):
        listed = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]

    def gone(self, *pids):
        wait_until(lambda: not any(map(is_running, pids)), f"the end of {pids}")

    def test_the_exit_code_is_the_failing_ranks(self):
        for code, script in [(0, "true"), (3, "[ $RANK != 2 ] || exit 3"), (255, "exit 255"),
                             (128 + 9, "[ $RANK != 1 ] || kill -9 $$"), (128 + 6, "kill -ABRT $$"),
                             (137, "exit 137")]:
            result = self.sh(script, "--nproc-per-node", 3)
            self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn("exited with code 137", result.stderr)

    def test_a_rank_that_is_killed_ends_all_at_once_and_is_named(self):
        process = self.start("echo I am $RANK >&2; " + SAY_PID + "sleep 1000", "--nproc-per-node", "4", "--grace", "3000")
        pids = [self.pid(f"p{rank}") for rank in range(4)]
        os.kill(pids[2], signal.SIGKILL)
        code, _, stderr = self.finish(process)  # nobody waited for the grace
        self.assertEqual(code, 137)
        self.assertIn(f"yoke: rank 2 (pid {pids[2]}) died of SIGKILL; stopping the other 3\n", stderr)
        self.assertIn("yoke: last lines of rank 2:\n  | I am 2\n", stderr)
        self.gone(*pids)

    def test_the_earliest_failure_is_reported_also_when_several_are_found_together(self):
        process = self.start(SAY_PID + "until [ -e go$RANK ]; do sleep 0.01; done; exit 1$RANK",
                             "--nproc-per-node", "3")
        pids = [self.pid(f"p{rank}") for rank in range(3)]
        facts = pathlib.Path(f"/proc/{process.pid}/fdinfo")

        def watched():
            try:
                return sum(fact.read_text().count("tfd:") for fact in facts.iterdir())
            except OSError:  # one was closed meanwhile
                return 0

        wait_until(lambda: watched() == 3, "the watch")
        process.send_signal(signal.SIGSTOP)
        for rank in [2, 0, 1]:
            (self.folder / f"go{rank}").touch()
            self.gone(pids[rank])
        process.send_signal(signal.SIGCONT)
        code, _, stderr = self.finish(process)
        self.assertEqual(code, 12)
        self.assertIn("rank 2", stderr)
        self.assertEqual(stderr.count("exited with code"), 1)

    def test_a_worker_that_survives_sigterm_is_killed_after_the_grace(self):
        process = self.start("[ $RANK = 1 ] || { trap '' TERM; " + SAY_PID + "while :; do sleep 0.05; done; }; "
                             "until [ -e p0 ]; do sleep 0.01; done; exit 4", "--nproc-per-node", "2", "--grace", "0.3")
        code, _, stderr = self.finish(process)
        self.assertEqual(code, 4)
        self.assertIn("1 rank did not end within 0.3 s: sending SIGKILL", stderr)
        self.gone(self.pid("p0"))

    def meeting(self):
        """The folder that launcher and ranks share; a worker has written where the store is."""
        return pathlib.Path((self.folder / "place").read_text().strip()[len("file://"):]).parent

    def test_nothing_outlives_a_launcher_that_is_killed(self):
        process = self.start("echo $YOKE_MASTER_ADDR > place; " + SAY_PID + "sleep 1000 & "
                             "echo $! > child$RANK.part; mv child$RANK.part child$RANK; wait",
                             "--nproc-per-node", "2")
        pids = [self.pid(name) for name in ["p0", "p1", "child0", "child1"]]
        guards = self.children(process)
        self.assertEqual(len(guards), 3)
        self.assertTrue(self.meeting().is_dir())
        process.kill()
        self.gone(*pids, *guards)
        self.assertFalse(self.meeting().exists())

    def test_a_guard_that_is_killed_is_not_needed(self):
        hold = self.folder / "hold"
        os.mkfifo(hold)
        for kill_launcher in [True, False]:
            process = self.start("echo $YOKE_MASTER_ADDR > place; " + SAY_PID + "read x < hold")
            worker = self.pid("p0")
            guard = next(pid for pid in self.children(process) if pid != worker)
            os.kill(guard, signal.SIGKILL)
            if kill_launcher:
                process.kill()
                self.addCleanup(shutil.rmtree, self.meeting())
            else:
                hold.write_text("end\n")
                self.assertEqual(self.finish(process), (0, "", ""))
                self.assertFalse(self.meeting().exists())
            self.gone(worker, guard)
            (self.folder / "p0").unlink()

    def test_what_a_worker_leaves_running_ends_with_the_run(self):
        result = self.sh("sleep 1000 & echo $!; (sleep 0.1; echo late) & true")
        self.assertEqual(result.returncode, 0)
        pid, late = result.stdout.split()
        self.assertEqual(late, "late")
        self.gone(int(pid))

    def test_signals_go_on_once_and_decide_the_exit_code(self):
        counting = "trap 'echo got >> n$RANK' INT TERM; " + SAY_PID + \
            "until [ -s n$RANK ]; do sleep 0.01; done; sleep 0.1; exit 0"
        for number, code in [(signal.SIGINT, 130), (signal.SIGTERM, 143)]:
            process = self.start(counting, "--nproc-per-node", "2")
            self.wait_for("p0", "p1")
            process.send_signal(number)
            self.assertEqual(self.finish(process)[0], code)
            for rank in range(2):
                self.assertEqual((self.folder / f"n{rank}").read_text(), "got\n")
                (self.folder / f"n{rank}").unlink()
                (self.folder / f"p{rank}").unlink()

    def test_the_second_signal_ends_all_at_once(self):
        process = self.start("trap '' INT TERM; " + SAY_PID + "while :; do sleep 0.05; done",
                             "--nproc-per-node", "2", "--grace", "1000")
        pids = [self.pid("p0"), self.pid("p1")]
        process.send_signal(signal.SIGINT)
        self.assertIn("passed SIGINT on to 2 ranks", process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process), (130, "", ""))
        self.gone(*pids)

    def test_one_signal_kills_after_the_grace_whoever_does_not_end(self):
        process = self.start("trap '' TERM; " + SAY_PID + "while :; do sleep 0.05; done", "--nproc-per-node", "2",
                             "--grace", "0.3")
        pids = [self.pid("p0"), self.pid("p1")]
        process.send_signal(signal.SIGTERM)
        code, _, stderr = self.finish(process)
        self.assertEqual(code, 143)
        self.assertEqual(stderr.splitlines(), [
            "yoke: passed SIGTERM on to 2 ranks, to end within 0.3 s; a second signal kills at once",
            "yoke: 2 ranks did not end within 0.3 s: sending SIGKILL"])
        self.gone(*pids)

    def test_who_is_stopped_when_the_others_are_to_end_is_killed_at_once(self):
        """The others have their grace: rank 0 saves, and a stopped rank costs none of it."""
        save = "trap 'sleep 0.5; echo > saved; exit 0' TERM; "
        for end, script, expected in [
                ("a signal", "[ $RANK = 0 ] || kill -STOP $$; ", 143),
                ("a failure", "[ $RANK != 1 ] || kill -STOP $$; [ $RANK != 2 ] || { until [ -e go ]; do sleep 0.05; done; "
                              "exit 3; }; ", 3)]:
            with self.subTest(end=end):
                process = self.start(save + SAY_PID + script + "while :; do sleep 0.05; done", "--nproc-per-node", "3",
                                     "--grace", "1000")
                pids = [self.pid(f"p{rank}") for rank in range(3)]
                wait_until(lambda: "T" in state_of(pids[1]), "its stop")
                if expected == 143:
                    process.send_signal(signal.SIGTERM)
                else:
                    (self.folder / "go").touch()
                code, _, stderr = self.finish(process)
                self.assertEqual(code, expected, stderr)
                self.assertIn(f"yoke: rank 1 (pid {pids[1]}) is stopped, and cannot end: sending SIGKILL", stderr)
                self.assertTrue((self.folder / "saved").exists())
                self.gone(*pids)
                for path in self.folder.iterdir():
                    path.unlink()

    def test_a_rank_stopped_when_all_others_have_ended_is_not_waited_for(self):
        process = self.start(SAY_PID + "[ $RANK = 1 ] || kill -STOP $$", "--nproc-per-node", "2", "--grace", "0.3")
        stopped = self.pid("p0")
        code, _, stderr = self.finish(process)
        self.assertEqual(code, 137)
        self.assertEqual(stderr.splitlines(), [
            f"yoke: rank 0 (pid {stopped}) is stopped, and no other rank runs here",
            f"yoke: rank 0 (pid {stopped}) is stopped, and cannot end: sending SIGKILL"])
        self.gone(stopped)

    def test_a_rank_that_fails_after_a_signal_hurries_no_other(self):
        """A second signal would end a rank that still saves."""
        process = self.start("trap 'echo got >> n$RANK; [ $RANK = 0 ] || { sleep 0.5; exit 3; }' TERM; " + SAY_PID +
                             "while :; do sleep 0.05; done", "--nproc-per-node", "2", "--grace", "1.5")
        self.wait_for("p0", "p1")
        process.send_signal(signal.SIGTERM)
        code, _, stderr = self.finish(process)
        self.assertEqual(code, 143)
        self.assertIn("exited with code 3", stderr)
        self.assertIn("1 rank did not end within 1.5 s: sending SIGKILL", stderr)
        self.assertEqual((self.folder / "n0").read_text(), "got\n")

    def test_the_first_signal_after_a_failure_kills_no_rank_that_saves(self):
        process = self.start("trap 'until [ -e go ]; do sleep 0.05; done; echo > saved; exit 0' TERM; " + SAY_PID +
                             "[ $RANK = 0 ] || until [ -e p0 ]; do sleep 0.05; done; [ $RANK = 0 ] || exit 3; "
                             "while :; do sleep 0.05; done", "--nproc-per-node", "2")
        self.assertIn("exited with code 3; stopping the other 1", process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        said = process.stderr.readline()
        if said == "Terminated\n":  # by the rank's shell, of its sleep
            said = process.stderr.readline()
        self.assertEqual(said, "yoke: SIGTERM: 1 rank had SIGTERM already; a second signal kills at once\n")
        (self.folder / "go").touch()
        self.assertEqual(self.finish(process)[0], 3)
        self.assertTrue((self.folder / "saved").exists())

    def test_a_kill_for_lack_of_memory_is_called_one(self):
        """A count of the control group that rises before the kill, in a file system of the test's own."""
        count = self.folder / "count"
        group = next((line.split(":", 2) for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()
                      if ":memory:" in line or line.startswith("0::")), None)
        root = "/sys/fs/cgroup" + ("/memory" if group and group[1] else "")
        name = "memory.oom_control" if group and group[1] else "memory.events"
        places = [place for place in [f"{root}{group[2]}/{name}", f"{root}/{name}"] if os.path.exists(place)] \
            if group else []
        script = f"mount --bind {count} {places[0] if places else ''} && " \
            f"exec '{YOKE}' launch -- sh -c 'echo oom_kill $MORE > {count}; kill -9 $$'"
        for more, expected in [(8, True), (7, False)]:
            count.write_text("low 1\noom_kill 7\n")
            result = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False,
                                    timeout=LIMIT_S, env=environment({"MORE": str(more)}))
            if not places or "rank 0" not in result.stderr:
                self.skipTest(f"no control group to stand in for: {places} {result.stderr.strip()}")
            self.assertEqual(result.returncode, 137)
            self.assertIn("died of SIGKILL", result.stderr)
            self.assertEqual("probably out of memory" in result.stderr, expected, result.stderr)

    def test_user_signals_go_on_and_end_nothing(self):
        process = self.start("trap 'echo saved; exit 0' USR1; " + SAY_PID + "while :; do sleep 0.01; done")
        self.wait_for("p0")
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(self.finish(process)[:2], (0, "saved\n"))

    def test_ranks_that_a_user_signal_ended_have_not_failed(self):
        process = self.start("trap 'exit 138' USR1; " + SAY_PID + "while :; do sleep 0.01; done",
                             "--nproc-per-node", "2", "--max-restarts", "3")
        self.wait_for("p0", "p1")
        process.send_signal(signal.SIGUSR1)
        code, _, errors = self.finish(process)
        self.assertEqual(code, 138)
        self.assertNotIn("yoke:", errors)  # neither started again nor reported

    def test_a_signal_that_was_ignored_before_stays_ignored(self):
        process = self.start(SAY_PID + "until [ -e go ]; do sleep 0.01; done; echo on",
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_for("p0")
        process.send_signal(signal.SIGHUP)
        (self.folder / "go").touch()
        self.assertEqual(self.finish(process), (0, "on\n", ""))

    def test_a_program_that_cannot_be_started_is_named(self):
        (self.folder / "text").write_text("no program\n")
        for code, words, program in [(127, "No such file", "./nowhere"), (127, "No such file", "nowhere-at-all"),
                                     (126, "Permission denied", "./text"), (126, "Permission denied", "/")]:
            result = launch("--nproc-per-node", 2, "--", program, cwd=self.folder)
            self.assertEqual(result.returncode, code)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertIn(f"yoke: rank 0 did not start: {program}: {words}", result.stderr)

    def test_all_ranks_restart_as_often_as_max_restarts(self):
        count = 'echo $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS:$YOKE_MASTER_ADDR >> n$RANK; '
        result = self.sh(count + "[ $TORCHELASTIC_RESTART_COUNT = 2 ] || { [ $RANK = 0 ] || { until grep "
                         "-sq $TORCHELASTIC_RESTART_COUNT/ n0; do sleep 0.01; done; exit 5; }; sleep 9; }",
                         "--nproc-per-node", 2, "--max-restarts", 3)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("restarting all ranks (2 of 3)", result.stderr)
        for rank in range(2):
            lines = (self.folder / f"n{rank}").read_text().split()
            self.assertEqual([line.split(":")[0] for line in lines], ["0/3", "1/3", "2/3"])
            self.assertEqual(len(set(lines)), 3, "each meets elsewhere")
        result = self.sh("exit 6", "--max-restarts", 1)
        self.assertEqual((result.returncode, result.stderr.count("exited with code 6")), (6, 2))

    def test_waiting_costs_nothing(self):
        process = self.start(SAY_PID + "sleep 1", "--nproc-per-node", "2")
        self.wait_for("p0", "p1")
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        self.assertLess(used.ru_nvcsw + used.ru_nivcsw, 300, "wakes up too often")
        process.communicate()


class Output(Case):
    def test_rank_0_alone_is_shown_byte_by_byte(self):
        result = self.sh(r"[ $RANK = 0 ] || { echo other; exit; }; printf 'a\0b\r\n\377no newline'",
                         "--nproc-per-node", 3, text=False)
        self.assertEqual((result.stdout, result.stderr), (b"a\0b\r\n\xffno newline", b""))

    def test_other_ranks_are_shown_with_their_number(self):
        script = "echo out $RANK; echo err $RANK >&2"
        for shown, options in [([0], []), ([0, 2], ["--log-ranks", "0,2"]), ([1], ["--log-ranks=1"]),
                               ([0, 1, 2], ["--log-ranks", "all"])]:
            result = self.sh(script, "--nproc-per-node", 3, *options)
            front = ["", "[rank 1] ", "[rank 2] "]
            self.assertEqual(sorted(result.stdout.splitlines()),
                             sorted(f"{front[rank]}out {rank}" for rank in shown))
            self.assertEqual(sorted(result.stderr.splitlines()),
                             sorted(f"{front[rank]}err {rank}" for rank in range(3)))
        result = self.sh(script, "--nproc-per-node", 2, "--tee")
        self.assertEqual(sorted(result.stdout.splitlines()), ["[rank 0] out 0", "[rank 1] out 1"])
        self.assertEqual(sorted(result.stderr.splitlines()), ["[rank 0] err 0", "[rank 1] err 1"])

    def test_lines_stay_whole_however_they_are_written(self):
        """Parts of lines, long lines, both streams into one file."""
        script = """for i in $(seq 150); do
            printf "<$RANK "; printf "<$RANK " >&2
            printf %01000d $i
            printf '>\\n' >&2; printf '>\\n'
        done"""
        result = self.sh(script, "--nproc-per-node", 4, "--tee", stderr=subprocess.STDOUT)
        lines = result.stdout.splitlines()
        self.assertEqual(len(lines), 4 * 300)
        for line in lines:
            self.assertRegex(line, r"^\[rank (\d)\] <\1 (\d{1000})?>$")

    def test_a_line_without_end_is_not_kept_for_ever(self):
        result = self.sh("head -c 300000 /dev/zero | tr '\\0' x; echo; echo next", "--tee")
        *lines, last = result.stdout.splitlines()
        self.assertEqual(sum(line.count("x") for line in lines), 300000)
        self.assertEqual(last, "[rank 0] next")

    def test_the_last_lines_of_the_failing_rank_are_repeated(self):
        result = self.sh("i=0; while [ $i -lt 500 ]; do i=$((i+1)); echo line $i >&2; done; printf end >&2; exit 3")
        told = result.stderr.split("yoke: last lines of rank 0:\n")[1]
        self.assertEqual(told, "".join(f"  | line {i}\n" for i in range(492, 501)) + "  | end\n")

    def test_a_log_folder_keeps_both_streams_of_every_rank(self):
        logs = self.folder / "logs"
        result = self.sh("echo out $RANK; echo err $RANK >&2", "--nproc-per-node", 2, "--log-dir", logs)
        self.assertEqual(result.stdout, "out 0\n")
        self.assertEqual({path.name: path.read_text() for path in logs.iterdir()},
                         {f"rank_{rank}.{kind}": f"{kind} {rank}\n" for rank in range(2) for kind in ["out", "err"]})
        self.sh("echo again", "--log-dir", logs, "--max-restarts", 1)
        self.assertEqual((logs / "rank_0.out").read_text(), "again\n")
        self.sh("echo $TORCHELASTIC_RESTART_COUNT; exit 1", "--log-dir", logs, "--max-restarts", 2)
        self.assertEqual((logs / "rank_0.out").read_text(), "0\n1\n2\n")

    def test_a_log_that_cannot_be_written_is_an_error_and_stops_nobody(self):
        result = launch("--log-dir", "/nowhere/logs", "--", "echo", "x")
        self.assertEqual((result.returncode, result.stdout), (74, ""))
        self.assertIn("yoke: /nowhere/logs: cannot create the folder: No such file", result.stderr)
        (self.folder / "rank_1.out").mkdir()
        result = self.sh("echo x >> started", "--nproc-per-node", 2, "--log-dir", ".")
        self.assertEqual((result.returncode, (self.folder / "started").exists()), (74, False))
        self.assertIn("./rank_1.out: cannot write the log: Is a directory", result.stderr)
        (self.folder / "rank_0.err").unlink()
        os.mkfifo(self.folder / "rank_0.err")
        result = self.sh("echo x >> started", "--log-dir", ".")
        self.assertEqual((result.returncode, (self.folder / "started").exists()), (74, False))
        self.assertIn("./rank_0.err: cannot write the log: it is a FIFO that nobody reads; remove it", result.stderr)
        (self.folder / "rank_0.err").unlink()
        (self.folder / "rank_0.err").symlink_to("/dev/full")
        result = self.sh("echo a >&2; sleep 0.1; echo b >&2; echo done", "--log-dir", ".")
        self.assertEqual((result.returncode, result.stdout), (74, "done\n"))
        self.assertEqual(result.stderr.splitlines(),
                         ["yoke: ./rank_0.err: No space left on device; the log ends here", "a", "b"])

    def test_a_full_standard_output_is_an_error(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            result = self.sh("echo x", stdout=full)
        self.assertEqual(result.returncode, 74)
        self.assertIn("No space left", result.stderr)

    def test_a_reader_that_leaves_ends_the_run_as_it_would_a_program(self):
        result = subprocess.run(["sh", "-c", f"'{YOKE}' launch -- yes | head -n 1"], capture_output=True,
                                text=True, timeout=LIMIT_S, check=False, env=environment())
        self.assertEqual(result.stdout, "y\n")
        self.assertRegex(result.stderr, "rank 0 .*SIGPIPE")

    def test_a_reader_that_stops_reading_slows_workers_but_not_the_launcher(self):
        process = self.start(SAY_PID + "exec yes", "--tee")
        writer = f"/proc/{self.pid('p0')}/io"

        def written():
            return re.search(r"wchar: (\d+)", pathlib.Path(writer).read_text())[1]

        before = None
        while before != written():  # until every buffer is full
            before = written()
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        self.assertIn("passed SIGTERM on", process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=LIMIT_S), 143)
        process.communicate()

    def test_a_terminal_stays_one_for_rank_0(self):
        try:
            ours, theirs = pty.openpty()
        except OSError:
            self.skipTest("this system offers no pseudo-terminals")
        process = self.start("for i in 0 1 2; do [ -t $i ] && printf $i; done > t$RANK; echo seen",
                             "--nproc-per-node", "2", stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.assertEqual(process.wait(timeout=LIMIT_S), 0)
        self.assertTrue(select.select([ours], [], [], 0)[0])
        self.assertEqual(os.read(ours, 100), b"seen\r\n")
        os.close(ours)
        self.assertEqual([(self.folder / f"t{rank}").read_text() for rank in range(2)], ["2", ""])


if __name__ == "__main__":
    unittest.main(verbosity=2)
