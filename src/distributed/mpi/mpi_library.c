/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and opens the module that calls MPI: in the folder of libyoke.so, or of the program that
 * contains libyoke.a, or where Yoke is installed. Only the MPI transport comes here. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "distributed/mpi/mpi_group.h"

#ifdef YOKE_HAS_MPI

/* The folder of the file that contains this code. */
static yoke_status find_own_folder(char folder[PATH_MAX]) {
    static const char here;
    Dl_info info;
    struct link_map *map = NULL;
    bool known = dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map != NULL;
    /* l_name is empty for the program itself. */
    const char *file = known && map->l_name[0] != '\0' ? map->l_name : "/proc/self/exe";
    if (realpath(file, folder) == NULL)
        return FAIL(YOKE_ERROR_SYSTEM, "cannot find %s, the file that contains Yoke", file);
    *strrchr(folder, '/') = '\0';
    return YOKE_OK;
}

static yoke_status find_module(char path[PATH_MAX]) {
    char folder[PATH_MAX];
    TRY(find_own_folder(folder));
    /* The build folder; a library, then a program, as installed and perhaps moved; any program. */
    const struct {
        const char *from, *folder;
    } places[] = {{folder, ""},
                  {folder, "/" YOKE_MPI_BESIDE},
                  {folder, "/" YOKE_MPI_FROM_TOOL},
                  {"", YOKE_MPI_FOLDER}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int length =
            snprintf(path, PATH_MAX, "%s%s/" YOKE_MPI_FILE, places[i].from, places[i].folder);
        if (length < PATH_MAX && access(path, F_OK) == 0) return YOKE_OK;
    }
    return FAIL(YOKE_ERROR_DEVICE,
                "cannot open MPI: " YOKE_MPI_FILE " is not in %s, %s/" YOKE_MPI_BESIDE
                ", %s/%s or %s: build or install Yoke again",
                folder, folder, folder, YOKE_MPI_FROM_TOOL, YOKE_MPI_FOLDER);
}

/* RTLD_GLOBAL because MPI's plug-ins resolve its functions in the global scope; never closed
 * because a process cannot initialize MPI twice. */
yoke_status yoke_mpi_open(const yoke_mpi_calls **calls) {
    char path[PATH_MAX];
    TRY(find_module(path));
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *reason = dlerror();
        return FAIL(
            YOKE_ERROR_DEVICE,
            "cannot open MPI through %s: %s; install the MPI that Yoke was built with, or build "
            "Yoke with this machine's",
            path, reason != NULL ? reason : "the loader gives no reason");
    }
    *calls = dlsym(handle, YOKE_MPI_SYMBOL);
    if (*calls != NULL && (*calls)->version == YOKE_MPI_VERSION &&
        (*calls)->bytes == sizeof **calls)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE, "%s belongs to another version of Yoke: install both again",
                path);
}

#else

yoke_status yoke_mpi_open(const yoke_mpi_calls **calls) {
    *calls = NULL;
    return FAIL(YOKE_ERROR_DEVICE,
                "this build of Yoke has no MPI: install one (Debian: libopenmpi-dev openmpi-bin) "
                "and configure Yoke with -DYOKE_WITH_MPI=ON");
}

#endif
