/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The short road in C++: net.h with exceptions or results, and callbacks that may throw.
 *
 *     yoke::net net(model, options);
 *     net.fit(images, labels);
 *     std::vector<float> scores = net.predict(images);
 *
 * Arrays without a shape get it from the model: a vector of floats is as many rows as fit.
 */
#ifndef YOKE_NET_HPP
#define YOKE_NET_HPP

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/array.hpp"
#include "yoke/cancellation.hpp"
#include "yoke/dataset.hpp"
#include "yoke/model.hpp"
#include "yoke/net.h"
#include "yoke/optimizer.hpp"

namespace yoke {
inline namespace YOKE_INLINE_NAMESPACE {

using net_info = yoke_net_info;     /**< How far a net is. */
using fit_result = yoke_fit_result; /**< What a fit did. */

/** What a step or an evaluation found. */
struct step_result : yoke_step_result {
    /** 0 to 1; -1: the model does not classify. */
    double accuracy() const noexcept {
        return correct < 0 || labels <= 0 ? -1 : static_cast<double>(correct) / labels;
    }
};

/** yoke_net_options. */
struct net_options {
    std::string devices = {};
    std::string cores = {};
    int threads = 0;
    int batch = 0;
    yoke_precision precision = YOKE_FLOAT32;
    yoke_optimizer_options optimizer = sgd();
    std::uint64_t seed = 0;
    bool inference = false;
    int predictors = 0;
    int plans = 0;
    std::string algorithm_cache = {};
    double measure_seconds = 0;
    const yoke::cancellation *cancellation = nullptr; /**< Must outlive the net. */
    /** Gets the lines of the log. What it throws, the call throws when it is over. */
    std::function<void(yoke_log_level level, const char *line)> log = {};
    const yoke_data_parallel_options *engine = nullptr;
};

/** A function that watches a fit: it returns nothing, or false to end the fit. */
class progress {
  public:
    progress() = default;
    template <class Function,
              class = std::enable_if_t<std::is_invocable_v<Function &, const net_info &> &&
                                       !std::is_same_v<std::decay_t<Function>, progress>>>
    progress(Function function) {
        if constexpr (std::is_void_v<std::invoke_result_t<Function &, const net_info &>>)
            function_ = [watch = std::move(function)](const net_info &info) mutable {
                watch(info);
                return true;
            };
        else
            function_ = std::move(function);
    }
    explicit operator bool() const noexcept { return static_cast<bool>(function_); }
    bool operator()(const net_info &info) const { return function_(info); }

  private:
    std::function<bool(const net_info &)> function_;
};

/** yoke_fit_options. */
struct fit_options {
    int epochs = 0;
    std::uint64_t steps = 0;
    int batch = 0;
    bool no_shuffle = false;
    bool drop_last = false;
    double learning_rate = 0;
    yoke_lr_schedule_kind lr_schedule = YOKE_LR_CONSTANT;
    std::uint64_t warmup_steps = 0;
    yoke_augment augment = YOKE_AUGMENT_NONE;
    views test_inputs = {};
    view test_targets = {};
    const dataset *test_rows = nullptr;
    int patience = 0;
    /** Called after each step, evaluation and epoch. What it throws ends the fit, which throws it.
     */
    yoke::progress progress = {};
};

/** A model with its weights. A thread may predict, query and cancel at any time; other calls take
 * turns. Close it when no thread is in a call. */
class net {
  public:
    net() = default;
    /** Opens a net; the model must outlive it. */
    explicit net(const yoke::model &network, const net_options &options = {})
        : net(try_open(network, options).value()) {}
    /** Opens a net that keeps its model. */
    explicit net(yoke::model &&network, const net_options &options = {})
        : net(try_open(std::move(network), options).value()) {}
    net(net &&) = default;
    net &operator=(net &&other) noexcept {
        if (this != &other) {
            close();
            state_ = std::move(other.state_);
            handle_ = std::move(other.handle_);
        }
        return *this;
    }

    static result<net> try_open(const yoke::model &network, const net_options &options = {}) {
        return open(network.get(), yoke::model(), options);
    }
    static result<net> try_open(yoke::model &&network, const net_options &options = {}) {
        const yoke_model *shown = network.get();
        return open(shown, std::move(network), options);
    }

    /** Trains on arrays. */
    result<fit_result> try_fit(const views &inputs, const view &targets = {},
                               const fit_options &options = {}) {
        batch rows;
        result<void> ready = prepare(rows, inputs, targets);
        if (!ready) return ready.why();
        return fit_with(options, nullptr, [&](const yoke_fit_options *all, fit_result *done) {
            return yoke_net_fit(get(), rows.inputs.data(), rows.labels(), all, done);
        });
    }
    fit_result fit(const views &inputs, const view &targets = {}, const fit_options &options = {}) {
        return try_fit(inputs, targets, options).value();
    }
    /** Trains on a dataset. */
    result<fit_result> try_fit(const dataset &rows, const fit_options &options = {}) {
        return fit_with(options, rows.callbacks(),
                        [&](const yoke_fit_options *all, fit_result *done) {
                            return yoke_net_fit_rows(get(), rows.get(), all, done);
                        });
    }
    fit_result fit(const dataset &rows, const fit_options &options = {}) {
        return try_fit(rows, options).value();
    }

    /** One update from one batch. A negative learning rate: the optimizer's. */
    result<step_result> try_step(const views &inputs, const view &targets = {},
                                 double learning_rate = YOKE_OPTIMIZER_LEARNING_RATE) {
        batch rows;
        result<void> ready = prepare(rows, inputs, targets);
        if (!ready) return ready.why();
        return measure([&](yoke_step_result *found) {
            return yoke_net_step(get(), rows.inputs.data(), rows.labels(), learning_rate, found);
        });
    }
    step_result step(const views &inputs, const view &targets = {},
                     double learning_rate = YOKE_OPTIMIZER_LEARNING_RATE) {
        return try_step(inputs, targets, learning_rate).value();
    }

    /** Loss and accuracy without learning. */
    result<step_result> try_evaluate(const views &inputs, const view &targets = {}) {
        batch rows;
        result<void> ready = prepare(rows, inputs, targets);
        if (!ready) return ready.why();
        return measure([&](yoke_step_result *found) {
            return yoke_net_evaluate(get(), rows.inputs.data(), rows.labels(), found);
        });
    }
    step_result evaluate(const views &inputs, const view &targets = {}) {
        return try_evaluate(inputs, targets).value();
    }
    result<step_result> try_evaluate(const dataset &rows) {
        step_result found = {};
        found.struct_size = sizeof(yoke_step_result);
        result<void> done = reading(rows.callbacks(), [&] {
            return call([&] { return yoke_net_evaluate_rows(get(), rows.get(), &found); });
        });
        if (!done) return done.why();
        return found;
    }
    step_result evaluate(const dataset &rows) { return try_evaluate(rows).value(); }

    /** Predicts into arrays, one for each output; mutable_view(): this one is not wanted. */
    result<void> try_predict(const views &inputs, const mutable_views &outputs) const {
        batch rows;
        result<void> ready = prepare(rows, inputs, {});
        if (!ready) return ready;
        std::array<yoke_array, YOKE_OUTPUTS_LIMIT> into = {};
        if (outputs.size() != count_of(yoke_model_output_count(shown())))
            return wrong_count("outputs", outputs.size(), yoke_model_output_count(shown()));
        for (std::size_t i = 0; i < outputs.size(); i++) {
            into[i] = rows.no_array();
            if (!outputs[i].present()) continue;
            result<yoke_array> whole = outputs[i].with_rows(row_of_output(i), rows.rows());
            if (!whole) return whole.why();
            into[i] = *whole;
        }
        return call([&] { return yoke_net_predict(get(), rows.inputs.data(), into.data()); });
    }
    void predict(const views &inputs, const mutable_views &outputs) const {
        try_predict(inputs, outputs).value();
    }
    /** Predicts the first output of any number of rows. */
    result<std::vector<float>> try_predict(const views &inputs) const {
        batch rows;
        result<void> ready = prepare(rows, inputs, {});
        if (!ready) return ready.why();
        std::vector<float> scores(count_of(rows.rows()) * row_of_output(0));
        std::array<yoke_array, YOKE_OUTPUTS_LIMIT> into = {};
        into.fill(rows.no_array());
        result<yoke_array> whole = mutable_view(scores).with_rows(row_of_output(0), rows.rows());
        if (!whole) return whole.why();
        into[0] = *whole;
        result<void> done =
            call([&] { return yoke_net_predict(get(), rows.inputs.data(), into.data()); });
        if (!done) return done.why();
        return scores;
    }
    std::vector<float> predict(const views &inputs) const { return try_predict(inputs).value(); }

    /** Gives a part of the net to a function of (const unsigned char *bytes, std::size_t count). */
    template <class Sink, class = std::enable_if_t<
                              std::is_invocable_v<Sink &, const unsigned char *, std::size_t>>>
    result<void> try_write(yoke_net_part part, Sink &&sink) {
        carrier caught;
        carrier::call writing(caught);
        sink_call<std::remove_reference_t<Sink>> running{&caught, &sink};
        yoke_sink taker = {};
        taker.struct_size = sizeof taker;
        taker.write = running.write;
        taker.payload = &running;
        result<void> done = call([&] { return yoke_net_write(get(), part, &taker); });
        result<void> thrown = writing.thrown(!done.ok());
        return thrown.ok() ? done : thrown;
    }
    template <class Sink, class = std::enable_if_t<
                              std::is_invocable_v<Sink &, const unsigned char *, std::size_t>>>
    void write(yoke_net_part part, Sink &&sink) {
        try_write(part, sink).value();
    }
    /** A part of the net in memory. */
    result<std::vector<unsigned char>> try_write(yoke_net_part part = YOKE_NET_WEIGHTS) {
        std::vector<unsigned char> bytes;
        result<void> done = try_write(part, [&](const unsigned char *some, std::size_t count) {
            bytes.insert(bytes.end(), some, some + count);
        });
        if (!done) return done.why();
        return bytes;
    }
    std::vector<unsigned char> write(yoke_net_part part = YOKE_NET_WEIGHTS) {
        return try_write(part).value();
    }
    /** Reads weights or state from memory; predictions see the old or the new weights. */
    result<void> try_read(span<const unsigned char> bytes, yoke_net_part part = YOKE_NET_WEIGHTS) {
        return call([&] { return yoke_net_read(get(), part, bytes.data(), bytes.size()); });
    }
    void read(span<const unsigned char> bytes, yoke_net_part part = YOKE_NET_WEIGHTS) {
        try_read(bytes, part).value();
    }
    result<void> try_save(const std::string &path) {
        return call([&] { return yoke_net_save(get(), path.c_str()); });
    }
    void save(const std::string &path) { try_save(path).value(); }
    result<void> try_load(const std::string &path) {
        return call([&] { return yoke_net_load(get(), path.c_str()); });
    }
    void load(const std::string &path) { try_load(path).value(); }

    /** How far the net is. */
    net_info query() const noexcept {
        net_info info = {};
        info.struct_size = sizeof info;
        (void)yoke_net_query(get(), &info);
        return info;
    }
    /** Ends calls but predictions, until `resume`. */
    void cancel() noexcept { yoke_net_cancel(get()); }
    void resume() noexcept { yoke_net_resume(get()); }

    /** Closes the net; it is empty then. */
    void close() noexcept {
        handle_.reset();
        state_.reset();
    }
    /** The engine, for what the short road lacks; borrowed from the net. */
    yoke_data_parallel *engine() const noexcept { return yoke_net_engine(get()); }
    yoke_net *get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
    /** Gives the net away, to be closed with yoke_net_close; null, and nothing happens, where it
     * keeps its model or has a log. */
    yoke_net *release() noexcept {
        if (!state_ || state_->log || state_->kept) return nullptr;
        state_.reset();
        return handle_.release();
    }

  private:
    struct state {
        carrier callbacks;
        std::function<void(yoke_log_level, const char *)> log;
        yoke::model kept;
        const yoke_model *shown = nullptr;
    };
    /** The arrays of a call. */
    struct batch {
        std::array<yoke_array, YOKE_INPUTS_LIMIT> inputs = {};
        yoke_array target = {};
        bool has_target = false;

        const yoke_array *labels() const { return has_target ? &target : nullptr; }
        std::int64_t rows() const { return inputs[0].shape[0]; }
        /** An output that nobody wants. */
        yoke_array no_array() const {
            return yoke_array_of_numbers(nullptr, YOKE_ELEMENT_FLOAT32, rows());
        }
    };
    template <class Sink> struct sink_call {
        carrier *caught;
        Sink *sink;
        static yoke_status write(void *payload, const void *bytes, std::size_t count) noexcept {
            auto *own = static_cast<sink_call *>(payload);
            const bool done = own->caught->run(false, [&] {
                (*own->sink)(static_cast<const unsigned char *>(bytes), count);
                return true;
            });
            return done ? YOKE_OK : yoke_error_raise(YOKE_ERROR_IO, "the sink threw");
        }
    };
    struct progress_call {
        carrier *callbacks;
        const yoke::progress *watch;
        static bool report(void *payload, const yoke_net_info *info) noexcept {
            auto *own = static_cast<progress_call *>(payload);
            return own->callbacks->run(false, [&] { return (*own->watch)(*info); });
        }
    };

    static void write_log(void *payload, yoke_log_level level, const char *line) noexcept {
        auto *own = static_cast<state *>(payload);
        own->callbacks.run(0, [&] {
            own->log(level, line);
            return 0;
        });
    }
    static const char *or_null(const std::string &text) {
        return text.empty() ? nullptr : text.c_str();
    }
    template <class Number> static std::size_t count_of(Number number) {
        return static_cast<std::size_t>(number);
    }
    static failure wrong_count(const char *what, std::size_t given, int wanted) {
        return failure(YOKE_ERROR_ARGUMENT, std::to_string(given) + " arrays of " + what +
                                                ", the model has " + std::to_string(wanted));
    }

    static result<net> open(const yoke_model *shown, yoke::model kept, const net_options &options) {
        net owner;
        owner.state_ = std::make_unique<state>();
        owner.state_->log = options.log;
        owner.state_->kept = std::move(kept);
        owner.state_->shown = shown;
        yoke_net_options all = YOKE_NET_OPTIONS_INIT;
        all.devices = or_null(options.devices);
        all.cores = or_null(options.cores);
        all.threads = options.threads;
        all.batch = options.batch;
        all.precision = options.precision;
        all.optimizer = &options.optimizer;
        all.seed = options.seed;
        all.inference = options.inference;
        all.predictors = options.predictors;
        all.plans = options.plans;
        all.algorithm_cache = or_null(options.algorithm_cache);
        all.measure_seconds = options.measure_seconds;
        all.cancellation = options.cancellation ? options.cancellation->get() : nullptr;
        all.log = options.log ? write_log : nullptr;
        all.payload = owner.state_.get();
        all.engine = options.engine;
        result<void> done = owner.call([&] {
            yoke_net *made = nullptr;
            const yoke_status status = yoke_net_open(&made, shown, &all);
            owner.handle_.reset(made);
            return status;
        });
        if (!done) return done.why();
        return result<net>(std::move(owner));
    }

    const yoke_model *shown() const noexcept { return state_ ? state_->shown : nullptr; }
    std::size_t row_of_output(std::size_t index) const {
        yoke_value_info info = {};
        info.struct_size = sizeof info;
        (void)yoke_model_describe_output(shown(), static_cast<int>(index), &info);
        return info.row_count;
    }
    result<void> prepare(batch &rows, const views &inputs, const view &targets) const {
        const int wanted = yoke_model_input_count(shown());
        if (!state_) return failure(YOKE_ERROR_ARGUMENT, "the net is closed");
        if (inputs.size() != count_of(wanted)) return wrong_count("inputs", inputs.size(), wanted);
        for (int i = 0; i < wanted; i++) {
            yoke_value_info info = {};
            info.struct_size = sizeof info;
            (void)yoke_model_describe_input(shown(), i, &info);
            result<yoke_array> whole = inputs[count_of(i)].with_rows(info.row_count, -1);
            if (!whole) return whole.why();
            rows.inputs[count_of(i)] = *whole;
        }
        rows.has_target = targets.present();
        result<yoke_array> whole = targets.with_rows(0, rows.rows());
        if (!whole) return whole.why();
        rows.target = *whole;
        return {};
    }

    template <class Work> result<void> call(Work work) const {
        if (!state_) return failure(YOKE_ERROR_ARGUMENT, "the net is closed");
        carrier::call running(state_->callbacks);
        return running.finish(work());
    }
    template <class Work> result<step_result> measure(Work work) {
        step_result found = {};
        found.struct_size = sizeof(yoke_step_result);
        result<void> done = call([&] { return work(&found); });
        if (!done) return done.why();
        return found;
    }
    template <class Work>
    result<fit_result> fit_with(const fit_options &options, carrier *rows, Work work) {
        if (!state_) return failure(YOKE_ERROR_ARGUMENT, "the net is closed");
        batch test;
        progress_call watching{&state_->callbacks, &options.progress};
        fit_result done = {};
        yoke_fit_options all = YOKE_FIT_OPTIONS_INIT;
        all.epochs = options.epochs;
        all.steps = options.steps;
        all.batch = options.batch;
        all.no_shuffle = options.no_shuffle;
        all.drop_last = options.drop_last;
        all.learning_rate = options.learning_rate;
        all.lr_schedule = options.lr_schedule;
        all.warmup_steps = options.warmup_steps;
        all.augment = options.augment;
        all.test_rows = options.test_rows ? options.test_rows->get() : nullptr;
        all.patience = options.patience;
        all.progress = options.progress ? progress_call::report : nullptr;
        all.payload = &watching;
        if (options.test_inputs.size() > 0) {
            result<void> ready = prepare(test, options.test_inputs, options.test_targets);
            if (!ready) return ready.why();
            all.test_inputs = test.inputs.data();
            all.test_targets = test.labels();
        }
        done.struct_size = sizeof done;
        result<void> ended = reading(rows, [&] {
            return reading(options.test_rows ? options.test_rows->callbacks() : nullptr,
                           [&] { return call([&] { return work(&all, &done); }); });
        });
        if (!ended) return ended.why();
        return done;
    }

    std::unique_ptr<state> state_; /* outlives the handle */
    handle<yoke_net, yoke_net_close> handle_;
};

} // namespace YOKE_INLINE_NAMESPACE
} // namespace yoke

#endif
