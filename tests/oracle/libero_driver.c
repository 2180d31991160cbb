// libero_driver DATA_ROOT: the C side of libero_oracle.py, which describes the commands. One
// command a line on stdin, one JSON object a line on stdout.
#include "common/base/mem.h"
#include "scenes/libero/libero.h"

#include "envserver/pictures.h"
#include "envserver/sim.h"

#include <mujoco/mujoco.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct driver {
    const char *root;
    char task[SCENE_NAME_MAX], robosuite[16], cameras[128], renderer[16];
    struct scene *scene;
    struct sim sim;
    struct pictures *pictures; // NULL = the task was made without cameras
    struct painter *painter;
    uint8_t *drawn;
    struct init_states init;
    struct scene_start start; // of the next reset
    double *numbers;          // of the present command
    int n_number;
};

#define NUMBERS_MAX 4096

static struct libero *shared(struct driver *d)
{
    return d->scene->data;
}

static void put_array(const char *key, const double *x, int n, const char *behind)
{
    int i;

    printf("\"%s\": [", key);
    for (i = 0; i < n; i++)
        printf("%s%.17g", i ? ", " : "", x[i]);
    printf("]%s", behind);
}

// ------------------------------------------------------------------ replies

static void put_concatenation(const double *obs, const struct scene *s)
{
    const struct scene_field *last = &s->fields[s->n_field - 1]; // policy_state
    int n_robot = 39;

    put_array("robot0_proprio-state", obs, n_robot, ", ");
    put_array("object-state", obs + n_robot, last->offset - n_robot, "");
}

static void put_state(struct driver *d)
{
    const struct scene *s = d->scene;
    const mjData *data = d->sim.world.d;
    double *obs = mem_alloc((size_t)s->n_obs, sizeof obs[0]);
    int i;

    sim_observe(&d->sim, obs);
    put_array("qpos", data->qpos, (int)s->model->nq, ", ");
    put_array("qvel", data->qvel, (int)s->model->nv, ", ");
    put_array("ctrl", data->ctrl, (int)s->model->nu, ", ");
    printf("\"obs\": {");
    for (i = 0; i + 1 < s->n_field; i++)
        put_array(s->fields[i].name, obs + s->fields[i].offset, s->fields[i].n, ", ");
    put_concatenation(obs, s);
    printf("}");
    mem_free(obs);
}

static void put_fixtures(struct driver *d)
{
    const struct binding *b = &shared(d)->binding;
    const mjModel *m = d->sim.world.model;
    int i;

    printf("\"fixtures\": {");
    for (i = b->n_movable; i < b->n_item; i++) {
        printf("%s\"%s\": {", i > b->n_movable ? ", " : "", b->items[i].item.name);
        put_array("pos", m->body_pos + 3 * b->items[i].body, 3, ", ");
        put_array("quat", m->body_quat + 4 * b->items[i].body, 4, "}");
    }
    printf("}, ");
}

// ------------------------------------------------------------------ commands

static enum status create(struct driver *d, struct scene **scene, bool visual)
{
    char kwargs[1200];

    snprintf(kwargs, sizeof kwargs,
             "{\"init_states\": \"random\", \"settle_steps\": 0, \"robosuite\": \"%s\", "
             "\"visual\": %s, \"data_dir\": \"%s\", \"cameras\": \"%s\", \"renderer\": \"%s\"}",
             d->robosuite, visual ? "true" : "false", d->root, d->cameras,
             d->renderer[0] ? d->renderer : "rays");
    return scene_create(scene, d->task, kwargs);
}

static void forget(struct driver *d)
{
    painter_destroy(d->painter);
    pictures_destroy(d->pictures);
    mem_free(d->drawn);
    d->painter = NULL;
    d->pictures = NULL;
    d->drawn = NULL;
    sim_fini(&d->sim);
    scene_destroy(d->scene);
    init_states_fini(&d->init);
    d->scene = NULL;
    memset(&d->start, 0, sizeof d->start);
}

static enum status do_task(struct driver *d, const char *args)
{
    struct spec spec = {0};
    int i;

