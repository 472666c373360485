/* SPDX-License-Identifier: Apache-2.0 */
/* A profile and a link from the times and bytes of a trace, each figure with its origin. */
#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"
#include "doctor/analysis.h"
#include "doctor/buckets.h"

#define ASSUMED_LINK "pcie4"
#define ASSUMED_DEVICES 4 /* to simulate a run of one device on */
#define ASSUMED_RANKS 2
#define GPU_LATENCY_NS 1e4
#define HOST_LATENCY_NS 5e4
#define SMALL_COPY 4096.0 /* its time is latency */
#define FEW_STEPS 3
#define MOST_ROWS 1e9
#define MOST_ROW_BYTES 1e6 /* times MOST_ROWS a profile may have */
#define MOST_LAYERS 1e5

__attribute__((format(printf, 3, 4))) static void
figure(yoke_doctor_figure *own, yoke_doctor_origin origin, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(own->text, sizeof own->text, format, arguments);
    va_end(arguments);
    own->origin = origin;
}

static void note(yoke_doctor *doctor, const char *text) {
    if (doctor->note_count < YOKE_DOCTOR_NOTES) doctor->notes[doctor->note_count++] = text;
}

/* Devices. */

static yoke_status find_count(const analysis *found, const yoke_doctor_options *options,
                              yoke_doctor *doctor) {
    int world = found->trace->world;
    yoke_doctor_figure *own = &doctor->count;
    doctor->devices = options->devices;
    if (options->devices > 0) {
        if (options->devices < 2 || options->devices > YOKE_SIMULATED_DEVICES)
            return FAIL(YOKE_ERROR_ARGUMENT, "%d devices; 2 to %d can be simulated",
                        options->devices, YOKE_SIMULATED_DEVICES);
        figure(own, YOKE_DOCTOR_STATED, "%d devices", options->devices);
        return YOKE_OK;
    }
    if (doctor->run == YOKE_DOCTOR_DDP && world >= 2 && world <= YOKE_SIMULATED_DEVICES) {
        doctor->devices = world;
        figure(own, YOKE_DOCTOR_MEASURED, "%d ranks", world);
    } else if (doctor->run == YOKE_DOCTOR_DP && doctor->traced_devices >= 2 &&
               doctor->traced_devices <= YOKE_SIMULATED_DEVICES) {
        doctor->devices = doctor->traced_devices;
        figure(own, YOKE_DOCTOR_MEASURED, "%d GPUs", doctor->traced_devices);
    } else {
        doctor->devices = doctor->run == YOKE_DOCTOR_SINGLE ? ASSUMED_DEVICES : ASSUMED_RANKS;
        figure(own, YOKE_DOCTOR_ASSUMED, "%d devices; --devices N says otherwise", doctor->devices);
    }
    return YOKE_OK;
}

/* Rows. */

static double between(double value, double low, double high) {
    return value < low ? low : value > high ? high : value;
}

static void find_rows(const analysis *found, const yoke_doctor_options *options,
                      yoke_doctor *doctor) {
    const kineto_rows *input = &found->trace->input, *loss = &found->trace->loss;
    yoke_profile *profile = &doctor->profile;
    double rows = options->rows > 0 ? options->rows : input->rows > 0 ? input->rows : loss->rows;
    profile->rows = (int)between(rows, 1, MOST_ROWS);
    profile->input_bytes = (size_t)between(input->row_bytes, 1, MOST_ROW_BYTES);
    profile->output_bytes = (size_t)between(loss->row_bytes, 1, MOST_ROW_BYTES);
    if (options->rows > 0)
        figure(&doctor->rows, YOKE_DOCTOR_STATED, "%d on each device", profile->rows);
    else if (rows > 0)
        figure(&doctor->rows, YOKE_DOCTOR_MEASURED, "%d on each device, of %zu bytes",
               profile->rows, profile->input_bytes);
    else
        figure(&doctor->rows, YOKE_DOCTOR_ASSUMED,
               "1 of 1 byte: there are no shapes; record_shapes=True records them");
}

/* Operations of forward: those of the loader, say, lie in its span. */
static int count_layers(const analysis *found, int devices) {
    double calls = 0;
    for (size_t i = 0; i < found->trace->count; i++) {
        const kineto_span *span = &found->trace->spans[i];
        calls += span->name->kind == DOCTOR_OPERATION &&
                 analysis_stage_at(found, span->lane, span->begin_ns) == YOKE_STAGE_FORWARD;
    }
    return (int)between(calls / found->window_count / devices, 1, MOST_LAYERS);
}

/* Links. */

/* The link over which `parts` collectives with so many hops in all, and so many bytes over each
 * device's link, take ns. */
