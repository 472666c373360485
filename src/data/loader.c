/* SPDX-License-Identifier: Apache-2.0 */
/* The background loader: threads fill slots ahead of the caller. The content of a batch depends
 * only on (seed, epoch, batch), not on threads or time. Nothing is allocated after creation. */
#include "data/row_stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "data/row_inputs.h"
#include "data/shorter.h"
#include "device/device.h"

#define LOADER_SLOTS 3
#define LOADER_LIMIT 64 /* of slots and of threads */
#define IMAGE_THREADS 8 /* the default is at most this: each thread has a batch of memory */
/* The loader's threads share cores with the devices. They work ahead, so they run at lower
 * priority. */
#define LOADER_NICENESS 5

/* Threads. */

typedef struct loader_thread {
    yoke_loader *loader;
    pthread_t thread;
    yoke_row_buffer buffer;
} loader_thread;

/* `mutex` protects the fields after it and every slot's `ready`. The thread that fills a slot owns
 * its content; once the slot is ready the caller does. */
struct yoke_loader {
    pid_t process; /* its threads' */
    const yoke_dataset *dataset;
    yoke_loader_options options;
    yoke_augmentation augmentation; /* of the running epoch */
    yoke_decoding decoding;         /* of pixels, in every epoch */
    yoke_slot_kind kind;
    yoke_shorter shorter;
    yoke_input_order inputs;                     /* those that batches bring */
    const float *more_inputs[YOKE_INPUTS_LIMIT]; /* of the batch that was lent last */
    size_t more_inputs_counts[YOKE_INPUTS_LIMIT];
    int64_t *order;             /* [rows] of the running epoch */
    double *sums;               /* [rows], of balanced sampling; NULL: each row once */
    size_t batches;             /* per epoch; SIZE_MAX: not known yet */
    yoke_stream_reader *stream; /* the dataset's, which this loader alone reads; or NULL */
    uint64_t digest;            /* of the batch that was lent last */
    yoke_loader_slot *slots;
    int slot_count; /* one more than are filled ahead: the caller's */
    loader_thread *threads;
    int thread_limit;      /* that there is room for */
    int thread_count;      /* running */
    bool synchronised;     /* mutex and conditions exist */
    atomic_bool cancelled; /* threads stop filling */
    pthread_cond_t work, filled;
    pthread_mutex_t mutex;
    size_t next_fill, next_read,
        released; /* batches: fill begun, returned to the caller, released by it */
    int filling;  /* threads that fill a batch */
    bool begun, stopping;
};

/* This rank's rows of a batch of `rows`: those of its shards. */
static yoke_chunk part_of(const yoke_loader_options *options, int rows) {
    return yoke_chunk_span(rows, options->shards, options->first_shard, options->own_shards);
}

static yoke_status fill_from_stream(yoke_loader *loader, yoke_loader_slot *slot) {
    TRY(yoke_stream_read(loader->stream, slot, &loader->cancelled));
    slot->part = part_of(&loader->options, slot->whole_rows);
    yoke_stream_deal(loader->stream, slot);
    return YOKE_OK;
}

static void fill_batch(loader_thread *self, size_t batch) {
    yoke_loader *loader = self->loader;
    yoke_loader_slot *slot = &loader->slots[batch % (size_t)loader->slot_count];
    if (loader->stream) {
        slot->error = yoke_error_take(fill_from_stream(loader, slot));
        return;
    }
    size_t size = (size_t)loader->options.batch, first = batch * size;
    size_t rest = loader->dataset->rows - first;
    slot->whole_rows = (int)(rest < size ? rest : size);
    slot->part = part_of(&loader->options, slot->whole_rows);
    slot->error.status = YOKE_OK;
    if (self->buffer.rows) {
        const int64_t *order = loader->order + first + (size_t)slot->part.first;
        slot->error =
            yoke_error_take(yoke_slot_fill_whole(slot, &loader->kind, order, &self->buffer));
        return;
    }
    for (int i = 0; i < slot->part.rows && !atomic_load(&loader->cancelled); i++) {
        int64_t next = loader->order[first + (size_t)(slot->part.first + i)];
        size_t row = yoke_dataset_stored(loader->dataset, (size_t)next);
        yoke_status status = yoke_slot_fill(slot, i, &loader->kind, row, &self->buffer);
        if (status != YOKE_OK) {
            slot->error = yoke_error_take(status);
            return;
        }
    }
    if (loader->options.mixup > 0 && !atomic_load(&loader->cancelled))
        slot->error = yoke_error_take(
            yoke_slot_mix(slot, &loader->kind, loader->order + first, &self->buffer));
    if (loader->shorter.count == 0) return;
    /* All ranks see the whole batch's lengths, and choose alike. */
    slot->model = yoke_shorter_choose(&loader->shorter, loader->dataset, loader->order + first,
                                      slot->whole_rows);
    yoke_shorter_cut(&loader->shorter, loader->dataset, slot);
}

