// Training steps of a vision-language-action policy on whole episodes: their decisions packed into
// micro-batches, against every episode padded to the longest of the batch and masked.
//
// A decision is a sequence of the policy: pictures, instruction, state, a chunk of actions. The
// loss is behaviour cloning's over the steps that were played, of the last chunk those before the
// episode's end; both ways give the same gradient, which is checked before anything is timed.
// Padded batches lie by decision number, then episode, so that a micro-batch has all instructions.
#include "bench/bench.h"

#include "bench/episode_lengths.h"
#include "cli/cmd.h"
#include "common/base/config.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/thread.h"
#include "common/base/usage.h"
#include "learner/clone_loss.h"
#include "learner/packing.h"
#include "nn/adamw.h"
#include "nn/vla.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define REPS_MAX     100
#define THREADS_MAX  64
#define PICTURES     8    // different ones
#define BINS         11   // of the histogram
#define BIN_STEPS    50   // wide
#define GRADIENT_TOL 1e-5 // between the two ways, relative

struct episodes_options {
    char model[OPT_STR_MAX];
    int suite;
    int64_t episodes, images, tokens, threads, reps;
    double success;
    bool checkpoint;
};

#define AT(field) offsetof(struct episodes_options, field)

static const struct opt table[] = {
    {"model", OPT_STR, AT(model), 0, 0, "vla-tiny", "preset or JSON file", NULL},
    {"suite", OPT_ENUM, AT(suite), 0, 0, "libero_object", "whose lengths; all: in turn",
     EPISODE_SUITES},
    {"success", OPT_REAL, AT(success), 0, 1, "0.6", "share of episodes that succeed", NULL},
    {"episodes", OPT_INT, AT(episodes), 1, 4096, "16", "episodes of a batch", NULL},
    {"images", OPT_INT, AT(images), 0, 16, "2", "pictures of a decision", NULL},
    {"micro-tokens", OPT_INT, AT(tokens), 1, 1 << 20, "4096", "tokens of a micro-batch", NULL},
    {"threads", OPT_INT, AT(threads), 1, THREADS_MAX, "2", "threads, a micro-batch each", NULL},
    {"reps", OPT_INT, AT(reps), 1, REPS_MAX, "5", "repetitions of each way", NULL},
    {"checkpoint", OPT_BOOL, AT(checkpoint), 0, 0, "false", "keep less, compute twice", NULL},
    {0},
};

enum way { PACKED, PADDED, N_WAY };

static const char *const way_names[] = {"packed", "padded"};

struct decision {
    int episode, number; // number-th of the episode
    int n_real;          // steps that were played, 0: padding
};

// What one thread works with.
struct worker {
    struct vla_work *work[N_WAY];
    struct vla_batch b;
    int *cu_image, *cu_text, *camera, *text;
    const uint8_t **image;
    float *state, *mean, *value, *d_mean, *grad;
    double loss;
    enum status st;
    struct error err;
};

struct side { // one way to train on the batch
    struct decision *row;
    int *length; // (n) tokens of each row
    int n;
    struct packing packing;
    struct vla_room room; // of the largest micro-batch
    double loss;          // with the first parameters
};

struct bench {
    const struct episodes_options *o;
    struct vla_net net;
    struct episode *episode; // (episodes)
    int n_decision, longest; // all that were made; those of the longest episode
    double played;           // numbers of actions: the divisor
    struct side side[N_WAY];
    struct worker worker[THREADS_MAX];
    struct team *team;
    uint8_t *pixels;       // (PICTURES, image, image, 3)
    float *state, *target; // (longest, episodes, state), (longest, episodes, chunk, action)
    float *params, *m, *v, *first_grad;
    int64_t step;
    enum way way; // that runs
};

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

static int decisions_of(const struct bench *x, int episode)
{
    return ceil_div(x->episode[episode].steps, (int)x->net.c.chunk);
}

static void *make_floats(int64_t n)
{
    return mem_alloc((size_t)(n > 0 ? n : 1), sizeof(float));
}

