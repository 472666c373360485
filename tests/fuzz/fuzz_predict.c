/* SPDX-License-Identifier: Apache-2.0 */
/* A file of weights, from its bytes to the verbs that build an engine of what it claims: predict
 * and evaluate refuse it, or end within limits of memory and processor time. */
#include <fcntl.h>
#include <unistd.h>

#define main tool_main
int tool_main(int argc, char **argv);
#include "cli/main.c"
#undef main

#include "fuzz/fuzz.h"

/* A PNG file of one pixel. */
static const uint8_t picture[] = {
    0x89, 0x50, 0x4e, 0x47, 0xd,  0xa,  0x1a, 0xa,  0x0,  0x0,  0x0,  0xd,  0x49, 0x48,
    0x44, 0x52, 0x0,  0x0,  0x0,  0x1,  0x0,  0x0,  0x0,  0x1,  0x8,  0x2,  0x0,  0x0,
    0x0,  0x90, 0x77, 0x53, 0xde, 0x0,  0x0,  0x0,  0xc,  0x49, 0x44, 0x41, 0x54, 0x78,
    0x9c, 0x63, 0xf8, 0xdf, 0xc0, 0x0,  0x0,  0x4,  0x1,  0x1,  0x80, 0xc5, 0x2a, 0x18,
    0x5d, 0x0,  0x0,  0x0,  0x0,  0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

static char weights[64], photograph[64];
static FILE *nowhere;

static void remove_files(void) {
    (void)unlink(weights);
    (void)unlink(photograph);
}

static void write_file(const char *path, const uint8_t *data, size_t size) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || write(file, data, size) != (ssize_t)size) abort();
    close(file);
}

static void prepare(void) {
    snprintf(weights, sizeof weights, "/dev/shm/yoke-fuzz-predict-%d", (int)getpid());
    snprintf(photograph, sizeof photograph, "/dev/shm/yoke-fuzz-predict-%d.png", (int)getpid());
    atexit(remove_files);
    write_file(photograph, picture, sizeof picture);
    nowhere = fopen("/dev/null", "w");
    if (nowhere == NULL) abort();
}

/* Messages and results go nowhere meanwhile; a sanitizer writes to the descriptor. */
static void run(int (*verb)(int argc, char **argv), int argc, char **argv) {
    FILE *kept[2] = {stdout, stderr};
    fuzz_cost before = fuzz_cost_now();
    stdout = stderr = nowhere;
    (void)verb(argc, argv);
    stdout = kept[0], stderr = kept[1];
    fuzz_cost_check(&before, (fuzz_cost){.mb = 512, .s = 30});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *predict[] = {"predict", "--weights", weights, "--devices",  "cpu",      "--threads",
                       "1",       "--batch",   "2",     "--no-cache", photograph, NULL};
    char *evaluate[] = {
        "evaluate", "--weights",        weights, "--dataset",  "synthetic", "--devices",
        "cpu",      "--threads",        "1",     "--batch",    "2",         "--limit-rows",
        "2",        "--loader-threads", "1",     "--no-cache", NULL};
    if (nowhere == NULL) prepare();
    write_file(weights, data, size);
    run(predict_main, (int)(sizeof predict / sizeof *predict) - 1, predict);
    run(evaluate_main, (int)(sizeof evaluate / sizeof *evaluate) - 1, evaluate);
    return 0;
}
