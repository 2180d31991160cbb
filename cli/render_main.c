// simstream render: one picture of a task's world with the time that a frame takes, or a film of an
// episode.
#include "cli/cmd.h"
#include "cli/kwargs.h"

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/thread.h"
#include "common/media/picture.h"
#include "common/media/video.h"
#include "envserver/render.h"
#include "envserver/sim.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

struct render_options {
    char task[OPT_STR_MAX], kwargs[OPT_STR_MAX], camera[OPT_STR_MAX], out[OPT_STR_MAX];
    char video[OPT_STR_MAX];
    int backend, fallback, policy;
    int64_t init_state, seed, steps, samples, repeat, egl_device, cuda_device;
    bool fast;
};

#define AT(f) offsetof(struct render_options, f)

static const struct opt table[] = {
    {"task", OPT_STR, AT(task), 0, 0, NULL, "task name, see `simstream tasks`", NULL},
    {"kwargs", OPT_STR, AT(kwargs), 0, 0, "", "keyword arguments of the task, as JSON", NULL},
    {"camera", OPT_STR, AT(camera), 0, 0, "free:480x480:upright",
     "VIEW[:WIDTHxHEIGHT][:ORIENT]: a camera's name, #N, free or track=BODY", NULL},
    {"out", OPT_STR, AT(out), 0, 0, "frame.png", "picture file, .png or .jpg", NULL},
    {"video", OPT_STR, AT(video), 0, 0, "",
     "film of the steps, .mp4; it plays even if the program is killed", NULL},
    {"policy", OPT_ENUM, AT(policy), 0, 0, "random",
     "actions of the steps; expert for the tasks of suites", "random|zero|expert"},
    {"init-state", OPT_INT, AT(init_state), -1, 1e6, "-1",
     "row of a suite's init-state file; -1 = the first", NULL},
    {"backend", OPT_ENUM, AT(backend), 0, 0, "rays", "who draws", "rays|egl"},
    {"fallback", OPT_ENUM, AT(fallback), 0, 0, "fail", "where egl cannot start", "fail|rays"},
    {"samples", OPT_INT, AT(samples), 1, 4, "4", "samples per pixel, 1 or 4", NULL},
    {"fast", OPT_BOOL, AT(fast), 0, 1, "false", "leave out mirrors and shadows", NULL},
    {"seed", OPT_INT, AT(seed), 0, 1e15, "0", "of the initial state and the actions", NULL},
    {"steps", OPT_INT, AT(steps), 0, 1e6, "0", "env steps before the picture, or of the film",
     NULL},
    {"repeat", OPT_INT, AT(repeat), 1, 1e6, "1", "frames to draw, for the time of one", NULL},
    {"egl-device", OPT_INT, AT(egl_device), -1, 1000, "-1", "EGL device, -1 = any", NULL},
    {"cuda-device", OPT_INT, AT(cuda_device), -1, 1000, "-1", "EGL device by CUDA number", NULL},
    {0},
};

struct job {
    struct scene *scene;
    struct sim sim;
    struct render_shared *shared;
    struct render_worker *worker;
    struct render_camera cam;
    uint8_t *rgb;
    double *obs; // (n_obs)
    struct video *video;
    double best_ms, create_ms;
};

static void job_fini(struct job *job)
{
    render_worker_destroy(job->worker);
    render_shared_destroy(job->shared);
    sim_fini(&job->sim);
    scene_destroy(job->scene);
    mem_free(job->rgb);
    mem_free(job->obs);
}

// The next action.
static void choose(struct job *job, const struct render_options *o, struct rng *rng, float *action)
{
    const struct scene *s = job->scene;
    const struct scene_field *expert = scene_field_find(s, "expert_action"); // asked for by kwargs
    int k;

    sim_observe(&job->sim, job->obs);
    for (k = 0; k < s->n_act; k++)
        action[k] = o->policy == 0
                        ? (float)rng_uniform(rng, (double)s->act_low[k], (double)s->act_high[k])
                    : o->policy == 1 ? 0
                                     : (float)job->obs[expert->offset + k];
}

static enum status frame(struct job *job)
{
    struct render_out out = {.rgb = job->rgb};

    TRY(render_frame(job->worker, job->sim.world.model, job->sim.world.d, &job->cam, &out));
    return job->video ? video_append(job->video, job->rgb, 0) : ST_OK;
}

static enum status advance(struct job *job, const struct render_options *o)
{
    const struct scene *s = job->scene;
    struct scene_start start = {(uint64_t)o->seed, 0, 0};
    struct rng rng = rng_make((uint64_t)o->seed, RNG_ACTION, 0, 0, 0);
    struct scene_outcome outcome = {0};
    enum row_error err = sim_reset(&job->sim, &start);
    double info[256];
    float action[64];
    int64_t i;

