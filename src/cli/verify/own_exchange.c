/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles a file and opens what came out. */
#include "cli/verify/own_exchange.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch/launch_guard.h"

#define HEADER "yoke/custom_exchange.h"
#define PATH_BYTES (PATH_MAX + 64)

/* Where the tool is: PREFIX/bin, whose headers are in PREFIX/include; or build/NAME of a source
 * tree. */
static bool find_include(char folder[PATH_BYTES]) {
    static const char *const places[] = {"/../include", "/../../include"};
    char tool[PATH_MAX], header[2 * PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", tool, sizeof tool - 1);
    if (length < 0) return false;
    tool[length] = '\0';
    *strrchr(tool, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(folder, PATH_BYTES, "%s%s", tool, places[i]);
        snprintf(header, sizeof header, "%s/" HEADER, folder);
        if (access(header, R_OK) == 0) return true;
    }
    return false;
}

static void become_compiler(const char *source, const char *include, const char *object) {
    char option[PATH_BYTES + 2], absolute[PATH_MAX];
    const char *compiler = getenv("CC") != NULL && getenv("CC")[0] != '\0' ? getenv("CC") : "cc";
    snprintf(option, sizeof option, "-I%s", include);
    if (realpath(source, absolute) == NULL) _exit(126);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execlp(compiler, compiler, "-std=c17", "-O1", "-g", "-Wall", "-shared", "-fPIC", option, "-o",
           object, absolute, "-lm", (char *)NULL);
    _exit(127);
}

static yoke_status compile(const char *source, const char *object) {
    char include[PATH_BYTES];
    int state;
    if (!find_include(include))
        return cli_refuse(YOKE_ERROR_MISSING,
                          "no " HEADER " beside this tool: install Yoke with its headers");
    pid_t pid = fork();
    if (pid == 0) become_compiler(source, include, object);
    while (pid > 0 && waitpid(pid, &state, 0) < 0 && errno == EINTR)
        continue;
    if (pid < 0) return cli_refuse(YOKE_ERROR_SYSTEM, "cannot start the compiler");
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return YOKE_OK;
    if (WIFEXITED(state) && WEXITSTATUS(state) == 127)
        return cli_refuse(YOKE_ERROR_MISSING, "no C compiler: install one, or name it in CC");
    return cli_refuse(YOKE_ERROR_DATA, "%s does not compile", source);
}

static yoke_status load(own_exchange *own, const char *path, const char *object) {
    own->library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (own->library == NULL) return cli_refuse(YOKE_ERROR_DATA, "%s: %s", path, dlerror());
    own->exchange = (yoke_custom_exchange)YOKE_CUSTOM_EXCHANGE_INIT;
    *(void **)&own->exchange.all_reduce = dlsym(own->library, "all_reduce");
    if (own->exchange.all_reduce != NULL) return YOKE_OK;
    own_exchange_close(own);
    return cli_refuse(YOKE_ERROR_DATA, "%s has no function all_reduce", path);
}

static yoke_status load_python(own_exchange *own, const char *path) {
    yoke_status status = own_python_open(&own->python, path);
    own->exchange = (yoke_custom_exchange)YOKE_CUSTOM_EXCHANGE_INIT;
    own->exchange.payload = own->python;
    if (status == YOKE_OK) own->exchange.all_reduce = own_python_all_reduce;
    return status;
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), own = strlen(end);
    return length >= own && strcmp(text + length - own, end) == 0;
}

bool own_exchange_is_python(const char *path) {
    return ends_with(path, ".py");
}

static yoke_status compile_and_load(own_exchange *own, const char *path) {
    char folder[LAUNCH_FOLDER_BYTES], object[LAUNCH_FOLDER_BYTES + 16];
    launch_guard guard; /* removes the folder also where a signal ends this process */
    if (launch_folder_make(folder, "exchange") >= 0) return YOKE_ERROR_IO;
    if (launch_guard_start(&guard, folder) >= 0) return YOKE_ERROR_SYSTEM;
    snprintf(object, sizeof object, "%s/exchange.so", folder);
    yoke_status status = compile(path, object);
    if (status == YOKE_OK) status = load(own, path, object);
    launch_guard_end(&guard);
    return status;
}

yoke_status own_exchange_open(own_exchange *own, const char *path) {
    char absolute[PATH_MAX];
    *own = (own_exchange){.library = NULL};
    if (realpath(path, absolute) == NULL)
        return cli_refuse(YOKE_ERROR_MISSING, "%s: cannot open: %s", path, strerror(errno));
    if (ends_with(path, ".so")) return load(own, path, absolute);
    if (own_exchange_is_python(path)) return load_python(own, absolute);
    if (!ends_with(path, ".c"))
        return cli_refuse(YOKE_ERROR_ARGUMENT, "%s: an exchange is a file *.c, *.py or *.so", path);
    return compile_and_load(own, path);
}

void own_exchange_close(own_exchange *own) {
    if (own->library != NULL) dlclose(own->library);
    own_python_close(own->python);
    *own = (own_exchange){.library = NULL};
}
