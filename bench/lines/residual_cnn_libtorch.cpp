/* SPDX-License-Identifier: Apache-2.0 */
/* The program of samples/15_residual_cnn with libtorch. */
#include <cmath>
#include <cstdio>
#include <random>
#include <torch/torch.h>
#include <vector>

constexpr int classes = 4, side = 16, train_rows = 512, test_rows = 128, batch = 64;

/* Images [rows, 1, side, side] and their classes. */
struct images {
    std::vector<float> pixels;
    std::vector<int64_t> labels;
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
    torch::Tensor inputs() {
        return torch::from_blob(pixels.data(), {int64_t(labels.size()), 1, side, side});
    }
    torch::Tensor targets() {
        return torch::from_blob(labels.data(), {int64_t(labels.size())}, torch::kInt64);
    }
};

torch::nn::Conv2d conv(int in, int out, int kernel, int stride) {
    return torch::nn::Conv2d(
        torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct BlockImpl : torch::nn::Module {
    torch::nn::Conv2d conv1, conv2;
    torch::nn::BatchNorm2d bn1, bn2;
    torch::nn::Sequential downsample;
    BlockImpl(int in, int out, int stride)
        : conv1(conv(in, out, 3, stride)), conv2(conv(out, out, 3, 1)), bn1(out), bn2(out) {
        register_module("conv1", conv1);
        register_module("bn1", bn1);
        register_module("conv2", conv2);
        register_module("bn2", bn2);
        if (stride > 1)
            downsample =
                torch::nn::Sequential(conv(in, out, 1, stride), torch::nn::BatchNorm2d(out));
        register_module("downsample", downsample);
    }
    torch::Tensor forward(torch::Tensor x) {
        torch::Tensor y = bn2(conv2(torch::relu(bn1(conv1(x)))));
        return torch::relu(y + (downsample->is_empty() ? x : downsample->forward(x)));
    }
};
TORCH_MODULE(Block);

struct Network : torch::nn::Module {
    torch::nn::Conv2d conv1{conv(1, 16, 3, 1)};
    torch::nn::BatchNorm2d bn1{16};
    torch::nn::Sequential layer1{Block(16, 16, 1), Block(16, 16, 1)};
    torch::nn::Sequential layer2{Block(16, 32, 2), Block(32, 32, 1)};
    torch::nn::Linear fc{32, classes};
    Network() {
        register_module("conv1", conv1);
        register_module("bn1", bn1);
        register_module("layer1", layer1);
        register_module("layer2", layer2);
        register_module("fc", fc);
    }
    torch::Tensor forward(torch::Tensor x) {
        x = layer2->forward(layer1->forward(torch::relu(bn1(conv1(x)))));
        return fc(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
    }
};

int main() {
    images train(train_rows, 1), test(test_rows, 2);
    auto net = std::make_shared<Network>();
    torch::optim::SGD optimizer(net->parameters(),
                                torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(5e-4));
    for (int epoch = 1; epoch <= 3; epoch++) {
        net->train();
        double sum = 0;
        for (torch::Tensor rows : torch::randperm(train_rows).split(batch)) {
            optimizer.zero_grad();
            torch::Tensor loss = torch::cross_entropy_loss(
                net->forward(train.inputs().index({rows})), train.targets().index({rows}));
            loss.backward();
            optimizer.step();
            sum += loss.item<double>() * rows.size(0);
        }
        torch::NoGradGuard no_gradient;
        net->eval();
        torch::Tensor found = net->forward(test.inputs()).argmax(1).eq(test.targets());
        std::printf("epoch %d  loss %.3f  test accuracy %.3f\n", epoch, sum / train_rows,
                    found.to(torch::kFloat).mean().item<double>());
    }
    torch::save(net, "residual.pt");
}