static bool may_fill(const yoke_loader *loader) {
    return loader->begun && loader->next_fill < loader->batches &&
           loader->next_fill - loader->released < (size_t)loader->slot_count;
}

static void *thread_main(void *context) {
    loader_thread *self = context;
    yoke_loader *loader = self->loader;
    yoke_devices_keep_thread(loader->options.devices);
    id_t id = (id_t)gettid();
    (void)setpriority(PRIO_PROCESS, id, getpriority(PRIO_PROCESS, id) + LOADER_NICENESS);
    pthread_mutex_lock(&loader->mutex);
    while (!loader->stopping) {
        if (!may_fill(loader)) {
            pthread_cond_wait(&loader->work, &loader->mutex);
            continue;
        }
        size_t batch = loader->next_fill++;
        loader->filling++;
        pthread_mutex_unlock(&loader->mutex);
        fill_batch(self, batch);
        pthread_mutex_lock(&loader->mutex);
        loader->filling--;
        loader->slots[batch % (size_t)loader->slot_count].ready = true;
        pthread_cond_signal(&loader->filled); /* only the caller waits for it */
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

static yoke_status check_options(const yoke_dataset *dataset, const yoke_loader_options *options) {
    if (options->batch < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "a batch of %d rows: must be at least 1", options->batch);
    if (options->slots < 0 || options->slots > LOADER_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d loader slots: expected 0 (default) to %d",
                    options->slots, LOADER_LIMIT);
    if (options->threads < 0 || options->threads > LOADER_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d loader threads: expected 0 (default) to %d",
                    options->threads, LOADER_LIMIT);
    if (options->world < 0 || options->rank < 0 ||
        options->rank >= options->world + !options->world)
        return FAIL(YOKE_ERROR_ARGUMENT, "a loader for rank %d of %d: rank must be 0 to world - 1",
                    options->rank, options->world);
    if (options->sampling < YOKE_SAMPLING_EACH || options->sampling > YOKE_SAMPLING_BY_LENGTH)
        return FAIL(YOKE_ERROR_ARGUMENT, "sampling %d is unknown", (int)options->sampling);
    if (options->sampling != YOKE_SAMPLING_EACH && !options->shuffle)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s sampling draws rows at random: it needs shuffle",
                    options->sampling == YOKE_SAMPLING_BALANCED ? "balanced" : "by-length");
    if (options->sampling == YOKE_SAMPLING_BY_LENGTH && !yoke_dataset_has_lengths(dataset))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "sampling by length: dataset '%s' has no input 'length' or '..._length' in "
                    "memory, which says how long each row is",
                    dataset->name);
    if (options->shuffle && dataset->stream)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a row stream has one order, its own: leave shuffle out, or set no_shuffle in "
                    "the options of a trainer");
    return yoke_augment_check(dataset, options);
}

static yoke_status allocate_all(yoke_loader *loader, int threads) {
    const yoke_dataset *dataset = loader->dataset;
    loader->order = yoke_calloc(dataset->rows + 1, sizeof *loader->order); /* rows: 0 of a stream */
    loader->slots = yoke_calloc((size_t)loader->slot_count, sizeof *loader->slots);
    loader->threads = yoke_calloc((size_t)threads, sizeof *loader->threads);
    if (!loader->order || !loader->slots || !loader->threads)
        return FAIL_MEMORY(dataset->rows * sizeof *loader->order, "an epoch's order");
    for (int i = 0; i < loader->slot_count; i++)
        TRY(yoke_slot_reserve(&loader->slots[i], &loader->kind));
    for (int i = 0; i < threads; i++)
        TRY(yoke_row_reserve(&loader->threads[i].buffer, &loader->kind));
    if (loader->options.sampling != YOKE_SAMPLING_BALANCED) return YOKE_OK;
    loader->sums = yoke_calloc(dataset->rows, sizeof *loader->sums);
    if (!loader->sums) return FAIL_MEMORY(dataset->rows * sizeof *loader->sums, "weights of rows");
    return yoke_balanced_weights(dataset, loader->sums);
}

