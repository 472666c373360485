/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a student's results. */
#include "cli/lesson/lesson_results.h"

#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

#define FILE_LIMIT ((size_t)4 << 20)
#define FORMAT 1
#define NAME_LIMIT 200
#define TIMES_MOST 1e9
#define LOCK_S 5

static const char *const kinds[] = {"number", "yes or no", "order"};

static json_t *truth_json(const lesson_result *result) {
    if (result->question->kind == LESSON_NUMBER) return json_real(result->truth.value);
    if (result->question->kind == LESSON_YES_NO) return json_boolean(result->truth.value != 0);
    json_t *values = json_object();
    for (int i = 0; i < result->truth.count; i++)
        json_object_set_new(values, result->truth.names[i], json_real(result->truth.values[i]));
    return values;
}

static json_t *answer_json(const lesson_result *result) {
    if (result->question->kind == LESSON_NUMBER) return json_real(result->answer.value);
    if (result->question->kind == LESSON_YES_NO) return json_boolean(result->answer.value != 0);
    json_t *order = json_array();
    for (int i = 0; i < result->answer.count; i++)
        json_array_append_new(order, json_string(result->truth.names[result->answer.order[i]]));
    return order;
}

/* null: it was not asked. */
static json_t *result_json(const lesson_result *result) {
    if (!result->asked) return json_null();
    const lesson_question *question = result->question;
    json_t *json = json_object();
    json_object_set_new(json, "kind", json_string(kinds[question->kind]));
    if (question->unit != NULL) json_object_set_new(json, "unit", json_string(question->unit));
    json_object_set_new(json, "answer", answer_json(result));
    json_object_set_new(json, "measured", truth_json(result));
    json_object_set_new(json, "clock", json_boolean(question->clock));
    json_object_set_new(json, "right", json_boolean(result->verdict.right));
    json_object_set_new(json, "off", json_real(result->verdict.off));
    return json;
}

/* Takes both questions. */
static json_t *entry_json(int number, const char *name, json_t *prediction, json_t *exercise) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_t *json = json_object();
    json_object_set_new(json, "lesson", json_integer(number));
    json_object_set_new(json, "name", json_string(name));
    json_object_set_new(json, "prediction", prediction);
    json_object_set_new(json, "exercise", exercise);
    json_object_set_new(json, "date", json_string(date));
    json_object_set_new(json, "yoke", json_string(yoke_version()));
    json_object_set_new(json, "cores", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    return json;
}

json_t *lesson_entry_json(const lesson_entry *entry) {
    return entry_json(entry->lesson->number, entry->lesson->name, result_json(&entry->predict),
                      result_json(&entry->exercise));
}

json_t *lesson_exchange_json(bool right, double times) {
    json_t *exercise = json_pack("{s:s, s:b, s:b, s:f}", "kind", "exchange", "clock", 0, "right",
                                 (int)right, "off", right ? times : 0.0);
    return entry_json(LESSON_EXCHANGE, "exchange", json_null(), exercise);
}

/* Reading. */

static bool is_name(const char *name) {
    size_t length = strlen(name);
    if (length == 0 || length > NAME_LIMIT) return false;
    for (size_t bytes; *name != '\0'; name += bytes)
        if ((bytes = yoke_text_utf8_bytes(name)) == 0) return false;
    return true;
}

static bool is_question(json_t *json) {
    return json_is_null(json) ||
           (json_is_object(json) && json_is_boolean(json_object_get(json, "right")) &&
            json_is_number(json_object_get(json, "off")) &&
            json_is_string(json_object_get(json, "kind")));
}

/* Times of an exchange. */
static bool are_times(json_t *exercise) {
    double times = json_number_value(json_object_get(exercise, "off"));
    return times >= 0 && times < TIMES_MOST;
}

static bool is_entry(json_t *json) {
    json_t *lesson = json_object_get(json, "lesson");
    return json_is_integer(lesson) && json_integer_value(lesson) >= LESSON_EXCHANGE &&
           json_integer_value(lesson) <= lesson_count &&
           (json_integer_value(lesson) != LESSON_EXCHANGE ||
            are_times(json_object_get(json, "exercise"))) &&
           is_question(json_object_get(json, "prediction")) &&
           is_question(json_object_get(json, "exercise"));
}

