/* SPDX-License-Identifier: Apache-2.0 */
/* Sized structs across versions: what both sides know is copied, what this side does not know must
 * be zero. */
#include "base/options.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"

yoke_status yoke_pointer_check(const void *given, const char *name) {
    return given != NULL ? YOKE_OK : FAIL(YOKE_ERROR_ARGUMENT, "%s is NULL", name);
}

yoke_status yoke_process_check(pid_t process, const char *what) {
    if (getpid() == process) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "process %d made %s, and a forked child has none of its threads; create another in "
                "the child",
                (int)process, what);
}

/* How much a newer version may have added to a struct; a larger struct_size was never set. Options
 * are only read; a result is cleared to its end, so that one which has 2000 there by chance would
 * lose what lies behind it on the caller's stack. */
#define OPTIONS_GROWTH_BYTES 4096
#define RESULT_GROWTH_BYTES 64

static yoke_status check_size(size_t given_size, size_t own_size, size_t growth,
                              const char *type_name) {
    if (given_size >= sizeof(size_t) && given_size <= own_size + growth) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s.struct_size is %zu: set it to sizeof(%s), which is %zu here", type_name,
                given_size, type_name, own_size);
}

static bool all_zero(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

yoke_status yoke_options_load(void *own, size_t own_size, const void *given,
                              const char *type_name) {
    memset(own, 0, own_size);
    if (given != NULL) {
        size_t given_size;
        memcpy(&given_size, given, sizeof given_size);
        TRY(check_size(given_size, own_size, OPTIONS_GROWTH_BYTES, type_name));
        if (given_size > own_size &&
            !all_zero((const unsigned char *)given + own_size, given_size - own_size)) {
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "%s: the caller sets a field that this library (%s) does not know; leave "
                        "fields beyond byte %zu zero or use a newer library",
                        type_name, yoke_version(), own_size);
        }
        memcpy(own, given, given_size < own_size ? given_size : own_size);
    }
    memcpy(own, &own_size, sizeof own_size);
    return YOKE_OK;
}

yoke_status yoke_options_store(void *given, const void *own, size_t own_size,
                               const char *type_name) {
    size_t given_size;
    TRY(yoke_pointer_check(given, type_name));
    memcpy(&given_size, given, sizeof given_size);
    TRY(check_size(given_size, own_size, RESULT_GROWTH_BYTES, type_name));
    memset(given, 0, given_size);
    memcpy(given, own, given_size < own_size ? given_size : own_size);
    memcpy(given, &given_size, sizeof given_size);
    return YOKE_OK;
}

/* Tables. */

bool yoke_option_text(const yoke_option_table *table, int row, const void *owner,
                      char text[YOKE_OPTION_BYTES]) {
    const yoke_option *option = &table->rows[row];
    const void *field = (const char *)owner + option->offset;
    bool yes = false;
    if (option->applies != NULL && !option->applies(owner)) return false;
    switch (option->kind) {
    case YOKE_OPTION_WRITTEN:
        table->write(owner, option->offset, text);
        return true;
    case YOKE_OPTION_REAL:
        yoke_text_of_real(*(const double *)field, text, YOKE_OPTION_BYTES);
        return true;
    case YOKE_OPTION_INTEGER:
        snprintf(text, YOKE_OPTION_BYTES, "%d", *(const int *)field);
        return true;
    case YOKE_OPTION_UNSIGNED:
        snprintf(text, YOKE_OPTION_BYTES, "%" PRIu64, *(const uint64_t *)field);
        return true;
    case YOKE_OPTION_TEXT:
        field = *(const char *const *)field;
        snprintf(text, YOKE_OPTION_BYTES, "%s", field != NULL ? (const char *)field : "none");
        return true;
    case YOKE_OPTION_WORD:
        snprintf(text, YOKE_OPTION_BYTES, "%s", option->words[*(const int *)field]);
        return true;
    case YOKE_OPTION_FLAG:
        yes = *(const bool *)field;
        break;
    case YOKE_OPTION_GIVEN:
        yes = *(const void *const *)field != NULL;
        break;
    }
    snprintf(text, YOKE_OPTION_BYTES, "%s", yes ? "yes" : "no");
    return true;
}

void yoke_options_write_agreed(FILE *out, const yoke_option_table *table, const void *owner) {
    char text[YOKE_OPTION_BYTES];
    for (int i = 0; i < table->count; i++) {
        const yoke_option *row = &table->rows[i];
        if ((row->uses & YOKE_OPTION_AGREES) != 0 && yoke_option_text(table, i, owner, text))
            fprintf(out, "%s %s\n", row->name, text);
    }
}
