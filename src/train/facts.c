/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint states about its run, and how a resumed run compares that with its own. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint.h"
#include "train/digest.h"

#define CONFIG "config."

void yoke_facts_add(yoke_facts *facts, const char *key, const char *format, ...) {
    va_list arguments;
    if (facts->count == YOKE_FACTS) return; /* the tests count them */
    yoke_fact *fact = &facts->items[facts->count++];
    snprintf(fact->key, sizeof fact->key, "%s", key);
    va_start(arguments, format);
    vsnprintf(fact->value, sizeof fact->value, format, arguments);
    va_end(arguments);
}

void yoke_facts_add_real(yoke_facts *facts, const char *key, double value) {
    char text[32];
    yoke_facts_add(facts, key, "%s", yoke_text_of_real(value, text, sizeof text));
}

static void add_optimizer(yoke_facts *facts, const yoke_optimizer_options *optimizer) {
    bool sgd = optimizer->kind == YOKE_SGD;
    yoke_facts_add(facts, CONFIG "optimizer", "%s", sgd ? "sgd" : "adamw");
    yoke_facts_add_real(facts, CONFIG "learning_rate", optimizer->learning_rate);
    yoke_facts_add_real(facts, CONFIG "weight_decay", optimizer->weight_decay);
    yoke_facts_add_real(facts, CONFIG "clip_norm", optimizer->clip_norm);
    if (sgd) {
        yoke_facts_add_real(facts, CONFIG "momentum", optimizer->momentum);
        yoke_facts_add(facts, CONFIG "nesterov", "%s", optimizer->nesterov ? "yes" : "no");
        return;
    }
    yoke_facts_add_real(facts, CONFIG "beta1", optimizer->beta1);
    yoke_facts_add_real(facts, CONFIG "beta2", optimizer->beta2);
    yoke_facts_add_real(facts, CONFIG "epsilon", optimizer->epsilon);
}

/* A list too long for a fact is there as its digest. */
static void add_groups(yoke_facts *facts, const yoke_data_parallel *parallel) {
    char digest[YOKE_DIGEST_TEXT], *text = yoke_data_parallel_groups_text(parallel);
    size_t length = text != NULL ? strlen(text) : 0;
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\n') text[i] = ';';
    if (length < sizeof facts->items[0].value) {
        yoke_facts_add(facts, CONFIG "groups", "%s", length > 0 ? text : "none");
    } else {
        yoke_digest_text(text, length, digest);
        yoke_facts_add(facts, CONFIG "groups", "%.100s... (%s)", text, digest);
    }
    free(text);
}

void yoke_facts_add_engine(yoke_facts *facts, const yoke_data_parallel *parallel) {
    const yoke_data_parallel_options *options = yoke_data_parallel_options_of(parallel);
    const yoke_model *model = yoke_data_parallel_model(parallel);
    yoke_shape in = yoke_model_input_shape(model);
    static const char *const schedules[] = {"overlap", "classic", "sharded", "python"};
    static const char *const algorithms[] = {"measured", "direct", "fastest"};
    yoke_facts_add(facts, CONFIG "model", "%s for %dx%dx%d", yoke_model_name(model), in.channels,
                   in.height, in.width);
    yoke_facts_add(facts, CONFIG "seed", "%llu", (unsigned long long)options->seed);
    yoke_facts_add(facts, CONFIG "batch", "%d", options->batch);
    yoke_facts_add(facts, CONFIG "accumulate", "%d", options->accumulate);
    yoke_facts_add(facts, CONFIG "shards", "%d", options->shards);
    yoke_facts_add(facts, CONFIG "synchronize_batch_norm", "%s",
                   options->synchronize_batch_norm ? "yes" : "no");
    yoke_facts_add(facts, CONFIG "precision", "%s", yoke_precision_name(options->precision));
    yoke_facts_add(facts, CONFIG "mean_of_ranks", "%s", options->mean_of_ranks ? "yes" : "no");
    add_optimizer(facts, yoke_data_parallel_optimizer_of(parallel));
    yoke_facts_add_real(facts, CONFIG "ema_decay", options->ema_decay);
    add_groups(facts, parallel);
    yoke_facts_add(facts, "run.schedule", "%s", schedules[options->schedule]);
    yoke_facts_add(facts, "run.algorithm", "%s", algorithms[options->algorithm]);
    yoke_facts_add(facts, "run.devices", "%d", yoke_data_parallel_device_count(parallel));
}

