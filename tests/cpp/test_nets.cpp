/* SPDX-License-Identifier: Apache-2.0 */
/* The C++ header over the short road: fits, predictions, weights in memory, exceptions of
 * callbacks, moves and the order of closing. */
#include <atomic>
#include <cmath>
#include <cstdlib>
#if __cplusplus >= 202002L
#include <span>
#endif
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <yoke/yoke.hpp>

#include "expect.hpp"

namespace {

struct own_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* Two classes on the two sides of a line. */
struct points {
    std::vector<float> inputs;
    std::vector<int> labels;
    explicit points(int rows) {
        for (int row = 0; row < rows; row++) {
            const float x = static_cast<float>(row * 37 % 101) / 50 - 1;
            const float y = static_cast<float>(row * 53 % 97) / 48 - 1;
            inputs.insert(inputs.end(), {x, y});
            labels.push_back(x + y > 0);
        }
    }
};

yoke::model build() {
    yoke::model model("points", yoke::vector_shape(2));
    model.finish(model.input().linear("hidden", 16).relu().linear("out", 2));
    return model;
}

yoke::net_options options() {
    yoke::net_options options;
    options.devices = "cpu";
    options.batch = 32;
    options.optimizer = yoke::adam(0.02);
    options.seed = 3;
    return options;
}

int correct(const std::vector<float> &scores, const std::vector<int> &labels) {
    int found = 0;
    for (std::size_t row = 0; row < labels.size(); row++)
        found += (scores[2 * row + 1] > scores[2 * row]) == (labels[row] == 1);
    return found;
}

void test_learning() {
    const points some(256);
    const yoke::model model = build();
    yoke::net net(model, options());
    yoke::fit_options fit;
    std::uint64_t steps = 0;
    fit.epochs = 20;
    fit.progress = [&steps](const yoke::net_info &info) { steps = info.step; };
    const yoke::fit_result done = net.fit(some.inputs, some.labels, fit);
    EXPECT(done.steps == 160 && steps == 160 && done.loss < 0.2);
    EXPECT(net.evaluate(some.inputs, some.labels).accuracy() > 0.95);
    const std::vector<float> scores = net.predict(some.inputs);
    EXPECT(scores.size() == 512 && correct(scores, some.labels) > 243);
    std::vector<float> again(512);
    net.predict(some.inputs, again);
    EXPECT(again == scores);
    EXPECT(net.step(some.inputs.size() ? yoke::view(some.inputs.data(), {32, 2}) : yoke::view(),
                    yoke::view(some.labels.data(), {32}))
               .rows == 32);
    EXPECT(net.query().step == 161);
}

void test_refusals() {
    const points some(16);
    yoke::net net(build(), options());
    const std::vector<float> odd(7);
    std::vector<float> small(3);
    EXPECT(net.try_fit(odd, some.labels).status() == YOKE_ERROR_ARGUMENT);
    EXPECT(net.try_fit(some.inputs, std::vector<int>(15)).status() == YOKE_ERROR_ARGUMENT);
    EXPECT(net.try_fit({some.inputs, some.inputs}, some.labels).status() == YOKE_ERROR_ARGUMENT);
    EXPECT(net.try_predict(yoke::views()).status() == YOKE_ERROR_ARGUMENT);
    EXPECT(net.try_predict(some.inputs, small).status() == YOKE_ERROR_ARGUMENT);
    EXPECT(net.try_predict(some.inputs, yoke::mutable_views()).status() == YOKE_ERROR_ARGUMENT);
    EXPECT_THROWS(yoke::error, net.read(std::vector<unsigned char>(100)));
    yoke::net empty;
    EXPECT(empty.try_fit(some.inputs, some.labels).status() == YOKE_ERROR_ARGUMENT);
    EXPECT(empty.try_save("x").status() == YOKE_ERROR_ARGUMENT && !empty.engine());
    EXPECT_THROWS(yoke::error, yoke::net(yoke::model(), options()));
    empty.cancel();
}

void test_weights_in_memory() {
    const points some(64);
    yoke::net first(build(), options()), second;
    first.fit(some.inputs, some.labels);
    const std::vector<unsigned char> bytes = first.write();
    yoke::net_options other = options();
    other.seed = 4;
    second = yoke::net(build(), other);
    EXPECT(second.predict(some.inputs) != first.predict(some.inputs));
    second.read(bytes);
    EXPECT(second.predict(some.inputs) == first.predict(some.inputs));
    std::size_t count = 0;
    first.write(YOKE_NET_WEIGHTS,
                [&](const unsigned char *, std::size_t some_bytes) { count += some_bytes; });
    EXPECT(count == bytes.size());
    EXPECT_THROWS(own_error, first.write(YOKE_NET_WEIGHTS, [](const unsigned char *, std::size_t) {
        throw own_error("full");
    }));
}

void test_throwing_callbacks() {
    const points some(64);
    yoke::net_options logged = options();
    std::atomic<bool> fails{false};
    std::atomic<int> lines{0};
    logged.log = [&](yoke_log_level, const char *) {
        lines++;
        if (fails) throw own_error("log");
    };
    yoke::net net(build(), logged);
    yoke::fit_options fit;
    fit.epochs = 100;
    fit.progress = [](const yoke::net_info &info) {
        if (info.step == 3) throw own_error("progress");
    };
    EXPECT_THROWS(own_error, net.fit(some.inputs, some.labels, fit));
    EXPECT(net.query().step == 3);
    const auto failed = net.try_fit(some.inputs, some.labels, fit);
    EXPECT(failed.ok()); /* step 3 is over, and nothing is left of its exception */
    fit.progress = [](const yoke::net_info &) { return false; };
    EXPECT(net.fit(some.inputs, some.labels, fit).steps == 1);

    yoke::row_source source;
    source.rows = 64;
    source.shape = yoke::vector_shape(2);
    source.classes = 2;
    source.read = [&](std::size_t row, float *input, std::int32_t *label, float *) {
        if (row == 60) throw own_error("row 60");
        input[0] = some.inputs[2 * row];
        input[1] = some.inputs[2 * row + 1];
        *label = some.labels[row];
    };
    yoke::dataset rows(source);
    EXPECT_THROWS(own_error, net.fit(rows));
    EXPECT(lines > 0);
    fails = true;
    EXPECT_THROWS(own_error, yoke::net(build(), logged));
    fails = false;
}

/* Moved while other objects refer to it; closed in the opposite order of opening. */
void test_moves() {
    const points some(64);
    std::vector<std::string> closed;
    yoke::net_options logged = options();
    logged.log = [](yoke_log_level, const char *) {};
    yoke::net net(build(), logged); /* keeps its model */
    yoke_net *object = net.get();
    yoke::net moved = std::move(net);
    EXPECT(!net && moved.get() == object);
    EXPECT(net.try_predict(some.inputs).status() == YOKE_ERROR_ARGUMENT);
    moved.fit(some.inputs, some.labels);
    EXPECT(!moved.release() && moved); /* its log would be gone */
    net = std::move(moved);
    net = yoke::net(build(), options()); /* closes the first net, then its model */
    EXPECT(net.predict(some.inputs).size() == 128);
    net.close();
    EXPECT(!net);
    net.close();
    const yoke::model model = build();
    yoke::net borrowed(model, options());
    yoke_net_close(borrowed.release());
    EXPECT(!borrowed);
}

void test_cancel() {
    const points some(256);
    yoke::net net(build(), options());
    std::atomic<bool> began{false};
    yoke::fit_options fit;
    fit.epochs = 1000000;
    fit.progress = [&began](const yoke::net_info &) { began = true; };
    yoke_status status = YOKE_OK;
    std::thread worker([&] { status = net.try_fit(some.inputs, some.labels, fit).status(); });
    while (!began)
        std::this_thread::yield();
    EXPECT(net.query().activity == YOKE_NET_FITTING);
    net.cancel();
    worker.join();
    EXPECT(status == YOKE_ERROR_CANCELLED);
    fit.epochs = 1;
    EXPECT_THROWS(yoke::cancelled, net.fit(some.inputs, some.labels, fit));
    net.resume();
    EXPECT(net.fit(some.inputs, some.labels, fit).steps == 8);
}

/* One cancellation for several calls and threads. */
void test_cancellation() {
    const points some(64);
    yoke::cancellation cancellation;
    yoke::net_options shared = options();
    shared.cancellation = &cancellation;
    yoke::net net(build(), shared);
    EXPECT(net.try_fit(some.inputs, some.labels));
    EXPECT(net.predict(some.inputs).size() == 128);
    cancellation.request();
    EXPECT_THROWS(yoke::cancelled, net.fit(some.inputs, some.labels));
    EXPECT(yoke::net::try_open(build(), shared).status() == YOKE_ERROR_CANCELLED);
    EXPECT(net.predict(some.inputs).size() == 128); /* predictions go on */
    cancellation.reset();
    EXPECT(net.try_fit(some.inputs, some.labels));
    yoke::net other(build(), options());
    cancellation.request();
    {
        yoke::cancellation::scope scope(cancellation);
        EXPECT(other.try_fit(some.inputs, some.labels).status() == YOKE_ERROR_CANCELLED);
    }
    EXPECT(other.try_fit(some.inputs, some.labels));
    delete cancellation.release();
    cancellation.request(); /* nothing happens */
}

/* Options by name, and views of std::span, in C++20. */
void test_newer_language() {
#if __cplusplus >= 202002L
    const points some(64);
    yoke::net net(build(), {.devices = "cpu", .batch = 16, .optimizer = yoke::adam(0.02)});
    const auto done = net.fit(some.inputs, some.labels, {.epochs = 3});
    EXPECT(done.steps == 12);
    const std::span<const float> half(some.inputs.data(), 64);
    EXPECT(net.predict(half).size() == 64);
    std::vector<float> scores(64);
    net.predict(half, std::span<float>(scores));
    EXPECT(scores == net.predict(half));
#endif
}

} // namespace

int main() {
    test_learning();
    test_refusals();
    test_weights_in_memory();
    test_throwing_callbacks();
    test_moves();
    test_cancel();
    test_cancellation();
    test_newer_language();
    std::puts("nets: ok");
}
