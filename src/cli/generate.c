/* SPDX-License-Identifier: Apache-2.0 */
/* yoke generate: continues a text, or writes what a text becomes, with a model of bytes, one byte
 * after the other. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/shared_options.h"
#include "cli/trained.h"

#define BYTES 256
#define DEFAULT_TEMPERATURE 0.8

/* Tokens of pairs:FILE before those of bytes. */
enum { PADDING, BEGIN, END, RESERVED };

typedef struct generate_flags {
    trained_flags trained;
    const char *prompt;
    int length, top;
    double temperature;
    uint64_t seed;
} generate_flags;

#define AT(field) CLI_FIELD(generate_flags, field)

static const cli_option options[] = {
    TRAINED_OPTION_WEIGHTS(AT(trained.weights)),
    {"prompt", "TEXT",
     "the text to continue (a line break), or the source of a pair; its bytes occur in the text of "
     "the training",
     AT(prompt)},
    {"length", "N", "bytes to add (500)", AT(length), 1, 1 << 30},
    {"temperature", "X",
     "divides the outputs: below 1 more likely bytes, 0 the likeliest (0.8; of pairs 0)",
     AT(temperature), 0, 100},
    {"top-k", "K", "draw among the K likeliest bytes; 0: among all (0)", AT(top), 0, BYTES},
    CLI_OPTION_SEED(AT(seed), "the draws: the same seed, the same text"),
    {"devices", "LIST", "auto, cpu or cuda: one device (auto)", AT(trained.devices)},
    CLI_OPTION_THREADS(AT(trained.threads)),
    CLI_OPTION_PRECISION(AT(trained.precision)),
    ALGORITHM_CACHE_OPTION_NO_CACHE(AT(trained.algorithm_cache.no_cache)),
};

const cli_verb generate_verb = {
    .name = "generate",
    .summary = "continue or translate a text with saved weights",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more =
        "The weights are of a model of text: yoke train --model gpt2 --dataset text:FILE --save "
        "FILE;\n"
        "or of pairs of texts: yoke train --model transformer --dataset pairs:FILE --save FILE. "
        "It\n"
        "then reads --prompt as a SOURCE and writes its TARGET.\n"};

typedef struct generation {
    const generate_flags *flags;
    trained trained;
    bool pairs; /* the weights are of pairs:FILE: the prompt is a source, the window its target */
    int classes, context;
    unsigned char bytes[BYTES + RESERVED]; /* [classes] of each token */
    int tokens[BYTES];                     /* [byte]; -1: not in the text of the training */
    float *source;                         /* [context] of a pair */
    float source_length;
    float *window;  /* [context] the last tokens */
    float *outputs; /* [context, classes] */
    int filled;     /* tokens in the window */
} generation;

/* text:FILE names a byte by itself, or as "\\" or "\x0a". */
static bool read_byte(const char *name, unsigned char *byte) {
    unsigned value;
    int end = 0;
    *byte = (unsigned char)name[0];
    if (strlen(name) == 1) return true;
    if (strcmp(name, "\\\\") == 0) return true;
    bool is_code = sscanf(name, "\\x%2x%n", &value, &end) == 1 && name[end] == '\0';
    *byte = (unsigned char)value;
    return is_code;
}

static yoke_status read_vocabulary(generation *run) {
    const yoke_weights_info *info = &run->trained.info;
    run->classes = info->classes;
    run->context = info->input.channels;
    for (int i = 0; i < BYTES; i++)
        run->tokens[i] = -1;
    run->pairs = info->dataset != NULL && strcmp(info->dataset, "pairs") == 0;
    int first = run->pairs ? RESERVED : 0;
    bool is_text = info->class_names != NULL && info->input.flat && run->classes <= BYTES + first;
    for (int i = first; is_text && i < run->classes; i++) {
        is_text = read_byte(info->class_names[i], &run->bytes[i]);
        run->tokens[run->bytes[i]] = i;
    }
    if (is_text) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_ARGUMENT,
                      "%s: weights of %s, trained on %s; generate needs a model of text:FILE "
                      "or pairs:FILE",
                      run->flags->trained.weights, info->model != NULL ? info->model : "a model",
                      info->dataset != NULL ? info->dataset : "what the file does not say");
}

static yoke_status open_all(generation *run) {
    const trained_flags *flags = &run->flags->trained;
    TRY(trained_open(&run->trained, flags));
    TRY(read_vocabulary(run));
    TRY(trained_model(&run->trained, flags, 1));
    TRY(trained_build(&run->trained, flags, 1, false));
    yoke_shape output = yoke_model_output_shape(run->trained.model);
    if (!output.sequence || output.height != run->context)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "%s predicts one class a row, not one at each position: generate needs a "
                          "model of text, as gpt2",
                          run->trained.info.model);
    run->source = calloc((size_t)run->context, sizeof *run->source);
    run->window = calloc((size_t)run->context, sizeof *run->window);
    run->outputs = malloc((size_t)run->context * (size_t)run->classes * sizeof *run->outputs);
    if (run->source != NULL && run->window != NULL && run->outputs != NULL) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_MEMORY, "no memory for a context of %d bytes", run->context);
}

/* A full window loses its first token. */
static void append(generation *run, int token) {
    if (run->filled == run->context) {
        memmove(run->window, run->window + 1, (size_t)(run->context - 1) * sizeof *run->window);
        run->filled--;
    }
    run->window[run->filled++] = (float)token;
}

static yoke_status append_source(generation *run, int token) {
    int length = (int)run->source_length;
    if (length == run->context)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "--prompt: more than %d bytes, the longest source of these weights",
                          run->context);
    run->source[length] = (float)token;
    run->source_length++;
    return YOKE_OK;
}

