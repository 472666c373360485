/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without libFuzzer: every seed, then a fixed number of mutations of them. The
 * same numbers always give the same inputs.
 *
 * usage: fuzz_NAME FOLDER_OF_SEEDS MUTATIONS */
#include <dirent.h>
#include <stdio.h>

#include "base/file.h"
#include "fuzz/fuzz.h"

enum { SEEDS = 256, INPUT_BYTES = 1 << 16 };

typedef struct seed {
    unsigned char *data;
    size_t bytes;
} seed;

static seed seeds[SEEDS];
static size_t seed_count;
static uint64_t random_state = 88172645463325252u;

/* xorshift64 (Marsaglia 2003) */
static size_t pick(size_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return below == 0 ? 0 : (size_t)(random_state % below);
}

static int read_seeds(const char *folder) {
    char path[4096];
    DIR *directory = opendir(folder);
    if (directory == NULL) return -1;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL && seed_count < SEEDS;) {
        seed *next = &seeds[seed_count];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] == '.') continue;
        if (yoke_file_read(path, INPUT_BYTES, &next->data, &next->bytes) == YOKE_OK) seed_count++;
    }
    closedir(directory);
    return seed_count > 0 ? 0 : -1;
}

/* One of what libFuzzer does: flip, set, delete, repeat, or splice with another seed. */
static size_t mutate(unsigned char *input, size_t bytes) {
    static const unsigned char telling[] = {0,   1,   0x7f, 0x80, 0xff, '"',
                                            '{', '}', '[',  ',',  '-',  '9'};
    size_t at = pick(bytes), span = 1 + pick(16);
    const seed *other = &seeds[pick(seed_count)];
    if (bytes == 0) return 0;
    if (span > bytes - at) span = bytes - at;
    switch (pick(5)) {
    case 0:
        input[at] ^= (unsigned char)(1u << pick(8));
        return bytes;
    case 1:
        input[at] = telling[pick(sizeof telling)];
        return bytes;
    case 2:
        memmove(input + at, input + at + span, bytes - at - span);
        return bytes - span;
    case 3:
        if (bytes + span > INPUT_BYTES) return bytes;
        memmove(input + at + span, input + at, bytes - at);
        return bytes + span;
    default:
        if (span > other->bytes) span = other->bytes;
        memcpy(input + at, other->data + pick(other->bytes - span), span);
        return bytes;
    }
}

int main(int argc, char **argv) {
    static unsigned char input[INPUT_BYTES];
    if (argc != 3 || read_seeds(argv[1]) != 0) {
        fprintf(stderr, "usage: %s FOLDER_OF_SEEDS MUTATIONS\n", argv[0]);
        return 2;
    }
    long mutations = strtol(argv[2], NULL, 10);
    for (size_t i = 0; i < seed_count; i++)
        LLVMFuzzerTestOneInput(seeds[i].data, seeds[i].bytes);
    for (long run = 0; run < mutations; run++) {
        const seed *from = &seeds[pick(seed_count)];
        size_t bytes = from->bytes;
        memcpy(input, from->data, bytes);
        for (size_t changes = 1 + pick(4); changes > 0; changes--)
            bytes = mutate(input, bytes);
        LLVMFuzzerTestOneInput(input, bytes);
    }
    printf("%zu seeds, %ld mutations\n", seed_count, mutations);
    for (size_t i = 0; i < seed_count; i++)
        free(seeds[i].data);
    return 0;
}
