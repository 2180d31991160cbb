// scheduler.h - which envs are inferred when: by B_max/T_max or by a barrier over all of them.
// Pure: no clock, no lock.
//
// An env is running (the env server has its action), ready (its observation waits for inference) or
// parked (it has used up what the learner admits). Ready envs leave in the order of arrival, or,
// with the barrier, all together in the order of their numbers.
#ifndef ROLLOUT_SCHEDULER_H
#define ROLLOUT_SCHEDULER_H

#include "common/base/batcher.h"

struct scheduler;

NODISCARD enum status scheduler_create(struct scheduler **out, int n_env, bool barrier, int b_max,
                                       int64_t t_max_ns);
void scheduler_destroy(struct scheduler *s); // NULL is fine

// The observation of a running env has arrived. `used` is how many decisions it has had.
void scheduler_arrive(struct scheduler *s, int env, uint64_t used, int64_t now_ns);

// Decisions that each env may have had in all; wakes parked envs.
void scheduler_admit(struct scheduler *s, uint64_t limit, int64_t now_ns);

// An env that will not arrive (its server is gone).
void scheduler_remove(struct scheduler *s, int env);

// A removed env is running again.
void scheduler_return(struct scheduler *s, int env);

// The envs to infer now, into env (n_env): how many, 0 = none yet. They are running afterwards.
int scheduler_take(struct scheduler *s, int *env, int64_t now_ns);

// Nanoseconds until scheduler_take could give more without a new arrival; INT64_MAX = never.
int64_t scheduler_due_ns(const struct scheduler *s, int64_t now_ns);

#endif
