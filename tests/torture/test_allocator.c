/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of the library fails in turn, alone and with all that follow it: the call says
 * MEMORY in words, and what was made can be destroyed and leaves no block behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "failing_data_scenarios.h"
#include "failing_hook.h"
#include "failing_rank_scenarios.h"

typedef struct scenario {
    const char *name;
    yoke_status (*use)(made *m);
    const char *absent; /* words of a build that lacks what it needs; NULL: no build does */
    bool waits;         /* for a rank that does not come */
} scenario;

#define NO_ONNX "this build of Yoke has no ONNX"
#define NO_PCRE2 "this build makes no tokens of texts"

#define SCENARIO(use)                                                                              \
    { #use, use, NULL, false }
static const scenario scenarios[] = {
    SCENARIO(devices_alone),
    SCENARIO(convolutions_on_one),
    SCENARIO(convolutions_on_two),
    SCENARIO(measured_algorithms),
    SCENARIO(schedule_classic),
    SCENARIO(schedule_sharded),
    SCENARIO(schedule_python),
    SCENARIO(parts_of_batches),
    SCENARIO(bfloat16_and_accumulation),
    SCENARIO(only_predicts),
    SCENARIO(attention_on_two),
    SCENARIO(recurrence_on_one),
    SCENARIO(own_operation),
    SCENARIO(weights_to_files_and_back),
    SCENARIO(state_to_a_file_and_back),
    {"onnx_written_and_read", onnx_written_and_read, NO_ONNX, false},
    SCENARIO(files_in_memory),
    {"onnx_in_memory", onnx_in_memory, NO_ONNX, false},
    SCENARIO(tensor_files),
    SCENARIO(traces),
    {"texts_and_tokens", texts_and_tokens, NO_PCRE2, false},
    SCENARIO(float64_steps),
    SCENARIO(generated_text),
    SCENARIO(rows_of_synthetic),
    SCENARIO(rows_of_cifar10),
    SCENARIO(rows_of_cifar100),
    SCENARIO(rows_of_mnist),
    SCENARIO(rows_of_images),
    SCENARIO(rows_of_text),
    {"rows_of_text_tokens", rows_of_text_tokens, NO_PCRE2, false},
    SCENARIO(rows_of_pairs),
    SCENARIO(rows_of_npy),
    SCENARIO(rows_of_npz),
    SCENARIO(rows_of_csv),
    SCENARIO(own_rows),
    SCENARIO(rows_of_a_callback),
    SCENARIO(rows_of_a_stream),
    SCENARIO(evaluated_rows),
    SCENARIO(run_with_files),
    SCENARIO(resumed_run),
    SCENARIO(many_options),
    SCENARIO(rows_by_length),
    SCENARIO(asynchronous_run),
    SCENARIO(local_run),
    SCENARIO(surviving_run),
    SCENARIO(resized_run),
    SCENARIO(learning_rate_search),
    {"ranks_of_a_group", ranks_of_a_group, NULL, true},
    {"ranks_that_train", ranks_that_train, NULL, true},
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

/* How many allocations of a scenario fail by day, about; YOKE_NIGHT: all. */
enum { BY_DAY = 40, WAITS_BY_DAY = 12 };

static struct { unsigned long failures, tolerated, wrong; } seen;

typedef struct outcome {
    yoke_status status;
    char text[256];
    unsigned long count, failed;
    long left;
} outcome;

static outcome run_scenario(const scenario *of, unsigned long at, bool onwards) {
    made m = {0};
    long before = atomic_load(&hook.living);
    (void)yoke_error_raise(YOKE_ERROR_INTERNAL, "stale");
    failing_hook_arm(at, onwards);
    outcome end = {.status = of->use(&m)};
    end.failed = atomic_load(&hook.failed);
    snprintf(end.text, sizeof end.text, "%s", yoke_last_error());
    close_all(&m);
    end.count = atomic_load(&hook.count);
    failing_hook_arm(0, false);
    end.left = atomic_load(&hook.living) - before;
    return end;
}

static void judge(const scenario *of, unsigned long at, bool onwards, const outcome *end) {
    const char *wrong = NULL;
    if (end->left != 0)
        wrong = "blocks left";
    else if (end->status == YOKE_OK)
        wrong = NULL;
    else if (end->status != YOKE_ERROR_MEMORY)
        wrong = "not MEMORY";
    else if (end->text[0] == '\0' || strcmp(end->text, "stale") == 0)
        wrong = "no text";
    seen.failures += end->failed > 0;
    seen.tolerated += end->failed > 0 && end->status == YOKE_OK;
    if (wrong == NULL) return;
    seen.wrong++;
    print_error("%s %lu%s: %s: %s, '%s', %ld blocks left\n", of->name, at, onwards ? "+" : "",
                wrong, yoke_status_name(end->status), end->text, end->left);
}

static void fail_each(const scenario *of) {
    outcome whole = run_scenario(of, 0, false);
    if (of->absent != NULL && strstr(whole.text, of->absent) != NULL) {
        print_message("%s: %s\n", of->name, whole.text);
        skip();
    }
    if (whole.status != YOKE_OK) fail_msg("%s: %s", of->name, whole.text);
    whole = run_scenario(of, 0, false); /* what happens once in a process has happened */
    if (whole.left != 0) fail_msg("%s leaves %ld blocks", of->name, whole.left);
    assert_true(whole.count > 0);
    unsigned long first = of->waits ? WAITS_BY_DAY : BY_DAY;
    unsigned long stride = 1 + whole.count / first;
    if (getenv("YOKE_NIGHT") != NULL) stride = 1;
    seen = (typeof(seen)){0};
    for (int onwards = 0; onwards < 2; onwards++) {
        for (unsigned long at = 1; at <= whole.count;) {
            outcome end = run_scenario(of, at, onwards);
            judge(of, at, onwards, &end);
            at += at < first ? 1 : stride;
        }
    }
    print_message("%s: of %lu allocations %lu failed, %lu without harm\n", of->name, whole.count,
                  seen.failures, seen.tolerated);
    assert_true(seen.failures > 0);
    assert_int_equal(seen.wrong, 0);
}

static void every_scenario(void **state) {
    fail_each(*state);
}

static void every_preset(void **state) {
    (void)state;
    const scenario build = {"one_preset", one_preset, NULL, false};
    for (preset_index = 0; yoke_model_preset_name(preset_index) != NULL; preset_index++) {
        print_message("%s: ", yoke_model_preset_name(preset_index));
        fail_each(&build);
    }
}

/* One allocation of one scenario, with the stack of each failure: test_allocator NAME [N[+]]. */
static int look_at(const char *name, const char *which) {
    for (int i = 0; i < SCENARIOS; i++) {
        if (strcmp(scenarios[i].name, name) != 0) continue;
        if (which == NULL) {
            const struct CMUnitTest test = {name, every_scenario, NULL, NULL,
                                            (void *)&scenarios[i]};
            return _cmocka_run_group_tests(name, &test, 1, NULL, NULL);
        }
        char *end;
        unsigned long at = strtoul(which, &end, 10);
        (void)run_scenario(&scenarios[i], 0, false);
        hook.traced = true;
        outcome found = run_scenario(&scenarios[i], at, *end == '+');
        printf("%s: %s, '%s', %lu of %lu failed, %ld blocks left\n", name,
               yoke_status_name(found.status), found.text, found.failed, found.count, found.left);
        return 0;
    }
    return 2;
}

static int set_up(void) {
    made m = {0};
    if (failing_hook_install() != YOKE_OK || mkdtemp(scenario_folder) == NULL) return -1;
    make_row_files();
    yoke_data_parallel_options engine = engine_options();
    engine.batch = 0;
    yoke_trainer_options first = small_run(&engine);
    first.checkpoint_dir = at_path("first");
    yoke_status status = run_to_end(&m, &first);
    close_all(&m);
    return status == YOKE_OK ? 0 : -1;
}

int main(int count, char **words) {
    struct CMUnitTest tests[SCENARIOS + 1];
    for (int i = 0; i < SCENARIOS; i++)
        tests[i] = (struct CMUnitTest){scenarios[i].name, every_scenario, NULL, NULL,
                                       (void *)&scenarios[i]};
    tests[SCENARIOS] = (struct CMUnitTest)cmocka_unit_test(every_preset);
    if (set_up() != 0) {
        fprintf(stderr, "set-up: %s\n", yoke_last_error());
        return 1;
    }
    int failed =
        count > 1 ? look_at(words[1], words[2]) : cmocka_run_group_tests(tests, NULL, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", scenario_folder);
    return system(command) == 0 ? failed : 1;
}
