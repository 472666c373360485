/* SPDX-License-Identifier: Apache-2.0 */
/* Continues texts with a generator: several at a time, whose lengths may differ. */
#include <stdlib.h>
#include <string.h>

#include "cli/generate.h"
#include "cli/progress.h"

#define DEFAULT_TEMPERATURE 0.8
#define FILE_LIMIT ((size_t)256 << 20)

typedef struct one_text {
    const char *prompt; /* NULL: none was given */
    size_t prompt_bytes;
    int *prompt_tokens, *tokens; /* tokens: [length] what was added */
    size_t prompt_count, count;
    bool stopped;
} one_text;

typedef struct texts_run {
    const generate_flags *flags;
    trained *of;
    vocabulary words;
    yoke_generator *generator;
    yoke_generator_info info;
    one_text *texts; /* [count] */
    size_t count;
    unsigned char *file; /* of prompts; texts point into it */
    float *outputs;      /* [rows, classes] */
    int stop;            /* -1: none */
    double seconds;
    unsigned char last; /* byte on the terminal */
} texts_run;

/* Weights. */

/* Weights that do not say their vocabulary and context have them in tables of tokens and of
 * positions. */
static yoke_status find_size(const yoke_tensor_file *file, const char *name, int *size) {
    char full[64];
    yoke_tensor_file_entry entry = {.struct_size = sizeof entry};
    snprintf(full, sizeof full, "transformer.%s", name);
    yoke_status status = yoke_tensor_file_find(file, name, &entry);
    if (status != YOKE_OK) status = yoke_tensor_file_find(file, full, &entry);
    TRY(status);
    *size = entry.ndim > 0 && entry.shape[0] <= 1 << 24 ? (int)entry.shape[0] : 0;
    return YOKE_OK;
}

static yoke_status guess_sizes(texts_run *run) {
    yoke_weights_info *info = &run->of->info;
    yoke_tensor_file *file = NULL;
    int context = 0;
    if (run->of->described) return YOKE_OK;
    TRY(yoke_tensor_file_open(&file, run->flags->trained.weights));
    yoke_status status = find_size(file, "wte.weight", &info->classes);
    if (status == YOKE_OK) status = find_size(file, "wpe.weight", &context);
    yoke_tensor_file_close(file);
    TRY(status);
    info->input = (yoke_shape){context, 1, 1, true, false};
    info->class_names = NULL;
    info->dataset = NULL;
    return YOKE_OK;
}

