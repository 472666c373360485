/* Finds the module that calls MPI. It lies with Yoke: in the folder of libyoke.so, or of the
 * program that libyoke.a is in, or where Yoke is installed. Without the MPI transport nothing of it
 * happens.
 */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "distributed/mpi_group.h"

#ifdef YOKE_HAS_MPI

/* The folder of the file that this code is in. */
static yoke_status find_own_folder(char folder[PATH_MAX]) {
    static const char here;
    Dl_info info;
    struct link_map *map = NULL;
    bool known = dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map != NULL;
    /* A program's own name is as it was typed. */
    const char *file = known && map->l_name[0] != '\0' ? map->l_name : "/proc/self/exe";
    if (realpath(file, folder) == NULL)
        return FAIL(YOKE_ERROR_SYSTEM, "%s, which Yoke is in, can't be found", file);
    *strrchr(folder, '/') = '\0';
    return YOKE_OK;
}

static yoke_status find_module(char path[PATH_MAX]) {
    char folder[PATH_MAX];
    TRY(find_own_folder(folder));
    /* As built; a library and a program as installed, wherever that was moved to; any program. */
    const struct {
        const char *from, *folder;
    } places[] = {
        {folder, ""}, {folder, "/yoke"}, {folder, "/" YOKE_MPI_FROM_TOOL}, {"", YOKE_MPI_FOLDER}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int length =
            snprintf(path, PATH_MAX, "%s%s/" YOKE_MPI_FILE, places[i].from, places[i].folder);
        if (length < PATH_MAX && access(path, F_OK) == 0) return YOKE_OK;
    }
    return FAIL(YOKE_ERROR_DEVICE,
                "MPI can't be opened: " YOKE_MPI_FILE
                " is not in %s, %s/yoke, %s/%s or %s: build or "
                "install Yoke anew",
                folder, folder, folder, YOKE_MPI_FROM_TOOL, YOKE_MPI_FOLDER);
}

/* MPI's plug-ins look for its functions among everybody's. It can't be begun twice, so it is never
 * closed. */
yoke_status yoke_mpi_open(const yoke_mpi_calls **calls) {
    char path[PATH_MAX];
    TRY(find_module(path));
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *reason = dlerror();
        return FAIL(YOKE_ERROR_DEVICE,
                    "MPI can't be opened by %s: %s; install the MPI that Yoke was built with, or "
                    "build Yoke with the one that is here",
                    path, reason != NULL ? reason : "the loader gives no reason");
    }
    *calls = dlsym(handle, YOKE_MPI_SYMBOL);
    if (*calls != NULL && (*calls)->version == YOKE_MPI_VERSION &&
        (*calls)->bytes == sizeof **calls)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE, "%s is of another version of Yoke: install both anew", path);
}

#else

yoke_status yoke_mpi_open(const yoke_mpi_calls **calls) {
    *calls = NULL;
    return FAIL(YOKE_ERROR_DEVICE,
                "this build of Yoke has no MPI: install one (Debian: libopenmpi-dev openmpi-bin) "
                "and configure Yoke with -DYOKE_WITH_MPI=ON");
}

#endif
