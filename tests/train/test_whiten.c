/* SPDX-License-Identifier: Apache-2.0 */
/* Filters that whiten patches equal those of numpy's eigenvectors, and make patches white. */
#include "fixtures/fill.h"
#include "fixtures/fixture.h"
#include "train/eigenvectors.h"
#include "trainer_check.h"

#define PATCH 12 /* values of 2 x 2 pixels of three channels */

static void eigenvectors_are_orthogonal_and_give_the_matrix_back(void **state) {
    (void)state;
    enum { SIDE = 9 };
    double matrix[SIDE * SIDE], kept[SIDE * SIDE], vectors[SIDE * SIDE];
    for (uint32_t i = 0; i < SIDE; i++)
        for (uint32_t j = 0; j <= i; j++)
            matrix[i * SIDE + j] = matrix[j * SIDE + i] = number(i, j);
    memcpy(kept, matrix, sizeof kept);
    yoke_eigenvectors(matrix, SIDE, vectors);
    for (size_t i = 0; i < SIDE; i++) {
        assert_true(i == 0 || matrix[i * (SIDE + 1)] <= matrix[(i - 1) * (SIDE + 1)]);
        for (size_t j = 0; j < SIDE; j++) {
            double length = 0, back = 0;
            for (size_t k = 0; k < SIDE; k++) {
                length += vectors[i * SIDE + k] * vectors[j * SIDE + k];
                back += vectors[k * SIDE + i] * matrix[k * (SIDE + 1)] * vectors[k * SIDE + j];
            }
            near(length, i == j, 1e-13, 1, "product of vectors");
            near(back, kept[i * SIDE + j], 1e-13, 1, "element");
        }
    }
}

static void eigenvectors_of_a_diagonal_are_sorted(void **state) {
    (void)state;
    double matrix[] = {1, 0, 0, 0, 3, 0, 0, 0, 2}, vectors[9];
    static const double expected[] = {0, 1, 0, 0, 0, 1, 1, 0, 0};
    yoke_eigenvectors(matrix, 3, vectors);
    assert_true(matrix[0] == 3 && matrix[4] == 2 && matrix[8] == 1);
    assert_memory_equal(vectors, expected, sizeof expected);
}

/* The fixture's rows. */
typedef struct rows {
    json_t *fixture;
    const json_t *whitening;
    float *inputs;
    int32_t *labels;
    yoke_dataset *dataset;
    yoke_shape shape;
    size_t count;
} rows_of_fixture;

static rows_of_fixture open_rows(void) {
    rows_of_fixture rows = {.fixture = read_fixture("airbench")};
    rows.whitening = json_object_get(rows.fixture, "whitening");
    rows.count = (size_t)real_at(rows.whitening, "shape", 0);
    rows.shape = yoke_shape_image((int)real_at(rows.whitening, "shape", 1),
                                  (int)real_at(rows.whitening, "shape", 2),
                                  (int)real_at(rows.whitening, "shape", 3));
    size_t values = rows.count * (size_t)rows.shape.channels * (size_t)rows.shape.height *
                    (size_t)rows.shape.width;
    rows.inputs = malloc(values * sizeof *rows.inputs);
    rows.labels = calloc(rows.count, sizeof *rows.labels);
    assert_true(rows.inputs != NULL && rows.labels != NULL);
    fill(rows.inputs, values, (uint32_t)integer(rows.whitening, "stream"), 1, 0);
    for (size_t i = 0; i < rows.count; i++)
        rows.labels[i] = (int32_t)(i % 3);
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = rows.count,
                          .shape = rows.shape,
                          .inputs = rows.inputs,
                          .classes = 3,
                          .labels = rows.labels};
    EXPECT_OK(yoke_dataset_from_arrays(&rows.dataset, &arrays));
    return rows;
}

static void close_rows(rows_of_fixture *rows) {
    yoke_dataset_close(rows->dataset);
    free(rows->inputs);
    free(rows->labels);
    json_decref(rows->fixture);
}

