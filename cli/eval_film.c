#include "cli/eval_film.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/media/video.h"
#include "envserver/render.h"
#include "envserver/sim.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#define SIDE    256 // pixels, unless the camera says otherwise
#define SAMPLES 1   // a pixel: films are for looking what went wrong

struct camera_man {
    char dir[PATH_MAX - 64];
    const struct scene *scene;
    uint64_t seed;
    struct sim sim;
    struct render_shared *shared;
    struct render_worker *worker;
    struct render_camera cam;
    uint8_t *rgb; // (height, width, 3)
    double *info; // (n_info)
};

static enum status choose_camera(struct camera_man *c, const char *text)
{
    const mjModel *m = c->scene->model;

    c->cam = (struct render_camera){.width = SIDE, .height = SIDE, .orient = RENDER_UPRIGHT};
    if (!text[0])
        text = mj_name2id(m, mjOBJ_CAMERA, "agentview") >= 0 ? "agentview"
               : m->ncam > 0                                 ? "#0"
                                                             : "free";
    return render_camera_parse(&c->cam, m, text);
}

static enum status build(struct camera_man *c, const struct eval_film_config *cfg)
{
    static const char *const backends[] = {"rays", "egl"};
    struct render_config render;

    if ((size_t)snprintf(c->dir, sizeof c->dir, "%s", cfg->dir) >= sizeof c->dir)
        return FAIL(ST_INVAL, "folder name '%.60s...' is too long", cfg->dir);
    render_config_default(&render);
    render.backend = backends[cfg->backend];
    render.samples = SAMPLES;
    if (cfg->scene->task->members)
        render.geom_groups &= ~1u; // as robosuite: collision geoms are not drawn
    TRY(sim_init(&c->sim, cfg->scene));
    TRY(choose_camera(c, cfg->camera));
    TRY(render_shared_create(&c->shared, cfg->scene->model, &render));
    TRY(render_worker_create(&c->worker, c->shared));
    c->rgb = mem_alloc((size_t)c->cam.width * (size_t)c->cam.height, 3);
    c->info = mem_alloc((size_t)cfg->scene->n_info, sizeof c->info[0]);
    return c->rgb && c->info ? ST_OK : ST_NOMEM;
}

static enum status frame(struct camera_man *c, struct video *video)
{
    struct render_out out = {.rgb = c->rgb};

    TRY(render_frame(c->worker, c->sim.world.model, c->sim.world.d, &c->cam, &out));
    return video_append(video, c->rgb, 0);
}

// A film whose episode comes out differently is worth a look all the more.
static enum status shoot(struct camera_man *c, struct video *video, uint64_t start,
                         const float *actions, int64_t n_step, const struct episode_result *result)
{
    struct scene_start at = {c->seed, 0, start};
    enum row_error error = sim_reset(&c->sim, &at);
    struct scene_outcome outcome;
    double ret = 0;
    int64_t i;

    TRY(frame(c, video));
    for (i = 0; i < n_step && error == ROW_ERROR_NONE; i++) {
        error = sim_step(&c->sim, actions + i * c->scene->n_act, &outcome, c->info);
        ret += outcome.reward;
        TRY(frame(c, video));
    }
    if (error != ROW_ERROR_NONE || ret != result->ret)
        log_warn("eval", "episode %lld of %s came out differently when it was played for its film",
                 (long long)result->episode, c->scene->name);
    return ST_OK;
}

static enum status make(void *arg, uint64_t start, const float *actions, int64_t n_step,
                        const struct episode_result *result)
{
    struct camera_man *c = arg;
    struct video_format format = {.width = c->cam.width,
                                  .height = c->cam.height,
                                  .fps = (int)fmin(240, fmax(1, round(1 / c->scene->dt_s)))};
    char path[PATH_MAX];
    struct video *video;
    enum status st, end;
    struct error err;

    TRY(file_make_dir(c->dir));
    snprintf(path, sizeof path, "%s/eval_episode_%lld.mp4", c->dir, (long long)result->episode);
    TRY(video_open(&video, path, &format));
    st = shoot(c, video, start, actions, n_step, result);
    err = *error_last();
    end = video_close(video);
    return st == ST_OK ? end : error_adopt(&err);
}

void eval_film_end(struct camera_man *c, struct film *film)
{
    film_destroy(film);
    if (!c)
        return;
    render_worker_destroy(c->worker);
    render_shared_destroy(c->shared);
    sim_fini(&c->sim);
    mem_free(c->rgb);
    mem_free(c->info);
    mem_free(c);
}

enum status eval_film_begin(struct camera_man **out, struct film **film,
                            const struct eval_film_config *cfg)
{
    struct camera_man *c = mem_alloc(1, sizeof *c);
    struct film_config plan = {
        .which = cfg->which, .episodes = cfg->episodes, .make = make, .arg = c};
    enum status st;

    if (!c)
        return ST_NOMEM;
    c->scene = cfg->scene;
    c->seed = cfg->seed;
    st = build(c, cfg);
    if (st == ST_OK)
        st = film_create(film, &plan);
    if (st != ST_OK) {
        eval_film_end(c, NULL);
        return st;
    }
    *out = c;
    return ST_OK;
}
