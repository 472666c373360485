/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into the tool: lets the n-th call of one kind fail that the tool's own code makes, of
 * memory or of the system; calls of the libraries under it go through. By test_faults.py, with
 *   FAULT_KIND=memory|system  FAULT_AT=n (0: none)  FAULT_RANK=rank ("": a process without one)
 *   FAULT_COUNT=FILE          gets the number of such calls when the process ends */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wpedantic" /* functions by dlsym, and glibc's own types */

typedef enum kind { NONE, MEMORY, SYSTEM } kind;

static uintptr_t text_begin, text_end; /* of the program itself */
static kind failing;
static long fail_at;
static atomic_long calls;
static atomic_bool began; /* main: CUDA's static runtime, part of the program, crashes before it */
static const char *count_path;

static int find_text(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size, (void)context;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
        text_begin = (uintptr_t)(info->dlpi_addr + part->p_vaddr);
        text_end = text_begin + part->p_memsz;
    }
    return 1; /* the program is the first object */
}

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAULT_KIND"), *at = getenv("FAULT_AT"), *rank = getenv("YOKE_RANK");
    const char *wanted = getenv("FAULT_RANK");
    dl_iterate_phdr(find_text, NULL);
    if (name == NULL || strcmp(rank != NULL ? rank : "", wanted != NULL ? wanted : "") != 0) return;
    failing = strcmp(name, "memory") == 0 ? MEMORY : SYSTEM;
    fail_at = at != NULL ? strtol(at, NULL, 10) : 0;
    count_path = getenv("FAULT_COUNT");
}

__attribute__((destructor)) static void end(void) {
    FILE *file = count_path != NULL ? fopen(count_path, "w") : NULL;
    if (file == NULL) return;
    fprintf(file, "%ld\n", atomic_load(&calls));
    fclose(file);
}

static int (*program_main)(int, char **, char **);

static int begin_main(int count, char **words, char **variables) {
    began = true;
    return program_main(count, words, variables);
}

int __libc_start_main(int (*main)(int, char **, char **), int count, char **words,
                      void (*init)(void), void (*fini)(void), void (*end_loader)(void),
                      void *stack);
int __libc_start_main(int (*main)(int, char **, char **), int count, char **words,
                      void (*init)(void), void (*fini)(void), void (*end_loader)(void),
                      void *stack) {
    __typeof__(&__libc_start_main) next =
        (__typeof__(&__libc_start_main))dlsym(RTLD_NEXT, "__libc_start_main");
    program_main = main;
    return next(begin_main, count, words, init, fini, end_loader, stack);
}

/* Whether this call is the one that fails. */
static bool fails(kind of, const void *caller, int cause) {
    uintptr_t place = (uintptr_t)caller;
    if (!began || of != failing || place < text_begin || place >= text_end) return false;
    if (atomic_fetch_add(&calls, 1) + 1 != fail_at) return false;
    errno = cause;
    return true;
}

#define CALLER __builtin_return_address(0)
#define NEXT(name) __typeof__(&(name)) next = (__typeof__(&(name)))dlsym(RTLD_NEXT, #name)

/* dlsym itself allocates: these go to glibc's own names. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes) {
    return fails(MEMORY, CALLER, ENOMEM) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    return fails(MEMORY, CALLER, ENOMEM) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
    return fails(MEMORY, CALLER, ENOMEM) ? NULL : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return fails(MEMORY, CALLER, ENOMEM) ? NULL : __libc_memalign(alignment, bytes);
}

char *strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = fails(MEMORY, CALLER, ENOMEM) ? NULL : __libc_malloc(bytes);
    return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
    NEXT(mmap);
    if (fails(MEMORY, CALLER, ENOMEM)) return MAP_FAILED;
    return next(address, bytes, protection, flags, file, offset);
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (fails(SYSTEM, CALLER, EMFILE)) return -1;
    return openat(AT_FDCWD, path, flags, mode);
}

#define SYSTEM_CALL(result, failure, name, cause, parameters, arguments)                           \
    result name parameters {                                                                       \
        NEXT(name);                                                                                \
        return fails(SYSTEM, CALLER, cause) ? (failure) : next arguments;                          \
    }

SYSTEM_CALL(FILE *, NULL, fopen, EMFILE, (const char *path, const char *mode), (path, mode))
SYSTEM_CALL(int, -1, socket, EMFILE, (int domain, int type, int protocol), (domain, type, protocol))
SYSTEM_CALL(int, -1, socketpair, EMFILE, (int domain, int type, int protocol, int pair[2]),
            (domain, type, protocol, pair))
SYSTEM_CALL(int, -1, bind, EADDRINUSE, (int file, const struct sockaddr *at, socklen_t bytes),
            (file, at, bytes))
SYSTEM_CALL(int, -1, listen, EADDRINUSE, (int file, int backlog), (file, backlog))
SYSTEM_CALL(int, -1, accept4, EMFILE, (int file, struct sockaddr *at, socklen_t *bytes, int flags),
            (file, at, bytes, flags))
SYSTEM_CALL(int, -1, connect, ECONNREFUSED, (int file, const struct sockaddr *at, socklen_t bytes),
            (file, at, bytes))
SYSTEM_CALL(int, -1, pipe, EMFILE, (int pair[2]), (pair))
SYSTEM_CALL(int, -1, pipe2, EMFILE, (int pair[2], int flags), (pair, flags))
SYSTEM_CALL(int, -1, ftruncate, ENOSPC, (int file, off_t bytes), (file, bytes))
SYSTEM_CALL(int, -1, fallocate, ENOSPC, (int file, int mode, off_t from, off_t bytes),
            (file, mode, from, bytes))
SYSTEM_CALL(int, -1, mkdir, ENOSPC, (const char *path, mode_t mode), (path, mode))
SYSTEM_CALL(int, -1, memfd_create, EMFILE, (const char *name, unsigned flags), (name, flags))
SYSTEM_CALL(int, -1, eventfd, EMFILE, (unsigned value, int flags), (value, flags))
SYSTEM_CALL(int, -1, epoll_create1, EMFILE, (int flags), (flags))
SYSTEM_CALL(int, -1, epoll_ctl, ENOSPC, (int file, int what, int of, struct epoll_event *event),
            (file, what, of, event))
SYSTEM_CALL(int, -1, signalfd, EMFILE, (int file, const sigset_t *mask, int flags),
            (file, mask, flags))
SYSTEM_CALL(pid_t, -1, fork, EAGAIN, (void), ())
SYSTEM_CALL(int, EAGAIN, pthread_create, EAGAIN,
            (pthread_t * thread, const pthread_attr_t *attributes, void *(*body)(void *),
             void *context),
            (thread, attributes, body, context))
