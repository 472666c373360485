/* SPDX-License-Identifier: Apache-2.0 */
/* yoke completion: what makes a shell complete verbs, options and their words. */
#include <string.h>

#include "cli/cli.h"
#include "cli/completion_words.h"

const cli_verb completion_verb = {
    .name = "completion",
    .operands = "bash | zsh | fish",
    .summary = "print what completes this command line in a shell",
    .more = "  bash: eval \"$(yoke completion bash)\"            in ~/.bashrc\n"
            "  zsh:  eval \"$(yoke completion zsh)\"             in ~/.zshrc, behind compinit\n"
            "  fish: yoke completion fish | source             in ~/.config/fish/config.fish\n"};

/* Between single quotes; `escaped` are those characters which need a backslash there. A single
 * quote becomes `quote`. */
static void print_quoted(const char *text, const char *escaped, const char *quote) {
    for (; *text != '\0'; text++) {
        if (strchr(escaped, *text) != NULL) putchar('\\');
        if (*text == '\'')
            fputs(quote, stdout);
        else
            putchar(*text);
    }
}

/* bash. Without words of its own it offers names of files; there is a separate word for = in
 * --mode=dp. */

static const char bash_head[] =
    "_yoke() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb= i\n"
    "    local options=--help words=\n"
    "    compopt -o nosort 2>/dev/null\n"
    "    COMPREPLY=()\n"
    "    if [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
    "    if [[ $cur == = ]]; then cur=; fi\n";

static const char bash_tail[] = "    *)\n"
                                "        if [[ $cur == -* ]]; then words=$options; fi\n"
                                "        ;;\n"
                                "    esac\n"
                                "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
                                "}\n"
                                "complete -o bashdefault -o default -F _yoke yoke\n";

static void bash_verbs(void) {
    completion_words all = {0}, commands = {0};
    completion_of_verbs(false, &all);
    completion_of_verbs(true, &commands);
    printf("    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        if [[ -z $verb || ' %s ' == *\" $verb \"* ]] &&\n"
           "            [[ ' %s ' == *\" ${COMP_WORDS[i]} \"* ]]; then\n"
           "            verb=${COMP_WORDS[i]}\n"
           "        fi\n"
           "    done\n"
           "    case $verb in\n"
           "    '') words='%s' options='--help --version' ;;\n",
           commands.words, all.words, all.words);
}

static void bash_options(const cli_verb *verb) {
    completion_words operands;
    completion_of_operands(verb, &operands);
    printf("    %s) options='", verb->name);
    for (int i = 0; i < verb->option_count; i++)
        if (verb->options[i].help != NULL) printf("--%s ", verb->options[i].name);
    if (verb->operands == NULL)
        printf("--help' words=$options ;;\n");
    else
        printf("--help' words='%s' ;;\n", operands.words);
}

static void bash_value(const cli_verb *verb, const cli_option *option) {
    completion_words values;
    completion_of_option(option, &values);
    if (option->help == NULL || !completion_takes_value(option)) return;
    printf("    '%s --%s') ", verb->name, option->name);
    if (values.words[0] != '\0')
        printf("words='%s' ;;\n", values.words);
    else if (values.files)
        printf("return ;;\n");
    else
        printf("compopt +o default +o bashdefault 2>/dev/null; return ;;\n");
}

static void print_bash(void) {
    const cli_verb *verb;
    fputs(bash_head, stdout);
    bash_verbs();
    for (int i = 0; (verb = cli_verb_at(i)) != NULL; i++)
        bash_options(verb);
    printf("    esac\n    case \"$verb $prev\" in\n");
    for (int i = 0; (verb = cli_verb_at(i)) != NULL; i++)
        for (int j = 0; j < verb->option_count; j++)
            bash_value(verb, &verb->options[j]);
    fputs(bash_tail, stdout);
}

/* zsh. In its list of arguments a colon ends a part and brackets hold an explanation. */

static const char zsh_specials[] = ":[]\\";

static void zsh_action(const completion_words *values) {
    if (values->files && values->words[0] != '\0')
        printf("{compadd -- %s; _files}", values->words);
    else if (values->files)
        printf("_files");
    else if (values->words[0] != '\0')
        printf("(%s)", values->words);
    else
        printf(" "); /* an explanation without words */
}

