/* SPDX-License-Identifier: Apache-2.0 */
/* Texts, and the engine that continues them. The engine has two models of the same tensors: one
 * reads a part of a prompt, the other one token. Parts end with the last token that they read, so
 * that texts of different length come to their ends together; what lies before their beginning is
 * padding, which the model leaves out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "model/model.h"
#include "parallel/parallel.h"
#include "yoke/generator.h"

enum { CHUNK = 32, REASON_BYTES = 256 };

/* A text as the model sees it. */
typedef struct text {
    int *tokens;    /* [context] */
    int filled;     /* tokens of it */
    int read;       /* of these, how many have their keys and values kept */
    uint64_t drawn; /* tokens since it began */
} text;

struct yoke_generator {
    const yoke_model *model;
    yoke_generator_options options;
    int context, classes, chunk, drop;
    char reason[REASON_BYTES]; /* why nothing is kept; empty: it is */
    yoke_model *parts, *step;  /* NULL: whole texts are read, or a part is one token */
    yoke_data_parallel *engine;
    text *texts;    /* [rows] */
    int *tokens;    /* [rows, context] of all texts */
    float *inputs;  /* [rows, tokens of a part or a whole text] */
    float *begins;  /* [rows] */
    float *outputs; /* [rows, classes] behind the last token of each text */
    float *all;     /* [rows, context, classes], where whole texts are read */
};

/* Life. */

static yoke_status check_model(yoke_generator *g) {
    yoke_shape input = yoke_model_input_shape(g->model);
    yoke_shape output = yoke_model_output_shape(g->model);
    bool fits = yoke_model_input_count(g->model) == 1 && input.flat && output.sequence &&
                output.height == input.channels && yoke_model_tokens(g->model, 0) > 0;
    g->context = input.channels;
    g->classes = output.channels;
    if (fits) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "model '%s' does not give an output for each of a row of tokens, as a model of "
                "text does: it cannot continue one",
                yoke_model_name(g->model));
}

static yoke_status check_options(const yoke_generator *g) {
    const yoke_generator_options *options = &g->options;
    if (options->rows < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "a generator of %d rows: must be at least 1",
                    options->rows);
    if (options->drop < 0 || options->drop > g->context)
        return FAIL(YOKE_ERROR_ARGUMENT, "drop is %d: 0 to %d, the context of the model",
                    options->drop, g->context);
    if (options->chunk < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "chunk is %d: must be at least 0", options->chunk);
    return YOKE_OK;
}

/* The models that continue a text, or the reason why there are none. */
static yoke_status make_models(yoke_generator *g, const yoke_devices *devices) {
    if (g->options.whole) {
        snprintf(g->reason, sizeof g->reason, "the options ask for whole texts");
        return YOKE_OK;
    }
    if (!yoke_devices_continue(devices)) {
        snprintf(g->reason, sizeof g->reason, "devices as %s keep no keys and values",
                 yoke_device_name(yoke_devices_at(devices, 0)));
        return YOKE_OK;
    }
    yoke_status status = yoke_model_continue(&g->parts, g->model, g->chunk);
    if (status == YOKE_ERROR_ARGUMENT) {
        yoke_error cause = yoke_error_take(status);
        snprintf(g->reason, sizeof g->reason, "%.*s", REASON_BYTES - 1, cause.text);
        return YOKE_OK;
    }
    TRY(status);
    return g->chunk > 1 ? yoke_model_continue(&g->step, g->model, 1) : YOKE_OK;
}

static yoke_status make_engine(yoke_generator *g, yoke_devices *devices) {
    const yoke_model *const others[] = {g->step};
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    options.batch = g->options.rows;
    options.inference = true;
    options.precision = g->options.precision;
    options.algorithm = g->options.algorithm;
    options.algorithm_cache = g->options.algorithm_cache;
    options.replace_broken_cache = g->options.replace_broken_cache;
    options.measure_seconds = g->options.measure_seconds;
    if (g->step != NULL) {
        options.other_models = others;
        options.other_model_count = 1;
    }
    const yoke_model *model = g->parts != NULL ? g->parts : g->model;
    return yoke_data_parallel_create(&g->engine, model, devices, NULL, &options);
}

