// Camera pictures by rays against MuJoCo's OpenGL renderer, of the same states with equal samples:
// milliseconds of processor time for a picture, their ratio, how far the pictures differ, and what
// a second thread brings. The world moves between two pictures.
#include "bench/bench.h"

#include "cli/cmd.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/thread.h"
#include "common/base/usage.h"
#include "envserver/render.h"
#include "envserver/sim.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define REPS_MAX 64
#define N_CAMERA 2
#define N_THREAD 2

struct bench_options {
    char task[OPT_STR_MAX], sizes[OPT_STR_MAX], samples[OPT_STR_MAX];
    int64_t reps, frames, egl_frames;
    bool fast, cold, json;
};

#define AT(field) offsetof(struct bench_options, field)

static const struct opt table[] = {
    {"task", OPT_STR, AT(task), 0, 0,
     "libero_spatial/0,libero_object/0,libero_goal/0,libero_10/0,libero_90/0,tabletop/0,Ant-v5",
     "tasks, separated by commas; suites with the pictures of agentview and "
     "robot0_eye_in_hand, others with that of the free camera",
     NULL},
    {"sizes", OPT_STR, AT(sizes), 0, 0, "128,256", "pixels of a side, separated by commas", NULL},
    {"samples", OPT_STR, AT(samples), 0, 0, "1,4", "samples per pixel: 1, 4 or both", NULL},
    {"reps", OPT_INT, AT(reps), 1, REPS_MAX, "5", "repetitions, interleaved", NULL},
    {"frames", OPT_INT, AT(frames), 1, 10000, "20", "states of one repetition drawn by rays", NULL},
    {"egl-frames", OPT_INT, AT(egl_frames), 0, 10000, "2",
     "the first so many of them drawn by egl too; 0 = no comparison", NULL},
    {"fast", OPT_BOOL, AT(fast), 0, 1, "false",
     "rays in their fast mode, without mirrors and shadows, against egl with them", NULL},
    {"cold", OPT_BOOL, AT(cold), 0, 1, "false",
     "rays draw all of each picture anew; otherwise pictures of cameras that stand still keep what "
     "stands still from the one before",
     NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "one JSON line a task, size and samples", NULL},
    {0},
};

// What draws: a renderer with one worker per thread.
struct painter {
    struct render_shared *shared;
    struct render_worker *worker[N_THREAD];
};

struct stage {
    const struct bench_options *o;
    struct scene *scene;
    struct sim sim[N_THREAD];
    struct rng rng[N_THREAD];
    double *info[N_THREAD];
    struct painter rays, egl;
    bool with_egl;
    int n_cam;
    struct render_camera cam[N_CAMERA];
    uint8_t *rgb[N_THREAD][N_CAMERA]; // (size, size, 3); those of thread 0 are compared with:
    uint8_t *by_egl[N_CAMERA];
};

struct figures {
    double rays_ms[REPS_MAX], egl_ms[REPS_MAX], ratio[REPS_MAX]; // processor time of a picture
    double one[REPS_MAX], two[REPS_MAX], gain[REPS_MAX];         // pictures/s by wall clock
    double differ, off; // mean absolute difference; share of pixels off by more than 10
    int n_compared;
};

static const struct render_out *outputs(uint8_t *const rgb[], struct render_out *out, int n)
{
    int i;

    for (i = 0; i < n; i++)
        out[i] = (struct render_out){.rgb = rgb[i]};
    return out;
}

// All cameras' pictures of the state.
static enum status draw(struct stage *s, const struct painter *by, int thread, uint8_t *const rgb[])
{
    struct world *w = &s->sim[thread].world;
    struct render_out out[N_CAMERA];
    struct render_view views[N_CAMERA];
    int i;

    outputs(rgb, out, s->n_cam);
    for (i = 0; i < s->n_cam; i++)
        views[i] = (struct render_view){w->model, w->d, &s->cam[i], &out[i]};
    return render_frames(by->worker[thread], views, s->n_cam, NULL);
}

static void begin(struct stage *s, int thread)
{
    struct scene_start start = {7, 0, 0};

    s->rng[thread] = rng_make(7, RNG_TEST, 0, 0, 0);
    (void)sim_reset(&s->sim[thread], &start);
}