// Episodes, and the same random states and targets for both ways.
static enum status make_data(struct bench *x)
{
    const struct vla_config *c = &x->net.c;
    const int n = (int)x->o->episodes;
    const size_t bytes = (size_t)(VLA_RGB * c->image * c->image);
    struct rng r = rng_make(1, RNG_MODEL, 0, 0, 0);
    int64_t all;

    x->episode = mem_alloc((size_t)n, sizeof *x->episode);
    x->pixels = mem_alloc(PICTURES, bytes);
    if (!x->episode || !x->pixels)
        return ST_NOMEM;
    for (int e = 0; e < n; e++) {
        x->episode[e] = episode_draw(x->o->suite, x->o->success, e);
        x->played += (double)(x->episode[e].steps * c->action);
        x->n_decision += decisions_of(x, e);
        x->longest = decisions_of(x, e) > x->longest ? decisions_of(x, e) : x->longest;
    }
    for (size_t i = 0; i < PICTURES * bytes; i++)
        x->pixels[i] = (uint8_t)rng_u32(&r);
    all = (int64_t)x->longest * n;
    x->state = make_floats(all * c->state);
    x->target = make_floats(all * c->chunk * c->action);
    if (!x->state || !x->target)
        return ST_NOMEM;
    for (int64_t i = 0; i < all * c->state; i++)
        x->state[i] = (float)rng_normal(&r);
    for (int64_t i = 0; i < all * c->chunk * c->action; i++)
        x->target[i] = (float)rng_uniform(&r, -1, 1);
    return ST_OK;
}

static void add_row(const struct bench *x, struct side *s, int episode, int number)
{
    const int chunk = (int)x->net.c.chunk, left = x->episode[episode].steps - number * chunk;

    s->row[s->n] = (struct decision){episode, number, left < 0 ? 0 : left < chunk ? left : chunk};
    s->length[s->n++] = vla_tokens(&x->net.c, (int)x->o->images, x->episode[episode].text);
}

// Room for the largest micro-batch of a side.
static void find_room(const struct bench *x, struct side *s, bool padded)
{
    const struct packing *p = &s->packing;

    s->room = (struct vla_room){.backward = true, .checkpoint = x->o->checkpoint, .padded = padded};
    for (int b = 0; b < p->n_batch; b++) {
        const int n = p->first[b + 1] - p->first[b];
        int sum = 0, most = 0;

        for (int i = p->first[b]; i < p->first[b + 1]; i++) {
            const int text = x->episode[s->row[p->item[i]].episode].text;

            sum += text;
            most = text > most ? text : most;
        }
        sum = padded ? n * most : sum;
        s->room.seqs = n > s->room.seqs ? n : s->room.seqs;
        s->room.texts = sum > s->room.texts ? sum : s->room.texts;
    }
    s->room.images = s->room.seqs * (int)x->o->images;
}

static enum status make_side(struct bench *x, enum way way)
{
    struct side *s = &x->side[way];
    const int episodes = (int)x->o->episodes;
    const int n = way == PADDED ? x->longest * episodes : x->n_decision;

    s->row = mem_alloc((size_t)n, sizeof *s->row);
    s->length = mem_alloc((size_t)n, sizeof *s->length);
    if (!s->row || !s->length)
        return ST_NOMEM;
    for (int number = 0; number < x->longest; number++)
        for (int e = 0; e < episodes; e++)
            if (way == PADDED || number < decisions_of(x, e))
                add_row(x, s, e, number);
    TRY(packing_init(&s->packing, n));
    TRY((way == PADDED ? packing_pad : packing_pack)(&s->packing, s->length, n, (int)x->o->tokens));
    find_room(x, s, way == PADDED);
    return ST_OK;
}

static enum status make_worker(struct bench *x, struct worker *w)
{
    const struct vla_config *c = &x->net.c;
    int seqs = 0;

