/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions in the order of the ranks, in the buffers' own type, as the rings of a GPU
 * round. */
#include "simcuda/collectives.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace sim::nccl {
namespace {

constexpr size_t BLOCK = 1024; /* elements worked on at a time */

/* Arithmetic of a type: bfloat16 is worked on as float and rounded after every step. */
template <typename T> T add(T a, T b) {
    return (T)(a + b);
}
__nv_bfloat16 add(__nv_bfloat16 a, __nv_bfloat16 b) {
    return __float2bfloat16_rn(__bfloat162float(a) + __bfloat162float(b));
}
template <typename T> T multiply(T a, T b) {
    return (T)(a * b);
}
__nv_bfloat16 multiply(__nv_bfloat16 a, __nv_bfloat16 b) {
    return __float2bfloat16_rn(__bfloat162float(a) * __bfloat162float(b));
}
template <typename T> bool less(T a, T b) {
    return a < b;
}
bool less(__nv_bfloat16 a, __nv_bfloat16 b) {
    return __bfloat162float(a) < __bfloat162float(b);
}

template <typename T> constexpr bool is_integer = std::is_integral<T>::value;

/* An average of floats scales every rank's part first; of integers, the sum. */
template <typename T> T part(ncclRedOp_t op, T value, int ranks) {
    if (op != ncclAvg || is_integer<T>) return value;
    if constexpr (std::is_same<T, __nv_bfloat16>::value)
        return multiply(value, __float2bfloat16_rn(1.0f / (float)ranks));
    else
        return multiply(value, (T)((T)1 / (T)ranks));
}

template <typename T, typename Step>
void each(const T *from, T *to, size_t count, const Step &step) {
    for (size_t i = 0; i < count; i++)
        to[i] = step(to[i], from[i]);
}

template <typename T> void combine(ncclRedOp_t op, int ranks, const T *from, T *to, size_t count) {
    switch (op) {
    case ncclSum:
        return each(from, to, count, [](T a, T b) { return add(a, b); });
    case ncclProd:
        return each(from, to, count, [](T a, T b) { return multiply(a, b); });
    case ncclMax:
        return each(from, to, count, [](T a, T b) { return less(a, b) ? b : a; });
    case ncclMin:
        return each(from, to, count, [](T a, T b) { return less(b, a) ? b : a; });
    default:
        return each(from, to, count, [op, ranks](T a, T b) { return add(a, part(op, b, ranks)); });
    }
}

/* result = the reduction of count elements from `first` on of all ranks. */
template <typename T>
void reduce_block(const std::vector<Call> &calls, size_t first, size_t count, T *result) {
    int ranks = (int)calls.size();
    ncclRedOp_t op = calls[0].op;
    const T *from = (const T *)calls[0].from + first;
    for (size_t i = 0; i < count; i++)
        result[i] = part(op, from[i], ranks);
    for (size_t r = 1; r < calls.size(); r++)
        combine(op, ranks, (const T *)calls[r].from + first, result, count);
    if constexpr (is_integer<T>)
        for (size_t i = 0; op == ncclAvg && i < count; i++)
            result[i] = (T)(result[i] / (T)ranks);
}

/* Elements from `first` on are reduced into the buffers of `to`. */
template <typename T>
void reduce(const std::vector<Call> &calls, size_t first, const std::vector<void *> &to) {
    T result[BLOCK];
    for (size_t i = 0; i < calls[0].count; i += BLOCK) {
        size_t count = std::min(BLOCK, calls[0].count - i);
        reduce_block(calls, first + i, count, result);
        for (void *target : to)
            std::memcpy((void *)((T *)target + i), result, count * sizeof(T));
    }
}

void reduce_as(const std::vector<Call> &calls, size_t first, const std::vector<void *> &to) {
    switch (calls[0].type) {
    case ncclInt8:
        return reduce<int8_t>(calls, first, to);
    case ncclUint8:
        return reduce<uint8_t>(calls, first, to);
    case ncclInt32:
        return reduce<int32_t>(calls, first, to);
    case ncclUint32:
        return reduce<uint32_t>(calls, first, to);
    case ncclInt64:
        return reduce<int64_t>(calls, first, to);
    case ncclUint64:
        return reduce<uint64_t>(calls, first, to);
    case ncclFloat64:
        return reduce<double>(calls, first, to);
    case ncclBfloat16:
        return reduce<__nv_bfloat16>(calls, first, to);
    default:
        return reduce<float>(calls, first, to);
    }
}

} // namespace

size_t type_bytes(ncclDataType_t type) {
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 0;
    }
}

const char *type_name(ncclDataType_t type) {
    static const char *const names[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                        "uint64", "float16", "float32", "float64", "bfloat16"};
    return (size_t)type < sizeof names / sizeof *names ? names[type] : "another type";
}

const char *op_name(ncclRedOp_t op) {
    static const char *const names[] = {"sum", "product", "max", "min", "average"};
    return (size_t)op < sizeof names / sizeof *names ? names[op] : "another operation";
}

bool reduces(Kind kind) {
    return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}

bool rooted(Kind kind) {
    return kind == Kind::reduce || kind == Kind::broadcast;
}

std::vector<Operand> operands(const Call &call, int rank, int ranks) {
    size_t bytes = call.count * type_bytes(call.type), all = bytes * (size_t)ranks;
    bool root = !rooted(call.kind) || call.root == rank;
    std::vector<Operand> list;
    bool gives = call.kind != Kind::receive && (call.kind != Kind::broadcast || root);
    if (gives)
        list.push_back(
            {call.from, call.kind == Kind::reduce_scatter ? all : bytes, false, call.name});
    bool takes = call.kind != Kind::send && (call.kind != Kind::reduce || root);
    if (takes)
        list.push_back({call.to, call.kind == Kind::all_gather ? all : bytes, true, call.name});
    return list;
}

void run(const std::vector<Call> &calls) {
    const Call &first = calls[0];
    size_t bytes = first.count * type_bytes(first.type);
    std::vector<void *> to;
    switch (first.kind) {
    case Kind::all_reduce:
        for (const Call &call : calls)
            to.push_back(call.to);
        return reduce_as(calls, 0, to);
    case Kind::reduce:
        return reduce_as(calls, 0, {calls[(size_t)first.root].to});
    case Kind::reduce_scatter:
        for (size_t r = 0; r < calls.size(); r++)
            reduce_as(calls, r * first.count, {calls[r].to});
        return;
    case Kind::broadcast:
        for (const Call &call : calls)
            std::memmove(call.to, calls[(size_t)first.root].from, bytes);
        return;
    case Kind::all_gather:
        for (const Call &call : calls)
            for (size_t r = 0; r < calls.size(); r++)
                std::memmove((char *)call.to + r * bytes, calls[r].from, bytes);
        return;
    default:
        std::memmove(calls[1].to, first.from, bytes);
    }
}

} // namespace sim::nccl
