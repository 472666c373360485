/* SPDX-License-Identifier: Apache-2.0 */
/* The C++ header over models, views, datasets, devices, the engine and the trainer. */
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <vector>

#include <yoke/yoke.hpp>

#include "expect.hpp"

namespace {

struct own_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <class T> constexpr bool is_owner() {
    return !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
           std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
           std::is_default_constructible_v<T>;
}

static_assert(is_owner<yoke::model>() && is_owner<yoke::net>() && is_owner<yoke::dataset>() &&
              is_owner<yoke::loader>() && is_owner<yoke::devices>() &&
              is_owner<yoke::data_parallel>() && is_owner<yoke::trainer>() &&
              is_owner<yoke::cancellation>());
static_assert(!std::is_constructible_v<yoke::mutable_view, const std::vector<float> &>);
static_assert(!std::is_constructible_v<yoke::view, const std::vector<bool> &>);
static_assert(!std::is_constructible_v<yoke::view, const std::vector<std::uint32_t> &>);

/* The same numbers as PyTorch's modules: 3 x 16 x 9 + 2 x 16, ... */
void test_model() {
    yoke::model model("residual", yoke::image_shape(3, 8, 8));
    yoke::value x = model.input().conv2d("conv", 16, 3, {1, 1, 1, true}).batch_norm("bn").relu();
    EXPECT(x.shape().channels == 16 && x.shape().height == 8);
    x = (x + x.conv2d("block", 16, 3, {1, 1})).relu();
    model.finish(x.global_average_pool().flatten().linear("fc", 10));
    EXPECT(model.parameter_count() == 16 * 27 + 32 + 16 * 16 * 9 + 16 + 160 + 10);
    EXPECT(model.output_shape().channels == 10 && model.name() == "residual");
}

void test_errors() {
    yoke::model model("bad", yoke::vector_shape(4));
    auto finished = model.try_finish(model.input().linear("fc", -1));
    EXPECT(!finished && finished.status() == YOKE_ERROR_ARGUMENT);
    EXPECT(finished.text().find("fc") != std::string::npos);
    try {
        finished.value();
        EXPECT(!"no exception");
    } catch (const yoke::error &error) {
        EXPECT(error.status() == YOKE_ERROR_ARGUMENT && error.what() == finished.text());
    }
    EXPECT_THROWS(yoke::error, yoke::model("bad", yoke::vector_shape(0)));
    EXPECT_THROWS(yoke::error, yoke::dataset("no such dataset"));
    EXPECT_THROWS(yoke::error, yoke::devices("3xabacus"));
    EXPECT_THROWS(yoke::cancelled, yoke::failure(YOKE_ERROR_CANCELLED, "asked").raise());
}

void test_moves() {
    yoke::model first("a", yoke::vector_shape(4)), empty;
    yoke_model *object = first.get();
    EXPECT(first && !empty && empty.get() == nullptr);
    yoke::model second = std::move(first);
    EXPECT(second.get() == object && !first);
    first = std::move(second);
    EXPECT(first.get() == object && !second);
    first = yoke::model("b", yoke::vector_shape(4)); /* destroys the first object */
    EXPECT(first.name() == "b");
    yoke_model_destroy(first.release());
    EXPECT(!first);
    EXPECT(empty.name().empty() && empty.parameter_count() == 0);
    EXPECT(empty.try_finish({}).status() == YOKE_ERROR_ARGUMENT);
}

void test_views() {
    const std::vector<float> numbers(12);
    double square[9] = {};
    std::vector<int> labels(3);
    yoke::view flat = numbers, shaped(numbers, {3, 4}), pixels(square);
    EXPECT(!flat.shaped() && flat.count() == 12);
    EXPECT(flat.get().data == numbers.data() && flat.get().element == YOKE_ELEMENT_FLOAT32);
    EXPECT(pixels.get().element == YOKE_ELEMENT_FLOAT64 && pixels.count() == 9);
    EXPECT(yoke::view(labels).get().element == YOKE_ELEMENT_INT32);
    EXPECT(yoke::view(std::vector<long long>(1)).get().element == YOKE_ELEMENT_INT64);
    EXPECT(yoke::view(std::vector<std::int64_t>(1)).get().element == YOKE_ELEMENT_INT64);
    auto rows = flat.with_rows(4, -1);
    EXPECT(rows && rows->ndim == 2 && rows->shape[0] == 3 && rows->shape[1] == 4);
    auto classes = yoke::view(labels).with_rows(0, 3);
    EXPECT(classes && classes->ndim == 1 && classes->shape[0] == 3);
    auto positions = flat.with_rows(0, 6);
    EXPECT(positions && positions->ndim == 2 && positions->shape[1] == 2);
    EXPECT(!flat.with_rows(5, -1) && !flat.with_rows(0, 5) && !flat.with_rows(0, 0));
    EXPECT(shaped.with_rows(99, -1)->shape[1] == 4); /* the library says what is wrong */
    EXPECT(!yoke::view(numbers, {3, 5}).with_rows(5, -1));
    EXPECT(!yoke::view(numbers, {}).with_rows(4, -1));
    EXPECT(!yoke::view(numbers, {1, 1, 1, 1, 1, 1, 12}).with_rows(4, -1));
    EXPECT(yoke::view(numbers.data(), {2, 3}).count() == 6);
    EXPECT(!yoke::view().present() && yoke::views().size() == 0);
    EXPECT((yoke::views{numbers, labels}.size() == 2));
    yoke::mutable_view out = labels;
    EXPECT(out.get().data == labels.data());
}

/* A model of y = 2 a + b. */
yoke::model line() {
    yoke::model model("line", yoke::vector_shape(2));
    yoke::loss_options loss;
    loss.kind = YOKE_LOSS_MSE;
    model.finish(model.input().linear("fc", 1), loss);
    return model;
}

yoke::row_source points(std::size_t rows) {
    yoke::row_source source;
    source.rows = rows;
    source.shape = yoke::vector_shape(2);
    source.target_count = 1;
    source.read = [](std::size_t row, float *input, std::int32_t *, float *target) {
        input[0] = static_cast<float>(row % 7) / 7;
        input[1] = static_cast<float>(row % 5) / 5;
        *target = 2 * input[0] + input[1];
    };
    return source;
}

void test_engine() {
    yoke::model model = line();
    yoke::devices devices("2xcpu");
    EXPECT(devices.count() == 2 && std::strcmp(devices.describe(1).name, "cpu:1") == 0);
    EXPECT(devices.try_describe(2).status() == YOKE_ERROR_ARGUMENT);
    yoke::data_parallel_options options;
    options.batch = 32;
    yoke::data_parallel engine(model, devices, options, yoke::sgd(0.2, 0.9));
    yoke::dataset rows(points(64));
    yoke::loader_options loading;
    loading.batch = 32;
    yoke::loader loader(rows, loading);
    double loss = 1;
    for (std::uint64_t epoch = 0; epoch < 60; epoch++) {
        loader.begin(epoch);
        for (yoke_batch batch = loader.next(); batch.rows > 0; batch = loader.next())
            loss = engine.step(batch).loss;
    }
    EXPECT(loss < 1e-4);
    const std::uint64_t hash = engine.hash();
    yoke::data_parallel moved = std::move(engine);
    EXPECT(!engine && moved.hash() == hash);
    EXPECT(engine.try_hash().status() == YOKE_ERROR_ARGUMENT);
}

/* An exception crosses the library from a loader thread to the call that needed the row. */
void test_throwing_rows() {
    yoke::row_source source = points(64);
    auto read = source.read;
    source.read = [read](std::size_t row, float *input, std::int32_t *labels, float *targets) {
        if (row == 40) throw own_error("row 40");
        read(row, input, labels, targets);
    };
    yoke::dataset rows(source);
    yoke::dataset moved = std::move(rows);
    yoke::loader_options loading;
    loading.batch = 32;
    yoke::loader loader(moved, loading);
    loader.begin(0);
    std::this_thread::sleep_for(
        std::chrono::milliseconds(20)); /* the batch that fails is ready, too: it is read ahead */
    EXPECT(loader.next().rows == 32);
    EXPECT_THROWS(own_error, loader.next());
    EXPECT_THROWS(yoke::error, loader.next()); /* thrown once; the epoch is over */

    yoke::row_stream stream;
    stream.shape = yoke::vector_shape(2);
    stream.target_count = 1;
    int passes = 0;
    stream.next = [](int, float *, std::int32_t *, float *) -> int { throw own_error("next"); };
    stream.rewind = [&passes](std::uint64_t) { passes++; };
    yoke::dataset endless(stream);
    yoke::loader streaming(endless, loading);
    streaming.begin(0);
    auto failed = streaming.try_next();
    EXPECT(failed.status() == YOKE_ERROR_CANCELLED && failed.why().thrown());
    EXPECT(passes == 1);
}

void test_trainer() {
    yoke::model model = line();
    yoke::dataset rows(points(64));
    yoke::trainer_options options;
    int steps = 0;
    options.custom_model = model.get();
    options.rows = &rows;
    options.devices = "cpu";
    options.batch = 32;
    options.evaluate_every = -1;
    options.events = [&steps](const yoke_event &event) { steps += event.kind == YOKE_EVENT_STEP; };
    yoke::trainer trainer(options);
    trainer.run();
    EXPECT(steps == 2 && trainer.progress().step == 2);
    EXPECT(trainer.summarize().steps == 2);
    options.epochs = 1000;
    options.events = [](const yoke_event &event) {
        if (event.step == 3) throw own_error("step 3");
    };
    trainer = yoke::trainer(options);
    EXPECT_THROWS(own_error, trainer.run());
    EXPECT(trainer.progress().step == 3);
}

/* What run() throws is the first exception, and nothing waits for the next call. */
void test_carrier() {
    yoke::carrier carrier;
    {
        yoke::carrier::call call(carrier);
        for (const char *text : {"first", "second"})
            EXPECT(carrier.run(-1, [text]() -> int { throw own_error(text); }) == -1);
        EXPECT(carrier.run(-1, [] { return 7; }) == 7);
        auto done = call.finish(YOKE_OK);
        EXPECT(!done);
        try {
            done.value();
        } catch (const own_error &error) {
            EXPECT(std::strcmp(error.what(), "first") == 0);
        }
        EXPECT(call.finish(YOKE_OK));
    }
    (void)carrier.run(0, []() -> int { throw own_error("no call runs"); });
    yoke::carrier::call next(carrier);
    EXPECT(!next.finish(YOKE_OK) && next.finish(YOKE_OK));
}

} // namespace

int main() {
    test_model();
    test_errors();
    test_moves();
    test_views();
    test_carrier();
    test_engine();
    test_throwing_rows();
    test_trainer();
    std::puts("objects: ok");
}
