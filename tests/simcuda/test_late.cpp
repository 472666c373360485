/* SPDX-License-Identifier: Apache-2.0 */
/* SIMCUDA_LATE: whoever reads what he did not wait for reads it unwritten, under every seed. */
#include "simcuda/environment.h"
#include "simcuda/rig.h"

using rig::check;
using rig::make_event;
using rig::make_stream;

static void note(cudaStream_t stream, std::string &notes, char name) {
    check(sim::enqueue(stream, "note", 1000, [&notes, name] { notes += name; }));
}

static void expect(const std::string &notes, const char *wanted) {
    if (notes == wanted) return;
    fprintf(stderr, "\"%s\" ran, not \"%s\"\n", notes.c_str(), wanted);
    exit(1);
}

static void destroy(std::initializer_list<cudaStream_t> streams) {
    for (cudaStream_t stream : streams)
        check(cudaStreamDestroy(stream));
}

SCENARIO(one_of_two) {
    std::string notes;
    cudaStream_t one = make_stream(), two = make_stream();
    note(one, notes, 'a');
    note(two, notes, 'b');
    note(two, notes, 'c');
    check(cudaStreamSynchronize(one));
    expect(notes, "a");
    check(cudaStreamSynchronize(two));
    expect(notes, "abc");
    destroy({one, two});
}

SCENARIO(up_to_an_event) {
    std::string notes;
    cudaStream_t stream = make_stream();
    cudaEvent_t event = make_event();
    note(stream, notes, 'a');
    check(cudaEventRecord(event, stream));
    note(stream, notes, 'b');
    while (cudaEventQuery(event) == cudaErrorNotReady)
        continue;
    cudaGetLastError();
    expect(notes, "a");
    check(cudaDeviceSynchronize());
    expect(notes, "ab");
    check(cudaEventDestroy(event));
    destroy({stream});
}

SCENARIO(chain_of_streams) {
    std::string notes;
    cudaStream_t one = make_stream(), two = make_stream(), three = make_stream();
    cudaEvent_t first = make_event(), second = make_event();
    note(one, notes, 'a');
    check(cudaEventRecord(first, one));
    note(one, notes, 'x');
    check(cudaStreamWaitEvent(two, first, 0));
    note(two, notes, 'b');
    check(cudaEventRecord(second, two));
    note(two, notes, 'y');
    check(cudaStreamWaitEvent(three, second, 0));
    note(three, notes, 'c');
    check(cudaStreamSynchronize(three));
    expect(notes, "abc");
    check(cudaDeviceSynchronize());
    check(cudaEventDestroy(first));
    check(cudaEventDestroy(second));
    destroy({one, two, three});
}

SCENARIO(joint) {
    std::string notes;
    cudaStream_t one = make_stream(), two = make_stream();
    note(two, notes, 'a');
    check(sim::enqueue_joint({one, two}, "meet", 1000, [&notes] { notes += 'm'; }));
    note(two, notes, 'x');
    check(cudaStreamSynchronize(one));
    expect(notes, "am");
    check(cudaDeviceSynchronize());
    destroy({one, two});
}

/* A graph that records `event` behind its only work. */
static cudaGraphExec_t counting_graph(cudaStream_t stream, cudaEvent_t event, int &count) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    check(sim::enqueue(stream, "count", 1000, [&count] { count++; }));
    check(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&exec, graph, 0));
    check(cudaGraphDestroy(graph));
    return exec;
}

SCENARIO(waits_before_and_after_a_launch) {
    cudaStream_t stream = make_stream(), side = make_stream();
    cudaEvent_t event = make_event();
    int count = 0, seen = -1;
    cudaGraphExec_t exec = counting_graph(stream, event, count);
    auto look = [&] { check(sim::enqueue(side, "look", 1000, [&] { seen = count; })); };
    for (int launch = 1; launch <= 3; launch++) {
        check(cudaStreamWaitEvent(side, event, 0)); /* of the launch before; at first of none */
        look();
        check(cudaGraphLaunch(exec, stream));
        check(cudaStreamSynchronize(side));
        if (seen != launch - 1) exit(1);
        check(cudaStreamWaitEvent(side, event, 0));
        look();
        check(cudaStreamSynchronize(side));
        if (seen != launch) exit(2);
    }
    check(cudaDeviceSynchronize());
    check(cudaGraphExecDestroy(exec));
    check(cudaEventDestroy(event));
    destroy({stream, side});
}

SCENARIO(nobody_joins) {
    cudaStream_t one = make_stream(), two = make_stream();
    sim::Joint joint = sim::open_joint("meet", 2, 1000, nullptr);
    check(sim::join(joint, one));
    check(sim::enqueue(two, "can run", 1000, [] {}));
    cudaStreamSynchronize(one);
}

/* Under every kind of seed. */
static void passes_late(const char *scenario) {
    if (sim::settings().threads) skip();
    rig::Environment late("SIMCUDA_LATE", "1");
    for (int seed = 0; seed < 6; seed++) {
        rig::Outcome outcome = rig::run_with("SIMCUDA_SEED", std::to_string(seed), scenario);
        if (outcome.status != 0)
            fail_msg("%s, seed %d: status %#x: %s", scenario, seed, outcome.status,
                     outcome.text.c_str());
    }
}

static void a_wait_for_one_stream_leaves_the_others(void **) {
    passes_late("one_of_two");
}

static void a_wait_for_an_event_leaves_what_comes_behind_it(void **) {
    passes_late("up_to_an_event");
}

static void a_wait_runs_what_its_streams_wait_for(void **) {
    passes_late("chain_of_streams");
}

static void a_joint_brings_the_other_streams_to_it(void **) {
    passes_late("joint");
}

static void a_wait_before_a_launch_sees_the_record_before_it(void **) {
    passes_late("waits_before_and_after_a_launch");
}

static void what_can_run_but_does_not_help_hides_no_deadlock(void **) {
    if (sim::settings().threads) skip();
    rig::Environment late("SIMCUDA_LATE", "1");
    rig::assert_violation("waits for 1 more of 2 streams to join", "nobody_joins");
}

int main(int count, char **arguments) {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_for_one_stream_leaves_the_others),
        cmocka_unit_test(a_wait_for_an_event_leaves_what_comes_behind_it),
        cmocka_unit_test(a_wait_runs_what_its_streams_wait_for),
        cmocka_unit_test(a_joint_brings_the_other_streams_to_it),
        cmocka_unit_test(a_wait_before_a_launch_sees_the_record_before_it),
        cmocka_unit_test(what_can_run_but_does_not_help_hides_no_deadlock),
    };
    return RUN_TESTS(count, arguments, tests);
}
