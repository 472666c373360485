/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of NumPy, alone or in an archive: the header, and the directory of a ZIP file. */
#include "data/arrays.h"
#include "fuzz/fuzz.h"

/* Reads the first and the last value: both lie inside the file. */
static void parse(const uint8_t *data, size_t size) {
    yoke_npy array;
    uint8_t *copy = (uint8_t *)fuzz_copy(data, size);
    copy = realloc(copy, size > 0 ? size : 1); /* without the NUL */
    if (copy == NULL) abort();
    if (yoke_npy_parse(&array, "fuzz", copy, size) == YOKE_OK && array.count > 0) {
        volatile double kept = yoke_npy_value(&array, 0) + yoke_npy_value(&array, array.count - 1);
        (void)kept;
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"x", "y", "arr_0", "x_train"};
    char list[64];
    parse(data, size);
    yoke_file_mapping zip = {.data = (unsigned char *)fuzz_copy(data, size), .bytes = size};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        yoke_npz_member member;
        if (yoke_npz_find(&member, "fuzz", &zip, names[i]) != YOKE_OK) continue;
        if (member.data != NULL) parse(member.data, member.bytes);
        free(member.inflated);
    }
    yoke_npz_list(&zip, list, sizeof list);
    free(zip.data);
    return 0;
}
