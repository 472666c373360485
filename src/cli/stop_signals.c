#include "cli/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include "cli/live/live_terminal.h"
#include "cli/signal_stack.h"

/* A signal handler has no context argument: a run leaves here what the handler needs. */
static yoke_trainer *running;
static volatile sig_atomic_t caught;

static void on_signal(int number) {
    static const char text[] = "\nyoke: finishing the step; a second signal ends at once\n";
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    caught = number;
    yoke_trainer_stop(running);
    live_terminal_disturb();
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) return; /* stderr is closed */
}

void stop_signals_begin(yoke_trainer *trainer) {
    running = trainer;
    cli_handle_signal(SIGINT, on_signal, 0, NULL);
    cli_handle_signal(SIGTERM, on_signal, 0, NULL);
}

int stop_signals_end(void) {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    return caught;
}
