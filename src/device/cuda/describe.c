/* SPDX-License-Identifier: Apache-2.0 */
/* Describes GPUs: whether each is usable and why not, what it is, and what this build has for
 * it. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/cuda.h"

#define CUDA_MAJOR(version) ((version) / 1000)
#define CUDA_MINOR(version) ((version) % 1000 / 10)

static int driver_version(void) {
    int version = 0;
    if (cudaDriverGetVersion(&version) != cudaSuccess) cudaGetLastError();
    return version;
}

static int runtime_version(void) {
    int version = 0;
    if (cudaRuntimeGetVersion(&version) != cudaSuccess) cudaGetLastError();
    return version;
}

/* Why there is no usable GPU. */

yoke_status cuda_count(int *count) {
    *count = 0;
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaSuccess && *count == 0) error = cudaErrorNoDevice;
    if (error == cudaSuccess) return YOKE_OK;
    cudaGetLastError();
    *count = 0;
    static const struct {
        cudaError_t error;
        const char *reason;
    } rows[] = {
        {cudaErrorNoDevice, "none is visible; see nvidia-smi and CUDA_VISIBLE_DEVICES"},
        {cudaErrorStubLibrary, "libcuda.so is the toolkit's stub; take its folder out of "
                               "LD_LIBRARY_PATH"},
        {cudaErrorInitializationError,
         "the driver does not start; a forked child cannot use CUDA, otherwise see dmesg"},
        {cudaErrorSystemNotReady, "the system is not ready; start nvidia-fabricmanager"},
        {cudaErrorSystemDriverMismatch,
         "the driver's kernel module and its library are of different versions; restart the "
         "machine"},
        {cudaErrorCompatNotSupportedOnDevice,
         "the CUDA compatibility library does not serve this GPU; take it out of LD_LIBRARY_PATH "
         "and update the driver"},
        {cudaErrorUnknown, "the driver does not start; see dmesg, or load module nvidia_uvm"},
    };
    if (error == cudaErrorInsufficientDriver) {
        /* Without a driver CUDA returns error 35 or 100. */
        int driver = driver_version(), runtime = runtime_version();
        if (driver == 0)
            return FAIL(
                YOKE_ERROR_DEVICE,
                "no usable GPU: there is no NVIDIA driver; install one that serves CUDA %d.%d",
                CUDA_MAJOR(runtime), CUDA_MINOR(runtime));
        return FAIL(
            YOKE_ERROR_DEVICE,
            "no usable GPU: the driver serves CUDA %d.%d, this build's runtime is %d.%d; update "
            "the driver, or build with CUDA %d",
            CUDA_MAJOR(driver), CUDA_MINOR(driver), CUDA_MAJOR(runtime), CUDA_MINOR(runtime),
            CUDA_MAJOR(driver));
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].error == error)
            return FAIL(YOKE_ERROR_DEVICE, "no usable GPU: %s (%s)", rows[i].reason,
                        cudaGetErrorName(error));
    }
    return FAIL(YOKE_ERROR_DEVICE, "no usable GPU: %s (%s); see nvidia-smi and dmesg",
                cudaGetErrorString(error), cudaGetErrorName(error));
}

/* Code. */

/* "7.5 8.0 9.0" of "750,800,900". */
static const char *architectures(char *text, size_t size) {
    size_t length = 0;
    text[0] = '\0';
    for (const char *at = cuda_architectures(); *at != '\0' && length < size;) {
        int number = 0, digits = 0;
        if (sscanf(at, "%d%n", &number, &digits) != 1) return at;
        length += (size_t)snprintf(text + length, size - length, "%s%d.%d", length > 0 ? " " : "",
                                   number / 100, number / 10 % 10);
        at += digits;
        at += strspn(at, ", ");
    }
    return text;
}

