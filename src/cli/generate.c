/* SPDX-License-Identifier: Apache-2.0 */
/* yoke generate: continues texts, or writes what a text becomes, token after token. */
#include "cli/generate.h"

#include <string.h>

#include "cli/shared_options.h"

#define AT(field) CLI_FIELD(generate_flags, field)

static const cli_option options[] = {
    TRAINED_OPTION_WEIGHTS(AT(trained.weights)),
    {"model", "NAME", "of weights that do not name their model, as transformers' GPT-2",
     AT(trained.model)},
    {"tokenizer", "PATH",
     "what the tokens mean: tokenizer.json, or vocab.json beside merges.txt, or their folder; "
     "weights of text:FILE know their bytes",
     AT(tokenizer)},
    {"prompt", "TEXT",
     "the text to continue, as often as there are texts (a line break, or the end of a text), or "
     "the source of a pair",
     AT(prompts)},
    {"prompts", "FILE", "a prompt in each line", AT(prompts_file)},
    {"length", "N", "tokens to add (500)", AT(length), 1, 1 << 30},
    {"stop", "TOKEN",
     "a special token of the tokenizer that ends a text; none: go on (<|endoftext|>)", AT(stop)},
    {"temperature", "X",
     "divides the outputs: below 1 likelier tokens, 0 the likeliest (0.8; of pairs 0)",
     AT(temperature), 0, 100},
    {"top-k", "K", "draw among the K likeliest tokens; 0: among all (0)", AT(top_k), 0, 1 << 24},
    {"top-p", "P", "draw among the likeliest tokens that together have the share P (1)", AT(top_p),
     0, 1},
    CLI_OPTION_SEED(AT(seed), "the draws: the same seed, the same text"),
    {"batch", "N", "texts at a time (16, or as many as there are)", AT(rows), 1, 1 << 16},
    {"devices", "LIST", "auto, cpu, 2xcpu or cuda; several share the texts (auto)",
     AT(trained.devices)},
    CLI_OPTION_THREADS(AT(trained.threads)),
    CLI_OPTION_PRECISION(AT(trained.precision)),
    ALGORITHM_CACHE_OPTION_NO_CACHE(AT(trained.algorithm_cache.no_cache)),
    CLI_OPTION_JSON(AT(json)),
};

const cli_verb generate_verb = {
    .name = "generate",
    .summary = "continue or translate texts with saved weights",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more =
        "The weights are of a model of text: yoke train --model gpt2 --dataset text:FILE --save "
        "FILE;\n"
        "or of pairs of texts: yoke train --model transformer --dataset pairs:FILE --save FILE. "
        "It\n"
        "then reads --prompt as a SOURCE and writes its TARGET. Or they are GPT-2's of Hugging "
        "Face:\n"
        "  yoke generate --weights gpt2/model.safetensors --tokenizer gpt2/tokenizer.json \\\n"
        "    --model gpt2:layers=12,width=768,heads=12 --prompt \"Hello\"\n"};

static bool is_of_pairs(const trained *of) {
    return of->info.dataset != NULL && strcmp(of->info.dataset, "pairs") == 0;
}

static yoke_status generate(const generate_flags *flags, trained *of) {
    TRY(trained_open(of, &flags->trained));
    return is_of_pairs(of) ? generate_target(flags, of) : generate_texts(flags, of);
}

int generate_main(int argc, char **argv) {
    generate_flags flags = {.trained = {.devices = "auto"},
                            .length = 500,
                            .rows = 16,
                            .temperature = -1,
                            .top_p = 1,
                            .stop = "<|endoftext|>"};
    trained of = {0};
    int code = cli_parse(&generate_verb, argc, argv, &flags, NULL);
    if (code >= 0) return code;
    if (flags.trained.weights == NULL)
        return cli_usage_error("generate", "generate needs the weights: --weights FILE");
    if (flags.prompts.count > 0 && flags.prompts_file != NULL)
        return cli_usage_error("generate", "--prompt and --prompts: leave one out");
    yoke_status status = generate(&flags, &of);
    code = status == YOKE_OK ? 0 : cli_fail(status);
    trained_close(&of);
    return code;
}
