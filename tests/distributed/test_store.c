/* SPDX-License-Identifier: Apache-2.0 */
/* Both kinds of store, over files and over TCP, keep the same promises. */
#include <poll.h>
#include <pthread.h>

#include "store_check.h"

static void check_values(void) {
    yoke_store *keeper = keep("run", NULL), *other = join(keeper);
    assert_int_equal(yoke_store_set(keeper, "a", "one", 3), YOKE_OK);
    assert_int_equal(yoke_store_set(other, "b/c d", "", 0), YOKE_OK);
    assert_value(other, "a", "one");
    assert_value(keeper, "b/c d", "");
    assert_int_equal(yoke_store_set(other, "a", "one", 3), YOKE_OK);
    assert_int_equal(yoke_store_set(other, "a", "two", 3), YOKE_ERROR_ARGUMENT);
    assert_says("\"a\"");
    assert_says("already has another value");
    assert_int_equal(yoke_store_set(other, "a", "onetwo", 6), YOKE_ERROR_ARGUMENT);
    assert_value(other, "a", "one");
    int64_t sum;
    assert_int_equal(yoke_store_add(keeper, "sum", 5, &sum), YOKE_OK);
    assert_int_equal(sum, 5);
    assert_int_equal(yoke_store_add(other, "sum", -7, &sum), YOKE_OK);
    assert_int_equal(sum, -2);
    assert_int_equal(yoke_store_add(other, "a", 1, &sum), YOKE_ERROR_ARGUMENT);
    assert_says("not a sum");
    assert_int_equal(yoke_store_add(other, "large", INT64_MAX, &sum), YOKE_OK);
    assert_int_equal(yoke_store_add(other, "large", 1, &sum), YOKE_ERROR_ARGUMENT);
    assert_says("overflows an int64");
    yoke_store_destroy(other);
    yoke_store_destroy(keeper);
}

static void check_limits(void) {
    yoke_store *keeper = keep("run", NULL), *other = join(keeper);
    char *large = malloc(YOKE_STORE_VALUE_LIMIT + 1), *back = malloc(YOKE_STORE_VALUE_LIMIT + 1);
    char key[YOKE_STORE_KEY_LIMIT + 1];
    size_t bytes;
    assert_non_null(large);
    assert_non_null(back);
    for (size_t i = 0; i <= YOKE_STORE_VALUE_LIMIT; i++)
        large[i] = (char)(i * 31);
    memset(key, 'k', sizeof key);
    key[YOKE_STORE_KEY_LIMIT] = '\0';
    assert_int_equal(yoke_store_set(other, key, "x", 1), YOKE_ERROR_ARGUMENT);
    key[YOKE_STORE_KEY_LIMIT - 1] = '\0';
    assert_int_equal(yoke_store_set(other, key, large, YOKE_STORE_VALUE_LIMIT + 1),
                     YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_store_set(other, "", "x", 1), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_store_set(other, key, large, YOKE_STORE_VALUE_LIMIT), YOKE_OK);
    assert_int_equal(yoke_store_wait(keeper, key, back, 7, &bytes), YOKE_ERROR_ARGUMENT);
    assert_says("room for 7");
    assert_int_equal(yoke_store_wait(keeper, key, back, YOKE_STORE_VALUE_LIMIT, &bytes), YOKE_OK);
    assert_int_equal(bytes, YOKE_STORE_VALUE_LIMIT);
    assert_memory_equal(back, large, bytes);
    free(large);
    free(back);
    yoke_store_destroy(other);
    yoke_store_destroy(keeper);
}

static void check_deadline(void) {
    yoke_store *keeper = keep("run", NULL), *other = join(keeper);
    char value[8];
    size_t bytes;
    assert_int_equal(yoke_store_timeout(other, 50), PATIENT_MS);
    uint64_t begin = yoke_now_ns();
    assert_int_equal(yoke_store_wait(other, "late", value, sizeof value, &bytes),
                     YOKE_ERROR_TIMEOUT);
    assert_true(yoke_now_ns() - begin >= 50 * 1000000u);
    assert_says("\"late\"");
    assert_says("50 ms");
    yoke_store_timeout(other, 0);
    assert_int_equal(yoke_store_wait(other, "late", value, sizeof value, &bytes),
                     YOKE_ERROR_TIMEOUT);
    /* The wait that was given up must not answer another question. */
    assert_int_equal(yoke_store_set(keeper, "late", "L", 1), YOKE_OK);
    assert_int_equal(yoke_store_set(keeper, "next", "N", 1), YOKE_OK);
    yoke_store_timeout(other, PATIENT_MS);
    assert_value(other, "next", "N");
    assert_value(other, "late", "L");
    yoke_store_destroy(other);
    yoke_store_destroy(keeper);
}

