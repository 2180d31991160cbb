// Env steps a second with camera pictures in the observations: the ray caster against OpenGL, and
// two threads against one. Rates are by the clock and by the processor time of all threads.
#include "bench/bench.h"

#include "cli/cmd.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/thread.h"
#include "envserver/pool.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define REPS_MAX 64

struct pictures_options {
    char task[OPT_STR_MAX], cameras[OPT_STR_MAX];
    int64_t envs, rounds, reps, samples;
    bool egl, json;
};

#define AT(field) offsetof(struct pictures_options, field)

static const struct opt table[] = {
    {"task", OPT_STR, AT(task), 0, 0, "libero_spatial/0,libero_object/0,libero_10/3",
     "tasks, separated by commas", NULL},
    {"cameras", OPT_STR, AT(cameras), 0, 0, "default:128x128", "the task's keyword `cameras`",
     NULL},
    {"samples", OPT_INT, AT(samples), 1, 4, "4", "samples per pixel, 1 or 4", NULL},
    {"envs", OPT_INT, AT(envs), 1, 4096, "4", "environments", NULL},
    {"rounds", OPT_INT, AT(rounds), 1, 100000, "20", "steps of each in one repetition", NULL},
    {"reps", OPT_INT, AT(reps), 1, REPS_MAX, "5", "repetitions, interleaved", NULL},
    {"egl", OPT_BOOL, AT(egl), 0, 1, "true", "also OpenGL, with a twentieth of the rounds", NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "one JSON line a task", NULL},
    {0},
};

struct lane { // a pool and what is measured of it
    struct pool *pool;
    struct port *port;
    uint8_t *steps;
    struct rng rng;
    double wall[REPS_MAX], cpu[REPS_MAX]; // env steps a second
};

enum { ONE, TWO, EGL, LANES };

static double cpu_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

// Until nothing is in flight.
static enum status take_all(struct lane *l)
{
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;
    enum status st;
    uint32_t i;

    while ((st = port_recv(l->port, &m, WAIT_NEVER)) == ST_OK) {
        st = batch_read(m, port_layout(l->port), &head, &rows);
        for (i = 0; st == ST_OK && i < head->n; i++, rows += head->stride)
            if (((const struct row_head *)rows)->flags & ROW_ERROR)
                st = FAIL(ST_ENGINE, "an episode has ended by an error; the log says why");
        msg_free(m);
        TRY(st);
    }
    return st == ST_AGAIN ? ST_OK : st;
}

static enum status run(struct lane *l, int64_t rounds)
{
    const struct spec *spec = pool_spec(l->pool);
    size_t stride = step_stride(1, spec->n_act);
    int64_t t;
    int i, k;

    for (t = 0; t < rounds; t++) {
        for (i = 0; i < spec->n_env; i++) {
            struct step_row *row = (struct step_row *)(l->steps + (size_t)i * stride);

            *row = (struct step_row){.env = (uint32_t)i, .n_sub = 1};
            for (k = 0; k < spec->n_act; k++)
                ((float *)(row + 1))[k] = (float)rng_uniform(&l->rng, -0.3, 0.3);
        }
        TRY(port_step(l->port, l->steps, spec->n_env));
        TRY(take_all(l));
    }
    return ST_OK;
}

static enum status lane_open(struct lane *l, const struct pictures_options *o, const char *task,
                             int which)
{
    struct port_config port = {.k_max = 1, .b_max = (int)o->envs};
    char kwargs[OPT_STR_MAX + 128];
    struct pool_config pool = {
        .task = task, .kwargs = kwargs, .n_env = (int)o->envs, .n_thread = which == TWO ? 2 : 1};
    struct reset_row *rows;
    enum status st;
    int i;

    snprintf(kwargs, sizeof kwargs,
             "{\"cameras\": \"%s\", \"renderer\": \"%s\", \"render_samples\": %lld}", o->cameras,
             which == EGL ? "egl" : "rays", (long long)o->samples);
    l->rng = rng_make(1, RNG_TEST, 0, 0, 0);
    TRY(pool_create(&l->pool, &pool));
    TRY(port_open(&l->port, l->pool, &port));
    l->steps = mem_alloc((size_t)o->envs, step_stride(1, pool_spec(l->pool)->n_act));
    rows = mem_alloc((size_t)o->envs, sizeof rows[0]);
    if (!l->steps || !rows) {
        mem_free(rows);
        return ST_NOMEM;
    }
    for (i = 0; i < (int)o->envs; i++)
        rows[i] = (struct reset_row){.env = (uint32_t)i, .stream = (uint64_t)i};
    st = port_reset(l->port, rows, (int)o->envs);
    mem_free(rows);
    TRY(st);
    TRY(take_all(l));
    return run(l, 1);
}

