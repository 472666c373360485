/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Continues texts of tokens, token after token, with a model that looks back only, as gpt2 does: a
 * generator keeps the keys and values of earlier positions and reads each token once.
 *
 * A generator holds `rows` texts, which it continues side by side. Their lengths may differ.
 *
 * @code
 * yoke_generator *generator;
 * yoke_generator_options options = YOKE_GENERATOR_OPTIONS_INIT;
 * yoke_generator_create(&generator, model, devices, &options);
 * yoke_weights_load(yoke_generator_engine(generator), model, "gpt2.safetensors");
 * yoke_generator_begin(generator, 0, prompt, length);
 * for (int i = 0; i < 100; i++) yoke_generator_next(generator, NULL, &tokens[i]);
 * yoke_generator_destroy(generator);
 * @endcode
 */
#ifndef YOKE_GENERATOR_H
#define YOKE_GENERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/data_parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A number of texts that a model continues. */
typedef struct yoke_generator yoke_generator;

/** How a generator computes. */
typedef struct yoke_generator_options {
    size_t struct_size;       /**< sizeof(yoke_generator_options). */
    int rows;                 /**< Texts at a time, which the devices share; 0: 1. */
    yoke_precision precision; /**< As yoke_data_parallel_options.precision. */
    yoke_algorithm algorithm; /**< As yoke_data_parallel_options.algorithm. */
    /** A text that fills the model's context loses so many of its first tokens, and the model reads
     * the rest again; below the context. 0: half of the context. 1: the model always sees as much
     * as it can, and reads it again for every token. */
    int drop;
    /** Tokens of a prompt that are read at a time; 0: 32. */
    int chunk;
    /** Keep nothing: read the whole text for every token. Any model with one row of tokens and an
     * output for each of them can do this. */
    bool whole;
    const char *algorithm_cache; /**< As yoke_data_parallel_options.algorithm_cache. */
    bool replace_broken_cache;   /**< As yoke_data_parallel_options.replace_broken_cache. */
    double measure_seconds;      /**< As yoke_data_parallel_options.measure_seconds. */
} yoke_generator_options;

/** One text, in float32. */
#define YOKE_GENERATOR_OPTIONS_INIT                                                                \
    {                                                                                              \
        sizeof(yoke_generator_options), 0, YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED, 0, 0, false,     \
            NULL, false, 0                                                                         \
    }

/** Makes a generator. Where a layer of the model or the devices cannot continue a text, the
 * generator reads whole texts, and yoke_generator_describe says why.
 *
 * @param[out] generator  Destroy it with yoke_generator_destroy. NULL on failure.
 * @param model           Finished; it reads one row of tokens, and its output is a sequence with
 *                        the outputs of all classes, which are the tokens, at each position. It
 *                        must outlive the generator. No position may depend on a later one: with
 *                        `whole`, or where the generator reads whole texts, that is not checked.
 * @param devices         They must outlive the generator.
 * @param options         NULL: YOKE_GENERATOR_OPTIONS_INIT.
 * @return ARGUMENT: the model is no such model, or an option is wrong. Otherwise as
 *         yoke_data_parallel_create.
 */
YOKE_API yoke_status yoke_generator_create(yoke_generator **generator, const yoke_model *model,
                                           yoke_devices *devices,
                                           const yoke_generator_options *options);

/** Destroys a generator and its engine.
 *
 * @param generator  May be NULL.
 */
YOKE_API void yoke_generator_destroy(yoke_generator *generator);

/** The engine that computes, for its weights: yoke_weights_load and yoke_data_parallel_copy_weights
 * write them, from a file or from an engine that trains the same model. After either begin every
 * text again: keys and values are those of the weights before.
 *
 * @param generator  The generator.
 * @return Borrowed; it only predicts.
 */
YOKE_API yoke_data_parallel *yoke_generator_engine(yoke_generator *generator);

/** What a generator is. */
typedef struct yoke_generator_info {
    size_t struct_size; /**< sizeof(yoke_generator_info). */
    int rows;           /**< Texts. */
    int context;        /**< Tokens that the model sees at most. */
    int classes;        /**< Tokens of the vocabulary. */
    bool keeps;         /**< It keeps keys and values, and reads each token once. */
    const char *reason; /**< Why it keeps none, one line; NULL: it does. Borrowed. */
    size_t kept_bytes;  /**< Of all keys and values, on all devices. */
} yoke_generator_info;

