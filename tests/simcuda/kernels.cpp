/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the GPU threads of a launch on the calling OS thread, block after block in an order drawn
 * from the seed. With barriers every GPU thread is a fiber on its own stack; at a barrier the next
 * one that can run goes on, in a drawn order, too, so that a missing barrier shows as a wrong
 * result. Under ThreadSanitizer with racecheck
 * every GPU thread is a thread to it as well, and only barriers order them. */
#include "simcuda/kernel.h"

#include <array>
#include <memory>

#include "simcuda/count.h"
#include "simcuda/fiber.h"

__thread sim::Index threadIdx, blockIdx, blockDim, gridDim;

namespace sim {
namespace {

constexpr unsigned WARP = 32, MOST_THREADS = 1024;

/* Lanes of one warp that meet in a shuffle or an exchange. */
struct Warp {
    unsigned wanted, arrived; /* masks of lanes; arrived 0: none under way */
    std::array<Words, WARP> given, taken; /* taken: by an exchange */
    std::array<unsigned, WARP> source;    /* of a shuffle: whose bits a lane answers */
    std::array<uint64_t, WARP> answer;
};

struct Copy {
    void *to;
    const void *from;
    size_t bytes;
};

/* The block that runs on this OS thread. Stacks stay for the next one. */
struct Block {
    Fiber host;
    std::vector<std::unique_ptr<Fiber>> fibers;
    const std::function<void()> *body = nullptr;
    const char *kernel = "a kernel";
    bool barriers = false; /* allowed by the launch */
    unsigned live = 0, at_barrier = 0;
    unsigned generation = 0; /* of __syncthreads: its parity keeps two in a row apart for TSan */
    unsigned current = 0;
    std::array<Warp, MOST_THREADS / WARP> warps{};
    std::array<std::vector<Copy>, MOST_THREADS> copies; /* that a thread has not waited for */
    std::array<unsigned short, MOST_THREADS> ready; /* a ring */
    unsigned first_ready = 0, ready_count = 0;
    std::vector<unsigned> order; /* of the launch's blocks */
    uint64_t random = 0, launches = 0;
    char begin = 0, end = 0, synced[2] = {0, 0}; /* addresses TSan knows the orderings by */
};

/* A plain pointer: a thread_local object with a constructor would be asked for at every use. */
__thread Block *own_block;

Block &this_block() {
    static thread_local std::unique_ptr<Block> owner;
    if (owner == nullptr) owner = std::make_unique<Block>();
    own_block = owner.get();
    return *own_block;
}

uint64_t draw(Block &block) {
    block.random ^= block.random << 13;
    block.random ^= block.random >> 7;
    block.random ^= block.random << 17;
    return block.random;
}

void seed_order(Block &block) {
    block.random =
        (settings().seed + 1) * 0x9e3779b97f4a7c15u + ++block.launches * 0xbf58476d1ce4e5b9u;
    block.random |= 1;
}

void make_ready(Block &block, unsigned thread) {
    block.ready[(block.first_ready + block.ready_count++) % MOST_THREADS] = (unsigned short)thread;
}

/* Threads first ... first + count - 1, from a drawn one on, in a drawn direction. */
void make_ready(Block &block, unsigned first, unsigned count) {
    uint64_t drawn = draw(block);
    unsigned start = (unsigned)(drawn >> 32) % count, step = drawn & 1 ? 1 : count - 1;
    for (unsigned i = 0, at = start; i < count; i++, at = (at + step) % count)
        make_ready(block, first + at);
}

void run_fiber(Block &block, Fiber &from, unsigned thread) {
    block.current = thread;
    threadIdx.x = thread;
    from.switch_to(*block.fibers[thread]);
}

[[noreturn]] void stuck(const Block &block) {
    unsigned shuffling = block.live - block.at_barrier;
    violation(
        "%s, block %u: %u of its %u threads wait at __syncthreads and %u in a shuffle while %u "
        "have left: every thread of a block must reach every barrier",
        block.kernel, blockIdx.x, block.at_barrier, blockDim.x, shuffling, blockDim.x - block.live);
}

unsigned next_ready(Block &block) {
    if (block.ready_count == 0) stuck(block);
    unsigned thread = block.ready[block.first_ready];
    block.first_ready = (block.first_ready + 1) % MOST_THREADS;
    block.ready_count--;
    return thread;
}

/* The calling GPU thread stands aside until something makes it ready. */
void stand_aside(Block &block) {
    unsigned self = block.current, next = next_ready(block);
    if (next == self) return;
    run_fiber(block, *block.fibers[self], next);
}

/* What every fiber runs, block after block. */
void fiber_main() {
    Block &block = *own_block;
    for (;;) {
        Fiber &self = *block.fibers[block.current];
        tsan_acquire(&block.begin);
        (*block.body)();
        block.copies[threadIdx.x].clear(); /* nobody can read them any more */
        tsan_release(&block.end);
        if (--block.live == 0)
            self.switch_to(block.host);
        else
            run_fiber(block, self, next_ready(block));
    }
}

void run_block(Block &block) {
    block.live = blockDim.x;
    block.at_barrier = 0;
    make_ready(block, 0, blockDim.x);
    tsan_release(&block.begin);
    run_fiber(block, block.host, next_ready(block));
    tsan_acquire(&block.end);
}

/* A GPU promises no order of blocks, so every order is drawn alike often. */
void shuffle_blocks(Block &block, unsigned count) {
    block.order.resize(count);
    for (unsigned i = 0; i < count; i++) {
        unsigned at = (unsigned)(draw(block) % (i + 1));
        block.order[i] = block.order[at];
        block.order[at] = i;
    }
}

void run_block_plainly(Block &block) {
    bool forward = draw(block) & 1;
    for (unsigned i = 0; i < blockDim.x; i++) {
        threadIdx.x = forward ? i : blockDim.x - 1 - i;
        (*block.body)();
    }
}

Block &check_barrier(const char *what) {
    if (own_block == nullptr || own_block->body == nullptr) violation("%s outside a kernel", what);
    Block &block = *own_block;
    if (!block.barriers)
        violation("%s in %s, which was launched with LAUNCH: launch it with LAUNCH_BLOCK", what,
                  block.kernel);
    return block;
}

} // namespace

void block_barrier() {
    Block &block = check_barrier("__syncthreads");
    char *synced = &block.synced[block.generation % 2];
    tsan_release(synced);
    if (++block.at_barrier == blockDim.x) {
        block.at_barrier = 0;
        block.generation++;
        make_ready(block, 0, blockDim.x);
    }
    stand_aside(block);
    tsan_acquire(synced);
}

/* The lane waits for the others in the mask. Orders no memory, as on a GPU: TSan is told nothing. */
static Warp &meet(Block &block, unsigned mask, const Words &given, unsigned source) {
    unsigned lane = threadIdx.x % WARP, first = threadIdx.x - lane;
    unsigned lanes = blockDim.x - first < WARP ? blockDim.x - first : WARP;
    unsigned wanted = mask & (~0u >> (WARP - lanes));
    Warp &warp = block.warps[first / WARP];
    if (!(wanted >> lane & 1) || !(wanted >> source & 1))
        violation(
            "%s, block %u: lane %u shuffles with lane %u under mask %#x of a warp of %u lanes",
            block.kernel, blockIdx.x, lane, source, mask, lanes);
    if (warp.arrived != 0 && warp.wanted != wanted)
        violation("%s, block %u: lanes of one warp shuffle under the masks %#x and %#x",
                  block.kernel, blockIdx.x, warp.wanted, wanted);
    warp.wanted = wanted;
    warp.given[lane] = given;
    warp.source[lane] = source;
    warp.arrived |= 1u << lane;
    if (warp.arrived == wanted) {
        warp.arrived = 0;
        for (unsigned i = 0; i < lanes; i++)
            if (wanted >> i & 1) warp.answer[i] = warp.given[warp.source[i]][0];
        if (mask == ~0u) warp.taken = warp.given;
        uint64_t drawn = draw(block);
        for (unsigned i = 0; i < WARP; i++) {
            unsigned at = (unsigned)(drawn & 1 ? i : WARP - 1 - i);
            if (wanted >> at & 1) make_ready(block, first + at);
        }
    }
    stand_aside(block);
    return warp;
}

uint64_t shuffle(unsigned mask, uint64_t bits, unsigned source) {
    Block &block = check_barrier("a shuffle");
    return meet(block, mask, {bits}, source).answer[threadIdx.x % WARP];
}

const Words *exchange(const Words &given) {
    Block &block = check_barrier("a warp's product");
    return meet(block, ~0u, given, threadIdx.x % WARP).taken.data();
}

void copy_async(void *to, const void *from, size_t bytes) {
    Block &block = check_barrier("a copy");
    if ((uintptr_t)to % bytes != 0 || (uintptr_t)from % bytes != 0)
        violation("%s, block %u: a copy of %zu bytes from %p to %p, which are not aligned to them",
                  block.kernel, blockIdx.x, bytes, from, to);
    block.copies[threadIdx.x].push_back({to, from, bytes});
}

void copy_wait() {
    std::vector<Copy> &copies = check_barrier("a wait for copies").copies[threadIdx.x];
    for (const Copy &copy : copies)
        std::memcpy(copy.to, copy.from, copy.bytes);
    copies.clear();
}

static bool begin_kernel(Block &block, const Launch &launch, const std::function<void()> &body) {
    bool fibers = launch.barriers || settings().racecheck;
    block.body = &body;
    block.barriers = launch.barriers;
    blockDim.x = launch.threads;
    gridDim.x = launch.blocks;
    seed_order(block);
    while (fibers && block.fibers.size() < launch.threads)
        block.fibers.push_back(std::make_unique<Fiber>(fiber_main, (unsigned)block.fibers.size()));
    return fibers;
}

void run_kernel(const Launch &launch, const std::function<void()> &body) {
    Block &block = this_block();
    bool fibers = begin_kernel(block, launch, body);
    shuffle_blocks(block, launch.blocks);
    for (unsigned number : block.order) {
        blockIdx.x = number;
        fibers ? run_block(block) : run_block_plainly(block);
    }
    block.body = nullptr;
}

void run_block_of(const Launch &launch, unsigned number, const std::function<void()> &body) {
    Block &block = this_block();
    bool fibers = begin_kernel(block, launch, body);
    blockIdx.x = number;
    fibers ? run_block(block) : run_block_plainly(block);
    block.body = nullptr;
}

static cudaError_t check_launch(const Launch &launch, cudaStream_t stream) {
    if (int code = fault("cudaLaunchKernel", cudaErrorLaunchOutOfResources))
        return (cudaError_t)code;
    if (launch.blocks == 0 || launch.threads == 0 || launch.threads > MOST_THREADS)
        return cudaErrorInvalidConfiguration;
    if (stream != nullptr && stream_device(stream) != current_device())
        return cudaErrorInvalidResourceHandle;
    return cudaSuccess;
}

/* Virtual time: what a launch takes, and a microsecond for as many threads as a large GPU holds. */
static uint64_t launch_cost_ns(const Launch &launch) {
    return 2000 + (uint64_t)launch.blocks * launch.threads * 1000 / (132 * 2048);
}

void launch_kernel(const char *name, const Launch &launch, cudaStream_t stream,
                   std::function<void()> body, void (*code)(), std::string parameters) {
    cudaError_t status = check_launch(launch, stream);
    Work work = [name, launch, body] {
        this_block().kernel = name;
        run_kernel(launch, body);
    };
    if (settings().count) work = count::launch({name, code, launch, std::move(parameters)}, body);
    if (status == cudaSuccess)
        status = enqueue(stream, name, launch_cost_ns(launch), std::move(work));
    if (status != cudaSuccess) remember(status);
}

} // namespace sim
