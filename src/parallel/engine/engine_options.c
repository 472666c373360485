/* SPDX-License-Identifier: Apache-2.0 */
/* The options of an engine and of its optimizer: which of them a checkpoint states, a resume
 * compares, and ranks must have alike. The owner is a step, and so an engine: its first member. */
#include <stdio.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "parallel/step/step.h"

static const char *const schedules[] = {"overlap", "classic", "sharded", "python"};
static const char *const algorithms[] = {"measured", "direct", "fastest"};

/* Whether the run's kind of optimizer reads an option. */
static bool reads(const void *owner, unsigned option) {
    const yoke_step *step = owner;
    return (yoke_optimizer_rule_of(step->optimizer_options.kind)->reads & option) != 0;
}

static bool reads_momentum(const void *owner) {
    return reads(owner, YOKE_READS_MOMENTUM);
}

static bool reads_nesterov(const void *owner) {
    return reads(owner, YOKE_READS_NESTEROV);
}

static bool reads_betas(const void *owner) {
    return reads(owner, YOKE_READS_BETAS);
}

static bool reads_alpha(const void *owner) {
    return reads(owner, YOKE_READS_ALPHA);
}

static bool reads_epsilon(const void *owner) {
    return reads(owner, YOKE_READS_EPSILON);
}

enum { MODEL, KIND, GROUPS };

/* A line of a list, of which it keeps the beginning and a digest: what states an option has no
 * status, and so must need no memory. */
typedef struct short_list {
    char text[YOKE_OPTION_BYTES];
    size_t bytes; /* of the whole list */
    XXH3_state_t state;
} short_list;

static ssize_t list_take(void *cookie, const char *from, size_t count) {
    short_list *list = cookie;
    char piece[YOKE_OPTION_BYTES];
    for (size_t at = 0, used; at < count; at += used, list->bytes += used) {
        size_t room = sizeof list->text - 1, kept = list->bytes < room ? room - list->bytes : 0;
        used = count - at < sizeof piece ? count - at : sizeof piece;
        for (size_t i = 0; i < used; i++)
            piece[i] = from[at + i] == '\n' ? ';' : from[at + i];
        if (kept > 0) memcpy(list->text + list->bytes, piece, used < kept ? used : kept);
        (void)XXH3_64bits_update(&list->state, piece, used);
    }
    return (ssize_t)count;
}

/* A list too long for a text is there as its digest. */
static void write_groups(const yoke_groups *groups, char text[YOKE_OPTION_BYTES]) {
    short_list list = {.bytes = 0};
    (void)XXH3_64bits_reset(&list.state);
    FILE *lines = fopencookie(&list, "w", (cookie_io_functions_t){.write = list_take});
    if (lines != NULL) yoke_groups_write(lines, groups);
    if (lines != NULL) (void)fclose(lines);
    if (list.bytes < YOKE_OPTION_BYTES)
        snprintf(text, YOKE_OPTION_BYTES, "%s", list.bytes > 0 ? list.text : "none");
    else
        snprintf(text, YOKE_OPTION_BYTES, "%.100s... (%016llx)", list.text,
                 (unsigned long long)XXH3_64bits_digest(&list.state));
}

static void write_text(const void *owner, size_t which, char text[YOKE_OPTION_BYTES]) {
    const yoke_step *step = owner;
    const yoke_model *model = yoke_models_first(step);
    yoke_shape in = yoke_model_input_shape(model);
    if (which == GROUPS)
        write_groups(&step->groups, text);
    else if (which == KIND)
        snprintf(text, YOKE_OPTION_BYTES, "%s", yoke_optimizer_name(step->optimizer_options.kind));
    else
        snprintf(text, YOKE_OPTION_BYTES, "%s for %dx%dx%d", yoke_model_name(model), in.channels,
                 in.height, in.width);
}

/* Checkpoints from before these existed still match. */
static bool scales_loss(const void *owner) {
    const yoke_step *step = owner;
    return step->options.loss_scale != 1;
}

static bool scale_is_dynamic(const void *owner) {
    const yoke_step *step = owner;
    return step->scaler.is_dynamic;
}

static bool freezes_statistics(const void *owner) {
    const yoke_step *step = owner;
    return step->fixed_patterns != NULL;
}

