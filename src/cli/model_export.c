/* SPDX-License-Identifier: Apache-2.0 */
/* yoke model export: trained weights as a file of ONNX. */
#include "cli/model_export.h"

#include "cli/trained.h"

/* The model of the weights, the engine with them, and the file. */
static yoke_status write_onnx(trained *made, const model_export_flags *flags) {
    const trained_flags from = {
        .weights = flags->weights, .model = flags->model, .devices = "cpu", .batch = 1};
    TRY(trained_open(made, &from));
    if (flags->input.channels > 0) {
        made->info.input = flags->input;
        made->info.classes = flags->classes;
    } else if (!made->described) {
        TRY(trained_guess(made, &from));
    }
    if (flags->classes > 0) made->info.classes = flags->classes;
    TRY(trained_model(made, &from, from.batch));
    TRY(trained_build(made, &from, from.batch, false));
    return yoke_weights_save_onnx(made->parallel, made->model, flags->onnx);
}

int model_export(const model_export_flags *flags) {
    trained made = {0};
    const yoke_used_file files[] = {{"--weights", flags->weights, YOKE_FILE_READ},
                                    {"--onnx", flags->onnx, YOKE_FILE_WRITTEN}};
    yoke_status status = yoke_files_check_apart(files, 2);
    if (status == YOKE_OK) status = write_onnx(&made, flags);
    if (status == YOKE_OK)
        printf("%s: %s with %zu parameters, for rows of any number\n", flags->onnx,
               yoke_model_name(made.model), yoke_model_parameter_count(made.model));
    int code = status == YOKE_OK ? 0 : cli_fail(status);
    trained_close(&made);
    return code;
}
