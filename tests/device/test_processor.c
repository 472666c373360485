/* SPDX-License-Identifier: Apache-2.0 */
/* The processor's name, from what /proc/cpuinfo says on several machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/processor.h"

static void expect_name(const char *cpuinfo, const char *expected) {
    char name[96];
    FILE *file = fmemopen((void *)(uintptr_t)cpuinfo, strlen(cpuinfo), "r");
    assert_non_null(file);
    cpu_processor_name(file, name, sizeof name);
    fclose(file);
    assert_string_equal(name, expected);
}

static void x86_tells_its_model(void **state) {
    (void)state;
    expect_name("processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9654\n\nmodel name\t: B\n",
                "AMD EPYC 9654");
}

static void arm_cores_are_known_by_their_numbers(void **state) {
    (void)state;
    expect_name("processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\n"
                "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n",
                "Arm Neoverse-V2");
    expect_name("CPU implementer\t: 0x46\nCPU part\t: 0x001\n", "Fujitsu A64FX");
}

static void an_unknown_arm_core_is_told_from_others(void **state) {
    (void)state;
    expect_name("CPU implementer\t: 0xc0\nCPU part\t: 0xac3\n",
                "Arm core, implementer 0xc0, part 0xac3");
    expect_name("CPU implementer\t: 0x48\nCPU part\t: 0xd4f\n",
                "Arm core, implementer 0x48, part 0xd4f");
}

static void an_unknown_machine_has_a_processor(void **state) {
    (void)state;
    char name[96];
    expect_name("hart\t: 0\nmodel name", "processor");
    cpu_processor_name(NULL, name, sizeof name);
    assert_string_equal(name, "processor");
}

static void a_long_name_is_cut(void **state) {
    (void)state;
    char name[8], text[] = "model name : a processor of a long name";
    FILE *file = fmemopen(text, sizeof text - 1, "r");
    assert_non_null(file);
    cpu_processor_name(file, name, sizeof name);
    fclose(file);
    assert_string_equal(name, "a proce");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(x86_tells_its_model),
        cmocka_unit_test(arm_cores_are_known_by_their_numbers),
        cmocka_unit_test(an_unknown_arm_core_is_told_from_others),
        cmocka_unit_test(an_unknown_machine_has_a_processor),
        cmocka_unit_test(a_long_name_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