#define ENGINE(field) offsetof(yoke_step, options.field)
#define OPTIMIZER(field) offsetof(yoke_step, optimizer_options.field)
#define ALIKE YOKE_OPTION_AGREES | YOKE_OPTION_COMPARED

static const yoke_option rows[] = {
    {"model", ALIKE, YOKE_OPTION_WRITTEN, MODEL},
    {"seed", ALIKE, YOKE_OPTION_UNSIGNED, ENGINE(seed)},
    {"batch", ALIKE, YOKE_OPTION_INTEGER, ENGINE(batch)},
    {"accumulate", ALIKE, YOKE_OPTION_INTEGER, ENGINE(accumulate)},
    {"shards", ALIKE, YOKE_OPTION_INTEGER, ENGINE(shards)},
    {"synchronize_batch_norm", ALIKE, YOKE_OPTION_FLAG, ENGINE(synchronize_batch_norm)},
    {"freeze_statistics", ALIKE, YOKE_OPTION_TEXT, offsetof(yoke_step, fixed_patterns),
     .applies = freezes_statistics},
    {"precision", ALIKE, YOKE_OPTION_WORD, ENGINE(precision), yoke_precision_names},
    {"loss_scale", ALIKE, YOKE_OPTION_REAL, ENGINE(loss_scale), .applies = scales_loss},
    {"loss_scale_interval", ALIKE, YOKE_OPTION_INTEGER, ENGINE(loss_scale_interval),
     .applies = scale_is_dynamic},
    {"mean_of_ranks", ALIKE, YOKE_OPTION_FLAG, ENGINE(mean_of_ranks)},
    {"optimizer", ALIKE, YOKE_OPTION_WRITTEN, KIND},
    {"learning_rate", ALIKE, YOKE_OPTION_REAL, OPTIMIZER(learning_rate)},
    {"weight_decay", ALIKE, YOKE_OPTION_REAL, OPTIMIZER(weight_decay)},
    {"clip_norm", ALIKE, YOKE_OPTION_REAL, OPTIMIZER(clip_norm)},
    {"momentum", ALIKE, YOKE_OPTION_REAL, OPTIMIZER(momentum), .applies = reads_momentum},
    {"nesterov", ALIKE, YOKE_OPTION_FLAG, OPTIMIZER(nesterov), .applies = reads_nesterov},
    {"beta1", ALIKE, YOKE_OPTION_REAL, OPTIMIZER(beta1), .applies = reads_betas},
    {"beta2", ALIKE, YOKE_OPTION_REAL, OPTIMIZER(beta2), .applies = reads_betas},
    {"epsilon", ALIKE, YOKE_OPTION_REAL, OPTIMIZER(epsilon), .applies = reads_epsilon},
    {"alpha", ALIKE, YOKE_OPTION_REAL, OPTIMIZER(alpha), .applies = reads_alpha},
    {"ema_decay", ALIKE, YOKE_OPTION_REAL, ENGINE(ema_decay)},
    {"groups", YOKE_OPTION_COMPARED, YOKE_OPTION_WRITTEN, GROUPS},
    {"schedule", YOKE_OPTION_RECORDED, YOKE_OPTION_WORD, ENGINE(schedule), schedules},
    {"algorithm", YOKE_OPTION_AGREES | YOKE_OPTION_RECORDED, YOKE_OPTION_WORD, ENGINE(algorithm),
     algorithms},
    {"devices", YOKE_OPTION_RECORDED, YOKE_OPTION_INTEGER, offsetof(yoke_step, count)},
    {"first_bucket_bytes", YOKE_OPTION_AGREES, YOKE_OPTION_UNSIGNED, ENGINE(first_bucket_bytes)},
    {"bucket_bytes", YOKE_OPTION_AGREES, YOKE_OPTION_UNSIGNED, ENGINE(bucket_bytes)},
    {"own_buffers", YOKE_OPTION_AGREES, YOKE_OPTION_FLAG, ENGINE(own_buffers)},
    {"skip_finite_check", YOKE_OPTION_AGREES, YOKE_OPTION_FLAG, ENGINE(skip_finite_check)},
    {"link", YOKE_OPTION_AGREES, YOKE_OPTION_TEXT, ENGINE(link)},
};

const yoke_option_table yoke_engine_options = {rows, sizeof rows / sizeof rows[0], write_text};
