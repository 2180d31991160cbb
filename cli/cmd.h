// cmd.h - the subcommands: argv without the program's and the subcommand's name; an exit code out.
//
// 0 done, 1 failed, 2 bad usage or configuration.
#ifndef CLI_CMD_H
#define CLI_CMD_H

#include "common/base/config.h"
#include "common/base/json.h"

#define EXIT_DONE   0
#define EXIT_FAILED 1
#define EXIT_USAGE  2

int cmd_serve(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_load(int argc, char **argv);
int cmd_rollout(int argc, char **argv);
int cmd_learn(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_sft(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_merge(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_init_states(int argc, char **argv);
int cmd_render(int argc, char **argv);
int cmd_tasks(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_bench(int argc, char **argv);

// The usual start of a subcommand: defaults, then the command line; --help prints `usage` and the
// table. Words that are not options are left at the front of argv, `*n_word` of them, at most
// `max_word`. Returns -1 to go on, else the exit code.
int cmd_begin(const struct opt *table, void *obj, const char *usage, int argc, char **argv,
              int max_word, int *n_word);

// Print the calling thread's last error as the program's failure; the exit code that fits it:
// EXIT_USAGE for ST_INVAL, else EXIT_FAILED.
int cmd_fail(enum status st);

// Print the file DIR/NAME on stdout.
NODISCARD enum status cmd_print_file(const char *dir, const char *name);

// Print a finished JSON value as one line on stdout and free the writer.
void cmd_print_json(struct json *j);

#endif
