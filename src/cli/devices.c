/* yoke devices: what this machine offers, and what this build could use. */
#include <stddef.h>
#include <stdio.h>

#include "cli.h"
#include "result.h"

typedef struct devices_flags {
    const char *devices;
    int threads;
    bool json;
} devices_flags;

#define AT(field) offsetof(devices_flags, field)

static const cli_option options[] = {
    {"devices", "LIST", "show how a list would be opened: auto, cpu, 4xcpu, ... (auto)", CLI_TEXT,
     AT(devices), 0, 0},
    {"threads", "N", "compute threads of each device (cores / devices)", CLI_INTEGER, AT(threads),
     0, 1024},
    {"json", NULL, "print one JSON object", CLI_FLAG, AT(json), 0, 0},
};

const cli_verb devices_verb = {.name = "devices",
                               .summary = "show the devices of this machine and build",
                               .options = options,
                               .option_count = CLI_OPTION_COUNT(options)};

static bool backend(int index, yoke_backend_info *info) {
    *info = (yoke_backend_info){.struct_size = sizeof *info};
    return yoke_backend_describe(index, info);
}

static int shown(const device_view *view) {
    return view->count < CLI_DEVICES_MAX ? view->count : CLI_DEVICES_MAX;
}

static void print_words(const device_view *view, const char *list) {
    yoke_backend_info info;
    printf("backend   usable  detail\n");
    for (int i = 0; backend(i, &info); i++)
        printf("%-8s  %-6s  %s\n", info.name, info.available ? "yes" : "no", info.detail);
    printf("\n'%s' opens\n%-8s  %7s  %-9s  %9s  %-8s  %s\n", list, "device", "threads", "cores",
           "memory", "bfloat16", "model");
    for (int i = 0; i < shown(view); i++) {
        const yoke_device_info *device = &view->devices[i];
        char cores[32] = "unbound", memory[16];
        if (device->first_core >= 0)
            snprintf(cores, sizeof cores, "%d-%d", device->first_core,
                     device->first_core + device->core_count - 1);
        printf("%-8s  %7d  %-9s  %9s  %-8s  %s\n", device->name, device->threads, cores,
               bytes_text((double)device->memory_bytes, memory), device->bfloat16 ? "yes" : "slow",
               device->description);
    }
}

static void print_json(const device_view *view, const char *list) {
    emit json;
    yoke_backend_info info;
    emit_begin(&json, stdout);
    emit_open(&json, NULL, '{');
    emit_open(&json, "backends", '[');
    for (int i = 0; backend(i, &info); i++) {
        emit_open(&json, NULL, '{');
        emit_text(&json, "name", info.name);
        emit_boolean(&json, "available", info.available);
        emit_text(&json, "detail", info.detail);
        emit_close(&json, '}');
    }
    emit_close(&json, ']');
    emit_text(&json, "list", list);
    emit_open(&json, "devices", '[');
    for (int i = 0; i < shown(view); i++) {
        const yoke_device_info *device = &view->devices[i];
        emit_open(&json, NULL, '{');
        emit_text(&json, "name", device->name);
        emit_text(&json, "description", device->description);
        emit_integer(&json, "threads", device->threads);
        emit_integer(&json, "first_core", device->first_core);
        emit_integer(&json, "core_count", device->core_count);
        emit_integer(&json, "memory_bytes", (int64_t)device->memory_bytes);
        emit_boolean(&json, "bfloat16", device->bfloat16);
        emit_close(&json, '}');
    }
    emit_close(&json, ']');
    emit_close(&json, '}');
    emit_end(&json);
}

int devices_main(int argc, char **argv) {
    devices_flags flags = {.devices = "auto"};
    device_view view;
    int code = cli_parse(&devices_verb, argc, argv, &flags, NULL);
    if (code >= 0) return code;
    yoke_status status = device_view_open(&view, flags.devices, flags.threads);
    if (status != YOKE_OK) return cli_fail(status);
    if (flags.json)
        print_json(&view, flags.devices);
    else
        print_words(&view, flags.devices);
    return 0;
}