static yoke_trainer_options whitening(log_of_run *run, const rows_of_fixture *rows,
                                      const char *model, const char *layer) {
    yoke_trainer_options options = small(run);
    options.model = model;
    options.dataset = NULL;
    options.training_rows = rows->dataset;
    options.evaluate_every = -1;
    options.whiten = layer;
    options.steps = 2;
    return options;
}

/* `count` filters, then their negatives; an eigenvector may have either sign. */
static void compare_filters(const rows_of_fixture *rows, const float *filters, size_t count) {
    for (size_t i = 0; i < count; i++) {
        double product = 0;
        for (size_t k = 0; k < PATCH; k++)
            product +=
                (double)filters[i * PATCH + k] * real_at(rows->whitening, "filters", i * PATCH + k);
        for (size_t k = 0; k < PATCH; k++) {
            double wanted = real_at(rows->whitening, "filters", i * PATCH + k);
            near((double)filters[i * PATCH + k], product < 0 ? -wanted : wanted, 1e-6, 1, "filter");
            assert_true(filters[(count + i) * PATCH + k] == -filters[i * PATCH + k]);
        }
    }
}

static void filters_are_those_of_numpy(void **state) {
    (void)state;
    static const char *const models[] = {"layers:conv=24x2,relu,linear=3",
                                         "layers:conv=10x2,relu,linear=3"};
    static const int filters[] = {24, 10};
    rows_of_fixture rows = open_rows();
    yoke_parameter_group frozen = YOKE_PARAMETER_GROUP_INIT;
    frozen.pattern = "0.weight";
    frozen.frozen = true;
    for (int i = 0; i < 2; i++) {
        log_of_run run = {0};
        float values[24 * PATCH];
        yoke_trainer_options options = whitening(&run, &rows, models[i], "0");
        options.seed = (uint64_t)i;
        small_engine.groups = &frozen;
        small_engine.group_count = 1;
        EXPECT_OK(train(&run, &options));
        EXPECT_OK(yoke_data_parallel_read(yoke_trainer_engine(run.trainer), "0.weight", values,
                                          (size_t)filters[i] * PATCH));
        compare_filters(&rows, values, (size_t)filters[i] / 2);
        yoke_trainer_destroy(run.trainer);
    }
    close_rows(&rows);
}

static void devices_begin_with_the_same_filters(void **state) {
    (void)state;
    rows_of_fixture rows = open_rows();
    uint64_t hashes[2];
    for (int i = 0; i < 2; i++) {
        log_of_run run = {0};
        yoke_trainer_options options =
            whitening(&run, &rows, "layers:conv=24x2,relu,linear=3", "0");
        options.devices = devices_of(i == 0 ? 1 : 2);
        small_engine.shards = 2;
        EXPECT_OK(train(&run, &options));
        hashes[i] = hash_of(run.trainer);
        yoke_trainer_destroy(run.trainer);
    }
    assert_true(hashes[0] == hashes[1]);
    close_rows(&rows);
}

static void what_cannot_be_whitened_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *model, *layer, *words;
    } cases[] = {
        {"layers:conv=24x2,relu,linear=3", "stem", "has no convolution 'stem'"},
        {"layers:conv=24x2,relu,linear=3", "2", "has no convolution '2'"},
        {"layers:conv=4,relu,conv=4,linear=3", "2", "no plain convolution of the rows themselves"},
        {"layers:conv=26x2,relu,linear=3", "0", "at most 24 for patches of 12 values"},
        {"layers:conv=7x2,relu,linear=3", "0", "an even number"},
    };
    rows_of_fixture rows = open_rows();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        log_of_run run = {0};
        yoke_trainer_options options = whitening(&run, &rows, cases[i].model, cases[i].layer);
        assert_int_equal(yoke_trainer_create(&run.trainer, &options), YOKE_ERROR_ARGUMENT);
        if (strstr(yoke_last_error(), cases[i].words) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", yoke_last_error(), cases[i].words);
    }
    close_rows(&rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eigenvectors_are_orthogonal_and_give_the_matrix_back),
        cmocka_unit_test(eigenvectors_of_a_diagonal_are_sorted),
        cmocka_unit_test(filters_are_those_of_numpy),
        cmocka_unit_test(devices_begin_with_the_same_filters),
        cmocka_unit_test(what_cannot_be_whitened_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
