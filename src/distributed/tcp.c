/* Sockets never block: poll waits, up to a deadline. */
#include "distributed/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "distributed/port_owner.h"

yoke_status yoke_tcp_parse(yoke_tcp_address *address, const char *text) {
    const char *host = text + strlen("tcp://"), *end = strrchr(host, ':');
    int64_t port;
    if (end == NULL || !yoke_text_integer(end + 1, 0, 65535, &port))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the store's address is \"%s\": it ends with :port, 0 to 65535", text);
    if (host[0] == '[' && end[-1] == ']') {
        host++;
        end--;
    }
    size_t length = (size_t)(end - host);
    if (length == 0 || length >= sizeof address->host)
        return FAIL(YOKE_ERROR_ARGUMENT, "the store's address is \"%s\": it names no host", text);
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
        return FAIL(YOKE_ERROR_ARGUMENT, "the store's host \"%s\" is not known: %s", address->host,
                    gai_strerror(cause));
    for (struct addrinfo *each = *found; each != NULL && !address->guarded; each = each->ai_next) {
        if (is_loopback(each->ai_addr)) continue;
        freeaddrinfo(*found);
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a store at %s can be reached from other machines: guard it with a token, or "
                    "use 127.0.0.1 when all ranks are on this one",
                    address->host);
    }
    return YOKE_OK;
}

static int open_socket(const struct addrinfo *to) {
    return socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to->ai_protocol);
}

static int try_listen(const struct addrinfo *at, int *listener) {
    const int on = 1, off = 0;
    *listener = open_socket(at);
    if (*listener < 0) return errno;
    /* Only a port whose connections are still dying out; never one that is listened at. */
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
        bool known = yoke_port_owner(address->port, owner, sizeof owner);
        return FAIL(YOKE_ERROR_SYSTEM, "port %d of %s is taken by %s: end it or name another port",
                    address->port, address->host, known ? owner : "another process");
    }
    if (cause == EADDRNOTAVAIL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s is no address of this machine: rank 0 runs where the store's address says",
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
    struct sockaddr_in four; /* the port lies at one place in both families */
    memcpy(&four, &name, sizeof four);
    return ntohs(four.sin_port);
}

yoke_status yoke_tcp_listen(const yoke_tcp_address *address, int *listener, int *port) {
    struct addrinfo *found;
    TRY(resolve(address, address->host, &found));
    /* A machine's own name is often its loopback address, which the others cannot reach. */
    bool everywhere =
        address->guarded && !is_number(address->host) && strcmp(address->host, "localhost") != 0;
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

/* The least poll waits is a millisecond: a deadline that is near is not spun for. */
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
