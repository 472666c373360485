/* SPDX-License-Identifier: Apache-2.0 */
/* The part of abi_host.c that takes the short road; it has that file's macros. */
static void use_net(const yoke_model *model) {
    enum { ABI_ROWS = 8 };
    static float pixels[ABI_ROWS * 64], scores[ABI_ROWS * 3];
    static int labels[ABI_ROWS];
    yoke_shape shape = yoke_model_input_shape(model), output = yoke_model_output_shape(model);
    yoke_data_parallel_options direct = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_net_options options = YOKE_NET_OPTIONS_INIT;
    yoke_fit_options fit = YOKE_FIT_OPTIONS_INIT;
    yoke_cancellation cancellation = {0};
    yoke_net *net = NULL;
    RESULT(yoke_net_info, info);
    RESULT(yoke_fit_result, result);
    for (int i = 0; i < ABI_ROWS; i++)
        labels[i] = i % 3, pixels[i * 64 + i] = 1;
    yoke_array inputs = yoke_array_of_rows(pixels, YOKE_ELEMENT_FLOAT32, ABI_ROWS, shape);
    yoke_array targets = yoke_array_of_numbers(labels, YOKE_ELEMENT_INT32, ABI_ROWS);
    yoke_array outputs = yoke_array_of_rows(scores, YOKE_ELEMENT_FLOAT32, ABI_ROWS, output);
    direct.algorithm = YOKE_ALGORITHM_DIRECT;
    options.devices = "cpu";
    options.threads = 1, options.batch = ABI_ROWS;
    options.cancellation = &cancellation;
    options.engine = &direct;
    fit.epochs = 2;
    must(yoke_net_open(&net, model, &options));
    must(yoke_net_fit(net, &inputs, &targets, &fit, &result));
    must(yoke_net_predict(net, &inputs, &outputs));
    must(yoke_net_query(net, &info));
    CHECK_TAIL(info);
    CHECK_TAIL(result);
    printf("net: %" PRIu64 " steps, loss %.6g, %" PRIu64 " rows predicted, %.6g\n", info.step,
           result.loss, info.predictions, (double)scores[0]);
    yoke_net_close(net);
}
