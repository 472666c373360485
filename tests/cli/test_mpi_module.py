#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The MPI transport without a usable module: Yoke says what is wrong and what to do before it waits for any rank.
A run without that transport never opens the module.

usage: test_mpi_module.py YOKE ROOT CC yes|no [unittest arguments]; yes: MPI is in the build
"""
import pathlib
import shutil
import subprocess
import sys
import unittest

from launch_case import YOKE, Case, environment

ROOT, CC, HAS_MPI = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1) == "yes"
TRAIN = ["train", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=4,rows=32", "--batch", "8", "--steps", "2",
         "--threads", "1", "--quiet", "--mode", "ddp"]
TABLE = '#include "distributed/mpi/module/module.h"\nconst yoke_mpi_calls yoke_mpi_module = {{{}}};\n'


class ModuleCase(Case):
    def setUp(self):
        super().setUp()
        self.folder = self.folder / "bin"  # what is built in is found beside it, too
        self.folder.mkdir()
        self.tool = shutil.copy(YOKE, self.folder)
        self.module = self.folder / "libyoke_mpi.so"

    def train(self, *more):
        return subprocess.run([self.tool, *TRAIN, *more], env=environment(), capture_output=True, text=True,
                              check=False, stdin=subprocess.DEVNULL, timeout=900)

    def expect_refused(self, *parts):
        ran = self.train("--transport", "mpi")
        self.assertEqual(ran.returncode, 69, ran.stderr)
        self.assertEqual(len(ran.stderr.splitlines()), 1, ran.stderr)
        for part in parts:
            self.assertIn(str(part), ran.stderr)

    def compile(self, text, output, *words):
        source = self.folder / "source.c"
        source.write_text(text)
        subprocess.run([CC, "-shared", "-fPIC", f"-I{ROOT}/include", f"-I{ROOT}/src", "-o", output, source, *words],
                       check=True)


class Unasked(ModuleCase):
    def test_runs_without_the_transport_need_no_module(self):
        self.module.write_text("no library")
        ran = self.train()
        self.assertEqual(ran.returncode, 0, ran.stderr)

    @unittest.skipIf(HAS_MPI, "MPI is in this build")
    def test_a_build_without_mpi_says_what_to_install(self):
        self.expect_refused("this build of Yoke has no MPI", "libopenmpi-dev", "configure Yoke")


@unittest.skipUnless(HAS_MPI, "MPI is not in this build")
class Broken(ModuleCase):
    def test_a_missing_file_is_reported_with_the_places_searched(self):
        self.expect_refused("libyoke_mpi.so is not in", f"{self.folder},", f"{self.folder}/yoke0,",
                            f"{self.folder}/../lib", "install Yoke again")

    def test_a_corrupt_file_is_reported_with_the_loaders_error(self):
        for content, word in [("", "file too short"), ("no library " * 1000, "invalid ELF header")]:
            self.module.write_text(content)
            self.expect_refused("cannot open MPI", self.module, word)

    def test_a_library_that_is_gone_is_named(self):
        gone = self.folder / "libgone.so"
        self.compile("int gone(void) { return 1; }", gone, f"-Wl,-soname,{gone.name}")
        self.compile("int gone(void); int here(void) { return gone(); }", self.module, gone)
        gone.unlink()
        self.expect_refused(f"{gone.name}: cannot open shared object file", "install the MPI")

    def test_another_version_is_refused(self):
        for fields in [".version = YOKE_MPI_VERSION + 1, .bytes = sizeof(yoke_mpi_calls)",
                       ".version = YOKE_MPI_VERSION, .bytes = sizeof(yoke_mpi_calls) - 8"]:
            self.compile(TABLE.format(fields), self.module)
            self.expect_refused(self.module, "another version of Yoke")

    def test_any_other_library_is_refused(self):
        self.compile("int something;", self.module)
        self.expect_refused(self.module, "another version of Yoke")


if __name__ == "__main__":
    unittest.main(verbosity=2)
