/* SPDX-License-Identifier: Apache-2.0 */
/* The page: its title and first picture, facts and notes, a table of all runs, every section that
 * has data, then the model as JSON and the script that draws it. */
#include <string.h>

#include "base/base.h"
#include "report/sections.h"

static void write_head(yoke_html *out, const yoke_report *report, const char *title) {
    yoke_html_write(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"
        "<meta name=\"color-scheme\" content=\"light dark\"/><title>%s</title>\n<style>",
        title);
    yoke_html_raw(out, yoke_page_style, strlen(yoke_page_style));
    yoke_html_write(out, "</style></head>\n<body><main><h1>%s</h1>", title);
    if (strcmp(title, report->subject) != 0)
        yoke_html_write(out, "<p class=\"subject\">%s</p>", report->subject);
    yoke_html_write(out, "\n<div class=\"chart first\" data-figure=\"first\"></div>");
    for (int i = 0; i < report->note_count; i++)
        yoke_html_write(out, "\n<p class=\"note\">%s</p>", report->notes[i]);
    if (report->fact_count == 0) return;
    yoke_html_write(out, "\n<dl class=\"facts\">");
    for (int i = 0; i < report->fact_count; i++)
        yoke_html_write(out, "<dt>%s</dt><dd>%s</dd>", report->facts[i].key,
                        report->facts[i].value);
    yoke_html_write(out, "</dl>");
}

yoke_status yoke_report_page(const yoke_report *report, char **page, size_t *bytes) {
    yoke_html out = {0};
    char title[YOKE_TEXT_BYTES];
    *page = NULL;
    *bytes = 0;
    write_head(&out, report, yoke_page_title(report, title));
    yoke_section_runs(&out, report);
    yoke_html_write(&out, "\n<div class=\"figures\">");
    yoke_section_timeline(&out, report);
    yoke_section_stages(&out, report);
    yoke_section_devices(&out, report);
    if (report->predictions == NULL) { /* a training run has one number of devices */
        yoke_section_scaling(&out, report, true);
        yoke_section_scaling(&out, report, false);
    }
    yoke_section_amounts(&out, report);
    yoke_section_curves(&out, report);
    yoke_section_rates(&out, report);
    yoke_section_predictions(&out, report);
    yoke_html_write(&out, "</div></main>\n<script type=\"application/json\" id=\"yoke-page\">");
    yoke_page_json(&out, report, title);
    yoke_html_write(&out, "</script>\n<script>");
    yoke_html_raw(&out, yoke_page_script, strlen(yoke_page_script));
    yoke_html_write(&out, "</script></body></html>\n");
    if (out.failed || report->failed) {
        yoke_html_end(&out);
        return FAIL(YOKE_ERROR_MEMORY, "out of memory for a report's page");
    }
    *page = out.text;
    *bytes = out.length;
    return YOKE_OK;
}

yoke_status yoke_report_write(const yoke_report *report, const char *path) {
    char *page;
    size_t bytes;
    TRY(yoke_report_page(report, &page, &bytes));
    yoke_file_writer writer;
    yoke_status status = yoke_file_create(&writer, path);
    if (status == YOKE_OK) status = yoke_file_write(&writer, page, bytes);
    if (status == YOKE_OK) status = yoke_file_commit(&writer);
    yoke_free(page);
    return status;
}

yoke_status yoke_report_finish(yoke_report *report, yoke_status filled, const char *path) {
    yoke_status status = filled == YOKE_OK ? yoke_report_write(report, path) : filled;
    yoke_report_clear(report);
    return status;
}
