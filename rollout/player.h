// player.h - a rollout worker (worker.h) that plays whole episodes of a policy of action chunks, in
// groups that begin in the same state.
//
// Each decision is answered by `action_chunk` actions, sent as one request; the env server executes
// them until the episode ends. A finished episode becomes one EPISODE message. An env takes its
// next episode when the learner admits it; new weights are taken between two inference batches, so
// an episode may have decisions of several versions.
//
// Env e (global number) plays episode k (k = 0, 1, ...) as member e mod G of group
// k * (N / G) + e / G, with G and N, the envs of all workers, as the learner says: a function of
// (e, k) alone, however the envs are spread and whenever they finish. The members of a group start
// from the same (seed, stream, episode), which is the same state; the noise of an action is a
// function of (seed, group, member, decision).
//
// What the envs of a lost server played is lost.
//
// Threads: as rollout_run.
#ifndef ROLLOUT_PLAYER_H
#define ROLLOUT_PLAYER_H

#include "rollout/worker.h"

// As rollout_run; cfg->action_chunk is at least 1.
NODISCARD enum status player_run(const struct rollout_config *cfg, const atomic_bool *stop,
                                 struct rollout_progress *progress);

#endif
