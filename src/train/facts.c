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
    static const char *const schedules[] = {"overlap", "classic", "sharded"};
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
    add_groups(facts, parallel);
    yoke_facts_add(facts, "run.schedule", "%s", schedules[options->schedule]);
    yoke_facts_add(facts, "run.algorithm", "%s",
                   options->algorithm == YOKE_ALGORITHM_DIRECT ? "direct" : "measured");
    yoke_facts_add(facts, "run.devices", "%d", yoke_data_parallel_device_count(parallel));
}

bool yoke_facts_lists(const char *anyway, const char *name) {
    size_t length = strlen(name);
    for (const char *next = anyway; next != NULL && *next != '\0';) {
        size_t word = strcspn(next, ",");
        if (word == length && strncmp(next, name, length) == 0) return true;
        next += word + (next[word] == ',');
    }
    return false;
}

/* A list of differences, and the names to go on with. */
typedef struct differences {
    char text[320], names[160];
} differences;

static void append(char *text, size_t size, const char *separator, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void append(char *text, size_t size, const char *separator, const char *format, ...) {
    va_list arguments;
    size_t used = strlen(text);
    if (used > 0) used += (size_t)snprintf(text + used, size - used, "%s", separator);
    if (used >= size) return;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

yoke_status yoke_facts_compare(const yoke_facts *own, const yoke_safetensors *file,
                               const char *anyway) {
    differences found = {0};
    for (int i = 0; i < own->count; i++) {
        const yoke_fact *fact = &own->items[i];
        const char *name = fact->key + strlen(CONFIG);
        const char *theirs = yoke_safetensors_note(file, fact->key);
        if (strncmp(fact->key, CONFIG, strlen(CONFIG)) != 0 || theirs == NULL) continue;
        if (strcmp(theirs, fact->value) == 0 || yoke_facts_lists(anyway, name)) continue;
        append(found.text, sizeof found.text, "; ", "%s is %s here and %.80s there", name,
               fact->value, theirs);
        append(found.names, sizeof found.names, ",", "%s", name);
    }
    if (found.text[0] == '\0') return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: another run's checkpoint: %s; to go on with it all the same: "
                "--resume-anyway %s",
                file->path, found.text, found.names);
}
