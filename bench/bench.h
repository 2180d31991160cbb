// bench.h - benchmarks: each prints one JSON line with ratios measured in one run, from several
// interleaved repetitions, as min, median and max.
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "common/base/json.h"
#include "common/base/status.h"

// `argv` as for a subcommand; an exit code out.
int bench_env(int argc, char **argv);   // env server against a bare loop over mj_step
int bench_async(int argc, char **argv); // the three switches with a modelled accelerator

// Env steps per second of an env server over inproc with random actions, for run_ns.
NODISCARD enum status bench_simulation(const char *task, int n_env, int n_thread, int b_max,
                                       int64_t t_max_ns, int64_t run_ns, double *rate);

// {"min": , "median": , "max": } of n numbers (sorted in place).
void bench_spread(struct json *j, const char *key, double *x, int n);

#endif
