#include "nn/published_priv.h"

#include "common/base/mem.h"
#include "nn/heads.h"

#include <math.h>
#include <string.h>

#define ROPE_BASE 10000 // of all three, whatever SmolVLA's language model says of itself

// --- making and ending --------------------------------------------------------------------------

static int most(int a, int b)
{
    return a > b ? a : b;
}

static int kv_width(const struct published *p)
{
    return p->kv_heads * p->head_dim;
}

static int expert_step(const struct published *p)
{
    return p->prefix.n_layer / p->expert.n_layer;
}

static bool is_joint(const struct published *p, int i)
{
    return p->self_every > 0 && i % p->self_every == 0;
}

static enum status caches(struct published *p)
{
    const int64_t kv = kv_width(p), all = p->max_prefix + p->max_suffix;

    for (int i = 0; i < p->prefix.n_layer; i++) {
        TRY(pub_hold(p, all * kv, &p->k[i]));
        TRY(pub_hold(p, all * kv, &p->v[i]));
        if (is_joint(p, i) || i % expert_step(p) != 0)
            continue;
        TRY(pub_hold(p, p->max_prefix * kv, &p->cross_k[i]));
        TRY(pub_hold(p, p->max_prefix * kv, &p->cross_v[i]));
    }
    return ST_OK;
}

static enum status room(struct published *p)
{
    const int width = most(p->prefix.width, p->expert.width);
    const int mlp = most(p->prefix.mlp, p->expert.mlp), q = p->heads * p->head_dim;
    int64_t rows, all;
    float *ints;

    p->max_prefix = p->shape.cameras * pub_tower_tokens(&p->tower) + p->shape.texts + 1;
    p->max_suffix = p->shape.chunk + 1;
    rows = most(p->max_prefix, p->max_suffix);
    all = p->max_prefix + p->max_suffix;
    TRY(pub_tower_room(p));
    TRY(caches(p));
    TRY(pub_hold(p, rows * width, &p->x));
    TRY(pub_hold(p, rows * width, &p->norm));
    TRY(pub_hold(p, rows * q, &p->q));
    TRY(pub_hold(p, rows * q, &p->o));
    TRY(pub_hold(p, rows * 2 * mlp, &p->up));
    TRY(pub_hold(p, rows * most(most(mlp, width), q), &p->act));
    TRY(pub_hold(p, p->max_suffix * (int64_t)width, &p->s));
    TRY(pub_hold(p, p->max_suffix * (int64_t)(2 * width), &p->in));
    TRY(pub_hold(p, width, &p->time));
    TRY(pub_hold(p, width, &p->cond));
    TRY(pub_hold(p, 3 * (int64_t)width, &p->mod));
    TRY(pub_hold(p, p->state.n_in, &p->padded));
    TRY(pub_hold(p, width, &p->seen_state));
    TRY(pub_hold(p, (int64_t)p->shape.chunk * p->shape.n_action, &p->noisy));
    TRY(pub_hold(p, (int64_t)p->shape.chunk * p->shape.n_action, &p->velocity));
    TRY(pub_hold(p, nn_attention_scratch((int)all, p->head_dim, false), &p->scratch));
    TRY(pub_hold(p, all * p->head_dim, &p->rope));
    nn_rope_table((int)all, p->head_dim, ROPE_BASE, p->rope);
    _Static_assert(sizeof(int) == sizeof(float), "blocks of floats hold numbers of rows");
    TRY(pub_hold(p, 2 * all, &ints));
    p->limit = (int *)(void *)ints;
    p->position = p->limit + all;
    for (int i = 0; i < all; i++)
        p->position[i] = i;
    return ST_OK;
}

enum status published_open(struct published **out, const char *folder,
                           const struct published_sizes *sizes)
{
    struct published *p = mem_alloc(1, sizeof *p);
    enum status st;

    if (!p)
        return ST_NOMEM;
    st = pub_load(p, folder, sizes);
    if (st == ST_OK)
        st = room(p);
    if (st != ST_OK) {
        published_close(p);
        return st;
    }
    *out = p;
    return ST_OK;
}

