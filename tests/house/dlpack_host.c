/* SPDX-License-Identifier: Apache-2.0 */
/* yoke/dlpack.h in a program of C99 and of C++11 (dlpack.py): views keep what a tensor says, and
 * what no array has is refused in words. The declarations are those of DLPack's header, the parts
 * that views read. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLVulkan = 7 } DLDeviceType;
typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4 } DLDataTypeCode;
typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
#endif

#include <yoke/yoke.h>

#include <yoke/dlpack.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (condition) break;                                                                      \
        printf("line %d: %s: %s\n", __LINE__, #condition, yoke_last_error());                      \
        exit(1);                                                                                   \
    } while (0)

static float values[24];
static int64_t shape[7] = {2, 3, 4, 1, 1, 1, 1}, strides[7];

/* [2, 3, 4] of float32 on the host. */
static DLTensor usual(void) {
    DLTensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.data = values;
    tensor.device.device_type = kDLCPU;
    tensor.ndim = 3;
    tensor.dtype.code = (uint8_t)kDLFloat;
    tensor.dtype.bits = 32;
    tensor.dtype.lanes = 1;
    tensor.shape = shape;
    return tensor;
}

static void refuse(const DLTensor *tensor, const char *words) {
    yoke_array array;
    EXPECT(yoke_array_from_dlpack(&array, tensor) == YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) != NULL) return;
    printf("\"%s\" has no \"%s\"\n", yoke_last_error(), words);
    exit(1);
}

static void set_strides(int64_t first, int64_t second, int64_t third) {
    strides[0] = first;
    strides[1] = second;
    strides[2] = third;
}

static void views_keep_what_tensors_say(void) {
    yoke_array array;
    DLTensor tensor = usual();
    tensor.byte_offset = 4;
    EXPECT(yoke_array_from_dlpack(&array, &tensor) == YOKE_OK);
    EXPECT(array.data == (void *)(values + 1) && array.element == YOKE_ELEMENT_FLOAT32);
    EXPECT(array.place == YOKE_ARRAY_HOST && array.device == 0 && array.stream == NULL);
    EXPECT(array.ndim == 3 && array.shape[0] == 2 && array.shape[1] == 3 && array.shape[2] == 4);
    tensor.device.device_type = kDLCUDA;
    tensor.device.device_id = 5;
    EXPECT(yoke_array_from_dlpack(&array, &tensor) == YOKE_OK);
    EXPECT(array.place == YOKE_ARRAY_CUDA && array.device == 5);
    tensor.device.device_type = kDLCUDAHost;
    EXPECT(yoke_array_from_dlpack(&array, &tensor) == YOKE_OK);
    EXPECT(array.place == YOKE_ARRAY_HOST && array.device == 0);
    tensor.strides = strides;
    set_strides(12, 4, 1);
    EXPECT(yoke_array_from_dlpack(&array, &tensor) == YOKE_OK);
    int64_t one[3] = {1, 3, 4}, none[3] = {2, 0, 4};
    set_strides(77, 4, 1); /* of a dimension of 1 it means nothing */
    tensor.shape = one;
    EXPECT(yoke_array_from_dlpack(&array, &tensor) == YOKE_OK);
    tensor.shape = none; /* nor where there is no element */
    tensor.data = NULL;
    EXPECT(yoke_array_from_dlpack(&array, &tensor) == YOKE_OK);
    EXPECT(array.data == NULL && array.shape[1] == 0);
}

static void what_no_array_has_is_refused(void) {
    DLTensor tensor = usual();
    tensor.dtype.lanes = 4;
    refuse(&tensor, "32 bits in 4 lanes");
    tensor = usual();
    tensor.dtype.bits = 16;
    refuse(&tensor, "type code 2 with 16 bits");
    tensor = usual();
    tensor.device.device_type = (DLDeviceType)7;
    refuse(&tensor, "a device of type 7");
    tensor = usual();
    tensor.ndim = 7;
    refuse(&tensor, "7 dimensions: an array has 1 to 6");
    tensor.ndim = 0;
    refuse(&tensor, "0 dimensions");
    tensor = usual();
    tensor.strides = strides;
    set_strides(1, 2, 6); /* transposed */
    refuse(&tensor, "a stride of 6 in dimension 2");
    set_strides(24, 4, 1); /* every other row */
    refuse(&tensor, "a stride of 24 in dimension 0: an array has no gaps and rows in order, so 12");
    tensor = usual();
    tensor.data = NULL;
    refuse(&tensor, "data is NULL");
    tensor = usual();
    tensor.shape = NULL;
    refuse(&tensor, "shape is NULL");
    int64_t negative[3] = {2, -3, 4}, huge[3] = {INT64_MAX / 2, 4, 4};
    tensor.shape = negative;
    refuse(&tensor, "dimension 1 of a tensor is -3");
    tensor.shape = huge;
    refuse(&tensor, "too many elements");
    refuse(NULL, "tensor is NULL");
    tensor = usual();
    EXPECT(yoke_array_from_dlpack(NULL, &tensor) == YOKE_ERROR_ARGUMENT);
}

static void every_element_goes_there_and_back(void) {
    for (int element = YOKE_ELEMENT_FLOAT32; element <= YOKE_ELEMENT_UINT8; element++) {
        yoke_array array = yoke_array_of_numbers(values, (yoke_element)element, 6), back;
        DLTensor tensor;
        int64_t own[YOKE_ARRAY_DIMENSIONS];
        array.place = YOKE_ARRAY_CUDA;
        array.device = 3;
        array.ndim = 2;
        array.shape[1] = 4;
        EXPECT(yoke_array_to_dlpack(&tensor, &array, own) == YOKE_OK);
        EXPECT(tensor.strides == own && own[0] == 4 && own[1] == 1);
        EXPECT(tensor.device.device_type == kDLCUDA && tensor.device.device_id == 3);
        EXPECT(yoke_array_from_dlpack(&back, &tensor) == YOKE_OK);
        EXPECT(back.data == array.data && back.element == array.element && back.ndim == 2);
        EXPECT(back.place == array.place && back.device == 3 && back.shape[0] == 6);
        EXPECT(yoke_array_to_dlpack(&tensor, &array, NULL) == YOKE_OK && tensor.strides == NULL);
        array.ndim = 7;
        EXPECT(yoke_array_to_dlpack(&tensor, &array, NULL) == YOKE_ERROR_ARGUMENT);
        array.ndim = 2;
        array.element = (yoke_element)(YOKE_ELEMENT_UINT8 + 1);
        EXPECT(yoke_array_to_dlpack(&tensor, &array, NULL) == YOKE_ERROR_ARGUMENT);
        EXPECT(yoke_array_to_dlpack(NULL, &array, NULL) == YOKE_ERROR_ARGUMENT);
        EXPECT(yoke_array_to_dlpack(&tensor, NULL, NULL) == YOKE_ERROR_ARGUMENT);
    }
}

int main(void) {
    views_keep_what_tensors_say();
    what_no_array_has_is_refused();
    every_element_goes_there_and_back();
    printf("arrays and tensors agree\n");
    return 0;
}
