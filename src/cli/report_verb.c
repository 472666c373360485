/* SPDX-License-Identifier: Apache-2.0 */
/* yoke report: the page of files that other runs wrote. */
#include <stddef.h>

#include "cli/cli.h"
#include "report/report.h"

#define FILES_MAX 32

typedef struct report_flags {
    const char *html;
} report_flags;

static const cli_option options[] = {
    {"html", "FILE", "the page; default report.html", CLI_FIELD(report_flags, html)},
};

const cli_verb report_verb = {
    .name = "report",
    .operands = "FILE...",
    .summary = "make one HTML page of traces and metrics",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more = "FILEs are what --trace and --metrics of 'yoke train' wrote, in any mixture; each\n"
            "becomes a run of the page. What is cut short is read as far as it goes, with a\n"
            "note on the page. The page needs no network; without a script it has\n"
            "sentences and tables, and no figures.\n"};

int report_main(int argc, char **argv) {
    report_flags flags = {.html = "report.html"};
    int operands = 0, code = cli_parse(&report_verb, argc, argv, &flags, &operands);
    if (code >= 0) return code;
    if (operands < 1) return cli_usage_error("report", "report takes FILE...");
    if (operands > FILES_MAX)
        return cli_usage_error("report", "%d files, a page has %d at most", operands, FILES_MAX);
    yoke_report report = {.subject = "Yoke: a report"};
    yoke_used_file files[FILES_MAX + 1] = {{"--html", flags.html, YOKE_FILE_WRITTEN}};
    for (int i = 1; i <= operands; i++)
        files[i] = (yoke_used_file){"the file", argv[i], YOKE_FILE_READ};
    yoke_status status = yoke_files_check_apart(files, operands + 1);
    for (int i = 1; i <= operands && status == YOKE_OK; i++)
        status = yoke_report_read_file(&report, argv[i]);
    status = yoke_report_finish(&report, status, flags.html);
    if (status != YOKE_OK) return cli_fail(status);
    printf("%s\n", flags.html);
    return 0;
}
