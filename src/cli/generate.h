/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of yoke generate share: its options, and the vocabulary of the weights. */
#ifndef CLI_GENERATE_H
#define CLI_GENERATE_H

#include "cli/cli.h"
#include "cli/trained.h"

typedef struct generate_flags {
    trained_flags trained;
    text_list prompts;
    const char *prompts_file, *tokenizer, *stop;
    int length, rows;
    double temperature, top_p; /* temperature < 0: the default of the weights' kind */
    int top_k;
    uint64_t seed;
    bool json;
} generate_flags;

#define GENERATE_BYTES 256
#define GENERATE_RESERVED 3 /* tokens of pairs:FILE before those of bytes: padding, begin, end */

/* What tokens mean: bytes, as of text:FILE and pairs:FILE, or those of a tokenizer. */
typedef struct vocabulary {
    yoke_tokenizer *tokenizer; /* NULL: bytes */
    const char *tokenizer_path;
    int classes, reserved;                                   /* reserved: no bytes */
    unsigned char bytes[GENERATE_BYTES + GENERATE_RESERVED]; /* [classes] of each token */
    int tokens[GENERATE_BYTES]; /* [byte]; -1: not in the text of the training */
} vocabulary;

/* ARGUMENT: the weights are of no text, or a tokenizer is missing or one too many. */
yoke_status vocabulary_open(vocabulary *v, const trained *of, const generate_flags *flags);
void vocabulary_close(vocabulary *v);
/* The tokens of a text; the caller frees them. ARGUMENT: the model has no such token. */
yoke_status vocabulary_encode(const vocabulary *v, const char *text, size_t bytes, int **tokens,
                              size_t *count);
/* The text of tokens, ended by a NUL; the caller frees it. */
yoke_status vocabulary_decode(const vocabulary *v, const int *tokens, size_t count, char **text,
                              size_t *bytes);
/* Prints a part of a text, whose last byte so far is *last; controls must not steer a terminal. */
void vocabulary_print(const char *text, size_t bytes, unsigned char *last);

/* Continue texts; write the target of a source. */
yoke_status generate_texts(const generate_flags *flags, trained *of);
yoke_status generate_target(const generate_flags *flags, trained *of);

#endif
