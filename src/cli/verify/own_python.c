/* SPDX-License-Identifier: Apache-2.0 */
/* The arrays of a bucket are copied to memory that both processes see, and back. A line asks for
 * each send, because the time of the links is computed here. */
#include "cli/verify/own_python.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

#define LINE 512
#define CHANNEL 3 /* the helper's socket */
#define MEMORY 4  /* and its shared memory */

/* Arguments: the file. numpy's arrays where there is numpy, otherwise memoryviews of floats. */
static const char helper[] =
    "import mmap, os, sys, traceback\n"
    "try:\n"
    "    import numpy\n"
    "except ImportError:\n"
    "    numpy = None\n"
    "channel = os.fdopen(3, 'rb'), os.fdopen(os.dup(3), 'wb', 0)\n"
    "os.dup2(2, 1)\n"
    "class Bucket:\n"
    "    def __init__(self, devices, count, number):\n"
    "        self.devices, self.count, self.bucket = devices, count, number\n"
    "        memory = mmap.mmap(4, max(8 * devices * count, 1))\n"
    "        def array(k):\n"
    "            if numpy:\n"
    "                return numpy.frombuffer(memory, numpy.float32, count, 4 * k * count)\n"
    "            return memoryview(memory)[4 * k * count:4 * (k + 1) * count].cast('f')\n"
    "        self.gradients = [array(k) for k in range(devices)]\n"
    "        self.inboxes = [array(devices + k) for k in range(devices)]\n"
    "    def send(self, sender, to, first, count, word='send'):\n"
    "        channel[1].write(f'{word} {sender:d} {to:d} {first:d} {count:d}\\n'.encode())\n"
    "        answer = channel[0].readline().decode().strip()\n"
    "        if answer != 'ok':\n"
    "            raise ValueError(answer)\n"
    "    def send_bfloat16(self, sender, to, first, count):\n"
    "        self.send(sender, to, first, count, 'half')\n"
    "def say(text):\n"
    "    line = ' '.join(text.split()).encode(errors='backslashreplace')[:400]\n"
    "    channel[1].write(line.decode(errors='ignore').encode() + b'\\n')\n"
    "def attempt(work):\n"
    "    try:\n"
    "        work()\n"
    "        say('done')\n"
    "    except BaseException as error:\n"
    "        at = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)\n"
    "              if frame.filename == path]\n"
    "        at = at[-1] if at else getattr(error, 'lineno', None)\n"
    "        say(f'error {type(error).__name__}: {error}' + (f', in line {at}' if at else ''))\n"
    "path, own = sys.argv[1], {'__name__': 'exchange'}\n"
    "def load():\n"
    "    exec(compile(open(path, 'rb').read(), path, 'exec'), own)\n"
    "    if not callable(own.get('all_reduce')):\n"
    "        raise NameError('the file has no function all_reduce')\n"
    "attempt(load)\n"
    "for line in channel[0]:\n"
    "    attempt(lambda: own['all_reduce'](Bucket(*map(int, line.split()))))\n";

struct own_python {
    pid_t pid;
    int memory;
    FILE *in; /* from the helper; to it by the same socket */
};

static void become_python(const char *path, int channel, int memory, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    channel = fcntl(channel, F_DUPFD, MEMORY + 1); /* neither is at the other's place then */
    memory = fcntl(memory, F_DUPFD, MEMORY + 1);
    dup2(channel, CHANNEL);
    dup2(memory, MEMORY);
    execlp("python3", "python3", "-c", helper, path, (char *)NULL);
    _exit(127);
}

static yoke_status start(own_python *python, const char *path) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return cli_refuse(YOKE_ERROR_SYSTEM, "cannot create a socket: %s", strerror(errno));
    pid_t parent = getpid();
    python->pid = fork();
    if (python->pid == 0) become_python(path, ends[1], python->memory, parent);
    close(ends[1]);
    python->in = fdopen(ends[0], "r");
    if (python->pid > 0 && python->in != NULL) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_SYSTEM, "cannot start python3");
}

