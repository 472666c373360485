/* SPDX-License-Identifier: Apache-2.0 */
/* Runs with a folder of checkpoints. */
#ifndef SAVES_CHECK_H
#define SAVES_CHECK_H

#include <dirent.h>

#include "train/checkpoint_folder.h"
#include "trainer_check.h"

enum { RUN_STEPS = 20, BATCHES = 4 };

static char saves[128];

/* Empties and removes the folder of checkpoints. */
static inline void clear_saves(void) {
    char path[512];
    in_folder("saves", saves);
    DIR *directory = opendir(saves);
    if (directory == NULL) return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", saves, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) unlink(path);
    }
    closedir(directory);
    rmdir(saves);
}

static inline bool has_save(uint64_t step) {
    char path[PATH_MAX];
    yoke_folder_path(path, saves, step);
    return access(path, R_OK) == 0;
}

static inline yoke_trainer_options saving(log_of_run *run) {
    yoke_trainer_options options = small(run);
    options.steps = RUN_STEPS;
    options.checkpoint_dir = saves;
    options.checkpoint_every = 3600;
    options.checkpoint_unit = YOKE_CHECKPOINT_SECONDS; /* only at the end */
    options.resume = "auto";
    return options;
}

/* Leaves the writer time between two steps. */
static inline void on_event_slowly(const yoke_event *event, void *payload) {
    on_event(event, payload);
    usleep(5000);
}

static inline void stop_at(uint64_t step) {
    log_of_run run = {.stop_after = step};
    yoke_trainer_options options = saving(&run);
    assert_int_equal(train(&run, &options), YOKE_ERROR_CANCELLED);
    yoke_trainer_destroy(run.trainer);
}

#endif
