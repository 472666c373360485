/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * How the C++ header reports errors. Every call that can fail exists twice: `fit` throws, `try_fit`
 * returns a yoke::result. Without exceptions (-fno-exceptions, or YOKE_NO_EXCEPTIONS defined before
 * the first include) the first prints the text of its error and aborts.
 */
#ifndef YOKE_RESULT_HPP
#define YOKE_RESULT_HPP

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "yoke/status.h"

#if !defined(YOKE_NO_EXCEPTIONS) && !defined(__cpp_exceptions)
#define YOKE_NO_EXCEPTIONS /**< This compilation has no exceptions. */
#endif

/* Parts of a program with and without exceptions have functions of their own. */
#ifdef YOKE_NO_EXCEPTIONS
#define YOKE_INLINE_NAMESPACE without_exceptions /**< Inside namespace yoke. */
#else
#define YOKE_INLINE_NAMESPACE with_exceptions /**< Inside namespace yoke. */
#endif

namespace yoke {
inline namespace YOKE_INLINE_NAMESPACE {

#ifndef YOKE_NO_EXCEPTIONS
/** A call failed. what() has the fact, the offending value and the remedy. */
class error : public std::runtime_error {
  public:
    error(yoke_status status, const std::string &text)
        : std::runtime_error(text), status_(status) {}
    /** Which kind of error. */
    yoke_status status() const noexcept { return status_; }

  private:
    yoke_status status_;
};

/** A call ended because it was asked to: YOKE_ERROR_CANCELLED. */
class cancelled : public error {
  public:
    explicit cancelled(const std::string &text) : error(YOKE_ERROR_CANCELLED, text) {}
};
#endif

/** Why a call failed: a status with its text, or what a callback of the program threw. */
class failure {
  public:
    failure() = default;
    failure(yoke_status status, std::string text) : status_(status), text_(std::move(text)) {}
    /** The last error of this thread. */
    explicit failure(yoke_status status) : status_(status) {
        if (status != YOKE_OK) text_ = yoke_last_error();
    }
    yoke_status status() const noexcept { return status_; }
    const std::string &text() const noexcept { return text_; }

#ifndef YOKE_NO_EXCEPTIONS
    explicit failure(std::exception_ptr thrown)
        : status_(YOKE_ERROR_CANCELLED), text_("a callback threw an exception"),
          thrown_(std::move(thrown)) {}
    /** The exception of a callback; null: none. */
    const std::exception_ptr &thrown() const noexcept {
        return thrown_;
    }
    [[noreturn]] void raise() const {
        if (thrown_) std::rethrow_exception(thrown_);
        if (status_ == YOKE_ERROR_CANCELLED) throw cancelled(text_);
        throw error(status_, text_);
    }
#else
    [[noreturn]] void raise() const {
        std::fprintf(stderr, "yoke: %s\n", text_.c_str());
        std::abort();
    }
#endif

  private:
    yoke_status status_ = YOKE_OK;
    std::string text_;
#ifndef YOKE_NO_EXCEPTIONS
    std::exception_ptr thrown_;
#endif
};

/** A value, or why there is none. */
template <class T> class [[nodiscard]] result {
  public:
    result(T value) : value_(std::move(value)) {}
    result(failure why) : failure_(std::move(why)) {}

    bool ok() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return ok(); }
    yoke_status status() const noexcept { return failure_.status(); }
    const std::string &text() const noexcept { return failure_.text(); }
    const failure &why() const noexcept { return failure_; }

    /** The value; throws what failed. */
    T &value() & {
        if (!ok()) failure_.raise();
        return *value_;
    }
    const T &value() const & {
        if (!ok()) failure_.raise();
        return *value_;
    }
    T value() && {
        if (!ok()) failure_.raise();
        return std::move(*value_);
    }
    T &operator*() & { return value(); }
    T operator*() && { return std::move(*this).value(); }
    T *operator->() { return &value(); }

  private:
    std::optional<T> value_;
    failure failure_;
};

/** Whether a call that returns nothing has failed, and why. */
template <> class [[nodiscard]] result<void> {
  public:
    result() = default;
    result(failure why) : failure_(std::move(why)) {}
    /** Of a call of the C API on this thread. */
    explicit result(yoke_status status) : failure_(status) {}

    bool ok() const noexcept { return failure_.status() == YOKE_OK; }
    explicit operator bool() const noexcept { return ok(); }
    yoke_status status() const noexcept { return failure_.status(); }
    const std::string &text() const noexcept { return failure_.text(); }
    const failure &why() const noexcept { return failure_; }
    /** Throws what failed. */
    void value() const {
        if (!ok()) failure_.raise();
    }

  private:
    failure failure_;
};

/** Throws unless a call of the C API has succeeded. */
inline void check(yoke_status status) {
    result<void>(status).value();
}

/** Keeps the first exception of a callback until the call that ran the callback is over: none
 * crosses the C library. A call is on the thread that calls; what a thread of the library catches
 * waits in the carrier for the next call that ends, or, of a callback that returns a status, for
 * the next one that fails: rows are read ahead of the calls that need them. */
class carrier {
  public:
    carrier() = default;
    carrier(const carrier &) = delete;
    carrier &operator=(const carrier &) = delete;

