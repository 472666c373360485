/* SPDX-License-Identifier: Apache-2.0 */
/* Variants that the list of devices names, "cuda:0+mapped": what they change, and that results
 * equal the reference's with all of them and every other alternative. Skipped without a GPU. */
#include "operation_parity.h"

#include "model/networks.h"
#include "model/program.h"
#include "support/devices.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* The list. */

static void a_device_says_which_ways_it_takes(void **state) {
    (void)state;
    static const struct {
        const char *list;
        unsigned variants;
    } rows[] = {{"cuda:0", 0},
                {"2xcuda:0+mapped", YOKE_VARIANT_MAPPED},
                {"auto+decode+mapped+mapped", YOKE_VARIANT_MAPPED | YOKE_VARIANT_DECODE}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        yoke_devices_options options = {.struct_size = sizeof options, .list = rows[i].list};
        yoke_device_info info = {.struct_size = sizeof info};
        yoke_devices *devices = NULL;
        char facts[1280];
        PARITY_OK(yoke_devices_open(&devices, &options));
        PARITY_OK(yoke_devices_describe(devices, yoke_devices_count(devices) - 1, &info));
        yoke_device_facts(yoke_devices_at(devices, 0), facts, sizeof facts);
        yoke_devices_close(devices);
        char expected[YOKE_VARIANTS_BYTES];
        yoke_variants_write(rows[i].variants | yoke_variants_confirmed(), expected,
                            sizeof expected);
        assert_string_equal(info.variants, expected);
        assert_non_null(strstr(facts, expected));
    }
}

static void every_way_has_a_name_that_the_list_reads(void **state) {
    (void)state;
    yoke_devices_options options = {.struct_size = sizeof options, .list = "cuda:0+all"};
    yoke_device_info info = {.struct_size = sizeof info};
    char list[128];
    yoke_devices *devices = NULL;
    PARITY_OK(yoke_devices_open(&devices, &options));
    PARITY_OK(yoke_devices_describe(devices, 0, &info));
    unsigned all = yoke_device_variants(yoke_devices_at(devices, 0));
    yoke_devices_close(devices);
    snprintf(list, sizeof list, "cuda:0%s", info.variants);
    options.list = list;
    PARITY_OK(yoke_devices_open(&devices, &options));
    assert_int_equal(yoke_device_variants(yoke_devices_at(devices, 0)), all);
    assert_true(strlen(info.variants) + 1 < sizeof info.variants);
    yoke_devices_close(devices);
}

/* Models. */

static void open_model(struct rig *rig, yoke_model *model, const char *list,
                       yoke_precision precision) {
    *rig = (struct rig){.list = list,
                        .model = model,
                        .rows = 5,
                        .precision = precision,
                        .algorithm = YOKE_ALGORITHM_DIRECT};
    rig_devices(rig);
    yoke_algorithms_prefer(rig->algorithms, "264 blocks at most");
    yoke_algorithms_prefer(rig->algorithms, "one kernel");
    rig_replica(rig, 1);
}

static void models_equal_the_reference(void **state) {
    (void)state;
    static yoke_model *(*const networks[])(const yoke_loss_options *) = {everything, joined};
    const yoke_loss_options loss = {.struct_size = sizeof loss, .kind = YOKE_LOSS_MSE};
    struct rig rig;
    for (size_t i = 0; i < COUNT(networks); i++) { /* the tolerance of tests/model */
        open_model(&rig, networks[i](&loss), "cuda:0+all", YOKE_BFLOAT16);
        assert_step_near(&rig, 0.3);
        rig_destroy(&rig);
    }
    open_model(&rig, resnet20(8), "cuda:0+all", YOKE_FLOAT32);
    assert_step_near(&rig, 1e-4);
    rig_destroy(&rig);
    for (uint32_t seed = 1; seed <= 40; seed++) {
        open_model(&rig, random_graph(seed, seed % 3 == 0, seed % 2 == 0), "cuda:0+all",
                   YOKE_FLOAT32);
        assert_step_near(&rig, 5e-4);
        rig_destroy(&rig);
    }
}

int main(void) {
    if (devices_gpus() == 0) {
        print_message("skipped: no usable GPU\n");
        return DEVICES_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_says_which_ways_it_takes),
        cmocka_unit_test(every_way_has_a_name_that_the_list_reads),
        cmocka_unit_test(models_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