static void move(struct stage *s, int thread)
{
    float action[64];
    struct scene_outcome outcome;
    int k;

    for (k = 0; k < s->scene->n_act && k < 64; k++)
        action[k] = (float)rng_uniform(&s->rng[thread], (double)s->scene->act_low[k],
                                       (double)s->scene->act_high[k]);
    if (sim_step(&s->sim[thread], action, &outcome, s->info[thread]) != ROW_ERROR_NONE)
        begin(s, thread);
}

static void compare(const struct stage *s, struct figures *f)
{
    size_t n = (size_t)s->cam[0].width * (size_t)s->cam[0].height, i;
    int64_t sum = 0, off = 0;
    int c, k;

    for (c = 0; c < s->n_cam; c++)
        for (i = 0; i < n; i++) {
            int worst = 0;

            for (k = 0; k < 3; k++) {
                int d = abs(s->rgb[0][c][3 * i + (size_t)k] - s->by_egl[c][3 * i + (size_t)k]);

                sum += d;
                worst = d > worst ? d : worst;
            }
            off += worst > 10;
        }
    f->differ += (double)sum / (double)(3 * n) / s->n_cam;
    f->off += (double)off / (double)n / s->n_cam;
    f->n_compared++;
}

static enum status one_thread(struct stage *s, struct figures *f, int rep)
{
    double rays = 0, egl = 0, before;
    int64_t wall = 0, start;
    int i, n_egl = s->with_egl ? (int)s->o->egl_frames : 0;

    begin(s, 0);
    for (i = 0; i < s->o->frames; i++) {
        move(s, 0);
        start = clock_now_ns();
        before = usage_cpu_s();
        TRY(draw(s, &s->rays, 0, s->rgb[0]));
        rays += usage_cpu_s() - before;
        wall += clock_now_ns() - start;
        if (i >= n_egl)
            continue;
        before = usage_cpu_s();
        TRY(draw(s, &s->egl, 0, s->by_egl));
        egl += usage_cpu_s() - before;
        compare(s, f);
    }
    f->rays_ms[rep] = 1e3 * rays / (double)s->o->frames / s->n_cam;
    f->one[rep] = (double)s->o->frames * s->n_cam * 1e9 / (double)wall;
    if (n_egl > 0) {
        f->egl_ms[rep] = 1e3 * egl / n_egl / s->n_cam;
        f->ratio[rep] = f->egl_ms[rep] / f->rays_ms[rep];
    }
    return ST_OK;
}

// Each thread draws the states of a world of its own.
struct pair {
    struct stage *stage;
    double rate[N_THREAD];
    enum status st[N_THREAD];
};

static void one_of_pair(void *arg, int i, int n)
{
    struct pair *p = arg;
    struct stage *s = p->stage;
    int64_t wall = 0, start;
    int k;

    (void)n;
    begin(s, i);
    for (k = 0; k < s->o->frames && p->st[i] == ST_OK; k++) {
        move(s, i);
        start = clock_now_ns();
        p->st[i] = draw(s, &s->rays, i, s->rgb[i]);
        wall += clock_now_ns() - start;
    }
    p->rate[i] = (double)s->o->frames * s->n_cam * 1e9 / (double)wall;
}

static enum status two_threads(struct stage *s, struct team *team, struct figures *f, int rep)
{
    struct pair pair = {.stage = s};

    team_run(team, one_of_pair, &pair);
    if (pair.st[0] != ST_OK || pair.st[1] != ST_OK)
        return FAIL(ST_IO, "a picture of the second thread failed");
    f->two[rep] = pair.rate[0] + pair.rate[1];
    f->gain[rep] = f->two[rep] / f->one[rep];
    return ST_OK;
}

// --- setting up ---------------------------------------------------------------------------------

