/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Arrays as DLPack's tensors, and back, without a copy. Header only, and there only where the
 * program includes DLPack's own header, version 0.6 or later, before this one or yoke.h:
 *
 *     #include <dlpack/dlpack.h>
 *     #include <yoke/yoke.h>
 */
#if defined(DLPACK_DLPACK_H_) && !defined(YOKE_DLPACK_H)
#define YOKE_DLPACK_H

#include <stddef.h>
#include <stdint.h>

#include "yoke/array.h"
#include "yoke/element.h"
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The types that arrays and tensors share.
 *
 * @param index         Counted from 0.
 * @param[out] element  The array's word.
 * @param[out] type     The tensor's, of one lane.
 * @return 0 past the last one.
 */
static inline int yoke_dlpack_type(int index, yoke_element *element, DLDataType *type) {
    static const struct {
        yoke_element element;
        uint8_t code, bits;
    } types[] = {{YOKE_ELEMENT_FLOAT32, (uint8_t)kDLFloat, 32},
                 {YOKE_ELEMENT_FLOAT64, (uint8_t)kDLFloat, 64},
                 {YOKE_ELEMENT_BFLOAT16, (uint8_t)kDLBfloat, 16},
                 {YOKE_ELEMENT_INT32, (uint8_t)kDLInt, 32},
                 {YOKE_ELEMENT_INT64, (uint8_t)kDLInt, 64},
                 {YOKE_ELEMENT_UINT8, (uint8_t)kDLUInt, 8}};
    if (index < 0 || index >= (int)(sizeof types / sizeof types[0])) return 0;
    *element = types[index].element;
    type->code = types[index].code;
    type->bits = types[index].bits;
    type->lanes = 1;
    return 1;
}

/** Checks a tensor's shape and strides. */
static inline yoke_status yoke_dlpack_check_shape(const DLTensor *tensor) {
    int64_t elements = 1;
    int empty = 0;
    if (tensor->ndim < 1 || tensor->ndim > YOKE_ARRAY_DIMENSIONS)
        return yoke_error_raise(YOKE_ERROR_ARGUMENT,
                                "a tensor of %d dimensions: an array has 1 to %d",
                                (int)tensor->ndim, YOKE_ARRAY_DIMENSIONS);
    if (tensor->shape == NULL)
        return yoke_error_raise(YOKE_ERROR_ARGUMENT, "a tensor whose shape is NULL");
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0)
            return yoke_error_raise(YOKE_ERROR_ARGUMENT, "dimension %d of a tensor is %lld", i,
                                    (long long)tensor->shape[i]);
        empty |= tensor->shape[i] == 0;
    }
    for (int i = tensor->ndim - 1; i >= 0 && !empty; i--) {
        if (tensor->strides != NULL && tensor->shape[i] > 1 && tensor->strides[i] != elements)
            return yoke_error_raise(
                YOKE_ERROR_ARGUMENT,
                "a tensor with a stride of %lld in dimension %d: an array has no "
                "gaps and rows in order, so %lld; copy it first",
                (long long)tensor->strides[i], i, (long long)elements);
        if (tensor->shape[i] > INT64_MAX / 8 / elements)
            return yoke_error_raise(YOKE_ERROR_ARGUMENT, "a tensor of too many elements");
        elements *= tensor->shape[i];
    }
    if (!empty && tensor->data == NULL)
        return yoke_error_raise(YOKE_ERROR_ARGUMENT, "a tensor whose data is NULL");
    return YOKE_OK;
}

/** Makes a view of a tensor's memory, which stays the tensor's. Its stream is NULL; set it where
 * work that is queued there writes the tensor.
 *
 * @param[out] array  The view.
 * @param tensor      In row-major order without gaps, on the host or a GPU.
 * @return ARGUMENT: the text says what no array has: a type, a place, strides or dimensions.
 */