/* Where Python has ended, the next read_line says so, and no SIGPIPE ends this process. */
static void tell(own_python *python, const char *text) {
    for (size_t left = strlen(text); left > 0;) {
        ssize_t sent = send(fileno(python->in), text, left, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return;
        text += sent;
        left -= (size_t)sent;
    }
}

/* The next line without its end. */
static bool read_line(own_python *python, char line[LINE]) {
    if (fgets(line, LINE, python->in) == NULL) return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

yoke_status own_python_open(own_python **python, const char *path) {
    char line[LINE] = "";
    own_python *made = *python = calloc(1, sizeof *made);
    if (made == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for an exchange");
    made->memory = memfd_create("exchange", MFD_CLOEXEC);
    yoke_status status = made->memory >= 0
                             ? start(made, path)
                             : cli_refuse(YOKE_ERROR_SYSTEM, "cannot share memory with python3");
    if (status == YOKE_OK && !read_line(made, line))
        status = cli_refuse(YOKE_ERROR_MISSING, "no python3 that runs %s: install Python", path);
    else if (status == YOKE_OK && strcmp(line, "done") != 0)
        status = cli_refuse(YOKE_ERROR_DATA, "%s: %s", path, line + strcspn(line, " "));
    if (status == YOKE_OK) return YOKE_OK;
    own_python_close(made);
    *python = NULL;
    return status;
}

void own_python_close(own_python *python) {
    if (python == NULL) return;
    if (python->pid > 0) kill(python->pid, SIGKILL);
    if (python->pid > 0) waitpid(python->pid, NULL, 0);
    if (python->in != NULL) fclose(python->in);
    if (python->memory >= 0) close(python->memory);
    free(python);
}

static float *share(own_python *python, const yoke_bucket_gradients *bucket, size_t bytes) {
    float *shared = MAP_FAILED;
    if (ftruncate(python->memory, (off_t)bytes) == 0)
        shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, python->memory, 0);
    if (shared == MAP_FAILED) return NULL;
    size_t devices = (size_t)bucket->devices, count = bucket->count;
    for (size_t k = 0; k < devices; k++) {
        memcpy(shared + k * count, bucket->gradients[k], count * sizeof(float));
        memcpy(shared + (devices + k) * count, bucket->inboxes[k], count * sizeof(float));
    }
    return shared;
}

/* "send 0 1 10 20" */
static void serve_send(own_python *python, const yoke_bucket_gradients *bucket, float *shared,
                       const char *line) {
    int from = -1, to = -1;
    size_t first = 0, count = 0, devices = (size_t)bucket->devices;
    bool read = sscanf(line + 4, "%d %d %zu %zu", &from, &to, &first, &count) == 4;
    bool known = read && from >= 0 && from < bucket->devices && first <= bucket->count &&
                 count <= bucket->count - first;
    if (known)
        memcpy(bucket->gradients[from] + first, shared + (size_t)from * bucket->count + first,
               count * sizeof(float));
    yoke_status status = strncmp(line, "half", 4) == 0
                             ? bucket->send_bfloat16(bucket, from, to, first, count)
                             : bucket->send(bucket, from, to, first, count);
    if (status == YOKE_OK)
        memcpy(shared + (devices + (size_t)to) * bucket->count + first, bucket->inboxes[to] + first,
               count * sizeof(float));
    tell(python, status == YOKE_OK ? "ok" : yoke_last_error());
    tell(python, "\n");
}

static yoke_status talk(own_python *python, const yoke_bucket_gradients *bucket, float *shared) {
    char line[LINE];
    snprintf(line, sizeof line, "%d %zu %d\n", bucket->devices, bucket->count, bucket->bucket);
    tell(python, line);
    while (read_line(python, line)) {
        if (strcmp(line, "done") == 0) return YOKE_OK;
        if (strncmp(line, "error ", 6) == 0)
            return yoke_error_raise(YOKE_ERROR_DATA, "%s", line + 6);
        serve_send(python, bucket, shared, line);
    }
    return yoke_error_raise(YOKE_ERROR_PEER, "Python has ended");
}

yoke_status own_python_all_reduce(void *payload, const yoke_bucket_gradients *bucket) {
    own_python *python = payload;
    size_t bytes = 2 * (size_t)bucket->devices * bucket->count * sizeof(float);
    float *shared = share(python, bucket, bytes);
    if (shared == NULL)
        return yoke_error_raise(YOKE_ERROR_MEMORY, "no memory for %zu bytes", bytes);
    yoke_status status = talk(python, bucket, shared);
    for (int k = 0; status == YOKE_OK && k < bucket->devices; k++)
        memcpy(bucket->gradients[k], shared + (size_t)k * bucket->count,
               bucket->count * sizeof(float));
    munmap(shared, bytes);
    return status;
}
