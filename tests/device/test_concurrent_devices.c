/* SPDX-License-Identifier: Apache-2.0 */
/* Two devices compute at the same time without disturbing each other. */
#include <pthread.h>

#include "weighted_check.h"

typedef struct companion {
    pthread_t thread;
    yoke_device *device;
    const check_case *c;
    check_run run;
} companion;

static void *run_companion(void *context) {
    companion *self = context;
    yoke_device_scope scope;
    if (yoke_device_enter(self->device, true, &scope) != YOKE_OK) return self;
    for (int i = 0; i < 5; i++)
        check_execute(self->device, self->c, NULL, NULL, &self->run);
    yoke_device_leave(self->device, &scope);
    return NULL;
}

static void two_devices_at_once_give_the_bits_of_one(void **state) {
    (void)state;
    check_rig rig;
    check_rig_open(&rig, devices_of(2));
    check_case c = {.operation = {.kind = YOKE_OP_CONV2D,
                                  .name = "conv",
                                  .input = {32, 12, 12},
                                  .output = {32, 12, 12},
                                  .kernel = 3,
                                  .stride = 1,
                                  .padding = 1,
                                  .groups = 1,
                                  .dilation = 1,
                                  .bias = true},
                    .rows = 4,
                    .algorithm = YOKE_ALGORITHM_DIRECT};
    check_run alone = check_run_new(&c);
    check_execute(rig.device, &c, NULL, NULL, &alone);
    companion both[2];
    for (int i = 0; i < 2; i++) {
        both[i] = (companion){
            .device = yoke_devices_at(rig.devices, i), .c = &c, .run = check_run_new(&c)};
        assert_int_equal(pthread_create(&both[i].thread, NULL, run_companion, &both[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        void *failed = NULL;
        pthread_join(both[i].thread, &failed);
        assert_null(failed);
        check_run *run = &both[i].run;
        assert_memory_equal(run->y, alone.y, alone.sizes.output * sizeof(float));
        assert_memory_equal(run->dx, alone.dx, alone.sizes.input * sizeof(float));
        assert_memory_equal(run->dw, alone.dw, alone.sizes.weights * sizeof(float));
        check_run_free(run);
    }
    check_run_free(&alone);
    check_rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_devices_at_once_give_the_bits_of_one),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
