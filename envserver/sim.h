// sim.h - one guarded world: MuJoCo steps whose errors end the episode, not the process.
//
// Threads: a sim belongs to one thread at a time.
#ifndef ENVSERVER_SIM_H
#define ENVSERVER_SIM_H

#include "common/wire/spec.h"
#include "scenes/scene.h"

struct sim {
    const struct scene *scene; // borrowed
    mjData *d;                 // owned
    void *scratch;             // owned, (task->scratch_bytes)
    double *action;            // owned, (n_act) the action in double
    char error[256];           // text of the last engine error
};

NODISCARD enum status sim_init(struct sim *sim, const struct scene *scene);
// A sim of zeroes is fine.
void sim_fini(struct sim *sim);

// Initial state of an episode, drawn from `rng`. Not ROW_ERROR_NONE if the engine failed.
enum row_error sim_reset(struct sim *sim, struct rng *rng);

// Start from given qpos (nq) and qvel (nv).
enum row_error sim_reset_to(struct sim *sim, const double *qpos, const double *qvel);

// One env step: frame_skip physics steps with `action` (n_act) held. info is (n_info).
enum row_error sim_step(struct sim *sim, const float *action, double *reward, bool *terminated,
                        bool *success, double *info);

void sim_observe(const struct sim *sim, double *obs);     // (n_obs)
void sim_reset_info(const struct sim *sim, double *info); // (n_info), NaN where a reset gives none

#endif
