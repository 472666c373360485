/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups of version 2 count such kills in memory.events, those of version 1 in
 * memory.oom_control. */
#include "cli/launch/launch_memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MOUNT "/sys/fs/cgroup"

static bool read_kills(const char *path, int64_t *kills) {
    char line[256];
    bool found = false;
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = sscanf(line, "oom_kill %" SCNd64, kills) == 1;
    fclose(file);
    return found;
}

/* line: "0::/group" in version 2, "4:memory:/group" in version 1. Inside a container the group may
 * have another path, or be the mount itself. */
static bool read_group(const char *line, int64_t *kills) {
    char path[4096];
    const char *controllers = strchr(line, ':');
    const char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (group == NULL) return false;
    if (group == controllers + 1) {
        snprintf(path, sizeof path, MOUNT "%s/memory.events", group + 1);
        return read_kills(path, kills) || read_kills(MOUNT "/memory.events", kills);
    }
    if (strncmp(controllers, ":memory:", 8) != 0) return false;
    snprintf(path, sizeof path, MOUNT "/memory%s/memory.oom_control", group + 1);
    return read_kills(path, kills) || read_kills(MOUNT "/memory/memory.oom_control", kills);
}

int64_t launch_memory_kills(void) {
    char line[4000];
    int64_t kills = -1;
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (file == NULL) return -1;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        found = read_group(line, &kills);
    }
    fclose(file);
    return found ? kills : -1;
}