    for (int way = 0; way < N_WAY; way++) {
        seqs = x->side[way].room.seqs > seqs ? x->side[way].room.seqs : seqs;
        TRY(vla_work_create(&w->work[way], &x->net, &x->side[way].room));
    }
    w->cu_image = mem_alloc((size_t)seqs + 1, sizeof(int));
    w->cu_text = mem_alloc((size_t)seqs + 1, sizeof(int));
    w->camera = mem_alloc((size_t)(seqs * x->o->images) + 1, sizeof(int));
    w->text = mem_alloc((size_t)seqs * EPISODE_TEXT_MAX, sizeof(int));
    w->image = mem_alloc((size_t)(seqs * x->o->images) + 1, sizeof *w->image);
    w->state = make_floats(seqs * c->state);
    w->mean = make_floats(seqs * c->chunk * c->action);
    w->d_mean = make_floats(seqs * c->chunk * c->action);
    w->value = make_floats(seqs);
    w->grad = make_floats(x->net.t.n_param);
    if (!w->cu_image || !w->cu_text || !w->camera || !w->text || !w->image || !w->state ||
        !w->mean || !w->d_mean || !w->value || !w->grad)
        return ST_NOMEM;
    return ST_OK;
}

static enum status make(struct bench *x)
{
    struct vla_config c;
    int64_t n;

    TRY(vla_config_read(&c, x->o->model));
    TRY(vla_net_init(&x->net, &c, NULL));
    n = x->net.t.n_param;
    x->params = make_floats(n);
    x->m = make_floats(n);
    x->v = make_floats(n);
    x->first_grad = make_floats(n);
    if (!x->params || !x->m || !x->v || !x->first_grad)
        return ST_NOMEM;
    vla_init(&c, &x->net.t, 1, -1, x->params);
    x->net.params = x->params;
    TRY(make_data(x));
    for (int way = 0; way < N_WAY; way++)
        TRY(make_side(x, (enum way)way));
    for (int i = 0; i < x->o->threads; i++)
        TRY(make_worker(x, &x->worker[i]));
    return team_create(&x->team, (int)x->o->threads);
}