static yoke_status start_threads(yoke_loader *loader, int count) {
    int code = 0;
    while (code == 0 && loader->thread_count < count) {
        loader_thread *self = &loader->threads[loader->thread_count];
        self->loader = loader;
        code = yoke_thread_start(&self->thread, thread_main, self);
        if (code == 0) loader->thread_count++;
    }
    if (code == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_SYSTEM, "loader thread %d of %d cannot start: %s", loader->thread_count,
                count, strerror(code));
}

/* An image's bytes take a quarter of its floats' size: devices that need a copy decode the bytes
 * themselves. Mixup adds up normalised floats, so it takes place here. */
static yoke_slot_kind kind_of(const yoke_loader *loader) {
    const yoke_loader_options *options = &loader->options;
    yoke_devices *devices = options->devices;
    size_t rows = loader->dataset->rows, batch = (size_t)options->batch;
    int most = (int)(batch < rows || loader->dataset->stream ? batch : rows);
    bool stored = loader->dataset->bytes || loader->dataset->images;
    bool mixes = options->mixup > 0;
    bool pixels = stored && !mixes && devices && !yoke_devices_share_memory(devices);
    return (yoke_slot_kind){
        .dataset = loader->dataset,
        .augmentation = &loader->augmentation,
        .stops.one = &loader->cancelled,
        .device = devices ? yoke_devices_at(devices, 0) : NULL,
        .rows = (size_t)yoke_chunk_span(most, options->shards, 0, options->own_shards).rows + mixes,
        .pixels = pixels,
        .cropped = pixels && yoke_dataset_has_crops(loader->dataset) &&
                   !yoke_color_jitter_on(&options->color_jitter),
        .placed = pixels && (options->augment != YOKE_AUGMENT_NONE || options->erasing > 0)};
}

/* Stored rows are fast to prepare; files of images keep every core busy that computes nothing.
 * The ranks of DDP share the machine. */
static int thread_limit(const yoke_dataset *dataset, const yoke_loader_options *options) {
    if (dataset->stream) return 1;
    if (options->threads > 0) return options->threads;
    if (!dataset->images) return 1;
    int count = yoke_devices_cores(options->devices) / options->world;
    return count < 1 ? 1 : count > IMAGE_THREADS ? IMAGE_THREADS : count;
}

/* A thread fills a whole batch: threads without a slot of their own would wait. */
static int slots_ahead(const yoke_loader *loader) {
    if (loader->options.slots > 0) return loader->options.slots;
    bool more = loader->dataset->images && loader->thread_limit > LOADER_SLOTS;
    return more ? loader->thread_limit : LOADER_SLOTS;
}

static yoke_augmentation augmentation_of(const yoke_loader_options *options, uint64_t epoch) {
    return (yoke_augmentation){.kind = options->augment,
                               .color_jitter = options->color_jitter,
                               .erasing = options->erasing,
                               .mixup = options->mixup,
                               .crop_flip = options->crop_flip,
                               .raw = options->raw,
                               .seed = options->seed,
                               .epoch = epoch};
}

static yoke_status choose_shards(yoke_loader_options *options) {
    yoke_chunk own = yoke_chunk_spread(options->shards, options->world, options->rank);
    if (options->own_shards != 0)
        own = (yoke_chunk){.first = options->first_shard, .rows = options->own_shards};
    options->first_shard = own.first;
    options->own_shards = own.rows;
    if (own.rows > 0 && own.first >= 0 && own.first <= options->shards - own.rows) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "own_shards %d from first_shard %d on: there are %d shards",
                own.rows, own.first, options->shards);
}