    /** A call that may run callbacks: from construction to `finish` on one thread. */
    class call {
      public:
#ifndef YOKE_NO_EXCEPTIONS
        explicit call(carrier &owner) : outer_(innermost()), owner_(&owner) {
            innermost() = this;
        }
#else
        explicit call(carrier &) : outer_(innermost()) {
            innermost() = this;
        }
#endif
        call(const call &) = delete;
        call &operator=(const call &) = delete;
        ~call() {
            innermost() = outer_;
        }
        /** What the call comes to: an exception of its callbacks, or its status. */
        result<void> finish(yoke_status status) {
            result<void> threw = thrown(status != YOKE_OK);
            return threw.ok() ? result<void>(status) : threw;
        }
        /** The exception of its callbacks, of a call that failed or not. */
        result<void> thrown(bool call_failed) {
#ifndef YOKE_NO_EXCEPTIONS
            std::exception_ptr caught = std::exchange(thrown_, nullptr);
            if (!caught) caught = owner_->take(call_failed);
            if (caught) return failure(std::move(caught));
#else
            (void)call_failed;
#endif
            return {};
        }

      private:
        friend class carrier;
        static call *&innermost() {
            static thread_local call *running = nullptr;
            return running;
        }
        call *outer_;
#ifndef YOKE_NO_EXCEPTIONS
        carrier *owner_;
        std::exception_ptr thrown_;
#endif
    };

    /** Runs `work`; what it throws is kept, and `otherwise` returned. */
    template <class Work, class Value> Value run(Value otherwise, Work &&work) noexcept {
#ifndef YOKE_NO_EXCEPTIONS
        try {
            return work();
        } catch (...) {
            keep(std::current_exception(), std::is_same<Value, yoke_status>::value);
            return otherwise;
        }
#else
        (void)otherwise;
        return work();
#endif
    }

#ifndef YOKE_NO_EXCEPTIONS
  private:
    void keep(std::exception_ptr thrown, bool fails_call) noexcept {
        for (call *running = call::innermost(); running; running = running->outer_) {
            if (running->owner_ != this) continue;
            if (!running->thrown_) running->thrown_ = std::move(thrown);
            return;
        }
        std::lock_guard<std::mutex> lock(mutex_);
        if (!waiting_) fails_call_ = fails_call, waiting_ = std::move(thrown);
        waits_.store(true, std::memory_order_release);
    }
    std::exception_ptr take(bool call_failed) {
        if (!waits_.load(std::memory_order_acquire)) return nullptr; /* no lock in predictions */
        std::lock_guard<std::mutex> lock(mutex_);
        if (fails_call_ && !call_failed) return nullptr;
        waits_.store(false, std::memory_order_relaxed);
        return std::exchange(waiting_, nullptr);
    }
    std::mutex mutex_;
    std::atomic<bool> waits_{false};
    std::exception_ptr waiting_;
    bool fails_call_ = false; /* waiting_ came from a callback that returns a status */
#endif
};

/** Owns an object of the C library. Move only; empty when made by default or moved from. */
template <class T, void (*Destroy)(T *)> class handle {
  public:
    handle() = default;
    explicit handle(T *owned) noexcept : pointer_(owned) {}
    handle(handle &&other) noexcept : pointer_(other.release()) {}
    handle &operator=(handle &&other) noexcept {
        if (this != &other) reset(other.release());
        return *this;
    }
    ~handle() { Destroy(pointer_); }

    /** The object, for the C API; it stays this handle's. */
    T *get() const noexcept { return pointer_; }
    explicit operator bool() const noexcept { return pointer_ != nullptr; }
    /** Gives the object away. */
    T *release() noexcept { return std::exchange(pointer_, nullptr); }
    /** Destroys the object and takes another one. */
    void reset(T *owned = nullptr) noexcept { Destroy(std::exchange(pointer_, owned)); }

  private:
    T *pointer_ = nullptr;
};

} // namespace YOKE_INLINE_NAMESPACE
} // namespace yoke

#endif
