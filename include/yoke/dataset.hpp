/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Datasets and loaders in C++: files, arrays, or functions of the program. A function may throw:
 * the call that needed its rows throws the same exception.
 */
#ifndef YOKE_DATASET_HPP
#define YOKE_DATASET_HPP

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/array.hpp"
#include "yoke/dataset.h"
#include "yoke/result.hpp"

namespace yoke {
inline namespace YOKE_INLINE_NAMESPACE {

/** Rows that a function makes; see yoke_row_source. */
struct row_source {
    std::size_t rows = 0;
    yoke_shape shape = {0, 0, 0, false, false};
    int classes = 0;
    int target_count = 0;
    int label_count = 0;
    std::vector<yoke_row_input> more_inputs = {}; /**< Of a row beside the first, without values. */
    /** Fills a row; loader threads call it, possibly several at once. Set one of the three. */
    std::function<void(std::size_t row, float *input, std::int32_t *labels, float *targets)> read =
        {};
    /** Fills the rows of a batch. */
    std::function<void(const std::int64_t *rows, int count, float *inputs, std::int32_t *labels,
                       float *targets)>
        read_batch = {};
    /** Fills a row with several inputs. */
    std::function<void(std::size_t row, float *const *inputs, std::int32_t *labels, float *targets)>
        read_inputs = {};
};

/** Rows that a function gives one after another; see yoke_row_stream. */
struct row_stream {
    yoke_shape shape = {0, 0, 0, false, false};
    int classes = 0;
    int target_count = 0;
    int label_count = 0;
    /** Writes up to `room` rows and returns how many; 0: the pass is over. */
    std::function<int(int room, float *inputs, std::int32_t *labels, float *targets)> next = {};
    /** Begins a pass; empty: there is one. */
    std::function<void(std::uint64_t epoch)> rewind = {};
    /** Goes past rows, where a resumed run continues; empty: the loader reads and drops them. */
    std::function<void(std::size_t rows)> skip = {};
};

/** Rows. Nets, trainers and loaders that read them must be done first. */
class dataset {
  public:
    dataset() = default;
    /** yoke_dataset_open: "cifar10:DIR", "npz:FILE", "synthetic", ... */
    explicit dataset(const std::string &spec, yoke_split split = YOKE_SPLIT_TRAIN)
        : dataset(try_open(spec, split).value()) {}
    explicit dataset(row_source rows) : dataset(try_of(std::move(rows)).value()) {}
    explicit dataset(row_stream rows) : dataset(try_of(std::move(rows)).value()) {}
    /** yoke_dataset_from_arrays; the arrays must outlive the dataset. */
    explicit dataset(const yoke_arrays &borrowed) : dataset(try_of(borrowed).value()) {}
    dataset(dataset &&) = default;
    dataset &operator=(dataset &&other) noexcept {
        if (this != &other) {
            close();
            state_ = std::move(other.state_);
            handle_ = std::move(other.handle_);
        }
        return *this;
    }

    static result<dataset> try_open(const std::string &spec, yoke_split split = YOKE_SPLIT_TRAIN) {
        yoke_dataset *made = nullptr;
        const yoke_status status = yoke_dataset_open(&made, spec.c_str(), split);
        return own(status, made, std::make_unique<state>());
    }
    static result<dataset> try_of(row_source rows) {
        auto kept = std::make_unique<state>();
        kept->source = std::move(rows);
        const row_source &given = kept->source;
        yoke_row_source source = {};
        yoke_dataset *made = nullptr;
        source.struct_size = sizeof source;
        source.rows = given.rows;
        source.shape = given.shape;
        source.classes = given.classes;
        source.target_count = given.target_count;
        source.label_count = given.label_count;
        source.more_inputs = given.more_inputs.empty() ? nullptr : given.more_inputs.data();
        source.more_input_count = static_cast<int>(given.more_inputs.size());
        source.read = given.read ? read_row : nullptr;
        source.read_batch = given.read_batch ? read_batch : nullptr;
        source.read_inputs = given.read_inputs ? read_inputs : nullptr;
        source.payload = kept.get();
        const yoke_status status = yoke_dataset_from_callback(&made, &source);
        return own(status, made, std::move(kept));
    }
    static result<dataset> try_of(row_stream rows) {
        auto kept = std::make_unique<state>();
        kept->stream = std::move(rows);
        const row_stream &given = kept->stream;
        yoke_row_stream stream = {};
        yoke_dataset *made = nullptr;
        stream.struct_size = sizeof stream;
        stream.shape = given.shape;
        stream.classes = given.classes;
        stream.target_count = given.target_count;
        stream.label_count = given.label_count;
        stream.next = given.next ? next_rows : nullptr;
        stream.rewind = given.rewind ? begin_pass : nullptr;
        stream.skip = given.skip ? skip_rows : nullptr;
        stream.payload = kept.get();
        const yoke_status status = yoke_dataset_from_stream(&made, &stream);
        return own(status, made, std::move(kept));
    }
    static result<dataset> try_of(yoke_arrays borrowed) {
        yoke_dataset *made = nullptr;
        borrowed.struct_size = sizeof borrowed;
        const yoke_status status = yoke_dataset_from_arrays(&made, &borrowed);
        return own(status, made, std::make_unique<state>());
    }

    /** What the rows are; empty: zeros. */
    yoke_dataset_info info() const noexcept {
        yoke_dataset_info found = {};
        found.struct_size = sizeof found;
        (void)yoke_dataset_describe(get(), &found);
        return found;
    }
    /** Keeps `rows` rows at most. */
    result<void> try_limit(std::size_t rows) {
        return result<void>(yoke_dataset_limit(get(), rows));
    }
    void limit(std::size_t rows) { try_limit(rows).value(); }

    void close() noexcept {
        handle_.reset();
        state_.reset();
    }
    yoke_dataset *get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
    /** Gives rows of files or arrays away; null, and nothing happens, where a function of the
     * program makes them. */
    yoke_dataset *release() noexcept {
        if (!state_ || state_->source.rows || state_->stream.next) return nullptr;
        state_.reset();
        return handle_.release();
    }
    /** Where exceptions of the functions wait; null: the dataset is empty. */
    carrier *callbacks() const noexcept { return state_ ? &state_->callbacks : nullptr; }

  private:
    struct state {
        carrier callbacks;
        row_source source;
        row_stream stream;
    };
    static result<dataset> own(yoke_status status, yoke_dataset *made,
                               std::unique_ptr<state> kept) {
        if (status != YOKE_OK) return failure(status);
        dataset owner;
        owner.handle_.reset(made);
        owner.state_ = std::move(kept);
        return result<dataset>(std::move(owner));
    }
    static yoke_status failed() noexcept {
        return yoke_error_raise(YOKE_ERROR_CANCELLED, "the function that gives rows threw");
    }
    template <class Work> static yoke_status guarded(state *own, Work work) noexcept {
        const yoke_status done = own->callbacks.run(YOKE_ERROR_DATA, [&] {
            work();
            return YOKE_OK;
        });
        return done == YOKE_OK ? done : failed();
    }
    static yoke_status read_row(void *payload, std::size_t row, float *input, std::int32_t *labels,
                                float *targets) noexcept {
        auto *own = static_cast<state *>(payload);
        return guarded(own, [&] { own->source.read(row, input, labels, targets); });
    }
    static yoke_status read_batch(void *payload, const std::int64_t *rows, int count, float *inputs,
                                  std::int32_t *labels, float *targets) noexcept {
        auto *own = static_cast<state *>(payload);
        return guarded(own, [&] { own->source.read_batch(rows, count, inputs, labels, targets); });
    }
    static yoke_status read_inputs(void *payload, std::size_t row, float *const *inputs,
                                   std::int32_t *labels, float *targets) noexcept {
        auto *own = static_cast<state *>(payload);
        return guarded(own, [&] { own->source.read_inputs(row, inputs, labels, targets); });
    }
    static yoke_status next_rows(void *payload, int room, float *inputs, std::int32_t *labels,
                                 float *targets, int *count) noexcept {
        auto *own = static_cast<state *>(payload);
        return guarded(own, [&] { *count = own->stream.next(room, inputs, labels, targets); });
    }
    static yoke_status begin_pass(void *payload, std::uint64_t epoch) noexcept {
        auto *own = static_cast<state *>(payload);
        return guarded(own, [&] { own->stream.rewind(epoch); });
    }
    static yoke_status skip_rows(void *payload, std::size_t rows) noexcept {
        auto *own = static_cast<state *>(payload);
        return guarded(own, [&] { own->stream.skip(rows); });
    }

    std::unique_ptr<state> state_; /* outlives the handle */
    handle<yoke_dataset, yoke_dataset_close> handle_;
};

/** What a call that reads a dataset comes to: an exception of the dataset's functions comes first.
 *
 * @param rows  dataset::callbacks; null: none.
 */
template <class Work> result<void> reading(carrier *rows, Work work) {
    if (!rows) return work();
    carrier::call running(*rows);
    result<void> done = work();
    result<void> thrown = running.thrown(!done.ok());
    return thrown.ok() ? done : thrown;
}

/** yoke_loader_options with its defaults. */
struct loader_options : yoke_loader_options {
    loader_options() : yoke_loader_options(YOKE_LOADER_OPTIONS_INIT) {}
};

/** Batches of a dataset, which must outlive it. */
class loader {
  public:
    loader() = default;
    loader(const dataset &rows, const loader_options &options)
        : loader(try_create(rows, options).value()) {}
    static result<loader> try_create(const dataset &rows, const loader_options &options) {
        yoke_loader *made = nullptr;
        const yoke_status status = yoke_loader_create(&made, rows.get(), &options);
        if (status != YOKE_OK) return failure(status);
        loader owner;
        owner.handle_.reset(made);
        owner.callbacks_ = rows.callbacks();
        return result<loader>(std::move(owner));
    }

    result<void> try_begin(std::uint64_t epoch) {
        return result<void>(yoke_loader_begin(get(), epoch));
    }
    void begin(std::uint64_t epoch) { try_begin(epoch).value(); }
    /** Lends the next batch; 0 rows: the epoch is over. */
    result<yoke_batch> try_next() {
        yoke_batch batch = {};
        batch.struct_size = sizeof batch;
        carrier none;
        carrier::call running(callbacks_ ? *callbacks_ : none);
        result<void> done = running.finish(yoke_loader_next(get(), &batch, nullptr));
        if (!done) return done.why();
        return batch;
    }
    yoke_batch next() { return try_next().value(); }
    std::size_t batches() const noexcept { return yoke_loader_batch_count(get()); }

    yoke_loader *get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
    yoke_loader *release() noexcept { return handle_.release(); }

  private:
    handle<yoke_loader, yoke_loader_destroy> handle_;
    carrier *callbacks_ = nullptr;
};

} // namespace YOKE_INLINE_NAMESPACE
} // namespace yoke

#endif
