/* SPDX-License-Identifier: Apache-2.0 */
/* The probe's program: its questions, each asked in a process of its own, and its options. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe/probe.h"

#define SKIPPED 77
/* What a late question has to end its measurement: seconds, and a part of all the time. */
#define GRACE_SECONDS 2.0
#define GRACE_PART 0.04

/* Exit codes of a process that asks one question. */
enum { COMPLETE, FAILED, WRONG, LEFT_OUT };

static yoke_status describe(gpu_probe *probe) {
    char facts[512];
    probe_row row = PROBE_ROW_INIT;
    yoke_device_facts(&probe->device->base, facts, sizeof facts);
    if (!probe_ask(probe, "device", facts, NULL)) return YOKE_OK;
    row.section = "device";
    row.what = facts;
    row.detail = cuda_library_detail("cudnn");
    row.variant = cuda_library_detail("cublasLt");
    probe_print(probe, &row);
    probe_answered(probe, "device", facts, NULL);
    return YOKE_OK;
}

/* The most decisive first; what one leaves of its share the next ones have. */
static const struct {
    const char *name, *about;
    double share; /* of the time */
    bool bare;    /* opens its devices itself */
    yoke_status (*ask)(gpu_probe *probe);
} questions[] = {
    {"device", "the GPU and its libraries", 3, false, describe},
    {"queries", "a host's queries of an event that a graph records", 3, false, probe_queries},
    {"poison", "what still works after a kernel's __trap()", 6, true, probe_poison},
    {"plans", "the plans of cuDNN's backend for the layers of ResNet-50", 20, false, probe_plans},
    {"stem", "the stem of ResNet-50 with 3, 4 and 8 channels", 8, false, probe_stem},
    {"epilogues", "cuBLASLt's epilogues by type", 6, false, probe_epilogues},
    {"events", "a stream's waits for events that a graph records, and their times", 2, false,
     probe_events},
    {"launches", "what launching a graph costs the host", 2, false, probe_launches}};
#define QUESTIONS (sizeof questions / sizeof questions[0])

typedef struct settings {
    const char *device, *json, *missing;
    bool only[QUESTIONS], some, list;
    int asked; /* this process asks one question: its index; -1: it asks all, in others */
    int hangs; /* for a test: the question that never ends; -1: none */
} settings;

/* One question, in this process. */

static yoke_status ask_on(gpu_probe *probe, yoke_devices *devices, int question) {
    yoke_device_scope scope;
    probe->device = cuda_of(yoke_devices_at(devices, 0));
    TRY(yoke_device_enter(&probe->device->base, false, &scope));
    yoke_status status = question == 0 ? YOKE_OK : probe_warm_up(probe);
    if (status == YOKE_OK) status = questions[question].ask(probe);
    yoke_device_leave(&probe->device->base, &scope);
    return status;
}

static int code_of(const gpu_probe *probe, const char *name, yoke_status status) {
    probe_row row = PROBE_ROW_INIT;
    if (status == YOKE_OK)
        return probe->wrong > 0 ? WRONG : probe->left_out > 0 ? LEFT_OUT : COMPLETE;
    row.section = "question";
    row.what = name;
    row.detail = yoke_last_error();
    row.verdict = "failed";
    probe_print(probe, &row);
    return FAILED;
}

static int ask_one(gpu_probe *probe, const settings *given) {
    const char *name = questions[given->asked].name;
    yoke_devices *devices = NULL;
    yoke_devices_options options = {.struct_size = sizeof options, .list = given->device};
    while (given->asked == given->hangs)
        pause();
    if (questions[given->asked].bare) {
        int count = 0;
        if (cudaGetDeviceCount(&count) != cudaSuccess || count <= probe->number) return SKIPPED;
        return code_of(probe, name, questions[given->asked].ask(probe));
    }
    if (yoke_devices_open(&devices, &options) != YOKE_OK) {
        fprintf(stderr, "gpu_probe: %s\n", yoke_last_error());
        return SKIPPED;
    }
    int code = code_of(probe, name, ask_on(probe, devices, given->asked));
    yoke_devices_close(devices);
    return code;
}

/* All of them, in others. */

/* A process that was killed may have left a part of a line. */
static void cut_broken_line(const gpu_probe *probe) {
    off_t end = probe->json >= 0 ? lseek(probe->json, 0, SEEK_END) : 0, whole = end;
    char last = '\n';
    while (whole > 0 && pread(probe->json, &last, 1, whole - 1) == 1 && last != '\n')
        whole--;
    if (whole < end && ftruncate(probe->json, whole) != 0)
        fprintf(stderr, "gpu_probe: the file of --json ends with a broken line\n");
}

