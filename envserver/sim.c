#include "envserver/sim.h"

#include "common/base/mem.h"
#include "scenes/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum status sim_init(struct sim *sim, const struct scene *scene)
{
    struct engine_trap trap;
    mjData *volatile d = NULL;

    memset(sim, 0, sizeof *sim);
    sim->scene = scene;
    sim->scratch = mem_alloc(1, scene->task->scratch_bytes);
    sim->action = mem_alloc((size_t)scene->n_act, sizeof sim->action[0]);
    if (!sim->scratch || !sim->action) {
        sim_fini(sim);
        return ST_NOMEM;
    }
    if (ENGINE_TRY(&trap)) {
        d = mj_makeData(scene->model);
        engine_end(&trap);
    }
    if (!d) {
        sim_fini(sim);
        return FAIL(ST_NOMEM, "the engine cannot make a world of task '%s'", scene->task->name);
    }
    sim->d = d;
    return ST_OK;
}

void sim_fini(struct sim *sim)
{
    mj_deleteData(sim->d);
    mem_free(sim->scratch);
    mem_free(sim->action);
    memset(sim, 0, sizeof *sim);
}

// The engine repairs a bad state by resetting the world and moves a counter; that counter is the
// only trace. mj_resetData clears the counters, so any that is not zero is this episode's.
static enum row_error bad_state(const mjData *d)
{
    if (d->warning[mjWARN_BADQPOS].number > 0)
        return ROW_ERROR_QPOS;
    if (d->warning[mjWARN_BADQVEL].number > 0)
        return ROW_ERROR_QVEL;
    if (d->warning[mjWARN_BADQACC].number > 0)
        return ROW_ERROR_QACC;
    return ROW_ERROR_NONE;
}

static enum row_error engine_failed(struct sim *sim, const struct engine_trap *trap)
{
    snprintf(sim->error, sizeof sim->error, "%s", trap->text);
    return ROW_ERROR_ENGINE;
}

enum row_error sim_reset(struct sim *sim, struct rng *rng)
{
    struct engine_trap trap;

    if (!ENGINE_TRY(&trap))
        return engine_failed(sim, &trap);
    mj_resetData(sim->scene->model, sim->d);
    sim->scene->task->reset(sim->scene, sim->d, rng, sim->scratch);
    mj_forward(sim->scene->model, sim->d);
    engine_end(&trap);
    return bad_state(sim->d);
}

enum row_error sim_reset_to(struct sim *sim, const double *qpos, const double *qvel)
{
    struct engine_trap trap;

    if (!ENGINE_TRY(&trap))
        return engine_failed(sim, &trap);
    mj_resetData(sim->scene->model, sim->d);
    scene_set_state(sim->scene, sim->d, qpos, qvel);
    engine_end(&trap);
    return bad_state(sim->d);
}

enum row_error sim_step(struct sim *sim, const float *action, double *reward, bool *terminated,
                        bool *success, double *info)
{
    const struct scene *scene = sim->scene;
    int64_t i, skip = ((const struct scene_common *)scene->params)->frame_skip;
    struct engine_trap trap;
    enum row_error error;
    int k;

    for (k = 0; k < scene->n_act; k++)
        sim->action[k] = action[k];
    if (!ENGINE_TRY(&trap))
        return engine_failed(sim, &trap);
    scene->task->before(scene, sim->d, sim->scratch);
    mju_copy(sim->d->ctrl, sim->action, scene->n_act);
    for (i = 0; i < skip; i++)
        mj_step(scene->model, sim->d);
    mj_rnePostConstraint(scene->model, sim->d);
    engine_end(&trap);
    error = bad_state(sim->d);
    if (error != ROW_ERROR_NONE)
        return error;
    *terminated = false;
    *success = false;
    scene->task->after(scene, sim->d, sim->action, sim->scratch, reward, terminated, success, info);
    return isfinite(*reward) ? ROW_ERROR_NONE : ROW_ERROR_OUTPUT;
}

void sim_observe(const struct sim *sim, double *obs)
{
    sim->scene->task->observe(sim->scene, sim->d, obs);
}

void sim_reset_info(const struct sim *sim, double *info)
{
    int i;

    for (i = 0; i < sim->scene->n_info; i++)
        info[i] = NAN;
    if (sim->scene->task->reset_info)
        sim->scene->task->reset_info(sim->scene, sim->d, info);
}
