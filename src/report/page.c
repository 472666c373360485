/* SPDX-License-Identifier: Apache-2.0 */
/* The page: facts and notes, a table of all runs, then every figure that has data. */
#include <stdlib.h>

#include "base/base.h"
#include "report/figures.h"

static void write_figures(yoke_markup *out, const yoke_report *report) {
    yoke_markup_open(out, "div");
    yoke_markup_attribute(out, "class", "figures");
    if (report->predictions == NULL) { /* a training run has one number of devices */
        yoke_figure_throughput(out, report);
        yoke_figure_step_time(out, report);
    }
    yoke_figure_timeline(out, report);
    yoke_figure_stages(out, report);
    yoke_figure_devices(out, report);
    yoke_figure_memory(out, report);
    yoke_figure_links(out, report);
    yoke_figure_moved(out, report);
    yoke_figure_curves(out, report);
    yoke_figure_rates(out, report);
    yoke_figure_predictions(out, report);
    yoke_markup_close(out);
}

yoke_status yoke_report_page(const yoke_report *report, char **page, size_t *bytes) {
    yoke_markup out = {0};
    *page = NULL;
    *bytes = 0;
    yoke_html_begin(&out, report->title[0] != '\0' ? report->title : "Yoke");
    for (int i = 0; i < report->note_count; i++)
        yoke_markup_element(&out, "p", "note", report->notes[i]);
    if (report->fact_count > 0) {
        yoke_markup_open(&out, "dl");
        yoke_markup_attribute(&out, "class", "facts");
        for (int i = 0; i < report->fact_count; i++) {
            yoke_markup_element(&out, "dt", NULL, report->facts[i].key);
            yoke_markup_element(&out, "dd", NULL, report->facts[i].value);
        }
        yoke_markup_close(&out);
    }
    yoke_figure_runs(&out, report);
    write_figures(&out, report);
    yoke_html_end(&out);
    if (out.failed || out.depth != 0) {
        yoke_markup_end(&out);
        return FAIL(YOKE_ERROR_MEMORY, "out of memory for a report's page");
    }
    *page = out.text;
    *bytes = out.length;
    return YOKE_OK;
}

static yoke_status write_text(const char *path, const char *text, size_t bytes) {
    yoke_file_writer writer;
    TRY(yoke_file_create(&writer, path));
    yoke_status status = yoke_file_write(&writer, text, bytes);
    if (status == YOKE_OK) status = yoke_file_commit(&writer);
    yoke_file_abort(&writer);
    return status;
}

yoke_status yoke_report_write(const yoke_report *report, const char *path) {
    char *page;
    size_t bytes;
    TRY(yoke_report_page(report, &page, &bytes));
    yoke_status status = write_text(path, page, bytes);
    yoke_free(page);
    return status;
}
