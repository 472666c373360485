/* SPDX-License-Identifier: Apache-2.0 */
/* Where the weights of a run go that must not replace an earlier file, and what stays open then. */
#include <dirent.h>
#include <limits.h>

#include "train/save_place.h"
#include "trainer_check.h"

static void touch(const char *path) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static yoke_status custom_loss(void *payload, const yoke_outputs *rows, double *loss) {
    (void)payload, (void)rows, (void)loss;
    return YOKE_OK;
}

/* The place of a run whose losses, the host program's, went from `first` to `last`. */
static const char *place_after(double first, double last, const char *save, char *beside) {
    yoke_custom_loss own = {.struct_size = sizeof own, .compute = custom_loss};
    yoke_loss_trend trend = {.steps = 0};
    yoke_run *run = calloc(1, sizeof *run);
    assert_non_null(run);
    run->options.save = save;
    run->options.custom_loss = &own;
    run->at.step = 40;
    yoke_loss_trend_add(&trend, first);
    for (int step = 1; step < 40; step++)
        yoke_loss_trend_add(&trend, last);
    const char *place = yoke_save_place(&(yoke_ending){run, &trend, false}, YOKE_OK, beside);
    free(run);
    return place;
}

static void losses_that_begin_at_nothing_or_below_have_not_diverged(void **state) {
    (void)state;
    char path[128], beside[PATH_MAX];
    touch(in_folder("own.safetensors", path));
    assert_ptr_equal(place_after(0, 0.01, path, beside), path);
    assert_ptr_equal(place_after(-5, 1, path, beside), path);
    assert_ptr_equal(place_after(1, 99, path, beside), path);
    assert_ptr_equal(place_after(1, 101, path, beside), beside);
}

/* Cut off, the name would be too long for every folder, or the path that exists. */
static void a_name_beside_the_longest_one_can_be_written(void **state) {
    (void)state;
    char path[PATH_MAX], beside[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/", folder);
    memset(path + length, 'n', NAME_MAX);
    path[length + NAME_MAX] = '\0';
    touch(path);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(place_after(1, 101, path, beside), beside);
        assert_memory_equal(beside, path, (size_t)length + 1);
        assert_int_not_equal(access(beside, F_OK), 0);
        touch(beside);
    }
    strcpy(path, folder);
    length = (int)strlen(path);
    while (length + 2 < PATH_MAX) { /* the longest path: "/./././n" */
        path[length++] = '/';
        path[length++] = '.';
    }
    strcpy(path + length - 1, "n");
    touch(path);
    alarm(900);
    assert_ptr_equal(place_after(1, 101, path, beside), beside);
    alarm(0);
    touch(beside);
}

static int open_files(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

/* The file that was open for them before the first step holds their space on the disk. */
static void a_run_that_writes_beside_leaves_no_file_open(void **state) {
    (void)state;
    char path[128];
    log_of_run run = {0};
    yoke_optimizer_options wild = {.struct_size = sizeof wild, .learning_rate = 1e30};
    yoke_trainer_options options = small(&run);
    touch(in_folder("spoiled.safetensors", path));
    options.save = path;
    options.optimizer = &wild;
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    int before = open_files();
    assert_int_equal(yoke_trainer_run(run.trainer), YOKE_ERROR_NUMERIC);
    assert_non_null(strstr(yoke_last_error(), "spoiled.step-"));
    assert_int_equal(open_files(), before);
    yoke_trainer_destroy(run.trainer);
}

static int remove_all(void **state) {
    char command[160];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_that_begin_at_nothing_or_below_have_not_diverged),
        cmocka_unit_test(a_name_beside_the_longest_one_can_be_written),
        cmocka_unit_test(a_run_that_writes_beside_leaves_no_file_open),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_all);
}