/* What became of a question. failed: the probe fails. */
static void note(gpu_probe *probe, const char *name, probe_end end, int code, bool *failed) {
    char detail[64];
    probe_row row = PROBE_ROW_INIT;
    if (end == PROBE_EXITED && code == COMPLETE) probe_answered(probe, "question", name, NULL);
    probe->wrong += end == PROBE_EXITED && code == WRONG;
    probe->left_out += end == PROBE_KILLED || (end == PROBE_EXITED && code == LEFT_OUT);
    if (end == PROBE_EXITED && code <= LEFT_OUT) {
        *failed = *failed || code == FAILED;
        return;
    }
    cut_broken_line(probe);
    snprintf(detail, sizeof detail, end == PROBE_EXITED ? "exit code %d" : "signal %d", code);
    row.section = "question";
    row.what = name;
    row.detail = end == PROBE_KILLED ? "it did not end" : detail;
    row.verdict = end == PROBE_KILLED ? "killed at its deadline" : "failed";
    probe_print(probe, &row);
    *failed = *failed || end != PROBE_KILLED;
}

/* Out: *skip: no device can be opened. */
static yoke_status ask_in_child(gpu_probe *probe, char **argv, size_t question, double ends,
                                bool *failed, bool *skip) {
    char name[32], seconds[32], ask[] = "--ask", until[] = "--seconds";
    double left = fmax(ends - probe_seconds(probe), 0.001);
    probe_end end;
    int code;
    snprintf(name, sizeof name, "%s", questions[question].name);
    snprintf(seconds, sizeof seconds, "%.3f", left);
    char *const extra[] = {ask, name, until, seconds, NULL};
    TRY(probe_run_child(argv, extra, left + GRACE_SECONDS + GRACE_PART * probe->seconds, &end,
                        &code));
    *skip = end == PROBE_EXITED && code == SKIPPED;
    if (!*skip) note(probe, name, end, code, failed);
    return YOKE_OK;
}

static double share_of(const settings *given, size_t question) {
    return given->only[question] || !given->some ? questions[question].share : 0;
}

static yoke_status ask_all(gpu_probe *probe, const settings *given, char **argv, bool *failed,
                           bool *skip) {
    double all = 0, until = 0;
    for (size_t i = 0; i < QUESTIONS; i++)
        all += share_of(given, i);
    for (size_t i = 0; i < QUESTIONS && !*skip; i++) {
        until += share_of(given, i);
        double ends = probe->seconds * until / all;
        if (share_of(given, i) > 0 && probe_ask(probe, "question", questions[i].name, NULL))
            TRY(ask_in_child(probe, argv, i, ends, failed, skip));
    }
    return YOKE_OK;
}

static void finish(const gpu_probe *probe, bool failed) {
    probe_row row = PROBE_ROW_INIT;
    row.section = "end";
    row.what = "all questions";
    row.verdict = failed                ? "failed"
                  : probe->wrong > 0    ? "wrong results"
                  : probe->left_out > 0 ? "no time for all of it; more: --seconds, --missing"
                                        : "complete";
    row.value = probe_seconds(probe);
    row.unit = "s";
    probe_print(probe, &row);
}

static int ask_everything(gpu_probe *probe, const settings *given, char **argv) {
    bool failed = false, skip = false;
    if (ask_all(probe, given, argv, &failed, &skip) != YOKE_OK) {
        fprintf(stderr, "gpu_probe: %s\n", yoke_last_error());
        failed = true;
    }
    if (skip) return SKIPPED;
    finish(probe, failed);
    return failed || probe->wrong > 0 ? 1 : 0;
}

/* Options. */

static int usage(const char *given) {
    fprintf(stderr,
            "gpu_probe: %s\n"
            "usage: gpu_probe [--json FILE] [--missing FROM] [--only NAME]... [--list]\n"
            "                 [--device cuda:N] [--rows N] [--precision float32|tf32|bfloat16]\n"
            "                 [--seconds X] [--tiny]\n"
            "FILE gets one JSON object a line. --missing: asks what the lines of FROM leave open\n"
            "and copies the others; FROM may be FILE. --rows: of the convolutions (256).\n"
            "--seconds: when no more measurements begin (50). --tiny: shapes for a simulated\n"
            "GPU.\n",
            given);
    return 64;
}

