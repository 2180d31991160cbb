// fleet.h - the envs of all env servers of a rollout worker under one numbering, 0..n_env-1: in the
// order of the servers, and of the numbers that each server gives them.
//
// Threads: one at a time.
#ifndef ROLLOUT_FLEET_H
#define ROLLOUT_FLEET_H

#include "rollout/intake.h"

struct fleet;

// Number the envs that the intake's servers lease. ST_INVAL if their tasks differ.
NODISCARD enum status fleet_create(struct fleet **out, struct intake *in);
void fleet_destroy(struct fleet *f); // NULL is fine

int fleet_n_env(const struct fleet *f);
int fleet_n_left(const struct fleet *f); // without those of lost servers
const struct spec *fleet_spec(const struct fleet *f);

// The env of a server's row; ST_PROTO if it is not ours.
NODISCARD enum status fleet_find(const struct fleet *f, int source, uint32_t env, int *out);

// Where an env lives: its server, and its number there. ST_CLOSED if that server is lost.
NODISCARD enum status fleet_locate(const struct fleet *f, int env, int *source, uint32_t *id);

// Start all episodes: those of (seed, stream_first + env, episode[env]); episode is (n_env).
NODISCARD enum status fleet_reset(struct fleet *f, uint64_t seed, uint64_t stream_first,
                                  const uint64_t *episode);

// Start the episodes of rows[i] (i < n) in the envs env[i]; the rows' env fields are filled in.
NODISCARD enum status fleet_reset_some(struct fleet *f, const int *env, struct reset_row *rows,
                                       int n);

// The action as an env executes it: within the task's bounds. Arrays are (n_act).
void fleet_clip(const struct fleet *f, const float *action, float *out);

// Send n actions (n, n_act), clipped already, to the envs in `env` (n). Those for a server that is
// gone are swallowed, since its reader says so.
NODISCARD enum status fleet_step(struct fleet *f, const int *env, const float *action, int n);

// The same with chunks of actions (n, chunk, n_act); `chunk` is the k_max of the servers' HELLO.
NODISCARD enum status fleet_step_chunks(struct fleet *f, const int *env, const float *action,
                                        int chunk, int n);

// A server is gone: its envs into env (n_env), ascending; how many. 0 if it was lost already, and
// its return was refused.
int fleet_lose(struct fleet *f, int source, int *env);

// A server is back and its connection was adopted: its envs, under the numbers that they had, into
// env (n_env), *n of them; they need a reset. ST_INVAL if it serves something else now.
NODISCARD enum status fleet_return(struct fleet *f, int source, int *env, int *n);

#endif
