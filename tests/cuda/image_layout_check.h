/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding images into the layout of a convolution, "+decode", beside decoding them to float32. */
#ifndef IMAGE_LAYOUT_CHECK_H
#define IMAGE_LAYOUT_CHECK_H

#include "device/backend.h"
#include "support/engine_check.h"

/* What the device writes for `request`, freed by the caller; bytes that it leaves out are 0xff. */
static inline uint8_t *check_decoded(yoke_device *device, yoke_decode_request request) {
    size_t bytes = request.layout->bytes;
    uint8_t *values = malloc(bytes);
    assert_non_null(values);
    memset(values, 0xff, bytes);
    request.inputs = device_copy_of(device, values, bytes);
    free(values);
    EXPECT_OK(yoke_device_decode(device, &request));
    values = device_values(device, request.inputs, bytes);
    yoke_device_free(device, request.inputs);
    return values;
}

/* `request` has been decoded to float32: in every layout of a convolution, decoding gives the bits
 * of that float32 laid out. */
static inline void check_image_layouts(yoke_device *device, const yoke_decode_request *request) {
    static const char *const stems[] = {"no candidate", "4 channels", "8 channels"};
    const yoke_operation reader = {.kind = YOKE_OP_CONV2D, .input = request->image, .groups = 1};
    yoke_plan_request plan = {.operation = &reader,
                              .rows = request->rows,
                              .precision = YOKE_BFLOAT16,
                              .algorithm = YOKE_ALGORITHM_DIRECT};
    unsigned own = device->variants;
    for (int i = 0; i < 3; i++) {
        yoke_layout layout;
        device->variants = YOKE_VARIANT_DECODE;
        EXPECT_OK(yoke_algorithms_create(&plan.algorithms));
        yoke_algorithms_prefer(plan.algorithms, stems[i]);
        EXPECT_OK(yoke_device_image_layout(device, &plan, &layout));
        yoke_algorithms_destroy(plan.algorithms);
        assert_true(layout.bytes > 0);
        yoke_decode_request direct = *request, after = *request;
        direct.layout = after.layout = &layout;
        after.pixels = NULL;
        after.decoded = request->inputs;
        uint8_t *written = check_decoded(device, direct), *laid_out = check_decoded(device, after);
        assert_memory_equal(written, laid_out, layout.bytes);
        free(written);
        free(laid_out);
    }
    device->variants = own;
}

#endif
