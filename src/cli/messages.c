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
    /* As the library's errors: names from files must not steer a terminal. */
    for (char *at = refusal; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
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

void cli_print_text(FILE *out, const char *text, int width) {
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0'; s++, width--) {
        bool upper = s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0; /* U+0080 to U+009F */
        s += upper;
        if (upper || *s < 0x20 || *s == 0x7f)
            width -= fprintf(out, "\\x%02x", *s) - 1;
        else
            fputc(*s, out);
    }
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
