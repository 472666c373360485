/* SPDX-License-Identifier: Apache-2.0 */
/* Files of ONNX: a model comes back from one as it was written, and a file that anyone may have
 * written gets an error, whatever is wrong with it. The files are made here, byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file_reader.h"
#include "model/graph.h"
#include "support/memory_file.h"
#include "yoke/onnx.h"
#include "yoke/transformer.h"

static char folder[] = "/tmp/yoke-onnx-XXXXXX";
static char path[64];

/* Bytes of a file. */
typedef struct bytes {
    unsigned char data[4096];
    size_t count;
} bytes;

static void put_number(bytes *to, uint64_t number) {
    for (; number > 127; number >>= 7)
        to->data[to->count++] = (unsigned char)(number | 128);
    to->data[to->count++] = (unsigned char)number;
}

static void put_int(bytes *to, int field, uint64_t number) {
    put_number(to, (uint64_t)field << 3);
    put_number(to, number);
}

static void put_block(bytes *to, int field, const void *data, size_t count) {
    assert_true(to->count + count + 20 < sizeof to->data);
    put_number(to, (uint64_t)field << 3 | 2);
    put_number(to, count);
    memcpy(to->data + to->count, data, count);
    to->count += count;
}

static void put_text(bytes *to, int field, const char *text) {
    put_block(to, field, text, strlen(text));
}

static void put(bytes *to, int field, const bytes *part) {
    put_block(to, field, part->data, part->count);
}

/* A node with up to two inputs and one output. */
static void put_node(bytes *graph, const char *kind, const char *a, const char *b,
                     const char *output) {
    bytes node = {0};
    put_text(&node, 1, a);
    if (b != NULL) put_text(&node, 1, b);
    put_text(&node, 2, output);
    put_text(&node, 3, "here");
    put_text(&node, 4, kind);
    put(graph, 1, &node);
}

/* Ones of these sizes; of `elements`, whatever the sizes say. */
static void put_ones(bytes *graph, const char *name, uint64_t height, uint64_t width,
                     size_t elements) {
    static const float one = 1;
    bytes tensor = {0}, data = {0};
    for (size_t i = 0; i < elements; i++, data.count += sizeof one)
        memcpy(data.data + data.count, &one, sizeof one);
    put_int(&tensor, 1, height);
    put_int(&tensor, 1, width);
    put_int(&tensor, 2, 1);
    put_text(&tensor, 8, name);
    put(&tensor, 9, &data);
    put(graph, 5, &tensor);
}

static void put_value(bytes *graph, int field, const char *name, uint64_t features) {
    bytes value = {0}, type = {0}, tensor = {0}, shape = {0}, batch = {0}, size = {0};
    put_text(&batch, 2, "batch");
    put(&shape, 1, &batch);
    put_int(&size, 1, features);
    put(&shape, 1, &size);
    put_int(&tensor, 1, 1);
    put(&tensor, 2, &shape);
    put(&type, 1, &tensor);
    put_text(&value, 1, name);
    put(&value, 2, &type);
    put(graph, field, &value);
}

static void write_bytes(const void *data, size_t count) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void write_graph(const bytes *graph, uint64_t opset) {
    bytes model = {0}, set = {0};
    put_int(&set, 2, opset);
    put_int(&model, 1, 8);
    put(&model, 7, graph);
    put(&model, 8, &set);
    write_bytes(model.data, model.count);
}

/* x [batch, 4] times w [4, 3] plus b, or what the caller has put into the graph already. */
static bytes linear_graph(void) {
    bytes graph = {0};
    put_node(&graph, "MatMul", "x", "w", "y");
    put_ones(&graph, "w", 4, 3, 12);
    put_value(&graph, 11, "x", 4);
    put_value(&graph, 12, "y", 3);
    return graph;
}

static void expect(yoke_status wanted, const char *part) {
    yoke_model *model = (yoke_model *)&wanted;
    yoke_status status = yoke_model_load_onnx(&model, path, NULL);
    if (status != wanted || strstr(yoke_last_error(), part) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", yoke_status_name(status), yoke_last_error(),
                 part);
    assert_null(model);
}

