/* SPDX-License-Identifier: Apache-2.0 */
/* The processor's name and instruction sets. oneDNN's API names x86's instruction sets only, and
 * elsewhere answers with numbers that mean others. */
#include "device/cpu/processor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "device/cpu/cpu.h"

/* MIDR_EL1: who designed the core, and which one it is. */
typedef struct arm_core {
    unsigned implementer, part;
    const char *name;
} arm_core;

static const arm_core arm_cores[] = {
    {0x41, 0xd08, "Arm Cortex-A72"},    {0x41, 0xd0b, "Arm Cortex-A76"},
    {0x41, 0xd0c, "Arm Neoverse-N1"},   {0x41, 0xd40, "Arm Neoverse-V1"},
    {0x41, 0xd49, "Arm Neoverse-N2"},   {0x41, 0xd4f, "Arm Neoverse-V2"},
    {0x41, 0xd83, "Arm Neoverse-V3AE"}, {0x41, 0xd84, "Arm Neoverse-V3"},
    {0x41, 0xd8e, "Arm Neoverse-N3"},   {0x46, 0x001, "Fujitsu A64FX"},
};

static void name_arm_core(unsigned implementer, unsigned part, char *name, size_t size) {
    for (size_t i = 0; i < sizeof arm_cores / sizeof arm_cores[0]; i++) {
        if (arm_cores[i].implementer != implementer || arm_cores[i].part != part) continue;
        snprintf(name, size, "%s", arm_cores[i].name);
        return;
    }
    snprintf(name, size, "Arm core, implementer 0x%02x, part 0x%03x", implementer, part);
}

/* What follows the colon of a line that begins with `key`, or NULL. */
static const char *value_of(const char *line, const char *key) {
    if (strncmp(line, key, strlen(key)) != 0) return NULL;
    const char *colon = strchr(line, ':');
    return colon == NULL ? NULL : colon + 1 + strspn(colon + 1, " \t");
}

void cpu_processor_name(FILE *cpuinfo, char *name, size_t size) {
    char line[256];
    unsigned implementer = 0;
    snprintf(name, size, "processor");
    while (cpuinfo != NULL && fgets(line, sizeof line, cpuinfo) != NULL) {
        const char *model = value_of(line, "model name");
        const char *designer = value_of(line, "CPU implementer"),
                   *part = value_of(line, "CPU part");
        if (designer != NULL) implementer = (unsigned)strtoul(designer, NULL, 16);
        if (model != NULL) snprintf(name, size, "%.*s", (int)strcspn(model, "\n"), model);
        if (part != NULL) name_arm_core(implementer, (unsigned)strtoul(part, NULL, 16), name, size);
        if (model != NULL || part != NULL) return;
    }
}

#define DIGITS(number) DIGITS_OF(number)
#define DIGITS_OF(number) #number
#define DNNL_NAME                                                                                  \
    "oneDNN " DIGITS(DNNL_VERSION_MAJOR) "." DIGITS(DNNL_VERSION_MINOR) "." DIGITS(                \
        DNNL_VERSION_PATCH) ", OpenMP, "

#if defined(__x86_64__) || defined(__i386__)

static bool isa_includes(dnnl_cpu_isa_t isa) {
    return (dnnl_get_effective_cpu_isa() & isa) == isa;
}

bool cpu_computes_bfloat16(void) {
    return isa_includes(dnnl_cpu_isa_avx512_core_bf16);
}

bool cpu_has_avx512(void) {
    return isa_includes(dnnl_cpu_isa_avx512_core);
}

bool cpu_prefers_sgemm(void) {
    return !cpu_has_avx512();
}

static const char *describe_code(void) {
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *detail;
    } rows[] = {
        {dnnl_cpu_isa_avx512_core_amx, DNNL_NAME "AVX-512 and AMX with bfloat16"},
        {dnnl_cpu_isa_avx512_core_bf16, DNNL_NAME "AVX-512 with bfloat16"},
        {dnnl_cpu_isa_avx512_core, DNNL_NAME "AVX-512"},
        {dnnl_cpu_isa_avx2, DNNL_NAME "AVX2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (isa_includes(rows[i].isa)) return rows[i].detail;
    return DNNL_NAME "portable code";
}

#else

/* oneDNN has bfloat16 for some arm64 processors, from 3.6 on; Yoke's use of it is not tried. */
bool cpu_computes_bfloat16(void) {
    return false;
}

bool cpu_has_avx512(void) {
    return false;
}

bool cpu_prefers_sgemm(void) {
    return false;
}

static const char *describe_code(void) {
#ifdef __aarch64__
    return (getauxval(AT_HWCAP) & HWCAP_SVE) != 0 ? DNNL_NAME "SVE" : DNNL_NAME "NEON";
#else
    return DNNL_NAME "portable code";
#endif
}

#endif

bool yoke_cpu_describe(yoke_backend_info *info) {
    info->name = "cpu";
    info->detail = describe_code();
    return true;
}