void published_close(struct published *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_held; i++)
        mem_free(p->held[i]);
    mem_free(p->held);
    mem_free(p);
}

const struct published_shape *published_shape(const struct published *p)
{
    return &p->shape;
}

// --- a block ------------------------------------------------------------------------------------

// y = norm(x) of n rows; *gate is what the residual's other side is multiplied by, NULL: nothing.
static void normed(struct published *p, const struct pub_stream *s, const struct pub_norm *m, int n,
                   const float *x, float *y, const float **gate)
{
    const int width = s->width;
    struct nn_norm rms = {
        .width = width, .eps = s->gemma ? 1e-6f : 1e-5f, .weight = m->weight, .plus_one = s->gemma};

    *gate = NULL;
    if (!m->weight) {
        pub_linear(&m->dense, 1, p->cond, p->mod);
        rms.weight = p->mod;
        *gate = p->mod + 2 * (ptrdiff_t)width;
    }
    nn_rms_forward(&rms, n, x, y, NULL);
    for (int i = 0; i < n && !m->weight; i++)
        nn_add(width, y + (ptrdiff_t)i * width, p->mod + width, y + (ptrdiff_t)i * width);
}

static void residual(int n, int width, float *x, const float *y, const float *gate)
{
    for (ptrdiff_t i = 0; i < (ptrdiff_t)n * width; i++)
        x[i] += gate ? y[i] * gate[i % width] : y[i];
}

static void rotate(const struct published *p, int heads, int n, const int *position,
                   const float *from, float *to)
{
    const struct nn_rope m = {
        .heads = heads, .head_dim = p->head_dim, .table = p->rope, .position = position};
    const int ld = heads * p->head_dim;

    nn_rope(&m, &(struct nn_rows){.n = n}, from, ld, to, ld);
}

// Keys and values of the normed rows as rows first..first+n-1 of layer i, rotated by their places.
static void keys(struct published *p, const struct pub_block *b, int i, int first, int n)
{
    const ptrdiff_t at = (ptrdiff_t)first * kv_width(p);

    pub_linear(&b->k, n, p->norm, p->act);
    rotate(p, p->kv_heads, n, p->position + first, p->act, p->k[i] + at);
    pub_linear(&b->v, n, p->norm, p->v[i] + at);
}

// p->o of n queries in p->q; limits are p->limit, NULL: all keys.
static void attend(const struct published *p, int n, int n_key, const float *k, const float *v,
                   const int *limit)
{
    const int cu_q[] = {0, n}, cu_k[] = {0, n_key}, q = p->heads * p->head_dim;
    const struct nn_attention a = {.heads = p->heads,
                                   .kv_heads = p->kv_heads,
                                   .head_dim = p->head_dim,
                                   .scale = 1 / (float)sqrt((double)p->head_dim),
                                   .n_seq = 1,
                                   .cu_q = cu_q,
                                   .cu_k = cu_k,
                                   .limit = limit,
                                   .q = p->q,
                                   .k = k,
                                   .v = v,
                                   .ldq = q,
                                   .ldk = kv_width(p),
                                   .ldv = kv_width(p),
                                   .o = p->o,
                                   .ldo = q,
                                   .scratch = p->scratch};

    nn_attention_forward(&a);
}

static void after_attention(struct published *p, const struct pub_stream *s,
                            const struct pub_block *b, int n, float *x, const float *gate)
{
    pub_linear(&b->o, n, p->o, p->act);
    residual(n, s->width, x, p->act, gate);
    normed(p, s, &b->norm2, n, x, p->norm, &gate);
    pub_linear(&b->up, n, p->norm, p->up);
    nn_glu_forward(s->gemma ? NN_GEGLU : NN_SWIGLU, n, s->mlp, p->up, p->act);
    pub_linear(&b->down, n, p->act, p->norm);
    residual(n, s->width, x, p->norm, gate);
}

