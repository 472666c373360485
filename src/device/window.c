/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over images: where their taps lie, and what names them. Every backend uses it. */
#include <stdio.h>
#include <string.h>

#include "device/device.h"

yoke_taps yoke_taps_down(const yoke_operation *operation) {
    return (yoke_taps){operation->kernel, operation->stride, operation->padding,
                       operation->dilation};
}

yoke_taps yoke_taps_across(const yoke_operation *operation) {
    return operation->across.kernel != 0 ? operation->across : yoke_taps_down(operation);
}

int yoke_taps_side(yoke_taps taps) {
    return (taps.kernel - 1) * taps.dilation + 1;
}

yoke_window yoke_adaptive_window(int place, int outputs, int inputs) {
    int64_t begin = (int64_t)place * inputs, end = begin + inputs;
    return (yoke_window){(int)(begin / outputs), (int)((end + outputs - 1) / outputs)};
}

yoke_window yoke_tap_window(int outputs, int inputs, int stride, int offset) {
    int begin = offset >= 0 ? 0 : (stride - 1 - offset) / stride;
    int end = inputs - 1 - offset < 0 ? 0 : (inputs - 1 - offset) / stride + 1;
    return (yoke_window){begin, end < outputs ? end : outputs};
}

yoke_operation yoke_transposed_convolution(const yoke_operation *transposed) {
    yoke_operation convolution = *transposed;
    convolution.kind = YOKE_OP_CONV2D;
    convolution.input = transposed->output;
    convolution.output = transposed->input;
    convolution.bias = false;
    return convolution;
}

/* Of a square window it says what it said before windows could have other shapes. */
void yoke_convolution_key(const yoke_operation *operation, char key[YOKE_CONVOLUTION_KEY_BYTES]) {
    yoke_dims input = operation->input, output = operation->output;
    yoke_taps down = yoke_taps_down(operation), across = yoke_taps_across(operation);
    bool transposed = operation->kind == YOKE_OP_CONV_TRANSPOSE2D;
    char size[32] = "", dilation[32] = "", wide[64] = "";
    if (transposed) snprintf(size, sizeof size, "x%dx%d", output.height, output.width);
    if (down.dilation > 1) snprintf(dilation, sizeof dilation, " dilation %d", down.dilation);
    if (memcmp(&down, &across, sizeof down) != 0)
        snprintf(wide, sizeof wide, " across %d/%d pad %d dilation %d", across.kernel,
                 across.stride, across.padding, across.dilation);
    snprintf(key, YOKE_CONVOLUTION_KEY_BYTES,
             "%s %dx%dx%d to %d%s, kernel %d/%d pad %d groups %d%s%s",
             transposed ? "conv transposed" : "conv", input.channels, input.height, input.width,
             output.channels, size, down.kernel, down.stride, down.padding, operation->groups,
             dilation, wide);
}
