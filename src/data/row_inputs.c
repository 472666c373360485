/* SPDX-License-Identifier: Apache-2.0 */
#include "data/row_inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t values_of(const yoke_shape *shape) {
    return (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
}

size_t yoke_row_inputs_values(const yoke_dataset *dataset, int index) {
    return values_of(&dataset->more[index].shape);
}

/* Adding. */

static yoke_status check(const yoke_dataset *dataset, const yoke_row_input *input) {
    const yoke_dataset alone = {.rows = dataset->rows, .shape = input->shape};
    size_t length = input->name != NULL ? strlen(input->name) : 0;
    if (length == 0 || length >= sizeof dataset->more[0].name)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "an input of the rows needs a name of 1 to %zu characters: that of the model's "
                    "input",
                    sizeof dataset->more[0].name - 1);
    if (dataset->more_count == YOKE_INPUTS_LIMIT - 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "input '%s' of the rows: a row has at most %d inputs",
                    input->name, YOKE_INPUTS_LIMIT);
    bool taken = strcmp(input->name, "input") == 0;
    for (int k = 0; k < dataset->more_count; k++)
        taken = taken || strcmp(input->name, dataset->more[k].name) == 0;
    if (taken)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "two inputs of the rows are named '%s'%s: give one another name", input->name,
                    strcmp(input->name, "input") == 0 ? ", which is the first one's name" : "");
    yoke_status status = yoke_dataset_check_shape(&alone);
    if (status != YOKE_OK) yoke_error_prefix("input '%s'", input->name);
    return status;
}

yoke_status yoke_row_inputs_add(yoke_dataset *dataset, const yoke_row_input *input, bool owned) {
    yoke_status status = check(dataset, input);
    if (status != YOKE_OK) {
        if (owned) yoke_free((void *)input->values);
        return status;
    }
    yoke_stored_input *own = &dataset->more[dataset->more_count++];
    *own = (yoke_stored_input){.shape = input->shape,
                               .floats = input->values,
                               .owned = owned ? (void *)input->values : NULL};
    strcpy(own->name, input->name);
    return YOKE_OK;
}

/* The array may come from other headers: its own struct_size is the distance between two inputs. */
yoke_status yoke_row_inputs_load(yoke_dataset *dataset, const yoke_row_input *given, int count,
                                 bool stored) {
    if (count < 0 || (count > 0) != (given != NULL))
        return FAIL(YOKE_ERROR_ARGUMENT, "more_input_count is %d and more_inputs is %s", count,
                    given != NULL ? "set" : "NULL");
    for (int i = 0; i < count; i++) {
        yoke_row_input input = {0};
        TRY(yoke_options_load(&input, sizeof input,
                              (const char *)given + (size_t)i * given->struct_size,
                              "yoke_row_input"));
        if (stored != (input.values != NULL))
            return FAIL(YOKE_ERROR_ARGUMENT, "more_inputs[%d].values is %s: %s", i,
                        stored ? "NULL" : "set",
                        stored ? "set it" : "read_inputs writes the values of a row source");
        TRY(yoke_row_inputs_add(dataset, &input, false));
    }
    return YOKE_OK;
}

void yoke_row_inputs_close(yoke_dataset *dataset) {
    for (int k = 0; k < dataset->more_count; k++)
        yoke_free(dataset->more[k].owned);
}

/* Describing. */

yoke_status yoke_dataset_describe_input(const yoke_dataset *dataset, int index,
                                        yoke_value_info *info) {
    TRY(yoke_pointer_check(dataset, "dataset"));
    TRY(yoke_pointer_check(info, "info"));
    if (index < 0 || index > dataset->more_count)
        return FAIL(YOKE_ERROR_ARGUMENT, "input %d of dataset '%s': it has %d, counted from 0",
                    index, dataset->name, dataset->more_count + 1);
    yoke_value_info own = {.struct_size = sizeof own, .name = "input", .shape = dataset->shape};
    if (index > 0) {
        own.name = dataset->more[index - 1].name;
        own.shape = dataset->more[index - 1].shape;
    }
    own.row_count = values_of(&own.shape);
    return yoke_options_store(info, &own, sizeof own, "yoke_value_info");
}

