/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's state under PyTorch's names: Yoke takes PyTorch's after four steps and learns
 * what PyTorch goes on to learn; its own file has the same names and values. */
#include <unistd.h>

#include "parallel/pytorch_rig.h"
#include "train/checkpoint.h"

static void compare_file(const char *path, json_t *wanted) {
    yoke_checkpoint *checkpoint;
    const char *name;
    json_t *entries;
    float values[4096];
    must(yoke_checkpoint_open(&checkpoint, path));
    assert_int_equal(checkpoint->file.count, json_object_size(wanted));
    json_object_foreach(wanted, name, entries) {
        const yoke_file_tensor *tensor = yoke_safetensors_find(&checkpoint->file, name);
        if (tensor == NULL) fail_msg("the file lacks %s", name);
        must(yoke_safetensors_floats(&checkpoint->file, tensor, values));
        double largest = 0;
        for (size_t i = 0; i < tensor->elements; i++)
            largest = fmax(largest, fabs((double)values[i]));
        size_t k;
        const json_t *entry;
        json_array_foreach(entries, k, entry) {
            size_t at = (size_t)json_integer_value(json_array_get(entry, 0));
            near((double)values[at], json_number_value(json_array_get(entry, 1)), VALUE_TOLERANCE,
                 largest, name);
        }
    }
    yoke_checkpoint_close(checkpoint);
}

static void run_case(const json_t *test_case, int devices) {
    char from[512], to[64];
    test_rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->subject = &convnet;
    open_engine(rig, NULL, test_case, devices_of(devices),
                (yoke_data_parallel_options){.schedule = YOKE_SCHEDULE_SHARDED});
    snprintf(from, sizeof from, "%s/tests/fixtures/%s", YOKE_SOURCE_DIR,
             json_string_value(json_object_get(test_case, "file")));
    must(yoke_state_load(rig->parallel, from, NULL));
    for (int step = integer(test_case, "step"); step < integer(test_case, "steps"); step++) {
        yoke_batch batch = make_batch(rig, integer(test_case, "rows"), (uint32_t)step);
        must(yoke_data_parallel_step(rig->parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    }
    /* A person may keep the file for make_checkpoint_fixture.py. */
    const char *keep = getenv("YOKE_TEST_KEEP");
    snprintf(to, sizeof to, "%s", keep != NULL ? keep : "/tmp/yoke-pytorch-state-XXXXXX");
    if (keep == NULL) close(mkstemp(to));
    must(yoke_state_save(rig->parallel, to));
    compare_file(to, json_object_get(test_case, "state"));
    if (keep == NULL) assert_int_equal(unlink(to), 0);
    close_engine(rig);
    free(rig);
}

static void pytorchs_optimizer_goes_on_here(void **state) {
    (void)state;
    json_t *cases = read_fixture("checkpoint");
    size_t index;
    const json_t *test_case;
    json_array_foreach(cases, index, test_case) {
        run_case(test_case, 1);
        run_case(test_case, 3);
    }
    json_decref(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pytorchs_optimizer_goes_on_here)};
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
