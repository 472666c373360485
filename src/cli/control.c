/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/cli.h"

#define REQUEST_MS 200 /* that a process waits for the request of one that asks */
#define ANSWER_S 60    /* that the asking process waits: a step may be long */

/* The name begins with a NUL, which makes it abstract. */
static socklen_t name_of(int pid, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "yoke-%d", pid);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static struct ucred peer_of(int connection) {
    struct ucred peer = {.pid = -1, .uid = (uid_t)-1};
    socklen_t bytes = sizeof peer;
    (void)getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
    return peer;
}

static void wait_at_most(int connection, int milliseconds) {
    struct timeval limit = {.tv_sec = milliseconds / 1000, .tv_usec = milliseconds % 1000 * 1000};
    (void)setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

/* A message whole, with its NUL: false where none comes. */
static bool receive(int connection, char text[CONTROL_BYTES]) {
    ssize_t got;
    do {
        got = recv(connection, text, CONTROL_BYTES - 1, 0);
    } while (got < 0 && errno == EINTR);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* The process that trains or launches answers. */

/* Whoever waited for too long asks again, and must not be served twice. */
static bool has_gone(int connection) {
    struct pollfd look = {.fd = connection, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP)) != 0;
}

int control_open(void) {
    struct sockaddr_un address;
    socklen_t bytes = name_of(getpid(), &address);
    int listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listening < 0) return -1;
    if (bind(listening, (struct sockaddr *)&address, bytes) == 0 && listen(listening, 4) == 0)
        return listening;
    close(listening);
    return -1;
}

void control_close(int listening) {
    if (listening >= 0) close(listening);
}

void control_serve(int listening, control_answer answer, void *context) {
    char request[CONTROL_BYTES], text[CONTROL_BYTES] = "", reply[CONTROL_BYTES + 16];
    int connection = listening < 0 ? -1 : accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0) return;
    uid_t user = peer_of(connection).uid;
    wait_at_most(connection, REQUEST_MS);
    bool may = user == geteuid() || user == 0;
    if (may && receive(connection, request) && !has_gone(connection)) {
        int code = answer(request, text, context);
        int length = snprintf(reply, sizeof reply, "%d %s", code, text);
        (void)send(connection, reply, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    close(connection);
}

/* `yoke resize` asks. */

static int fail_nobody(int pid) {
    return cli_fail(cli_refuse(YOKE_ERROR_ARGUMENT,
                               "process %d does not listen: give the number of a yoke train that "
                               "runs, or of a yoke launch --min-ranks, of your own",
                               pid));
}

static int exchange(int connection, int pid, const char *request, char text[CONTROL_BYTES]) {
    char reply[CONTROL_BYTES + 16];
    struct ucred peer = peer_of(connection);
    if (peer.pid != pid || (peer.uid != geteuid() && geteuid() != 0)) return fail_nobody(pid);
    wait_at_most(connection, ANSWER_S * 1000);
    if (send(connection, request, strlen(request), MSG_NOSIGNAL) < 0) return fail_nobody(pid);
    if (!receive(connection, reply))
        return cli_fail(cli_refuse(errno == EAGAIN ? YOKE_ERROR_TIMEOUT : YOKE_ERROR_PEER,
                                   "process %d gave no answer%s", pid,
                                   errno == EAGAIN ? ": it answers between two steps; ask again"
                                                   : ", and has perhaps ended"));
    const char *space = strchr(reply, ' ');
    snprintf(text, CONTROL_BYTES, "%s", space != NULL ? space + 1 : "");
    return atoi(reply);
}

int control_ask(int pid, const char *request, char text[CONTROL_BYTES]) {
    struct sockaddr_un address;
    socklen_t bytes = name_of(pid, &address);
    text[0] = '\0';
    int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connection < 0) return cli_system_error("cannot make a socket");
    bool reached = connect(connection, (struct sockaddr *)&address, bytes) == 0;
    int code = reached ? exchange(connection, pid, request, text) : fail_nobody(pid);
    close(connection);
    return code;
}