static yoke_status open_generator(texts_run *run) {
    const generate_flags *flags = run->flags;
    algorithm_cache_place cache;
    progress view;
    size_t rows = run->count < (size_t)flags->rows ? run->count : (size_t)flags->rows;
    TRY(trained_model(run->of, &flags->trained, 0)); /* a part of a row at a time */
    algorithm_cache_find(&cache, &flags->trained.algorithm_cache, false);
    algorithm_cache_say_held(&cache);
    yoke_generator_options options = YOKE_GENERATOR_OPTIONS_INIT;
    options.rows = (int)rows;
    options.precision = flags->trained.precision;
    options.algorithm_cache = cache.path;
    options.replace_broken_cache = cache.replace_broken;
    options.measure_seconds = MEASURE_SECONDS_PREDICTING;
    progress_begin(&view, 0, 0, false);
    progress_note(&view, "measuring the fastest algorithms ...");
    yoke_status status =
        yoke_generator_create(&run->generator, run->of->model, run->of->devices, &options);
    progress_clear(&view);
    TRY(status);
    yoke_data_parallel *engine = yoke_generator_engine(run->generator);
    const char *warning = yoke_data_parallel_algorithms_warning(engine);
    if (warning != NULL) fprintf(stderr, "yoke: warning: %s\n", warning);
    run->info.struct_size = sizeof run->info;
    TRY(yoke_generator_describe(run->generator, &run->info));
    run->outputs = malloc(rows * (size_t)run->info.classes * sizeof *run->outputs);
    if (run->outputs == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for the outputs of %zu texts", rows);
    return yoke_weights_load(engine, run->of->model, flags->trained.weights);
}

/* Prompts. */

static yoke_status make_texts(texts_run *run, size_t count) {
    run->texts = calloc(count, sizeof *run->texts);
    if (run->texts == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %zu texts", count);
    run->count = count;
    return YOKE_OK;
}

static yoke_status read_prompts_file(texts_run *run) {
    size_t bytes = 0, lines = 0;
    const char *path = run->flags->prompts_file;
    TRY(yoke_file_read(path, FILE_LIMIT, &run->file, &bytes));
    for (size_t i = 0; i < bytes; i++)
        lines += run->file[i] == '\n' || i + 1 == bytes;
    if (lines == 0) return cli_refuse(YOKE_ERROR_DATA, "%s: the file is empty", path);
    TRY(make_texts(run, lines));
    const char *text = (const char *)run->file, *end = text + bytes;
    for (size_t i = 0; i < lines; i++) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        if (line_end == NULL) line_end = end;
        run->texts[i].prompt = text;
        run->texts[i].prompt_bytes = (size_t)(line_end - text);
        text = line_end + 1;
    }
    return YOKE_OK;
}

static yoke_status read_prompts(texts_run *run) {
    const text_list *given = &run->flags->prompts;
    if (run->flags->prompts_file != NULL) return read_prompts_file(run);
    TRY(make_texts(run, given->count > 0 ? (size_t)given->count : 1));
    for (int i = 0; i < given->count; i++) {
        run->texts[i].prompt = given->all[i];
        run->texts[i].prompt_bytes = strlen(given->all[i]);
    }
    return YOKE_OK;
}

/* Without a prompt a text of words begins behind the end of another one, and one of bytes behind a
 * line break. */
static yoke_status begin_text(texts_run *run, one_text *text) {
    int end = yoke_tokenizer_special(run->words.tokenizer, "<|endoftext|>");
    if (text->prompt == NULL && run->words.tokenizer == NULL)
        text->prompt = "\n", text->prompt_bytes = 1;
    if (text->prompt != NULL)
        TRY(vocabulary_encode(&run->words, text->prompt, text->prompt_bytes, &text->prompt_tokens,
                              &text->prompt_count));
    text->tokens = malloc((size_t)run->flags->length * sizeof *text->tokens);
    if (text->tokens == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for a text");
    if (text->prompt_count > 0) return YOKE_OK;
    if (end < 0 || end >= run->words.classes)
        return cli_refuse(YOKE_ERROR_ARGUMENT, "--prompt: a text to continue, of one token at "
                                               "least");
    free(text->prompt_tokens);
    text->prompt_tokens = malloc(sizeof *text->prompt_tokens);
    if (text->prompt_tokens == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for a text");
    text->prompt_tokens[0] = end;
    text->prompt_count = 1;
    return YOKE_OK;
}

static yoke_status find_stop(texts_run *run) {
    const char *stop = run->flags->stop;
    run->stop = yoke_tokenizer_special(run->words.tokenizer, stop);
    bool is_default = strcmp(stop, "<|endoftext|>") == 0 || strcmp(stop, "none") == 0;
    if (run->stop >= 0 || is_default) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_ARGUMENT, "--stop: '%s' is no special token of %s", stop,
                      run->words.tokenizer != NULL ? run->flags->tokenizer : "weights of bytes");
}

static yoke_status open_all(texts_run *run) {
    TRY(guess_sizes(run));
    TRY(vocabulary_open(&run->words, run->of, run->flags));
    TRY(find_stop(run));
    TRY(read_prompts(run));
    for (size_t i = 0; i < run->count; i++)
        TRY(begin_text(run, &run->texts[i]));
    return open_generator(run);
}

/* Writing. */

static yoke_status print_tokens(texts_run *run, const int *tokens, size_t count) {
    char *text = NULL;
    size_t bytes = 0;
    TRY(vocabulary_decode(&run->words, tokens, count, &text, &bytes));
    vocabulary_print(text, bytes, &run->last);
    free(text);
    return YOKE_OK;
}

static bool is_streamed(const texts_run *run) {
    return run->count == 1 && !run->flags->json;
}

static void print_prompt(const one_text *text) {
    if (text->prompt != NULL) fwrite(text->prompt, 1, text->prompt_bytes, stdout);
    fflush(stdout);
}

/* One more token for each text of a group that goes on. */
static yoke_status add_tokens(texts_run *run, size_t first, size_t rows, size_t *going) {
    const generate_flags *flags = run->flags;
    yoke_token_sampling sampling = {.struct_size = sizeof sampling,
                                    .temperature = flags->temperature < 0 ? DEFAULT_TEMPERATURE
                                                                          : flags->temperature,
                                    .top_k = flags->top_k,
                                    .top_p = flags->top_p,
                                    .seed = flags->seed};
    TRY(yoke_generator_read(run->generator, run->outputs));
    *going = 0;
    for (size_t row = 0; row < rows; row++) {
        one_text *text = &run->texts[first + row];
        const float *outputs = run->outputs + row * (size_t)run->info.classes;
        int token = 0;
        if (text->stopped || text->count == (size_t)flags->length) continue;
        TRY(yoke_sample_token(outputs, run->info.classes, &sampling, (int)(first + row),
                              text->count, &token));
        text->stopped = token == run->stop;
        if (text->stopped) continue;
        text->tokens[text->count++] = token;
        if (is_streamed(run)) TRY(print_tokens(run, &token, 1));
        TRY(yoke_generator_append(run->generator, (int)row, token));
        *going += text->count < (size_t)flags->length;
    }
    return YOKE_OK;
}

static yoke_status generate_group(texts_run *run, size_t first, size_t rows) {
    size_t going = rows;
    for (size_t row = 0; row < rows; row++) {
        const one_text *text = &run->texts[first + row];
        TRY(yoke_generator_begin(run->generator, (int)row, text->prompt_tokens,
                                 text->prompt_count));
    }
    while (going > 0)
        TRY(add_tokens(run, first, rows, &going));
    for (size_t row = 0; row < rows && !run->flags->json; row++) {
        const one_text *text = &run->texts[first + row];
        if (!is_streamed(run)) {
            print_prompt(text);
            TRY(print_tokens(run, text->tokens, text->count));
        }
        putchar('\n');
    }
    return YOKE_OK;
}

static yoke_status generate_all(texts_run *run) {
    size_t rows = (size_t)run->info.rows;
    uint64_t begin = yoke_now_ns();
    if (is_streamed(run)) print_prompt(&run->texts[0]);
    for (size_t first = 0; first < run->count; first += rows) {
        size_t left = run->count - first;
        TRY(generate_group(run, first, left < rows ? left : rows));
    }
    run->seconds = (double)(yoke_now_ns() - begin) * 1e-9;
    return YOKE_OK;
}

/* JSON. */

static yoke_status write_text(texts_run *run, yoke_json *json, const one_text *text) {
    char *prompt = NULL, *added = NULL;
    size_t bytes = 0;
    TRY(vocabulary_decode(&run->words, text->prompt_tokens, text->prompt_count, &prompt, &bytes));
    yoke_status status = vocabulary_decode(&run->words, text->tokens, text->count, &added, &bytes);
    if (status == YOKE_OK) {
        yoke_json_open(json, NULL, '{');
        yoke_json_text(json, "prompt", prompt);
        yoke_json_integer(json, "prompt_tokens", (int64_t)text->prompt_count);
        yoke_json_text(json, "text", added);
        yoke_json_open(json, "tokens", '[');
        for (size_t i = 0; i < text->count; i++)
            yoke_json_integer(json, NULL, text->tokens[i]);
        yoke_json_close(json, ']');
        yoke_json_text(json, "ended", text->stopped ? "stop" : "length");
        yoke_json_close(json, '}');
    }
    free(added);
    free(prompt);
    return status;
}

static yoke_status write_json(texts_run *run) {
    yoke_json json;
    size_t added = 0;
    yoke_status status = YOKE_OK;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, "weights", run->flags->trained.weights);
    yoke_json_text(&json, "model", run->of->info.model);
    yoke_json_boolean(&json, "keeps_keys_and_values", run->info.keeps);
    if (!run->info.keeps) yoke_json_text(&json, "reason", run->info.reason);
    yoke_json_open(&json, "texts", '[');
    for (size_t i = 0; i < run->count && status == YOKE_OK; i++) {
        status = write_text(run, &json, &run->texts[i]);
        added += run->texts[i].count;
    }
    yoke_json_close(&json, ']');
    yoke_json_real(&json, "tokens_per_second", (double)added / run->seconds);
    yoke_json_close(&json, '}');
    if (status == YOKE_OK) return cli_print_json(&json, stdout);
    yoke_json_end(&json);
    return status;
}

yoke_status generate_texts(const generate_flags *flags, trained *of) {
    texts_run run = {.flags = flags, .of = of};
    yoke_status status = open_all(&run);
    if (status == YOKE_OK) status = generate_all(&run);
    if (status == YOKE_OK && flags->json) status = write_json(&run);
    yoke_generator_destroy(run.generator);
    for (size_t i = 0; i < run.count; i++) {
        free(run.texts[i].prompt_tokens);
        free(run.texts[i].tokens);
    }
    free(run.texts);
    free(run.file);
    free(run.outputs);
    vocabulary_close(&run.words);
    return status;
}
