/* The float64 reference of layers of sequences. */
#include "model/float64.h"

/* An image [channels, pixels] becomes [pixels, channels]. */
void yoke_float64_sequence(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t channels = (size_t)layer->shape.channels, pixels = (size_t)layer->shape.height;
    for (size_t i = 0; i < (size_t)r->rows * channels * pixels; i++) {
        size_t pixel = i % pixels, channel = i / pixels % channels, row = i / pixels / channels;
        size_t at = (row * pixels + pixel) * channels + channel;
        if (backward)
            r->gradients[layer->inputs[0]][i] += r->gradients[layer->output][at];
        else
            r->values[layer->output][at] = r->values[layer->inputs[0]][i];
    }
}
