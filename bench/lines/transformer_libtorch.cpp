/* SPDX-License-Identifier: Apache-2.0 */
/* The program of samples/16_transformer with libtorch. */
#include <cstdio>
#include <random>
#include <torch/torch.h>
#include <vector>

constexpr int tokens = 16, half = 8, positions = 2 * half - 1, rows = 1024, width = 32, heads = 4;

/* A layer of GPT-2. */
struct BlockImpl : torch::nn::Module {
    torch::nn::LayerNorm ln_1{torch::nn::LayerNormOptions({width})};
    torch::nn::Linear c_attn{width, 3 * width}, c_proj{width, width};
    torch::nn::Sequential mlp{torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})),
                              torch::nn::Linear(width, 4 * width), torch::nn::GELU(),
                              torch::nn::Linear(4 * width, width)};
    BlockImpl() {
        register_module("ln_1", ln_1);
        register_module("c_attn", c_attn);
        register_module("c_proj", c_proj);
        register_module("mlp", mlp);
    }
    torch::Tensor forward(torch::Tensor x) {
        auto qkv =
            c_attn(ln_1(x)).view({-1, positions, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
        auto heard = torch::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0, true);
        x = x + c_proj(heard.transpose(1, 2).reshape({-1, positions, width}));
        return x + mlp->forward(x);
    }
};
TORCH_MODULE(Block);

struct Network : torch::nn::Module {
    torch::nn::Embedding wte{tokens, width}, wpe{positions, width};
    torch::nn::Sequential layers{Block(), Block(),
                                 torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})),
                                 torch::nn::Linear(width, tokens)};
    Network() {
        register_module("wte", wte);
        register_module("wpe", wpe);
        register_module("layers", layers);
        torch::nn::init::normal_(wte->weight, 0, 0.02);
        torch::nn::init::normal_(wpe->weight, 0, 0.02);
    }
    torch::Tensor forward(torch::Tensor x) {
        return layers->forward(wte(x) + wpe(torch::arange(positions)));
    }
};

int main() {
    std::mt19937 random(1);
    std::vector<int64_t> inputs, labels;
    for (int row = 0; row < rows; row++) {
        std::vector<int> text(2 * half);
        for (int i = 0; i < half; i++)
            text[i] = text[i + half] = static_cast<int>(random() % tokens);
        for (int i = 0; i < positions; i++) {
            inputs.push_back(text[i]);
            labels.push_back(i + 1 < half ? -100 : text[i + 1]);
        }
    }
    auto x = torch::from_blob(inputs.data(), {rows, positions}, torch::kInt64);
    auto y = torch::from_blob(labels.data(), {rows, positions}, torch::kInt64);
    auto net = std::make_shared<Network>();
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(3e-3));
    for (int epoch = 1; epoch <= 6; epoch++) {
        double sum = 0, correct = 0, counted = 0;
        for (torch::Tensor some : torch::randperm(rows).split(64)) {
            optimizer.zero_grad();
            auto outputs = net->forward(x.index({some})).flatten(0, 1);
            auto targets = y.index({some}).flatten();
            auto loss = torch::cross_entropy_loss(outputs, targets);
            loss.backward();
            optimizer.step();
            sum += loss.item<double>() * some.size(0) / rows;
            correct += outputs.argmax(1).eq(targets).sum().item<double>();
            counted += targets.ge(0).sum().item<double>();
        }
        std::printf("epoch %d  loss %.3f  accuracy %.3f\n", epoch, sum, correct / counted);
    }
    torch::save(net, "repeat.pt");
}
