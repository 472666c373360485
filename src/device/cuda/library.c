/* SPDX-License-Identifier: Apache-2.0 */
/* Opens cuBLASLt, cuDNN and NCCL once in a process: first at the paths that configuring found, then
 * where the system's loader looks. Without a GPU it opens none. */
#include "device/cuda/library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifndef YOKE_CUBLASLT_PATH
#define YOKE_CUBLASLT_PATH ""
#endif
#ifndef YOKE_CUDNN_PATH
#define YOKE_CUDNN_PATH ""
#endif
#ifndef YOKE_NCCL_PATH
#define YOKE_NCCL_PATH ""
#endif
#if CUDART_VERSION >= 13000
#define CUBLASLT_SONAME "libcublasLt.so.13"
#else
#define CUBLASLT_SONAME "libcublasLt.so.12"
#endif

typedef struct found_library {
    bool here;
    const char *path;
    char detail[256]; /* its version and path, or why it cannot be used */
} found_library;

/* The library's only global state; written once, under `once`. */
static struct {
    pthread_once_t once;
    found_library found_lt, found_cudnn, found_cudnn_graph, found_nccl;
    cuda_lt_calls lt;
#ifdef YOKE_HAS_CUDNN
    cuda_cudnn_calls cudnn;
    cuda_cudnn_graph_calls cudnn_graph;
#endif
#ifdef YOKE_HAS_NCCL
    cuda_nccl_calls nccl;
#endif
} libraries = {.once = PTHREAD_ONCE_INIT};

/* The tests' simulated CUDA is linked in, not opened. */
typedef void (*function)(void);
#ifdef YOKE_SIMCUDA
#define CALL(call) {#call, (function)(call)},
#else
#define CALL(call) {#call, NULL},
#endif

typedef struct wanted_library {
    const char *name, *path, *soname;
    struct {
        const char *name;
        function linked;
    } calls[32];
} wanted_library;

static const wanted_library wanted_lt = {
    "cuBLASLt", YOKE_CUBLASLT_PATH, CUBLASLT_SONAME, {CUDA_LT_CALLS(CALL)}};
#ifdef YOKE_HAS_CUDNN
static const wanted_library wanted_cudnn = {
    "cuDNN", YOKE_CUDNN_PATH, "libcudnn.so.9", {CUDA_CUDNN_CALLS(CALL)}};
static const wanted_library wanted_cudnn_graph = {
    "cuDNN", YOKE_CUDNN_PATH, "libcudnn.so.9", {CUDA_CUDNN_GRAPH_CALLS(CALL)}};
#endif
#ifdef YOKE_HAS_NCCL
static const wanted_library wanted_nccl = {
    "NCCL", YOKE_NCCL_PATH, "libnccl.so.2", {CUDA_NCCL_CALLS(CALL)}};
#endif