static void a_model_comes_back_as_it_was_written(void **state) {
    (void)state;
    static const char *const names[] = {"resnet20", "vit_tiny:patch=8", "mobilenet_v2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        yoke_model *model = NULL, *back = NULL;
        assert_int_equal(yoke_model_preset(&model, names[i], yoke_shape_image(3, 32, 32), 7, NULL),
                         YOKE_OK);
        for (int k = 0; k < model->tensor_count; k++) {
            yoke_tensor *tensor = &model->tensors[k];
            tensor->given = malloc(tensor->count * sizeof(float));
            for (size_t j = 0; j < tensor->count; j++)
                tensor->given[j] = (float)(k + 1) / (float)(j + 2);
        }
        assert_int_equal(yoke_model_save_onnx(model, NULL, NULL, path), YOKE_OK);
        assert_int_equal(yoke_model_preset(&back, path, (yoke_shape){0}, 0, NULL), YOKE_OK);
        int compared = 0;
        for (int k = 0; k < model->tensor_count; k++) {
            const yoke_tensor *tensor = &model->tensors[k];
            int index = yoke_model_find_tensor(back, tensor->name, NULL);
            assert_true(index >= 0);
            const yoke_tensor *other = &back->tensors[index];
            assert_int_equal(other->count, tensor->count);
            assert_int_equal(other->ndim, tensor->ndim);
            assert_int_equal(other->trainable, tensor->trainable);
            if (tensor->integer) continue;
            assert_memory_equal(other->given, tensor->given, tensor->count * sizeof(float));
            compared++;
        }
        assert_true(compared > 10);
        assert_int_equal(yoke_model_output_shape(back).channels, 7);
        yoke_model_destroy(back);
        yoke_model_destroy(model);
    }
}

static yoke_status some_weights(void *payload, int index, float *values, size_t count) {
    (void)payload;
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(index + 1) / (float)(i + 2);
    return YOKE_OK;
}

static void a_sink_gets_the_bytes_of_the_file(void **state) {
    (void)state;
    yoke_model *model = NULL, *back = NULL;
    yoke_file_reader reader;
    memory_file whole = {0};
    yoke_sink sink = memory_file_sink(&whole);
    assert_int_equal(yoke_model_preset(&model, "resnet20", yoke_shape_image(3, 32, 32), 7, NULL),
                     YOKE_OK);
    assert_int_equal(yoke_model_write_onnx(model, some_weights, NULL, &sink), YOKE_OK);
    assert_int_equal(yoke_model_save_onnx(model, some_weights, NULL, path), YOKE_OK);
    assert_int_equal(yoke_file_open(&reader, path), YOKE_OK);
    assert_int_equal(reader.bytes, whole.bytes);
    unsigned char *file = malloc(reader.bytes);
    assert_non_null(file);
    assert_int_equal(yoke_file_read_at(&reader, path, 0, file, reader.bytes), YOKE_OK);
    assert_memory_equal(file, whole.data, whole.bytes);
    yoke_file_close(&reader);
    free(file);
    assert_true(whole.calls > 10 && (size_t)whole.calls < whole.bytes / 1024);
    assert_int_equal(yoke_model_read_onnx(&back, whole.data, whole.bytes, NULL), YOKE_OK);
    assert_string_equal(yoke_model_name(back), "model");
    yoke_model_destroy(back);
    for (int call = 1; call <= whole.calls; call++) {
        memory_file part = {.fail_at = call, .fails_with = YOKE_ERROR_IO};
        sink = memory_file_sink(&part);
        assert_int_equal(yoke_model_write_onnx(model, some_weights, NULL, &sink), YOKE_ERROR_IO);
        assert_non_null(strstr(yoke_last_error(), "the sink's write: the store is full"));
        assert_int_equal(part.calls, call);
        assert_true(part.bytes == 0 || memcmp(part.data, whole.data, part.bytes) == 0);
        memory_file_free(&part);
    }
    sink = (yoke_sink)YOKE_SINK_INIT;
    assert_int_equal(yoke_model_write_onnx(model, some_weights, NULL, &sink), YOKE_ERROR_ARGUMENT);
    memory_file_free(&whole);
    yoke_model_destroy(model);
}

