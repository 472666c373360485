#include "simcuda/fault_signal.h"

#include <csignal>
#include <ucontext.h>

#include "simcuda/memory.h"
#include "simcuda/schedule.h"

namespace sim {
namespace {

struct sigaction previous_segv, previous_bus;

const char *access_of(const void *context) {
#ifdef __x86_64__
    const ucontext_t *at = (const ucontext_t *)context;
    return at->uc_mcontext.gregs[REG_ERR] & 2 ? "writes" : "reads";
#else
    (void)context;
    return "touches";
#endif
}

/* No lock is taken: whoever holds it may be the one that faulted. */
void explain(int signal, siginfo_t *information, void *context) {
    const void *pointer = information->si_addr;
    Address address = find_address(pointer);
    if (address.place != Place::device) { /* not ours: fault again, for the handler before */
        sigaction(signal, signal == SIGSEGV ? &previous_segv : &previous_bus, nullptr);
        return;
    }
    const char *access = access_of(context);
    std::string where = describe_address(pointer);
    int device = running_device();
    if (device < 0)
        violation("host code %s device %d memory: %p, %s", access, address.device, pointer,
                  where.c_str());
    if (!(reach_of(device) & device_bit(address.device)))
        violation("a kernel of device %d %s memory of device %d without peer access: %p, %s",
                  device, access, address.device, pointer, where.c_str());
    violation("a kernel of device %d %s memory of device %d that is not allocated: %p, %s", device,
              access, address.device, pointer, where.c_str());
}

} // namespace

void watch_for_faults() {
    static bool watching;
    if (watching) return;
    watching = true;
    struct sigaction action = {};
    action.sa_sigaction = explain;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous_segv);
    sigaction(SIGBUS, &action, &previous_bus);
}

} // namespace sim
