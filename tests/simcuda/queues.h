/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the schedulers, the queues and waiting threads: schedule.cpp, streams.cpp,
 * wait.cpp. */
#ifndef SIMCUDA_QUEUES_H
#define SIMCUDA_QUEUES_H

#include "simcuda/memory.h"
#include "simcuda/schedule.h"

namespace sim {

struct Schedule {
    std::vector<std::unique_ptr<CUstream_st>> streams;
    CUstream_st *defaults[DEVICES_LIMIT] = {};
    int numbers[DEVICES_LIMIT] = {};
    char ended[DEVICES_LIMIT] = {}; /* marks: works of streams that are no more */
    Bell progress;                  /* rung when anything is queued or done */
    int hosts = 0, waiting = 0;     /* host threads that ever called, and that wait now */
    int threads = 0;                /* of streams */
    /* The seeded scheduler: its random numbers, how often of 16 times a call lets time pass, and
     * how often the stream that ran last goes on. */
    uint64_t random, eager, loyal;
    const CUstream_st *last = nullptr;
    Schedule();
};
Schedule &schedule();

bool head_can_run(const CUstream_st &stream);
bool anything_runs(); /* or can */
/* Whatever the others do. */
bool stands_at(const CUstream_st &stream, const Joint &joint);
void mark_done(const RecordRef &record, uint64_t time_ns);
void tell_everybody(); /* whose turn has come, and hosts that wait */
void forget_drained();
void refuse_in_work(const char *call);

void start_thread(CUstream_st &stream); /* under the threads scheduler, once */
/* Nothing under the threads scheduler. run_one: false when no stream can go on, or none of those
 * that may. run_towards: SIMCUDA_LATE leaves all that `record` does not need. */
bool run_one();
bool run_one_of(const std::function<bool(const CUstream_st &)> &may_run);
bool run_towards(const RecordRef &record);
void let_time_pass();
bool flip_coin();

} // namespace sim

#endif