static inline yoke_status yoke_array_from_dlpack(yoke_array *array, const DLTensor *tensor) {
    yoke_element element;
    DLDataType type;
    int known = 0, index = 0;
    if (array == NULL || tensor == NULL)
        return yoke_error_raise(YOKE_ERROR_ARGUMENT, "%s is NULL",
                                array == NULL ? "array" : "tensor");
    while (!known && yoke_dlpack_type(index++, &element, &type))
        known = type.code == tensor->dtype.code && type.bits == tensor->dtype.bits;
    if (!known || tensor->dtype.lanes != 1)
        return yoke_error_raise(YOKE_ERROR_ARGUMENT,
                                "a tensor of type code %d with %d bits in %d lanes: arrays have "
                                "float32, float64, bfloat16, int32, int64 or uint8",
                                (int)tensor->dtype.code, (int)tensor->dtype.bits,
                                (int)tensor->dtype.lanes);
    int on_host = tensor->device.device_type == kDLCPU || tensor->device.device_type == kDLCUDAHost;
    if (!on_host && tensor->device.device_type != kDLCUDA)
        return yoke_error_raise(YOKE_ERROR_ARGUMENT,
                                "a tensor on a device of type %d: arrays lie on the host (1, 3) or "
                                "a GPU by CUDA (2)",
                                (int)tensor->device.device_type);
    yoke_status status = yoke_dlpack_check_shape(tensor);
    if (status != YOKE_OK) return status;
    array->data = tensor->data != NULL ? (char *)tensor->data + tensor->byte_offset : NULL;
    array->element = element;
    array->place = on_host ? YOKE_ARRAY_HOST : YOKE_ARRAY_CUDA;
    array->device = on_host ? 0 : (int)tensor->device.device_id;
    array->ndim = (int)tensor->ndim;
    for (int i = 0; i < YOKE_ARRAY_DIMENSIONS; i++)
        array->shape[i] = i < tensor->ndim ? tensor->shape[i] : 0;
    array->stream = NULL;
    return YOKE_OK;
}

/** Makes a tensor of an array's memory. It borrows the array's shape: the array must outlive it.
 *
 * @param[out] tensor   The tensor.
 * @param array         The array.
 * @param[out] strides  [YOKE_ARRAY_DIMENSIONS], which the tensor borrows, too; NULL: the tensor has
 *                      no strides, as DLPack allows it below version 1.2.
 * @return ARGUMENT: a pointer is NULL, or the array has no such number of dimensions, or element.
 */
static inline yoke_status yoke_array_to_dlpack(DLTensor *tensor, const yoke_array *array,
                                               int64_t *strides) {
    yoke_element element;
    DLDataType type;
    int known = 0, index = 0;
    int64_t elements = 1;
    if (tensor == NULL || array == NULL)
        return yoke_error_raise(YOKE_ERROR_ARGUMENT, "%s is NULL",
                                tensor == NULL ? "tensor" : "array");
    if (array->ndim < 1 || array->ndim > YOKE_ARRAY_DIMENSIONS)
        return yoke_error_raise(YOKE_ERROR_ARGUMENT, "an array of %d dimensions: it has 1 to %d",
                                array->ndim, YOKE_ARRAY_DIMENSIONS);
    while (!known && yoke_dlpack_type(index++, &element, &type))
        known = element == array->element;
    if (!known)
        return yoke_error_raise(YOKE_ERROR_ARGUMENT, "an array of unknown elements, %d",
                                (int)array->element);
    for (int i = array->ndim - 1; strides != NULL && i >= 0; i--) {
        strides[i] = elements;
        elements *= array->shape[i] > 0 ? array->shape[i] : 1;
    }
    tensor->data = array->data;
    tensor->device.device_type = array->place == YOKE_ARRAY_CUDA ? kDLCUDA : kDLCPU;
    tensor->device.device_id = array->place == YOKE_ARRAY_CUDA ? array->device : 0;
    tensor->ndim = array->ndim;
    tensor->dtype = type;
    tensor->shape = (int64_t *)(uintptr_t)array->shape; /* nobody writes there */
    tensor->strides = strides;
    tensor->byte_offset = 0;
    return YOKE_OK;
}

#ifdef __cplusplus
}
#endif

#endif
