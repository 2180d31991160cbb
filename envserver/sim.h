// sim.h - one guarded world: MuJoCo steps whose errors end the episode, not the process.
//
// Many envs can take turns in one sim: sim_save puts a world into a row of sim_row_bytes (0.5 to
// 1.6 KB for the Gymnasium tasks, 3 to 8 KB for LIBERO's), sim_load puts it back, and the next
// step gives the same bits as if the world had stayed. Whether a task allows that, sim_by_rows
// says.
//
// Threads: a sim belongs to one thread at a time.
#ifndef ENVSERVER_SIM_H
#define ENVSERVER_SIM_H

#include "common/wire/spec.h"
#include "scenes/scene.h"

struct sim {
    struct world world; // world.error: text of the last engine error
    double *action;     // owned, (n_act) the action in double
    bool broken;        // an engine error left d in the middle of something
};

NODISCARD enum status sim_init(struct sim *sim, const struct scene *scene);
// A sim of zeroes is fine.
void sim_fini(struct sim *sim);

// Initial state of an episode. Not ROW_ERROR_NONE if the engine failed.
enum row_error sim_reset(struct sim *sim, const struct scene_start *start);

// Start from given qpos (nq) and qvel (nv).
enum row_error sim_reset_to(struct sim *sim, const double *qpos, const double *qvel);

// One env step with `action` (n_act). info is (n_info), NaN where an error left nothing.
enum row_error sim_step(struct sim *sim, const float *action, struct scene_outcome *out,
                        double *info);

// An mjData of the model; NULL if the engine cannot make one.
mjData *sim_make_data(const mjModel *m);

void sim_observe(const struct sim *sim, double *obs);     // (n_obs)
void sim_reset_info(const struct sim *sim, double *info); // (n_info), NaN where a reset gives none

// May worlds of this task share one sim, each in a row of its own between two requests?
bool sim_by_rows(const struct scene *scene);

// Can a world of this task be saved at all?
bool sim_can_save(const struct scene *scene);

// Bytes of a saved world, a multiple of 8.
size_t sim_row_bytes(const struct scene *scene);

// row is (sim_row_bytes), aligned to 8. A row of zeroes is no world.
void sim_save(const struct sim *sim, void *row);
void sim_load(struct sim *sim, const void *row);

// Can a row that comes from outside be loaded? ST_PROTO says what is wrong with it.
NODISCARD enum status sim_check_row(const struct scene *scene, const void *row);

#endif
