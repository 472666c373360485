/* The processor as the operating system lets this process use it. */
#include "device/cores.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int yoke_cores_allowed(cpu_set_t *cores) {
    CPU_ZERO(cores);
    if (sched_getaffinity(0, sizeof *cores, cores) != 0) CPU_SET(0, cores);
    return CPU_COUNT(cores);
}

size_t yoke_cores_at(const cpu_set_t *cores, int position) {
    size_t core = 0;
    for (int left = position; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, cores) && left-- == 0) break;
    }
    return core;
}

static const char *model_name_in(const char *line) {
    if (strncmp(line, "model name", 10) != 0) return NULL;
    const char *colon = strchr(line, ':');
    return colon == NULL ? NULL : colon + 1 + strspn(colon + 1, " \t");
}

const char *yoke_cores_model(char *buffer, size_t size) {
    snprintf(buffer, size, "processor");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (file == NULL) return buffer;
    char line[256];
    while (fgets(line, sizeof line, file) != NULL) {
        const char *name = model_name_in(line);
        if (name == NULL) continue;
        snprintf(buffer, size, "%.*s", (int)strcspn(name, "\n"), name);
        break;
    }
    fclose(file);
    return buffer;
}

size_t yoke_cores_memory_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (size_t)pages * (size_t)page_bytes : 0;
}