static enum status painter_init(struct stage *s, struct painter *p, const char *backend,
                                int samples, int n_worker)
{
    struct render_config cfg;
    int i;

    render_config_default(&cfg);
    cfg.backend = backend;
    cfg.samples = samples;
    cfg.fast = s->o->fast && strcmp(backend, "rays") == 0;
    cfg.forget = s->o->cold;
    if (s->scene->task->members)
        cfg.geom_groups &= ~1u; // as robosuite: collision geoms are not drawn
    TRY(render_shared_create(&p->shared, s->scene->model, &cfg));
    for (i = 0; i < n_worker; i++)
        TRY(render_worker_create(&p->worker[i], p->shared));
    return ST_OK;
}

static void painter_fini(struct painter *p)
{
    int i;

    for (i = 0; i < N_THREAD; i++)
        render_worker_destroy(p->worker[i]);
    render_shared_destroy(p->shared);
    memset(p, 0, sizeof *p);
}

static enum status stage_init(struct stage *s, const char *task)
{
    int member, i;
    const struct scene_task *found = scene_task_find(task, &member);
    bool suite = found && found->members;

    TRY(scene_create(&s->scene, task, suite ? "{\"visual\": true}" : ""));
    for (i = 0; i < N_THREAD; i++) {
        TRY(sim_init(&s->sim[i], s->scene));
        s->info[i] = mem_alloc((size_t)s->scene->n_info + 1, sizeof(double));
        if (!s->info[i])
            return ST_NOMEM;
    }
    s->n_cam = suite ? 2 : 1;
    TRY(render_camera_parse(&s->cam[0], s->scene->model, suite ? "agentview" : "free"));
    return suite ? render_camera_parse(&s->cam[1], s->scene->model, "robot0_eye_in_hand") : ST_OK;
}

static void stage_fini(struct stage *s)
{
    int i;

    for (i = 0; i < N_THREAD; i++) {
        sim_fini(&s->sim[i]);
        mem_free(s->info[i]);
    }
    scene_destroy(s->scene);
}

static enum status make_pictures(struct stage *s, int size)
{
    size_t n = (size_t)size * (size_t)size;
    int i, c;

    for (c = 0; c < s->n_cam; c++) {
        s->cam[c].width = s->cam[c].height = size;
        s->by_egl[c] = mem_alloc(n, 3);
        for (i = 0; i < N_THREAD; i++) {
            s->rgb[i][c] = mem_alloc(n, 3);
            if (!s->rgb[i][c])
                return ST_NOMEM;
        }
        if (!s->by_egl[c])
            return ST_NOMEM;
    }
    return ST_OK;
}

static void free_pictures(struct stage *s)
{
    int i, c;

    for (c = 0; c < N_CAMERA; c++) {
        mem_free(s->by_egl[c]);
        s->by_egl[c] = NULL;
        for (i = 0; i < N_THREAD; i++) {
            mem_free(s->rgb[i][c]);
            s->rgb[i][c] = NULL;
        }
    }
}

// --- results ------------------------------------------------------------------------------------

static void put_json(const struct stage *s, const char *task, int size, int samples,
                     struct figures *f)
{
    int n = (int)s->o->reps;
    struct json j;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "bench", "render");
    json_str(&j, "task", task);
    json_int(&j, "size", size);
    json_int(&j, "samples", samples);
    json_bool(&j, "fast", s->o->fast);
    json_bool(&j, "cold", s->o->cold);
    bench_spread(&j, "rays_cpu_ms", f->rays_ms, n);
    if (s->with_egl) {
        bench_spread(&j, "egl_cpu_ms", f->egl_ms, n);
        bench_spread(&j, "egl_over_rays", f->ratio, n);
        json_real(&j, "mean_difference", f->differ / f->n_compared);
        json_real(&j, "share_off_by_more_than_10", f->off / f->n_compared);
    }
    bench_spread(&j, "frames_per_s_1_thread", f->one, n);
    bench_spread(&j, "frames_per_s_2_threads", f->two, n);
    bench_spread(&j, "two_threads", f->gain, n);
    json_close(&j, '}');
    cmd_print_json(&j);
}

