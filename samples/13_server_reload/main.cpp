/* SPDX-License-Identifier: Apache-2.0 */
/* A server in C++: four threads predict with one net, while another one exchanges its weights from
 * memory. Every prediction has the old weights or the new ones, never a mixture. */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>
#include <yoke/yoke.hpp>

constexpr int features = 32, outputs = 8, rows = 16, threads = 4, reloads = 50;

yoke::net open_net(std::uint64_t seed) {
    yoke::model model("server", yoke::vector_shape(features));
    model.finish(
        model.input().linear("1", 256).relu().linear("2", 256).relu().linear("3", outputs));
    yoke::net_options options;
    options.devices = "cpu";
    options.inference = true;
    options.seed = seed;
    return yoke::net(std::move(model), options);
}

/* The largest difference of two predictions. */
float distance(const std::vector<float> &left, const std::vector<float> &right) {
    float most = 0;
    for (std::size_t i = 0; i < left.size(); i++)
        most = std::max(most, std::abs(left[i] - right[i]));
    return most;
}

/* A weights' file in memory, and what they predict. */
struct version {
    std::vector<unsigned char> weights;
    std::vector<float> scores;
};

struct server {
    yoke::net net = open_net(1);
    std::vector<float> request = std::vector<float>(rows * features);
    version versions[2];
    std::atomic<bool> stopping{false};
    std::atomic<int> predictions{0}, mixed{0};

    server() {
        for (std::size_t i = 0; i < request.size(); i++)
            request[i] = std::sin(static_cast<float>(i));
        for (std::uint64_t seed : {1, 2}) { /* as a trainer elsewhere would have sent them */
            yoke::net trained = open_net(seed);
            versions[seed - 1] = {trained.write(), trained.predict(request)};
        }
    }

    void serve() {
        std::vector<float> scores(rows * outputs);
        while (!stopping) {
            net.predict(request, scores);
            predictions++;
            mixed += distance(scores, versions[0].scores) > 1e-5f &&
                     distance(scores, versions[1].scores) > 1e-5f;
        }
    }
};

int main() {
    server server;
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; i++)
        workers.emplace_back([&server] { server.serve(); });
    for (int i = 1; i <= reloads; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        server.net.read(server.versions[i % 2].weights);
    }
    server.stopping = true;
    for (std::thread &worker : workers)
        worker.join();
    std::printf("the versions differ by %.2f\n",
                distance(server.versions[0].scores, server.versions[1].scores));
    std::printf("%d predictions of %d rows by %d threads, %d reloads\n", server.predictions.load(),
                rows, threads, reloads);
    std::puts(server.mixed ? "some had mixed weights" : "none had mixed weights");
    return server.mixed != 0;
}
