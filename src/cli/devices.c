/* SPDX-License-Identifier: Apache-2.0 */
/* yoke devices: the backends of this build, the devices of this machine, and how fast GPUs copy to
 * each other. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/result.h"
#include "cli/shared_options.h"

typedef struct devices_flags {
    const char *devices;
    int threads;
    bool json;
} devices_flags;

#define AT(field) CLI_FIELD(devices_flags, field)

static const cli_option options[] = {
    {"devices", "LIST", "the devices to open: auto, cpu, 4xcpu, cuda:0, ... (auto)", AT(devices)},
    CLI_OPTION_THREADS(AT(threads)),
    CLI_OPTION_JSON(AT(json)),
};

const cli_verb devices_verb = {.name = "devices",
                               .summary = "list the devices of this machine",
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

/* A machine of one memory node has no column of nodes. */
static bool shows_nodes(const machine_view *machine) {
    for (int i = 0; i < machine->count; i++)
        if (machine->view.devices[i].nodes[0] != '\0') return true;
    return false;
}

static void print_cpus(const machine_view *machine) {
    bool nodes = shows_nodes(machine);
    printf("%-8s  %7s  %-9s  %s%10s  %-8s  %s\n", "device", "threads", "cores",
           nodes ? "node   " : "", "memory", "bfloat16", "model");
    for (int i = 0; i < machine->count; i++) {
        const yoke_device_info *device = &machine->view.devices[i];
        char node[40] = "", memory[16];
        if (nodes) snprintf(node, sizeof node, "%-5s  ", device->nodes);
        printf("%-8s  %7d  %-9s  %s%10s  %-8s  %s\n", device->name, device->threads,
               device->cores[0] != '\0' ? device->cores : "unbound", node,
               yoke_text_bytes((double)device->memory_bytes, memory, sizeof memory),
               device->bfloat16 ? "yes" : "no", device->description);
    }
}

static void print_gpus(const machine_view *machine) {
    printf("%-8s  %10s  %4s  %10s  %10s  %-8s  %-12s  %-40s  %s\n", "device", "capability", "code",
           "memory", "free", "bfloat16", "PCI", "UUID", "model");
    for (int i = 0; i < machine->count; i++) {
        const yoke_device_info *device = &machine->view.devices[i];
        char memory[16], left[16];
        printf("%-8s  %8d.%d  %4s  %10s  %10s  %-8s  %-12s  %-40s  %s\n", device->name,
               device->capability / 10, device->capability % 10, device->code ? "yes" : "no",
               yoke_text_bytes((double)device->memory_bytes, memory, sizeof memory),
               yoke_text_bytes((double)device->memory_free, left, sizeof left),
               device->bfloat16 ? "yes" : "no", device->pci_id, device->uuid, device->description);
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
    if (machine->view.imbalance[0] != '\0') printf("%s\n", machine->view.imbalance);
    if (machine->peers != NULL) print_peers(machine);
}

static void json_backends(yoke_json *json) {
    yoke_backend_info info;
    yoke_json_open(json, "backends", '[');
    for (int i = 0; backend(i, &info); i++) {
        yoke_json_open(json, NULL, '{');
        yoke_json_text(json, "name", info.name);
        yoke_json_boolean(json, "available", info.available);
        yoke_json_text(json, "detail", info.detail);
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
}

static void json_gpu(yoke_json *json, const yoke_device_info *device) {
    char capability[16];
    snprintf(capability, sizeof capability, "%d.%d", device->capability / 10,
             device->capability % 10);
    yoke_json_text(json, "uuid", device->uuid);
    yoke_json_text(json, "pci_id", device->pci_id);
    yoke_json_text(json, "capability", capability);
    yoke_json_integer(json, "memory_free", (int64_t)device->memory_free);
    yoke_json_integer(json, "multiprocessors", device->multiprocessors);
    yoke_json_boolean(json, "code", device->code);
    yoke_json_text(json, "note", device->note);
}

static void json_devices(yoke_json *json, const machine_view *machine) {
    yoke_json_open(json, "devices", '[');
    for (int i = 0; i < machine->count; i++) {
        const yoke_device_info *device = &machine->view.devices[i];
        yoke_json_open(json, NULL, '{');
        yoke_json_text(json, "name", device->name);
        yoke_json_text(json, "description", device->description);
        yoke_json_integer(json, "threads", device->threads);
        yoke_json_integer(json, "first_core", device->first_core);
        yoke_json_integer(json, "core_count", device->core_count);
        yoke_json_text(json, "cores", device->cores);
        if (device->nodes[0] != '\0') yoke_json_text(json, "nodes", device->nodes);
        yoke_json_integer(json, "memory_bytes", (int64_t)device->memory_bytes);
        yoke_json_boolean(json, "bfloat16", device->bfloat16);
        if (is_gpu(device)) json_gpu(json, device);
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
}

static void json_peers(yoke_json *json, const machine_view *machine) {
    yoke_json_open(json, "peers", '[');
    for (int i = 0; i < machine->count * machine->count; i++) {
        const yoke_peer_info *peer = &machine->peers[i];
        int from = i / machine->count, to = i % machine->count;
        if (from == to) continue;
        yoke_json_open(json, NULL, '{');
        yoke_json_text(json, "from", machine->view.devices[from].name);
        yoke_json_text(json, "to", machine->view.devices[to].name);
        yoke_json_text(json, "path", path_name(peer->path));
        yoke_json_real(json, "bytes_per_second", peer->bytes_per_second);
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
}

static yoke_status print_json(const machine_view *machine) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    json_backends(&json);
    yoke_json_text(&json, "list", machine->list);
    json_devices(&json, machine);
    yoke_json_text(&json, "imbalance", machine->view.imbalance);
    if (machine->peers != NULL) json_peers(&json, machine);
    yoke_json_close(&json, '}');
    return cli_print_json(&json, stdout);
}

int devices_main(int argc, char **argv) {
    devices_flags flags = {.devices = "auto"};
    int code = cli_parse(&devices_verb, argc, argv, &flags, NULL);
    if (code >= 0) return code;
    machine_view machine = {.list = flags.devices};
    yoke_status status = look_around(&machine, &flags);
    if (status == YOKE_OK && flags.json)
        status = print_json(&machine);
    else if (status == YOKE_OK)
        print_words(&machine);
    free(machine.peers);
    return status == YOKE_OK ? 0 : cli_fail(status);
}
