/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Ending calls early from another thread, in C++.
 */
#ifndef YOKE_CANCELLATION_HPP
#define YOKE_CANCELLATION_HPP

#include <memory>

#include "yoke/cancellation.h"
#include "yoke/result.hpp"

namespace yoke {
inline namespace YOKE_INLINE_NAMESPACE {

/** A request to end calls. It outlives the calls and the nets that use it. */
class cancellation {
  public:
    cancellation() : owned_(std::make_unique<yoke_cancellation>()) {}

    /** Ends calls that use it, until `reset`. Any thread and any signal handler may call it. */
    void request() noexcept { yoke_cancel(get()); }
    /** Withdraws the request. */
    void reset() noexcept { yoke_cancellation_reset(get()); }

    yoke_cancellation *get() const noexcept { return owned_.get(); }
    explicit operator bool() const noexcept { return owned_ != nullptr; }
    /** Gives the object away, to be deleted. */
    yoke_cancellation *release() noexcept { return owned_.release(); }

    /** While it lives, calls on this thread use a cancellation. */
    class scope {
      public:
        explicit scope(const cancellation &used) noexcept
            : before_(yoke_cancellation_use(used.get())) {}
        scope(const scope &) = delete;
        scope &operator=(const scope &) = delete;
        ~scope() { yoke_cancellation_use(before_); }

      private:
        const yoke_cancellation *before_;
    };

  private:
    std::unique_ptr<yoke_cancellation> owned_;
};

} // namespace YOKE_INLINE_NAMESPACE
} // namespace yoke

#endif
