/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and names in texts. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the whole string as one number in [low, high]; false when it is anything else. */
bool yoke_text_integer(const char *text, int64_t low, int64_t high, int64_t *value);
bool yoke_text_real(const char *text, double low, double high, double *value);

/* Writes the fewest digits that read back as the same number, with a point in every locale; returns
 * buffer. 32 bytes are enough. */
const char *yoke_text_of_real(double value, char *buffer, size_t size);

/* The name closest to `word` by edit distance, NULL when none is close. names[count]. */
const char *yoke_text_nearest(const char *word, const char *const *names, size_t count);

/* Length of the UTF-8 sequence at the begin of `text`, which is not empty; 0 when the bytes are not
 * UTF-8 (Unicode 15, table 3-7). */
size_t yoke_text_utf8_bytes(const char *text);

/* The code point of the first character of a text, which has so many bytes. */
uint32_t yoke_text_code(const char *text, size_t bytes);

/* Whether a character steers a terminal or turns a line around: control characters, line ends and
 * Unicode's Bidi_Control. */
bool yoke_text_steers(uint32_t code);

/* Replaces each of them by '?'. Bytes that are not UTF-8 stay. */
void yoke_text_make_printable(char *text);

/* Appends to a text that grows and ends with a NUL, from NULL, 0 and 0. False: there is no memory,
 * and the text is as it was. yoke_free frees it. */
bool yoke_text_append(char **text, size_t *length, size_t *capacity, const char *bytes,
                      size_t count);

/* Writes "1.5 GiB"; returns buffer. */
const char *yoke_text_bytes(double bytes, char *buffer, size_t size);

#define YOKE_NUMBER_BYTES 32
/* All return `text`. decimal: rounded, without closing zeros. number: three significant digits, as
 * people read them ("0.0123", "41.3", "12345"). scientific: likewise, below 0.001 and from a
 * million as "1.23e-7". A value that is not finite gives "-". */
const char *yoke_decimal(double value, int decimals, char text[YOKE_NUMBER_BYTES]);
const char *yoke_number(double value, char text[YOKE_NUMBER_BYTES]);
const char *yoke_scientific(double value, char text[YOKE_NUMBER_BYTES]);

#endif
