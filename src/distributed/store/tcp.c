/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets never block: poll waits, up to a deadline. */
#include "distributed/store/tcp.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

yoke_status yoke_tcp_parse(yoke_tcp_address *address, const char *text) {
    const char *host = text + strlen("tcp://"), *end = strrchr(host, ':');
    int64_t port;
    if (end == NULL || !yoke_text_integer(end + 1, 0, 65535, &port))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the store's address is \"%s\": :port, 0 to 65535, is expected at its end",
                    text);
    if (host[0] == '[' && end[-1] == ']') {
        host++;
        end--;
    }
    size_t length = (size_t)(end - host);
    if (length == 0 || length >= sizeof address->host)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the store's address is \"%s\": a host is expected before :port", text);
    memcpy(address->host, host, length);
    address->host[length] = '\0';
    address->port = (int)port;
    return YOKE_OK;
}

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        return ntohl(four.sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 six;
    memcpy(&six, address, sizeof six);
    return IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
}

static yoke_status resolve(const yoke_tcp_address *address, const char *host,
                           struct addrinfo **found) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | (host == NULL ? AI_PASSIVE : 0)};
    char port[8];
    snprintf(port, sizeof port, "%d", address->port);
    int cause = getaddrinfo(host, port, &hints, found);
    if (cause != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "cannot resolve the store's host \"%s\": %s",
                    address->host, gai_strerror(cause));
    for (struct addrinfo *each = *found; each != NULL && !address->has_token;
         each = each->ai_next) {
        if (is_loopback(each->ai_addr)) continue;
        freeaddrinfo(*found);
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "other machines can reach a store at %s: set a token, or use 127.0.0.1 if all "
                    "ranks are on this machine",
                    address->host);
    }
    return YOKE_OK;
}

/* Who listens at a taken port: /proc/net/tcp has the inode of the listening socket, /proc/PID/fd
 * the process that has it open. */

#define STATE_LISTEN 0x0a

