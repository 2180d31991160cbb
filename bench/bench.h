// bench.h - benchmarks: each prints one JSON line with ratios measured in one run, from several
// interleaved repetitions, as min, median and max.
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "common/base/json.h"
#include "common/base/status.h"

// `argv` as for a subcommand; an exit code out.
int bench_env(int argc, char **argv);      // env server against a bare loop over mj_step
int bench_libero(int argc, char **argv);   // LIBERO's tasks against a bare loop over mj_step
int bench_pictures(int argc, char **argv); // env steps with pictures in the observations
int bench_tail(int argc, char **argv);     // dynamic batches against a barrier, with long requests
int bench_memory(int argc, char **argv);   // envs in rows against one world per env
int bench_async(int argc, char **argv);    // the three switches with a modelled accelerator
int bench_render(int argc, char **argv);   // pictures by rays against MuJoCo's OpenGL renderer
int bench_vla(int argc, char **argv);      // a policy's training steps, packed against padded
int bench_episodes(int argc, char **argv); // the same on whole episodes of unequal length

// Env steps per second of an env server over inproc with random actions, for run_ns.
NODISCARD enum status bench_simulation(const char *task, int n_env, int n_thread, int b_max,
                                       int64_t t_max_ns, int64_t run_ns, double *rate);

// "  what  min / median / max" on stdout, of n numbers (sorted in place).
void bench_print_spread(const char *what, double *x, int n);

// Run `one` for each name of a list with commas between, which is cut; the first failure's exit
// code.
int bench_each(char *names, enum status (*one)(const void *options, const char *task),
               const void *options);

// {"min": , "median": , "max": } of n numbers (sorted in place).
void bench_spread(struct json *j, const char *key, double *x, int n);

#endif
