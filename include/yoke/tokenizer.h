/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Byte-level BPE, GPT-2's tokenizer (Radford et al. 2019; Sennrich et al. 2016): texts become
 * tokens and back, as Hugging Face's `tokenizers` does it with the same file. Every byte is part of
 * some token, so the tokens of any bytes, UTF-8 or not, give the same bytes again.
 */
#ifndef YOKE_TOKENIZER_H
#define YOKE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A vocabulary with its merges. Immutable: threads may share it. */
typedef struct yoke_tokenizer yoke_tokenizer;

/** Reads a tokenizer: a tokenizer.json of Hugging Face's, a vocab.json with a merges.txt beside it,
 * or a folder with either. Of a tokenizer.json the model must be BPE, the pre-tokenizer ByteLevel
 * with GPT-2's pattern; what changes texts or tokens beyond that is refused by name. Of a
 * vocab.json
 * "<|endoftext|>" is a special token.
 *
 * @param[out] tokenizer  Close it with yoke_tokenizer_close. NULL on failure.
 * @param path            The file or folder.
 * @return MISSING: there is no such file. DATA: it is no such tokenizer; the text says where. IO.
 */
YOKE_API yoke_status yoke_tokenizer_open(yoke_tokenizer **tokenizer, const char *path);

/** Closes a tokenizer.
 *
 * @param tokenizer  May be NULL.
 */
YOKE_API void yoke_tokenizer_close(yoke_tokenizer *tokenizer);

/** The number of ids.
 *
 * @param tokenizer  The tokenizer.
 * @return The largest id and 1.
 */
YOKE_API int yoke_tokenizer_count(const yoke_tokenizer *tokenizer);

/** The tokens of a text. Special tokens in it count as such: "<|endoftext|>" becomes one token.
 * Words are GPT-2's, by the Unicode of the PCRE2 library; bytes that are not UTF-8 are words of
 * their own.
 *
 * @param tokenizer    The tokenizer.
 * @param text         [bytes] Any bytes.
 * @param bytes        Of the text.
 * @param[out] tokens  Room for bytes + 1 of them.
 * @param[out] count   How many there are.
 * @return DATA: the vocabulary has no token for a byte. ARGUMENT: this build has no PCRE2.
 */
YOKE_API yoke_status yoke_tokenizer_encode(const yoke_tokenizer *tokenizer, const char *text,
                                           size_t bytes, int *tokens, size_t *count);

/** The text of tokens: their bytes, one behind the other. A token may end inside a character.
 *
 * @param tokenizer   The tokenizer.
 * @param tokens      [count]
 * @param count       Of the tokens.
 * @param[out] text   Their bytes, not ended by a NUL; NULL: only count them.
 * @param room        Bytes of `text`.
 * @param[out] bytes  How many there are.
 * @return ARGUMENT: there is no such token, or more bytes than room.
 */
YOKE_API yoke_status yoke_tokenizer_decode(const yoke_tokenizer *tokenizer, const int *tokens,
                                           size_t count, char *text, size_t room, size_t *bytes);

/** The id of a special (an added) token.
 *
 * @param tokenizer  The tokenizer.
 * @param text       As "<|endoftext|>".
 * @return -1: there is none.
 */
YOKE_API int yoke_tokenizer_special(const yoke_tokenizer *tokenizer, const char *text);

#ifdef __cplusplus
}
#endif

#endif
