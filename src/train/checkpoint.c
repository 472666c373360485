/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint file: what yoke_state_save writes and yoke_state_load reads. */
#include "train/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/digest.h"
#include "train/weights_match.h"

#define FORMAT "1"
#define UNSEALED "unsealed" /* a state that another program wrote, without digests */
#define DIGEST "xxh3."
#define STATE "optimizer."
#define PIECE_BYTES 65536 /* of a tensor, read at once */

/* Writing. */

/* What a file gets: its tensors, and its notes with a digest for each tensor. */
typedef struct draft {
    yoke_file_tensor *tensors;
    const float **values; /* [count], in the order of tensors; NULL: the count of batches */
    int64_t batches;
    yoke_file_note *notes;
    char **keys;                       /* [count] "xxh3.fc.weight" */
    char (*digests)[YOKE_DIGEST_TEXT]; /* [count] */
    int count, note_count;
} draft;

static void draft_free(draft *made) {
    for (int i = 0; made->keys != NULL && i < made->count; i++)
        yoke_free(made->keys[i]);
    yoke_free(made->digests);
    yoke_free(made->keys);
    yoke_free(made->notes);
    yoke_free(made->values);
    yoke_free(made->tensors);
}

static const float *values_of(const yoke_state *state, const char *name) {
    for (int i = 0; i < state->count; i++)
        if (state->tensors[i].info.name == name) return state->tensors[i].values;
    return NULL;
}

static const void *bytes_of(const draft *made, int index) {
    return made->values[index] != NULL ? (const void *)made->values[index] : &made->batches;
}

static yoke_status draft_tensors(draft *made, const yoke_state *state, const yoke_facts *facts) {
    size_t count = (size_t)state->count;
    size_t notes = count + (size_t)facts->count + YOKE_DESCRIPTION_NOTES + 8;
    made->count = state->count;
    made->tensors = yoke_calloc(count + 1, sizeof *made->tensors);
    made->values = yoke_calloc(count + 1, sizeof *made->values);
    made->notes = yoke_calloc(notes, sizeof *made->notes);
    made->keys = yoke_calloc(count + 1, sizeof *made->keys);
    made->digests = yoke_calloc(count + 1, sizeof *made->digests);
    if (!made->tensors || !made->values || !made->notes || !made->keys || !made->digests)
        return FAIL_MEMORY(notes * sizeof *made->notes, "the table of a checkpoint");
    for (int i = 0; i < state->count; i++)
        made->tensors[i] = yoke_weights_file_tensor(&state->tensors[i].info);
    made->batches = (int64_t)state->batches_tracked;
    TRY(yoke_safetensors_arrange(made->tensors, made->count));
    for (int i = 0; i < made->count; i++) {
        const yoke_file_tensor *tensor = &made->tensors[i];
        made->values[i] = values_of(state, tensor->name);
        if (made->values[i] == NULL) continue;
        /* Values that are not finite must not replace the last good ones. */
        size_t finite = yoke_count_finite(made->values[i], tensor->elements);
        if (finite < tensor->elements)
            return FAIL(YOKE_ERROR_NUMERIC,
                        "element %zu of %s is not finite: not saving this state", finite,
                        tensor->name);
    }
    return YOKE_OK;
}

static void add_note(draft *made, const char *key, const char *value) {
    made->notes[made->note_count++] = (yoke_file_note){key, value};
}

static yoke_status draft_notes(draft *made, const yoke_facts *facts) {
    add_note(made, YOKE_FORMAT_KEY, FORMAT);
    add_note(made, "yoke.version", yoke_version());
    add_note(made, YOKE_SEAL, YOKE_SEAL_BLANK);
    for (int i = 0; i < facts->count; i++)
        add_note(made, facts->items[i].key, facts->items[i].value);
    for (int i = 0; facts->description != NULL && i < facts->description->count; i++)
        add_note(made, facts->description->items[i].key, facts->description->items[i].value);
    for (int i = 0; i < made->count; i++) {
        const yoke_file_tensor *tensor = &made->tensors[i];
        made->keys[i] = yoke_format(DIGEST "%s", tensor->name);
        if (made->keys[i] == NULL) return FAIL_MEMORY(strlen(tensor->name), "the name of a digest");
        yoke_digest_text(bytes_of(made, i), tensor->bytes, made->digests[i]);
        add_note(made, made->keys[i], made->digests[i]);
    }
    return YOKE_OK;
}

