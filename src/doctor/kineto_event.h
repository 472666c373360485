/* SPDX-License-Identifier: Apache-2.0 */
/* One event of PyTorch's profiler, read where it lies. For the files of this room only. */
#ifndef DOCTOR_KINETO_EVENT_H
#define DOCTOR_KINETO_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of the event's text, as it stands there; count 0: it is missing. */
typedef struct json_slice {
    const char *text;
    size_t count;
} json_slice;

bool json_slice_is(json_slice slice, const char *word);
bool json_slice_begins(json_slice slice, const char *word);
bool json_slice_contains(json_slice slice, const char *word);

typedef struct kineto_event {
    json_slice phase, category, name, arguments;
    int64_t process, thread; /* -1: no number */
    int64_t begin_ns, end_ns;
} kineto_event;

/* Whether the text is an object, and its time one that fits. Times are 0 where the event has none.
 */
bool kineto_event_read(kineto_event *event, const char *text, size_t bytes);

#define KINETO_OPERANDS 2

/* The first dimension of an operand, and the number of its elements. A list of tensors counts as
 * one operand. */
typedef struct kineto_operand {
    double rows, elements; /* 0: unknown */
} kineto_operand;

/* -1 or 0: missing. */
typedef struct kineto_arguments {
    int64_t correlation, device, bytes, group_size, elements;
    double element_bytes; /* of the first operand, or of a collective */
    json_slice collective, label;
    kineto_operand operands[KINETO_OPERANDS];
} kineto_arguments;

void kineto_arguments_read(kineto_arguments *arguments, json_slice text);

#endif