static void drop(struct bench *x)
{
    void *all[] = {x->episode, x->pixels, x->state, x->target,
                   x->params,  x->m,      x->v,     x->first_grad};

    team_destroy(x->team);
    for (int i = 0; i < THREADS_MAX; i++) {
        struct worker *w = &x->worker[i];
        void *own[] = {w->cu_image, w->cu_text, w->camera, w->text,  w->image,
                       w->state,    w->mean,    w->d_mean, w->value, w->grad};

        for (int way = 0; way < N_WAY; way++)
            vla_work_destroy(w->work[way]);
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            mem_free(own[k]);
    }
    for (int way = 0; way < N_WAY; way++) {
        packing_fini(&x->side[way].packing);
        mem_free(x->side[way].row);
        mem_free(x->side[way].length);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    vla_net_fini(&x->net);
}

// Sequence s of the worker's batch.
static void gather(const struct bench *x, struct worker *w, int s, const struct decision *d)
{
    const struct vla_config *c = &x->net.c;
    const struct episode *e = &x->episode[d->episode];
    const int64_t at = (int64_t)d->number * x->o->episodes + d->episode;
    const size_t bytes = (size_t)(VLA_RGB * c->image * c->image);

    w->cu_image[s + 1] = w->cu_image[s] + (int)x->o->images;
    w->cu_text[s + 1] = w->cu_text[s] + e->text;
    for (int i = w->cu_image[s]; i < w->cu_image[s + 1]; i++) {
        const int camera = i - w->cu_image[s];

        w->camera[i] = camera % (int)c->cameras;
        w->image[i] = x->pixels + (size_t)((at + camera) % PICTURES) * bytes;
    }
    for (int i = 0; i < e->text; i++)
        w->text[w->cu_text[s] + i] = (e->suite * 41 + e->task * 17 + i * 7) % (int)c->vocab;
    memcpy(w->state + s * c->state, x->state + at * c->state, (size_t)c->state * sizeof(float));
}

static enum status run_micro(struct bench *x, struct worker *w, int micro)
{
    const struct side *side = &x->side[x->way];
    const struct packing *p = &side->packing;
    const int *item = p->item + p->first[micro], n = p->first[micro + 1] - p->first[micro];
    const int chunk = (int)x->net.c.chunk, action = (int)x->net.c.action;

    w->cu_image[0] = w->cu_text[0] = 0;
    for (int s = 0; s < n; s++)
        gather(x, w, s, &side->row[item[s]]);
    w->b = (struct vla_batch){.n_seq = n,
                              .cu_image = w->cu_image,
                              .image = w->image,
                              .camera = w->camera,
                              .cu_text = w->cu_text,
                              .text = w->text,
                              .state = w->state};
    TRY(vla_forward(&x->net, w->work[x->way], &w->b, w->mean, w->value));
    for (int s = 0; s < n; s++) {
        const struct decision *d = &side->row[item[s]];
        const int64_t at = (int64_t)d->number * x->o->episodes + d->episode;

        w->loss += clone_loss(CLONE_L2, w->mean + (ptrdiff_t)s * chunk * action,
                              x->target + at * chunk * action, d->n_real, chunk, action, NULL,
                              w->d_mean + (ptrdiff_t)s * chunk * action, NULL);
    }
    vla_backward(&x->net, w->work[x->way], &w->b, w->d_mean, NULL, w->grad);
    return ST_OK;
}

static void work(void *arg, int i, int n)
{
    struct bench *x = arg;
    struct worker *w = &x->worker[i];

    memset(w->grad, 0, (size_t)x->net.t.n_param * sizeof *w->grad);
    w->loss = 0;
    w->st = ST_OK;
    for (int micro = i; micro < x->side[x->way].packing.n_batch && w->st == ST_OK; micro += n)
        w->st = run_micro(x, w, micro);
    if (w->st != ST_OK)
        w->err = *error_last();
}

static void sum_up(void *arg, int i, int n)
{
    struct bench *x = arg;
    const int64_t from = x->net.t.n_param * i / n, end = x->net.t.n_param * (i + 1) / n;

    for (int k = 1; k < n; k++)
        for (int64_t j = from; j < end; j++)
            x->worker[0].grad[j] += x->worker[k].grad[j];
}

static void update(void *arg, int i, int n)
{
    static const struct adamw adamw = {.lr = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    struct bench *x = arg;
    const int64_t from = x->net.t.n_param * i / n, end = x->net.t.n_param * (i + 1) / n;

    adamw_step(&adamw, x->step, x->worker[0].grad + from, 1 / x->played, end - from,
               x->params + from, x->m + from, x->v + from);
}

// Gradient, a sum, of the whole batch into the first thread's.
static enum status gradient(struct bench *x, enum way way)
{
    x->way = way;
    team_run(x->team, work, x);
    for (int i = 0; i < x->o->threads; i++)
        if (x->worker[i].st != ST_OK)
            return error_adopt(&x->worker[i].err);
    team_run(x->team, sum_up, x);
    return ST_OK;
}

static enum status train(struct bench *x, enum way way, double *wall_s, double *cpu_s)
{
    const int64_t start = clock_now_ns();
    const double cpu = usage_cpu_s();

    TRY(gradient(x, way));
    x->step++;
    team_run(x->team, update, x);
    *wall_s = (double)(clock_now_ns() - start) / 1e9;
    *cpu_s = usage_cpu_s() - cpu;
    return ST_OK;
}

// Mean over what was played, of the last gradient.
static double loss_of(const struct bench *x)
{
    double sum = 0;

    for (int i = 0; i < x->o->threads; i++)
        sum += x->worker[i].loss;
    return sum / x->played;
}

// How far apart the two ways' gradients of the same parameters are, relative (2-norms).
static enum status compare(struct bench *x, double *difference)
{
    double apart = 0, norm = 0;

    TRY(gradient(x, PACKED));
    x->side[PACKED].loss = loss_of(x);
    memcpy(x->first_grad, x->worker[0].grad, (size_t)x->net.t.n_param * sizeof(float));
    TRY(gradient(x, PADDED));
    x->side[PADDED].loss = loss_of(x);
    for (int64_t i = 0; i < x->net.t.n_param; i++) {
        const double a = x->first_grad[i], b = x->worker[0].grad[i];

        apart += (a - b) * (a - b);
        norm += a * a;
    }
    *difference = sqrt(apart / norm);
    if (!(*difference <= GRADIENT_TOL)) // NaN too: no gradient at all
        return FAIL(ST_INVAL, "packed and padded gradients differ by %g of their norm %g",
                    *difference, sqrt(norm));
    return ST_OK;
}

// Episodes whose steps are in [0, BIN_STEPS), [BIN_STEPS, 2 BIN_STEPS), ...
static void report_histogram(struct json *j, const struct bench *x)
{
    int count[BINS] = {0}, text_min = EPISODE_TEXT_MAX, text_max = 0, success = 0;

    for (int e = 0; e < x->o->episodes; e++) {
        const int text = x->episode[e].text;

        count[x->episode[e].steps / BIN_STEPS]++;
        success += x->episode[e].success;
        text_min = text < text_min ? text : text_min;
        text_max = text > text_max ? text : text_max;
    }
    json_int(j, "episodes", x->o->episodes);
    json_int(j, "successes", success);
    json_int(j, "bin_steps", BIN_STEPS);
    json_open(j, "histogram", '[');
    for (int i = 0; i < BINS; i++)
        json_int(j, NULL, count[i]);
    json_close(j, ']');
    json_int(j, "text_tokens_min", text_min);
    json_int(j, "text_tokens_max", text_max);
}

static void report_side(struct json *j, const struct bench *x, enum way way, double *seconds)
{
    const struct side *s = &x->side[way];

    json_open(j, way_names[way], '{');
    json_int(j, "decisions", s->n);
    json_int(j, "tokens", s->packing.computed);
    json_int(j, "micro_batches", s->packing.n_batch);
    json_real(j, "loss", s->loss);
    bench_spread(j, "train_s", seconds, (int)x->o->reps);
    json_close(j, '}');
}

static void report(const struct bench *x, double difference, double wall[N_WAY][REPS_MAX],
                   double cpu[N_WAY][REPS_MAX])
{
    const int n = (int)x->o->reps;
    double ratio[REPS_MAX], cpu_ratio[REPS_MAX];
    struct json j;

    for (int i = 0; i < n; i++) {
        ratio[i] = wall[PADDED][i] / wall[PACKED][i];
        cpu_ratio[i] = cpu[PADDED][i] / cpu[PACKED][i];
    }
    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "bench", "episodes");
    json_str(&j, "model", x->o->model);
    json_int(&j, "parameters", x->net.t.n_param);
    report_histogram(&j, x);
    for (int way = 0; way < N_WAY; way++)
        report_side(&j, x, (enum way)way, wall[way]);
    json_real(&j, "gradient_difference", difference);
    json_real(&j, "tokens_padded_over_packed",
              (double)x->side[PADDED].packing.computed / (double)x->side[PACKED].packing.computed);
    bench_spread(&j, "train_packed_over_padded", ratio, n);
    bench_spread(&j, "cpu_packed_over_padded", cpu_ratio, n);
    json_close(&j, '}');
    cmd_print_json(&j);
}

static enum status measure(struct bench *x)
{
    double wall[N_WAY][REPS_MAX], cpu[N_WAY][REPS_MAX], difference;

    TRY(make(x));
    TRY(compare(x, &difference)); // touches all memory, too
    for (int i = 0; i < x->o->reps; i++)
        for (int way = 0; way < N_WAY; way++)
            TRY(train(x, (enum way)way, &wall[way][i], &cpu[way][i]));
    report(x, difference, wall, cpu);
    return ST_OK;
}

int bench_episodes(int argc, char **argv)
{
    struct episodes_options o;
    struct bench *x;
    enum status st;
    int code = cmd_begin(table, &o, "bench episodes [--option=value ...]", argc, argv, 0, NULL);

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
