/* How stored pixels become inputs: shift, mirror, cut out, normalise. */
#ifndef YOKE_DECODING_H
#define YOKE_DECODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a row's picture becomes: output (y, x) shows pixel (y + down, x + right), black beyond the
 * edge; then it is mirrored; then the square of yoke_decoding is cut, which may reach over the
 * edge. All 0: the picture as it is. */
typedef struct yoke_placement {
    int32_t down, right, cut_top, cut_left;
    bool flip;
} yoke_placement;

/* What the pictures of a batch have in common: value = (pixel / 255 - mean) / deviation. Channels
 * past the fourth use the fourth's. */
typedef struct yoke_decoding {
    size_t struct_size;
    float mean[4], deviation[4];
    int cut_side; /* of the square that shows cut_value; 0: none */
    float cut_value[4];
} yoke_decoding;

#ifdef __cplusplus
}
#endif

#endif
