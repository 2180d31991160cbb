#include "cli/cmd.h"
#include "cli/kwargs.h"

#include "common/base/mem.h"
#include "common/base/progress.h"
#include "envserver/sim.h"
#include "scenes/libero/libero.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

struct init_states_options {
    char task[OPT_STR_MAX], out[OPT_STR_MAX], kwargs[OPT_STR_MAX];
    int64_t count, seed, settle;
    double arm_noise, quiet;
    bool json;
};

#define AT(field) offsetof(struct init_states_options, field)

static const struct opt table[] = {
    {"task", OPT_STR, AT(task), 0, 0, NULL, "task of a suite, such as tabletop/0", NULL},
    {"out", OPT_STR, AT(out), 0, 0, NULL, "file to write, such as NAME.pruned_init", NULL},
    {"count", OPT_INT, AT(count), 1, 10000, "50", "states", NULL},
    {"seed", OPT_INT, AT(seed), 0, 4e9, "0", "seed of the random resets", NULL},
    {"arm-noise", OPT_REAL, AT(arm_noise), 0, 1, "0.02",
     "standard deviation of the arm's joint angles, rad", NULL},
    {"settle", OPT_INT, AT(settle), 0, 1000, "40",
     "env steps that the objects have to come to rest", NULL},
    {"quiet", OPT_REAL, AT(quiet), 0, 10, "0.05",
     "a state is left out if an object is faster than this then, m/s or rad/s", NULL},
    {"kwargs", OPT_STR, AT(kwargs), 0, 0, "", "more keyword arguments of the task, a JSON object",
     NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "print JSON", NULL},
    {0},
};

struct maker {
    const struct init_states_options *o;
    struct scene *scene;
    struct sim sim;
    struct init_states states;
    int64_t loud, solved; // left out
};

static enum status open_task(struct maker *m)
{
    const struct init_states_options *o = m->o;
    char kwargs[OPT_STR_MAX], own[128];
    int member;
    const struct scene_task *task = scene_task_find(o->task, &member);

    if (task && !task->members)
        return FAIL(ST_INVAL, "task '%s' is none of a suite, so it has no init states", o->task);
    snprintf(kwargs, sizeof kwargs, "%s", o->kwargs);
    snprintf(own, sizeof own,
             "\"init_states\": \"random\", \"settle_steps\": %lld, \"arm_noise\": %.17g",
             (long long)o->settle, o->arm_noise);
    TRY(kwargs_add(kwargs, own));
    TRY(scene_create(&m->scene, o->task, kwargs));
    return sim_init(&m->sim, m->scene);
}

static bool at_rest(const struct maker *m)
{
    const mjModel *model = m->sim.world.model;
    int i;

    for (i = 9; i < model->nv; i++) // behind arm and gripper
        if (!(fabs(m->sim.world.d->qvel[i]) <= m->o->quiet))
            return false;
    return true;
}

// The objects where they came to rest, the arm as the reset had put it, everything at rest.
static void take(struct maker *m, double *row)
{
    const struct libero_world *lw = m->sim.world.scratch;
    int nq = (int)m->scene->model->nq;

    memset(row, 0, (size_t)m->states.n_col * sizeof row[0]);
    memcpy(row + 1, m->sim.world.d->qpos, (size_t)nq * sizeof row[0]);
    libero_start_arm(m->scene, &lw->places, row + 1);
}

static enum status make(struct maker *m)
{
    const struct init_states_options *o = m->o;
    struct scene_start start = {(uint64_t)o->seed, 0, 0};
    int64_t tries = 20 * o->count + 20;

    m->states.n_col = 1 + (int)m->scene->model->nq + (int)m->scene->model->nv;
    m->states.rows =
        mem_alloc((size_t)o->count * (size_t)m->states.n_col, sizeof m->states.rows[0]);
    if (!m->states.rows)
        return ST_NOMEM;
    for (; m->states.n_row < o->count; start.episode++) {
        if ((int64_t)start.episode == tries)
            return FAIL(ST_INVAL,
                        "task '%s': %d of %lld resets gave a state (%lld not at rest, "
                        "%lld solved already)",
                        o->task, m->states.n_row, (long long)tries, (long long)m->loud,
                        (long long)m->solved);
        if (sim_reset(&m->sim, &start) != ROW_ERROR_NONE)
            return FAIL(ST_ENGINE, "task '%s': reset %llu: %s", o->task,
                        (unsigned long long)start.episode, m->sim.world.error);
        progress_draw(false, "%d of %lld states", m->states.n_row, (long long)o->count);
        if (!at_rest(m)) {
            m->loud++;
            continue;
        }
        if (((const struct libero_world *)m->sim.world.scratch)->success) {
            m->solved++;
            continue;
        }
        take(m, m->states.rows + (size_t)m->states.n_row++ * (size_t)m->states.n_col);
    }
    return init_states_save(&m->states, o->out);
}

static void print_result(const struct maker *m)
{
    struct json j;

    if (!m->o->json) {
        printf("%s: %d states of %d numbers; left out: %lld not at rest, %lld solved already\n",
               m->o->out, m->states.n_row, m->states.n_col, (long long)m->loud,
               (long long)m->solved);
        return;
    }
    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "task", m->scene->name);
    json_str(&j, "out", m->o->out);
    json_int(&j, "states", m->states.n_row);
    json_int(&j, "numbers", m->states.n_col);
    json_int(&j, "not_at_rest", m->loud);
    json_int(&j, "solved", m->solved);
    json_close(&j, '}');
    cmd_print_json(&j);
}

int cmd_init_states(int argc, char **argv)
{
    struct init_states_options o;
    struct maker m = {.o = &o};
    enum status st;
    int code = cmd_begin(table, &o, "init-states --task=NAME --out=FILE [--option=value ...]", argc,
                         argv, 0, NULL);

    if (code >= 0)
        return code;
    st = open_task(&m);
    if (st == ST_OK)
        st = make(&m);
    progress_end();
    if (st == ST_OK)
        print_result(&m);
    sim_fini(&m.sim);
    scene_destroy(m.scene);
    init_states_fini(&m.states);
    return st == ST_OK ? EXIT_DONE : cmd_fail(st);
}
