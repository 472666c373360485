/* SPDX-License-Identifier: Apache-2.0 */
/* Measured choices, as ranks send them and as files keep them: what was read is written the same
 * way. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device.h"
#include "fuzz/fuzz.h"

static yoke_choices *record(void) {
    yoke_choices *choices = NULL;
    if (yoke_choices_create(&choices) != YOKE_OK) abort();
    return choices;
}

static void read_text(const uint8_t *data, size_t size) {
    yoke_choices *choices = record();
    char *own = fuzz_copy(data, size), *written = NULL;
    if (yoke_choices_read(choices, own) == YOKE_OK &&
        yoke_choices_write(choices, &written) == YOKE_OK)
        free(written);
    yoke_choices_destroy(choices);
    free(own);
}

/* The file is in memory. */
static void read_file(const uint8_t *data, size_t size) {
    static int file = -1;
    char path[32];
    if (file < 0) file = memfd_create("choices", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    yoke_choices *choices = record();
    (void)yoke_choices_keep(choices, &(yoke_choices_place){path, "m", size % 2 == 0});
    yoke_choices_destroy(choices);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_text(data, size);
    read_file(data, size);
    return 0;
}
