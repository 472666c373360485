#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""find_package and pkg-config find an installed Yoke, shared and static, and another project can add its folder: each way
builds one small program and runs it. What cannot serve a program is refused in words.

usage: install.py SOURCE_FOLDER BUILD_FOLDER CMAKE CC WAYS, WAYS being `installed` or `subdirectory`
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <yoke/yoke.h>
static int join_over_mpi(void) {
    yoke_process_group_options options = {.struct_size = sizeof options, .transport = YOKE_TRANSPORT_MPI};
    yoke_process_group *group = NULL;
    yoke_status status = yoke_process_group_create(&group, &options);
    puts(status == YOKE_OK ? yoke_process_group_transport(group) : yoke_last_error());
    yoke_process_group_destroy(group);
    return status != YOKE_OK;
}
int main(int count, char **words) {
    char header[32];
    (void)words;
    if (count > 1) return join_over_mpi();
    snprintf(header, sizeof header, "%d.%d.%d", YOKE_VERSION_MAJOR, YOKE_VERSION_MINOR,
             YOKE_VERSION_PATCH);
    yoke_model *model = NULL;
    yoke_shape input = {.channels = 1, .height = 28, .width = 28};
    yoke_status status = yoke_model_preset(&model, "mlp", input, 10, NULL);
    if (status != YOKE_OK) printf("%s\n", yoke_last_error());
    printf("yoke %s, mlp has %zu parameters\n", yoke_version(), yoke_model_parameter_count(model));
    yoke_model_destroy(model);
    return status != YOKE_OK || strcmp(header, yoke_version()) != 0;
}
"""
# Names of the library's inside, as a program may have them.
NAMESAKES = r"""
#include <stdio.h>
#include <stdlib.h>
#include <yoke/yoke.h>
#define OWN(name) void name(void); void name(void) { puts(#name " of the program was called"); abort(); }
OWN(cpu_sum) OWN(shm_step) OWN(yoke_enter) OWN(yoke_malloc) OWN(yoke_replica_forward)
int main(void) {
    yoke_trainer_options options = {.struct_size = sizeof options, .model = "mlp", .steps = 2, .batch = 8,
                                    .dataset = "synthetic:1x8x8,classes=4,rows=32", .devices = "2xcpu"};
    yoke_trainer *trainer = NULL;
    int failed = yoke_trainer_create(&trainer, &options) || yoke_trainer_run(trainer);
    puts(failed ? yoke_last_error() : "trained");
    yoke_trainer_destroy(trainer);
    return 0;
}
"""
PLUGIN = r"""
#include <yoke/yoke.h>
__attribute__((visibility("default"))) const char *plugin_version(void) { return yoke_version(); }
"""
EXPECTED = re.compile(r"^yoke \d+\.\d+\.\d+, mlp has 1863690 parameters$")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
FOUND = """cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES {languages})
set(name kept)
find_package(yoke {wanted} REQUIRED)
if(NOT name STREQUAL kept OR CMAKE_MODULE_PATH)
  message(FATAL_ERROR "find_package(yoke) changes variables of the program")
endif()
add_executable(program program.c)
target_link_libraries(program PRIVATE {target})
"""
ALONE = """if(TARGET yoke::yoke_static OR TARGET ZLIB::ZLIB OR PKG_CONFIG_FOUND)
  message(FATAL_ERROR "the shared library looks for what the static one needs")
endif()
"""
ADDED = """cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES C)
add_subdirectory({source} yoke)
add_executable(program program.c)
target_link_libraries(program PRIVATE yoke::yoke)
if(TARGET yoke-tool OR BUILD_TESTING OR NOT TARGET yoke::yoke_static)
  message(FATAL_ERROR "adding the folder brings more than the library")
