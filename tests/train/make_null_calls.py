#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a call for each pointer that a function of the public API takes, with NULL there and what test_null.c keeps
everywhere else: tests/train/test_null.c includes them. A function with a type that has no value here is an error, so
that no new function stays untested.

usage: make_null_calls.py HEADERS_FOLDER OUTPUT
"""
import pathlib
import re
import sys

# What each type gets where it is not NULL. `k` is test_null.c's kit; `k->made` are places for what a call creates.
POINTERS = {
    "yoke_data_parallel **": "&k->made.parallel",
    "yoke_model **": "&k->made.model",
    "yoke_devices **": "&k->made.devices",
    "yoke_dataset **": "&k->made.dataset",
    "yoke_loader **": "&k->made.loader",
    "yoke_checkpoint **": "&k->made.checkpoint",
    "yoke_evaluation **": "&k->made.evaluation",
    "yoke_process_group **": "&k->made.group",
    "yoke_trainer **": "&k->made.trainer",
    "yoke_reference **": "&k->made.reference",
    "yoke_tensor_file **": "&k->made.tensor_file",
    "yoke_weights_description **": "&k->made.description",
    "yoke_generator **": "&k->made.generator",
    "yoke_tokenizer **": "&k->made.tokenizer",
    "yoke_net **": "&k->made.net",
    "yoke_data_parallel *": "k->parallel",
    "yoke_model *": "k->draft",
    "const yoke_model *": "k->model",
    "const yoke_model *const *": "(const yoke_model *const *)&k->model",
    "yoke_devices *": "k->devices",
    "yoke_dataset *": "k->dataset",
    "yoke_loader *": "k->loader",
    "yoke_checkpoint *": "k->checkpoint",
    "yoke_evaluation *": "k->evaluation",
    "yoke_process_group *": "k->group",
    "yoke_trainer *": "k->trainer",
    "yoke_reference *": "k->reference",
    "yoke_tensor_file *": "k->tensor_file",
    "yoke_weights_description *": "k->description",
    "yoke_generator *": "k->generator",
    "yoke_tokenizer *": "k->tokenizer",
    "yoke_net *": "k->net",
    "yoke_trace *": "k->trace",
    "yoke_batch *": "&k->batch",
    "yoke_replica_job": "k->job",
    "yoke_lookup": "k->lookup",
    "void (*)(const yoke_bad_row *, void *)": "k->on_bad",
    "void *": "k->bytes",
    "void **": "&k->memory",
    "char *": "k->text",
    "const char *": "k->path",
    "const char **": "&k->word",
    "const yoke_value *": "k->operands",
    "float *": "k->values",
    "float *const *": "k->value_arrays",
    "const float *const *": "k->const_arrays",
    "double *": "k->doubles",
    "int *": "&k->count",
    "size_t *": "k->sizes",
    "uint64_t *": "&k->number",
    "int64_t *": "k->order",
}
# A parameter that its type alone does not describe: by function and parameter, or by parameter alone.
NAMED = {
    "yoke_checkpoint_values index": "1",
    "yoke_checkpoint_bytes count": "10 * sizeof(float)", # of fc.bias
    "yoke_checkpoint_open path": "k->state_path",
    "yoke_data_parallel_copy_weights from": "k->other",
    "yoke_dataset_limit dataset": "k->loose",
    "yoke_dataset_normalize dataset": "k->loose",
    "yoke_dataset_normalize std": "k->ones",
    "yoke_dataset_normalize_columns dataset": "k->table",
    "yoke_dataset_normalize_columns stds": "k->ones",
    "yoke_dataset_skip_bad dataset": "k->loose",
    "yoke_dataset_open spec": '"synthetic:1x8x8"',
    "yoke_generator_begin count": "1",
    "yoke_generator_create model": "k->text_model",
    "yoke_tokenizer_decode count": "1",
    "yoke_tokenizer_encode bytes": "0",
    "yoke_tokenizer_open path": 'YOKE_SOURCE_DIR "/tests/fixtures/tokenizer"',
    "yoke_error_raise format": '"%d", 1',
    "yoke_image_read path": "k->image_path",
    "yoke_loader_next batch": "&k->lent",
    "yoke_loader_shorten count": "0", # the kit's rows have no lengths
    "yoke_model_finish output": "yoke_linear(k->draft, yoke_flatten(k->draft, yoke_model_input(k->draft)), &k->linear_options)",
    "yoke_model_preset name": '"mlp"',
    "yoke_model_load_onnx path": "k->onnx_path",
    "yoke_model_read_onnx bytes": "k->onnx.data",
    "yoke_model_read_onnx count": "k->onnx.bytes",
    "yoke_model_save_onnx path": "k->scratch_path",
    "yoke_weights_save_onnx path": "k->scratch_path",
    "yoke_net_fit inputs": "&k->net_inputs",
    "yoke_net_fit targets": "&k->net_targets",
    "yoke_net_step inputs": "&k->net_inputs",
    "yoke_net_step targets": "&k->net_targets",
    "yoke_net_evaluate inputs": "&k->net_inputs",
    "yoke_net_evaluate targets": "&k->net_targets",
    "yoke_net_predict inputs": "&k->net_inputs",
    "yoke_net_predict outputs": "&k->net_outputs",
    "yoke_net_read bytes": "k->weights.data",
    "yoke_net_read count": "k->weights.bytes",
    "yoke_net_save path": "k->scratch_path",
    "yoke_net_load path": "k->path",
    "yoke_process_group_all_reduce_async buffer": "k->shared",
    "yoke_state_load anyway": '""',
    "yoke_state_load path": "k->state_path",
    "yoke_state_read anyway": '""',
    "yoke_state_read bytes": "k->state.data",
    "yoke_state_read count": "k->state.bytes",
    "yoke_state_save path": "k->scratch_path",
    "yoke_tensor_file_find file": "k->read_file",
    "yoke_tensor_file_noted file": "k->read_file",
    "yoke_tensor_file_open path": "k->tensors_path",
    "yoke_tensor_file_read file": "k->read_file",
    "yoke_tensor_file_save path": "k->scratch_path",
    "yoke_trace_save path": "k->scratch_path",
    "yoke_trainer_resize devices": '"cpu"',
    "yoke_weights_description_read bytes": "k->weights.data",
    "yoke_weights_description_read count": "k->weights.bytes",
    "yoke_weights_read bytes": "k->weights.data",
    "yoke_weights_read count": "k->weights.bytes",
    "yoke_weights_save path": "k->scratch_path",
    "yoke_weights_save_described path": "k->scratch_path",
    "key": '"key"',
    "name": '"fc.weight"',
}
NUMBERS = {"bool": "true", "yoke_split": "YOKE_SPLIT_TEST", "yoke_shape": "k->shape", "yoke_value": "yoke_model_input(k->draft)",
           "yoke_element": "YOKE_ELEMENT_FLOAT32", "yoke_reduction": "YOKE_SUM", "yoke_stage": "(yoke_stage)0",
           "yoke_status": "YOKE_ERROR_DATA", "yoke_net_part": "YOKE_NET_WEIGHTS", "yoke_onnx_weights": "zero_weights"}
NUMBERS_NAMED = {"index": "0", "root": "0", "group": "-1", "replica": "0", "from": "0", "to": "0", "epoch": "0", "row": "0",
                 "count": "VALUES", "capacity": "1", "rows": "1", "bytes": "sizeof k->text", "repeat": "1", "input": "0"}
# They return what they are given, or are too late for the kit.
NEVER_WELL = {"yoke_error_raise", "yoke_set_allocator"}
# What a call needs to have been called before it.
FIRST = {"yoke_data_parallel_backward_outputs": "yoke_data_parallel_forward(k->parallel, &k->batch, true, NULL)",
         "yoke_data_parallel_update": "yoke_data_parallel_use_average(k->parallel, false), "
                        "yoke_data_parallel_forward(k->parallel, &k->batch, true, NULL), "
                        "yoke_data_parallel_backward(k->parallel, NULL)"}


def declarations(headers):
    """(name, result, [(type, name)], comment) of every exported function."""
    found = []
    for header in sorted(headers.glob("*.h")):
        text = header.read_text()
        for comment, declaration in re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*YOKE_API\s+([^;{]*?)(?:\n#if[^;]*)?;", text, re.S):
            declaration = re.sub(r"\s+", " ", declaration).replace("struct ", "")
            match = re.match(r"(.*?)(\w+)\((.*)\)$", declaration)
            found.append((match[2], match[1].strip(), parameters(match[3]), re.sub(r"\s*\n \*\s*", " ", comment)))
        exported = len(re.findall(r"^YOKE_API ", text, re.M))
        seen = len(re.findall(r"/\*\*(?:(?!\*/).)*\*/\s*YOKE_API\s", text, re.S))
        if exported != seen:
            sys.exit(f"{header}: {exported} functions, and {seen} with a comment")
    return found


def parameters(text):
    """[(type, name)]; a pointer to a function has the type as C writes it."""
    text = re.sub(r"void \(\*(\w+)\)\(const yoke_bad_row \*bad, void \*payload\)", r"void(*)bad \1", text)
    found = []
    for part in text.split(", "):
        if part in ("void", "..."):
            continue
        array = re.match(r"(const float) (\w+)\[4\]$", part)
        match = array or re.match(r"(.*?[ *])(\w+)$", part)
        kind = f"{match[1]} *" if array else match[1].strip()
        kind = kind.replace("void(*)bad", "void (*)(const yoke_bad_row *, void *)")
        found.append((re.sub(r"(?<=\w)\*", " *", kind), match[2]))
    return found


def is_pointer(kind):
    return "*" in kind or kind in ("yoke_replica_job", "yoke_lookup")


def value(function, kind, name):
    """A C expression that is right for the parameter."""
    if f"{function} {name}" in NAMED:
        return NAMED[f"{function} {name}"]
    if not is_pointer(kind):
        return NUMBERS.get(kind) or NUMBERS_NAMED.get(name) or "1"
    if kind == "const char *" and name in NAMED:
        return NAMED[name]
    for known in (kind, kind.removeprefix("const ")):
        if known in POINTERS:
            return POINTERS[known]
    struct = re.match(r"(?:const )?(yoke_\w+) \*$", kind)
    if struct:
        return f"&k->{struct[1].removeprefix('yoke_')}"
    sys.exit(f"{function}: make_null_calls.py has no value of type {kind!r} for {name!r}")


def may_be_null(comment, name, kind):
    """Whether the header allows it. What is passed on to a callback is the caller's own."""
    if name in ("payload", "context") and kind == "void *":
        return True
    words = re.search(rf"@param(?:\[out\])? +{name} (.*?)(?=@param|@return|$)", comment, re.S)
    return bool(words and re.search(r"NULL: |may be NULL|NULL or \"\"|NULL has no|NULL with capacity 0", words[1], re.I))


