/* SPDX-License-Identifier: Apache-2.0 */
/* A net over the small model of engine_check.h, with rows for it. */
#ifndef NET_CHECK_H
#define NET_CHECK_H

#include "support/engine_check.h"

enum { ROWS = 40, BATCH = 16 };

typedef struct rig {
    yoke_model *model;
    yoke_net *net;
    check_batch rows;
    yoke_array inputs, labels;
} rig;

static inline yoke_net_options options_of(const char *devices) {
    static const yoke_data_parallel_options direct = {.struct_size = sizeof direct,
                                                      .algorithm = YOKE_ALGORITHM_DIRECT};
    return (yoke_net_options){.struct_size = sizeof(yoke_net_options),
                              .devices = devices,
                              .threads = 1,
                              .batch = BATCH,
                              .seed = 3,
                              .predictors = 2,
                              .engine = &direct};
}

static inline void open_rig(rig *own, yoke_net_options options) {
    *own = (rig){.model = check_model(true, 0), .rows = check_batch_make(ROWS, 1)};
    own->inputs = yoke_array_of_rows(own->rows.inputs, YOKE_ELEMENT_FLOAT32, ROWS,
                                     yoke_model_input_shape(own->model));
    own->labels = yoke_array_of_numbers(own->rows.labels, YOKE_ELEMENT_INT32, ROWS);
    EXPECT_OK(yoke_net_open(&own->net, own->model, &options));
}

static inline void close_rig(rig *own) {
    yoke_net_close(own->net);
    yoke_model_destroy(own->model);
    check_batch_free(&own->rows);
}

static inline uint64_t hash_of(yoke_data_parallel *engine) {
    uint64_t hash = 0;
    EXPECT_OK(yoke_data_parallel_hash(engine, &hash));
    return hash;
}

static inline yoke_net_info query(const rig *own) {
    yoke_net_info info = {.struct_size = sizeof info};
    EXPECT_OK(yoke_net_query(own->net, &info));
    return info;
}

static inline void predict(const rig *own, float outputs[ROWS][CHECK_CLASSES]) {
    yoke_array to = yoke_array_of_rows(outputs, YOKE_ELEMENT_FLOAT32, ROWS,
                                       yoke_model_output_shape(own->model));
    EXPECT_OK(yoke_net_predict(own->net, &own->inputs, &to));
}

#define REFUSED(call, words)                                                                       \
    do {                                                                                           \
        assert_int_equal((call), YOKE_ERROR_ARGUMENT);                                             \
        if (strstr(yoke_last_error(), (words)) == NULL)                                            \
            fail_msg("'%s' lacks '%s'", yoke_last_error(), (words));                               \
    } while (0)

#endif
