/* What a rank of this machine may compute on. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "launch.h"

static yoke_status look(launch_devices *found) {
    yoke_devices *devices = NULL;
    yoke_devices_options options = {.struct_size = sizeof options, .unbound = true, .threads = 1};
    yoke_status status = yoke_devices_open(&devices, &options);
    int names = (int)(sizeof found->names / sizeof found->names[0]);
    if (status != YOKE_OK) return status;
    found->count = yoke_devices_count(devices);
    for (int i = 0; i < found->count && i < names && status == YOKE_OK; i++) {
        yoke_device_info info = {.struct_size = sizeof info};
        status = yoke_devices_describe(devices, i, &info);
        memcpy(found->names[i], info.name, sizeof info.name);
        found->gpus = found->gpus || info.capability > 0;
    }
    yoke_devices_close(devices);
    if (found->count > names) found->count = names;
    return status;
}

static int look_and_tell(int to) {
    launch_devices found = {0};
    yoke_status status = look(&found);
    if (status != YOKE_OK) return cli_fail(status);
    return write(to, &found, sizeof found) == (ssize_t)sizeof found ? 0 : 1;
}

int launch_devices_read(launch_devices *devices) {
    int ends[2], outcome = 0;
    if (pipe(ends) != 0) return cli_system_error("cannot make a pipe");
    pid_t child = fork();
    if (child < 0) return cli_system_error("cannot start a process");
    if (child == 0) _exit(look_and_tell(ends[1]));
    close(ends[1]);
    ssize_t got = read(ends[0], devices, sizeof *devices);
    close(ends[0]);
    waitpid(child, &outcome, 0);
    if (got == (ssize_t)sizeof *devices) return -1;
    if (WIFEXITED(outcome) && WEXITSTATUS(outcome) != 0) return WEXITSTATUS(outcome);
    fprintf(stderr, "yoke: looking for devices ended by signal %d\n", WTERMSIG(outcome));
    return yoke_status_exit_code(YOKE_ERROR_DEVICE);
}

int launch_core_count(void) {
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}
