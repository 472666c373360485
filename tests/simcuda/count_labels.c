/* SPDX-License-Identifier: Apache-2.0 */
/* Says to the simulator's count which operation a launch belongs to. The linker puts these
 * functions before those of the device (--wrap, in the root's CMakeLists.txt), so that no kernel
 * and no plan needs a declaration. */
#include "device/backend.h"
#include "model/graph.h"
#include "simcuda/counted.h"

/* As bench/floor/kernel_calls.c names it. */
static const char *name_of(const yoke_plan *plan) {
    const yoke_operation *operation = &plan->operation;
    if (operation->kind == YOKE_OP_ACTIVATION) return yoke_activation_name(operation->activation);
    return yoke_kind_name(operation->kind);
}

#define LABELLED(operation, direction, call)                                                       \
    const char *outer[2];                                                                          \
    simcuda_count_labels(&outer[0], &outer[1]);                                                    \
    simcuda_count_label(operation, direction);                                                     \
    yoke_status status = call;                                                                     \
    simcuda_count_label(outer[0], outer[1]);                                                       \
    return status

#define WRAP(name, operation, direction, parameters, arguments)                                    \
    yoke_status __real_yoke_##name parameters;                                                     \
    yoke_status __wrap_yoke_##name parameters;                                                     \
    yoke_status __wrap_yoke_##name parameters {                                                    \
        LABELLED(operation, direction, __real_yoke_##name arguments);                              \
    }

WRAP(plan_forward, name_of(plan), "forward", (yoke_plan * plan, const yoke_plan_step *step),
     (plan, step))
WRAP(plan_backward, name_of(plan), "backward", (yoke_plan * plan, const yoke_plan_step *step),
     (plan, step))
WRAP(device_accumulate, "accumulate", "backward",
     (yoke_device * device, const yoke_layout *layout, void *to, const void *from),
     (device, layout, to, from))
WRAP(device_update, "update", "",
     (yoke_device * device, yoke_stream stream, const yoke_update_step *step, float *weights,
      const float *gradients, float *const states[YOKE_UPDATE_STATES], size_t elements),
     (device, stream, step, weights, gradients, states, elements))
WRAP(device_shadow, "shadow", "",
     (yoke_device * device, uint16_t *shadow, const float *parameters, size_t elements),
     (device, shadow, parameters, elements))
WRAP(device_undo, "undo", "",
     (yoke_device * device, yoke_stream stream, const yoke_gate *gate, float *values,
      const float *kept, size_t elements),
     (device, stream, gate, values, kept, elements))
WRAP(device_check_finite, "check", "",
     (yoke_device * device, yoke_stream stream, const float *values, size_t elements, size_t offset,
      uint64_t *first_bad),
     (device, stream, values, elements, offset, first_bad))
WRAP(device_gate, "gate", "",
     (yoke_device * device, yoke_stream stream, yoke_gate *gate, const yoke_gate_request *request),
     (device, stream, gate, request))
WRAP(device_decode, "input", "", (yoke_device * device, const yoke_decode_request *request),
     (device, request))
