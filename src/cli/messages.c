/* SPDX-License-Identifier: Apache-2.0 */
/* How verbs refuse, fail and print texts of others. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static char refusal[1400];

yoke_status cli_refuse(yoke_status status, const char *format, ...) {
    va_list arguments;
    if (refusal[0] != '\0') return status;
    va_start(arguments, format);
    vsnprintf(refusal, sizeof refusal, format, arguments);
    va_end(arguments);
    yoke_text_make_printable(refusal); /* as the library's errors */
    return status;
}

const char *cli_failure(yoke_status status) {
    const char *text = refusal[0] != '\0' ? refusal : yoke_last_error();
    return text[0] != '\0' ? text : yoke_status_name(status);
}

int cli_fail(yoke_status status) {
    const char *text = cli_failure(status);
    fprintf(stderr, "yoke: %s\n", text);
    if (strstr(text, "yoke_dataset_skip_bad") != NULL)
        fprintf(stderr, "yoke: --skip-bad calls it and names the files\n");
    return yoke_status_exit_code(status);
}

int cli_system_error(const char *what) {
    fprintf(stderr, "yoke: %s: %s\n", what, strerror(errno));
    return yoke_status_exit_code(YOKE_ERROR_SYSTEM);
}

int cli_print_character(FILE *out, const char **text) {
    size_t bytes = yoke_text_utf8_bytes(*text);
    uint32_t code = bytes > 0 ? yoke_text_code(*text, bytes) : (unsigned char)**text;
    const char *from = *text;
    *text += bytes > 0 ? bytes : 1;
    if (bytes > 0 && !yoke_text_steers(code)) return fwrite(from, 1, bytes, out) > 0;
    return fprintf(out, code < 0x100 ? "\\x%02x" : "\\u%04X", (unsigned)code);
}

void cli_print_text(FILE *out, const char *text, int width) {
    while (*text != '\0')
        width -= cli_print_character(out, &text);
    fprintf(out, "%*s", width > 0 ? width : 0, "");
}

yoke_status cli_print_json(yoke_json *json, FILE *out) {
    yoke_status status = YOKE_OK;
    if (json->failed)
        status = cli_refuse(YOKE_ERROR_MEMORY, "no memory for the result as JSON");
    else
        fprintf(out, "%s\n", json->text);
    yoke_json_end(json);
    return status;
}