static void zsh_option(const cli_option *option) {
    completion_words values;
    completion_of_option(option, &values);
    if (option->help == NULL) return;
    printf(" \\\n            '--%s%s[", option->name, completion_takes_value(option) ? "=" : "");
    print_quoted(option->help, zsh_specials, "'\\''");
    printf("]");
    if (completion_takes_value(option)) {
        printf(":");
        print_quoted(option->value, zsh_specials, "'\\''");
        printf(":");
        zsh_action(&values);
    }
    printf("'");
}

static void zsh_verb(const cli_verb *verb) {
    completion_words operands;
    completion_of_operands(verb, &operands);
    printf("    %s)\n        _arguments -S", verb->name);
    for (int i = 0; i < verb->option_count; i++)
        zsh_option(&verb->options[i]);
    printf(" \\\n            '--help[explain the options]'");
    if (verb->command)
        printf(" \\\n            '*:: :{_yoke_verb; ((CURRENT > 1)) || _files}'");
    else if (verb->operands != NULL) {
        printf(" \\\n            '*: :");
        zsh_action(&operands);
        printf("'");
    }
    printf("\n        ;;\n");
}

static void print_zsh(void) {
    const cli_verb *verb;
    printf("#compdef yoke\n\n_yoke_verb() {\n    local -a verbs=(\n");
    for (int i = 0; (verb = cli_verb_at(i)) != NULL; i++) {
        printf("        '%s:", verb->name);
        print_quoted(verb->summary, zsh_specials, "'\\''");
        printf("'\n");
    }
    printf("    )\n    if ((CURRENT == 1)); then\n        _describe verb verbs\n        return\n"
           "    fi\n    case $words[1] in\n");
    for (int i = 0; (verb = cli_verb_at(i)) != NULL; i++)
        zsh_verb(verb);
    printf("    *) _files ;;\n    esac\n}\n\n"
           "_yoke() {\n    _arguments '(-)--help[explain the verbs]' '(-)--version[print the "
           "version]' "
           "'*:: :_yoke_verb'\n}\n\n"
           "# As a file of $fpath it is the function itself.\n"
           "if [[ $funcstack[1] == _yoke ]]; then _yoke \"$@\"; else compdef _yoke yoke; fi\n");
}

/* fish. */

static void fish_text(const char *key, const char *text) {
    printf(" %s '", key);
    print_quoted(text, "\\'", "'");
    printf("'");
}

static void fish_verb(const cli_verb *verb) {
    completion_words operands;
    completion_of_operands(verb, &operands);
    printf("complete -c yoke -n __fish_use_subcommand -f -a %s", verb->name);
    fish_text("-d", verb->summary);
    printf("\ncomplete -c yoke -n '__fish_seen_subcommand_from %s' -l help "
           "-d 'explain the options'\n",
           verb->name);
    printf("complete -c yoke -n '__fish_seen_subcommand_from %s'%s", verb->name,
           operands.files ? "" : " -f");
    if (operands.words[0] != '\0') fish_text("-a", operands.words);
    printf("\n");
    for (int i = 0; i < verb->option_count; i++) {
        const cli_option *option = &verb->options[i];
        completion_words values;
        completion_of_option(option, &values);
        if (option->help == NULL) continue;
        printf("complete -c yoke -n '__fish_seen_subcommand_from %s' -l %s", verb->name,
               option->name);
        if (completion_takes_value(option)) printf(values.files ? " -r" : " -x");
        if (values.words[0] != '\0') fish_text("-a", values.words);
        fish_text("-d", option->help);
        printf("\n");
    }
}

static void print_fish(void) {
    const cli_verb *verb;
    printf("complete -c yoke -n __fish_use_subcommand -l help -d 'explain the verbs'\n"
           "complete -c yoke -n __fish_use_subcommand -l version -d 'print the version'\n");
    for (int i = 0; (verb = cli_verb_at(i)) != NULL; i++)
        fish_verb(verb);
}

int completion_main(int argc, char **argv) {
    static const struct {
        const char *shell;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    int operands = 0, code = cli_parse(&completion_verb, argc, argv, NULL, &operands);
    if (code >= 0) return code;
    if (operands != 1)
        return cli_usage_error("completion", "completion takes one shell: bash, zsh or fish");
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(argv[1], shells[i].shell) != 0) continue;
        shells[i].print();
        return 0;
    }
    return cli_usage_error("completion", "'%s' is not a shell it knows: bash, zsh or fish",
                           argv[1]);
}