static yoke_status build(yoke_loader *loader, const yoke_dataset *dataset,
                         const yoke_loader_options *given) {
    if (!dataset) return FAIL(YOKE_ERROR_ARGUMENT, "a loader needs a dataset, which is NULL");
    TRY(yoke_options_load(&loader->options, sizeof loader->options, given, "yoke_loader_options"));
    TRY(check_options(dataset, &loader->options));
    if (loader->options.world == 0) loader->options.world = 1;
    if (loader->options.shards == 0) loader->options.shards = loader->options.world;
    if (loader->options.shards < 0 || loader->options.shards < loader->options.world)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d shards for %d ranks: every rank needs one",
                    loader->options.shards, loader->options.world);
    TRY(choose_shards(&loader->options));
    const yoke_loader_options *options = &loader->options;
    size_t batch = (size_t)options->batch;
    bool rest = !options->drop_last && dataset->rows % batch != 0;
    int threads = loader->thread_limit = thread_limit(dataset, options);
    loader->process = getpid();
    loader->dataset = dataset;
    yoke_dataset_hold(dataset, 1);
    loader->augmentation = augmentation_of(options, 0);
    loader->decoding = yoke_augment_decoding(dataset, &loader->augmentation);
    loader->kind = kind_of(loader);
    loader->batches = dataset->stream ? SIZE_MAX : dataset->rows / batch + rest;
    loader->slot_count = slots_ahead(loader) + 1;
    TRY(yoke_input_order_find(&loader->inputs, dataset, NULL));
    TRY(allocate_all(loader, threads));
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->filled, NULL);
    loader->synchronised = true;
    if (dataset->stream) TRY(yoke_stream_claim(dataset->stream, dataset, options));
    loader->stream = dataset->stream;
    return start_threads(loader, threads);
}

yoke_status yoke_loader_create(yoke_loader **out, const yoke_dataset *dataset,
                               const yoke_loader_options *options) {
    if (!out) return FAIL(YOKE_ERROR_ARGUMENT, "the loader's out-pointer is NULL");
    *out = NULL;
    yoke_loader *loader = yoke_calloc(1, sizeof *loader);
    if (!loader) return FAIL_MEMORY(sizeof *loader, "a loader");
    yoke_status status = build(loader, dataset, options);
    if (status != YOKE_OK) {
        yoke_loader_destroy(loader);
        return status;
    }
    *out = loader;
    return YOKE_OK;
}

yoke_status yoke_loader_select_inputs(yoke_loader *loader, const yoke_model *model) {
    TRY(yoke_pointer_check(loader, "loader"));
    return yoke_input_order_find(&loader->inputs, loader->dataset, model);
}

yoke_status yoke_loader_shorten(yoke_loader *loader, const yoke_model *const *models, int count) {
    TRY(yoke_pointer_check(loader, "loader"));
    yoke_shorter_close(&loader->shorter);
    yoke_status status = yoke_shorter_open(&loader->shorter, loader->dataset, models, count);
    if (status != YOKE_OK) yoke_shorter_close(&loader->shorter);
    return status;
}

void yoke_loader_stop_on(yoke_loader *loader, const atomic_bool *stop) {
    loader->kind.stops.other = stop;
}

void yoke_loader_destroy(yoke_loader *loader) {
    if (!loader) return;
    if (loader->synchronised && getpid() == loader->process) {
        pthread_mutex_lock(&loader->mutex);
        loader->stopping = true;
        atomic_store(&loader->cancelled, true);
        pthread_cond_broadcast(&loader->work);
        pthread_mutex_unlock(&loader->mutex);
        for (int i = 0; i < loader->thread_count; i++)
            pthread_join(loader->threads[i].thread, NULL);
        pthread_cond_destroy(&loader->filled);
        pthread_cond_destroy(&loader->work);
        pthread_mutex_destroy(&loader->mutex);
    }
    for (int i = 0; loader->threads && i < loader->thread_limit; i++) {
        yoke_free(loader->threads[i].buffer.decoded);
        yoke_free(loader->threads[i].buffer.generated);
        yoke_free(loader->threads[i].buffer.rows);
    }
    yoke_free(loader->threads);
    for (int i = 0; loader->slots && i < loader->slot_count; i++)
        yoke_slot_release(&loader->slots[i], &loader->kind);
    yoke_free(loader->slots);
    yoke_shorter_close(&loader->shorter);
    yoke_free(loader->sums);
    yoke_free(loader->order);
    yoke_stream_release(loader->stream);
    if (loader->dataset != NULL) yoke_dataset_hold(loader->dataset, -1);
    yoke_free(loader);
}

