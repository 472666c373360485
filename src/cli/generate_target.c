/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of pairs of texts: reads a source, and writes its target byte by byte. Each byte costs a
 * forward of the whole model. */
#include <stdlib.h>
#include <string.h>

#include "cli/generate.h"

enum { PADDING, BEGIN, END };

typedef struct target_run {
    const generate_flags *flags;
    trained *of;
    vocabulary words;
    int context;
    float *source, source_length; /* [context] */
    float *target;                /* [context]: begin, and what is written so far */
    float *outputs;               /* [context, classes] */
    int written;                  /* positions of the target in use */
} target_run;

static yoke_status open_all(target_run *run) {
    const generate_flags *flags = run->flags;
    TRY(vocabulary_open(&run->words, run->of, flags));
    if (flags->json || flags->prompts_file != NULL || flags->prompts.count > 1)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "weights of pairs write one target: give one --prompt, without --json "
                          "and --prompts");
    TRY(trained_model(run->of, &flags->trained, 1));
    TRY(trained_build(run->of, &flags->trained, 1, false));
    run->context = run->of->info.input.channels;
    size_t context = (size_t)run->context, classes = (size_t)run->words.classes;
    yoke_shape output = yoke_model_output_shape(run->of->model);
    if (!output.sequence || output.height != run->context)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "%s predicts one class a row, not one at each position",
                          run->of->info.model);
    run->source = calloc(context, sizeof *run->source);
    run->target = calloc(context, sizeof *run->target);
    run->outputs = malloc(context * classes * sizeof *run->outputs);
    if (run->source != NULL && run->target != NULL && run->outputs != NULL) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_MEMORY, "no memory for a context of %d bytes", run->context);
}

static yoke_status read_source(target_run *run) {
    int *tokens = NULL;
    size_t count = 0;
    const char *text = run->flags->prompts.text;
    if (text == NULL)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "weights of pairs write the target of a source: give it, --prompt TEXT");
    TRY(vocabulary_encode(&run->words, text, strlen(text), &tokens, &count));
    bool fits = count <= (size_t)run->context;
    for (size_t i = 0; i < count && fits; i++)
        run->source[i] = (float)tokens[i];
    free(tokens);
    run->source_length = (float)count;
    if (fits) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_ARGUMENT,
                      "--prompt: more than %d bytes, the longest source of these weights",
                      run->context);
}

/* A row for the model: the source with what is written of its target. */
static yoke_batch make_batch(const target_run *run, const float **more_inputs) {
    const yoke_model *model = run->of->model;
    yoke_batch batch = {.struct_size = sizeof batch,
                        .rows = 1,
                        .inputs = run->source,
                        .more_inputs = more_inputs,
                        .more_input_count = yoke_model_input_count(model) - 1};
    for (int k = 1; k <= batch.more_input_count; k++) {
        yoke_value_info input = {.struct_size = sizeof input};
        bool known = yoke_model_describe_input(model, k, &input) == YOKE_OK;
        bool length = known && strcmp(input.name, "source_length") == 0;
        more_inputs[k - 1] = length ? &run->source_length : run->target;
    }
    return batch;
}

/* What lies behind the last byte changes nothing. */
static yoke_status write_target(target_run *run) {
    const generate_flags *flags = run->flags;
    const float *more_inputs[YOKE_INPUTS_LIMIT];
    yoke_batch batch = make_batch(run, more_inputs);
    yoke_token_sampling sampling = {.struct_size = sizeof sampling,
                                    .temperature = flags->temperature < 0 ? 0 : flags->temperature,
                                    .top_k = flags->top_k,
                                    .top_p = flags->top_p,
                                    .seed = flags->seed};
    unsigned char last = 0;
    run->target[run->written++] = BEGIN;
    for (int i = 0; i < flags->length && run->written <= run->context; i++) {
        int token = END;
        TRY(yoke_data_parallel_forward(run->of->parallel, &batch, false, run->outputs));
        const float *outputs =
            run->outputs + (size_t)(run->written - 1) * (size_t)run->words.classes;
        TRY(yoke_sample_token(outputs, run->words.classes, &sampling, 0, (uint64_t)i, &token));
        if (token < run->words.reserved) break;
        char byte = (char)run->words.bytes[token];
        vocabulary_print(&byte, 1, &last);
        if (run->written == run->context) break;
        run->target[run->written++] = (float)token;
    }
    putchar('\n');
    return YOKE_OK;
}

yoke_status generate_target(const generate_flags *flags, trained *of) {
    target_run run = {.flags = flags, .of = of};
    yoke_status status = open_all(&run);
    if (status == YOKE_OK) status = read_source(&run);
    if (status == YOKE_OK) status = write_target(&run);
    free(run.outputs);
    free(run.target);
    free(run.source);
    vocabulary_close(&run.words);
    return status;
}
