// env.h - one env: episodes one after the other; a request is executed, then its row is written.
//
// The two halves are apart so that a row's place in a batch is taken only when the physics is done:
// a slow env never holds back a batch, and the observation is written once, where it leaves from.
// (Pictures are drawn in the second half: a batch that is due waits until those of its rows are.)
//
// What a thread needs to execute requests is its desk: a world and buffers that stay hot. An env
// itself is a few counters and a row of state (env.row), which the desk's world loads before a step
// and saves after env_write. An env of a task whose worlds cannot be kept in rows has a world of
// its own (env.own). The numbers are the same to the bit either way.
//
// Threads: an env belongs to one thread at a time; hand-over is the pool's. A struct env may lie in
// memory that several processes share, if it has no world of its own.
#ifndef ENVSERVER_ENV_H
#define ENVSERVER_ENV_H

#include "common/wire/envproto.h"
#include "envserver/pictures.h"
#include "envserver/randomize.h"

struct env {
    uint64_t seed, stream, episode; // identity of the present episode
    double episode_return;
    uint32_t elapsed;
    bool started;         // there was a reset
    bool running;         // an episode is open; false = a reset is due
    enum row_error lost;  // the world is gone: the next request ends the episode by this error
    struct row_head head; // of the answer to the present request, until env_write
    uint32_t skip;        // bit i: rows lack picture i of the scene

    const struct scene *scene; // borrowed
    void *row;                 // (sim_row_bytes) borrowed, NULL = the env has a world of its own
    struct sim *own;           // owned, NULL = it lives in `row`
    struct variant *variant;   // borrowed: its own model, NULL = the scene's; needs a row
};

struct desk {
    struct sim sim;          // for the envs that live in rows; zeroes if none does
    struct sim *at;          // the world of the env that is served
    double *reward;          // (SPEC_CHUNK_MAX)
    double *info;            // (n_info)
    double *final_obs;       // (n_obs)
    double *final_info;      // (n_info)
    struct painter *painter; // NULL = observations have no pictures
    uint8_t *final_pictures; // (picture_bytes)
    size_t picture_bytes;    // of all pictures of an observation
};

// by_rows: for envs that live in rows. pictures: NULL = none; borrowed. A desk with pictures
// belongs to the thread that makes it, until desk_fini.
NODISCARD enum status desk_init(struct desk *desk, const struct scene *scene, bool by_rows,
                                struct pictures *pictures);
// A desk of zeroes is fine.
void desk_fini(struct desk *desk);

// row: where the env lives between requests, NULL = make a world of its own.
NODISCARD enum status env_init(struct env *env, const struct scene *scene, uint32_t id, void *row);
// Make a world of its own for an env that has none: what env_init does without a row.
NODISCARD enum status env_make_world(struct env *env);
// An env of zeroes is fine.
void env_fini(struct env *env);

// Begin the episode of `row`.
void env_reset(struct env *env, struct desk *desk, const struct reset_row *row);

// Execute up to n_sub actions (n_sub, n_act) under `autoreset`. With next-step autoreset an env
// whose episode has ended starts the next one and ignores the actions. The caller has checked that
// the env may step.
void env_step(struct env *env, struct desk *desk, const float *actions, int n_sub,
              enum autoreset autoreset);

// In place of a request that cannot be executed: the episode ends by `error`. With same-step
// autoreset the next one is started if `restart`.
void env_abort(struct env *env, struct desk *desk, enum row_error error, enum autoreset autoreset,
               bool restart);

// Write the row of the request before (layout->stride bytes, all of them) and leave the desk. An
// observation that is not finite or that cannot be drawn ends the episode by an error; the
// observation of such a row is all zeros.
void env_write(struct env *env, struct desk *desk, const struct row_layout *layout, uint8_t *out);

#endif