/** All zero but the size. */
#define YOKE_GENERATOR_INFO_INIT                                                                   \
    { sizeof(yoke_generator_info), 0, 0, 0, false, NULL, 0 }

/** Describes a generator.
 *
 * @param generator  The generator.
 * @param[out] info  Set struct_size first.
 * @return ARGUMENT: a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_generator_describe(const yoke_generator *generator,
                                             yoke_generator_info *info);

/** Begins a text anew.
 *
 * @param generator  The generator.
 * @param row        0 to rows - 1.
 * @param tokens     [count] The text so far, copied. Of one that is longer than the context the
 *                   last tokens count.
 * @param count      At least 1.
 * @return ARGUMENT: there is no such row, or a token is none of the model's.
 */
YOKE_API yoke_status yoke_generator_begin(yoke_generator *generator, int row, const int *tokens,
                                          size_t count);

/** Appends a token to a text. A text that fills the context loses its first ones
 * (yoke_generator_options.drop).
 *
 * @param generator  The generator.
 * @param row        0 to rows - 1; it has begun.
 * @param token      0 to classes - 1.
 * @return ARGUMENT: there is no such row or token, or the row has not begun.
 */
YOKE_API yoke_status yoke_generator_append(yoke_generator *generator, int row, int token);

/** Reads what it has not read of every text. A row that has not begun counts as one token 0.
 *
 * @param generator     The generator.
 * @param[out] outputs  [rows, classes] The model's output behind the last token of each text;
 *                      NULL: not wanted.
 * @return As yoke_data_parallel_forward.
 */
YOKE_API yoke_status yoke_generator_read(yoke_generator *generator, float *outputs);

/** How the next token is drawn. The order is that of transformers' generate: repetition has no
 * penalty, then temperature, top_k, top_p. */
typedef struct yoke_token_sampling {
    size_t struct_size; /**< sizeof(yoke_token_sampling). */
    double temperature; /**< Divides the outputs; 0: the likeliest token, of several the first. */
    int top_k;          /**< Only the top_k likeliest, and those that are as likely as the last of
                             them; 0: all. */
    /** Only the likeliest tokens whose shares of the softmax (of those that top_k leaves) add up to
     * at least top_p, at least one; 0 and 1: all. As transformers' TopPLogitsWarper: tokens in
     * ascending order drop out while their shares add up to at most 1 - top_p. Of equally likely
     * ones the later drops out first. */
    double top_p;
    uint64_t seed; /**< The same seed, the same tokens. */
} yoke_token_sampling;

/** The likeliest token. */
#define YOKE_TOKEN_SAMPLING_INIT                                                                   \
    { sizeof(yoke_token_sampling), 0, 0, 0, 0 }

/** Draws one token from outputs. Row and index are part of the random number's key: a text is the
 * same whatever other texts a generator has beside it.
 *
 * @param outputs     [classes] The model's output; none is NaN.
 * @param classes     At least 1.
 * @param sampling    NULL: YOKE_TOKEN_SAMPLING_INIT.
 * @param row         Which text.
 * @param index       Which token of it.
 * @param[out] token  The token.
 * @return ARGUMENT: an option is out of its range. NUMERIC: an output is NaN or all are -inf.
 *         MEMORY.
 */
YOKE_API yoke_status yoke_sample_token(const float *outputs, int classes,
                                       const yoke_token_sampling *sampling, int row, uint64_t index,
                                       int *token);

/** Reads, draws a token for every text and appends it.
 *
 * @param generator    The generator.
 * @param sampling     NULL: YOKE_TOKEN_SAMPLING_INIT.
 * @param[out] tokens  [rows]
 * @return As yoke_generator_read and yoke_sample_token.
 */
YOKE_API yoke_status yoke_generator_next(yoke_generator *generator,
                                         const yoke_token_sampling *sampling, int *tokens);

#ifdef __cplusplus
}
#endif

#endif
