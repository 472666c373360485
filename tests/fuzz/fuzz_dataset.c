/* SPDX-License-Identifier: Apache-2.0 */
/* The files of datasets. The first byte says which; they lie in a folder in memory, beside valid
 * ones. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "yoke/dataset.h"

static const struct {
    const char *file, *spec;
    yoke_split split;
} kinds[] = {{"t10k-images-idx3-ubyte", "mnist", YOKE_SPLIT_TEST},
             {"t10k-labels-idx1-ubyte", "mnist", YOKE_SPLIT_TEST},
             {"t10k-images-idx3-ubyte.gz", "mnist", YOKE_SPLIT_TEST},
             {"test_batch.bin", "cifar10", YOKE_SPLIT_TEST},
             {"test.bin", "cifar100", YOKE_SPLIT_TEST}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static char folder[64];

static void write_file(const char *name, const void *data, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size) abort();
    fclose(file);
}

static void remove_file(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    (void)unlink(path);
}

static void clean_up(void) {
    for (int i = 0; i < KINDS; i++)
        remove_file(kinds[i].file);
    (void)rmdir(folder);
}

/* One image of 2 x 2 and its label. */
static void write_valid_ones(void) {
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 1, 7};
    write_file(kinds[0].file, images, sizeof images);
    write_file(kinds[1].file, labels, sizeof labels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char spec[96];
    yoke_dataset *dataset;
    if (folder[0] == '\0') {
        snprintf(folder, sizeof folder, "/dev/shm/yoke-fuzz-XXXXXX");
        if (mkdtemp(folder) == NULL) abort();
        atexit(clean_up);
    }
    if (size == 0) return 0;
    int kind = data[0] % KINDS;
    write_valid_ones();
    if (kind == 2) remove_file(kinds[0].file);
    write_file(kinds[kind].file, data + 1, size - 1);
    snprintf(spec, sizeof spec, "%s:%s", kinds[kind].spec, folder);
    if (yoke_dataset_open(&dataset, spec, kinds[kind].split) == YOKE_OK)
        yoke_dataset_close(dataset);
    remove_file(kinds[kind].file);
    return 0;
}
