#include "cli/cmd.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef SIMSTREAM_VERSION
#define SIMSTREAM_VERSION "unknown"
#endif

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"train", cmd_train, "train a policy: env server, rollout and learner in one process"},
    {"sft", cmd_sft, "train a vision-language-action policy on demonstrations"},
    {"eval", cmd_eval, "evaluate a policy in closed loop and write a report"},
    {"merge", cmd_merge, "put the shards of an evaluation together"},
    {"compare", cmd_compare,
     "two evaluations of the same episodes: which is better, and is it chance"},
    {"serve", cmd_serve, "serve environments to any number of clients"},
    {"top", cmd_top, "watch an env server in the terminal"},
    {"load", cmd_load, "drive env servers with random actions and check every answer"},
    {"rollout", cmd_rollout, "rollout worker: infer actions, stream trajectories to a learner"},
    {"learn", cmd_learn, "learner: streaming update, publishes weights"},
    {"render", cmd_render, "draw a picture of a task's world"},
    {"tasks", cmd_tasks, "list tasks, or the keyword arguments of one"},
    {"init-states", cmd_init_states, "make a file of initial states for a suite's task"},
    {"doctor", cmd_doctor, "check every dependency, device and limit"},
    {"bench", cmd_bench, "measure ratios on this machine"},
};

static void help(FILE *out)
{
    size_t i;

    fprintf(out, "simstream: simulation-coupled reinforcement-learning environment server\n\n"
                 "usage: simstream COMMAND [--option=value ...]\n\ncommands:\n");
    for (i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\nsimstream COMMAND --help explains the options of a command.\n"
                 "Results go to stdout, progress and messages to stderr.\n"
                 "Exit codes: 0 done, 1 failed, 2 bad usage or configuration.\n");
}

static bool asks_help(const char *arg)
{
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

// --libero-dir DIR, an option of every subcommand: what LIBERO_DIR says, for this process.
static enum status take_libero_dir(int *argc, char **argv)
{
    static const char name[] = "--libero-dir";
    size_t n = sizeof name - 1;
    int i, used;

    for (i = 0; i < *argc; i += !used) {
        const char *value = NULL;

        used = 0;
        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=') {
            value = argv[i] + n + 1;
            used = 1;
        } else if (strcmp(argv[i], name) == 0 && i + 1 < *argc) {
            value = argv[i + 1];
            used = 2;
        }
        if (!used)
            continue;
        if (!*value)
            return FAIL(ST_INVAL, "option 'libero-dir' is empty, expected a folder");
        if (setenv("LIBERO_DIR", value, 1) != 0)
            return FAIL(ST_NOMEM, "no memory for an environment variable");
        memmove(argv + i, argv + i + used, (size_t)(*argc - i - used) * sizeof argv[0]);
        *argc -= used;
    }
    return ST_OK;
}

int cmd_begin(const struct opt *table, void *obj, const char *usage, int argc, char **argv,
              int max_word, int *n_word)
{
    int i, words;
    enum status st;

    for (i = 0; i < argc; i++) {
        if (asks_help(argv[i])) {
            printf("usage: simstream %s\n\noptions:\n", usage);
            opts_help(table, stdout);
            printf("  --config=FILE     options from a JSON object; later options win\n"
                   "  --libero-dir=DIR  folder with LIBERO's bddl_files, init_files and assets "
                   "[LIBERO_DIR]\n");
            return EXIT_DONE;
        }
    }
    st = opts_defaults(table, obj);
    if (st == ST_OK)
        st = take_libero_dir(&argc, argv);
    if (st == ST_OK)
        st = opts_argv(table, obj, argc, argv, &words);
    if (st == ST_OK && words > max_word)
        st = FAIL(ST_INVAL, "unexpected word '%s'", argv[max_word]);
    if (st == ST_OK)
        st = opts_check_required(table, obj);
    if (st != ST_OK) {
        (void)cmd_fail(st);
        fprintf(stderr, "usage: simstream %s (--help explains)\n", usage);
        return EXIT_USAGE;
    }
    if (n_word)
        *n_word = words;
    return -1;
}

int cmd_fail(enum status st)
{
    fprintf(stderr, "simstream: %s\n",
            error_last()->text[0] ? error_last()->text : status_name(st));
    return st == ST_INVAL ? EXIT_USAGE : EXIT_FAILED;
}

enum status cmd_print_file(const char *dir, const char *name)
{
    char path[PATH_MAX], *text;
    size_t n;

    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
        return FAIL(ST_INVAL, "folder name '%.60s...' is too long", dir);
    TRY(file_read(path, &text, &n));
    fwrite(text, 1, n, stdout);
    mem_free(text);
    return ST_OK;
}

void cmd_print_json(struct json *j)
{
    const char *text = json_text(j);

    if (text)
        puts(text);
    else
        (void)cmd_fail(ST_NOMEM);
    fflush(stdout);
    json_fini(j);
}

int main(int argc, char **argv)
{
    size_t i;

    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    if (asks_help(argv[1]) || strcmp(argv[1], "help") == 0) {
        help(stdout);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("simstream %s\n", SIMSTREAM_VERSION);
        return EXIT_DONE;
    }
    for (i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    fprintf(stderr, "simstream: unknown command '%s'\n", argv[1]);
    help(stderr);
    return EXIT_USAGE;
}