static void *open_file(found_library *library, const wanted_library *wanted) {
    void *handle = wanted->path[0] != '\0' ? dlopen(wanted->path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (handle == NULL) handle = dlopen(wanted->soname, RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL) return handle;
    const char *reason = dlerror();
    snprintf(library->detail, sizeof library->detail,
             "%s cannot be opened: %s; install it, or put its folder into LD_LIBRARY_PATH",
             wanted->name, reason != NULL ? reason : wanted->soname);
    return NULL;
}

/* Fills `calls`, a struct of function pointers in the order of wanted->calls. A library that lacks
 * one of them is not used. Returns the address of the last function, NULL for failure. */
static const void *find_calls(found_library *library, const wanted_library *wanted, void *handle,
                              void *calls) {
    void *address = NULL;
    for (size_t i = 0; wanted->calls[i].name != NULL; i++) {
        if (handle != NULL)
            address = dlsym(handle, wanted->calls[i].name);
        else
            memcpy(&address, &wanted->calls[i].linked, sizeof address);
        memcpy((char *)calls + i * sizeof address, &address, sizeof address);
        if (address != NULL) continue;
        snprintf(library->detail, sizeof library->detail,
                 "%s has no %s: it is another version than this build needs", wanted->soname,
                 wanted->calls[i].name);
        return NULL;
    }
    return address;
}

static void load_library(found_library *library, const wanted_library *wanted, void *calls) {
    void *handle = NULL;
    if (wanted->calls[0].linked == NULL && (handle = open_file(library, wanted)) == NULL) return;
    const void *address = find_calls(library, wanted, handle, calls);
    library->here = address != NULL;
    if (!library->here) {
        if (handle != NULL) dlclose(handle);
        return;
    }
    Dl_info info;
    bool known = dladdr(address, &info) != 0 && info.dli_fname != NULL;
    library->path = known ? info.dli_fname : wanted->soname;
}

/* "cuBLASLt 13.1.0 (/usr/lib/...)" of 130100; all three libraries number versions this way. */
static void note_version(found_library *library, const wanted_library *wanted, size_t version) {
    snprintf(library->detail, sizeof library->detail, "%s %zu.%zu.%zu (%s)", wanted->name,
             version / 10000, version / 100 % 100, version % 100, library->path);
}

#ifdef YOKE_HAS_NCCL
/* An abort of older ones frees a communicator at once, also while another thread is in a call of
 * it. Version 0: unknown. */
static void refuse_old_nccl(int version) {
    found_library *found = &libraries.found_nccl;
    if (!found->here || version == 0 || version >= 22200) return;
    found->here = false;
    snprintf(found->detail, sizeof found->detail, "NCCL %d.%d is older than 2.22 (%s)",
             version / 10000, version / 100 % 100, found->path);
}
#endif

static void load_all(void) {
    load_library(&libraries.found_lt, &wanted_lt, &libraries.lt);
    if (libraries.found_lt.here)
        note_version(&libraries.found_lt, &wanted_lt, libraries.lt.cublasLtGetVersion());
#ifdef YOKE_HAS_CUDNN
    load_library(&libraries.found_cudnn, &wanted_cudnn, &libraries.cudnn);
    if (libraries.found_cudnn.here)
        note_version(&libraries.found_cudnn, &wanted_cudnn, libraries.cudnn.cudnnGetVersion());
    if (libraries.found_cudnn.here)
        load_library(&libraries.found_cudnn_graph, &wanted_cudnn_graph, &libraries.cudnn_graph);
#else
    snprintf(libraries.found_cudnn.detail, sizeof libraries.found_cudnn.detail,
             "cuDNN is not in this build");
#endif
#ifdef YOKE_HAS_NCCL
    int version = 0;
    load_library(&libraries.found_nccl, &wanted_nccl, &libraries.nccl);
    if (libraries.found_nccl.here && libraries.nccl.ncclGetVersion(&version) == ncclSuccess)
        note_version(&libraries.found_nccl, &wanted_nccl, (size_t)version);
    refuse_old_nccl(version);
#else
    snprintf(libraries.found_nccl.detail, sizeof libraries.found_nccl.detail,
             "NCCL is not in this build");
#endif
}

yoke_status cuda_libraries_open(void) {
    pthread_once(&libraries.once, load_all);
    if (libraries.found_lt.here) return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE, "%s", libraries.found_lt.detail);
}

const cuda_lt_calls *cuda_lt(void) {
    return libraries.found_lt.here ? &libraries.lt : NULL;
}

#ifdef YOKE_HAS_CUDNN
const cuda_cudnn_calls *cuda_cudnn(void) {
    return libraries.found_cudnn.here ? &libraries.cudnn : NULL;
}

const cuda_cudnn_graph_calls *cuda_cudnn_graph(void) {
    return libraries.found_cudnn_graph.here ? &libraries.cudnn_graph : NULL;
}
#endif

#ifdef YOKE_HAS_NCCL
const cuda_nccl_calls *cuda_nccl(void) {
    return libraries.found_nccl.here ? &libraries.nccl : NULL;
}
#endif

const char *cuda_library_detail(const char *library) {
    if (strcmp(library, "cublasLt") == 0) return libraries.found_lt.detail;
    return strcmp(library, "cudnn") == 0 ? libraries.found_cudnn.detail
                                         : libraries.found_nccl.detail;
}