def call(number, function, result, given, comment, nothing):
    """A C function that calls `function` with NULL as its parameter number `nothing`; -1: none is NULL."""
    words = ", ".join("NULL" if i == nothing else value(function, kind, name) for i, (kind, name) in enumerate(given))
    if nothing >= 0 and function == "yoke_error_raise":
        words = "YOKE_ERROR_DATA, k->nothing, 1"
    where = given[nothing][1] if nothing >= 0 else ""
    allowed = nothing >= 0 and may_be_null(comment, where, given[nothing][0])
    if result == "void":
        body = f"{function}({words});"
    elif result == "yoke_status":
        body = f"k->status = {function}({words});"
    else:
        body = f"k->neutral = IS_NEUTRAL({function}({words}));"
    if function in FIRST:
        body = f"{FIRST[function]};\n    {body}"
    kind = {"void": "NOTHING", "yoke_status": "STATUS"}.get(result, "VALUE")
    if allowed and kind == "STATUS":
        kind = "ALLOWED"
    return (f"static void call_{number}(kit *k) {{\n    (void)k;\n    {body}\n}}\n",
            f'    {{"{function}", "{where}", {kind}, call_{number}}},\n')


def main():
    headers, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    found = declarations(headers)
    bodies, rows, well = [], [], []
    for function, result, given, comment in found:
        for index, (kind, _) in enumerate(given):
            if is_pointer(kind):
                body, row = call(len(bodies), function, result, given, comment, index)
                bodies.append(body)
                rows.append(row)
        if result == "yoke_status" and function not in NEVER_WELL:
            body, row = call(len(bodies), function, result, given, comment, -1)
            bodies.append(body)
            well.append(row)
    takers = {row.split('"')[1] for row in rows}
    output.write_text("/* By make_null_calls.py. */\n" + "".join(bodies) +
                      f"enum {{ FUNCTION_COUNT = {len(takers)} }};\n"
                      "static const null_call null_calls[] = {\n" + "".join(rows) + "};\n"
                      "static const null_call whole_calls[] = {\n" + "".join(well) + "};\n")


if __name__ == "__main__":
    main()
