/* SPDX-License-Identifier: Apache-2.0 */
/* A residual network in C++ on arrays of the program: images of stripes, which differ in direction.
 */
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>
#include <yoke/yoke.hpp>

constexpr int classes = 4, side = 16, train_rows = 512, test_rows = 128;

/* Images [rows, 1, side, side] and their classes. */
struct images {
    std::vector<float> pixels;
    std::vector<int> labels;
    images(int rows, unsigned seed) {
        std::mt19937 random(seed);
        std::normal_distribution<float> noise(0, 1.2f);
        for (int row = 0; row < rows; row++) {
            const int label = static_cast<int>(random() % classes);
            const float angle = static_cast<float>(label) * 3.1416f / classes;
            const float phase = noise(random) * 3;
            for (int y = 0; y < side; y++)
                for (int x = 0; x < side; x++) {
                    const float along = std::cos(angle) * static_cast<float>(x) +
                                        std::sin(angle) * static_cast<float>(y);
                    pixels.push_back(std::sin(along + phase) + noise(random));
                }
            labels.push_back(label);
        }
    }
};

/* Two convolutions and a shortcut, as in torchvision's ResNet. */
yoke::value block(yoke::value x, const std::string &name, int channels, int stride) {
    yoke::value y = x.conv2d(name + ".conv1", channels, 3, {stride, 1, 1, true});
    y = y.batch_norm(name + ".bn1").relu().conv2d(name + ".conv2", channels, 3, {1, 1, 1, true});
    if (stride > 1) {
        x = x.conv2d(name + ".downsample.0", channels, 1, {stride, 0, 1, true});
        x = x.batch_norm(name + ".downsample.1");
    }
    return (x + y.batch_norm(name + ".bn2")).relu();
}

yoke::model build() {
    yoke::model model("residual", yoke::image_shape(1, side, side));
    yoke::value x = model.input().conv2d("conv1", 16, 3, {1, 1, 1, true}).batch_norm("bn1").relu();
    x = block(block(x, "layer1.0", 16, 1), "layer1.1", 16, 1);
    x = block(block(x, "layer2.0", 32, 2), "layer2.1", 32, 1);
    model.finish(x.global_average_pool().flatten().linear("fc", classes));
    return model;
}

int main() {
    const images train(train_rows, 1), test(test_rows, 2);
    yoke::net_options options;
    options.batch = 64;
    options.optimizer = yoke::sgd(0.1, 0.9, 5e-4);
    yoke::net net(build(), options);
    for (int epoch = 1; epoch <= 3; epoch++) {
        const yoke::fit_result fit = net.fit(train.pixels, train.labels);
        const yoke::step_result found = net.evaluate(test.pixels, test.labels);
        std::printf("epoch %d  loss %.3f  test accuracy %.3f\n", epoch, fit.loss, found.accuracy());
    }
    net.save("residual.safetensors");
}