static yoke_status allocate(yoke_generator *g) {
    size_t rows = (size_t)g->options.rows, context = (size_t)g->context;
    size_t part = g->parts != NULL ? (size_t)g->chunk : context, classes = (size_t)g->classes;
    bool fits = classes <= SIZE_MAX / sizeof(float) / context / rows;
    g->texts = yoke_calloc(rows, sizeof *g->texts);
    g->tokens = fits ? yoke_calloc(rows * context, sizeof *g->tokens) : NULL;
    g->inputs = fits ? yoke_calloc(rows * part, sizeof *g->inputs) : NULL;
    g->begins = yoke_calloc(rows, sizeof *g->begins);
    g->outputs = fits ? yoke_malloc(rows * classes * sizeof *g->outputs) : NULL;
    if (g->parts == NULL && fits) g->all = yoke_malloc(rows * context * classes * sizeof *g->all);
    if (g->texts == NULL || g->tokens == NULL || g->inputs == NULL || g->begins == NULL ||
        g->outputs == NULL || (g->parts == NULL && g->all == NULL))
        return FAIL(YOKE_ERROR_MEMORY, "no memory for %zu texts of %zu tokens: use fewer rows",
                    rows, context);
    for (size_t i = 0; i < rows; i++)
        g->texts[i] = (text){.tokens = g->tokens + i * context, .filled = 1};
    return YOKE_OK;
}

static yoke_status build(yoke_generator *g, const yoke_model *model, yoke_devices *devices,
                         const yoke_generator_options *options) {
    g->options = (yoke_generator_options)YOKE_GENERATOR_OPTIONS_INIT;
    TRY(yoke_options_load(&g->options, sizeof g->options, options, "yoke_generator_options"));
    g->model = model;
    if (g->options.rows == 0) g->options.rows = 1;
    TRY(check_model(g));
    TRY(check_options(g));
    g->chunk = g->options.chunk > 0 ? g->options.chunk : CHUNK;
    if (g->chunk > g->context) g->chunk = g->context;
    g->drop = g->options.drop > 0 ? g->options.drop : (g->context + 1) / 2;
    TRY(make_models(g, devices));
    TRY(make_engine(g, devices));
    return allocate(g);
}

yoke_status yoke_generator_create(yoke_generator **generator, const yoke_model *model,
                                  yoke_devices *devices, const yoke_generator_options *options) {
    TRY(yoke_pointer_check(generator, "generator"));
    *generator = NULL;
    TRY(yoke_pointer_check(model, "model"));
    TRY(yoke_pointer_check(devices, "devices"));
    yoke_generator *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a generator");
    yoke_status status = build(made, model, devices, options);
    if (status != YOKE_OK) {
        yoke_error cause = yoke_error_take(status);
        yoke_generator_destroy(made);
        return yoke_error_restore(&cause);
    }
    *generator = made;
    return YOKE_OK;
}

void yoke_generator_destroy(yoke_generator *generator) {
    if (generator == NULL) return;
    yoke_data_parallel_destroy(generator->engine);
    yoke_model_destroy(generator->step);
    yoke_model_destroy(generator->parts);
    yoke_free(generator->all);
    yoke_free(generator->outputs);
    yoke_free(generator->begins);
    yoke_free(generator->inputs);
    yoke_free(generator->tokens);
    yoke_free(generator->texts);
    yoke_free(generator);
}

yoke_data_parallel *yoke_generator_engine(yoke_generator *generator) {
    return generator != NULL ? generator->engine : NULL;
}

yoke_status yoke_generator_describe(const yoke_generator *generator, yoke_generator_info *info) {
    TRY(yoke_pointer_check(generator, "generator"));
    bool keeps = generator->parts != NULL;
    size_t bytes = keeps ? yoke_model_kept_bytes(generator->parts) : 0;
    yoke_generator_info own = {.struct_size = sizeof own,
                               .rows = generator->options.rows,
                               .context = generator->context,
                               .classes = generator->classes,
                               .keeps = keeps,
                               .reason = keeps ? NULL : generator->reason,
                               .kept_bytes = bytes * (size_t)generator->options.rows};
    return yoke_options_store(info, &own, sizeof own, "yoke_generator_info");
}

/* Texts. */

static yoke_status find_text(const yoke_generator *g, int row, text **found) {
    TRY(yoke_pointer_check(g, "generator"));
    if (row < 0 || row >= g->options.rows)
        return FAIL(YOKE_ERROR_ARGUMENT, "row %d: the generator has 0 to %d", row,
                    g->options.rows - 1);
    *found = &g->texts[row];
    return YOKE_OK;
}

static yoke_status check_token(const yoke_generator *g, int token) {
    int count = yoke_model_tokens(g->model, 0);
    if (token >= 0 && token < count) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "token %d: the model has 0 to %d", token, count - 1);
}

yoke_status yoke_generator_begin(yoke_generator *generator, int row, const int *tokens,
                                 size_t count) {
    text *own = NULL;
    TRY(find_text(generator, row, &own));
    TRY(yoke_pointer_check(tokens, "tokens"));
    if (count < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "a text without a token: the model needs one to begin");
    for (size_t i = 0; i < count; i++)
        TRY(check_token(generator, tokens[i]));
    size_t context = (size_t)generator->context, skipped = count > context ? count - context : 0;
    own->filled = (int)(count - skipped);
    own->read = 0;
    own->drawn = 0;
    memcpy(own->tokens, tokens + skipped, (size_t)own->filled * sizeof *tokens);
    return YOKE_OK;
}

