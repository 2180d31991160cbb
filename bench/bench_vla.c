// A vision-language-action policy: training steps (forward, backward, AdamW) and inference on
// packed rows, against the same on padded ones. Threads share a batch, each takes whole sequences.
//
// Lengths follow a fixed rule (ragged), which bench/compare_torch.py repeats.
#include "bench/bench.h"

#include "cli/cmd.h"
#include "common/base/config.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/thread.h"
#include "common/base/usage.h"
#include "nn/adamw.h"
#include "nn/vla.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define REPS_MAX    100
#define THREADS_MAX 64

struct vla_options {
    char model[OPT_STR_MAX];
    int64_t seqs, threads, reps, keep;
    double images[2], texts[2];
    bool checkpoint;
};

#define AT(field) offsetof(struct vla_options, field)

static const struct opt table[] = {
    {"model", OPT_STR, AT(model), 0, 0, "vla-tiny", "preset or JSON file", NULL},
    {"seqs", OPT_INT, AT(seqs), 1, 4096, "32", "sequences of a batch", NULL},
    {"threads", OPT_INT, AT(threads), 1, THREADS_MAX, "2", "threads that share it", NULL},
    {"images", OPT_RANGE, AT(images), 0, 16, "2,2", "pictures of a sequence", NULL},
    {"texts", OPT_RANGE, AT(texts), 0, 4096, "30,70", "tokens of its instruction", NULL},
    {"reps", OPT_INT, AT(reps), 1, REPS_MAX, "10", "repetitions of each way", NULL},
    {"keep", OPT_INT, AT(keep), 1, 100, "50", "percent of picture tokens that pass, pruned", NULL},
    {"checkpoint", OPT_BOOL, AT(checkpoint), 0, 0, "false", "keep less, compute twice", NULL},
    {0},
};

enum way { PACKED, PADDED, PRUNED, N_WAY };

struct part { // one thread's sequences
    struct vla_batch b;
    struct vla_work *train[N_WAY], *infer[N_WAY];
    float *grad;
    int *cu; // lengths of b
};

struct bench {
    const struct vla_options *o;
    struct vla_net net, pruned;
    struct vla_batch b;
    int *cu_image, *cu_text, *camera, *text;
    const uint8_t **image;
    uint8_t *pixels;
    float *state, *params, *m, *v, *mean, *value, *d_mean;
    struct part part[THREADS_MAX];
    struct team *team;
    // of the running way
    enum way way;
    bool train;
    int64_t step;
    enum status st[THREADS_MAX];
};

// Length number i between the two ends.
static int ragged(const double *range, int i)
{
    const int low = (int)range[0], n = (int)range[1] - low + 1;

    return low + i * 7 % (n > 0 ? n : 1);
}

static const struct vla_net *net_of(const struct bench *x, enum way way)
{
    return way == PRUNED ? &x->pruned : &x->net;
}

static void work(void *arg, int i, int n)
{
    struct bench *x = arg;
    struct part *p = &x->part[i];
    const struct vla_net *net = net_of(x, x->way);
    const int64_t n_mean = x->net.c.chunk * x->net.c.action;
    const ptrdiff_t first = (ptrdiff_t)i * x->b.n_seq / n;

    memset(p->grad, 0, (size_t)x->net.t.n_param * sizeof *p->grad);
    x->st[i] = vla_forward(net, (x->train ? p->train : p->infer)[x->way], &p->b,
                           x->mean + first * n_mean, x->value + first);
    if (x->st[i] == ST_OK && x->train)
        vla_backward(net, p->train[x->way], &p->b, x->d_mean + first * n_mean, NULL, p->grad);
}

