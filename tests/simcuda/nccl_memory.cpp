/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's own memory, and the buffers that communicators know. A buffer is registered while its
 * memory lives, by a communicator of its device, until it is given back or the communicator ends. */
#include <set>

#include "simcuda/api.h"
#include "simcuda/communicator.h"
#include "simcuda/memory.h"
#include "simcuda/schedule.h"

using namespace sim;
using sim::nccl::refuse;

namespace {

std::set<void *> allocated;

struct Registration {
    ncclComm *comm;
    void *buffer;
    size_t bytes;
};
std::set<Registration *> registrations;

#define FAULT(name)                                                                                \
    Entry entry_;                                                                                  \
    if (int code_ = sim::fault(name, ncclSystemError))                                             \
    return refuse((ncclResult_t)code_, name " was made to fail")

void forget(Registration *held) {
    registrations.erase(held);
    disown(held);
    delete held;
}

} // namespace

void sim::nccl::forget_registrations(const ncclComm *comm) {
    for (Registration *held : std::set<Registration *>(registrations))
        if (held->comm == comm) forget(held);
}

ncclResult_t ncclMemAlloc(void **pointer, size_t bytes) {
    *pointer = nullptr;
    FAULT("ncclMemAlloc");
    if (bytes == 0) return refuse(ncclInvalidArgument, "ncclMemAlloc of 0 bytes");
    *pointer = allocate_device(current_device(), bytes);
    if (*pointer == nullptr) return refuse(ncclUnhandledCudaError, "ncclMemAlloc: out of memory");
    allocated.insert(*pointer);
    return ncclSuccess;
}

/* One that fails has given back all the same. */
ncclResult_t ncclMemFree(void *pointer) {
    Entry entry;
    int code = sim::fault("ncclMemFree", ncclSystemError);
    if (allocated.erase(pointer) == 0)
        violation("ncclMemFree of %p, which ncclMemAlloc did not return", pointer);
    for (const Registration *held : registrations)
        if (held->buffer == pointer)
            violation("ncclMemFree of %p, which a communicator has registered", pointer);
    wait_for_device(find_address(pointer).device, "ncclMemFree");
    free_device(pointer);
    return (ncclResult_t)code;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes, void **handle) {
    *handle = nullptr;
    FAULT("ncclCommRegister");
    check_range(comm->device, buffer, bytes, "ncclCommRegister");
    Registration *made = new Registration{comm, buffer, bytes};
    registrations.insert(made);
    adopt(made, "NCCL registration");
    *handle = made;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
    Entry entry;
    int code = sim::fault("ncclCommDeregister", ncclSystemError);
    Registration *held = (Registration *)handle;
    if (registrations.count(held) == 0 || held->comm != comm)
        violation("ncclCommDeregister of %p, which this communicator did not give", handle);
    forget(held);
    return (ncclResult_t)code;
}
