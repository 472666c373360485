/* SPDX-License-Identifier: Apache-2.0 */
/* Tables, with labels and with targets. The file lies in memory. */
#include <stdio.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "yoke/dataset.h"

static char path[64];

static void clean_up(void) {
    (void)unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const settings[] = {"label=y", "target=y",
                                           "label=y,ignore=x,validation=0.5"};
    if (path[0] == '\0') {
        snprintf(path, sizeof path, "/dev/shm/yoke-fuzz-%ld.csv", (long)getpid());
        atexit(clean_up);
    }
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size) abort();
    fclose(file);
    for (int i = 0; i < 6; i++) {
        char spec[160];
        yoke_dataset *dataset;
        snprintf(spec, sizeof spec, "csv:%s,%s", path, settings[i / 2]);
        if (yoke_dataset_open(&dataset, spec, i % 2 ? YOKE_SPLIT_TEST : YOKE_SPLIT_TRAIN) ==
            YOKE_OK)
            yoke_dataset_close(dataset);
    }
    return 0;
}
