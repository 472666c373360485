/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: chooses the kind of group for a list of devices, and checks the arguments that every
 * kind relies on. */
#include "device/backend.h"

yoke_status yoke_device_group_create(yoke_device_group **group,
                                     const yoke_device_group_request *request) {
    *group = NULL;
    const yoke_device *root = request->devices[0];
    if (root->backend->shares_memory)
        return FAIL(YOKE_ERROR_DEVICE, "%s shares memory with its peers and needs no collectives",
                    root->name);
    if (request->kind == YOKE_COLLECTIVES_COPY) return yoke_copy_group_create(group, request);
    if (root->backend->group != NULL) TRY(root->backend->group(group, request));
    if (*group != NULL) return YOKE_OK;
    if (request->kind == YOKE_COLLECTIVES_NCCL)
        return FAIL(YOKE_ERROR_DEVICE, "%s has no NCCL; choose collectives \"copy\"", root->name);
    return yoke_copy_group_create(group, request);
}

void yoke_device_group_destroy(yoke_device_group *group) {
    if (group != NULL) group->destroy(group);
}

const char *yoke_device_group_name(const yoke_device_group *group) {
    return group->name;
}

void yoke_device_group_register(yoke_device_group *group, float *const *buffers, size_t bytes) {
    if (group->register_buffers != NULL && bytes > 0)
        group->register_buffers(group, buffers, bytes);
}

static yoke_status check_contributors(const yoke_device_group *group, int contributors) {
    if (contributors >= 1 && contributors <= group->count) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "a reduce of %d contributors; the group has 1 to %d",
                contributors, group->count);
}

static yoke_status check_parts(const yoke_device_group *group, const yoke_range *range,
                               size_t line) {
    size_t unit = line * (size_t)group->count;
    if (range->elements % unit == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%zu elements in %d parts: must be a multiple of %zu",
                range->elements, group->count, unit);
}

yoke_status yoke_device_group_reduce(yoke_device_group *group, const yoke_range *range,
                                     int contributors) {
    TRY(check_contributors(group, contributors));
    return range->elements > 0 ? group->reduce(group, range, contributors) : YOKE_OK;
}

yoke_status yoke_device_group_broadcast(yoke_device_group *group, const yoke_range *range) {
    return range->elements > 0 ? group->broadcast(group, range) : YOKE_OK;
}

yoke_status yoke_device_group_reduce_scatter(yoke_device_group *group, const yoke_range *range,
                                             int contributors) {
    TRY(check_contributors(group, contributors));
    TRY(check_parts(group, range, 16));
    return range->elements > 0 ? group->reduce_scatter(group, range, contributors) : YOKE_OK;
}

yoke_status yoke_device_group_all_gather(yoke_device_group *group, const yoke_range *range) {
    if (range->cuts == NULL) TRY(check_parts(group, range, 1));
    return range->elements > 0 ? group->all_gather(group, range) : YOKE_OK;
}

yoke_status yoke_communicator_check(const yoke_device *device) {
    const yoke_backend *backend = device->backend;
    if (backend->communicator_check != NULL) return backend->communicator_check();
    return FAIL(YOKE_ERROR_DEVICE, "%s: only GPUs have communicators", device->name);
}

yoke_status yoke_communicator_id(yoke_device *device, uint8_t *id) {
    TRY(yoke_communicator_check(device));
    return device->backend->communicator_id(device, id);
}

yoke_status yoke_communicator_create(yoke_communicator **communicator,
                                     const yoke_communicator_request *request) {
    *communicator = NULL;
    TRY(yoke_communicator_check(request->device));
    return request->device->backend->communicator(communicator, request);
}

void yoke_communicator_destroy(yoke_communicator *communicator) {
    if (communicator != NULL) communicator->destroy(communicator);
}

void yoke_communicator_abort(yoke_communicator *communicator) {
    communicator->abort(communicator);
}

const char *yoke_communicator_name(const yoke_communicator *communicator) {
    return communicator->name;
}

yoke_status yoke_communicator_take(yoke_communicator *communicator,
                                   const yoke_communicator_call *call) {
    return call->count > 0 ? communicator->take(communicator, call) : YOKE_OK;
}

void yoke_communicator_register(yoke_communicator *communicator, void *buffer, size_t bytes) {
    if (bytes > 0) communicator->register_buffer(communicator, buffer, bytes);
}

void yoke_communicator_forget(yoke_communicator *communicator, void *buffer) {
    communicator->forget_buffer(communicator, buffer);
}

yoke_status yoke_communicator_is_idle(yoke_communicator *communicator, bool *idle) {
    return communicator->is_idle(communicator, idle);
}