/* Batches. */

void yoke_row_inputs_copy(const yoke_dataset *dataset, size_t row, yoke_loader_slot *slot, int i) {
    for (int k = 0; k < dataset->more_count; k++) {
        size_t values = yoke_row_inputs_values(dataset, k);
        memcpy(slot->more_inputs[k] + (size_t)i * values, dataset->more[k].floats + row * values,
               values * sizeof *slot->more_inputs[k]);
    }
}

static int find(const yoke_dataset *dataset, const char *name) {
    for (int k = 0; k < dataset->more_count; k++)
        if (strcmp(dataset->more[k].name, name) == 0) return k;
    return -1;
}

/* "length [1x1x1], mask [8x1x1]". */
static void list_inputs(const yoke_dataset *dataset, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "%s", dataset->more_count > 0 ? "" : "none");
    for (int k = 0; k < dataset->more_count && used < size; k++) {
        const yoke_stored_input *input = &dataset->more[k];
        used += (size_t)snprintf(text + used, size - used, "%s'%s' (%dx%dx%d)", k > 0 ? ", " : "",
                                 input->name, input->shape.channels, input->shape.height,
                                 input->shape.width);
    }
}

static yoke_status find_input(yoke_input_order *order, const yoke_dataset *dataset,
                              const yoke_model *model, int index) {
    yoke_value_info wanted = {.struct_size = sizeof wanted};
    char text[400];
    TRY(yoke_model_describe_input(model, index, &wanted));
    int found = find(dataset, wanted.name);
    if (found < 0) {
        list_inputs(dataset, text, sizeof text);
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "model '%s' reads an input '%s' (%dx%dx%d) of each row; dataset '%s' has, "
                    "beside the first: %s; name it in the dataset, or choose another model",
                    yoke_model_name(model), wanted.name, wanted.shape.channels, wanted.shape.height,
                    wanted.shape.width, dataset->name, text);
    }
    order->inputs[order->count++] = found;
    return YOKE_OK;
}

static yoke_status check_input(const yoke_input_order *order, const yoke_dataset *dataset,
                               const yoke_model *model, int index) {
    yoke_value_info wanted = {.struct_size = sizeof wanted};
    TRY(yoke_model_describe_input(model, index, &wanted));
    const yoke_shape *shape = &dataset->more[order->inputs[index - 1]].shape;
    if (values_of(shape) != wanted.row_count)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "input '%s' of model '%s' is %dx%dx%d, that of dataset '%s' %dx%dx%d: they "
                    "must have as many values",
                    wanted.name, yoke_model_name(model), wanted.shape.channels, wanted.shape.height,
                    wanted.shape.width, dataset->name, shape->channels, shape->height,
                    shape->width);
    return YOKE_OK;
}

yoke_status yoke_input_order_find_shorter(yoke_input_order *order, const yoke_dataset *dataset,
                                          const yoke_model *model) {
    *order = (yoke_input_order){0};
    for (int k = 1; k < yoke_model_input_count(model); k++)
        TRY(find_input(order, dataset, model, k));
    return YOKE_OK;
}

yoke_status yoke_input_order_find(yoke_input_order *order, const yoke_dataset *dataset,
                                  const yoke_model *model) {
    *order = (yoke_input_order){0};
    for (int k = 0; model == NULL && k < dataset->more_count; k++)
        order->inputs[order->count++] = k;
    if (model == NULL) return YOKE_OK;
    TRY(yoke_input_order_find_shorter(order, dataset, model));
    for (int k = 1; k < yoke_model_input_count(model); k++)
        TRY(check_input(order, dataset, model, k));
    return YOKE_OK;
}
