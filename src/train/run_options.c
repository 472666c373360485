/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a run and what they led to: which of them a checkpoint states, a resume
 * compares, and ranks must have alike. */
#include "train/run_options.h"

#include <stdio.h>

yoke_status yoke_run_threads(const yoke_run *run, uint64_t *threads) {
    yoke_device_info root = {.struct_size = sizeof root};
    TRY(yoke_devices_describe(run->devices, 0, &root));
    *threads = root.capability > 0 ? 0 : (uint64_t)root.threads;
    return YOKE_OK;
}

/* What applies. */

static bool is_plateau(const void *owner) {
    const yoke_run *run = owner;
    return run->options.lr_schedule == YOKE_LR_PLATEAU;
}

static bool has_gamma(const void *owner) {
    const yoke_run *run = owner;
    return run->options.lr_schedule == YOKE_LR_EXPONENTIAL || is_plateau(owner);
}

/* Where the rate does not depend on the end, a run may be resumed to more steps. */
static bool is_open(const void *owner) {
    const yoke_run *run = owner;
    return run->options.lr_schedule == YOKE_LR_CONSTANT || has_gamma(owner);
}

static bool has_views(const void *owner) {
    const yoke_run *run = owner;
    return run->options.test_views > 1;
}

static bool is_closed(const void *owner) {
    return !is_open(owner);
}

/* Texts. */

enum { DATASET, LABELS, SHUFFLE, AUGMENT, LOSS, STEPS, THREADS, RANKS };

/* "crop-flip, color jitter 0.4 0.4 0.4 0.1, erasing 0.25": what is off is not named, so that
 * checkpoints from before it existed still match. */
static void write_augment(const yoke_trainer_options *options, char text[YOKE_OPTION_BYTES]) {
    static const char *const kinds[] = {"none", "crop-flip", "crop-flip-cutout",
                                        "resized-crop-flip"};
    const yoke_color_jitter *jitter = &options->color_jitter;
    const double strengths[] = {jitter->brightness, jitter->contrast, jitter->saturation,
                                jitter->hue};
    char number[32];
    size_t size = YOKE_OPTION_BYTES;
    size_t used = (size_t)snprintf(text, size, "%s", kinds[options->augment]);
    for (int i = 0; yoke_color_jitter_on(jitter) && i < 4; i++)
        used += (size_t)snprintf(text + used, size - used, "%s %s", i == 0 ? ", color jitter" : "",
                                 yoke_text_of_real(strengths[i], number, sizeof number));
    if (options->erasing > 0)
        used += (size_t)snprintf(text + used, size - used, ", erasing %s",
                                 yoke_text_of_real(options->erasing, number, sizeof number));
    const yoke_crop_flip *how = &options->crop_flip;
    if (how->padding > 0)
        used += (size_t)snprintf(text + used, size - used, ", padding %d", how->padding);
    used += (size_t)snprintf(text + used, size - used, "%s%s", how->reflect ? ", reflected" : "",
                             how->alternate ? ", mirrored in turn" : "");
    if (options->mixup > 0)
        snprintf(text + used, size - used, ", mixup %s",
                 yoke_text_of_real(options->mixup, number, sizeof number));
}

static void write_text(const void *owner, size_t which, char text[YOKE_OPTION_BYTES]) {
    const yoke_run *run = owner;
    const yoke_dataset_info *rows = &run->training.info;
    char loss[YOKE_LOSS_TEXT_BYTES], count[24] = "unknown";
    const char *plain = text;
    uint64_t threads = 0;
    switch (which) {
    case DATASET:
        if (rows->rows > 0) snprintf(count, sizeof count, "%zu", rows->rows);
        snprintf(text, YOKE_OPTION_BYTES, "%s of %s rows %dx%dx%d, %d classes, %d targets",
                 rows->name, count, rows->shape.channels, rows->shape.height, rows->shape.width,
                 rows->classes, rows->target_count);
        return;
    case AUGMENT:
        write_augment(&run->options, text);
        return;
    case THREADS:
        (void)yoke_run_threads(run, &threads); /* the first device is there */
        snprintf(text, YOKE_OPTION_BYTES, "%llu", (unsigned long long)threads);
        return;
    case RANKS:
        snprintf(text, YOKE_OPTION_BYTES, "%d",
                 run->ranks != NULL ? yoke_process_group_world(run->ranks) : 1);
        return;
    case LABELS:
        plain = run->labels;
        break;
    case SHUFFLE:
        plain = run->options.no_shuffle ? "no" : "yes";
        if (run->options.sampling == YOKE_SAMPLING_BALANCED) plain = "balanced";
        if (run->options.sampling == YOKE_SAMPLING_BY_LENGTH) plain = "by-length";
        break;
    case LOSS:
        plain = run->options.custom_loss != NULL ? "the host's"
                                                 : yoke_model_loss_text(run->model, loss);
        break;
    default: /* STEPS */
        if (run->at.steps < UINT64_MAX)
            snprintf(count, sizeof count, "%llu", (unsigned long long)run->at.steps);
        plain = count;
        break;
    }
    snprintf(text, YOKE_OPTION_BYTES, "%s", plain);
}

