/* SPDX-License-Identifier: Apache-2.0 */
/* A host program that knows nothing of Yoke: it loads a plugin, which trains with Yoke, and unloads
 * it, many times. Nothing stays behind: no thread, no file, no memory. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CYCLES = 50 };

/* Entries of a folder of /proc/self: threads, or open files. */
static int count_entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    if (!folder) return -1;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* This process's memory in KiB. */
static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static double run_plugin(const char *path) {
    const char *(*train)(double *loss) = NULL;
    double loss = 0;
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plugin) *(void **)&train = dlsym(plugin, "train");
    if (!train) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    const char *error = train(&loss);
    if (error) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
    dlclose(plugin);
    return loss;
}

int main(int argc, char **argv) {
    char path[4096];
    long memory = 0;
    int threads = count_entries("/proc/self/task"), files = count_entries("/proc/self/fd");
    snprintf(path, sizeof path, "%s_module.so", argv[0]);
    for (int cycle = 1; cycle <= CYCLES; cycle++) {
        double loss = run_plugin(argc > 1 ? argv[1] : path);
        if (cycle == CYCLES / 2) memory = resident();
        if (cycle % 10 == 0) printf("cycle %d: loss %.4f\n", cycle, loss);
    }
    long grown = resident() - memory;
    printf("threads %+d, open files %+d, memory %+ld KiB\n",
           count_entries("/proc/self/task") - threads, count_entries("/proc/self/fd") - files,
           grown);
    return 0;
}