static void queries(struct published *p, const struct pub_block *b, int n, const int *position)
{
    pub_linear(&b->q, n, p->norm, p->act);
    rotate(p, p->heads, n, position, p->act, p->q);
}

// --- the prefix ---------------------------------------------------------------------------------

static enum status check_row(const struct published *p, const struct published_row *row)
{
    int seen = 0;

    for (int i = 0; i < p->shape.cameras; i++)
        seen += row->image[i] != NULL;
    if (seen == 0)
        return FAIL(ST_INVAL, "a row without pictures, expected 1 to %d", p->shape.cameras);
    if (row->n_text < 0 || row->n_text > p->shape.texts)
        return FAIL(ST_INVAL, "an instruction of %d tokens, expected at most %d", row->n_text,
                    p->shape.texts);
    for (int i = 0; i < row->n_text; i++)
        if (row->text[i] < 0 || row->text[i] >= p->shape.vocab)
            return FAIL(ST_INVAL, "token %d is %d, expected 0 to %d", i, row->text[i],
                        p->shape.vocab - 1);
    for (int i = 0; i < p->shape.state; i++)
        if (!isfinite(row->state[i]))
            return FAIL(ST_INVAL, "state %d is %g, expected a finite number", i,
                        (double)row->state[i]);
    return ST_OK;
}

// The state as one row; what the projection takes besides stays 0.
static void state_row(struct published *p, const float *state, float *out)
{
    memcpy(p->padded, state, (size_t)p->shape.state * sizeof *state);
    pub_linear(&p->state, 1, p->padded, out);
}

static void scale(int n, float by, float *x)
{
    for (int k = 0; k < n; k++)
        x[k] *= by;
}

// Rows of the prefix into p->x; their number.
static int embed(struct published *p, const struct published_row *row)
{
    const int width = p->prefix.width, tokens = pub_tower_tokens(&p->tower);
    const bool smol = p->shape.kind == PUBLISHED_SMOLVLA;
    const float root = (float)sqrt((double)width);
    int n = 0;

    for (int i = 0; i < p->shape.cameras; i++) {
        float *to = p->x + (ptrdiff_t)n * width;

        if (!row->image[i])
            continue;
        pub_tower_forward(&p->tower, row->image[i], to);
        scale(tokens * width, smol ? root : 1, to);
        n += tokens;
    }
    for (int i = 0; i < row->n_text; i++, n++) {
        memcpy(p->x + (ptrdiff_t)n * width, p->embed + (ptrdiff_t)row->text[i] * width,
               (size_t)width * sizeof *p->x);
        scale(width, root, p->x + (ptrdiff_t)n * width);
    }
    if (smol)
        state_row(p, row->state, p->x + (ptrdiff_t)n++ * width);
    else if (p->shape.state > 0)
        state_row(p, row->state, p->seen_state); // for the suffix
    return n;
}

enum status published_see(struct published *p, const struct published_row *row)
{
    const bool smol = p->shape.kind == PUBLISHED_SMOLVLA;
    const struct pub_stream *s = &p->prefix;
    const float *gate;
    int n;

    TRY(check_row(p, row));
    p->n_prefix = n = embed(p, row);
    // SmolVLA's state is a block of its own, which nothing before it sees
    for (int i = 0; i < n; i++)
        p->limit[i] = smol && i < n - 1 ? n - 1 : n;
    for (int i = 0; i < s->n_layer; i++) {
        const struct pub_block *b = &s->block[i];

        normed(p, s, &b->norm1, n, p->x, p->norm, &gate);
        keys(p, b, i, 0, n);
        if (p->cross_k[i]) {
            const struct pub_block *e = &p->expert.block[i / expert_step(p)];

            pub_linear(&e->k, n, p->k[i], p->cross_k[i]);
            pub_linear(&e->v, n, p->v[i], p->cross_v[i]);
        }
        if (i == s->n_layer - 1)
            break; // nobody reads what would leave it
        queries(p, b, n, p->position);
        attend(p, n, n, p->k[i], p->v[i], p->limit);
        after_attention(p, s, b, n, p->x, gate);
    }
    return ST_OK;
}