static unsigned long find_inode(const char *table, int port) {
    FILE *file = fopen(table, "re");
    char row[512];
    unsigned long found = 0;
    while (file != NULL && found == 0 && fgets(row, sizeof row, file) != NULL) {
        unsigned local, state;
        unsigned long inode;
        if (sscanf(row, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu",
                   &local, &state, &inode) == 3 &&
            local == (unsigned)port && state == STATE_LISTEN)
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

/* "python3 (pid 4711)"; false if /proc does not show it, as for another user's process. */
static bool find_port_owner(int port, char *owner, size_t size) {
    unsigned long inode = find_inode("/proc/net/tcp", port);
    if (inode == 0) inode = find_inode("/proc/net/tcp6", port);
    DIR *processes = inode == 0 ? NULL : opendir("/proc");
    bool found = false;
    if (processes == NULL) return false;
    for (struct dirent *each; !found && (each = readdir(processes)) != NULL;) {
        if (strtol(each->d_name, NULL, 10) <= 0) continue;
        found = has_open(each->d_name, inode);
        if (found) {
            const char *pid = each->d_name;
            char path[300], name[32] = "a process";
            snprintf(path, sizeof path, "/proc/%s/comm", pid);
            FILE *file = fopen(path, "re");
            if (file != NULL && fgets(name, sizeof name, file) != NULL)
                name[strcspn(name, "\n")] = '\0';
            if (file != NULL) fclose(file);
            snprintf(owner, size, "%s (pid %.20s)", name, pid);
        }
    }
    closedir(processes);
    return found;
}

/* Sockets. */

static int open_socket(const struct addrinfo *to) {
    return socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to->ai_protocol);
}

static int try_listen(const struct addrinfo *at, int *listener) {
    const int on = 1, off = 0;
    *listener = open_socket(at);
    if (*listener < 0) return errno;
    /* Reuses a port whose old connections are closing, never one with a listener. */
    setsockopt(*listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ai_family == AF_INET6)
        setsockopt(*listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(*listener, at->ai_addr, at->ai_addrlen) == 0 && listen(*listener, SOMAXCONN) == 0)
        return 0;
    int cause = errno;
    close(*listener);
    *listener = -1;
    return cause;
}

static yoke_status fail_listen(const yoke_tcp_address *address, int cause) {
    char owner[64];
    if (cause == EADDRINUSE) {
        bool known = find_port_owner(address->port, owner, sizeof owner);
        return FAIL(YOKE_ERROR_SYSTEM, "port %d of %s is taken by %s: end it or name another port",
                    address->port, address->host, known ? owner : "another process");
    }
    if (cause == EADDRNOTAVAIL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s is not an address of this machine: run rank 0 on the machine of the "
                    "store's address",
                    address->host);
    return FAIL(YOKE_ERROR_SYSTEM, "cannot listen at %s port %d: %s", address->host, address->port,
                strerror(cause));
}

static bool is_number(const char *host) {
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

static int bound_port(int listener) {
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    memset(&name, 0, sizeof name);
    getsockname(listener, (struct sockaddr *)&name, &length);
    struct sockaddr_in four; /* the port has the same offset in both families */
    memcpy(&four, &name, sizeof four);
    return ntohs(four.sin_port);
}

yoke_status yoke_tcp_listen(const yoke_tcp_address *address, int *listener, int *port) {
    struct addrinfo *found;
    TRY(resolve(address, address->host, &found));
    /* A machine's own name often resolves to its loopback address, which others cannot reach. */
    bool everywhere =
        address->has_token && !is_number(address->host) && strcmp(address->host, "localhost") != 0;
    if (everywhere) {
        freeaddrinfo(found);
        TRY(resolve(address, NULL, &found));
    }
    int cause = EADDRNOTAVAIL;
    *listener = -1;
    for (struct addrinfo *each = found; each != NULL && cause != 0; each = each->ai_next)
        cause = try_listen(each, listener);
    freeaddrinfo(found);
    if (cause != 0) return fail_listen(address, cause);
    *port = bound_port(*listener);
    return YOKE_OK;
}

/* Rounds up to poll's millisecond, so that it never spins before a near deadline. */
static int poll_until(int connection, short events, uint64_t deadline) {
    for (;;) {
        uint64_t now = yoke_now_ns();
        if (now >= deadline) return ETIMEDOUT;
        uint64_t left_ms = (deadline - now + 999999u) / 1000000u;
        struct pollfd wait = {.fd = connection, .events = events};
        int ready = poll(&wait, 1, left_ms > 1000000u ? 1000000 : (int)left_ms);
        if (ready > 0) return 0;
        if (ready < 0 && errno != EINTR) return errno;
    }
}

static int try_connect(const struct addrinfo *to, uint64_t deadline, int *connection) {
    const int on = 1;
    *connection = open_socket(to);
    if (*connection < 0) return errno;
    int cause = connect(*connection, to->ai_addr, to->ai_addrlen) == 0 ? 0 : errno;
    if (cause == EINPROGRESS) {
        socklen_t length = sizeof cause;
        int waited = poll_until(*connection, POLLOUT, deadline);
        if (waited != 0)
            cause = waited;
        else if (getsockopt(*connection, SOL_SOCKET, SO_ERROR, &cause, &length) != 0)
            cause = errno;
    }
    if (cause == 0) {
        setsockopt(*connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        return 0;
    }
    close(*connection);
    *connection = -1;
    return cause;
}

yoke_status yoke_tcp_connect(const yoke_tcp_address *address, uint64_t deadline, int *connection,
                             int *cause) {
    struct addrinfo *found;
    TRY(resolve(address, address->host, &found));
    *cause = EADDRNOTAVAIL;
    *connection = -1;
    for (struct addrinfo *each = found; each != NULL && *cause != 0; each = each->ai_next)
        *cause = try_connect(each, deadline, connection);
    freeaddrinfo(found);
    return YOKE_OK;
}

int yoke_tcp_send(int connection, const void *data, size_t bytes, uint64_t deadline) {
    const char *next = data;
    while (bytes > 0) {
        ssize_t sent = send(connection, next, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != EAGAIN) return errno;
        if (sent < 0) {
            int cause = poll_until(connection, POLLOUT, deadline);
            if (cause != 0) return cause;
            continue;
        }
        next += sent;
        bytes -= (size_t)sent;
    }
    return 0;
}

int yoke_tcp_receive(int connection, void *data, size_t bytes, uint64_t deadline, size_t *done) {
    for (*done = 0; *done < bytes;) {
        ssize_t got = recv(connection, (char *)data + *done, bytes - *done, 0);
        if (got == 0) return ECONNRESET;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno != EAGAIN) return errno;
        if (got < 0) {
            int cause = poll_until(connection, POLLIN, deadline);
            if (cause != 0) return cause;
            continue;
        }
        *done += (size_t)got;
    }
    return 0;
}
