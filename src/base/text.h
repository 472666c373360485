/* Words: strict numbers, nearest names. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The whole string is one number in range, or false. */
bool yoke_text_integer(const char *text, int64_t low, int64_t high, int64_t *value);
bool yoke_text_real(const char *text, double low, double high, double *value);

/* The name closest to `word` by edit distance, NULL when none is near. names[count]. */
const char *yoke_text_nearest(const char *word, const char *const *names, size_t count);

/* "1.5 GiB". Returns buffer. */
const char *yoke_text_bytes(double bytes, char *buffer, size_t size);

#endif
