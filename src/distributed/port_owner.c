/* /proc/net/tcp knows the inode of each listening socket, /proc/PID/fd who has it open. */
#include "distributed/port_owner.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTENING 0x0a

static unsigned long find_inode(const char *table, int port) {
    FILE *file = fopen(table, "re");
    char row[512];
    unsigned long found = 0;
    while (file != NULL && found == 0 && fgets(row, sizeof row, file) != NULL) {
        unsigned local, state;
        unsigned long inode;
        if (sscanf(row, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu",
                   &local, &state, &inode) == 3 &&
            local == (unsigned)port && state == LISTENING)
            found = inode;
    }
    if (file != NULL) fclose(file);
    return found;
}

static bool has_open(const char *pid, unsigned long inode) {
    char path[300], wanted[64], target[64];
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *folder = opendir(path);
    bool found = false;
    if (folder == NULL) return false;
    for (struct dirent *each; !found && (each = readdir(folder)) != NULL;) {
        ssize_t length = readlinkat(dirfd(folder), each->d_name, target, sizeof target - 1);
        if (length <= 0) continue;
        target[length] = '\0';
        found = strcmp(target, wanted) == 0;
    }
    closedir(folder);
    return found;
}

static void name_process(const char *pid, char *owner, size_t size) {
    char path[300], name[32] = "a process";
    snprintf(path, sizeof path, "/proc/%s/comm", pid);
    FILE *file = fopen(path, "re");
    if (file != NULL && fgets(name, sizeof name, file) != NULL) name[strcspn(name, "\n")] = '\0';
    if (file != NULL) fclose(file);
    snprintf(owner, size, "%s (pid %s)", name, pid);
}

bool yoke_port_owner(int port, char *owner, size_t size) {
    unsigned long inode = find_inode("/proc/net/tcp", port);
    if (inode == 0) inode = find_inode("/proc/net/tcp6", port);
    DIR *processes = inode == 0 ? NULL : opendir("/proc");
    bool found = false;
    if (processes == NULL) return false;
    for (struct dirent *each; !found && (each = readdir(processes)) != NULL;) {
        if (strtol(each->d_name, NULL, 10) <= 0) continue;
        found = has_open(each->d_name, inode);
        if (found) name_process(each->d_name, owner, size);
    }
    closedir(processes);
    return found;
}