// --- the suffix ---------------------------------------------------------------------------------

static int suffix_rows(const struct published *p)
{
    return p->shape.chunk + (p->shape.kind == PUBLISHED_PI0);
}

// Rows of noisy actions at time t, and of pi0 one of the state before them; of pi0.5 the time is in
// p->cond.
static void embed_actions(struct published *p, const float *x, double t)
{
    const int width = p->expert.width, chunk = p->shape.chunk;
    float *to = p->s;

    heads_time_embedding(t, width, p->time);
    if (p->shape.kind == PUBLISHED_PI05) {
        pub_linear(&p->action_in, chunk, x, to);
        pub_linear(&p->time_in, 1, p->time, p->cond);
        nn_silu_forward(width, p->cond, p->time);
        pub_linear(&p->time_out, 1, p->time, p->cond);
        nn_silu_forward(width, p->cond, p->cond);
        return;
    }
    if (p->shape.kind == PUBLISHED_PI0) {
        memcpy(to, p->seen_state, (size_t)width * sizeof *to);
        to += width;
    }
    nn_linear_forward(&p->action_in, chunk, x, p->shape.n_action, p->in, 2 * width);
    for (int j = 0; j < chunk; j++)
        memcpy(p->in + (2 * (ptrdiff_t)j + 1) * width, p->time, (size_t)width * sizeof *p->time);
    pub_linear(&p->time_in, chunk, p->in, p->norm);
    nn_silu_forward((int64_t)chunk * width, p->norm, p->norm);
    pub_linear(&p->time_out, chunk, p->norm, to);
}

// How many keys row j of n sees in a joint attention.
static int suffix_limit(const struct published *p, int j, int n)
{
    if (p->shape.kind == PUBLISHED_SMOLVLA)
        return p->n_prefix + j + 1;
    return p->n_prefix + (p->shape.kind == PUBLISHED_PI0 && j == 0 ? 1 : n);
}

void published_velocity(struct published *p, const float *x, double t, float *v)
{
    const struct pub_stream *s = &p->expert;
    const int n = suffix_rows(p), first = p->n_prefix;
    const float *gate;

    embed_actions(p, x, t);
    for (int j = 0; j < n; j++)
        p->limit[j] = suffix_limit(p, j, n);
    for (int i = 0; i < p->prefix.n_layer; i += expert_step(p)) {
        const struct pub_block *b = &s->block[i / expert_step(p)];

        normed(p, s, &b->norm1, n, p->s, p->norm, &gate);
        if (p->cross_k[i]) {
            queries(p, b, n, p->position); // which begin anew, at 0
            attend(p, n, first, p->cross_k[i], p->cross_v[i], NULL);
        } else {
            keys(p, b, i, first, n);
            queries(p, b, n, p->position + first);
            attend(p, n, first + n, p->k[i], p->v[i], p->limit);
        }
        after_attention(p, s, b, n, p->s, gate);
    }
    normed(p, s, &s->norm, n, p->s, p->norm, &gate); // of the last the gate is not used
    pub_linear(&p->action_out, p->shape.chunk, p->norm + (ptrdiff_t)(n - p->shape.chunk) * s->width,
               v);
}

void published_follow(struct published *p, const float *noise, float *action)
{
    const int width = p->shape.n_action, chunk = p->shape.chunk, steps = p->shape.steps;
    const int64_t n = (int64_t)chunk * width;
    float *x = p->noisy, *v = p->velocity;
    const float dt = (float)(-1.0 / steps);

    memcpy(x, noise, (size_t)n * sizeof *x);
    for (int i = 0; i < steps; i++) {
        published_velocity(p, x, (double)(float)(1 - i * (1.0 / steps)), v);
        for (int64_t k = 0; k < n; k++)
            x[k] += dt * v[k];
    }
    for (int j = 0; j < chunk; j++)
        memcpy(action + (ptrdiff_t)j * p->shape.action, x + (ptrdiff_t)j * width,
               (size_t)p->shape.action * sizeof *x);
}
