/* yoke devices: what this machine offers, what this build could use, and how fast GPUs reach each
 * other. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "result.h"

typedef struct devices_flags {
    const char *devices;
    int threads;
    bool json;
} devices_flags;

#define AT(field) offsetof(devices_flags, field)

static const cli_option options[] = {
    {"devices", "LIST", "show how a list would be opened: auto, cpu, 4xcpu, cuda:0, ... (auto)",
     CLI_TEXT, AT(devices), 0, 0},
    {"threads", "N", "compute threads of each device (cores / devices)", CLI_INTEGER, AT(threads),
     0, 1024},
    {"json", NULL, "print one JSON object", CLI_FLAG, AT(json), 0, 0},
};

const cli_verb devices_verb = {.name = "devices",
                               .summary = "show the devices of this machine and build",
                               .options = options,
                               .option_count = CLI_OPTION_COUNT(options)};

typedef struct machine_view {
    const char *list;
    device_view view;
    /* [from * count + to], where several GPUs are open; NULL otherwise */
    yoke_peer_info *peers;
    int count; /* of devices shown */
} machine_view;

static bool backend(int index, yoke_backend_info *info) {
    *info = (yoke_backend_info){.struct_size = sizeof *info};
    return yoke_backend_describe(index, info);
}

static bool is_gpu(const yoke_device_info *device) {
    return device->capability > 0;
}

/* Looking. */

static yoke_status measure_peers(machine_view *machine, const yoke_devices *devices) {
    int count = machine->count;
    machine->peers = calloc((size_t)count * (size_t)count, sizeof *machine->peers);
    for (int i = 0; machine->peers != NULL && i < count * count; i++) {
        yoke_peer_info *peer = &machine->peers[i];
        peer->struct_size = sizeof *peer;
        if (i / count == i % count) continue;
        yoke_status status = yoke_devices_peer(devices, i / count, i % count, peer);
        if (status != YOKE_OK) return status;
    }
    return YOKE_OK;
}

static yoke_status look_around(machine_view *machine, const devices_flags *flags) {
    yoke_devices *devices = NULL;
    yoke_devices_options wanted = {
        .struct_size = sizeof wanted, .list = flags->devices, .threads = flags->threads};
    yoke_status status = yoke_devices_open(&devices, &wanted);
    if (status != YOKE_OK) return status;
    status = device_view_read(&machine->view, devices);
    machine->count = machine->view.count < CLI_DEVICES_MAX ? machine->view.count : CLI_DEVICES_MAX;
    if (status == YOKE_OK && machine->count > 1 && is_gpu(&machine->view.devices[0]))
        status = measure_peers(machine, devices);
    yoke_devices_close(devices);
    return status;
}

/* For people. */

static void print_cpus(const machine_view *machine) {
    printf("%-8s  %7s  %-9s  %9s  %-8s  %s\n", "device", "threads", "cores", "memory", "bfloat16",
           "model");
    for (int i = 0; i < machine->count; i++) {
        const yoke_device_info *device = &machine->view.devices[i];
        char cores[32] = "unbound", memory[16];
        if (device->first_core >= 0)
            snprintf(cores, sizeof cores, "%d-%d", device->first_core,
                     device->first_core + device->core_count - 1);
        printf("%-8s  %7d  %-9s  %9s  %-8s  %s\n", device->name, device->threads, cores,
               bytes_text((double)device->memory_bytes, memory), device->bfloat16 ? "yes" : "slow",
               device->description);
    }
}

static void print_gpus(const machine_view *machine) {
    printf("%-8s  %10s  %4s  %9s  %9s  %-8s  %-12s  %-40s  %s\n", "device", "capability", "code",
           "memory", "free", "bfloat16", "PCI", "UUID", "model");
    for (int i = 0; i < machine->count; i++) {
        const yoke_device_info *device = &machine->view.devices[i];
        char memory[16], left[16];
        printf("%-8s  %8d.%d  %4s  %9s  %9s  %-8s  %-12s  %-40s  %s\n", device->name,
               device->capability / 10, device->capability % 10, device->code ? "yes" : "no",
               bytes_text((double)device->memory_bytes, memory),
               bytes_text((double)device->memory_free, left), device->bfloat16 ? "yes" : "no",
               device->pci_id, device->uuid, device->description);
    }
    for (int i = 0; i < machine->count; i++) {
        if (machine->view.devices[i].note[0] != '\0')
            printf("%s: %s\n", machine->view.devices[i].name, machine->view.devices[i].note);
    }
}

