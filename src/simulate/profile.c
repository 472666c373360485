/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles as JSON files. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "simulate/simulate.h"

#define FORMAT 1
#define FILE_LIMIT ((size_t)16 << 20)
#define SEGMENTS_LIMIT 100000
#define MOST_LAYERS 1e5 /* dp-python takes time for each layer of each device */

/* Reading. */

static yoke_status read_text(const json_t *object, const char *name, const char *key,
                             char text[YOKE_PROFILE_TEXT_BYTES]) {
    const char *value = json_string_value(json_object_get(object, key));
    if (value == NULL || strlen(value) >= YOKE_PROFILE_TEXT_BYTES)
        return FAIL(YOKE_ERROR_DATA, "%s: a profile needs \"%s\", a text of less than %d bytes",
                    name, key, YOKE_PROFILE_TEXT_BYTES);
    snprintf(text, YOKE_PROFILE_TEXT_BYTES, "%s", value);
    return YOKE_OK;
}

static yoke_status read_real(const json_t *object, const char *name, const char *key, double most,
                             double *value) {
    const json_t *found = json_object_get(object, key);
    *value = json_number_value(found);
    if (!json_is_number(found) || !(*value >= 0 && *value <= most))
        return FAIL(YOKE_ERROR_DATA, "%s: a profile needs \"%s\", a number of 0 to %g", name, key,
                    most);
    return YOKE_OK;
}

static yoke_status read_count(const json_t *object, const char *name, const char *key, double most,
                              size_t *value) {
    const json_t *found = json_object_get(object, key);
    json_int_t count = json_integer_value(found);
    if (!json_is_integer(found) || count < 1 || (double)count > most)
        return FAIL(YOKE_ERROR_DATA, "%s: a profile needs \"%s\", an integer of 1 to %g", name, key,
                    most);
    *value = (size_t)count;
    return YOKE_OK;
}

static yoke_status read_segments(const json_t *root, const char *name, yoke_profile *profile) {
    const json_t *list = json_object_get(root, "segments");
    size_t count = json_array_size(list);
    if (count < 1 || count > SEGMENTS_LIMIT)
        return FAIL(YOKE_ERROR_DATA, "%s: a profile needs \"segments\", a list of 1 to %d objects",
                    name, SEGMENTS_LIMIT);
    profile->segments = yoke_calloc(count, sizeof *profile->segments);
    if (profile->segments == NULL)
        return FAIL_MEMORY(count * sizeof *profile->segments, "segments of a profile");
    profile->segment_count = (int)count;
    for (size_t s = 0; s < count; s++) {
        const json_t *object = json_array_get(list, s);
        yoke_profile_segment *segment = &profile->segments[s];
        TRY(read_real(object, name, "backward_ms", YOKE_PROFILE_MOST_MS, &segment->backward_ms));
        TRY(read_count(object, name, "bytes", YOKE_PROFILE_MOST_BYTES / SEGMENTS_LIMIT,
                       &segment->bytes));
    }
    return YOKE_OK;
}