    forget(d);
    d->cameras[0] = d->renderer[0] = '\0';
    if (sscanf(args, "%63s %15s %127s %15s", d->task, d->robosuite, d->cameras, d->renderer) < 2)
        return FAIL(ST_INVAL, "expected task SUITE/INDEX ROBOSUITE [CAMERAS RENDERER]");
    TRY(create(d, &d->scene, false));
    TRY(sim_init(&d->sim, d->scene));
    TRY(pictures_create(&d->pictures, d->scene, &spec));
    if (d->pictures) {
        TRY(painter_create(&d->painter, d->pictures));
        d->drawn = mem_alloc(1, spec.picture_bytes);
        if (!d->drawn)
            return ST_NOMEM;
    }
    TRY(init_states_load(&d->init, shared(d)->init_path));
    printf("{\"mujoco\": %d, \"nq\": %d, \"nv\": %d, \"goal\": [", mj_version(),
           (int)d->scene->model->nq, (int)d->scene->model->nv);
    for (i = 0; i < shared(d)->bddl.n_goal; i++) {
        const struct bddl_atom *a = &shared(d)->bddl.goal[i];

        printf("%s[\"%s\", \"%s\"", i ? ", " : "", a->predicate, a->arg[0]);
        if (a->n_arg > 1)
            printf(", \"%s\"", a->arg[1]);
        printf("]");
    }
    printf("]}\n");
    return ST_OK;
}

static enum status do_model(struct driver *d, const char *path)
{
    struct scene *visual;

    TRY(create(d, &visual, true));
    mj_saveModel(visual->model, path, NULL, 0);
    scene_destroy(visual);
    printf("{}\n");
    return ST_OK;
}

// env.seed() in the middle of an environment's life: the generator starts anew, but LIBERO's list
// of joint draws keeps the length that the model loads so far have given it.
static enum status do_seed(struct driver *d)
{
    struct reset_cursor *c = &((struct libero_world *)d->sim.world.scratch)->cursor;

    memset(&d->start, 0, sizeof d->start);
    d->start.seed = (uint64_t)d->numbers[0];
    np_seed(&c->rng, (uint32_t)d->start.seed);
    c->seed = (uint32_t)d->start.seed;
    c->next = 0;
    c->loads = c->started ? c->loads : 1;
    c->started = true;
    printf("{}\n");
    return ST_OK;
}

// The model that is stepped, without what is only seen.
static enum status do_physics(struct driver *d, const char *path)
{
    mj_saveModel(d->scene->model, path, NULL, 0);
    printf("{}\n");
    return ST_OK;
}

static enum status do_reset(struct driver *d)
{
    const struct libero_world *lw = d->sim.world.scratch;

    if (sim_reset(&d->sim, &d->start) != ROW_ERROR_NONE)
        return FAIL(ST_ENGINE, "reset: %s", d->sim.world.error);
    d->start.episode++;
    printf("{");
    put_fixtures(d);
    put_array("goal_pos", lw->osc.goal_x, 3, ", ");
    put_array("goal_ori", lw->osc.goal_R, 9, ", ");
    put_state(d);
    printf("}\n");
    return ST_OK;
}

static enum status do_set(struct driver *d, const double *row, int n)
{
    if (n != 1 + (int)d->scene->model->nq + (int)d->scene->model->nv)
        return FAIL(ST_INVAL, "a state of %d numbers", n);
    libero_set_state(&d->sim.world, row);
    printf("{");
    put_state(d);
    printf("}\n");
    return ST_OK;
}

static enum status do_init(struct driver *d)
{
    int row = d->n_number == 1 ? (int)d->numbers[0] : -1;

    if (row < 0 || row >= d->init.n_row)
        return FAIL(ST_INVAL, "expected a row of 0..%d", d->init.n_row - 1);
    return do_set(d, d->init.rows + (size_t)row * (size_t)d->init.n_col, d->init.n_col);
}

static enum status do_step(struct driver *d)
{
    bool done;

    if (d->n_number != LIBERO_ACTION)
        return FAIL(ST_INVAL, "expected 7 numbers");
    done = libero_step(&d->sim.world, d->numbers);
    printf("{");
    put_state(d);
    printf(", \"reward\": %s, \"done\": %s}\n", done ? "1.0" : "0.0", done ? "true" : "false");
    return ST_OK;
}