/* Every name behind "config.": those of the engine above, then those of the trainer. */
static const char compared[] =
    "model, seed, batch, accumulate, shards, synchronize_batch_norm, precision, mean_of_ranks, "
    "optimizer, learning_rate, weight_decay, clip_norm, momentum, nesterov, beta1, beta2, epsilon, "
    "groups, dataset, labels, shuffle, drop_last, augment, loss, label_smoothing, lr_schedule, "
    "lr_gamma, lr_patience, warmup_steps, steps, ema_decay";

/* Whether a list with commas, and perhaps blanks, has a word. */
static bool has_word(const char *list, const char *word, size_t length) {
    for (const char *next = list; next != NULL && *next != '\0';) {
        next += strspn(next, ", ");
        size_t found = strcspn(next, ", ");
        if (found == length && strncmp(next, word, length) == 0) return true;
        next += found;
    }
    return false;
}

bool yoke_facts_lists(const char *anyway, const char *name) {
    return has_word(anyway, name, strlen(name));
}

yoke_status yoke_facts_check_names(const char *anyway) {
    if (anyway == NULL || anyway[0] == '\0') return YOKE_OK;
    for (const char *next = anyway;; next++) {
        size_t length = strcspn(next, ",");
        if (length == 0 || !has_word(compared, next, length))
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "resume anyway: '%.*s' is no option that a resume compares; these are %s",
                        (int)(length < 40 ? length : 40), next, compared);
        next += length;
        if (*next == '\0') return YOKE_OK;
    }
}

/* What differs, as much of it as a message can hold, and the names to go on with. */
typedef struct differences {
    char text[480], names[sizeof compared];
    int left_out; /* differences for which `text` has no room */
} differences;

#define VALUE_BYTES 96

/* A long value is shown from a little before the place where it differs. */
static const char *show_value(const char *value, size_t equal, char text[VALUE_BYTES]) {
    enum { CONTEXT = 20, SHOWN = VALUE_BYTES - 7 }; /* 7: "..." twice, and the end */
    size_t skipped = strlen(value) <= SHOWN || equal < CONTEXT ? 0 : equal - CONTEXT;
    snprintf(text, VALUE_BYTES, "%s%.*s%s", skipped > 0 ? "..." : "", SHOWN, value + skipped,
             strlen(value + skipped) > SHOWN ? "..." : "");
    return text;
}

static void add_difference(differences *found, const char *name, const char *own,
                           const char *theirs) {
    char values[2][VALUE_BYTES], text[sizeof found->text];
    size_t equal = 0, used = strlen(found->text), listed = strlen(found->names);
    while (own[equal] != '\0' && own[equal] == theirs[equal])
        equal++;
    snprintf(found->names + listed, sizeof found->names - listed, "%s%s", listed > 0 ? "," : "",
             name);
    int length =
        snprintf(text, sizeof text, "%s%s is %s here and %s there", used > 0 ? "; " : "", name,
                 show_value(own, equal, values[0]), show_value(theirs, equal, values[1]));
    if (found->left_out > 0 || used + (size_t)length >= sizeof found->text)
        found->left_out++;
    else
        memcpy(found->text + used, text, (size_t)length + 1);
}

yoke_status yoke_facts_compare(const yoke_facts *own, const yoke_safetensors *file,
                               const char *anyway) {
    differences found = {0};
    char more[24] = "";
    TRY(yoke_facts_check_names(anyway));
    for (int i = 0; i < own->count; i++) {
        const yoke_fact *fact = &own->items[i];
        const char *name = fact->key + strlen(CONFIG);
        const char *theirs = yoke_safetensors_note(file, fact->key);
        if (strncmp(fact->key, CONFIG, strlen(CONFIG)) != 0 || theirs == NULL) continue;
        if (strcmp(theirs, fact->value) == 0 || yoke_facts_lists(anyway, name)) continue;
        add_difference(&found, name, fact->value, theirs);
    }
    if (found.names[0] == '\0') return YOKE_OK;
    if (found.left_out > 0) snprintf(more, sizeof more, "; and %d more", found.left_out);
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: another run's checkpoint: %s%s; to go on with it all the same: "
                "--resume-anyway %s",
                file->path, found.text, more, found.names);
}
