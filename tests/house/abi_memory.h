/* SPDX-License-Identifier: Apache-2.0 */
/* abi_host.c's own memory for the library. */
#include <stdlib.h>
#include <string.h>

static size_t abi_allocations;

static void *abi_allocate(void *payload, size_t alignment, size_t bytes) {
    (void)payload;
    abi_allocations++;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void *abi_resize(void *payload, void *memory, size_t bytes) {
    (void)payload;
    return realloc(memory, bytes);
}

static void abi_release(void *payload, void *memory) {
    (void)payload;
    free(memory);
}

static void use_allocator(void) {
    yoke_allocator allocator = YOKE_ALLOCATOR_INIT;
    allocator.allocate = abi_allocate;
    allocator.resize = abi_resize;
    allocator.release = abi_release;
    must(yoke_set_allocator(&allocator));
}

static unsigned char abi_bytes[1 << 16];
static size_t abi_used;

static yoke_status abi_write(void *payload, const void *bytes, size_t count) {
    (void)payload;
    if (count > sizeof abi_bytes - abi_used) return YOKE_ERROR_MEMORY;
    memcpy(abi_bytes + abi_used, bytes, count);
    abi_used += count;
    return YOKE_OK;
}

static void use_memory_files(yoke_data_parallel *engine, const yoke_model *model) {
    yoke_sink sink = YOKE_SINK_INIT;
    yoke_weights_description *description = NULL;
    sink.write = abi_write;
    must(yoke_weights_write(engine, model, NULL, &sink));
    must(yoke_weights_read(engine, model, abi_bytes, abi_used, NULL));
    must(yoke_weights_description_read(&description, abi_bytes, abi_used));
    yoke_weights_description_close(description);
    abi_used = 0;
    yoke_model *read = NULL;
    yoke_status written = yoke_weights_write_onnx(engine, model, &sink);
    yoke_status back = yoke_model_read_onnx(&read, abi_bytes, abi_used, NULL);
    printf("a graph in memory: %s, %s\n", yoke_status_name(written), yoke_status_name(back));
    yoke_model_destroy(read);
    abi_used = 0;
    must(yoke_state_write(engine, &sink));
    must(yoke_state_read(engine, abi_bytes, abi_used, NULL));
    printf("a state in memory: %s\n", abi_used > 0 ? "yes" : "no");
}