static yoke_status draft_and_write(draft *made, const yoke_state *state, const yoke_facts *facts,
                                   const yoke_file_target *target) {
    yoke_file_writer writer;
    TRY(draft_tensors(made, state, facts));
    TRY(draft_notes(made, facts));
    TRY(yoke_safetensors_create(&writer, target, made->tensors, made->count, made->notes,
                                made->note_count));
    for (int i = 0; i < made->count; i++) /* a failed write has removed the file */
        TRY(yoke_file_write(&writer, bytes_of(made, i), made->tensors[i].bytes));
    return yoke_file_commit(&writer);
}

yoke_status yoke_checkpoint_write(const yoke_state *state, const yoke_facts *facts,
                                  const yoke_file_target *target) {
    draft made = {0};
    yoke_status status = draft_and_write(&made, state, facts, target);
    draft_free(&made);
    return status;
}

/* Reading. */

static bool is_unsealed(const yoke_safetensors *file) {
    return strcmp(yoke_safetensors_note(file, YOKE_FORMAT_KEY), UNSEALED) == 0;
}

static bool is_other_format(const char *format) {
    return strcmp(format, FORMAT) != 0 && strcmp(format, UNSEALED) != 0;
}

static yoke_status check_header(const yoke_safetensors *file) {
    const char *format = yoke_safetensors_note(file, YOKE_FORMAT_KEY);
    if (format == NULL)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: weights without the state of a run: no checkpoint. To start from weights, "
                    "use --init",
                    file->path);
    if (is_other_format(format))
        return FAIL(YOKE_ERROR_DATA, "%s: a checkpoint of format '%.20s'; this library reads %s",
                    file->path, format, FORMAT);
    if (is_unsealed(file) || file->is_sealed) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA,
                "%s: altered: the header, bytes 0 to %zu, does not match its digest", file->path,
                file->data_at - 1);
}

static const char *digest_of(const yoke_safetensors *file, const char *name) {
    return yoke_safetensors_note_of(file, DIGEST, name);
}

bool yoke_checkpoint_is_other_format(const char *path) {
    yoke_safetensors file;
    const yoke_file_source from = yoke_source_path(path);
    if (yoke_safetensors_open(&file, &from) != YOKE_OK) return false;
    const char *format = yoke_safetensors_note(&file, YOKE_FORMAT_KEY);
    bool other = format != NULL && is_other_format(format) && file.is_sealed;
    yoke_safetensors_close(&file);
    return other;
}

/* The digest of a tensor, which may be larger than memory. */
static yoke_status compute_digest(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                                  char text[YOKE_DIGEST_TEXT]) {
    unsigned char bytes[PIECE_BYTES];
    yoke_digest digest;
    yoke_digest_begin(&digest);
    for (size_t done = 0, count; done < tensor->bytes; done += count) {
        count = tensor->bytes - done < sizeof bytes ? tensor->bytes - done : sizeof bytes;
        TRY(yoke_safetensors_bytes(file, tensor, done, bytes, count));
        yoke_digest_add(&digest, bytes, count);
    }
    yoke_digest_end(&digest, text);
    return YOKE_OK;
}

static yoke_status check_tensors(const yoke_safetensors *file) {
    char own[YOKE_DIGEST_TEXT];
    for (int i = 0; i < file->count && !is_unsealed(file); i++) {
        const yoke_file_tensor *tensor = &file->tensors[i];
        const char *digest = digest_of(file, tensor->name);
        if (digest == NULL)
            return FAIL(YOKE_ERROR_DATA, "%s: tensor %s has no digest", file->path, tensor->name);
        TRY(compute_digest(file, tensor, own));
        if (strcmp(own, digest) != 0)
            return FAIL(YOKE_ERROR_DATA,
                        "%s: altered: tensor %s, bytes %zu to %zu, does not match its digest",
                        file->path, tensor->name, file->data_at + tensor->begin,
                        file->data_at + tensor->begin + tensor->bytes - 1);
    }
    return YOKE_OK;
}

yoke_status yoke_checkpoint_verify(const yoke_safetensors *file) {
    TRY(check_header(file));
    return check_tensors(file);
}

yoke_status yoke_checkpoint_open_header(yoke_checkpoint **checkpoint,
                                        const yoke_file_source *from) {
    *checkpoint = NULL;
    yoke_checkpoint *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a checkpoint");
    yoke_status status = yoke_safetensors_open(&made->file, from);
    if (status == YOKE_OK) status = check_header(&made->file);
    if (status != YOKE_OK) {
        yoke_checkpoint_close(made);
        return status;
    }
    *checkpoint = made;
    return YOKE_OK;
}

