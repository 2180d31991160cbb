// thread.h - threads, the monotonic clock, and a team that runs one function on several threads.
//
// Times are int64_t nanoseconds of CLOCK_MONOTONIC; this is the only module that reads a clock.
#ifndef COMMON_BASE_THREAD_H
#define COMMON_BASE_THREAD_H

#include "common/base/status.h"

#include <pthread.h>
#include <stdint.h>

#define NS_PER_MS  1000000LL
#define NS_PER_S   1000000000LL
#define WAIT_NEVER INT64_MAX // no limit, for every `wait_ns`

int64_t clock_now_ns(void);

// Wall-clock seconds since 1970, for files that people read.
double clock_wall_s(void);

void clock_sleep_ns(int64_t ns);

// A condition variable on the monotonic clock. Embedded; init never fails on Linux.
void cond_init(pthread_cond_t *cond);

// Wait for a signal until `deadline_ns` (WAIT_NEVER = no limit). False when the time has passed.
bool cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mtx, int64_t deadline_ns);

// Deadline `wait_ns` from now, safe against overflow.
int64_t deadline_after(int64_t wait_ns);

// Start a thread named `name` (15 characters) with all signals blocked, so that only the main
// thread sees SIGINT and SIGTERM.
NODISCARD enum status thread_start(pthread_t *out, const char *name, void *(*fn)(void *),
                                   void *arg);

// CPUs this process may use: affinity mask and cgroup quota, at least 1.
int thread_cpus(void);

// A team of `n` threads (the caller's included) for fork-join work.
struct team;

typedef void (*team_fn)(void *arg, int i_thread, int n_thread);

NODISCARD enum status team_create(struct team **out, int n);

// Run fn(arg, i, n) for i = 0..n-1, one per thread, and wait for all. One caller at a time.
void team_run(struct team *team, team_fn fn, void *arg);

int team_size(const struct team *team);

// NULL is fine.
void team_destroy(struct team *team);

#endif