static enum status do_qpos(struct driver *d)
{
    struct world *w = &d->sim.world;

    if (d->n_number != (int)w->model->nq)
        return FAIL(ST_INVAL, "expected %d numbers", (int)w->model->nq);
    mju_copy(w->d->qpos, d->numbers, d->n_number);
    printf("{}\n");
    return ST_OK;
}

static enum status do_state(struct driver *d)
{
    struct world *w = &d->sim.world;
    const struct goal *g = &shared(d)->goal;
    int i;

    if (d->n_number != (int)w->model->nq)
        return FAIL(ST_INVAL, "expected %d numbers", (int)w->model->nq);
    mju_copy(w->d->qpos, d->numbers, d->n_number);
    mj_forward(w->model, w->d);
    printf("{\"atoms\": [");
    for (i = 0; i < g->n; i++)
        printf("%s%s", i ? ", " : "",
               predicate_holds(&g->atoms[i], &shared(d)->binding, w->model, w->d) ? "true"
                                                                                  : "false");
    printf("], \"success\": %s}\n",
           goal_holds(g, &shared(d)->binding, w->model, w->d) ? "true" : "false");
    return ST_OK;
}

static enum status do_draw(struct driver *d, const char *path)
{
    size_t n;
    FILE *f;

    if (!d->pictures)
        return FAIL(ST_INVAL, "the task was made without cameras");
    n = pictures_bytes(d->pictures);
    TRY(painter_draw(d->painter, &d->sim.world, 0, d->drawn));
    f = fopen(path, "wb");
    if (!f)
        return FAIL(ST_IO, "cannot write '%s'", path);
    if (fwrite(d->drawn, 1, n, f) != n || fclose(f) != 0)
        return FAIL(ST_IO, "cannot write '%s'", path);
    printf("{}\n");
    return ST_OK;
}

static void read_numbers(struct driver *d, const char *text)
{
    char *end;

    for (d->n_number = 0; d->n_number < NUMBERS_MAX; text = end) {
        d->numbers[d->n_number] = strtod(text, &end);
        if (end == text)
            return;
        d->n_number++;
    }
}

static enum status command(struct driver *d, char *line)
{
    char *args = strchr(line, ' ');

    if (args)
        *args++ = '\0';
    else
        args = line + strlen(line);
    if (strcmp(line, "task") == 0)
        return do_task(d, args);
    if (!d->scene)
        return FAIL(ST_INVAL, "no task yet");
    if (strcmp(line, "model") == 0)
        return do_model(d, args);
    if (strcmp(line, "physics") == 0)
        return do_physics(d, args);
    if (strcmp(line, "draw") == 0)
        return do_draw(d, args);
    read_numbers(d, args);
    if (strcmp(line, "seed") == 0)
        return do_seed(d);
    if (strcmp(line, "reset") == 0)
        return do_reset(d);
    if (strcmp(line, "init") == 0)
        return do_init(d);
    if (strcmp(line, "set") == 0)
        return do_set(d, d->numbers, d->n_number);
    if (strcmp(line, "step") == 0)
        return do_step(d);
    if (strcmp(line, "qpos") == 0)
        return do_qpos(d);
    if (strcmp(line, "state") == 0)
        return do_state(d);
    return FAIL(ST_INVAL, "unknown command '%s'", line);
}

int main(int argc, char **argv)
{
    struct driver d = {.root = argc > 1 ? argv[1] : ""};
    char *line = NULL;
    size_t size = 0;
    ssize_t n;

    d.numbers = mem_alloc(NUMBERS_MAX, sizeof d.numbers[0]);
    if (!d.numbers)
        return 1;
    while ((n = getline(&line, &size, stdin)) > 0) {
        if (line[n - 1] == '\n')
            line[n - 1] = '\0';
        if (command(&d, line) != ST_OK)
            printf("{\"error\": \"%s\"}\n", error_last()->text);
        fflush(stdout);
    }
    forget(&d);
    mem_free(d.numbers);
    free(line);
    return 0;
}
