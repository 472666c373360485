/* SPDX-License-Identifier: Apache-2.0 */
/* Measured algorithms, as ranks send them and as files keep them: what was read is written the same
 * way. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device.h"
#include "fuzz/fuzz.h"

static yoke_algorithms *record(void) {
    yoke_algorithms *algorithms = NULL;
    if (yoke_algorithms_create(&algorithms) != YOKE_OK) abort();
    return algorithms;
}

static void read_text(const uint8_t *data, size_t size) {
    yoke_algorithms *algorithms = record();
    char *own = fuzz_copy(data, size), *written = NULL;
    if (yoke_algorithms_read(algorithms, own) == YOKE_OK &&
        yoke_algorithms_write(algorithms, &written) == YOKE_OK)
        free(written);
    yoke_algorithms_destroy(algorithms);
    free(own);
}

/* The file is in memory. */
static void read_file(const uint8_t *data, size_t size) {
    static int file = -1;
    char path[32];
    if (file < 0) file = memfd_create("algorithms", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    yoke_algorithms *algorithms = record();
    (void)yoke_algorithms_keep(algorithms, &(yoke_algorithm_cache_place){path, "m", size % 2 == 0});
    yoke_algorithms_destroy(algorithms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_text(data, size);
    read_file(data, size);
    return 0;
}