static void lane_close(struct lane *l)
{
    port_close(l->port);
    pool_destroy(l->pool);
    mem_free(l->steps);
}

static enum status measure(struct lane *l, int64_t rounds, int rep)
{
    double steps = (double)rounds * (double)pool_spec(l->pool)->n_env, cpu = cpu_s();
    int64_t begin = clock_now_ns();

    TRY(run(l, rounds));
    l->wall[rep] = steps * NS_PER_S / (double)(clock_now_ns() - begin);
    l->cpu[rep] = steps / (cpu_s() - cpu);
    return ST_OK;
}

static void report(const struct pictures_options *o, const char *task, struct lane *lanes)
{
    double two[REPS_MAX], egl[REPS_MAX];
    int n = (int)o->reps, i;
    struct json j;

    for (i = 0; i < n; i++) {
        two[i] = lanes[TWO].wall[i] / lanes[ONE].wall[i];
        egl[i] = o->egl ? lanes[ONE].cpu[i] / lanes[EGL].cpu[i] : 0;
    }
    if (!o->json) {
        printf("%s, %s, %lld samples\n", task, o->cameras, (long long)o->samples);
        bench_print_spread("rays, steps/s, one thread", lanes[ONE].wall, n);
        bench_print_spread("the same by processor time", lanes[ONE].cpu, n);
        bench_print_spread("two threads against one", two, n);
        if (o->egl) {
            bench_print_spread("egl, steps/s by processor time", lanes[EGL].cpu, n);
            bench_print_spread("rays against egl by processor time", egl, n);
        }
        return;
    }
    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "bench", "pictures");
    json_str(&j, "task", task);
    json_str(&j, "cameras", o->cameras);
    json_int(&j, "samples", o->samples);
    bench_spread(&j, "rays_steps_per_s", lanes[ONE].wall, n);
    bench_spread(&j, "rays_steps_per_cpu_s", lanes[ONE].cpu, n);
    bench_spread(&j, "two_over_one", two, n);
    if (o->egl) {
        bench_spread(&j, "egl_steps_per_s", lanes[EGL].wall, n);
        bench_spread(&j, "egl_steps_per_cpu_s", lanes[EGL].cpu, n);
        bench_spread(&j, "rays_over_egl_cpu", egl, n);
    }
    json_close(&j, '}');
    cmd_print_json(&j);
}

static enum status one_task(const void *options, const char *task)
{
    const struct pictures_options *o = options;
    static struct lane lanes[LANES];
    enum status st = ST_OK;
    int which, rep;

    memset(lanes, 0, sizeof lanes);
    for (which = 0; which < (o->egl ? LANES : EGL) && st == ST_OK; which++)
        st = lane_open(&lanes[which], o, task, which);
    for (rep = 0; rep < o->reps && st == ST_OK; rep++)
        for (which = 0; which < (o->egl ? LANES : EGL) && st == ST_OK; which++)
            st = measure(&lanes[which], which == EGL ? (o->rounds + 19) / 20 : o->rounds, rep);
    if (st == ST_OK)
        report(o, task, lanes);
    for (which = 0; which < LANES; which++)
        lane_close(&lanes[which]);
    return st;
}

int bench_pictures(int argc, char **argv)
{
    struct pictures_options o;
    int code = cmd_begin(table, &o, "bench pictures [--option=value ...]", argc, argv, 0, NULL);

    return code >= 0 ? code : bench_each(o.task, one_task, &o);
}