static void a_model_without_weights_is_not_written(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_int_equal(yoke_model_preset(&model, "mlp", yoke_shape_image(1, 8, 8), 3, NULL), YOKE_OK);
    assert_int_equal(yoke_model_save_onnx(model, NULL, NULL, path), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "yoke_weights_save_onnx"));
    yoke_model_destroy(model);
}

static void rows_and_classes_must_fit_the_file(void **state) {
    (void)state;
    bytes graph = linear_graph();
    yoke_model *model = NULL;
    yoke_onnx_options options = YOKE_ONNX_OPTIONS_INIT;
    write_graph(&graph, 17);
    options.input = yoke_shape_image(1, 2, 2); /* as many numbers as the vector */
    assert_int_equal(yoke_model_load_onnx(&model, path, &options), YOKE_OK);
    yoke_model_destroy(model);
    options.input = yoke_shape_image(1, 3, 3);
    assert_int_equal(yoke_model_load_onnx(&model, path, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "reads rows of 4 x 1 x 1"));
    options.input = (yoke_shape){0};
    options.outputs = 5;
    assert_int_equal(yoke_model_load_onnx(&model, path, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "3 outputs, and the data has 5"));
}

/* The answer for the file at the path is the one for its bytes in memory, which end where a
 * sanitizer sees what reads behind them. */
static yoke_status read_both(const unsigned char *whole, size_t count) {
    yoke_model *model = NULL, *of_bytes = NULL;
    unsigned char *own = malloc(count > 0 ? count : 1);
    assert_non_null(own);
    memcpy(own, whole, count);
    write_bytes(whole, count);
    yoke_status status = yoke_model_load_onnx(&model, path, NULL);
    unsigned char *begin = count > 0 ? own : own + 1;
    assert_int_equal(yoke_model_read_onnx(&of_bytes, begin, count, NULL), status);
    assert_int_equal(status == YOKE_OK, model != NULL);
    assert_int_equal(status == YOKE_OK, of_bytes != NULL);
    yoke_model_destroy(model);
    yoke_model_destroy(of_bytes);
    free(own);
    return status;
}

