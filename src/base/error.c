/* SPDX-License-Identifier: Apache-2.0 */
/* One line of text per thread. The function that knows the cause writes it; its callers pass the
 * status on. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static _Thread_local char line[YOKE_ERROR_TEXT_BYTES];
static _Thread_local unsigned serial;

/* Messages quote names from files and command lines, which must not steer a terminal or break the
 * message into lines. */
static void __attribute__((format(printf, 1, 0))) set_line(const char *format, va_list arguments) {
    char text[YOKE_ERROR_TEXT_BYTES]; /* the arguments may point into the line itself */
    vsnprintf(text, sizeof text, format, arguments);
    yoke_text_make_printable(text);
    memcpy(line, text, sizeof line);
    serial++;
}

yoke_status yoke_error_set(yoke_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    set_line(format, arguments);
    va_end(arguments);
    return status;
}

yoke_status yoke_error_raise(yoke_status status, const char *format, ...) {
    va_list arguments;
    if (format == NULL) yoke_error_forget();
    if (format == NULL) return status;
    va_start(arguments, format);
    set_line(format, arguments);
    va_end(arguments);
    return status;
}

unsigned yoke_error_serial(void) {
    return serial;
}

void yoke_error_prefix(const char *format, ...) {
    char text[YOKE_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    yoke_text_make_printable(text);
    strncat(text, ": ", sizeof text - strlen(text) - 1);
    strncat(text, line, sizeof text - strlen(text) - 1);
    memcpy(line, text, sizeof line);
}

yoke_status yoke_memory_advice(yoke_status status, const char *advice) {
    size_t length = strlen(line);
    if (status == YOKE_ERROR_MEMORY) snprintf(line + length, sizeof line - length, "; %s", advice);
    return status;
}

yoke_error yoke_error_take(yoke_status status) {
    yoke_error error = {.status = status};
    memcpy(error.text, line, sizeof error.text);
    return error;
}

yoke_status yoke_error_restore(const yoke_error *error) {
    memcpy(line, error->text, sizeof line);
    serial++;
    return error->status;
}

void yoke_error_forget(void) {
    line[0] = '\0';
}

yoke_status yoke_error_of_host(yoke_status status, const char *who) {
    if (status == YOKE_OK) return YOKE_OK;
    if (line[0] == '\0') return FAIL(status, "%s returned %s", who, yoke_status_name(status));
    yoke_error_prefix("%s", who);
    return status;
}

const char *yoke_last_error(void) {
    return line;
}

const char *yoke_status_name(yoke_status status) {
    switch (status) {
#define NAME(name, text, exit_code)                                                                \
    case name:                                                                                     \
        return #name;
        YOKE_STATUS_TABLE(NAME)
#undef NAME
    }
    return "unknown status";
}

int yoke_status_exit_code(yoke_status status) {
    switch (status) {
#define EXIT_CODE(name, text, exit_code)                                                           \
    case name:                                                                                     \
        return exit_code;
        YOKE_STATUS_TABLE(EXIT_CODE)
#undef EXIT_CODE
    }
    return 70; /* as for YOKE_ERROR_INTERNAL */
}

#define QUOTE(number) #number
#define VERSION(major, minor, patch) QUOTE(major) "." QUOTE(minor) "." QUOTE(patch)

const char *yoke_version(void) {
    return VERSION(YOKE_VERSION_MAJOR, YOKE_VERSION_MINOR, YOKE_VERSION_PATCH);
}
