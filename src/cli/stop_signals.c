/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stop_signals.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "cli/live/live_terminal.h"

typedef struct stop_signal {
    int number;
    bool by_hand; /* a user who sends a second one does not want to wait */
    const char *text;
} stop_signal;

#define THEN_SAVE "finishing the step, then saving\n"

static const stop_signal stops[] = {
    {SIGINT, true, ""},
    {SIGTERM, true, ""},
    {SIGQUIT, true, ""},
    {SIGHUP, false, "\nyoke: SIGHUP, as when a terminal closes: " THEN_SAVE},
    {SIGUSR1, false, "\nyoke: SIGUSR1: " THEN_SAVE},
    {SIGUSR2, false, "\nyoke: SIGUSR2: " THEN_SAVE},
    {SIGPIPE, false, "\nyoke: SIGPIPE, nobody reads the output: " THEN_SAVE},
    {SIGXFSZ, false, "\nyoke: SIGXFSZ, a file is as large as ulimit -f allows: " THEN_SAVE},
    {SIGXCPU, false, "\nyoke: SIGXCPU, the CPU time of ulimit -t is over: " THEN_SAVE},
};
#define STOPS (sizeof stops / sizeof stops[0])

/* A signal handler has no context argument: a run leaves here what the handler needs. */
static yoke_trainer *running;
static bool has_launcher;
static volatile sig_atomic_t first_caught, first_by_hand;
static struct sigaction before[STOPS];

static const stop_signal *find(int number) {
    size_t i = 0;
    while (i < STOPS - 1 && stops[i].number != number)
        i++;
    return &stops[i];
}

/* What no user sends is ignored from now on, before the text is written: to a broken pipe, or to a
 * file at its limit, the text itself raises the signal again. */
static void on_signal(int number) {
    static const char one[] = "\nyoke: finishing the step; a second signal ends at once\n";
    static const char ranks[] = "\nyoke: " THEN_SAVE;
    int error = errno;
    const stop_signal *stop = find(number);
    const char *text = !stop->by_hand ? stop->text : has_launcher ? ranks : one;
    if (stop->by_hand && first_by_hand != 0) {
        /* When the handler returns, the signal ends the process; no frame of the live view is
         * cut. */
        live_terminal_disturb();
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    for (size_t i = 0; stop->by_hand && has_launcher && i < STOPS; i++)
        if (stops[i].by_hand) signal(stops[i].number, SIG_IGN);
    if (stop->by_hand) first_by_hand = number;
    if (!stop->by_hand) signal(number, SIG_IGN);
    if (first_caught == 0) first_caught = number;
    yoke_trainer_stop(running);
    live_terminal_disturb();
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written; /* stderr may be closed */
    errno = error;
}

static void *await_signals(void *stopping) {
    pthread_sigmask(SIG_UNBLOCK, stopping, NULL);
    for (;;)
        pause();
    return NULL;
}

/* While the calling thread computes it takes no signal; a user should not wait for the end of a
 * long step to read that the run will stop. Without the thread the handlers run after the step. */
static void start_thread(void) {
    static sigset_t stopping; /* outlives the caller, and the thread never ends */
    sigset_t all, own;
    pthread_t thread;
    sigemptyset(&stopping);
    for (size_t i = 0; i < STOPS; i++)
        sigaddset(&stopping, stops[i].number);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &own);
    if (pthread_create(&thread, NULL, await_signals, &stopping) == 0) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &own, NULL);
}

void stop_signals_begin(yoke_trainer *trainer, bool is_rank) {
    running = trainer;
    has_launcher = is_rank;
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < STOPS; i++) {
        sigaction(stops[i].number, NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) sigaction(stops[i].number, &action, NULL);
    }
    start_thread();
}

int stop_signals_caught(void) {
    return first_caught;
}

void stop_signals_end(void) {
    for (size_t i = 0; i < STOPS; i++) {
        struct sigaction now;
        sigaction(stops[i].number, NULL, &now);
        if (now.sa_handler != on_signal) continue;
        if (first_caught != 0 && !stops[i].by_hand)
            signal(stops[i].number, SIG_IGN);
        else
            sigaction(stops[i].number, &before[i], NULL);
    }
}
