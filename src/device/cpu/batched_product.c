/* oneDNN's matmul over three dimensions. Strided operands leave the copies to it. */
#include "device/cpu/batched_product.h"

#include <string.h>

enum { LEFT, RIGHT, PRODUCT, OPERANDS };

typedef struct operand {
    dnnl_dims_t dims, strides;
} operand;

static operand operand_of(int count, int rows, int columns, cpu_product_strides strides) {
    return (operand){
        {count, rows, columns},
        {(dnnl_dim_t)strides.matrix, (dnnl_dim_t)strides.row, (dnnl_dim_t)strides.column}};
}

/* The calls whose form differs between oneDNN 2 and 3. */
#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t append_sum(dnnl_post_ops_t operations) {
    return dnnl_post_ops_append_sum(operations, 1, 0, dnnl_data_type_undef);
}

static dnnl_status_t describe(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                              operand *operands, dnnl_primitive_attr_t attributes) {
    dnnl_memory_desc_t descs[OPERANDS] = {NULL};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
        status = dnnl_memory_desc_create_with_strides(&descs[i], 3, operands[i].dims, dnnl_f32,
                                                      operands[i].strides);
    if (status == dnnl_success)
        status = dnnl_matmul_primitive_desc_create(description, engine, descs[LEFT], descs[RIGHT],
                                                   NULL, descs[PRODUCT], attributes);
    for (int i = 0; i < OPERANDS; i++)
        if (descs[i] != NULL) dnnl_memory_desc_destroy(descs[i]);
    return status;
}
#else
static dnnl_status_t append_sum(dnnl_post_ops_t operations) {
    return dnnl_post_ops_append_sum(operations, 1);
}

static dnnl_status_t describe(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                              operand *operands, dnnl_primitive_attr_t attributes) {
    dnnl_memory_desc_t descs[OPERANDS];
    dnnl_matmul_desc_t product;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
        status = dnnl_memory_desc_init_by_strides(&descs[i], 3, operands[i].dims, dnnl_f32,
                                                  operands[i].strides);
    if (status == dnnl_success)
        status =
            dnnl_matmul_desc_init(&product, &descs[LEFT], &descs[RIGHT], NULL, &descs[PRODUCT]);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(description, &product, attributes, engine, NULL);
    return status;
}
#endif

static dnnl_status_t add_to_product(dnnl_primitive_attr_t attributes) {
    dnnl_post_ops_t operations = NULL;
    dnnl_status_t status = dnnl_post_ops_create(&operations);
    if (status != dnnl_success) return status;
    status = append_sum(operations);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attributes, operations);
    dnnl_post_ops_destroy(operations);
    return status;
}

static dnnl_status_t create_primitive(cpu_batched_product *product, dnnl_engine_t engine,
                                      const cpu_product_shape *shape, bool add) {
    operand operands[OPERANDS] = {
        [LEFT] = operand_of(shape->count, shape->rows, shape->depth, shape->left),
        [RIGHT] = operand_of(shape->count, shape->depth, shape->columns, shape->right),
        [PRODUCT] = operand_of(shape->count, shape->rows, shape->columns, shape->product)};
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && add) status = add_to_product(attributes);
    if (status == dnnl_success)
        status = describe(&product->description, engine, operands, attributes);
    dnnl_primitive_attr_destroy(attributes);
    if (status != dnnl_success) return status;
    return dnnl_primitive_create(&product->primitive, product->description);
}

dnnl_status_t cpu_batched_product_create(cpu_batched_product *product, dnnl_engine_t engine,
                                         const cpu_product_shape *shape, bool add) {
    static const int names[4] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    dnnl_status_t status = create_primitive(product, engine, shape, add);
    if (status != dnnl_success) return status;
    product->scratch_bytes = dnnl_memory_desc_get_size(
        dnnl_primitive_desc_query_md(product->description, dnnl_query_scratchpad_md, 0));
    for (int i = 0; i < 4 && status == dnnl_success; i++) {
        product->arguments[i].arg = names[i];
        status = dnnl_memory_create(
            &product->arguments[i].memory,
            dnnl_primitive_desc_query_md(product->description, dnnl_query_exec_arg_md, names[i]),
            engine, NULL);
    }
    return status;
}

void cpu_batched_product_destroy(cpu_batched_product *product) {
    for (int i = 0; i < 4; i++)
        if (product->arguments[i].memory != NULL) dnnl_memory_destroy(product->arguments[i].memory);
    if (product->primitive != NULL) dnnl_primitive_destroy(product->primitive);
    if (product->description != NULL) dnnl_primitive_desc_destroy(product->description);
    memset(product, 0, sizeof *product);
}

dnnl_status_t cpu_batched_product_bind(cpu_batched_product *product, float *left, float *right,
                                       float *to, void *scratch) {
    void *const addresses[4] = {left, right, to, scratch};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < 4 && status == dnnl_success; i++)
        status = dnnl_memory_set_data_handle(product->arguments[i].memory, addresses[i]);
    return status;
}

dnnl_status_t cpu_batched_product_run(const cpu_batched_product *product, dnnl_stream_t stream) {
    return dnnl_primitive_execute(product->primitive, stream, 4, product->arguments);
}
