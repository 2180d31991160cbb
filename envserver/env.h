// env.h - one env: episodes one after the other; a request is executed, then its row is written.
//
// The two halves are apart so that a row's place in a batch is taken only when the physics is done:
// a slow env never holds back a batch, and the observation is written once, where it leaves from.
//
// Threads: an env belongs to one thread at a time; hand-over is the pool's.
#ifndef ENVSERVER_ENV_H
#define ENVSERVER_ENV_H

#include "common/wire/envproto.h"
#include "envserver/sim.h"

struct env {
    struct sim sim;
    uint64_t seed, stream, episode; // identity of the present episode
    double episode_return;
    uint32_t elapsed;
    bool started; // there was a reset
    bool running; // an episode is open; false = a reset is due

    // The answer to the present request, until env_write.
    struct row_head head;
    double *reward;     // (SPEC_CHUNK_MAX)
    double *info;       // (n_info)
    double *final_obs;  // (n_obs)
    double *final_info; // (n_info)
};

NODISCARD enum status env_init(struct env *env, const struct scene *scene, uint32_t id);
// An env of zeroes is fine.
void env_fini(struct env *env);

// Begin the episode of `row`.
void env_reset(struct env *env, const struct reset_row *row);

// Execute up to n_sub actions (n_sub, n_act) under `autoreset`. With next-step autoreset an env
// whose episode has ended starts the next one and ignores the actions. The caller has checked that
// the env may step.
void env_step(struct env *env, const float *actions, int n_sub, enum autoreset autoreset);

// Write the row of the request before (layout->stride bytes, all of them). An observation that is
// not finite ends the episode by an error; the observation of such a row is all zeros.
void env_write(struct env *env, const struct row_layout *layout, uint8_t *out);

#endif