static yoke_status read_all(const json_t *root, const char *name, yoke_profile *profile) {
    size_t rows = 0, layers = 0;
    const json_t *format = json_object_get(root, "yoke_profile");
    if (!json_is_integer(format))
        return FAIL(YOKE_ERROR_DATA,
                    "%s is no profile: it lacks \"yoke_profile\"; 'yoke bench --profile FILE' "
                    "measures one",
                    name);
    if (json_integer_value(format) != FORMAT)
        return FAIL(YOKE_ERROR_DATA, "%s: a profile of format %lld, this program reads format %d",
                    name, (long long)json_integer_value(format), FORMAT);
    TRY(read_text(root, name, "model", profile->model));
    TRY(read_text(root, name, "device", profile->device));
    TRY(read_text(root, name, "precision", profile->precision));
    TRY(read_text(root, name, "source", profile->source));
    TRY(read_count(root, name, "rows", YOKE_PROFILE_MOST_ROWS, &rows));
    profile->rows = (int)rows;
    TRY(read_count(root, name, "layers", MOST_LAYERS, &layers));
    profile->layers = (int)layers;
    TRY(read_count(root, name, "input_bytes", YOKE_PROFILE_MOST_BYTES, &profile->input_bytes));
    TRY(read_count(root, name, "output_bytes", YOKE_PROFILE_MOST_BYTES, &profile->output_bytes));
    TRY(read_real(root, name, "host_ms", YOKE_PROFILE_MOST_MS, &profile->host_ms));
    TRY(read_real(root, name, "forward_ms", YOKE_PROFILE_MOST_MS, &profile->forward_ms));
    TRY(read_real(root, name, "loss_ms", YOKE_PROFILE_MOST_MS, &profile->loss_ms));
    TRY(read_real(root, name, "update_ns_per_byte", YOKE_PROFILE_MOST_MS,
                  &profile->update_ns_per_byte));
    TRY(read_segments(root, name, profile));
    return yoke_profile_check(profile, name, YOKE_ERROR_DATA);
}

yoke_status yoke_profile_parse(yoke_profile *profile, const char *name, const char *text,
                               size_t bytes) {
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    *profile = (yoke_profile){0};
    if (root == NULL)
        return FAIL(YOKE_ERROR_DATA, "%s is no complete JSON: %s, in line %d", name, error.text,
                    error.line);
    yoke_status status = read_all(root, name, profile);
    json_decref(root);
    if (status != YOKE_OK) yoke_profile_clear(profile);
    return status;
}

yoke_status yoke_profile_read(yoke_profile *profile, const char *path) {
    unsigned char *data = NULL;
    size_t bytes = 0;
    *profile = (yoke_profile){0};
    TRY(yoke_file_read(path, FILE_LIMIT, &data, &bytes));
    yoke_status status = yoke_profile_parse(profile, path, (const char *)data, bytes);
    yoke_free(data);
    return status;
}

/* Writing. */

static yoke_status write_file(const char *path, const char *text, size_t length) {
    yoke_file_writer writer;
    TRY(yoke_file_create(&writer, path));
    yoke_status status = yoke_file_write(&writer, text, length);
    if (status == YOKE_OK) status = yoke_file_write(&writer, "\n", 1);
    if (status == YOKE_OK) return yoke_file_commit(&writer);
    yoke_file_abort(&writer);
    return status;
}

yoke_status yoke_profile_write(const yoke_profile *profile, const char *path) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_integer(&json, "yoke_profile", FORMAT);
    yoke_json_text(&json, "model", profile->model);
    yoke_json_text(&json, "device", profile->device);
    yoke_json_text(&json, "precision", profile->precision);
    yoke_json_text(&json, "source", profile->source);
    yoke_json_integer(&json, "rows", profile->rows);
    yoke_json_integer(&json, "layers", profile->layers);
    yoke_json_integer(&json, "input_bytes", (int64_t)profile->input_bytes);
    yoke_json_integer(&json, "output_bytes", (int64_t)profile->output_bytes);
    yoke_json_real(&json, "host_ms", profile->host_ms);
    yoke_json_real(&json, "forward_ms", profile->forward_ms);
    yoke_json_real(&json, "loss_ms", profile->loss_ms);
    yoke_json_real(&json, "update_ns_per_byte", profile->update_ns_per_byte);
    yoke_json_open(&json, "segments", '[');
    for (int s = 0; s < profile->segment_count; s++) {
        yoke_json_open(&json, NULL, '{');
        yoke_json_real(&json, "backward_ms", profile->segments[s].backward_ms);
        yoke_json_integer(&json, "bytes", (int64_t)profile->segments[s].bytes);
        yoke_json_close(&json, '}');
    }
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    yoke_status status = json.failed ? FAIL_MEMORY(json.capacity, "a profile")
                                     : write_file(path, json.text, json.length);
    yoke_json_end(&json);
    return status;
}