static const char *path_name(yoke_peer_path path) {
    static const char *const names[] = {"same", "direct", "host"};
    return names[path];
}

static void print_peers(const machine_view *machine) {
    printf("\ncopies, GB/s\n%-8s", "from\\to");
    for (int to = 0; to < machine->count; to++)
        printf("  %13s", machine->view.devices[to].name);
    for (int i = 0; i < machine->count * machine->count; i++) {
        const yoke_peer_info *peer = &machine->peers[i];
        int from = i / machine->count, to = i % machine->count;
        if (to == 0) printf("\n%-8s", machine->view.devices[from].name);
        if (to == from)
            printf("  %13s", "-");
        else
            printf("  %6s %6.1f", path_name(peer->path), peer->bytes_per_second / 1e9);
    }
    putchar('\n');
}

static void print_words(const machine_view *machine) {
    yoke_backend_info info;
    printf("backend   usable  detail\n");
    for (int i = 0; backend(i, &info); i++)
        printf("%-8s  %-6s  %s\n", info.name, info.available ? "yes" : "no", info.detail);
    printf("\n'%s' opens\n", machine->list);
    if (is_gpu(&machine->view.devices[0]))
        print_gpus(machine);
    else
        print_cpus(machine);
    if (machine->peers != NULL) print_peers(machine);
}

/* For scripts. */

static void emit_backends(emit *json) {
    yoke_backend_info info;
    emit_open(json, "backends", '[');
    for (int i = 0; backend(i, &info); i++) {
        emit_open(json, NULL, '{');
        emit_text(json, "name", info.name);
        emit_boolean(json, "available", info.available);
        emit_text(json, "detail", info.detail);
        emit_close(json, '}');
    }
    emit_close(json, ']');
}

static void emit_gpu(emit *json, const yoke_device_info *device) {
    char capability[16];
    snprintf(capability, sizeof capability, "%d.%d", device->capability / 10,
             device->capability % 10);
    emit_text(json, "uuid", device->uuid);
    emit_text(json, "pci_id", device->pci_id);
    emit_text(json, "capability", capability);
    emit_integer(json, "memory_free", (int64_t)device->memory_free);
    emit_boolean(json, "code", device->code);
    emit_text(json, "note", device->note);
}

static void emit_devices(emit *json, const machine_view *machine) {
    emit_open(json, "devices", '[');
    for (int i = 0; i < machine->count; i++) {
        const yoke_device_info *device = &machine->view.devices[i];
        emit_open(json, NULL, '{');
        emit_text(json, "name", device->name);
        emit_text(json, "description", device->description);
        emit_integer(json, "threads", device->threads);
        emit_integer(json, "first_core", device->first_core);
        emit_integer(json, "core_count", device->core_count);
        emit_integer(json, "memory_bytes", (int64_t)device->memory_bytes);
        emit_boolean(json, "bfloat16", device->bfloat16);
        if (is_gpu(device)) emit_gpu(json, device);
        emit_close(json, '}');
    }
    emit_close(json, ']');
}

static void emit_peers(emit *json, const machine_view *machine) {
    emit_open(json, "peers", '[');
    for (int i = 0; i < machine->count * machine->count; i++) {
        const yoke_peer_info *peer = &machine->peers[i];
        int from = i / machine->count, to = i % machine->count;
        if (from == to) continue;
        emit_open(json, NULL, '{');
        emit_text(json, "from", machine->view.devices[from].name);
        emit_text(json, "to", machine->view.devices[to].name);
        emit_text(json, "path", path_name(peer->path));
        emit_real(json, "bytes_per_second", peer->bytes_per_second);
        emit_close(json, '}');
    }
    emit_close(json, ']');
}

static void print_json(const machine_view *machine) {
    emit json;
    emit_begin(&json, stdout);
    emit_open(&json, NULL, '{');
    emit_backends(&json);
    emit_text(&json, "list", machine->list);
    emit_devices(&json, machine);
    if (machine->peers != NULL) emit_peers(&json, machine);
    emit_close(&json, '}');
    emit_end(&json);
}

int devices_main(int argc, char **argv) {
    devices_flags flags = {.devices = "auto"};
    int code = cli_parse(&devices_verb, argc, argv, &flags, NULL);
    if (code >= 0) return code;
    machine_view machine = {.list = flags.devices};
    yoke_status status = look_around(&machine, &flags);
    if (status == YOKE_OK && flags.json) print_json(&machine);
    if (status == YOKE_OK && !flags.json) print_words(&machine);
    free(machine.peers);
    return status == YOKE_OK ? 0 : cli_fail(status);
}