yoke_status yoke_checkpoint_open(yoke_checkpoint **checkpoint, const char *path) {
    const yoke_file_source from = yoke_source_path(path);
    TRY(yoke_pointer_check(checkpoint, "checkpoint"));
    *checkpoint = NULL;
    TRY(yoke_pointer_check(path, "path"));
    TRY(yoke_checkpoint_open_header(checkpoint, &from));
    yoke_status status = check_tensors(&(*checkpoint)->file);
    (*checkpoint)->is_verified = status == YOKE_OK;
    if (status == YOKE_OK) return YOKE_OK;
    yoke_checkpoint_close(*checkpoint);
    *checkpoint = NULL;
    return status;
}

void yoke_checkpoint_close(yoke_checkpoint *checkpoint) {
    if (checkpoint == NULL) return;
    yoke_safetensors_close(&checkpoint->file);
    yoke_free(checkpoint);
}

bool yoke_checkpoint_fact(const yoke_checkpoint *checkpoint, int index, const char **key,
                          const char **value) {
    if (checkpoint == NULL || key == NULL || value == NULL) return false;
    if (index < 0 || index >= checkpoint->file.note_count) return false;
    *key = checkpoint->file.notes[index].key;
    *value = checkpoint->file.notes[index].value;
    return true;
}

static yoke_status check_index(const yoke_checkpoint *checkpoint, int index) {
    TRY(yoke_pointer_check(checkpoint, "checkpoint"));
    if (index >= 0 && index < checkpoint->file.count) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "tensor %d: %s has %d", index, checkpoint->file.path,
                checkpoint->file.count);
}

yoke_status yoke_checkpoint_tensor(const yoke_checkpoint *checkpoint, int index,
                                   yoke_checkpoint_tensor_info *info) {
    TRY(check_index(checkpoint, index));
    const yoke_safetensors *file = &checkpoint->file;
    const yoke_file_tensor *tensor = &file->tensors[index];
    yoke_checkpoint_tensor_info own = {.struct_size = sizeof own,
                                       .name = tensor->name,
                                       .dtype = yoke_dtype_name(tensor->dtype),
                                       .ndim = tensor->ndim,
                                       .count = tensor->elements,
                                       .offset = file->data_at + tensor->begin,
                                       .bytes = tensor->bytes,
                                       .digest = digest_of(file, tensor->name)};
    memcpy(own.shape, tensor->shape, sizeof own.shape);
    return yoke_options_store(info, &own, sizeof own, "yoke_checkpoint_tensor_info");
}

yoke_status yoke_checkpoint_bytes(const yoke_checkpoint *checkpoint, int index, void *bytes,
                                  size_t count) {
    TRY(check_index(checkpoint, index));
    TRY(yoke_pointer_check(bytes, "bytes"));
    const yoke_file_tensor *tensor = &checkpoint->file.tensors[index];
    if (tensor->bytes != count)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has %zu bytes, not %zu", tensor->name, tensor->bytes,
                    count);
    return yoke_safetensors_bytes(&checkpoint->file, tensor, 0, bytes, count);
}

yoke_status yoke_checkpoint_values(const yoke_checkpoint *checkpoint, int index, float *values,
                                   size_t count) {
    TRY(check_index(checkpoint, index));
    TRY(yoke_pointer_check(values, "values"));
    const yoke_file_tensor *tensor = &checkpoint->file.tensors[index];
    if (tensor->elements != count)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has %zu elements, not %zu", tensor->name,
                    tensor->elements, count);
    return yoke_safetensors_floats(&checkpoint->file, tensor, values);
}

yoke_status yoke_checkpoint_number(const yoke_checkpoint *checkpoint, const char *key,
                                   uint64_t limit, uint64_t *number) {
    int64_t value;
    const char *text = yoke_safetensors_note(&checkpoint->file, key);
    if (text == NULL) return YOKE_OK;
    if (!yoke_text_integer(text, 0, (int64_t)limit, &value))
        return FAIL(YOKE_ERROR_DATA, "%s: %s is '%.40s', not an integer from 0 to %llu",
                    checkpoint->file.path, key, text, (unsigned long long)limit);
    *number = (uint64_t)value;
    return YOKE_OK;
}

bool yoke_checkpoint_has_state(const yoke_safetensors *file, const char *name) {
    return strncmp(name, STATE, strlen(STATE)) == 0 &&
           yoke_safetensors_note(file, YOKE_FORMAT_KEY) != NULL;
}

/* The optimizer's state by its name here, "optimizer.fc.weight.exp_avg"; the parameters of
 * nn.DataParallel have the prefix "module.". */
static const yoke_file_tensor *find_state(const yoke_safetensors *file, const char *name) {
    const yoke_file_tensor *tensor = yoke_safetensors_find(file, name);
    if (tensor != NULL) return tensor;
    return yoke_safetensors_find_of(file, STATE "module.", name + strlen(STATE));
}