static void put(const struct stage *s, const char *task, int size, int samples, struct figures *f)
{
    int n = (int)s->o->reps;

    if (s->o->json) {
        put_json(s, task, size, samples, f);
        return;
    }
    printf("%s, %d x %d, %d samples%s%s (min / median / max)\n", task, size, size, samples,
           s->o->fast ? ", fast" : "", s->o->cold ? ", cold" : "");
    bench_print_spread("rays, ms of processor time a picture", f->rays_ms, n);
    if (s->with_egl) {
        bench_print_spread("egl, ms of processor time a picture", f->egl_ms, n);
        bench_print_spread("ratio", f->ratio, n);
        printf("  %-44s %9.4f\n", "mean absolute difference of 255", f->differ / f->n_compared);
        printf("  %-44s %9.4f\n", "% of pixels off by more than 10", 100 * f->off / f->n_compared);
    }
    bench_print_spread("rays, pictures/s, one thread", f->one, n);
    bench_print_spread("rays, pictures/s, two threads", f->two, n);
    bench_print_spread("two threads against one", f->gain, n);
    fflush(stdout);
}

static enum status measure(struct stage *s, struct team *team, const char *task, int size,
                           int samples)
{
    struct figures f = {.differ = 0};
    enum status st = painter_init(s, &s->rays, "rays", samples, N_THREAD);
    int i;

    s->with_egl = false;
    if (st == ST_OK && s->o->egl_frames > 0) {
        st = painter_init(s, &s->egl, "egl", samples, 1);
        s->with_egl = st == ST_OK;
        if (st == ST_MISSING) {
            fprintf(stderr, "no comparison: %s\n", error_last()->text);
            st = ST_OK;
        }
    }
    if (st == ST_OK)
        st = make_pictures(s, size);
    if (st == ST_OK && s->with_egl)
        st = draw(s, &s->egl, 0, s->by_egl); // the first one compiles shaders
    for (i = 0; i < s->o->reps && st == ST_OK; i++) {
        st = one_thread(s, &f, i);
        if (st == ST_OK)
            st = two_threads(s, team, &f, i);
    }
    if (st == ST_OK)
        put(s, task, size, samples, &f);
    free_pictures(s);
    painter_fini(&s->rays);
    painter_fini(&s->egl);
    return st;
}

// The numbers of "A,B"; ST_INVAL if one is none or outside of its bounds.
static enum status numbers(const char *text, const char *what, long low, long high, int out[8],
                           int *n)
{
    char *end;

    for (*n = 0; *n == 0 || *text == ','; ++*n) {
        long x = strtol(text + (*n > 0), &end, 10);

        if (*n == 8 || x < low || x > high || (*end && *end != ','))
            return FAIL(ST_INVAL, "--%s: '%s', expected at most 8 numbers from %ld to %ld", what,
                        text, low, high);
        out[*n] = (int)x;
        text = end;
    }
    return ST_OK;
}

static enum status bench_task(const void *options, const char *task)
{
    const struct bench_options *o = options;
    struct stage s = {.o = o};
    struct team *team = NULL;
    int sizes[8], samples[8], n_size, n_sample, i, k;
    enum status st;

    TRY(numbers(o->sizes, "sizes", 1, RENDER_SIZE_MAX, sizes, &n_size));
    TRY(numbers(o->samples, "samples", 1, 4, samples, &n_sample));
    st = stage_init(&s, task);
    if (st == ST_OK)
        st = team_create(&team, N_THREAD);
    for (i = 0; i < N_THREAD && st == ST_OK; i++)
        begin(&s, i);
    for (i = 0; i < n_size; i++)
        for (k = 0; k < n_sample && st == ST_OK; k++)
            st = measure(&s, team, task, sizes[i], samples[k]);
    team_destroy(team);
    stage_fini(&s);
    return st;
}

int bench_render(int argc, char **argv)
{
    struct bench_options o;
    int code = cmd_begin(table, &o,
                         "bench render [--option=value ...]\n\n"
                         "Pictures by rays and by MuJoCo's OpenGL renderer (egl, where it starts) "
                         "of the same states\nwith equal samples: processor time of a picture, "
                         "ratio, difference; what a second thread brings.\nMesa's software "
                         "renderer is held to one thread unless LP_NUM_THREADS says otherwise.",
                         argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    (void)setenv("LP_NUM_THREADS", "0", 0);
    return bench_each(o.task, bench_task, &o);
}
