/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Views of arrays of the program: anything with data() and size() (std::vector, std::array,
 * std::span), a C array, or a pointer with a shape.
 */
#ifndef YOKE_ARRAY_HPP
#define YOKE_ARRAY_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <type_traits>

#include "yoke/array.h"
#include "yoke/result.hpp"

namespace yoke {
inline namespace YOKE_INLINE_NAMESPACE {

/** A number in bfloat16, as its bits. */
struct bfloat16 {
    std::uint16_t bits = 0; /**< The upper half of a float's. */
};

/** The element of a C++ type; other types have none. */
template <class T> struct element_of {};
template <> struct element_of<float> {
    static constexpr yoke_element value = YOKE_ELEMENT_FLOAT32;
};
template <> struct element_of<double> {
    static constexpr yoke_element value = YOKE_ELEMENT_FLOAT64;
};
template <> struct element_of<bfloat16> {
    static constexpr yoke_element value = YOKE_ELEMENT_BFLOAT16;
};
template <> struct element_of<std::uint8_t> {
    static constexpr yoke_element value = YOKE_ELEMENT_UINT8;
};
template <> struct element_of<std::int32_t> {
    static constexpr yoke_element value = YOKE_ELEMENT_INT32;
};
template <> struct element_of<std::int64_t> {
    static constexpr yoke_element value = YOKE_ELEMENT_INT64;
};
#if defined(__LP64__) && !defined(__APPLE__) /* where long is int64_t, long long is another type   \
                                              */
template <> struct element_of<long long> {
    static constexpr yoke_element value = YOKE_ELEMENT_INT64;
};
#endif

/** The type of what `Range` holds one after another, const or not; no type: not contiguous. */
template <class Range>
using pointee = std::remove_pointer_t<decltype(std::data(std::declval<Range &>()))>;

template <class Range, class = void> struct is_viewable : std::false_type {};
template <class Range>
struct is_viewable<Range, std::void_t<decltype(element_of<std::remove_cv_t<pointee<Range>>>::value),
                                      decltype(std::size(std::declval<Range &>()))>>
    : std::true_type {};

/** A span of objects, std::span for C++17: made of anything with data() and size(). */
template <class T> class span {
  public:
    constexpr span() = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <class Range,
              class = std::enable_if_t<std::is_convertible_v<pointee<Range> (*)[], T (*)[]> &&
                                       !std::is_same_v<std::decay_t<Range>, span>>>
    constexpr span(Range &&range) noexcept : data_(std::data(range)), size_(std::size(range)) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t index) const noexcept { return data_[index]; }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/** A view of an array to read. Without a shape its number of rows follows from the model that reads
 * it. The memory must live until the call that gets the view returns. */
class view {
  public:
    /** No array. */
    view() = default;
    /** All elements of a range; the model says how many make a row. */
    template <class Range, class = std::enable_if_t<is_viewable<const Range>::value>>
    view(const Range &range)
        : view(std::data(range), std::size(range),
               element_of<std::remove_cv_t<pointee<const Range>>>::value) {}
    /** Elements of a range with a shape, rows first. */
    template <class Range, class = std::enable_if_t<is_viewable<const Range>::value>>
    view(const Range &range, std::initializer_list<std::int64_t> shape) : view(range) {
        set_shape(shape);
    }
    /** An array of a shape, rows first. */
    template <class T, class = decltype(element_of<T>::value)>
    view(const T *data, std::initializer_list<std::int64_t> shape)
        : view(data, product(shape), element_of<T>::value) {
        set_shape(shape);
    }
    /** A view of the C API, such as one of a GPU's memory. */
    view(const yoke_array &whole) : view_(whole), shaped_(true), present_(true) {}

    /** The view for the C API; one dimension where it has no shape. */
    const yoke_array &get() const noexcept { return view_; }
    /** Whether there is an array, which may have no elements. */
    bool present() const noexcept { return present_; }
    /** Whether it was given a shape. */
    bool shaped() const noexcept { return shaped_; }
    /** Elements; of a view of the C API 0. */
    std::size_t count() const noexcept { return count_; }

    /** The view with its rows: `row` elements each where it has no shape.
     *
     * @param row   Elements of a row; 0: as many as `rows` makes of them.
     * @param rows  That there should be; below 0: as many as there are.
     */
    result<yoke_array> with_rows(std::size_t row, std::int64_t rows) const {
        yoke_array whole = view_;
        if (bad_shape_)
            return failure(YOKE_ERROR_ARGUMENT, "an array of " + std::to_string(count_) +
                                                    " elements has a shape for another number");
        if (shaped_ || !present_) return whole;
        if (row == 0 && rows > 0 && count_ % static_cast<std::size_t>(rows) == 0)
            row = count_ / static_cast<std::size_t>(rows);
        if (row == 0 || count_ % row != 0)
            return failure(
                YOKE_ERROR_ARGUMENT,
                "an array has " + std::to_string(count_) + " elements, no multiple of " +
                    (row ? std::to_string(row) + ", a row" : std::to_string(rows) + ", the rows"));
        whole.shape[0] = static_cast<std::int64_t>(count_ / row);
        whole.shape[1] = static_cast<std::int64_t>(row);
        whole.ndim = row > 1 ? 2 : 1;
        return whole;
    }

  protected:
    view(const void *data, std::size_t count, yoke_element element)
        : view_(yoke_array_of_numbers(data, element, static_cast<std::int64_t>(count))),
          count_(count), present_(true) {}

  private:
    static std::size_t product(std::initializer_list<std::int64_t> shape) {
        std::size_t elements = 1;
        for (std::int64_t length : shape)
            elements *= length > 0 ? static_cast<std::size_t>(length) : 0;
        return elements;
    }
    void set_shape(std::initializer_list<std::int64_t> shape) {
        bad_shape_ =
            shape.size() == 0 || shape.size() > YOKE_ARRAY_DIMENSIONS || product(shape) != count_;
        shaped_ = true;
        view_.ndim = 0;
        for (std::int64_t length : shape)
            if (view_.ndim < YOKE_ARRAY_DIMENSIONS) view_.shape[view_.ndim++] = length;
    }

    yoke_array view_ = {};
    std::size_t count_ = 0;
    bool shaped_ = false;
    bool bad_shape_ = false;
    bool present_ = false;
};

/** A view of an array to write. */
class mutable_view : public view {
  public:
    mutable_view() = default;
    template <class Range, class = std::enable_if_t<is_viewable<Range>::value &&
                                                    !std::is_const_v<pointee<Range>>>>
    mutable_view(Range &&range) : view(static_cast<const Range &>(range)) {}
    template <class Range, class = std::enable_if_t<is_viewable<Range>::value &&
                                                    !std::is_const_v<pointee<Range>>>>
    mutable_view(Range &&range, std::initializer_list<std::int64_t> shape)
        : view(static_cast<const Range &>(range), shape) {}
    template <class T, class = std::enable_if_t<!std::is_const_v<T>>,
              class = decltype(element_of<T>::value)>
    mutable_view(T *data, std::initializer_list<std::int64_t> shape) : view(data, shape) {}
    mutable_view(const yoke_array &whole) : view(whole) {}
};

/** One view, or a list of views: {images, lengths}. */
template <class View> class view_list {
  public:
    view_list() = default;
    template <class One, class = std::enable_if_t<std::is_convertible_v<One &&, View>>>
    view_list(One &&one) {
        add(View(std::forward<One>(one)));
    }
    view_list(std::initializer_list<View> several) {
        for (const View &one : several)
            add(one);
    }

    std::size_t size() const noexcept { return size_; }
    const View &operator[](std::size_t index) const { return views_[index]; }

  private:
    void add(const View &one) {
        if (size_ < views_.size()) views_[size_] = one;
        size_++;
    }
    std::array<View, YOKE_INPUTS_LIMIT> views_;
    std::size_t size_ = 0;
};

using views = view_list<view>;                 /**< To read. */
using mutable_views = view_list<mutable_view>; /**< To write. */

} // namespace YOKE_INLINE_NAMESPACE
} // namespace yoke

#endif
