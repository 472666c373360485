/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor/foreign_files.h"

#include <string.h>

#define HOW "yoke doctor reads what torch.profiler's export_chrome_trace writes"

typedef struct foreign_bytes {
    const char *begin;
    size_t count;
    const char *what;
} foreign_bytes;

#define BYTES(text) text, sizeof text - 1

static const foreign_bytes files[] = {
    {BYTES("SQLite format 3"), "a database of SQLite, as 'nsys export --type sqlite' writes it"},
    {BYTES("PERFILE2"), "a record of Linux' perf"},
    {BYTES("QUADD"), "a report of Nsight Systems"},
    {BYTES("\x7f"
           "ELF"),
     "a program"},
    {BYTES("PK\003\004"), "a ZIP file; unpack it"},
    {BYTES("\x28\xb5\x2f\xfd"), "packed by zstd; unpack it, or pack it by gzip"},
    {BYTES("\x80\x02"), "a file of Python's pickle, as torch.save or a memory snapshot writes it"},
    {BYTES("\x80\x04"), "a file of Python's pickle, as torch.save or a memory snapshot writes it"},
    {BYTES("<"), "HTML or XML"},
};

yoke_status foreign_bytes_check(const char *name, const char *text, size_t bytes) {
    size_t at = 0;
    if (bytes == 0) return FAIL(YOKE_ERROR_DATA, "%s: the file is empty; " HOW, name);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (bytes >= files[i].count && memcmp(text, files[i].begin, files[i].count) == 0)
            return FAIL(YOKE_ERROR_DATA, "%s is no JSON but %s; " HOW, name, files[i].what);
    while (at < bytes && strchr(" \t\r\n", text[at]) != NULL && text[at] != '\0')
        at++;
    if (at < bytes && text[at] != '{' && text[at] != '[')
        return FAIL(YOKE_ERROR_DATA, "%s is no JSON: it begins with byte %02x; " HOW, name,
                    (unsigned char)text[at]);
    return YOKE_OK;
}

/* A member's name, a text in its value or NULL, and who writes it. */
static const struct {
    const char *key, *holds, *what;
} members[] = {
    {"otherData", "\"yoke\"", "Yoke's own trace: 'yoke report FILE' reads it"},
    {"linux-perf-json-version", NULL, "of Linux' perf (perf data convert --to-json)"},
    {"yoke_profile", NULL, "a profile: 'yoke simulate FILE' reads it"},
    {"NvtxEvent", NULL, "of Nsight Systems (nsys export --type json)"},
    {"CudaEvent", NULL, "of Nsight Systems (nsys export --type json)"},
    {"Type", NULL, "of Nsight Systems (nsys export --type json)"},
    {"metadata", "\"clock-domain\"", "Chrome's own trace"},
    {"metadata", "DevTools", "Chrome's own trace"},
    {"systemTraceEvents", NULL, "Chrome's or Android's own trace"},
    {"nodes", NULL, "of Chrome's processor profiler"},
    {"meta", NULL, "of the Firefox Profiler"},
    {"yoke_page", NULL, "the data of one of Yoke's pages"},
};

yoke_status foreign_member_check(const char *name, const char *key, const char *value,
                                 size_t bytes) {
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *holds = members[i].holds;
        if (strcmp(key, members[i].key) != 0) continue;
        if (holds != NULL && (bytes == 0 || memmem(value, bytes, holds, strlen(holds)) == NULL))
            continue;
        return FAIL(YOKE_ERROR_DATA, "%s is another tool's file: %s; " HOW, name, members[i].what);
    }
    return YOKE_OK;
}
