/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what the program holds, places in its code, violations. */
#include "simcuda/handles.h"

#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>
#include <unordered_map>

#include "simcuda/lock.h"
#include "simcuda/schedule.h"

extern "C" {
__attribute__((weak)) void __sanitizer_symbolize_pc(void *pc, const char *format, char *text,
                                                    size_t bytes);
}

namespace sim {
namespace {

struct Holding {
    std::string kind;
    Site site;
    uint64_t order;
};

struct Holdings {
    std::unordered_map<const void *, Holding> live;
    uint64_t adopted = 0;
};

Holdings &holdings() {
    static Holdings *const all = new Holdings;
    return *all;
}

std::string first_line(const std::string &text) {
    return text.substr(0, text.find('\n'));
}

/* "function at file:line", or "" where the program has no line numbers. */
std::string ask_addr2line(const Dl_info &module, const void *pc) {
    char command[512], line[512];
    snprintf(command, sizeof command, "addr2line -Cfpse '%s' %#zx 2>/dev/null", module.dli_fname,
             (size_t)((const char *)pc - (const char *)module.dli_fbase));
    FILE *answer = popen(command, "r");
    if (answer == nullptr) return "";
    bool got = fgets(line, sizeof line, answer) != nullptr;
    pclose(answer);
    if (!got || strstr(line, "??") != nullptr) return "";
    std::string text = first_line(line);
    return text.substr(0, text.find(" (discriminator"));
}

std::string describe_frame(void *return_address) {
    char *pc = (char *)return_address - 1; /* within the call */
    char text[512] = "";
    if (__sanitizer_symbolize_pc != nullptr) {
        __sanitizer_symbolize_pc(pc, "%f at %S", text, sizeof text);
        return text;
    }
    Dl_info module;
    if (dladdr(pc, &module) == 0) return "?";
    std::string line = ask_addr2line(module, pc);
    if (!line.empty()) return line;
    snprintf(text, sizeof text, "%s in %s+%#zx", module.dli_sname ? module.dli_sname : "?",
             module.dli_fname, (size_t)(pc - (char *)module.dli_fbase));
    return text;
}

/* Functions of the interface, and files of the simulator that are not its tests. */
bool is_own(const std::string &frame) {
    for (const char *name : {"sim::", "cuda", "cublas", "cudnn", "nccl"})
        if (frame.compare(0, strlen(name), name) == 0 && frame.find(".c:") == std::string::npos)
            return true;
    return false;
}

void report_at_exit() {
    size_t count;
    std::string list;
    {
        Entry entry;
        count = holdings().live.size();
        if (count > 0) list = outstanding_list();
    }
    if (count == 0) return;
    fprintf(stderr, "simcuda: %zu things were not given back:\n%s", count, list.c_str());
    fflush(nullptr);
    _exit(1);
}

} // namespace

Site::Site() : count_(backtrace(frames_, sizeof frames_ / sizeof *frames_)) {}

void Site::print(FILE *to) const {
    for (int i = 1; i < count_; i++) {
        std::string frame = describe_frame(frames_[i]);
        if (frame.find("sim::Site") != 0 && frame.find("sim::violation") != 0)
            fprintf(to, "    %s\n", frame.c_str());
    }
}

std::string Site::caller() const {
    std::string frame;
    for (int i = 1; i < count_; i++) {
        frame = describe_frame(frames_[i]);
        if (!is_own(frame)) break;
    }
    return frame;
}

void adopt(const void *handle, const char *kind) {
    Entry entry;
    Holdings &all = holdings();
    const char *leaks = getenv("SIMCUDA_LEAKS");
    bool ignored = leaks != nullptr && strcmp(leaks, "ignore") == 0;
    if (all.adopted++ == 0 && !ignored) atexit(report_at_exit);
    all.live[handle] = Holding{kind, Site(), all.adopted};
}

void disown(const void *handle) {
    Entry entry;
    if (holdings().live.erase(handle) == 0)
        violation("%p is given back, but is not held: destroyed twice, or never created", handle);
}

void check_handle(const void *handle, const char *kind, const char *call) {
    auto found = holdings().live.find(handle);
    if (found == holdings().live.end() || found->second.kind != kind)
        violation("%s: %p is not a live %s: destroyed, or never created", call, handle, kind);
}

size_t outstanding() {
    Entry entry;
    return holdings().live.size();
}

std::string outstanding_list() {
    Entry entry;
    std::vector<const Holding *> sorted;
    for (const auto &held : holdings().live)
        sorted.push_back(&held.second);
    std::sort(sorted.begin(), sorted.end(),
              [](const Holding *a, const Holding *b) { return a->order < b->order; });
    std::string list;
    for (const Holding *held : sorted)
        list += "    " + held->kind + ", from " + held->site.caller() + "\n";
    return list;
}

void violation(const char *format, ...) {
    va_list arguments;
    fflush(stdout);
    fprintf(stderr, "simcuda: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::string work = running_work();
    if (!work.empty()) fprintf(stderr, "\n  while running %s", work.c_str());
    fprintf(stderr, "\n");
    Site().print(stderr);
    fflush(stderr);
    abort();
}

} // namespace sim
