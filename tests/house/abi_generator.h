/* SPDX-License-Identifier: Apache-2.0 */
/* The part of abi_host.c that continues a text; it has that file's macros. */
static void use_generator(yoke_devices *devices) {
    yoke_generator_options options = YOKE_GENERATOR_OPTIONS_INIT;
    yoke_token_sampling drawing = YOKE_TOKEN_SAMPLING_INIT;
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
    must(yoke_generator_next(generator, &drawing, &token));
    printf("generator: context %d, %d classes, kept %d; token %d\n", info.context, info.classes,
           (int)info.keeps, token);
    yoke_generator_destroy(generator);
    yoke_model_destroy(model);
}