endif()
"""


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                            check=False, stdin=subprocess.DEVNULL, **options)
    if result.returncode:
        print(" ".join(map(str, command)), result.stdout, result.stderr, sep="\n")
        sys.exit(1)
    return result.stdout


def check_output(way, output):
    if not EXPECTED.match(output.strip()):
        sys.exit(f"{way}: the program printed {output!r}")
    print(f"{way}: {output.strip()}")


def join_over_mpi(way, built, program, environment=os.environ):
    """However a program finds the shared library, the library finds its module; where MPI is in the build."""
    if list(built.rglob("libyoke_mpi.so")):
        print(f"{way}:", run(program, "mpi", env={**environment, **AS_ROOT}).strip())


def build_with_cmake(way, cmake, folder, built, listing, *options, build=None, environment=os.environ):
    build = build or folder / "build"
    folder.mkdir()
    (folder / "program.c").write_text(PROGRAM)
    (folder / "CMakeLists.txt").write_text(listing)
    run(cmake, "-S", folder, "-B", build, "-G", "Ninja", *options, env=environment)
    run(cmake, "--build", build)
    check_output(way, run(build / "program"))
    if built:
        join_over_mpi(way, built, build / "program")


def found(wanted, target="yoke::yoke", languages="C"):
    return FOUND.format(wanted=wanted, target=target, languages=languages)


def refuse(cmake, folder, words, listing, *options, **environment):
    """CMake does not configure `listing`, and says `words`."""
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(listing)
    result = subprocess.run([cmake, "-S", folder, "-B", folder / "build", *options], capture_output=True, text=True,
                            check=False, env={**os.environ, **environment})
    if result.returncode == 0 or words not in " ".join(result.stderr.split()):
        sys.exit(f"{listing}is not refused with {words!r}:\n{result.stderr}")
    print("refused:", words)


def refuse_what_cannot_serve(cmake, work, prefix, version):
    """Versions that are not compatible, and a static library whose dependencies are not there."""
    at = f"-DCMAKE_PREFIX_PATH={prefix}"
    major, minor = map(int, version.split(".")[:2])
    others = [f"{major + 1}.0", f"{major}.{minor + 1}"]
    if major == 0 and minor > 0:
        others.append(f"0.{minor - 1}")
    for other in others:
        refuse(cmake, work / f"version-{other}", f'compatible with requested version "{other}"', found(other), at)
    refuse(cmake, work / "component", "set yoke_FOUND to FALSE", found("COMPONENTS dynamic"), at)
    static = found("COMPONENTS static", "yoke::yoke_static")
    refuse(cmake, work / "modules", "libyoke.a needs", static, at, PKG_CONFIG_LIBDIR=str(work), PKG_CONFIG_PATH="")
    refuse(cmake, work / "language", "yoke::yoke_static needs C", found("COMPONENTS static", languages="NONE"), at)
    header = work / "dnnl" / "dnnl_version.h"
    header.parent.mkdir()
    header.write_text("#define DNNL_VERSION_MAJOR 9\n#define DNNL_VERSION_MINOR 0\n#define DNNL_VERSION_PATCH 0\n")
    refuse(cmake, work / "onednn", "libyoke.a was built with oneDNN", static, at,
           f"-DONEDNN_INCLUDE_DIR={header.parent}")


def check_module(prefix):
    """The installed tool finds the installed module, whether or not there is one elsewhere."""
    modules = list(prefix.rglob("libyoke_mpi.so"))
    train = [prefix / "bin/yoke", "train", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=4,rows=32", "--steps",
             "2", "--batch", "8", "--threads", "1", "--quiet", "--mode", "ddp", "--transport", "mpi"]
    environment = dict(os.environ, LD_DEBUG="files", LD_DEBUG_OUTPUT=str(prefix / "loaded"), **AS_ROOT)
    for module in modules:
        run(*train, env=environment)
        loaded = "".join(path.read_text(errors="replace") for path in prefix.glob("loaded.*"))
        if f"calling init: {prefix / 'bin/..' / module.relative_to(prefix)}" not in loaded:
            sys.exit(f"the installed tool does not open {module}")
    print(f"modules found where the installation was moved to: {len(modules)}")


def check_metadata(folder):
    """What pkgconf shows of a package for people and for audits."""
    text = (folder / "yoke.pc").read_text()
    fields = dict(re.findall(r"^([A-Z]\w+): (.*)$", text, re.M))
    homepage = fields.get("URL", "https://")
    if fields.get("License") != "Apache-2.0" or not homepage.startswith("https://") or "@" in text:
        sys.exit(f"yoke.pc has no License or a wrong URL:\n{text}")


def check_pages(prefix):
    """What man and the shells find is what the installed tool prints."""
    share = prefix / "share"
    for path, words in (("man/man1/yoke.1", ["help", "--man"]),
                        ("bash-completion/completions/yoke", ["completion", "bash"]),
                        ("zsh/site-functions/_yoke", ["completion", "zsh"]),
                        ("fish/vendor_completions.d/yoke.fish", ["completion", "fish"])):
        if (share / path).read_text() != run(prefix / "bin/yoke", *words):
            sys.exit(f"{share / path} is not what yoke {' '.join(words)} prints")


def build_with_pkg_config(cc, folder, prefix):
    folder.mkdir()
    (folder / "program.c").write_text(PROGRAM)
    paths = [path.parent for path in prefix.rglob("yoke.pc")]
    check_metadata(paths[0])
    # No other package's file is there: the shared library needs none, and yoke.pc knows what the static one links.
    environment = dict(os.environ, PKG_CONFIG_LIBDIR=os.pathsep.join(map(str, paths)), PKG_CONFIG_PATH="")
    run("pkg-config", "--exists", "--print-errors", "yoke", env=environment)
    flags = run("pkg-config", "--cflags", "--libs", "yoke", env=environment).split()
    version = run("pkg-config", "--modversion", "yoke", env=environment).strip()
    static = run("pkg-config", "--static", "--libs", "yoke", env=environment)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version) or "-ldnnl" not in static or "mpi" in static:
        sys.exit(f"yoke.pc: version {version!r}, static libraries {static!r}")
    run(cc, folder / "program.c", "-o", folder / "program", *flags)
    library = next(prefix.rglob("libyoke.so")).parent
    environment["LD_LIBRARY_PATH"] = str(library)
    check_output("pkg-config", run(folder / "program", env=environment))
    join_over_mpi("pkg-config", prefix, folder / "program", environment)
    words = static.replace("-lyoke", str(library / "libyoke.a")).split()
    run(cc, folder / "program.c", "-o", folder / "static", f"-I{prefix / 'include'}", *words)
    check_output("pkg-config --static", run(folder / "static"))
    check_static_names(cc, folder, [f"-I{prefix / 'include'}"], words)


def check_static_names(cc, folder, flags, words):
    """libyoke.a calls no function of a program that has the name of one of its own, and a plugin does not export it."""
    (folder / "namesakes.c").write_text(NAMESAKES)
    run(cc, folder / "namesakes.c", "-o", folder / "namesakes", *flags, *words)
    if run(folder / "namesakes") != "trained\n":
        sys.exit("a program whose functions are named as libyoke.a's inside does not train")
    (folder / "plugin.c").write_text(PLUGIN)
    run(cc, "-shared", "-fPIC", "-fvisibility=hidden", folder / "plugin.c", "-o", folder / "plugin.so", *flags, *words)
    exported = [line.split()[-1] for line in run("nm", "-D", "--defined-only", folder / "plugin.so").splitlines()]
    if exported != ["plugin_version"]:
        sys.exit(f"a plugin that links libyoke.a exports {exported}")
    print("libyoke.a beside functions with its names, and in a plugin: one export")


def main():
    os.environ.setdefault("CUDAARCHS", "90-real")  # code for one kind of GPU is enough here
    source, build, cmake, cc, ways = sys.argv[1:6]
    with tempfile.TemporaryDirectory(prefix="yoke-install-") as name:
        work = pathlib.Path(name)
        if ways == "subdirectory":
            added = pathlib.Path(build).resolve().with_name("added")  # ccache has what is compiled at this depth
            shutil.rmtree(added, ignore_errors=True)
            build_with_cmake("add_subdirectory", cmake, work / "added", added, ADDED.format(source=source),
                             "-DCMAKE_BUILD_TYPE=Release", build=added)
            return
        first, prefix = work / "first", work / "prefix"
        run(cmake, "--install", build, "--prefix", first)
        first.rename(prefix)  # an installation may be moved
        check_output("installed tool", re.sub(r"(?s)^yoke (\S+).*", r"yoke \1, mlp has 1863690 parameters",
                                              run(prefix / "bin/yoke", "version")))
        check_module(prefix)
        check_pages(prefix)
        version = run(prefix / "bin/yoke", "version").split()[1]
        short, at = version.rpartition(".")[0], f"-DCMAKE_PREFIX_PATH={prefix}"
        (work / "empty").mkdir()
        bare = dict(os.environ, PKG_CONFIG_LIBDIR=str(work / "empty"), PKG_CONFIG_PATH="")
        build_with_cmake("find_package", cmake, work / "found", prefix, found(short) + ALONE, at, environment=bare)
        build_with_cmake("find_package, static", cmake, work / "static", None,
                         found(f"{short} COMPONENTS static", "yoke::yoke_static"), at)
        if "libyoke" in run("readelf", "-d", work / "static/build/program"):
            sys.exit("a program with yoke::yoke_static needs the shared library")
        refuse_what_cannot_serve(cmake, work, prefix, version)
        build_with_pkg_config(cc, work / "flags", prefix)


if __name__ == "__main__":
    main()