static void append(const yoke_generator *g, text *own, int token) {
    if (own->filled == g->context) {
        own->filled -= g->drop;
        own->read = 0;
        memmove(own->tokens, own->tokens + g->drop, (size_t)own->filled * sizeof *own->tokens);
    }
    own->tokens[own->filled++] = token;
}

yoke_status yoke_generator_append(yoke_generator *generator, int row, int token) {
    text *own = NULL;
    TRY(find_text(generator, row, &own));
    TRY(check_token(generator, token));
    append(generator, own, token);
    return YOKE_OK;
}

/* Reading. */

/* Reads `positions` tokens of each text, the last of them before the `left` that later parts
 * read, by the engine's model `index`. */
static yoke_status read_part(yoke_generator *g, int index, int positions, const int left) {
    const float *more[] = {g->begins};
    int rows = g->options.rows;
    for (int row = 0; row < rows; row++) {
        text *own = &g->texts[row];
        int end = own->filled - left > own->read ? own->filled - left : own->read;
        float *inputs = g->inputs + (size_t)row * (size_t)positions;
        for (int i = 0; i < positions; i++) {
            int place = end - positions + i;
            inputs[i] = place >= 0 ? (float)own->tokens[place] : 0;
        }
        g->begins[row] = (float)(end - positions);
    }
    yoke_batch batch = {.struct_size = sizeof batch,
                        .rows = rows,
                        .inputs = g->inputs,
                        .more_inputs = more,
                        .more_input_count = 1,
                        .model = index};
    TRY(yoke_data_parallel_forward(g->engine, &batch, false, g->outputs));
    for (int row = 0; row < rows; row++) {
        text *own = &g->texts[row];
        if (own->filled - left > own->read) own->read = own->filled - left;
    }
    return YOKE_OK;
}

static yoke_status read_parts(yoke_generator *g) {
    int most = 0;
    for (int row = 0; row < g->options.rows; row++) {
        int unread = g->texts[row].filled - g->texts[row].read;
        if (unread > most) most = unread;
    }
    if (most == 1 && g->step != NULL) return read_part(g, 1, 1, 0);
    for (int parts = (most + g->chunk - 1) / g->chunk; parts > 0; parts--)
        TRY(read_part(g, 0, g->chunk, (parts - 1) * g->chunk));
    return YOKE_OK;
}

/* Padding lies behind a text: no position looks there. */
static yoke_status read_whole(yoke_generator *g) {
    size_t context = (size_t)g->context, classes = (size_t)g->classes;
    size_t rows = (size_t)g->options.rows;
    memset(g->inputs, 0, rows * context * sizeof *g->inputs);
    for (size_t row = 0; row < rows; row++)
        for (int i = 0; i < g->texts[row].filled; i++)
            g->inputs[row * context + (size_t)i] = (float)g->texts[row].tokens[i];
    yoke_batch batch = {.struct_size = sizeof batch, .rows = (int)rows, .inputs = g->inputs};
    TRY(yoke_data_parallel_forward(g->engine, &batch, false, g->all));
    for (size_t row = 0; row < rows; row++) {
        size_t last = row * context + (size_t)(g->texts[row].filled - 1);
        memcpy(g->outputs + row * classes, g->all + last * classes, classes * sizeof *g->outputs);
    }
    return YOKE_OK;
}

yoke_status yoke_generator_read(yoke_generator *generator, float *outputs) {
    TRY(yoke_pointer_check(generator, "generator"));
    TRY(generator->parts != NULL ? read_parts(generator) : read_whole(generator));
    size_t count = (size_t)generator->options.rows * (size_t)generator->classes;
    if (outputs != NULL) memcpy(outputs, generator->outputs, count * sizeof *outputs);
    return YOKE_OK;
}

yoke_status yoke_generator_next(yoke_generator *generator, const yoke_token_sampling *sampling,
                                int *tokens) {
    TRY(yoke_pointer_check(tokens, "tokens"));
    TRY(yoke_generator_read(generator, NULL));
    for (int row = 0; row < generator->options.rows; row++) {
        text *own = &generator->texts[row];
        const float *outputs = generator->outputs + (size_t)row * (size_t)generator->classes;
        TRY(yoke_sample_token(outputs, generator->classes, sampling, row, own->drawn,
                              &tokens[row]));
        TRY(check_token(generator, tokens[row]));
    }
    for (int row = 0; row < generator->options.rows; row++) {
        append(generator, &generator->texts[row], tokens[row]);
        generator->texts[row].drawn++;
    }
    return YOKE_OK;
}
