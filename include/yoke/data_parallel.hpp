/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Devices and the engine in C++, for programs that the short road (net.hpp) does not serve. The
 * engine is thin: get() gives the object to every other call of the C API.
 */
#ifndef YOKE_DATA_PARALLEL_HPP
#define YOKE_DATA_PARALLEL_HPP

#include <string>

#include "yoke/data_parallel.h"
#include "yoke/model.hpp"
#include "yoke/optimizer.hpp"
#include "yoke/weights.h"

namespace yoke {
inline namespace YOKE_INLINE_NAMESPACE {

/** yoke_devices_options with its defaults. */
struct devices_options : yoke_devices_options {
    devices_options() : yoke_devices_options(YOKE_DEVICES_OPTIONS_INIT) {}
};

/** Open devices. Engines and loaders that use them must be destroyed first. */
class devices {
  public:
    devices() = default;
    /** "auto", "2xcpu", "4xcuda", ... */
    explicit devices(const std::string &list) : devices(try_open(list).value()) {}
    explicit devices(const devices_options &options) : devices(try_open(options).value()) {}

    static result<devices> try_open(const std::string &list) {
        devices_options options;
        options.list = list.c_str();
        return try_open(options);
    }
    static result<devices> try_open(const devices_options &options) {
        yoke_devices *made = nullptr;
        const yoke_status status = yoke_devices_open(&made, &options);
        if (status != YOKE_OK) return failure(status);
        devices owner;
        owner.handle_.reset(made);
        return result<devices>(std::move(owner));
    }

    int count() const noexcept { return yoke_devices_count(get()); }
    result<yoke_device_info> try_describe(int index) const {
        yoke_device_info info = {};
        info.struct_size = sizeof info;
        const yoke_status status = yoke_devices_describe(get(), index, &info);
        if (status != YOKE_OK) return failure(status);
        return info;
    }
    yoke_device_info describe(int index) const { return try_describe(index).value(); }
    /** Waits until every device has done all that was queued on it. */
    result<void> try_synchronize() const { return result<void>(yoke_devices_synchronize(get())); }
    void synchronize() const { try_synchronize().value(); }

    yoke_devices *get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
    yoke_devices *release() noexcept { return handle_.release(); }

  private:
    handle<yoke_devices, yoke_devices_close> handle_;
};

/** yoke_data_parallel_options with its defaults; set batch. */
struct data_parallel_options : yoke_data_parallel_options {
    data_parallel_options() : yoke_data_parallel_options(YOKE_DATA_PARALLEL_OPTIONS_INIT) {}
};

/** torch.nn.DataParallel: the engine. Model and devices must outlive it. */
class data_parallel {
  public:
    data_parallel() = default;
    data_parallel(const model &network, const devices &where, const data_parallel_options &options,
                  const optimizer_options &optimizer = sgd())
        : data_parallel(try_create(network, where, options, optimizer).value()) {}

    static result<data_parallel> try_create(const model &network, const devices &where,
                                            const data_parallel_options &options,
                                            const optimizer_options &optimizer = sgd()) {
        yoke_data_parallel *made = nullptr;
        const yoke_status status =
            yoke_data_parallel_create(&made, network.get(), where.get(), &optimizer, &options);
        if (status != YOKE_OK) return failure(status);
        data_parallel owner;
        owner.handle_.reset(made);
        owner.network_ = network.get();
        return result<data_parallel>(std::move(owner));
    }

    result<yoke_step_result> try_step(const yoke_batch &batch,
                                      double learning_rate = YOKE_OPTIMIZER_LEARNING_RATE) {
        yoke_step_result found = {};
        found.struct_size = sizeof found;
        const yoke_status status = yoke_data_parallel_step(get(), &batch, learning_rate, &found);
        if (status != YOKE_OK) return failure(status);
        return found;
    }
    yoke_step_result step(const yoke_batch &batch,
                          double learning_rate = YOKE_OPTIMIZER_LEARNING_RATE) {
        return try_step(batch, learning_rate).value();
    }
    result<yoke_step_result> try_evaluate(const yoke_batch &batch) {
        yoke_step_result found = {};
        found.struct_size = sizeof found;
        const yoke_status status = yoke_data_parallel_evaluate(get(), &batch, &found);
        if (status != YOKE_OK) return failure(status);
        return found;
    }
    yoke_step_result evaluate(const yoke_batch &batch) { return try_evaluate(batch).value(); }
    result<void> try_forward(const yoke_batch &batch, bool training, float *outputs) {
        return result<void>(yoke_data_parallel_forward(get(), &batch, training, outputs));
    }
    void forward(const yoke_batch &batch, bool training, float *outputs) {
        try_forward(batch, training, outputs).value();
    }
    result<void> try_save(const std::string &path) {
        return result<void>(yoke_weights_save(get(), network_, path.c_str()));
    }
    void save(const std::string &path) { try_save(path).value(); }
    result<void> try_load(const std::string &path) {
        return result<void>(yoke_weights_load(get(), network_, path.c_str()));
    }
    void load(const std::string &path) { try_load(path).value(); }
    result<std::uint64_t> try_hash() {
        std::uint64_t hash = 0;
        const yoke_status status = yoke_data_parallel_hash(get(), &hash);
        if (status != YOKE_OK) return failure(status);
        return hash;
    }
    /** Equal for equal weights. */
    std::uint64_t hash() { return try_hash().value(); }

    yoke_data_parallel *get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
    yoke_data_parallel *release() noexcept { return handle_.release(); }

  private:
    handle<yoke_data_parallel, yoke_data_parallel_destroy> handle_;
    const yoke_model *network_ = nullptr;
};

} // namespace YOKE_INLINE_NAMESPACE
} // namespace yoke

#endif