/* Drawing. */

static int by_value(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* The smallest output that may be drawn. */
static float lowest(const generation *run, const float *outputs) {
    float sorted[BYTES + RESERVED];
    int kept = run->flags->top;
    if (kept == 0 || kept >= run->classes) return -INFINITY;
    memcpy(sorted, outputs, (size_t)run->classes * sizeof *sorted);
    qsort(sorted, (size_t)run->classes, sizeof *sorted, by_value);
    return sorted[kept - 1];
}

/* From softmax(outputs / temperature) of those that may be drawn. */
static int draw(const generation *run, const float *outputs, int index) {
    double shares[BYTES + RESERVED], sum = 0, temperature = run->flags->temperature;
    if (temperature < 0) temperature = run->pairs ? 0 : DEFAULT_TEMPERATURE;
    int best = 0;
    for (int i = 1; i < run->classes; i++)
        if (outputs[i] > outputs[best]) best = i;
    float low = lowest(run, outputs);
    uint32_t words[4];
    if (temperature == 0) return best;
    for (int i = 0; i < run->classes; i++) {
        double above = ((double)outputs[i] - (double)outputs[best]) / temperature;
        shares[i] = outputs[i] >= low ? exp(above) : 0;
        sum += shares[i];
    }
    yoke_random_words(run->flags->seed, YOKE_RANDOM_TEXT, (uint64_t)index, UINT32_MAX, 0, words);
    double rest = (double)yoke_random_unit(words[0]) * sum;
    for (int i = 0; i < run->classes; i++) {
        rest -= shares[i];
        if (rest < 0 && shares[i] > 0) return i;
    }
    return best;
}

/* A stranger's weights must not steer a terminal: there a control character is shown as \\x1b.
 * UTF-8 has 0x80 to 0x9f behind another byte; alone, or behind 0xc2, they are controls. */
static void print_byte(unsigned char byte, unsigned char last) {
    bool control = byte < ' ' ? byte != '\n' && byte != '\t' : byte == 0x7f;
    bool high = byte >= 0x80 && byte < 0xa0 && (last < 0x80 || last == 0xc2);
    if ((control || high) && isatty(STDOUT_FILENO))
        printf("\\x%02x", byte);
    else
        putchar(byte);
    fflush(stdout);
}

/* A row for the model: a text, or a source with what is written of its target. */
static yoke_batch make_batch(const generation *run, const float **more_inputs) {
    const yoke_model *model = run->trained.model;
    yoke_batch batch = {.struct_size = sizeof batch, .rows = 1, .inputs = run->window};
    if (!run->pairs) return batch;
    batch.inputs = run->source;
    batch.more_inputs = more_inputs;
    batch.more_input_count = yoke_model_input_count(model) - 1;
    for (int k = 1; k <= batch.more_input_count; k++) {
        yoke_value_info input = {.struct_size = sizeof input};
        bool known = yoke_model_describe_input(model, k, &input) == YOKE_OK;
        bool length = known && strcmp(input.name, "source_length") == 0;
        more_inputs[k - 1] = length ? &run->source_length : run->window;
    }
    return batch;
}

/* A model of text looks back only: what lies behind the last token changes nothing. */
static yoke_status generate(generation *run) {
    const float *more_inputs[YOKE_INPUTS_LIMIT];
    yoke_batch batch = make_batch(run, more_inputs);
    unsigned char last_byte = 0;
    for (int i = 0; i < run->flags->length; i++) {
        TRY(yoke_data_parallel_forward(run->trained.parallel, &batch, false, run->outputs));
        size_t last = (size_t)(run->filled - 1) * (size_t)run->classes;
        int token = draw(run, run->outputs + last, i);
        if (run->pairs && token < RESERVED) break; /* END */
        print_byte(run->bytes[token], last_byte);
        last_byte = run->bytes[token];
        if (run->pairs && run->filled == run->context) break;
        append(run, token);
    }
    putchar('\n');
    return YOKE_OK;
}

static yoke_status run_all(generation *run) {
    TRY(open_all(run));
    const char *prompt = run->flags->prompt;
    if (prompt == NULL && run->pairs)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "weights of pairs write the target of a source: give it, --prompt TEXT");
    if (prompt == NULL) prompt = "\n";
    for (const char *s = prompt; *s != '\0'; s++) {
        int token = run->tokens[(unsigned char)*s];
        if (token < 0)
            return cli_refuse(YOKE_ERROR_ARGUMENT,
                              "--prompt: byte %d, 0x%02x, does not occur in the text that the "
                              "weights were trained on",
                              (int)(s - prompt), (unsigned)(unsigned char)*s);
        if (run->pairs)
            TRY(append_source(run, token));
        else
            append(run, token);
    }
    if (run->pairs)
        append(run, BEGIN);
    else
        fputs(prompt, stdout);
    return generate(run);
}

int generate_main(int argc, char **argv) {
    generate_flags flags = {
        .trained = {.devices = "auto"}, .prompt = NULL, .length = 500, .temperature = -1};
    generation run = {.flags = &flags};
    int code = cli_parse(&generate_verb, argc, argv, &flags, NULL);
    if (code >= 0) return code;
    if (flags.trained.weights == NULL)
        return cli_usage_error("generate", "generate needs the weights: --weights FILE");
    yoke_status status = run_all(&run);
    code = status == YOKE_OK ? 0 : cli_fail(status);
    free(run.outputs);
    free(run.window);
    free(run.source);
    trained_close(&run.trained);
    return code;
}
