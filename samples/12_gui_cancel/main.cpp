/* SPDX-License-Identifier: Apache-2.0 */
/* What a program with a window does: a thread trains, while the thread of the window draws the
 * progress 60 times a second and cancels when the user wants. Here frames are lines of text, and
 * frame 90 is the click on Cancel. */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>
#include <yoke/yoke.hpp>

using clock_type = std::chrono::steady_clock;
using milliseconds = std::chrono::duration<double, std::milli>;

constexpr int click = 90, rows = 4096;

/* Points of two spirals. */
struct spirals {
    std::vector<float> points;
    std::vector<int> arms;
    spirals() {
        for (int row = 0; row < rows; row++) {
            const float along = static_cast<float>(row) / rows * 9;
            const float turn = along + (row % 2 ? 3.1416f : 0);
            points.push_back(along / 9 * std::cos(turn));
            points.push_back(along / 9 * std::sin(turn));
            arms.push_back(row % 2);
        }
    }
};

yoke::net open_net() {
    yoke::model model("spirals", yoke::vector_shape(2));
    model.finish(model.input().linear("1", 64).relu().linear("2", 64).relu().linear("3", 2));
    yoke::net_options options;
    options.devices = "cpu";
    options.optimizer = yoke::adam(3e-3);
    return yoke::net(std::move(model), options);
}

/* Draws until the worker is done; returns the longest time from one frame to the next. */
double draw_frames(yoke::net &net, const std::atomic<bool> &done, clock_type::time_point *clicked) {
    auto next = clock_type::now(), last = next;
    double longest = 0;
    for (int frame = 1; !done; frame++) {
        next += std::chrono::microseconds(1000000 / 60);
        std::this_thread::sleep_until(next);
        longest = std::max(longest, milliseconds(clock_type::now() - last).count());
        last = clock_type::now();
        const yoke::net_info info = net.query(); /* never waits */
        if (frame % 30 == 0 && frame <= click)
            std::printf("frame %2d: step %d, loss %.3f\n", frame, static_cast<int>(info.step),
                        info.loss);
        if (frame != click) continue;
        *clicked = clock_type::now();
        net.cancel();
    }
    return longest;
}

int main() {
    const spirals data;
    yoke::net net = open_net();
    std::atomic<bool> done{false};
    clock_type::time_point clicked, ended;
    std::thread worker([&] {
        yoke::fit_options forever;
        forever.epochs = 1000000;
        try {
            net.fit(data.points, data.arms, forever);
        } catch (const yoke::cancelled &) {
            ended = clock_type::now();
        }
        done = true;
    });
    const double longest = draw_frames(net, done, &clicked);
    worker.join();
    std::printf("the fit ended %.1f ms after the click; the longest frame took %.1f ms\n",
                milliseconds(ended - clicked).count(), longest);
    net.resume(); /* the net is whole: what was learned is there, and it can go on */
    const yoke::step_result found = net.evaluate(data.points, data.arms);
    std::printf("loss %.3f and accuracy %.2f with the weights of step %d\n", found.loss,
                found.accuracy(), static_cast<int>(net.query().step));
}