static yoke_status check_results(const char *path, json_t *results) {
    json_t *format = json_object_get(results, "yoke_lessons"), *entry;
    size_t index;
    const char *student = json_string_value(json_object_get(results, "student"));
    if (!json_is_integer(format) || student == NULL || !is_name(student) ||
        !json_is_array(json_object_get(results, "entries")))
        return cli_refuse(YOKE_ERROR_DATA, "%s: no results of yoke lesson", path);
    if (json_integer_value(format) != FORMAT)
        return cli_refuse(YOKE_ERROR_DATA, "%s: results of format %lld; this yoke reads %d", path,
                          (long long)json_integer_value(format), FORMAT);
    json_array_foreach(
        json_object_get(results, "entries"), index,
        entry) if (!is_entry(entry)) return cli_refuse(YOKE_ERROR_DATA,
                                                       "%s: entry %zu is no result of a lesson",
                                                       path, index);
    return YOKE_OK;
}

yoke_status lesson_results_read(const char *path, json_t **results) {
    unsigned char *data;
    size_t bytes;
    json_error_t error;
    *results = NULL;
    yoke_status status = yoke_file_read(path, FILE_LIMIT, &data, &bytes);
    if (status != YOKE_OK) return status;
    *results = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, &error);
    yoke_free(data);
    if (*results == NULL)
        return cli_refuse(YOKE_ERROR_DATA, "%s: no JSON: line %d: %s", path, error.line,
                          error.text);
    status = check_results(path, *results);
    if (status == YOKE_OK) return YOKE_OK;
    json_decref(*results);
    *results = NULL;
    return status;
}

/* Writing. */

static yoke_status open_results(const char *path, const char *name, json_t **results) {
    if (name != NULL && !is_name(name))
        return cli_refuse(YOKE_ERROR_ARGUMENT, "--name is 1 to %d bytes of UTF-8", NAME_LIMIT);
    if (!yoke_file_exists(path)) {
        if (name == NULL)
            return cli_refuse(YOKE_ERROR_ARGUMENT,
                              "%s is a new file of results: say whose it is with --name", path);
        *results =
            json_pack("{s:i, s:s, s:[]}", "yoke_lessons", FORMAT, "student", name, "entries");
        return *results != NULL ? YOKE_OK : cli_refuse(YOKE_ERROR_MEMORY, "no memory for results");
    }
    yoke_status status = lesson_results_read(path, results);
    if (status != YOKE_OK) return status;
    const char *own = json_string_value(json_object_get(*results, "student"));
    if (name == NULL || strcmp(own, name) == 0) return YOKE_OK;
    status =
        cli_refuse(YOKE_ERROR_ARGUMENT, "%s has the results of %s, not of %s", path, own, name);
    json_decref(*results);
    *results = NULL;
    return status;
}

yoke_status lesson_results_check(const char *path, const char *name) {
    json_t *results;
    yoke_status status = open_results(path, name, &results);
    if (status != YOKE_OK) return status;
    json_decref(results);
    return yoke_file_check_whole(path);
}

static yoke_status write_text(const char *path, const char *text) {
    yoke_file_writer writer;
    yoke_status status = yoke_file_create_whole(&writer, path);
    if (status == YOKE_OK) status = yoke_file_write(&writer, text, strlen(text));
    if (status == YOKE_OK) status = yoke_file_write(&writer, "\n", 1);
    return status == YOKE_OK ? yoke_file_commit(&writer) : status;
}

/* Two runs add to a file one after the other. The file is another one after each, so the lock is
 * its folder's; where somebody holds that for long, this run goes on. Returns
 * the folder's descriptor, which the caller closes; -1: there is no lock. */
static int lock_folder(const char *path) {
    const struct timespec pause = {.tv_nsec = 5000000};
    uint64_t end_ns = yoke_now_ns() + LOCK_S * 1000000000ull;
    char *own = yoke_format("%s", path);
    int folder = own != NULL ? open(dirname(own), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    yoke_free(own);
    while (folder >= 0 && flock(folder, LOCK_EX | LOCK_NB) != 0 && yoke_now_ns() < end_ns)
        nanosleep(&pause, NULL);
    return folder;
}

static yoke_status add(const char *path, const char *name, json_t *entry) {
    json_t *results;
    yoke_status status = open_results(path, name, &results);
    if (status != YOKE_OK) return status;
    char *text = NULL;
    if (json_array_append(json_object_get(results, "entries"), entry) == 0)
        text = json_dumps(results, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
    json_decref(results);
    if (text == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for results");
    status = write_text(path, text);
    free(text);
    return status;
}

yoke_status lesson_results_add(const char *path, const char *name, json_t *entry) {
    int folder = lock_folder(path);
    yoke_status status = add(path, name, entry);
    if (folder >= 0) close(folder);
    return status;
}
