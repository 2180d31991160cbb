// render_pair TASK SIDE SAMPLES FAST - the same views by both renderers, for render_compare.py.
//
// Three states of the task, each an episode's start and some random actions; of each, LIBERO's two
// cameras or, in other tasks, the free view and the first camera. For every view one line of text,
// "STATE CAMERA", then as bytes, for rays and then for egl: (side, side, 3) uint8 colours,
// (side, side) float32 depths, (side, side, 2) int32 segmentation; upright.
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "envserver/render.h"
#include "envserver/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_BACKEND 2

struct pair {
    struct scene *scene;
    struct sim sim;
    struct render_shared *shared[N_BACKEND];
    struct render_worker *worker[N_BACKEND];
    struct render_out out; // packed, used by one view after the other
    int side;
};

static void must(enum status st)
{
    if (st == ST_OK)
        return;
    fprintf(stderr, "render_pair: %s\n", error_last()->text);
    exit(2);
}

static void write_all(const void *data, size_t size, size_t n)
{
    if (fwrite(data, size, n, stdout) != n)
        must(FAIL(ST_IO, "cannot write the planes"));
}

static void open_pair(struct pair *p, const char *task, int samples, bool fast)
{
    static const char *const backends[N_BACKEND] = {"rays", "egl"};
    int member, i;
    const struct scene_task *found = scene_task_find(task, &member);
    size_t n = (size_t)p->side * (size_t)p->side;
    struct render_config cfg;

    must(scene_create(&p->scene, task, found && found->members ? "{\"visual\": true}" : ""));
    must(sim_init(&p->sim, p->scene));
    for (i = 0; i < N_BACKEND; i++) {
        render_config_default(&cfg);
        cfg.backend = backends[i];
        cfg.samples = samples;
        cfg.fast = fast && i == 0;
        cfg.watchdog_ns = 0; // the machine may be busy
        if (p->scene->task->members)
            cfg.geom_groups &= ~1u; // as robosuite: collision geoms are not drawn
        must(render_shared_create(&p->shared[i], p->scene->model, &cfg));
        must(render_worker_create(&p->worker[i], p->shared[i]));
    }
    p->out.rgb = mem_alloc(n, 3);
    p->out.depth = mem_alloc(n, sizeof(float));
    p->out.seg = mem_alloc(2 * n, sizeof(int32_t));
    if (!p->out.rgb || !p->out.depth || !p->out.seg)
        must(ST_NOMEM);
}

static void close_pair(struct pair *p)
{
    int i;

    for (i = 0; i < N_BACKEND; i++) {
        render_worker_destroy(p->worker[i]);
        render_shared_destroy(p->shared[i]);
    }
    mem_free(p->out.rgb);
    mem_free(p->out.depth);
    mem_free(p->out.seg);
    sim_fini(&p->sim);
    scene_destroy(p->scene);
}

static void check(const struct pair *p, enum row_error err)
{
    if (err != ROW_ERROR_NONE)
        must(FAIL(ST_ENGINE, "the world failed: %s", p->sim.world.error));
}

static void bring_to(struct pair *p, const struct scene_start *start, int n_step)
{
    const struct scene *s = p->scene;
    struct rng rng = rng_make(start->seed, RNG_ACTION, 0, start->episode, 0);
    double *info = mem_alloc((size_t)s->n_info + 1, sizeof info[0]);
    struct scene_outcome outcome = {0};
    float action[64];
    int i, k;

    if (!info)
        must(ST_NOMEM);
    check(p, sim_reset(&p->sim, start));
    for (i = 0; i < n_step && !outcome.terminated; i++) {
        for (k = 0; k < s->n_act; k++)
            action[k] = (float)rng_uniform(&rng, (double)s->act_low[k], (double)s->act_high[k]);
        check(p, sim_step(&p->sim, action, &outcome, info));
    }
    mem_free(info);
}

static void draw(struct pair *p, int state, const char *camera)
{
    struct render_camera cam = {.width = p->side, .height = p->side, .orient = RENDER_UPRIGHT};
    size_t n = (size_t)p->side * (size_t)p->side;
    int i;

    must(render_camera_parse(&cam, p->scene->model, camera));
    printf("%d %s\n", state, camera);
    for (i = 0; i < N_BACKEND; i++) {
        must(render_frame(p->worker[i], p->sim.world.model, p->sim.world.d, &cam, &p->out));
        write_all(p->out.rgb, 3, n);
        write_all(p->out.depth, sizeof(float), n);
        write_all(p->out.seg, 2 * sizeof(int32_t), n);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const struct {
        int episode, n_step;
    } states[] = {{0, 0}, {17, 25}, {33, 60}};
    static struct pair p;
    int i;

    p.side = argc == 5 ? atoi(argv[2]) : 0;
    if (p.side < 1 || p.side > RENDER_SIZE_MAX) {
        fprintf(stderr, "usage: render_pair TASK SIDE SAMPLES FAST\n");
        return 2;
    }
    open_pair(&p, argv[1], atoi(argv[3]), atoi(argv[4]) != 0);
    for (i = 0; i < (int)(sizeof states / sizeof states[0]); i++) {
        bring_to(&p, &(struct scene_start){1, 0, (uint64_t)states[i].episode}, states[i].n_step);
        if (p.scene->task->members) {
            draw(&p, i, "agentview");
            draw(&p, i, "robot0_eye_in_hand");
        } else {
            draw(&p, i, "free");
            if (p.scene->model->ncam > 0)
                draw(&p, i, "#0");
        }
    }
    close_pair(&p);
    return 0;
}
