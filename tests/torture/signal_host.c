/* SPDX-License-Identifier: Apache-2.0 */
/* A host program with signal handlers, for test_signals.py: it trains while another process sends
 * signals to it and to each of its threads. It prints the number of steps, the hash of the weights
 * and how many signals were handled.
 *
 * usage: signal_host MODEL DATASET ALGORITHM DEVICES THREADS ALGORITHM_CACHE HERTZ
 * SECONDS|STEPSsteps */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "yoke/yoke.h"

enum { MODEL = 1, DATASET, ALGORITHM, DEVICES, THREADS, ALGORITHM_CACHE, HERTZ, END, WORDS };

/* What a host uses for its alarms, its profiler and its terminal. */
static const int numbers[] = {SIGALRM, SIGPROF, SIGWINCH};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static atomic_ulong handled;

/* It runs on the stack of the thread that it interrupts, and uses some of it. */
static void handle(int number) {
    volatile char used[512];
    memset((char *)used, number, sizeof used);
    atomic_fetch_add(&handled, 1);
}

static void handle_signals(void) {
    struct sigaction action = {.sa_handler = handle};
    for (int i = 0; i < NUMBERS; i++)
        sigaction(numbers[i], &action, NULL);
}

static void signal_threads(pid_t process, int number) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *threads = opendir(path);
    if (threads == NULL) return;
    for (struct dirent *entry; (entry = readdir(threads)) != NULL;)
        if (entry->d_name[0] != '.') syscall(SYS_tgkill, process, atoi(entry->d_name), number);
    closedir(threads);
}

/* Ends with the process that it disturbs. */
static void send_signals(pid_t process, double hertz) {
    struct timespec pause = {.tv_sec = (time_t)(1 / hertz),
                             .tv_nsec = (long)(1e9 / hertz) % 1000000000};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; getppid() == process; i++) {
        kill(process, numbers[i % NUMBERS]);
        signal_threads(process, numbers[(i + 1) % NUMBERS]);
        nanosleep(&pause, NULL);
    }
    _exit(0);
}

typedef struct run {
    yoke_trainer *trainer;
    struct timespec begin;
    double seconds; /* 0: the options know the steps */
} run;

static double seconds_since(const struct timespec *begin) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begin->tv_sec) + 1e-9 * (double)(now.tv_nsec - begin->tv_nsec);
}

static void on_event(const yoke_event *event, void *payload) {
    run *self = payload;
    if (event->kind == YOKE_EVENT_WARNING) fprintf(stderr, "warning: %s\n", event->text);
    if (self->seconds > 0 && seconds_since(&self->begin) > self->seconds)
        yoke_trainer_stop(self->trainer);
}

static int fail(const char *what) {
    fprintf(stderr, "signal_host: %s: %s\n", what, yoke_last_error());
    return 1;
}

static int train(char **words) {
    run self = {0};
    yoke_optimizer_options optimizer = YOKE_SGD_OPTIONS_INIT;
    yoke_data_parallel_options engine = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_trainer_options options = YOKE_TRAINER_OPTIONS_INIT;
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    optimizer.learning_rate = 1e-4; /* it need not learn, but must stay finite */
    options.model = words[MODEL];
    options.dataset = words[DATASET];
    options.engine = &engine;
    engine.algorithm =
        strcmp(words[ALGORITHM], "direct") == 0 ? YOKE_ALGORITHM_DIRECT : YOKE_ALGORITHM_MEASURED;
    options.devices = words[DEVICES];
    options.threads = atoi(words[THREADS]);
    engine.algorithm_cache = words[ALGORITHM_CACHE][0] != '\0' ? words[ALGORITHM_CACHE] : NULL;
    options.optimizer = &optimizer;
    options.batch = 32;
    options.evaluate_every = -1;
    options.on_event = on_event;
    options.payload = &self;
    options.steps = UINT64_MAX / 2;
    if (strstr(words[END], "steps") != NULL)
        options.steps = strtoull(words[END], NULL, 10);
    else
        self.seconds = atof(words[END]);
    if (yoke_trainer_create(&self.trainer, &options) != YOKE_OK) return fail("create");
    clock_gettime(CLOCK_MONOTONIC, &self.begin);
    yoke_status status = yoke_trainer_run(self.trainer);
    if (status != YOKE_OK && status != YOKE_ERROR_CANCELLED) return fail("run");
    if (yoke_trainer_summarize(self.trainer, &summary) != YOKE_OK) return fail("summarize");
    printf("%" PRIu64 " steps %016" PRIx64 " signals %lu\n", summary.steps, summary.weights_hash,
           atomic_load(&handled));
    yoke_trainer_destroy(self.trainer);
    return 0;
}

int main(int count, char **words) {
    if (count != WORDS) return 2;
    double hertz = atof(words[HERTZ]);
    pid_t process = getpid(), sender = 0;
    handle_signals();
    if (hertz > 0) sender = fork();
    if (hertz > 0 && sender == 0) send_signals(process, hertz);
    int code = train(words);
    if (sender > 0) {
        kill(sender, SIGKILL);
        while (waitpid(sender, NULL, 0) < 0) /* a signal of its last moment */
            continue;
    }
    return code;
}