/* The optimizer's state that the file lacks, or has in another shape, begins at zero only if the
 * optimizer may differ. */
static yoke_status compare_optimizer(const yoke_safetensors *file, const yoke_state *state,
                                     bool may_differ) {
    for (int i = 0; i < state->count && !may_differ; i++) {
        const yoke_tensor_info *info = &state->tensors[i].info;
        if (state->tensors[i].part != YOKE_STATE_OPTIMIZER) continue;
        const yoke_file_tensor *tensor = find_state(file, info->name);
        if (tensor == NULL)
            return FAIL(YOKE_ERROR_DATA, "%s: the optimizer's state lacks %s", file->path,
                        info->name);
        if (yoke_weights_shape_fits(tensor, info) && yoke_dtype_is_float(tensor->dtype)) continue;
        char theirs[64], own[64];
        yoke_weights_shape_text(theirs, sizeof theirs, tensor->shape, tensor->ndim);
        yoke_weights_shape_text(own, sizeof own, info->shape, info->ndim);
        return FAIL(YOKE_ERROR_DATA, "%s: %s is %s %s, not F32 %s", file->path, info->name,
                    yoke_dtype_name(tensor->dtype), theirs, own);
    }
    return YOKE_OK;
}

static yoke_status read_tensor(const yoke_safetensors *file, const yoke_file_tensor *from,
                               float *values) {
    TRY(yoke_safetensors_floats(file, from, values));
    size_t finite = yoke_count_finite(values, from->elements);
    if (finite == from->elements) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA,
                "%s: element %zu of %s is %g: a state must be finite; take an older file",
                file->path, finite, from->name, (double)values[finite]);
}

/* Only the optimizer's state may begin at zero. */
static yoke_status read_values(const yoke_weights_match *match, yoke_state *state) {
    for (int i = 0; i < state->count; i++) {
        yoke_state_tensor *to = &state->tensors[i];
        const yoke_tensor_info *info = &to->info;
        if (info->integer) continue;
        const yoke_file_tensor *from =
            to->tensor >= 0 ? match->sources[to->tensor] : find_state(match->file, info->name);
        bool fits = from != NULL && yoke_weights_shape_fits(from, info);
        if (!fits && to->tensor >= 0)
            return FAIL(YOKE_ERROR_DATA, "%s: no values for %s", match->file->path, info->name);
        if (fits)
            TRY(read_tensor(match->file, from, to->values));
        else if (to->part != YOKE_STATE_OPTIMIZER) /* the run begins to average, or to compare */
            memcpy(to->values, state->tensors[to->copy_of].values,
                   info->count * sizeof *to->values);
        else
            memset(to->values, 0, info->count * sizeof *to->values);
    }
    return YOKE_OK;
}

/* The match is DATA, listing missing, unknown and misshapen names, unless the file has the model's
 * tensors. */
static yoke_status read_matching(const yoke_checkpoint *checkpoint, yoke_weights_match *match,
                                 const yoke_facts *own, const char *anyway, yoke_state *state) {
    bool may_differ = yoke_facts_lists(anyway, "optimizer") || yoke_facts_lists(anyway, "momentum");
    TRY(yoke_weights_match_open(match));
    TRY(yoke_facts_compare(own, match->file, anyway));
    TRY(compare_optimizer(match->file, state, may_differ));
    if (!checkpoint->is_verified) TRY(check_tensors(match->file));
    return read_values(match, state);
}

/* A file that has none was written by a run without a dynamic scale. */
static yoke_status read_scale(const yoke_checkpoint *checkpoint, yoke_scale_state *scale) {
    const char *text = yoke_safetensors_note(&checkpoint->file, "loss_scale");
    int exponent;
    scale->good = scale->skipped = 0;
    if (text != NULL && !(yoke_text_real(text, 0x1p-126, 0x1p127, &scale->scale) &&
                          frexp(scale->scale, &exponent) == 0.5))
        return FAIL(YOKE_ERROR_DATA, "%s: loss_scale is '%.40s', not a power of two",
                    checkpoint->file.path, text);
    TRY(yoke_checkpoint_number(checkpoint, "loss_scale_steps", YOKE_STEPS_LIMIT, &scale->good));
    return yoke_checkpoint_number(checkpoint, "skipped_steps", YOKE_STEPS_LIMIT, &scale->skipped);
}

