/* SPDX-License-Identifier: Apache-2.0 */
/* From texts to the tokens of weights, and back. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/generate.h"

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

static bool read_bytes(vocabulary *v, const yoke_weights_info *info) {
    bool pairs = info->dataset != NULL && strcmp(info->dataset, "pairs") == 0;
    v->reserved = pairs ? GENERATE_RESERVED : 0;
    for (int i = 0; i < GENERATE_BYTES; i++)
        v->tokens[i] = -1;
    bool is_text =
        info->class_names != NULL && info->input.flat && v->classes <= GENERATE_BYTES + v->reserved;
    for (int i = v->reserved; is_text && i < v->classes; i++) {
        is_text = read_byte(info->class_names[i], &v->bytes[i]);
        v->tokens[v->bytes[i]] = i;
    }
    return is_text;
}

yoke_status vocabulary_open(vocabulary *v, const trained *of, const generate_flags *flags) {
    const yoke_weights_info *info = &of->info;
    const char *path = flags->trained.weights;
    *v = (vocabulary){.classes = info->classes, .tokenizer_path = flags->tokenizer};
    bool is_bytes = read_bytes(v, info);
    if (is_bytes && flags->tokenizer != NULL)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "%s: the tokens of these weights are bytes: leave --tokenizer out", path);
    if (is_bytes) return YOKE_OK;
    if (flags->tokenizer != NULL) return yoke_tokenizer_open(&v->tokenizer, flags->tokenizer);
    bool is_text = info->class_names == NULL && info->input.flat && info->classes > 0;
    if (is_text)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "%s does not say what its %d tokens mean: name their tokenizer, "
                          "--tokenizer tokenizer.json",
                          path, info->classes);
    return cli_refuse(YOKE_ERROR_ARGUMENT,
                      "%s: weights of %s, trained on %s; generate needs a model of text:FILE "
                      "or pairs:FILE",
                      path, info->model != NULL ? info->model : "a model",
                      info->dataset != NULL ? info->dataset : "what the file does not say");
}

void vocabulary_close(vocabulary *v) {
    yoke_tokenizer_close(v->tokenizer);
}

static yoke_status encode_bytes(const vocabulary *v, const char *text, size_t bytes, int *tokens) {
    for (size_t i = 0; i < bytes; i++) {
        tokens[i] = v->tokens[(unsigned char)text[i]];
        if (tokens[i] < 0)
            return cli_refuse(YOKE_ERROR_ARGUMENT,
                              "--prompt: byte %zu, 0x%02x, does not occur in the text that the "
                              "weights were trained on",
                              i, (unsigned)(unsigned char)text[i]);
    }
    return YOKE_OK;
}

static yoke_status encode_words(const vocabulary *v, const char *text, size_t bytes, int *tokens,
                                size_t *count) {
    TRY(yoke_tokenizer_encode(v->tokenizer, text, bytes, tokens, count));
    for (size_t i = 0; i < *count; i++)
        if (tokens[i] >= v->classes)
            return cli_refuse(YOKE_ERROR_ARGUMENT,
                              "--prompt: token %d of %s: the model has 0 to %d; is it the "
                              "tokenizer of these weights?",
                              tokens[i], v->tokenizer_path, v->classes - 1);
    return YOKE_OK;
}

yoke_status vocabulary_encode(const vocabulary *v, const char *text, size_t bytes, int **tokens,
                              size_t *count) {
    *count = bytes;
    *tokens = malloc((bytes + 1) * sizeof **tokens);
    if (*tokens == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %zu tokens", bytes);
    yoke_status status = v->tokenizer != NULL ? encode_words(v, text, bytes, *tokens, count)
                                              : encode_bytes(v, text, bytes, *tokens);
    if (status == YOKE_OK) return YOKE_OK;
    free(*tokens);
    *tokens = NULL;
    return status;
}

yoke_status vocabulary_decode(const vocabulary *v, const int *tokens, size_t count, char **text,
                              size_t *bytes) {
    *bytes = count;
    *text = NULL;
    if (v->tokenizer != NULL)
        TRY(yoke_tokenizer_decode(v->tokenizer, tokens, count, NULL, 0, bytes));
    *text = calloc(*bytes + 1, 1);
    if (*text == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for a text");
    if (v->tokenizer != NULL)
        return yoke_tokenizer_decode(v->tokenizer, tokens, count, *text, *bytes, bytes);
    for (size_t i = 0; i < count; i++)
        (*text)[i] = (char)v->bytes[tokens[i]];
    return YOKE_OK;
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
}

void vocabulary_print(const char *text, size_t bytes, unsigned char *last) {
    for (size_t i = 0; i < bytes; i++) {
        print_byte((unsigned char)text[i], *last);
        *last = (unsigned char)text[i];
    }
    fflush(stdout);
}
