/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of abi_host.c: texts, files of ONNX and schedules; they have that file's macros.
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
    printf("%s\n", yoke_status_name(yoke_model_load_onnx(&none, "none.onnx", &onnx)));
}

static void use_schedules(void) {
    yoke_lr_schedule schedule = {.struct_size = sizeof schedule, .kind = YOKE_LR_COSINE};
    yoke_lr_plateau plateau = YOKE_LR_PLATEAU_INIT;
    schedule.learning_rate = plateau.learning_rate = 0.5;
    schedule.steps = 10;
    plateau.patience = 0;
    double lowered = 0;
    for (int i = 0; i < 3; i++)
        lowered = yoke_lr_plateau_update(&plateau, 1);
    printf("schedules: %.9g, %.9g\n", yoke_lr_schedule_rate(&schedule, 5), lowered);
}