yoke_status yoke_checkpoint_read(const yoke_checkpoint *checkpoint, const yoke_model *model,
                                 const yoke_facts *own, const char *anyway, yoke_state *state) {
    yoke_weights_match match = {.file = &checkpoint->file, .model = model};
    yoke_status status = read_matching(checkpoint, &match, own, anyway, state);
    yoke_weights_match_close(&match);
    TRY(status);
    state->steps = 0;
    TRY(yoke_checkpoint_number(checkpoint, "step", YOKE_STEPS_LIMIT, &state->steps));
    TRY(read_scale(checkpoint, &state->scale));
    state->batches_tracked = state->steps;
    return yoke_checkpoint_number(checkpoint, "batches_tracked", YOKE_STEPS_LIMIT,
                                  &state->batches_tracked);
}

/* An engine's state in a file. */

void yoke_facts_add_state(yoke_facts *facts, const yoke_state *state) {
    const yoke_scale_state *scale = &state->scale;
    yoke_facts_add(facts, "step", "%llu", (unsigned long long)state->steps);
    yoke_facts_add(facts, "batches_tracked", "%llu", (unsigned long long)state->batches_tracked);
    if (scale->scale == 1 && scale->skipped == 0) return;
    yoke_facts_add_real(facts, "loss_scale", scale->scale);
    yoke_facts_add(facts, "loss_scale_steps", "%llu", (unsigned long long)scale->good);
    yoke_facts_add(facts, "skipped_steps", "%llu", (unsigned long long)scale->skipped);
}

static yoke_status save_to(yoke_data_parallel *parallel, const yoke_file_target *target) {
    yoke_state *state = NULL;
    yoke_facts facts = {0};
    yoke_status status =
        yoke_data_parallel_report(parallel, yoke_state_create(&state, parallel, false));
    if (status == YOKE_OK) status = yoke_state_take(state, parallel);
    if (status == YOKE_OK && yoke_data_parallel_is_first(parallel)) {
        yoke_facts_add_state(&facts, state);
        yoke_facts_add_table(&facts, &yoke_engine_options, parallel);
        status = yoke_checkpoint_write(state, &facts, target);
    }
    yoke_state_destroy(state);
    return status;
}

yoke_status yoke_state_save(yoke_data_parallel *parallel, const char *path) {
    const yoke_file_target target = yoke_target_path(path);
    TRY(yoke_pointer_check(parallel, "parallel"));
    TRY(yoke_pointer_check(path, "path"));
    return save_to(parallel, &target);
}

yoke_status yoke_state_write(yoke_data_parallel *parallel, const yoke_sink *sink) {
    yoke_sink own;
    const yoke_file_target target = {.sink = &own};
    TRY(yoke_pointer_check(parallel, "parallel"));
    TRY(yoke_sink_load(&own, sink));
    return save_to(parallel, &target);
}

static yoke_status read_state(yoke_data_parallel *parallel, yoke_state *state,
                              const yoke_file_source *from, const char *anyway) {
    yoke_checkpoint *checkpoint = NULL;
    yoke_facts own = {0};
    if (!yoke_data_parallel_is_first(parallel)) return YOKE_OK;
    yoke_facts_add_table(&own, &yoke_engine_options, parallel);
    TRY(yoke_checkpoint_open_header(&checkpoint, from));
    yoke_status status =
        yoke_checkpoint_read(checkpoint, yoke_data_parallel_model(parallel), &own, anyway, state);
    yoke_checkpoint_close(checkpoint);
    return status;
}

static yoke_status load_from(yoke_data_parallel *parallel, const yoke_file_source *from,
                             const char *anyway) {
    yoke_state *state = NULL;
    yoke_status status =
        yoke_data_parallel_report(parallel, yoke_state_create(&state, parallel, false));
    if (status == YOKE_OK)
        status = yoke_data_parallel_report(parallel, read_state(parallel, state, from, anyway));
    if (status == YOKE_OK) status = yoke_state_give(parallel, state);
    yoke_state_destroy(state);
    return status;
}

yoke_status yoke_state_load(yoke_data_parallel *parallel, const char *path, const char *anyway) {
    const yoke_file_source from = yoke_source_path(path);
    TRY(yoke_pointer_check(parallel, "parallel"));
    TRY(yoke_pointer_check(path, "path"));
    return load_from(parallel, &from, anyway);
}

yoke_status yoke_state_read(yoke_data_parallel *parallel, const void *bytes, size_t count,
                            const char *anyway) {
    yoke_file_source from = {0};
    TRY(yoke_pointer_check(parallel, "parallel"));
    bool reads = yoke_data_parallel_is_first(parallel);
    yoke_status given = reads ? yoke_source_bytes(&from, bytes, count) : YOKE_OK;
    TRY(yoke_data_parallel_report(parallel, given));
    return load_from(parallel, &from, anyway);
}
