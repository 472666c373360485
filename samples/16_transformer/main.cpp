/* SPDX-License-Identifier: Apache-2.0 */
/* A small causal transformer in C++ on tokens of the program: it learns to repeat the first half of
 * each row. */
#include <cstdio>
#include <random>
#include <vector>
#include <yoke/yoke.hpp>

constexpr int tokens = 16, half = 8, positions = 2 * half - 1, rows = 1024, width = 32, heads = 4;

/* A layer of GPT-2. */
yoke::value block(yoke::value x, const std::string &name) {
    x = x + x.layer_norm(name + ".ln_1")
                .linear(name + ".attn.c_attn", 3 * width)
                .attention(heads, true)
                .linear(name + ".attn.c_proj", width);
    return x + x.layer_norm(name + ".ln_2")
                   .linear(name + ".mlp.c_fc", 4 * width)
                   .gelu()
                   .linear(name + ".mlp.c_proj", width);
}

yoke::model build() {
    yoke::model model("repeat", yoke::vector_shape(positions));
    yoke::value x = model.input().embedding("wte", tokens, width, 0.02);
    x = block(block(x.positional_embedding("wpe", positions, 0.02), "h.0"), "h.1");
    yoke::loss_options loss;
    loss.set_ignore_index = true; /* -100: the first half is not to be guessed */
    model.finish(x.layer_norm("ln_f").linear("head", tokens), loss);
    return model;
}

int main() {
    std::mt19937 random(1);
    std::vector<int> inputs, labels;
    for (int row = 0; row < rows; row++) {
        std::vector<int> text(2 * half);
        for (int i = 0; i < half; i++)
            text[i] = text[i + half] = static_cast<int>(random() % tokens);
        for (int i = 0; i < positions; i++) {
            inputs.push_back(text[i]);
            labels.push_back(i + 1 < half ? -100 : text[i + 1]);
        }
    }
    yoke::net_options options;
    options.batch = 64;
    options.optimizer = yoke::adamw(3e-3);
    yoke::net net(build(), options);
    for (int epoch = 1; epoch <= 6; epoch++) {
        const yoke::fit_result fit = net.fit(inputs, labels);
        std::printf("epoch %d  loss %.3f  accuracy %.3f\n", epoch, fit.loss, fit.accuracy);
    }
    net.save("repeat.safetensors");
}
