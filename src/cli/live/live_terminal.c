/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/live/live_terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

#define PATIENCE_MS 200
#define LINE_END "\033[K\r\n"
#define FRAME_BYTES (LIVE_LINES_MAX * (LIVE_LINE_BYTES + (int)sizeof LINE_END) + 64)

/* A signal handler has no context argument. */
static volatile sig_atomic_t is_disturbed;
static atomic_bool is_drawing;
static struct sigaction old_continue;

/* The thread that draws takes no signals meanwhile, so that it never waits for itself. */
void live_terminal_disturb(void) {
    while (atomic_load(&is_drawing))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    is_disturbed = 1;
}

static void on_continue(int number) {
    (void)number;
    live_terminal_disturb(); /* the shell has printed below the frame */
}

/* A description of our own can be non-blocking; that of stderr belongs to the shell, too. */
bool live_terminal_open(live_terminal *terminal) {
    char name[128];
    *terminal = (live_terminal){.descriptor = -1};
    if (ttyname_r(STDERR_FILENO, name, sizeof name) != 0) return false;
    terminal->descriptor = open(name, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (terminal->descriptor < 0) return false;
    terminal->owner = tcgetpgrp(terminal->descriptor);
    terminal->unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    const char *no_color = getenv("NO_COLOR"); /* https://no-color.org */
    terminal->color = no_color == NULL || no_color[0] == '\0';
    const struct sigaction action = {.sa_handler = on_continue, .sa_flags = SA_RESTART};
    sigaction(SIGCONT, &action, &old_continue);
    is_disturbed = 0;
    return true;
}

live_canvas live_terminal_canvas(const live_terminal *terminal) {
    struct winsize window = {0};
    live_canvas canvas = {80, 24, {terminal->unicode, terminal->color}};
    if (ioctl(terminal->descriptor, TIOCGWINSZ, &window) != 0) return canvas;
    if (window.ws_col > 0) canvas.columns = window.ws_col;
    if (window.ws_row > 0) canvas.rows = window.ws_row;
    return canvas;
}

/* Writing. */

static bool is_writable(const live_terminal *terminal, int timeout_ms) {
    struct pollfd look = {.fd = terminal->descriptor, .events = POLLOUT};
    return poll(&look, 1, timeout_ms) > 0 && (look.revents & POLLOUT);
}

/* False: the terminal has not taken all of it in time. */
static bool write_all(const live_terminal *terminal, const char *text, size_t bytes) {
    uint64_t begin = yoke_now_ns();
    while (bytes > 0) {
        int64_t left_ms = PATIENCE_MS - (int64_t)((yoke_now_ns() - begin) / 1000000);
        if (left_ms <= 0 || !is_writable(terminal, (int)left_ms)) return false;
        ssize_t written = write(terminal->descriptor, text, bytes);
        if (written < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (written < 0) continue;
        text += written;
        bytes -= (size_t)written;
    }
    return true;
}

/* No signal ends or stops the process within a frame: all wait until it is complete. The library's
 * threads take no signals, and that of stop_signals.c waits in live_terminal_disturb. */
static void hold_signals(sigset_t *kept) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, kept);
    atomic_store(&is_drawing, true);
}

static void release_signals(const sigset_t *kept) {
    atomic_store(&is_drawing, false);
    pthread_sigmask(SIG_SETMASK, kept, NULL);
}

/* A job in the background does not draw over the shell. yoke launch starts ranks as jobs of their
 * own, and the terminal belongs to the launcher. */
static bool may_draw(const live_terminal *terminal) {
    pid_t now = tcgetpgrp(terminal->descriptor);
    return now < 0 || now == terminal->owner || now == getpgrp();
}

/* Places the cursor where the frame begins. */
static size_t begin_frame(live_terminal *terminal, char *frame, size_t size) {
    if (is_disturbed || terminal->is_torn) terminal->height = 0;
    is_disturbed = 0;
    int used = snprintf(frame, size, "%s\r", terminal->is_torn ? "\033[0m\r\n" : "");
    if (terminal->height > 0)
        used += snprintf(frame + used, size - (size_t)used, "\033[%dA", terminal->height);
    return (size_t)used;
}

static void show(live_terminal *terminal, const live_picture *picture) {
    static char frame[FRAME_BYTES];
    int old_height = terminal->height;
    size_t used = begin_frame(terminal, frame, sizeof frame);
    for (int i = 0; i < picture->count; i++)
        used +=
            (size_t)snprintf(frame + used, sizeof frame - used, "%s" LINE_END, picture->lines[i]);
    if (old_height > picture->count)
        used += (size_t)snprintf(frame + used, sizeof frame - used, "\033[J");
    terminal->is_torn = !write_all(terminal, frame, used);
    terminal->height = picture->count;
}

void live_terminal_show(live_terminal *terminal, const live_picture *picture) {
    sigset_t kept;
    hold_signals(&kept);
    if (!may_draw(terminal))
        is_disturbed = 1;
    else if (is_writable(terminal, 0))
        show(terminal, picture);
    release_signals(&kept);
}

static void erase(live_terminal *terminal) {
    char text[64];
    size_t used = begin_frame(terminal, text, sizeof text);
    if (terminal->height > 0) used += (size_t)snprintf(text + used, sizeof text - used, "\033[J");
    terminal->is_torn = !write_all(terminal, text, used);
}

void live_terminal_erase(live_terminal *terminal) {
    sigset_t kept;
    hold_signals(&kept);
    if ((terminal->height > 0 || terminal->is_torn) && may_draw(terminal)) erase(terminal);
    terminal->height = 0;
    release_signals(&kept);
}

void live_terminal_close(live_terminal *terminal) {
    if (terminal->descriptor < 0) return;
    if (terminal->is_torn) erase(terminal);
    sigaction(SIGCONT, &old_continue, NULL);
    close(terminal->descriptor);
    terminal->descriptor = -1;
}
