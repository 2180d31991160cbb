// Steps one world for gym_oracle.py, which steps Gymnasium beside it and compares.
//
//   gym_driver TASK KWARGS
//
// Binary, native byte order, doubles unless said. Out, once: int32 engine's version, nq, nv, n_obs,
// n_act, n_info, n_key, then a line a key: "name n on_reset". In: 'R' qpos (nq) qvel (nv), or 'S'
// action (n_act) float32. Out for each: obs (n_obs), reward, uint32 flags (enum row_flag), info
// (n_info).
#include "common/wire/spec.h"
#include "envserver/env.h"

#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

struct driver {
    struct scene *scene;
    struct env env;
    struct desk desk;
    struct pictures *pictures; // NULL without the keyword `cameras`
    void *state;
    struct row_layout layout;
    uint8_t *row;
    double *qpos, *qvel;
    float action[SPEC_ACT_MAX];
};

static enum status driver_init(struct driver *d, const char *task, const char *kwargs)
{
    struct spec spec = {0};

    TRY(scene_create(&d->scene, task, kwargs));
    d->state = mem_alloc(1, sim_row_bytes(d->scene));
    if (!d->state)
        return ST_NOMEM;
    TRY(pictures_create(&d->pictures, d->scene, &spec));
    TRY(desk_init(&d->desk, d->scene, true, d->pictures));
    TRY(env_init(&d->env, d->scene, 0, d->state));
    spec.n_obs = d->scene->n_obs;
    spec.n_info = d->scene->n_info;
    row_layout_make(&d->layout, &spec, 1, AUTORESET_DISABLED);
    d->row = mem_alloc(1, d->layout.stride);
    d->qpos = mem_alloc((size_t)d->scene->model->nq, sizeof(double));
    d->qvel = mem_alloc((size_t)d->scene->model->nv, sizeof(double));
    return d->row && d->qpos && d->qvel ? ST_OK : ST_NOMEM;
}

static void announce(const struct driver *d)
{
    const struct scene *s = d->scene;
    int32_t head[] = {
        mj_version(), (int32_t)s->model->nq, (int32_t)s->model->nv, s->n_obs, s->n_act,
        s->n_info,    s->n_info_key};
    int i;

    fwrite(head, sizeof head, 1, stdout);
    for (i = 0; i < s->n_info_key; i++)
        printf("%s %d %d\n", s->info[i].name, s->info[i].n, s->info[i].on_reset);
    fflush(stdout);
}

// Start an episode as the server does, then put the world into Gymnasium's initial state.
static bool reset(struct driver *d)
{
    static const struct reset_row first;
    size_t nq = (size_t)d->scene->model->nq, nv = (size_t)d->scene->model->nv;

    if (fread(d->qpos, sizeof(double), nq, stdin) != nq ||
        fread(d->qvel, sizeof(double), nv, stdin) != nv)
        return false;
    env_reset(&d->env, &d->desk, &first);
    if (sim_reset_to(d->desk.at, d->qpos, d->qvel) != ROW_ERROR_NONE)
        return false;
    sim_reset_info(d->desk.at, d->desk.info);
    return true;
}

static bool step(struct driver *d)
{
    size_t n = (size_t)d->scene->n_act;

    if (fread(d->action, sizeof(float), n, stdin) != n)
        return false;
    env_step(&d->env, &d->desk, d->action, 1, AUTORESET_DISABLED);
    return true;
}

static void answer(struct driver *d)
{
    const struct row_head *head = (const struct row_head *)d->row;

    env_write(&d->env, &d->desk, &d->layout, d->row);
    fwrite(d->row + d->layout.obs, sizeof(double), (size_t)d->scene->n_obs, stdout);
    fwrite(d->row + d->layout.reward, sizeof(double), 1, stdout);
    fwrite(&head->flags, sizeof head->flags, 1, stdout);
    fwrite(d->row + d->layout.info, sizeof(double), (size_t)d->scene->n_info, stdout);
    if (d->layout.pictures)
        fwrite(d->row + d->layout.pictures, 1, d->layout.stride - d->layout.pictures, stdout);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct driver d;
    bool ok = true;
    int c;

    if (argc != 3) {
        fprintf(stderr, "usage: gym_driver TASK KWARGS\n");
        return 2;
    }
    if (driver_init(&d, argv[1], argv[2]) != ST_OK) {
        fprintf(stderr, "gym_driver: %s\n", error_last()->text);
        return 1;
    }
    announce(&d);
    while (ok && (c = getchar()) != EOF) {
        ok = c == 'R' ? reset(&d) : c == 'S' ? step(&d) : false;
        if (ok)
            answer(&d);
    }
    mem_free(d.row);
    mem_free(d.qpos);
    mem_free(d.qvel);
    env_fini(&d.env);
    desk_fini(&d.desk);
    pictures_destroy(d.pictures);
    mem_free(d.state);
    scene_destroy(d.scene);
    return ok ? 0 : 1;
}
