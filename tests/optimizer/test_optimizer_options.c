/* SPDX-License-Identifier: Apache-2.0 */
/* Which options an optimizer accepts, and what its INIT macros set. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "optimizer/optimizer.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != YOKE_OK) fail_msg("%s: %s", #call, yoke_last_error());                       \
    } while (0)

static void the_init_macros_set_pytorchs_defaults(void **state) {
    (void)state;
    yoke_optimizer_options own, sgd = YOKE_SGD_OPTIONS_INIT, adamw = YOKE_ADAMW_OPTIONS_INIT;
    CHECK(yoke_optimizer_options_load(&own, &sgd));
    assert_int_equal(own.kind, YOKE_SGD);
    assert_true(own.learning_rate == 0.1 && own.momentum == 0 && own.weight_decay == 0);
    assert_true(!own.nesterov && own.clip_norm == 0);
    CHECK(yoke_optimizer_options_load(&own, &adamw));
    assert_int_equal(own.kind, YOKE_ADAMW);
    assert_true(own.learning_rate == 1e-3 && own.beta1 == 0.9 && own.beta2 == 0.999);
    assert_true(own.epsilon == 1e-8 && own.weight_decay == 0.01 && own.clip_norm == 0);
}

static void no_options_are_sgds_defaults(void **state) {
    (void)state;
    yoke_optimizer_options own, sgd = YOKE_SGD_OPTIONS_INIT;
    CHECK(yoke_optimizer_options_load(&own, NULL));
    assert_true(own.kind == sgd.kind && own.learning_rate == sgd.learning_rate);
}

static void zero_means_zero(void **state) {
    (void)state;
    for (int kind = YOKE_SGD; kind <= YOKE_MUON_FILTERS; kind++) {
        yoke_optimizer_options own,
            given = {.struct_size = sizeof given, .kind = (yoke_optimizer_kind)kind};
        CHECK(yoke_optimizer_options_load(&own, &given));
        assert_true(own.learning_rate == 0 && own.momentum == 0 && own.weight_decay == 0);
        assert_true(own.beta1 == 0 && own.beta2 == 0 && own.epsilon == 0 && own.clip_norm == 0);
    }
}

static void impossible_options_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        yoke_optimizer_options options;
        const char *name;
    } cases[] = {
        {{.learning_rate = -0.1}, "learning_rate is -0.1"},
        {{.learning_rate = -0.1}, "YOKE_SGD_OPTIONS_INIT"},
        {{.learning_rate = (double)NAN}, "learning_rate is nan"},
        {{.learning_rate = (double)INFINITY}, "learning_rate is inf"},
        {{.momentum = -0.5}, "momentum is -0.5"},
        {{.momentum = 1}, "momentum is 1"},
        {{.nesterov = true}, "nesterov needs momentum"},
        {{.weight_decay = -1}, "weight_decay is -1"},
        {{.clip_norm = -1}, "clip_norm is -1"},
        {{.clip_norm = (double)NAN}, "clip_norm is nan"},
        {{.kind = YOKE_ADAMW, .beta1 = 1}, "beta1 is 1"},
        {{.kind = YOKE_ADAMW, .beta1 = 1}, "YOKE_ADAMW_OPTIONS_INIT"},
        {{.kind = YOKE_ADAMW, .beta2 = -0.1}, "beta2 is -0.1"},
        {{.kind = YOKE_ADAMW, .epsilon = -1e-8}, "epsilon is -1e-08"},
        {{.kind = YOKE_ADAMW, .nesterov = true}, "nesterov is for SGD"},
        {{.kind = YOKE_ADAM, .beta2 = 1}, "YOKE_ADAM_OPTIONS_INIT"},
        {{.kind = YOKE_ADAM, .nesterov = true}, "Adam has no such form"},
        {{.kind = YOKE_RMSPROP, .alpha = 1}, "alpha is 1"},
        {{.kind = YOKE_RMSPROP, .momentum = 1}, "momentum is 1"},
        {{.kind = YOKE_RMSPROP, .momentum = 0.9, .nesterov = true}, "RMSprop has no such form"},
        {{.kind = YOKE_LION, .beta1 = (double)NAN}, "beta1 is nan"},
        {{.kind = YOKE_ADAGRAD, .epsilon = -1}, "epsilon is -1"},
        {{.kind = YOKE_LAMB, .nesterov = true}, "LAMB has no such form"},
        {{.kind = YOKE_MUON, .momentum = 1}, "momentum is 1"},
        {{.kind = YOKE_MUON, .nesterov = true}, "nesterov needs momentum"},
        {{.kind = YOKE_MUON_FILTERS, .momentum = 1}, "momentum is 1"},
        {{.kind = YOKE_MUON_FILTERS, .nesterov = true}, "nesterov needs momentum"},
        {{.kind = (yoke_optimizer_kind)9}, "kind is 9"},
        {{.kind = (yoke_optimizer_kind)-1}, "kind is -1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_optimizer_options given = cases[i].options, own;
        given.struct_size = sizeof given;
        assert_int_equal(yoke_optimizer_options_load(&own, &given), YOKE_ERROR_ARGUMENT);
        if (strstr(yoke_last_error(), cases[i].name) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", cases[i].name, yoke_last_error());
        yoke_optimizer *optimizer = (yoke_optimizer *)&own;
        assert_int_equal(yoke_optimizer_create(&optimizer, &given, NULL, NULL, 0, 10),
                         YOKE_ERROR_ARGUMENT);
        assert_null(optimizer);
    }
}

static void every_kind_has_a_name_and_states_under_pytorchs_names(void **state) {
    (void)state;
    static const struct {
        yoke_optimizer_options options;
        const char *name, *states[3];
    } cases[] = {
        {YOKE_SGD_OPTIONS_INIT, "sgd", {NULL}},
        {{.kind = YOKE_SGD, .momentum = 0.9}, "sgd", {"momentum_buffer"}},
        {YOKE_ADAMW_OPTIONS_INIT, "adamw", {"exp_avg", "exp_avg_sq"}},
        {YOKE_ADAM_OPTIONS_INIT, "adam", {"exp_avg", "exp_avg_sq"}},
        {YOKE_RMSPROP_OPTIONS_INIT, "rmsprop", {"square_avg"}},
        {{.kind = YOKE_RMSPROP, .momentum = 0.5}, "rmsprop", {"square_avg", "momentum_buffer"}},
        {YOKE_LION_OPTIONS_INIT, "lion", {"exp_avg"}},
        {YOKE_ADAGRAD_OPTIONS_INIT, "adagrad", {"sum"}},
        {YOKE_LAMB_OPTIONS_INIT, "lamb", {"exp_avg", "exp_avg_sq"}},
        {YOKE_MUON_OPTIONS_INIT, "muon", {"exp_avg", "exp_avg_sq"}},
        {YOKE_MUON_FILTERS_OPTIONS_INIT, "muon-filters", {"momentum_buffer"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const yoke_optimizer_options *options = &cases[i].options;
        assert_string_equal(yoke_optimizer_name(options->kind), cases[i].name);
        int count = yoke_optimizer_state_count(options);
        assert_null(cases[i].states[count]);
        for (int k = 0; k < count; k++)
            assert_string_equal(yoke_optimizer_state_name(options, k), cases[i].states[k]);
    }
    assert_null(yoke_optimizer_name((yoke_optimizer_kind)(YOKE_MUON_FILTERS + 1)));
    assert_null(yoke_optimizer_name((yoke_optimizer_kind)-1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_init_macros_set_pytorchs_defaults),
        cmocka_unit_test(no_options_are_sgds_defaults),
        cmocka_unit_test(zero_means_zero),
        cmocka_unit_test(impossible_options_are_refused_by_name),
        cmocka_unit_test(every_kind_has_a_name_and_states_under_pytorchs_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