static yoke_status order_rows(yoke_loader *loader, uint64_t epoch) {
    const yoke_loader_options *options = &loader->options;
    size_t rows = loader->dataset->rows;
    if (loader->sums) {
        yoke_balanced_order(loader->order, loader->sums, rows, options->seed + epoch);
        return YOKE_OK;
    }
    yoke_sampler sampler = {.struct_size = sizeof sampler,
                            .rows = rows,
                            .world = 1,
                            .shuffle = options->shuffle,
                            .seed = options->seed,
                            .epoch = epoch};
    TRY(yoke_sampler_indices(&sampler, loader->order));
    if (options->sampling != YOKE_SAMPLING_BY_LENGTH) return YOKE_OK;
    return yoke_order_by_length(loader->order, loader->dataset, options->batch,
                                options->seed + epoch);
}

yoke_status yoke_loader_begin(yoke_loader *loader, uint64_t epoch) {
    return yoke_loader_begin_at(loader, epoch, 0);
}

yoke_status yoke_loader_begin_at(yoke_loader *loader, uint64_t epoch, size_t batch) {
    if (!loader) return FAIL(YOKE_ERROR_ARGUMENT, "the loader is NULL");
    TRY(yoke_process_check(loader->process, "this loader"));
    if (!loader->stream && batch > loader->batches)
        return FAIL(YOKE_ERROR_ARGUMENT, "batch %zu of an epoch: it has %zu", batch,
                    loader->batches);
    pthread_mutex_lock(&loader->mutex);
    /* Stop the running epoch: afterwards no thread fills a slot. */
    loader->begun = false;
    atomic_store(&loader->cancelled, true);
    while (loader->filling > 0)
        pthread_cond_wait(&loader->filled, &loader->mutex);
    atomic_store(&loader->cancelled, false);
    loader->next_fill = loader->next_read = loader->released = batch;
    for (int i = 0; i < loader->slot_count; i++)
        loader->slots[i].ready = false;
    loader->augmentation = augmentation_of(&loader->options, epoch);
    yoke_status status = loader->stream ? yoke_stream_begin(loader->stream, epoch, batch)
                                        : order_rows(loader, epoch);
    if (status == YOKE_OK && loader->stream) loader->batches = SIZE_MAX;
    loader->begun = status == YOKE_OK;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    return status;
}

/* Waits until a loader thread has filled a batch, or until it is time to look for a request. */
static void await_thread(yoke_loader *loader) {
    struct timespec look = yoke_clock_after(YOKE_CANCEL_LOOK_NS);
    if (!yoke_can_be_cancelled()) {
        pthread_cond_wait(&loader->filled, &loader->mutex);
        return;
    }
    (void)pthread_cond_clockwait(&loader->filled, &loader->mutex, CLOCK_MONOTONIC, &look);
}

/* Waits for a slot, and says for how long. Call it with the mutex held. */
static yoke_status await(yoke_loader *loader, const yoke_loader_slot *slot, uint64_t *waited_ns) {
    if (slot->ready) return YOKE_OK;
    uint64_t start = yoke_now_ns();
    while (!slot->ready) {
        TRY(yoke_check_cancelled());
        await_thread(loader);
    }
    *waited_ns = yoke_now_ns() - start;
    return YOKE_OK;
}