static bool link_from(yoke_link *link, double ns, double bytes, double hops, double latency_ns) {
    double latency = hops * latency_ns > ns / 2 ? ns / 2 / hops : latency_ns;
    double rate = bytes / (ns - hops * latency);
    if (!(ns > 0 && rate > 1e-6 && rate < 1e6)) return false;
    *link = (yoke_link){.bytes_per_ns = rate, .latency_ns = latency};
    return true;
}

static void name_link(yoke_doctor *doctor, yoke_doctor_origin origin, const char *from) {
    char text[YOKE_LINK_BYTES];
    figure(&doctor->link, origin, "%s; %s", yoke_link_describe(&doctor->topology.link, text), from);
}

/* Copies between GPUs, from one to the other. */
static bool link_of_copies(const analysis *found, yoke_link *link) {
    double bytes = 0, ns = 0;
    for (size_t i = 0; i < found->trace->count; i++) {
        const kineto_span *span = &found->trace->spans[i];
        if (!(span->name->marks & DOCTOR_PEER) || span->bytes < SMALL_COPY) continue;
        bytes += span->bytes;
        ns += (double)(span->end_ns - span->begin_ns);
    }
    return link_from(link, ns, bytes, 0, 0);
}

static yoke_status find_link(const analysis *found, const device_times *root,
                             const bucket_list *buckets, const yoke_doctor_options *options,
                             yoke_doctor *doctor) {
    yoke_link *link = &doctor->topology.link;
    double hops = doctor->devices - 1, bytes = buckets->bytes;
    double latency_ns = found->gpu ? GPU_LATENCY_NS : HOST_LATENCY_NS;
    double replicate_ns = 1e6 * root->stage_ms[YOKE_STAGE_REPLICATE];
    if (options->link != NULL) {
        TRY(yoke_link_parse(link, options->link));
        name_link(doctor, YOKE_DOCTOR_STATED, "as stated");
    } else if (doctor->run == YOKE_DOCTOR_DDP && buckets->count > 0 &&
               link_from(link, 1e6 * root->travel_ms, 2 * hops * bytes / doctor->devices,
                         2 * hops * buckets->count, latency_ns)) {
        name_link(doctor, YOKE_DOCTOR_MEASURED, "from all-reduces, latency assumed");
    } else if (doctor->run == YOKE_DOCTOR_DP && link_of_copies(found, link)) {
        link->latency_ns = latency_ns;
        name_link(doctor, YOKE_DOCTOR_MEASURED, "from copies between GPUs, latency assumed");
    } else if (doctor->run == YOKE_DOCTOR_DP &&
               link_from(link, replicate_ns, bytes, hops, latency_ns)) {
        name_link(doctor, YOKE_DOCTOR_MEASURED, "from NCCL's broadcasts, latency assumed");
    } else {
        TRY(yoke_link_parse(link, ASSUMED_LINK));
        name_link(doctor, YOKE_DOCTOR_ASSUMED, ASSUMED_LINK "; --link says otherwise");
    }
    return YOKE_OK;
}

/* Times. */

static double mean_of(const device_times *times, int devices, yoke_stage stage) {
    double sum = 0;
    for (int i = 0; i < devices; i++)
        sum += times[i].stage_ms[stage];
    return sum / devices;
}

/* What neither computes nor is simulated as communication. */
static double host_ms(const device_times *root, yoke_doctor_run run) {
    static const bool simulated[YOKE_DOCTOR_DDP + 1][YOKE_ACCOUNT_STAGES] = {
        [YOKE_DOCTOR_DP] = {[YOKE_STAGE_SCATTER] = true,
                            [YOKE_STAGE_REPLICATE] = true,
                            [YOKE_STAGE_PYTHON] = true,
                            [YOKE_STAGE_GATHER] = true,
                            [YOKE_STAGE_REDUCE] = true},
        [YOKE_DOCTOR_DDP] = {[YOKE_STAGE_ALL_REDUCE] = true}};
    double ms = root->step_ms;
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++) {
        bool computes = stage == YOKE_STAGE_FORWARD || stage == YOKE_STAGE_LOSS ||
                        stage == YOKE_STAGE_BACKWARD || stage == YOKE_STAGE_UPDATE;
        if (computes || simulated[run][stage]) ms -= root->stage_ms[stage];
    }
    return ms > 0 ? ms : 0;
}

