/* A steady step allocates nothing: every call of the allocator is counted. Calls from shared
 * libraries (oneDNN makes an argument map per execution) are counted apart and must all be given
 * back. */
#include "engine_check.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define CAN_COUNT 0
#else
#define CAN_COUNT 1
#endif

static atomic_bool counting;
static atomic_long own_calls, foreign_calls, foreign_balance;

#if CAN_COUNT
/* Inlined, the return address would be the caller's caller. */
#define OUT_OF_LINE __attribute__((noinline))

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *pointer, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *pointer);
extern char __executable_start, etext; /* Yoke is linked statically into this program */

static void count(const void *caller, long balance) {
    if (!atomic_load_explicit(&counting, memory_order_relaxed)) return;
    if ((const char *)caller >= &__executable_start && (const char *)caller < &etext) {
        atomic_fetch_add(&own_calls, 1);
    } else {
        atomic_fetch_add(&foreign_calls, 1);
        atomic_fetch_add(&foreign_balance, balance);
    }
}

OUT_OF_LINE void *malloc(size_t bytes) {
    count(__builtin_return_address(0), 1);
    return __libc_malloc(bytes);
}

OUT_OF_LINE void *calloc(size_t number, size_t bytes) {
    count(__builtin_return_address(0), 1);
    return __libc_calloc(number, bytes);
}

OUT_OF_LINE void *realloc(void *pointer, size_t bytes) {
    count(__builtin_return_address(0), pointer == NULL);
    return __libc_realloc(pointer, bytes);
}

OUT_OF_LINE void *aligned_alloc(size_t alignment, size_t bytes) {
    count(__builtin_return_address(0), 1);
    return __libc_memalign(alignment, bytes);
}

OUT_OF_LINE int posix_memalign(void **pointer, size_t alignment, size_t bytes) {
    count(__builtin_return_address(0), 1);
    *pointer = __libc_memalign(alignment, bytes);
    return *pointer == NULL ? 12 : 0;
}

OUT_OF_LINE void *memalign(size_t alignment, size_t bytes) {
    count(__builtin_return_address(0), 1);
    return __libc_memalign(alignment, bytes);
}

OUT_OF_LINE void free(void *pointer) {
    if (pointer != NULL) count(__builtin_return_address(0), -1);
    __libc_free(pointer);
}
#endif

/* So that a counter that never counts would be noticed. */
static void counter_counts(void **state) {
    (void)state;
    if (!CAN_COUNT) skip();
    atomic_store(&counting, true);
    void *volatile pointer = malloc(24);
    free(pointer);
    atomic_store(&counting, false);
    assert_int_equal(atomic_exchange(&own_calls, 0), 2);
}

typedef struct counted_run {
    yoke_loader *loader;
    yoke_data_parallel *parallel;
} counted_run;

static void steps(counted_run run, int count) {
    for (int i = 0; i < count; i++) {
        yoke_batch batch = {.struct_size = sizeof batch};
        yoke_step_result result = {.struct_size = sizeof result};
        EXPECT_OK(yoke_loader_next(run.loader, &batch, NULL));
        EXPECT_OK(yoke_data_parallel_step(run.parallel, &batch, 0, &result));
    }
}

static void steady_steps_allocate_nothing(void **state) {
    (void)state;
    if (!CAN_COUNT) skip();
    yoke_dataset *dataset = NULL;
    EXPECT_OK(
        yoke_dataset_open(&dataset, "synthetic:3x16x16,classes=10,rows=200", YOKE_SPLIT_TRAIN));
    yoke_loader_options load = {.struct_size = sizeof load,
                                .batch = 12,
                                .shuffle = true,
                                .augment = YOKE_AUGMENT_CROP_FLIP};
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_preset(&model, "resnet20", (yoke_shape){3, 16, 16, false}, 10, NULL));
    for (int schedule = 0; schedule < 3; schedule++) {
        yoke_optimizer_options sgd = {
            .struct_size = sizeof sgd, .momentum = 0.9, .clip_norm = schedule == 1 ? 1 : 0};
        yoke_data_parallel_options options = {
            .schedule = (yoke_schedule)schedule, .batch = 12, .accumulate = 1 + schedule};
        check_engine engine = check_engine_make(model, 2, options, &sgd);
        counted_run run = {.parallel = engine.parallel};
        EXPECT_OK(yoke_loader_create(&run.loader, dataset, &load));
        EXPECT_OK(yoke_loader_begin(run.loader, 0));
        steps(run, 3);
        atomic_store(&counting, true);
        steps(run, 5);
        atomic_store(&counting, false);
        print_message("schedule %d: %ld calls by Yoke, %ld by libraries\n", schedule,
                      atomic_load(&own_calls), atomic_load(&foreign_calls));
        assert_int_equal(atomic_exchange(&own_calls, 0), 0);
        assert_int_equal(atomic_exchange(&foreign_balance, 0), 0);
        atomic_store(&foreign_calls, 0);
        yoke_loader_destroy(run.loader);
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
    yoke_dataset_close(dataset);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counter_counts),
        cmocka_unit_test(steady_steps_allocate_nothing),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