    if (s->n_info > 256)
        return FAIL(ST_INVAL, "task '%s' has %d info numbers, expected at most 256", s->name,
                    s->n_info);
    for (i = 0; err == ROW_ERROR_NONE && i < o->steps && !outcome.terminated; i++) {
        if (job->video)
            TRY(frame(job));
        choose(job, o, &rng, action);
        err = sim_step(&job->sim, action, &outcome, info);
    }
    if (err != ROW_ERROR_NONE)
        return FAIL(ST_ENGINE, "the world of task '%s' failed: %s", s->name,
                    job->sim.world.error[0] ? job->sim.world.error : "unstable state");
    return ST_OK;
}

static enum status start_renderer(struct job *job, const struct render_options *o)
{
    static const char *const backends[] = {"rays", "egl"};
    int64_t begin_ns = clock_now_ns();
    struct render_config cfg;

    render_config_default(&cfg);
    cfg.backend = backends[o->backend];
    cfg.samples = (int)o->samples;
    if (job->scene->task->members)
        cfg.geom_groups &= ~1u; // as robosuite: collision geoms are not drawn
    cfg.fast = o->fast;
    cfg.fallback = o->fallback ? RENDER_OR_RAYS : RENDER_OR_FAIL;
    cfg.egl_device = (int)o->egl_device;
    cfg.cuda_device = (int)o->cuda_device;
    TRY(render_shared_create(&job->shared, job->scene->model, &cfg));
    TRY(render_worker_create(&job->worker, job->shared));
    job->create_ms = (double)(clock_now_ns() - begin_ns) / NS_PER_MS;
    job->rgb = mem_alloc((size_t)job->cam.width * (size_t)job->cam.height, 3);
    job->obs = mem_alloc((size_t)job->scene->n_obs, sizeof job->obs[0]);
    return job->rgb && job->obs ? ST_OK : ST_NOMEM;
}

static enum status film(struct job *job, const struct render_options *o)
{
    struct video_format format = {.width = job->cam.width,
                                  .height = job->cam.height,
                                  .fps = (int)fmax(1, round(1 / job->scene->dt_s))};
    enum status st, end;

    TRY(video_open(&job->video, o->video, &format));
    st = advance(job, o);
    if (st == ST_OK)
        st = frame(job);
    end = video_close(job->video);
    job->video = NULL;
    return st == ST_OK ? end : st;
}

static enum status draw(struct job *job, const struct render_options *o)
{
    int64_t start, i;

    TRY(o->video[0] ? film(job, o) : advance(job, o));
    job->best_ms = INFINITY;
    for (i = 0; i < o->repeat; i++) {
        start = clock_now_ns();
        TRY(frame(job));
        job->best_ms = fmin(job->best_ms, (double)(clock_now_ns() - start) / NS_PER_MS);
    }
    return picture_write(o->out, job->rgb, job->cam.width, job->cam.height, 95);
}

// Tasks of suites are compiled with what one sees of them.
static enum status suite_kwargs(struct render_options *o)
{
    char row[64];
    int member;
    const struct scene_task *task = scene_task_find(o->task, &member);

    if (!task)
        return ST_OK; // scene_create says so
    if (!task->members && (o->policy == 2 || o->init_state >= 0))
        return FAIL(ST_INVAL, "--policy=expert and --init-state are for the tasks of suites");
    if (!task->members)
        return ST_OK;
    TRY(kwargs_add(o->kwargs, "\"visual\": true"));
    if (o->policy == 2)
        TRY(kwargs_add(o->kwargs, "\"expert\": true"));
    snprintf(row, sizeof row, "\"init_state\": %lld", (long long)o->init_state);
    return o->init_state >= 0 ? kwargs_add(o->kwargs, row) : ST_OK;
}

static enum status run(struct job *job, struct render_options *o)
{
    TRY(suite_kwargs(o));
    TRY(scene_create(&job->scene, o->task, o->kwargs));
    TRY(sim_init(&job->sim, job->scene));
    job->cam = (struct render_camera){.width = 480, .height = 480, .orient = RENDER_UPRIGHT};
    TRY(render_camera_parse(&job->cam, job->scene->model, o->camera));
    TRY(start_renderer(job, o));
    return draw(job, o);
}

static void print_result(const struct job *job, const struct render_options *o)
{
    struct json j;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "out", o->out);
    if (o->video[0])
        json_str(&j, "video", o->video);
    json_str(&j, "backend", render_worker_backend(job->worker));
    json_int(&j, "width", job->cam.width);
    json_int(&j, "height", job->cam.height);
    json_str(&j, "orientation", render_orient_name(job->cam.orient));
    json_real(&j, "create_ms", job->create_ms);
    json_real(&j, "frame_ms", job->best_ms);
    json_close(&j, '}');
    cmd_print_json(&j);
}

int cmd_render(int argc, char **argv)
{
    struct render_options o;
    struct job job;
    enum status st;
    int code = cmd_begin(table, &o, "render --task=NAME [--option=value ...]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    memset(&job, 0, sizeof job);
    st = run(&job, &o);
    if (st == ST_OK)
        print_result(&job, &o);
    job_fini(&job);
    return st == ST_OK ? EXIT_DONE : cmd_fail(st);
}