/* Every prefix of a file, and every byte changed. */
static void a_broken_file_gets_an_error(void **state) {
    (void)state;
    bytes graph = linear_graph();
    unsigned char whole[4096];
    write_graph(&graph, 17);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t count = fread(whole, 1, sizeof whole, file);
    fclose(file);
    for (size_t length = 0; length < count; length++) {
        yoke_status status = read_both(whole, length);
        if (status == YOKE_OK && length + 6 < count) fail_msg("%zu of %zu bytes", length, count);
    }
    for (size_t i = 0; i < count * 8; i++) {
        whole[i / 8] ^= (unsigned char)(1 << i % 8);
        (void)read_both(whole, count);
        whole[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    write_bytes("", 0);
    expect(YOKE_ERROR_DATA, "no graph with nodes");
    unlink(path);
    expect(YOKE_ERROR_MISSING, "cannot open");
}

static void sizes_that_cannot_be_get_an_error(void **state) {
    (void)state;
    static const struct {
        uint64_t height, width;
    } sizes[] = {
        {(uint64_t)1 << 40, (uint64_t)1 << 40}, {(uint64_t)-1, 3}, {1 << 30, 1 << 30}, {4, 4}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bytes graph = {0};
        put_node(&graph, "MatMul", "x", "w", "y");
        put_ones(&graph, "w", sizes[i].height, sizes[i].width, 12);
        put_value(&graph, 11, "x", 4);
        put_value(&graph, 12, "y", 3);
        write_graph(&graph, 17);
        expect(YOKE_ERROR_DATA, "w");
    }
    bytes graph = {0}; /* a row of 2^31 numbers */
    put_node(&graph, "Relu", "x", NULL, "y");
    put_value(&graph, 11, "x", (uint64_t)1 << 31);
    put_value(&graph, 12, "y", 3);
    write_graph(&graph, 17);
    expect(YOKE_ERROR_ARGUMENT, "dimension 1 of input 'x'");
}

static void a_graph_that_is_none_gets_an_error(void **state) {
    (void)state;
    bytes cycle = {0}, twice = linear_graph(), none = linear_graph(), open = {0}, old;
    put_node(&cycle, "Add", "x", "b", "a");
    put_node(&cycle, "Relu", "a", NULL, "b");
    put_node(&cycle, "Relu", "b", NULL, "y");
    put_value(&cycle, 11, "x", 4);
    put_value(&cycle, 12, "y", 4);
    write_graph(&cycle, 17);
    expect(YOKE_ERROR_DATA, "Add 'here': it reads 'b', which no node before it writes");
    put_node(&twice, "Relu", "x", NULL, "y");
    write_graph(&twice, 17);
    expect(YOKE_ERROR_DATA, "two tensors are called 'y'");
    put_value(&none, 12, "z", 3);
    write_graph(&none, 17);
    expect(YOKE_ERROR_DATA, "no node writes output 1, 'z'");
    put_node(&open, "MatMul", "x", "w", "y");
    put_value(&open, 11, "x", 4);
    put_value(&open, 12, "y", 3);
    write_graph(&open, 17);
    expect(YOKE_ERROR_DATA, "MatMul 'here': it reads 'w'");
    old = linear_graph();
    write_graph(&old, 9);
    expect(YOKE_ERROR_ARGUMENT, "operators are of set 9");
}

/* A product with what `kind` makes of a constant, of 3 x 3 ones. */
static void write_folded(const char *kind, const char *more, const bytes *attribute) {
    bytes graph = {0}, node = {0};
    put_ones(&graph, "onnx::MatMul_7", 3, 3, 9);
    put_text(&node, 1, "onnx::MatMul_7");
    if (more != NULL) put_text(&node, 1, "onnx::MatMul_7");
    if (more != NULL) put_text(&node, 1, more);
    put_text(&node, 2, "made");
    put_text(&node, 3, "here");
    put_text(&node, 4, kind);
    if (attribute != NULL) put(&node, 5, attribute);
    put(&graph, 1, &node);
    put_node(&graph, "MatMul", "x", "made", "y");
    put_value(&graph, 11, "x", 3);
    put_value(&graph, 12, "y", 3);
    write_graph(&graph, 17);
}

static void what_constants_alone_decide_is_checked_too(void **state) {
    (void)state;
    bytes order = {0};
    put_text(&order, 1, "perm");
    put_int(&order, 8, 0);
    put_int(&order, 8, 0);
    put_int(&order, 20, 7);
    write_folded("Transpose", NULL, &order);
    expect(YOKE_ERROR_DATA, "Transpose 'here': an order that names an axis twice");
    write_folded("Max", "", NULL);
    expect(YOKE_ERROR_DATA, "Max 'here': it has no input 2");
}

static void a_missing_operator_is_named_with_its_node(void **state) {
    (void)state;
    bytes graph = {0};
    put_node(&graph, "TopK", "x", NULL, "y");
    put_value(&graph, 11, "x", 4);
    put_value(&graph, 12, "y", 4);
    write_graph(&graph, 17);
    expect(YOKE_ERROR_ARGUMENT, "TopK 'here': Yoke has no such operator");
}

static void names_with_control_characters_are_not_printed(void **state) {
    (void)state;
    bytes graph = {0};
    put_node(&graph, "Relu\x1b[2J", "x", NULL, "y");
    put_value(&graph, 11, "x", 4);
    put_value(&graph, 12, "y", 4);
    write_graph(&graph, 17);
    expect(YOKE_ERROR_DATA, "the operator of node 0 is no printable UTF-8");
    assert_null(strchr(yoke_last_error(), '\x1b'));
}

/* Elements that lie at `location`, bytes from 0 on. */
static void write_external(const char *location) {
    bytes graph = {0}, tensor = {0}, entry = {0};
    put_node(&graph, "MatMul", "x", "w", "y");
    put_value(&graph, 11, "x", 4);
    put_value(&graph, 12, "y", 3);
    put_int(&tensor, 1, 4);
    put_int(&tensor, 1, 3);
    put_int(&tensor, 2, 1);
    put_text(&tensor, 8, "w");
    put_text(&entry, 1, "location");
    put_text(&entry, 2, location);
    put(&tensor, 13, &entry);
    put_int(&tensor, 14, 1);
    put(&graph, 5, &tensor);
    write_graph(&graph, 17);
}

static void weights_beside_the_file_stay_in_its_folder(void **state) {
    (void)state;
    char data[64], link[64], target[64];
    float values[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    yoke_model *model = NULL;
    snprintf(data, sizeof data, "%s/w.data", folder);
    snprintf(link, sizeof link, "%s/link.data", folder);
    snprintf(target, sizeof target, "%s/pipe", folder);
    FILE *file = fopen(data, "w");
    assert_non_null(file);
    fwrite(values, sizeof values, 1, file);
    fclose(file);
    assert_int_equal(symlink(data, link), 0);
    assert_int_equal(mkfifo(target, 0600), 0);
    write_external("w.data");
    yoke_file_reader reader; /* the file is there, but bytes have no folder */
    unsigned char whole[4096];
    yoke_model *of_bytes = NULL;
    assert_int_equal(yoke_file_open(&reader, path), YOKE_OK);
    assert_int_equal(yoke_file_read_at(&reader, path, 0, whole, reader.bytes), YOKE_OK);
    assert_int_equal(yoke_model_read_onnx(&of_bytes, whole, reader.bytes, NULL), YOKE_ERROR_DATA);
    assert_non_null(
        strstr(yoke_last_error(), "are in the file 'w.data', and bytes have no folder"));
    yoke_file_close(&reader);
    assert_int_equal(yoke_model_load_onnx(&model, path, NULL), YOKE_OK);
    assert_memory_equal(model->tensors[0].given, values, sizeof values);
    yoke_model_destroy(model);
    static const char *const outside[] = {"../w.data", "/etc/passwd", "a/../../w.data", "./../x",
                                          ""};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        write_external(outside[i]);
        expect(YOKE_ERROR_DATA, "only files in the model's own folder are read");
    }
    write_external("link.data");
    expect(YOKE_ERROR_IO, "links are not followed");
    write_external("pipe");
    expect(YOKE_ERROR_IO, "no regular file");
    write_external("none.data");
    expect(YOKE_ERROR_MISSING, "none.data");
    assert_int_equal(truncate(data, 40), 0);
    write_external("w.data");
    expect(YOKE_ERROR_DATA, "which has 40 bytes");
    unlink(data);
    unlink(link);
    unlink(target);
}

/* Thousands of empty messages, each of which takes far more memory than its two bytes. */
static void a_small_file_takes_little_memory(void **state) {
    (void)state;
    size_t count = (size_t)8 << 20;
    unsigned char *data = malloc(count);
    assert_non_null(data);
    size_t length = 0;
    data[length++] = 7 << 3 | 2;
    for (size_t rest = count - 6; length < 6; length++, rest >>= 7)
        data[length] = (unsigned char)(length < 5 ? rest | 128 : rest & 127);
    for (; length < count; length += 2) {
        data[length] = 1 << 3 | 2;
        data[length + 1] = 0;
    }
    write_bytes(data, count);
    free(data);
    expect(YOKE_ERROR_DATA, "would take more than");
}

static int begin(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/net.onnx", folder);
    return 0;
}

static int end(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void) {
    yoke_model *model = NULL;
    if (yoke_model_load_onnx(&model, "none", NULL) == YOKE_ERROR_DEVICE) {
        printf("%s\n", yoke_last_error());
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_comes_back_as_it_was_written),
        cmocka_unit_test(a_sink_gets_the_bytes_of_the_file),
        cmocka_unit_test(a_model_without_weights_is_not_written),
        cmocka_unit_test(rows_and_classes_must_fit_the_file),
        cmocka_unit_test(a_broken_file_gets_an_error),
        cmocka_unit_test(sizes_that_cannot_be_get_an_error),
        cmocka_unit_test(a_graph_that_is_none_gets_an_error),
        cmocka_unit_test(what_constants_alone_decide_is_checked_too),
        cmocka_unit_test(a_missing_operator_is_named_with_its_node),
        cmocka_unit_test(names_with_control_characters_are_not_printed),
        cmocka_unit_test(weights_beside_the_file_stay_in_its_folder),
        cmocka_unit_test(a_small_file_takes_little_memory),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
