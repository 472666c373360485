/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that several processes map. A memfd has no name and exists while a process has it open or
 * mapped: nothing stays behind however the ranks end, and the size of /dev/shm does not limit it.
 * Other ranks open it as /proc/PID/fd/DESCRIPTOR, which the kernel allows only to the same user. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "distributed/shared_memory/shared_memory.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static yoke_status map(shm_segment *segment) {
    void *base =
        mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->descriptor, 0);
    if (base == MAP_FAILED)
        return FAIL(YOKE_ERROR_MEMORY, "cannot map %zu bytes of shared memory: %s", segment->bytes,
                    strerror(errno));
    segment->base = base;
    madvise(base, segment->bytes, MADV_HUGEPAGE); /* a hint: most kernels use small pages anyway */
    return YOKE_OK;
}

static size_t total_bytes(const shm_segment *segment, int world) {
    return segment->head_bytes + (size_t)world * segment->part_bytes;
}

yoke_status shm_segment_create(shm_segment *segment, int world, shm_handle *handle) {
    segment->bytes = total_bytes(segment, world);
    segment->descriptor = memfd_create("yoke", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (segment->descriptor < 0)
        return FAIL(YOKE_ERROR_SYSTEM, "cannot create shared memory: memfd_create: %s",
                    strerror(errno));
    /* Sealed, so that no process can shrink the memory that another one uses. */
    struct stat status;
    if (fchmod(segment->descriptor, 0600) != 0 ||
        ftruncate(segment->descriptor, (off_t)segment->bytes) != 0 ||
        fcntl(segment->descriptor, F_ADD_SEALS, SEALS) != 0 ||
        fstat(segment->descriptor, &status) != 0)
        return FAIL(YOKE_ERROR_SYSTEM, "cannot create %zu bytes of shared memory: %s",
                    segment->bytes, strerror(errno));
    *handle = (shm_handle){.pid = getpid(),
                           .descriptor = segment->descriptor,
                           .inode = status.st_ino,
                           .bytes = segment->bytes};
    return map(segment);
}

static yoke_status check(const shm_segment *segment, const shm_handle *handle, const char *path) {
    struct stat status;
    int seals = fcntl(segment->descriptor, F_GET_SEALS);
    if (fstat(segment->descriptor, &status) == 0 && status.st_ino == handle->inode &&
        status.st_uid == geteuid() && (size_t)status.st_size == segment->bytes && seals >= 0 &&
        (seals & SEALS) == SEALS)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_SYSTEM, "%s is not the shared memory that rank 0 published", path);
}

yoke_status shm_segment_open(shm_segment *segment, int world, const shm_handle *handle) {
    segment->bytes = total_bytes(segment, world);
    if (handle->bytes != segment->bytes)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "rank 0 shares %llu bytes, but this rank expects %zu: run one program on all ranks",
            (unsigned long long)handle->bytes, segment->bytes);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->descriptor);
    segment->descriptor = open(path, O_RDWR | O_CLOEXEC);
    int cause = errno;
    /* A process that ends closes its files before it counts as ended. */
    if (segment->descriptor < 0 && (cause == ENOENT || cause == ESRCH))
        return FAIL(YOKE_ERROR_PEER, "rank 0 (pid %d) has ended, and its shared memory with it",
                    handle->pid);
    if (segment->descriptor < 0)
        return FAIL(YOKE_ERROR_SYSTEM,
                    "cannot open rank 0's shared memory at %s: %s; the ranks of a machine must run "
                    "as one user and see each other's processes",
                    path, strerror(cause));
    TRY(check(segment, handle, path));
    return map(segment);
}

yoke_status shm_segment_reserve(shm_segment *segment, int rank) {
    size_t begin = rank == 0 ? 0 : (size_t)(shm_part(segment, rank) - segment->base);
    size_t end = (size_t)(shm_part(segment, rank + 1) - segment->base);
    int cause;
    do {
        cause =
            fallocate(segment->descriptor, 0, (off_t)begin, (off_t)(end - begin)) == 0 ? 0 : errno;
    } while (cause == EINTR);
    if (cause == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_MEMORY, "cannot allocate %zu bytes of shared memory: %s", end - begin,
                strerror(cause));
}

void shm_segment_settle(shm_segment *segment, int rank) {
    /* Avoids a page fault per page in the first step. A rank may need few of the other parts. */
    madvise(shm_part(segment, rank), segment->part_bytes, MADV_POPULATE_WRITE);
    close(segment->descriptor);
    segment->descriptor = -1;
}

void shm_segment_close(shm_segment *segment) {
    if (segment->base != NULL) munmap(segment->base, segment->bytes);
    if (segment->descriptor >= 0) close(segment->descriptor);
    *segment = (shm_segment){.descriptor = -1};
}