/* The tables. */

#define AT(field) offsetof(yoke_run, field)
#define OPTION(field) offsetof(yoke_run, options.field)
#define ALIKE YOKE_OPTION_AGREES | YOKE_OPTION_COMPARED

static const char *const lr_schedules[] = {"constant",    "step",    "cosine", "onecycle",
                                           "exponential", "plateau", "linear"};

static const yoke_option rows[] = {
    {"dataset", ALIKE, YOKE_OPTION_WRITTEN, DATASET},
    {"labels", ALIKE, YOKE_OPTION_WRITTEN, LABELS},
    {"shuffle", ALIKE, YOKE_OPTION_WRITTEN, SHUFFLE},
    {"drop_last", ALIKE, YOKE_OPTION_FLAG, OPTION(drop_last)},
    {"augment", ALIKE, YOKE_OPTION_WRITTEN, AUGMENT},
    {"loss", YOKE_OPTION_COMPARED, YOKE_OPTION_WRITTEN, LOSS},
    {"label_smoothing", ALIKE, YOKE_OPTION_REAL, OPTION(label_smoothing)},
    {"lr_schedule", ALIKE, YOKE_OPTION_WORD, OPTION(lr_schedule), lr_schedules},
    {"warmup_steps", ALIKE, YOKE_OPTION_UNSIGNED, OPTION(warmup_steps)},
    {"lr_gamma", YOKE_OPTION_AGREES, YOKE_OPTION_REAL, OPTION(lr_gamma)},
    {"lr_gamma", YOKE_OPTION_COMPARED, YOKE_OPTION_REAL, AT(schedule.gamma), .applies = has_gamma},
    {"lr_patience", ALIKE, YOKE_OPTION_INTEGER, OPTION(lr_patience), .applies = is_plateau},
    {"steps", YOKE_OPTION_COMPARED, YOKE_OPTION_WRITTEN, STEPS, .applies = is_closed},
    {"steps", YOKE_OPTION_RECORDED, YOKE_OPTION_WRITTEN, STEPS, .applies = is_open},
    {"dataset", YOKE_OPTION_RECORDED, YOKE_OPTION_TEXT, OPTION(dataset)},
    {"threads", YOKE_OPTION_RECORDED, YOKE_OPTION_WRITTEN, THREADS},
    {"ranks", YOKE_OPTION_RECORDED, YOKE_OPTION_WRITTEN, RANKS},
    {"epochs", YOKE_OPTION_AGREES, YOKE_OPTION_INTEGER, OPTION(epochs)},
    {"steps", YOKE_OPTION_AGREES, YOKE_OPTION_UNSIGNED, OPTION(steps)},
    {"evaluate_every", YOKE_OPTION_AGREES, YOKE_OPTION_INTEGER, OPTION(evaluate_every)},
    {"init", YOKE_OPTION_AGREES, YOKE_OPTION_GIVEN, OPTION(init)},
    {"save", YOKE_OPTION_AGREES, YOKE_OPTION_GIVEN, OPTION(save)},
    {"checkpoint_dir", YOKE_OPTION_AGREES, YOKE_OPTION_GIVEN, OPTION(checkpoint_dir)},
    {"keep_best", YOKE_OPTION_AGREES, YOKE_OPTION_FLAG, OPTION(keep_best)},
    {"resume", YOKE_OPTION_AGREES, YOKE_OPTION_GIVEN, OPTION(resume)},
    {"trace", YOKE_OPTION_AGREES, YOKE_OPTION_GIVEN, OPTION(trace)},
    {"whiten", YOKE_OPTION_AGREES, YOKE_OPTION_TEXT, OPTION(whiten)},
    {"test_views", ALIKE, YOKE_OPTION_INTEGER, OPTION(test_views), .applies = has_views},
    {"misclassified", YOKE_OPTION_AGREES, YOKE_OPTION_INTEGER, OPTION(misclassified)},
    {"patience", YOKE_OPTION_AGREES, YOKE_OPTION_INTEGER, OPTION(patience)},
    {"min_delta", YOKE_OPTION_AGREES, YOKE_OPTION_REAL, OPTION(min_delta)},
    {"custom_loss", YOKE_OPTION_AGREES, YOKE_OPTION_GIVEN, OPTION(custom_loss)},
    {"length_buckets", YOKE_OPTION_AGREES, YOKE_OPTION_INTEGER, OPTION(length_buckets)},
    {"metric_count", YOKE_OPTION_AGREES, YOKE_OPTION_INTEGER, OPTION(metric_count)},
};

const yoke_option_table yoke_run_options = {rows, sizeof rows / sizeof rows[0], write_text};