static void find_mode(const analysis *found, const device_times *root, yoke_doctor *doctor) {
    unsigned marks = found->trace->marks;
    doctor->unknown_schedule = (marks & DOCTOR_FSDP) != 0;
    doctor->has_mode = doctor->run != YOKE_DOCTOR_SINGLE && !doctor->unknown_schedule;
    doctor->mode = YOKE_SIMULATED_DDP_RING;
    if (doctor->run != YOKE_DOCTOR_DP) return;
    doctor->mode = (marks & DOCTOR_NCCL) != 0 ? YOKE_SIMULATED_NCCL : YOKE_SIMULATED_PYTHON;
    if (doctor->mode == YOKE_SIMULATED_NCCL) doctor->outside_ms = root->stage_ms[YOKE_STAGE_PYTHON];
}

static yoke_status fill_segments(const bucket_list *buckets, double backward_ms,
                                 yoke_profile *profile) {
    double sum_ms = 0;
    size_t count = (size_t)buckets->count;
    profile->segments = yoke_calloc(count, sizeof *profile->segments);
    if (profile->segments == NULL)
        return FAIL_MEMORY(count * sizeof *profile->segments, "segments of a profile");
    profile->segment_count = buckets->count;
    for (size_t s = 0; s < count; s++)
        sum_ms += buckets->list[s].ms;
    for (size_t s = 0; s < count; s++) {
        /* Where the host's calls do not say, backward's time goes by bytes. */
        double share =
            sum_ms > 0 ? buckets->list[s].ms / sum_ms : buckets->list[s].bytes / buckets->bytes;
        profile->segments[s].backward_ms = backward_ms * share;
        profile->segments[s].bytes = (size_t)(buckets->list[s].bytes + 0.5);
    }
    return YOKE_OK;
}

static yoke_status fill_profile(const analysis *found, const device_times *times,
                                const bucket_list *buckets, yoke_doctor *doctor) {
    yoke_profile *profile = &doctor->profile;
    const device_times *root = &times[0];
    int traced = found->device_count;
    double element = found->trace->element_bytes;
    snprintf(profile->device, sizeof profile->device, "%s", doctor->device);
    snprintf(profile->precision, sizeof profile->precision, "%s",
             element == 8   ? "float64"
             : element == 4 ? "float32"
             : element == 2 ? "16 bits"
                            : "unknown");
    snprintf(profile->source, sizeof profile->source, "PyTorch's profiler, %d steps",
             doctor->steps);
    profile->layers = count_layers(found, doctor->run == YOKE_DOCTOR_DP ? traced : 1);
    profile->forward_ms = mean_of(times, traced, YOKE_STAGE_FORWARD);
    profile->loss_ms = root->stage_ms[YOKE_STAGE_LOSS];
    if (doctor->run == YOKE_DOCTOR_DP) profile->loss_ms /= doctor->devices; /* of all rows */
    profile->host_ms = host_ms(root, doctor->run);
    profile->update_ns_per_byte = 1e6 * root->stage_ms[YOKE_STAGE_UPDATE] / buckets->bytes;
    return fill_segments(buckets, mean_of(times, traced, YOKE_STAGE_BACKWARD), profile);
}

static void add_notes(unsigned marks, yoke_doctor *doctor) {
    if (doctor->steps < FEW_STEPS) note(doctor, "fewer than 3 steps: their means say little");
    if (doctor->run == YOKE_DOCTOR_SINGLE && (marks & DOCTOR_DP) != 0)
        note(doctor, "nn.DataParallel ran on one device, so it called the model as it is");
    if (doctor->run == YOKE_DOCTOR_DDP && (marks & (DOCTOR_DDP | DOCTOR_FSDP)) == 0)
        note(doctor, "several ranks without DistributedDataParallel.forward: taken for DDP");
    if (doctor->run == YOKE_DOCTOR_DDP)
        note(doctor, "the trace is of one rank: where it waits for a slower one, that counts as "
                     "all_reduce");
    if (doctor->unknown_schedule)
        note(doctor, "the simulator has no FSDP: there is no error of the schedule that ran");
    if (doctor->profile.segment_count == 0)
        note(doctor, "the trace does not say how many bytes of gradients there are, so nothing is "
                     "simulated: profile with record_shapes=True, or give --bytes or --parameters");
}

yoke_status analysis_profile(const analysis *found, const device_times *times,
                             const yoke_doctor_options *options, yoke_doctor *doctor) {
    bucket_list buckets = {0};
    yoke_status status = find_count(found, options, doctor);
    find_rows(found, options, doctor);
    find_mode(found, &times[0], doctor);
    if (status == YOKE_OK)
        status = buckets_find(found, doctor->run, options->bytes, &buckets, &doctor->bytes);
    if (status == YOKE_OK) status = find_link(found, &times[0], &buckets, options, doctor);
    if (status == YOKE_OK && buckets.count > 0)
        status = fill_profile(found, times, &buckets, doctor);
    yoke_free(buckets.list);
    add_notes(found->trace->marks, doctor);
    return status;
}
