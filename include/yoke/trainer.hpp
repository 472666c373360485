/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The trainer in C++: a run from a dataset to a checkpoint. An exception of `events`, or of the
 * functions that give rows, ends the run, which throws it.
 */
#ifndef YOKE_TRAINER_HPP
#define YOKE_TRAINER_HPP

#include <functional>
#include <memory>
#include <string>

#include "yoke/dataset.hpp"
#include "yoke/result.hpp"
#include "yoke/trainer.h"

namespace yoke {
inline namespace YOKE_INLINE_NAMESPACE {

/** yoke_trainer_options with its defaults. Set `events` instead of on_event, and `rows` and
 * `test` instead of training_rows and test_rows. */
struct trainer_options : yoke_trainer_options {
    trainer_options() : yoke_trainer_options(YOKE_TRAINER_OPTIONS_INIT) {}
    std::function<void(const yoke_event &event)> events; /**< Empty: none. */
    const yoke::dataset *rows = nullptr; /**< To train on; must outlive the trainer. */
    const yoke::dataset *test = nullptr; /**< To evaluate on; likewise. */
};

/** A trainer. Other threads may ask for its progress and stop it while it runs. */
class trainer {
  public:
    trainer() = default;
    explicit trainer(const trainer_options &options) : trainer(try_create(options).value()) {}
    trainer(trainer &&) = default;
    trainer &operator=(trainer &&other) noexcept {
        if (this != &other) {
            close();
            state_ = std::move(other.state_);
            handle_ = std::move(other.handle_);
        }
        return *this;
    }

    static result<trainer> try_create(const trainer_options &options) {
        trainer owner;
        yoke_trainer_options all = options;
        owner.state_ = std::make_unique<state>();
        owner.state_->events = options.events;
        owner.state_->rows = options.rows ? options.rows->callbacks() : nullptr;
        owner.state_->test = options.test ? options.test->callbacks() : nullptr;
        if (options.events) {
            all.on_event = report;
            all.payload = owner.state_.get();
        }
        if (options.rows) all.training_rows = options.rows->get();
        if (options.test) all.test_rows = options.test->get();
        result<void> done = owner.call([&] {
            yoke_trainer *made = nullptr;
            const yoke_status status = yoke_trainer_create(&made, &all);
            owner.handle_.reset(made);
            owner.state_->running = made;
            return status;
        });
        if (!done) return done.why();
        return result<trainer>(std::move(owner));
    }

    /** Trains to the end, evaluates and saves. */
    result<void> try_run() {
        return call([&] { return yoke_trainer_run(get()); });
    }
    void run() { try_run().value(); }
    /** Asks the run to stop after its step. */
    void stop() noexcept { yoke_trainer_stop(get()); }
    yoke_progress progress() const noexcept {
        yoke_progress found = {};
        found.struct_size = sizeof found;
        (void)yoke_trainer_progress(get(), &found);
        return found;
    }
    /** One pass over the test split. */
    result<yoke_step_result> try_evaluate() {
        yoke_step_result found = {};
        found.struct_size = sizeof found;
        result<void> done = call([&] { return yoke_trainer_evaluate(get(), &found); });
        if (!done) return done.why();
        return found;
    }
    yoke_step_result evaluate() { return try_evaluate().value(); }
    result<yoke_trainer_summary> try_summarize() {
        yoke_trainer_summary found = {};
        found.struct_size = sizeof found;
        const yoke_status status = yoke_trainer_summarize(get(), &found);
        if (status != YOKE_OK) return failure(status);
        return found;
    }
    yoke_trainer_summary summarize() { return try_summarize().value(); }

    /** Borrowed from the trainer. */
    yoke_data_parallel *engine() const noexcept { return yoke_trainer_engine(get()); }
    void close() noexcept {
        handle_.reset();
        state_.reset();
    }
    yoke_trainer *get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
    /** Gives the trainer away; null, and nothing happens, where it has `events`. */
    yoke_trainer *release() noexcept {
        if (!state_ || state_->events) return nullptr;
        state_.reset();
        return handle_.release();
    }

  private:
    struct state {
        carrier callbacks;
        std::function<void(const yoke_event &)> events;
        carrier *rows = nullptr; /* of the datasets */
        carrier *test = nullptr;
        yoke_trainer *running = nullptr;
    };
    static void report(const yoke_event *event, void *payload) noexcept {
        auto *own = static_cast<state *>(payload);
        const bool done = own->callbacks.run(false, [&] {
            own->events(*event);
            return true;
        });
        if (!done) yoke_trainer_stop(own->running);
    }
    template <class Work> result<void> call(Work work) {
        if (!state_) return failure(YOKE_ERROR_ARGUMENT, "the trainer is closed");
        return reading(state_->rows, [&] {
            return reading(state_->test, [&] {
                carrier::call running(state_->callbacks);
                return running.finish(work());
            });
        });
    }

    std::unique_ptr<state> state_; /* outlives the handle */
    handle<yoke_trainer, yoke_trainer_destroy> handle_;
};

} // namespace YOKE_INLINE_NAMESPACE
} // namespace yoke

#endif