static bool read_precision(gpu_probe *probe, const char *text) {
    static const yoke_precision all[] = {YOKE_FLOAT32, YOKE_TF32, YOKE_BFLOAT16};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(text, yoke_precision_name(all[i])) == 0) {
            probe->precision = all[i];
            return true;
        }
    return false;
}

/* -1: no question has the name. */
static int question_of(const char *name) {
    for (size_t i = 0; i < QUESTIONS; i++)
        if (strcmp(questions[i].name, name) == 0) return (int)i;
    return -1;
}

static bool take_only(settings *given, const char *name) {
    int question = question_of(name);
    if (question < 0) return false;
    given->only[question] = given->some = true;
    return true;
}

static bool take_number(const char *value, int64_t lowest, int64_t most, int *number) {
    int64_t read;
    if (!yoke_text_integer(value, lowest, most, &read)) return false;
    *number = (int)read;
    return true;
}

/* The list of one device. */
static bool take_device(gpu_probe *probe, settings *given, const char *value) {
    given->device = value;
    return strncmp(value, "cuda:", 5) == 0 && take_number(value + 5, 0, 1023, &probe->number);
}

/* Takes an option's value; false: it has no such value. */
static bool take(gpu_probe *probe, settings *given, const char *name, const char *value) {
    if (strcmp(name, "--json") == 0)
        given->json = value;
    else if (strcmp(name, "--missing") == 0)
        given->missing = value;
    else if (strcmp(name, "--only") == 0)
        return take_only(given, value);
    else if (strcmp(name, "--ask") == 0) /* how the program calls itself */
        return (given->asked = question_of(value)) >= 0;
    else if (strcmp(name, "--hang") == 0)
        return (given->hangs = question_of(value)) >= 0;
    else if (strcmp(name, "--device") == 0)
        return take_device(probe, given, value);
    else if (strcmp(name, "--precision") == 0)
        return read_precision(probe, value);
    else if (strcmp(name, "--seconds") == 0)
        return yoke_text_real(value, 0.001, 86400, &probe->seconds);
    else if (strcmp(name, "--rows") == 0)
        return take_number(value, 1, 4096, &probe->rows);
    else
        return false;
    return true;
}

/* NULL, or the option that is none. */
static const char *read_options(gpu_probe *probe, settings *given, char **argv) {
    for (char **at = argv + 1; *at != NULL; at++) {
        if (strcmp(*at, "--tiny") == 0) {
            probe->tiny = true;
        } else if (strcmp(*at, "--list") == 0) {
            given->list = true;
        } else {
            if (at[1] == NULL || !take(probe, given, at[0], at[1])) return *at;
            at++;
        }
    }
    return NULL;
}

static int list_questions(void) {
    for (size_t i = 0; i < QUESTIONS; i++)
        printf("%-9s  %s\n", questions[i].name, questions[i].about);
    return 0;
}

static int cannot_open(const char *path, const char *why) {
    fprintf(stderr, "gpu_probe: %s: %s; name a file that can be written\n", path, why);
    return 73;
}

static int run(gpu_probe *probe, const settings *given, char **argv) {
    bool first = given->asked < 0;
    if (given->missing != NULL && probe_read_known(probe, given->missing) != YOKE_OK) {
        fprintf(stderr, "gpu_probe: %s; --missing takes the file of an earlier --json\n",
                yoke_last_error());
        return 66;
    }
    if (given->json != NULL) {
        if (first && probe_write_known(probe, given->json) != YOKE_OK)
            return cannot_open(given->json, yoke_last_error());
        probe->json = open(given->json, O_RDWR | O_APPEND | O_CLOEXEC);
        if (probe->json < 0) return cannot_open(given->json, strerror(errno));
    }
    int code = first ? ask_everything(probe, given, argv) : ask_one(probe, given);
    if (probe->json >= 0 && close(probe->json) != 0) return 1;
    return code;
}

int main(int argc, char **argv) {
    gpu_probe probe = {.json = -1, .rows = 256, .seconds = 50, .precision = YOKE_BFLOAT16};
    settings given = {.device = "cuda:0", .asked = -1, .hangs = -1};
    (void)argc;
    probe.begin_ns = yoke_now_ns();
    const char *unknown = read_options(&probe, &given, argv);
    if (unknown != NULL) return usage(unknown);
    if (given.list) return list_questions();
    int code = run(&probe, &given, argv);
    free(probe.known);
    return code;
}
