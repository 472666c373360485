/* SPDX-License-Identifier: Apache-2.0 */
/* This program links only if the libraries of this build have every function that Yoke looks up
 * at run time. Runs anywhere: it calls none that needs a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/cuda/library.h"

#define ADDRESS(call) (void (*)(void))(call),

static void (*const calls[])(void) = {CUDA_LT_CALLS(ADDRESS)
#ifdef YOKE_HAS_CUDNN
                                          CUDA_CUDNN_CALLS(ADDRESS) CUDA_CUDNN_GRAPH_CALLS(ADDRESS)
#endif
#ifdef YOKE_HAS_NCCL
                                              CUDA_NCCL_CALLS(ADDRESS)
#endif
};

static void every_call_is_in_its_library(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        assert_non_null(calls[i]);
    print_message("%zu calls\n", sizeof calls / sizeof calls[0]);
}

/* A header of another major version would be another interface under the same names. */
static void libraries_are_those_of_their_headers(void **state) {
    (void)state;
    assert_int_equal(cublasLtGetVersion() / 10000, CUBLAS_VER_MAJOR);
#ifdef YOKE_HAS_CUDNN
    assert_int_equal(cudnnGetVersion() / 10000, CUDNN_MAJOR);
#endif
#ifdef YOKE_HAS_NCCL
    int version = 0;
    assert_int_equal(ncclGetVersion(&version), ncclSuccess);
    assert_int_equal(version / 10000, NCCL_MAJOR);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_is_in_its_library),
        cmocka_unit_test(libraries_are_those_of_their_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
