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

/* Writes "1.5 GiB"; returns buffer. */
const char *yoke_text_bytes(double bytes, char *buffer, size_t size);

#endif
