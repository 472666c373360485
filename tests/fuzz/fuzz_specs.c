/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that name things: datasets, devices, models, links, patterns of parameters. The first byte
 * says which. */
#include <ctype.h>
#include <fcntl.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "links/links.h"
#include "model/model.h"
#include "yoke/yoke.h"

enum { KINDS = 6, DIGITS = 3 };

/* Names no file outside of an empty folder, and no number that is a matter of gigabytes. */
static bool is_small(const char *text) {
    int digits = 0;
    if (strchr(text, '/') != NULL || strstr(text, "..") != NULL) return false;
    for (; *text != '\0'; text++) {
        digits = isdigit((unsigned char)*text) ? digits + 1 : 0;
        if (digits > DIGITS) return false;
    }
    return true;
}

static void open_dataset(const char *text) {
    yoke_dataset *dataset = NULL;
    if (!is_small(text)) return;
    for (int split = 0; split < 2; split++) {
        if (yoke_dataset_open(&dataset, text, (yoke_split)split) != YOKE_OK) continue;
        yoke_dataset_info info = {.struct_size = sizeof info};
        if (yoke_dataset_describe(dataset, &info) != YOKE_OK || info.rows == 0) abort();
        yoke_dataset_close(dataset);
    }
}

static void open_devices(const char *text) {
    yoke_devices *devices = NULL;
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = text, .threads = 1, .unbound = true};
    if (yoke_devices_open(&devices, &options) != YOKE_OK) return;
    if (yoke_devices_count(devices) < 1) abort();
    yoke_devices_close(devices);
}

static void make_models(const char *text) {
    static const yoke_shape shapes[] = {{3, 32, 32, false, false}, {1, 16, 1, false, true}};
    for (int i = 0; i < 2; i++) {
        yoke_model *model = NULL;
        if (yoke_model_preset(&model, text, shapes[i], 10, NULL) != YOKE_OK) continue;
        if (yoke_model_tensor_count(model) < 1) abort();
        yoke_model_destroy(model);
    }
}

static void match_patterns(const char *text) {
    int marks[2] = {-1, -1};
    const char *unmatched = NULL;
    yoke_names names;
    if (yoke_names_create(&names, 2) != YOKE_OK) return;
    yoke_names_add(&names, "layer1.0.conv1.weight", 0);
    yoke_names_add(&names, "fc.bias", 1);
    yoke_names_sort(&names);
    (void)yoke_patterns_mark(&names, text, 0, marks, &unmatched);
    yoke_names_destroy(&names);
}

static void parse_link(const char *text) {
    yoke_link link;
    char words[YOKE_LINK_BYTES];
    if (yoke_link_parse(&link, text) == YOKE_OK) (void)yoke_link_describe(&link, words);
}

static void read_numbers(const char *text) {
    int64_t whole;
    double real;
    (void)yoke_text_integer(text, -9, 1000000, &whole);
    (void)yoke_text_real(text, -1e300, 1e300, &real);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const readers[KINDS])(const char *text) = {
        open_dataset, open_devices, make_models, match_patterns, parse_link, read_numbers};
    static char name[] = "/dev/shm/yoke-fuzz-specs-XXXXXX";
    static int here = -1, nowhere; /* libFuzzer's files have relative names */
    if (here < 0) {
        here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        nowhere = mkdtemp(name) != NULL ? open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        if (here < 0 || nowhere < 0 || rmdir(name) != 0) abort();
    }
    if (size == 0) return 0;
    char *text = fuzz_copy(data + 1, size - 1);
    if (fchdir(nowhere) != 0) abort();
    readers[data[0] % KINDS](text);
    if (fchdir(here) != 0) abort();
    free(text);
    return 0;
}