yoke_status cuda_check_code(cuda_device *cuda) {
    cudaError_t error = cuda_find_code();
    if (error == cudaSuccess) return YOKE_OK;
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction &&
        error != cudaErrorInvalidKernelImage && error != cudaErrorInvalidPtx &&
        error != cudaErrorUnsupportedPtxVersion)
        return cuda_failed(cuda, error, "cudaFuncGetAttributes");
    cudaGetLastError();
    char built[96];
    int driver = driver_version(), runtime = runtime_version();
    return FAIL(YOKE_ERROR_DEVICE,
                "%s: compute capability %d.%d, and this build has code for %s (driver of CUDA "
                "%d.%d, runtime %d.%d); build with -DCMAKE_CUDA_ARCHITECTURES=%d",
                cuda->base.name, cuda->capability / 10, cuda->capability % 10,
                architectures(built, sizeof built), CUDA_MAJOR(driver), CUDA_MINOR(driver),
                CUDA_MAJOR(runtime), CUDA_MINOR(runtime), cuda->capability);
}

uint64_t yoke_cuda_usable(void) {
    int count = 0;
    uint64_t usable = 0;
    if (cuda_count(&count) != YOKE_OK || cuda_libraries_open() != YOKE_OK) return 0;
    int before = cuda_current();
    for (int i = 0; i < count && i < YOKE_DEVICES_LIMIT; i++) {
        if (cudaSetDevice(i) == cudaSuccess && cuda_find_code() == cudaSuccess)
            usable |= (uint64_t)1 << i;
        cudaGetLastError();
    }
    cuda_return_to(before);
    return usable;
}

/* Descriptions. */

void cuda_describe(const yoke_device *device, yoke_device_info *info) {
    const cuda_device *cuda = (const cuda_device *)device;
    struct cudaDeviceProp properties;
    info->first_core = -1;
    info->capability = cuda->capability;
    info->code = true; /* find_gpu checked it */
    snprintf(info->note, sizeof info->note, "%s", cuda->note);
    yoke_core_list_write(&cuda->near, info->cores, sizeof info->cores);
    if (cudaGetDeviceProperties(&properties, cuda->ordinal) == cudaSuccess) {
        snprintf(info->description, sizeof info->description, "%.95s", properties.name);
        int length = snprintf(info->uuid, 48, "GPU-");
        for (int i = 0; i < 16; i++)
            length += snprintf(info->uuid + length, 48 - (size_t)length, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                               (unsigned char)properties.uuid.bytes[i]);
        snprintf(info->pci_id, sizeof info->pci_id, "%04x:%02x:%02x.0", properties.pciDomainID,
                 properties.pciBusID, properties.pciDeviceID);
        info->memory_bytes = properties.totalGlobalMem;
        info->multiprocessors = properties.multiProcessorCount;
    }
    int before = cuda_current();
    size_t total = 0;
    if (cuda_poisoned(cuda) || cudaSetDevice(cuda->ordinal) != cudaSuccess ||
        cudaMemGetInfo(&info->memory_free, &total) != cudaSuccess)
        info->memory_free = 0;
    cuda_return_to(before);
}

/* "; no code for cuda:1: set ..."; empty when there is code for all. */
static const char *without_code(uint64_t usable, int count, char *text, size_t size) {
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < count && i < YOKE_DEVICES_LIMIT && length < size; i++) {
        if (usable >> i & 1) continue;
        length += (size_t)snprintf(text + length, size - length, "%s cuda:%d",
                                   length > 0 ? "," : "; no code for", i);
    }
    if (length > 0 && length < size)
        snprintf(text + length, size - length, ": set CMAKE_CUDA_ARCHITECTURES");
    return text;
}

bool yoke_cuda_describe(yoke_backend_info *info) {
    static _Thread_local char detail[1024];
    char built[96], build[128], missing[256];
    int count = 0, driver = driver_version(), runtime = runtime_version();
    info->name = "cuda";
    info->detail = detail;
    snprintf(build, sizeof build, "CUDA %d.%d with code for %s", CUDA_MAJOR(runtime),
             CUDA_MINOR(runtime), architectures(built, sizeof built));
    if (cuda_count(&count) != YOKE_OK || cuda_libraries_open() != YOKE_OK) {
        snprintf(detail, sizeof detail, "%s (in this build: %s)", yoke_last_error(), build);
        return false;
    }
    uint64_t usable = yoke_cuda_usable();
    snprintf(detail, sizeof detail, "%s, driver of CUDA %d.%d, %s, %s, %s%s", build,
             CUDA_MAJOR(driver), CUDA_MINOR(driver), cuda_library_detail("cublasLt"),
             cuda_library_detail("cudnn"), cuda_library_detail("nccl"),
             without_code(usable, count, missing, sizeof missing));
    return usable != 0;
}