static void update(void *arg, int i, int n)
{
    static const struct adamw adamw = {.lr = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    struct bench *x = arg;
    const int64_t from = x->net.t.n_param * i / n, end = x->net.t.n_param * (i + 1) / n;
    float *sum = x->part[0].grad;

    for (int k = 1; k < n; k++)
        for (int64_t j = from; j < end; j++)
            sum[j] += x->part[k].grad[j];
    adamw_step(&adamw, x->step, sum + from, 1.0 / x->b.n_seq, end - from, x->params + from,
               x->m + from, x->v + from);
}

// Seconds of one training step or inference, and of processor time of all threads.
static enum status run(struct bench *x, enum way way, bool train, double *wall_s, double *cpu_s)
{
    const int64_t start = clock_now_ns();
    const double cpu = usage_cpu_s();

    x->way = way;
    x->train = train;
    team_run(x->team, work, x);
    for (int i = 0; i < x->o->threads; i++)
        TRY(x->st[i]);
    if (train) {
        x->step++;
        team_run(x->team, update, x);
    }
    *wall_s = (double)(clock_now_ns() - start) / 1e9;
    *cpu_s = usage_cpu_s() - cpu;
    return ST_OK;
}

static enum status make_batch(struct bench *x)
{
    const struct vla_config *c = &x->net.c;
    const int n = (int)x->o->seqs;
    const size_t bytes = (size_t)(VLA_RGB * c->image * c->image);
    const size_t images = (size_t)n * 16, texts = (size_t)n * 4096;
    struct rng r = rng_make(1, RNG_MODEL, 0, 0, 0);

    x->cu_image = mem_alloc((size_t)n + 1, sizeof(int));
    x->cu_text = mem_alloc((size_t)n + 1, sizeof(int));
    x->camera = mem_alloc(images, sizeof(int));
    x->text = mem_alloc(texts, sizeof(int));
    x->image = mem_alloc(images, sizeof *x->image);
    x->pixels = mem_alloc(4, bytes);
    x->state = mem_alloc((size_t)(n * c->state), sizeof(float));
    if (!x->cu_image || !x->cu_text || !x->camera || !x->text || !x->image || !x->pixels ||
        !x->state)
        return ST_NOMEM;
    for (size_t i = 0; i < 4 * bytes; i++)
        x->pixels[i] = (uint8_t)rng_u32(&r);
    for (int i = 0; i < n; i++) {
        x->cu_image[i + 1] = x->cu_image[i] + ragged(x->o->images, i);
        x->cu_text[i + 1] = x->cu_text[i] + ragged(x->o->texts, i);
    }
    for (int i = 0; i < x->cu_image[n]; i++) {
        x->image[i] = x->pixels + (size_t)(i % 4) * bytes;
        x->camera[i] = i % (int)c->cameras;
    }
    for (int i = 0; i < x->cu_text[n]; i++)
        x->text[i] = (int)rng_below(&r, (uint32_t)c->vocab);
    x->b = (struct vla_batch){.n_seq = n,
                              .cu_image = x->cu_image,
                              .image = x->image,
                              .camera = x->camera,
                              .cu_text = x->cu_text,
                              .text = x->text,
                              .state = x->state};
    return ST_OK;
}

// The share of the batch that one thread takes, with lengths from 0 again.
static enum status make_part(struct bench *x, int i)
{
    const struct vla_config *c = &x->net.c;
    const int n = (int)x->o->threads, first = i * x->b.n_seq / n;
    const int end = (i + 1) * x->b.n_seq / n;
    struct part *p = &x->part[i];
    int *cu = mem_alloc(2 * ((size_t)(end - first) + 1), sizeof *cu);
    int *cu_text = cu + (end - first) + 1;

    if (!cu)
        return ST_NOMEM;
    p->b = x->b;
    p->cu = cu;
    p->b.cu_image = cu;
    for (int s = first; s <= end; s++) {
        cu[s - first] = x->cu_image[s] - x->cu_image[first];
        cu_text[s - first] = x->cu_text[s] - x->cu_text[first];
    }
    p->b.n_seq = end - first;
    p->b.cu_text = cu_text;
    p->b.image += x->cu_image[first];
    p->b.camera += x->cu_image[first];
    p->b.text += x->cu_text[first];
    p->b.state += first * c->state;
    for (int way = 0; way < N_WAY; way++) {
        struct vla_room room = {.seqs = p->b.n_seq > 0 ? p->b.n_seq : 1,
                                .images = cu[p->b.n_seq],
                                .texts = cu_text[p->b.n_seq],
                                .checkpoint = x->o->checkpoint,
                                .padded = way == PADDED};

        if (way == PADDED) {
            room.images = room.seqs * (int)x->o->images[1];
            room.texts = room.seqs * (int)x->o->texts[1];
        }
        TRY(vla_work_create(&p->infer[way], net_of(x, (enum way)way), &room));
        room.backward = true;
        TRY(vla_work_create(&p->train[way], net_of(x, (enum way)way), &room));
    }
    p->grad = mem_alloc((size_t)x->net.t.n_param, sizeof *p->grad);
    return p->grad ? ST_OK : ST_NOMEM;
}

static enum status check_range(const char *name, const double *range)
{
    if (range[0] > range[1])
        return FAIL(ST_INVAL, "option '--%s' is %g,%g, expected the lower end first", name,
                    range[0], range[1]);
    return ST_OK;
}

static enum status make(struct bench *x)
{
    struct vla_config c;
    size_t n_mean, n;

    TRY(check_range("images", x->o->images));
    TRY(check_range("texts", x->o->texts));
    TRY(vla_config_read(&c, x->o->model));
    TRY(vla_net_init(&x->net, &c, NULL));
    n = (size_t)x->net.t.n_param;
    n_mean = (size_t)(x->o->seqs * c.chunk * c.action);
    x->params = mem_alloc(n, sizeof(float));
    x->m = mem_alloc(n, sizeof(float));
    x->v = mem_alloc(n, sizeof(float));
    x->mean = mem_alloc(n_mean, sizeof(float));
    x->d_mean = mem_alloc(n_mean, sizeof(float));
    x->value = mem_alloc((size_t)x->o->seqs, sizeof(float));
    if (!x->params || !x->m || !x->v || !x->mean || !x->d_mean || !x->value)
        return ST_NOMEM;
    vla_init(&c, &x->net.t, 1, -1, x->params);
    x->net.params = x->params;
    x->pruned = x->net; // the same, so only the net is freed
    x->pruned.c.keep = x->o->keep;
    for (size_t i = 0; i < n_mean; i++)
        x->d_mean[i] = 1;
    TRY(make_batch(x));
    for (int i = 0; i < x->o->threads; i++)
        TRY(make_part(x, i));
    return team_create(&x->team, (int)x->o->threads);
}

static void drop(struct bench *x)
{
    void *all[] = {x->cu_image, x->cu_text, x->camera, x->text, x->image, x->pixels, x->state,
                   x->params,   x->m,       x->v,      x->mean, x->value, x->d_mean};

    team_destroy(x->team);
    for (int i = 0; i < THREADS_MAX; i++) {
        mem_free(x->part[i].cu);
        mem_free(x->part[i].grad);
        for (int way = 0; way < N_WAY; way++) {
            vla_work_destroy(x->part[i].train[way]);
            vla_work_destroy(x->part[i].infer[way]);
        }
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    vla_net_fini(&x->net);
}

// Seconds of each way and repetition, and what packing and pruning bring in each repetition.
static void report_kind(struct json *j, const char *kind, double seconds[N_WAY][REPS_MAX], int n)
{
    static const char *const names[] = {"", "_padded", "_pruned"};
    double packing[REPS_MAX], pruning[REPS_MAX];
    char key[64];

    for (int i = 0; i < n; i++) {
        packing[i] = seconds[PADDED][i] / seconds[PACKED][i];
        pruning[i] = seconds[PACKED][i] / seconds[PRUNED][i];
    }
    for (int way = 0; way < N_WAY; way++) {
        snprintf(key, sizeof key, "%s%s_s", kind, names[way]);
        bench_spread(j, key, seconds[way], n);
    }
    snprintf(key, sizeof key, "%s_packed_over_padded", kind);
    bench_spread(j, key, packing, n);
    snprintf(key, sizeof key, "%s_pruned_over_packed", kind);
    bench_spread(j, key, pruning, n);
}

static void report(struct bench *x, double wall[2][N_WAY][REPS_MAX], double cpu[2][N_WAY][REPS_MAX])
{
    const int n = (int)x->o->reps;
    struct json j;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "bench", "vla");
    json_str(&j, "model", x->o->model);
    json_int(&j, "parameters", x->net.t.n_param);
    json_int(&j, "sequences", x->b.n_seq);
    json_int(&j, "pictures", x->cu_image[x->b.n_seq]);
    json_int(&j, "text_tokens", x->cu_text[x->b.n_seq]);
    json_int(&j, "keep", x->o->keep);
    report_kind(&j, "train", wall[1], n);
    report_kind(&j, "infer", wall[0], n);
    report_kind(&j, "train_cpu", cpu[1], n);
    report_kind(&j, "infer_cpu", cpu[0], n);
    json_close(&j, '}');
    cmd_print_json(&j);
}

static enum status measure(struct bench *x)
{
    double wall[2][N_WAY][REPS_MAX], cpu[2][N_WAY][REPS_MAX], unused;

    TRY(make(x));
    for (int way = 0; way < N_WAY; way++)
        TRY(run(x, (enum way)way, true, &unused, &unused)); // memory is touched for the first time
    for (int i = 0; i < x->o->reps; i++)
        for (int train = 0; train < 2; train++)
            for (int way = 0; way < N_WAY; way++)
                TRY(run(x, (enum way)way, train, &wall[train][way][i], &cpu[train][way][i]));
    report(x, wall, cpu);
    return ST_OK;
}

int bench_vla(int argc, char **argv)
{
    struct vla_options o;
    struct bench *x;
    enum status st;
    int code = cmd_begin(table, &o, "bench vla [--option=value ...]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    x = mem_alloc(1, sizeof *x);
    if (!x)
        return cmd_fail(ST_NOMEM);
    x->o = &o;
    st = measure(x);
    drop(x);
    mem_free(x);
    return st == ST_OK ? EXIT_DONE : cmd_fail(st);
}
