/* SPDX-License-Identifier: Apache-2.0 */
/* The handler of SIGSEGV. */
#include "simcuda/fault_signal.h"

#include <csignal>
#include <ucontext.h>

#include "simcuda/memory.h"
#include "simcuda/schedule.h"

namespace sim {
namespace {

struct sigaction previous;

const char *access_of(const void *context) {
#ifdef __x86_64__
    const ucontext_t *at = (const ucontext_t *)context;
    return at->uc_mcontext.gregs[REG_ERR] & 2 ? "writes" : "reads";
#else
    (void)context;
    return "touches";
#endif
}

[[noreturn]] void explain(const void *pointer, int owner, const char *access) {
    std::string where = describe_address(pointer);
    int device = running_device();
    if (device < 0)
        violation("host code %s device %d memory: %p, %s", access, owner, pointer, where.c_str());
    if (!(running_reach() & device_bit(owner)))
        violation("a kernel of device %d %s memory of device %d without peer access: %p, %s",
                  device, access, owner, pointer, where.c_str());
    violation("a kernel of device %d %s memory of device %d that is not allocated: %p, %s", device,
              access, owner, pointer, where.c_str());
}

/* No lock is taken: under the seeded scheduler work runs with it held, and a violation ends all. */
void handle(int signal, siginfo_t *information, void *context) {
    void *pointer = information->si_addr;
    Address address = find_address(pointer);
    if (address.place != Place::device) { /* not ours: fault again, for the handler before */
        sigaction(signal, &previous, nullptr);
        return;
    }
    bool work = running_device() >= 0 && !settings().threads;
    if (work && (running_reach() & device_bit(address.device)) && open_memory(pointer)) return;
    explain(pointer, address.device, access_of(context));
}

} // namespace

void watch_for_faults() {
    struct sigaction current, own = {};
    sigaction(SIGSEGV, nullptr, &current);
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == handle) return;
    previous = current;
    own.sa_sigaction = handle;
    own.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&own.sa_mask);
    sigaction(SIGSEGV, &own, nullptr);
}

} // namespace sim
