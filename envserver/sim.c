#include "envserver/sim.h"

#include "common/base/mem.h"
#include "scenes/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

mjData *sim_make_data(const mjModel *m)
{
    struct engine_trap trap;
    mjData *volatile d = NULL;

    if (ENGINE_TRY(&trap)) {
        d = mj_makeData(m);
        engine_end(&trap);
    }
    return d;
}

enum status sim_init(struct sim *sim, const struct scene *scene)
{
    struct world *w = &sim->world;
    enum status st = ST_OK;

    memset(sim, 0, sizeof *sim);
    w->scratch = mem_alloc(1, scene->task->scratch_bytes);
    sim->action = mem_alloc((size_t)scene->n_act, sizeof sim->action[0]);
    if (!w->scratch || !sim->action) {
        sim_fini(sim);
        return ST_NOMEM;
    }
    w->d = sim_make_data(scene->model);
    if (!w->d) {
        sim_fini(sim);
        return FAIL(ST_NOMEM, "the engine cannot make a world of task '%s'", scene->name);
    }
    w->scene = scene;
    w->model = scene->model;
    if (scene->driver->open)
        st = scene->driver->open(w);
    if (st != ST_OK)
        sim_fini(sim);
    return st;
}

void sim_fini(struct sim *sim)
{
    struct world *w = &sim->world;

    if (w->scene && w->scene->driver->close)
        w->scene->driver->close(w);
    mj_deleteData(w->d);
    mem_free(w->scratch);
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
    snprintf(sim->world.error, sizeof sim->world.error, "%s", trap->text);
    sim->broken = true;
    return ROW_ERROR_ENGINE;
}

static void mark(struct world *w)
{
    if (w->scene->driver->mark)
        w->scene->driver->mark(w);
}

enum row_error sim_reset(struct sim *sim, const struct scene_start *start)
{
    struct world *w = &sim->world;
    struct engine_trap trap;

    if (!ENGINE_TRY(&trap))
        return engine_failed(sim, &trap);
    mj_resetData(w->model, w->d);
    sim->broken = false;
    w->scene->driver->start(w, start);
    mark(w);
    engine_end(&trap);
    return bad_state(w->d);
}

enum row_error sim_reset_to(struct sim *sim, const double *qpos, const double *qvel)
{
    struct world *w = &sim->world;
    struct engine_trap trap;

    if (!ENGINE_TRY(&trap))
        return engine_failed(sim, &trap);
    mj_resetData(w->model, w->d);
    sim->broken = false;
    scene_set_state(w->scene, w->d, qpos, qvel);
    mark(w);
    engine_end(&trap);
    return bad_state(w->d);
}

enum row_error sim_step(struct sim *sim, const float *action, struct scene_outcome *out,
                        double *info)
{
    struct world *w = &sim->world;
    struct engine_trap trap;
    enum row_error error;
    int k;

    for (k = 0; k < w->scene->n_act; k++)
        sim->action[k] = action[k];
    for (k = 0; k < w->scene->n_info; k++)
        info[k] = NAN;
    memset(out, 0, sizeof *out);
    if (!ENGINE_TRY(&trap))
        return engine_failed(sim, &trap);
    w->scene->driver->step(w, sim->action, out, info);
    mark(w);
    engine_end(&trap);
    error = bad_state(w->d);
    if (error != ROW_ERROR_NONE)
        return error;
    return isfinite(out->reward) ? ROW_ERROR_NONE : ROW_ERROR_OUTPUT;
}

void sim_observe(const struct sim *sim, double *obs)
{
    sim->world.scene->driver->observe(&sim->world, obs);
}

void sim_reset_info(const struct sim *sim, double *info)
{
    const struct world *w = &sim->world;
    int i;

    for (i = 0; i < w->scene->n_info; i++)
        info[i] = NAN;
    if (w->scene->driver->start_info)
        w->scene->driver->start_info(w, info);
}

// ------------------------------------------------------------------ rows

static size_t words(size_t bytes)
{
    return (bytes + 7) / 8;
}

bool sim_by_rows(const struct scene *scene)
{
    const mjModel *m = scene->model;

    // a plug-in may keep state that no row holds; a sleeping tree is known to its mjData only
    if (m->nplugin > 0)
        return false;
#if mjVERSION_HEADER >= 4000000
    if (m->opt.enableflags & (mjENBL_SLEEP | mjENBL_IPC))
        return false;
#endif
    return scene->driver->by_rows;
}

bool sim_can_save(const struct scene *scene)
{
    return sim_by_rows(scene) || scene->driver->save;
}

// Of a row, behind the engine's state.
static size_t kept_bytes(const struct scene *scene)
{
    return scene->driver->save ? scene->driver->kept_bytes(scene) : scene->task->scratch_bytes;
}

static size_t state_words(const struct scene *scene)
{
    return (size_t)mj_stateSize(scene->model, mjSTATE_INTEGRATION);
}

size_t sim_row_bytes(const struct scene *scene)
{
    return 8 * (state_words(scene) + words(kept_bytes(scene)));
}

void sim_save(const struct sim *sim, void *row)
{
    const struct world *w = &sim->world;
    double *kept = (double *)row + state_words(w->scene);

    mj_getState(w->model, w->d, row, mjSTATE_INTEGRATION);
    if (w->scene->driver->save)
        w->scene->driver->save(w, kept);
    else
        memcpy(kept, w->scratch, w->scene->task->scratch_bytes);
}

void sim_load(struct sim *sim, const void *row)
{
    struct world *w = &sim->world;
    const double *kept = (const double *)row + state_words(w->scene);

    if (sim->broken)
        mj_resetData(w->model, w->d);
    sim->broken = false;
    memset(w->d->warning, 0, sizeof w->d->warning); // those of another env
    mj_setState(w->model, w->d, row, mjSTATE_INTEGRATION);
    if (w->scene->driver->load)
        w->scene->driver->load(w, kept);
    else
        memcpy(w->scratch, kept, w->scene->task->scratch_bytes);
}

enum status sim_check_row(const struct scene *scene, const void *row)
{
    if (!scene->driver->check)
        return ST_OK; // numbers, of which the engine calls some bad
    return scene->driver->check(scene, (const double *)row + state_words(scene));
}