typedef struct party {
    yoke_store_options options;
    int index;
    int64_t sum;
    yoke_error error;
} party;

static yoke_status speak(party *one, yoke_store *store) {
    char key[32], value[32];
    size_t bytes;
    snprintf(key, sizeof key, "from %d", one->index);
    TRY(yoke_store_set(store, key, key, strlen(key)));
    for (int i = 0; i < 20; i++)
        TRY(yoke_store_add(store, "sum", 1, &one->sum));
    snprintf(key, sizeof key, "from %d", (one->index + 1) % 4);
    return yoke_store_wait(store, key, value, sizeof value, &bytes);
}

static void *run_party(void *context) {
    party *one = context;
    yoke_store *store;
    yoke_status status = yoke_store_create(&store, &one->options);
    if (status == YOKE_OK) status = speak(one, store);
    one->error = yoke_error_take(status);
    yoke_store_destroy(store);
    return NULL;
}

static void check_parties(void) {
    yoke_store *keeper = keep("run", NULL);
    party parties[4] = {0};
    pthread_t threads[4];
    int64_t sum;
    const char *address = address_of(keeper);
    for (int i = 0; i < 4; i++) {
        parties[i].index = i;
        parties[i].options =
            (yoke_store_options){.address = address, .run_id = "run", .timeout_ms = PATIENT_MS};
        assert_int_equal(pthread_create(&threads[i], NULL, run_party, &parties[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        if (parties[i].error.status != YOKE_OK) fail_msg("%s", parties[i].error.text);
    }
    assert_int_equal(yoke_store_add(keeper, "sum", 0, &sum), YOKE_OK);
    assert_int_equal(sum, 80);
    yoke_store_destroy(keeper);
}

static void *destroy_soon(void *store) {
    poll(NULL, 0, 30);
    yoke_store_destroy(store);
    return NULL;
}

/* The keeper leaves while another waits. */
static void check_farewell(void) {
    yoke_store *keeper = keep("run", NULL), *other = join(keeper);
    char value[8];
    size_t bytes;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, destroy_soon, keeper), 0);
    assert_int_equal(yoke_store_wait(other, "never", value, sizeof value, &bytes), YOKE_ERROR_PEER);
    assert_says("has left");
    assert_int_not_equal(yoke_store_set(other, "a", "b", 1), YOKE_OK);
    yoke_store_destroy(other);
    pthread_join(thread, NULL);
}

static void check_other_run(void) {
    yoke_store *keeper = keep("run", NULL);
    assert_refused((yoke_store_options){.address = address_of(keeper), .run_id = "other"},
                   YOKE_ERROR_ARGUMENT, "run");
    yoke_store *other = join(keeper);
    yoke_store_destroy(other);
    yoke_store_destroy(keeper);
}

static void on_both(void (*check)(void)) {
    kind = "tcp";
    check();
    kind = "file";
    check();
}

static void values_are_set_once_and_sums_add(void **state) {
    (void)state;
    on_both(check_values);
}

static void keys_and_values_have_limits(void **state) {
    (void)state;
    on_both(check_limits);
}

static void a_wait_ends_at_its_deadline_and_names_the_key(void **state) {
    (void)state;
    on_both(check_deadline);
}

static void many_speak_at_once(void **state) {
    (void)state;
    on_both(check_parties);
}

static void a_waiting_rank_learns_that_the_keeper_left(void **state) {
    (void)state;
    on_both(check_farewell);
}

static void another_run_is_refused(void **state) {
    (void)state;
    on_both(check_other_run);
}

static void no_descriptor_is_left(void **state) {
    (void)state;
    int before = count_files("/proc/self/fd");
    on_both(check_values);
    on_both(check_other_run);
    assert_int_equal(count_files("/proc/self/fd"), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_set_once_and_sums_add),
        cmocka_unit_test(keys_and_values_have_limits),
        cmocka_unit_test(a_wait_ends_at_its_deadline_and_names_the_key),
        cmocka_unit_test(many_speak_at_once),
        cmocka_unit_test(a_waiting_rank_learns_that_the_keeper_left),
        cmocka_unit_test(another_run_is_refused),
        cmocka_unit_test(no_descriptor_is_left),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base);
}
