/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stop_signals.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "cli/live/live_terminal.h"
#include "cli/signal_stack.h"

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
static volatile sig_atomic_t first_caught;
static struct sigaction before[STOPS];

static const stop_signal *find(int number) {
    size_t i = 0;
    while (i < STOPS - 1 && stops[i].number != number)
        i++;
    return &stops[i];
}

static void set_by_hand(void (*action)(int)) {
    for (size_t i = 0; i < STOPS; i++)
        if (stops[i].by_hand && before[i].sa_handler != SIG_IGN) signal(stops[i].number, action);
}

/* What no user sends is ignored from now on, before the text is written: to a broken pipe, or to a
 * file at its limit, the text itself raises the signal again. */
static void on_signal(int number) {
    static const char one[] = "\nyoke: finishing the step; a second signal ends at once\n";
    static const char ranks[] = "\nyoke: " THEN_SAVE;
    int error = errno;
    const stop_signal *stop = find(number);
    const char *text = !stop->by_hand ? stop->text : has_launcher ? ranks : one;
    if (stop->by_hand)
        set_by_hand(has_launcher ? SIG_IGN : SIG_DFL);
    else
        signal(number, SIG_IGN);
    if (first_caught == 0) first_caught = number;
    yoke_trainer_stop(running);
    live_terminal_disturb();
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written; /* stderr may be closed */
    errno = error;
}

void stop_signals_begin(yoke_trainer *trainer, bool is_rank) {
    running = trainer;
    has_launcher = is_rank;
    for (size_t i = 0; i < STOPS; i++) {
        sigaction(stops[i].number, NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            cli_handle_signal(stops[i].number, on_signal, SA_RESTART, NULL);
    }
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