/* Releases the previous slot and takes the next one; *slot is NULL at the end of the epoch. */
static yoke_status take(yoke_loader *loader, const yoke_loader_slot **slot, uint64_t *waited_ns) {
    *slot = NULL;
    loader->digest = 0;
    if (!loader->begun)
        return FAIL(YOKE_ERROR_ARGUMENT, "no epoch is running: call yoke_loader_begin first");
    if (loader->released < loader->next_read) {
        yoke_loader_slot *last = &loader->slots[loader->released % (size_t)loader->slot_count];
        last->ready = false;
        loader->released = loader->next_read;
        pthread_cond_broadcast(&loader->work);
    }
    if (loader->next_read == loader->batches) return YOKE_OK;
    const yoke_loader_slot *next = &loader->slots[loader->next_read % (size_t)loader->slot_count];
    TRY(await(loader, next, waited_ns));
    /* A batch in error stays the next one: every later call returns the error again. */
    if (next->error.status != YOKE_OK) return yoke_error_restore(&next->error);
    if (next->whole_rows == 0) { /* set only now, so that nothing depends on how far ahead the
                                    thread is */
        loader->batches = loader->next_read;
        return YOKE_OK;
    }
    loader->digest = next->digest;
    loader->next_read++;
    *slot = next;
    return YOKE_OK;
}

/* Values of a row of the slot: fewer where a shorter model reads it. */
static yoke_row_sizes sizes_of(const yoke_loader *loader, const yoke_loader_slot *slot) {
    if (loader->shorter.count > 0) return loader->shorter.models[slot->model];
    return yoke_row_sizes_stored(loader->dataset);
}

/* Lends the slot's inputs beside the first. */
static void lend_more_inputs(yoke_loader *loader, const yoke_loader_slot *slot,
                             const yoke_row_sizes *sizes, yoke_batch *batch) {
    const yoke_input_order *order = &loader->inputs;
    for (int i = 0; i < order->count; i++) {
        loader->more_inputs[i] = slot->more_inputs[order->inputs[i]];
        loader->more_inputs_counts[i] = (size_t)batch->rows * sizes->more[order->inputs[i]];
    }
    if (order->count == 0) return;
    batch->more_inputs = loader->more_inputs;
    batch->more_inputs_counts = loader->more_inputs_counts;
    batch->more_input_count = order->count;
}

yoke_status yoke_loader_next(yoke_loader *loader, yoke_batch *batch, uint64_t *waited_ns) {
    if (!loader || !batch)
        return FAIL(YOKE_ERROR_ARGUMENT, "the %s is NULL", loader ? "batch" : "loader");
    TRY(yoke_process_check(loader->process, "this loader"));
    const yoke_loader_slot *slot = NULL;
    uint64_t waited = 0;
    pthread_mutex_lock(&loader->mutex);
    yoke_status status = take(loader, &slot, &waited);
    pthread_mutex_unlock(&loader->mutex);
    if (waited_ns) *waited_ns = waited;
    TRY(status);
    yoke_batch own = {.struct_size = sizeof own};
    if (loader->kind.cropped && batch->struct_size < offsetof(yoke_batch, crops) + sizeof own.crops)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a yoke_batch of %zu bytes has no room for crops, %zu do: compile against "
                    "this version, or open images with crop=cpu",
                    batch->struct_size, sizeof own);
    if (slot) {
        own.rows = slot->part.rows;
        if (loader->options.world > 1) {
            own.first_row = slot->part.first;
            own.whole_rows = slot->whole_rows;
        }
        const yoke_dataset *dataset = loader->dataset;
        own.inputs = slot->inputs;
        own.labels = slot->labels;
        own.targets = slot->targets;
        const yoke_row_sizes sizes = sizes_of(loader, slot);
        own.model = slot->model;
        if (slot->inputs) own.inputs_count = (size_t)own.rows * sizes.input;
        if (slot->labels) own.labels_count = (size_t)own.rows * sizes.labels;
        own.targets_count = (size_t)own.rows * (size_t)dataset->target_count;
        lend_more_inputs(loader, slot, &sizes, &own);
        own.mixes = slot->mixes;
        own.pixels = slot->pixels;
        own.crops = slot->crops;
        own.placements = slot->placements;
        if (slot->pixels) own.decoding = &loader->decoding;
    }
    return yoke_options_store(batch, &own, sizeof own, "yoke_batch");
}

size_t yoke_loader_batch_count(const yoke_loader *loader) {
    return loader ? loader->batches : 0;
}

uint64_t yoke_loader_digest(const yoke_loader *loader) {
    return loader->digest;
}

bool yoke_loader_pixels(const yoke_loader *loader) {
    return loader && loader->kind.pixels && !loader->kind.cropped;
}
