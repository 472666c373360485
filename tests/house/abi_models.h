/* SPDX-License-Identifier: Apache-2.0 */
/* The part of abi_host.c that continues a text and reads a file of ONNX; it has that file's macros.
 */
static void use_generator(yoke_devices *devices) {
    yoke_generator_options options = YOKE_GENERATOR_OPTIONS_INIT;
    yoke_token_sampling sampling = YOKE_TOKEN_SAMPLING_INIT;
    yoke_generator *generator = NULL;
    yoke_model *model = NULL;
    int token = 3;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    must(yoke_model_preset(&model, "gpt2:layers=1,width=8,heads=1",
                           (yoke_shape){8, 1, 1, true, false}, 10, NULL));
    must(yoke_generator_create(&generator, model, devices, &options));
    RESULT(yoke_generator_info, info);
    must(yoke_generator_describe(generator, &info));
    CHECK_TAIL(info);
    must(yoke_generator_begin(generator, 0, &token, 1));
    must(yoke_generator_next(generator, &sampling, &token));
    printf("generator: context %d, %d classes, kept %d; token %d\n", info.context, info.classes,
           (int)info.keeps, token);
    yoke_generator_destroy(generator);
    yoke_model_destroy(model);
}

static void use_models(yoke_devices *devices) {
    use_generator(devices);
    yoke_onnx_options onnx = YOKE_ONNX_OPTIONS_INIT;
    yoke_model *none = NULL;
    printf("%s\n", yoke_status_name(yoke_model_read_onnx(&none, "none.onnx", &onnx)));
}
