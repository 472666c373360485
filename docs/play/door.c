/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the page: the verb `yoke simulate` itself, as the tool has it. What it takes from
 * files, models and devices stands here as tables. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/simulate/found_link.h"
#include "cli/simulate/simulate_setup.h"
#include "profiles.h" /* docs/play/build.py makes it of docs/play/profiles/ */

#define WORDS 64

static char room[4096];

/* Where the page writes the words of a command, each followed by a newline. */
__attribute__((export_name("play_room"))) char *play_room(void) {
    return room;
}

/* Runs the command; returns its exit code. It writes to stdout and stderr. */
__attribute__((export_name("play_run"))) int play_run(void) {
    char *words[WORDS + 1] = {NULL};
    int count = 0;
    for (char *word = strtok(room, "\n"); word != NULL && count < WORDS; word = strtok(NULL, "\n"))
        words[count++] = word;
    int code = simulate_main(count, words);
    fflush(stdout);
    return code;
}

const cli_verb *cli_verb_at(int index) {
    return index == 0 ? &simulate_verb : NULL;
}

/* Files and surroundings: the profiles of the page. */

char *getenv(const char *name) {
    (void)name;
    return NULL;
}

int access(const char *path, int mode) {
    (void)path, (void)mode;
    return -1;
}

yoke_status yoke_profile_read(yoke_profile *profile, const char *path) {
    *profile = (yoke_profile){0};
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
        if (strcmp(profiles[i].path, path) != 0) continue;
        *profile = profiles[i].profile;
        size_t bytes = (size_t)profile->segment_count * sizeof *profile->segments;
        profile->segments = yoke_malloc(bytes);
        if (profile->segments == NULL) return FAIL_MEMORY(bytes, "segments of a profile");
        memcpy(profile->segments, profiles[i].profile.segments, bytes);
        return YOKE_OK;
    }
    return FAIL(YOKE_ERROR_IO, "%s is no profile of this page", path);
}

yoke_status simulate_write_page(const char *path, const simulate_setup *setup,
                                const simulate_runs *runs) {
    (void)setup, (void)runs;
    return FAIL(YOKE_ERROR_IO, "%s: a page writes no files", path);
}

/* Models: what published profiles ask of resnet50, for 3x224x224 and 1000 classes. */

yoke_status yoke_model_preset(yoke_model **model, const char *name, yoke_shape input, int classes,
                              const yoke_loss_options *loss) {
    (void)input, (void)classes, (void)loss;
    *model = NULL;
    if (strcmp(name, "resnet50") == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "this page has no model '%s'", name);
}

void yoke_model_destroy(yoke_model *model) {
    (void)model;
}

yoke_shape yoke_model_input_shape(const yoke_model *model) {
    (void)model;
    return (yoke_shape){3, 224, 224, false};
}

int yoke_model_layer_count(const yoke_model *model) {
    (void)model;
    return resnet50_layers;
}

yoke_status yoke_model_segments(const yoke_model *model, size_t bucket_bytes,
                                yoke_model_segment *segments, int capacity, int *count) {
    (void)model, (void)bucket_bytes;
    *count = (int)(sizeof resnet50 / sizeof *resnet50);
    if (*count > capacity) return FAIL(YOKE_ERROR_INTERNAL, "resnet50 has %d segments", *count);
    memcpy(segments, resnet50, sizeof resnet50);
    return YOKE_OK;
}

/* Devices: none. */

yoke_status found_link(yoke_link *link, const char *profiled, char *origin, size_t size) {
    (void)link, (void)profiled, (void)origin, (void)size;
    return FAIL(YOKE_ERROR_ARGUMENT, "--link auto: a page measures no links; state one");
}
