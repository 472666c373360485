/* SPDX-License-Identifier: Apache-2.0 */
/* Context switches: x86-64 in a few instructions, ucontext elsewhere. */
#include "simcuda/fiber.h"

#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

#include "simcuda/sim.h"

#if !defined(__x86_64__) && !defined(SIMCUDA_UCONTEXT)
#define SIMCUDA_UCONTEXT
#endif
#ifdef SIMCUDA_UCONTEXT
#include <ucontext.h>
#endif

/* Present when the program is linked with the sanitizer. */
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void **fake, const void *bottom,
                                                          size_t bytes);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void *fake, const void **bottom,
                                                           size_t *bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void *address,
                                                         size_t bytes);
__attribute__((weak)) void *__tsan_get_current_fiber(void);
__attribute__((weak)) void *__tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void *fiber);
__attribute__((weak)) void __tsan_switch_to_fiber(void *fiber, unsigned flags);
__attribute__((weak)) void __tsan_acquire(void *address);
__attribute__((weak)) void __tsan_release(void *address);
}

namespace sim {

/* Not a power of two, and tops apart from each other: the innermost frames of a block's fibers
 * would otherwise share a few sets of the caches, which makes a switch four times slower. */
static constexpr size_t STACK_BYTES = 132 << 10, TOP_STEP = 320, TOPS = 16;
static constexpr unsigned TSAN_NO_SYNC = 1;

static __thread Fiber *running, *left;

static bool racecheck() {
    static const bool on = __tsan_create_fiber != nullptr && settings().racecheck;
    return on;
}

#ifdef SIMCUDA_UCONTEXT

static void *prepare(char *stack, size_t bytes, void (*enter)()) {
    ucontext_t *context = new ucontext_t;
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = bytes;
    context->uc_link = nullptr;
    makecontext(context, enter, 0);
    return context;
}

static void exchange(void **save, void *load) {
    if (*save == nullptr) *save = new ucontext_t;
    swapcontext((ucontext_t *)*save, (ucontext_t *)load);
}

static void forget(void *context) {
    delete (ucontext_t *)context;
}

#else

/* Saves what a called function must keep, and the stack pointer; loads those of the other fiber. */
extern "C" void simcuda_switch(void **save, void *load);
asm(".text\n"
    ".p2align 4\n"
    ".type simcuda_switch, @function\n"
    "simcuda_switch:\n"
    "    push %rbp\n"
    "    push %rbx\n"
    "    push %r12\n"
    "    push %r13\n"
    "    push %r14\n"
    "    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov %rsi, %rsp\n"
    "    pop %r15\n"
    "    pop %r14\n"
    "    pop %r13\n"
    "    pop %r12\n"
    "    pop %rbx\n"
    "    pop %rbp\n"
    "    ret\n"
    ".size simcuda_switch, . - simcuda_switch\n");

/* The first switch pops six zeros and returns to `enter`, above which a zero ends backtraces. */
static void *prepare(char *stack, size_t bytes, void (*enter)()) {
    uintptr_t *top = (uintptr_t *)(stack + bytes);
    top[-2] = (uintptr_t)enter;
    return top - 8;
}

static void exchange(void **save, void *load) {
    simcuda_switch(save, load);
}

static void forget(void *) {}

#endif

/* The lowest page stays closed: a stack that overflows faults. */
static char *map_stack(size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    void *stack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (stack == MAP_FAILED) violation("no memory for the stack of a GPU thread");
    mprotect(stack, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE);
    return (char *)stack;
}

Fiber::Fiber() = default;

Fiber::Fiber(void (*main)(), unsigned index)
    : main_(main), stack_(map_stack(STACK_BYTES)), bytes_(STACK_BYTES) {
    context_ = prepare(stack_, bytes_ - index % TOPS * TOP_STEP, enter);
    if (racecheck()) tsan_ = __tsan_create_fiber(0);
}

Fiber::~Fiber() {
    forget(context_);
    if (main_ == nullptr) return;
    if (tsan_ != nullptr) __tsan_destroy_fiber(tsan_);
    if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(stack_, bytes_);
    munmap(stack_, bytes_);
}

void Fiber::switch_to(Fiber &next) {
    if (racecheck()) {
        if (main_ == nullptr) tsan_ = __tsan_get_current_fiber();
        __tsan_switch_to_fiber(next.tsan_, TSAN_NO_SYNC);
    }
    left = this;
    running = &next;
    if (__sanitizer_start_switch_fiber != nullptr)
        __sanitizer_start_switch_fiber(&fake_stack_, next.stack_, next.bytes_);
    exchange(&context_, next.context_);
    arrived();
}

void Fiber::enter() {
    running->arrived();
    running->main_();
}

/* AddressSanitizer tells here where the OS thread's own stack lies. */
void Fiber::arrived() {
    if (__sanitizer_finish_switch_fiber == nullptr) return;
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
    if (left->main_ == nullptr) {
        left->stack_ = (char *)bottom;
        left->bytes_ = bytes;
    }
}

void tsan_release(void *address) {
    if (racecheck()) __tsan_release(address);
}

void tsan_acquire(void *address) {
    if (racecheck()) __tsan_acquire(address);
}

} // namespace sim
