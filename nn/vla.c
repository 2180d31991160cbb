#include "nn/vla.h"

#include "common/base/mem.h"
#include "nn/vla_priv.h"

#include <string.h>

// --- memory -------------------------------------------------------------------------------------

// Hands out pieces of one block; without a block it only counts.
struct arena {
    char *base;
    int64_t used;
};

static void *take(struct arena *a, int64_t n, size_t size)
{
    const int64_t bytes = (n * (int64_t)size + 63) / 64 * 64;
    void *p = a->base ? a->base + a->used : NULL;

    a->used += bytes;
    return p;
}

#define TAKE_REAL(n) take(a, (n), sizeof(real))
#define TAKE_INT(n)  take(a, (n), sizeof(int))

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Rows that a workspace has room for.
struct rows {
    int64_t patch, vision, prefix, suffix, attn;
};

static struct rows rows_of(const struct vla_config *c, const struct vla_room *room)
{
    struct rows r = {.patch = (int64_t)room->images * vla_patches(c),
                     .suffix = room->seqs * (c->chunk + 1)};

    // each sequence's share is rounded up
    r.vision = c->keep == 100 ? r.patch : r.patch * c->keep / 100 + room->seqs;
    r.prefix = r.vision + room->texts + room->seqs;
    r.attn = r.prefix + r.suffix;
    return r;
}

static void place_plan(struct vla_work *w, struct arena *a, const struct vla_config *c,
                       const struct rows *r)
{
    struct vla_plan *p = &w->plan;
    const struct vla_room *room = &w->room;

    p->image = take(a, room->images, sizeof *p->image);
    p->all_place = TAKE_INT(r->patch);
    p->all_camera = TAKE_INT(r->patch);
    p->cu_patch = TAKE_INT(room->seqs + 1);
    p->kept = TAKE_INT(r->vision);
    p->place = TAKE_INT(r->vision);
    p->camera = TAKE_INT(r->vision);
    p->image_to = TAKE_INT(r->vision);
    p->cu_vision = TAKE_INT(room->images + 1);
    p->asking = TAKE_INT(room->texts + room->seqs);
    p->cu_asking = TAKE_INT(room->seqs + 1);
    p->text = TAKE_INT(room->texts);
    p->text_to = TAKE_INT(room->texts);
    p->state_to = TAKE_INT(room->seqs);
    p->prefix_position = TAKE_INT(r->prefix);
    p->prefix_attn = TAKE_INT(r->prefix);
    p->suffix_position = TAKE_INT(r->suffix);
    p->suffix_attn = TAKE_INT(r->suffix);
    p->query = TAKE_INT(r->suffix);
    p->action_at = TAKE_INT(r->suffix);
    p->value_at = TAKE_INT(room->seqs);
    p->cu_attn = TAKE_INT(room->seqs + 1);
    p->cu_suffix = TAKE_INT(room->seqs + 1);
    p->limit = TAKE_INT(r->attn);
    p->suffix_limit = TAKE_INT(r->suffix);
    p->blank = take(a, room->padded ? VLA_RGB * c->image * c->image : 0, 1);
}

// What a block keeps beside x; `stats` numbers a row for each norm.
static void place_keep(struct arena *a, struct vla_keep *k, int64_t n, int64_t width, int64_t up,
                       int64_t stats)
{
    k->stat1 = TAKE_REAL(n * stats);
    k->mid = TAKE_REAL(n * width);
    k->stat2 = TAKE_REAL(n * stats);
    k->up = TAKE_REAL(n * up);
}

static void place_vision(struct vla_work *w, struct arena *a, const struct vla_config *c, int64_t n)
{
    const bool all = w->room.backward && !w->room.checkpoint;

    for (int i = 0; i < c->vision_layers; i++) {
        struct vla_vision_keep *k = &w->vision[i];
        real *x;

        if (i > 0 && !all)
            *k = w->vision[0];
        x = i == 0 || w->room.backward ? TAKE_REAL(n * c->vision_width) : k->s.x;
        if (i == 0 || all) {
            place_keep(a, &k->s, n, c->vision_width, c->vision_mlp, 2);
            k->qkv = TAKE_REAL(3 * n * c->vision_width);
            k->o = TAKE_REAL(n * c->vision_width);
            k->lse = TAKE_REAL(n * c->vision_heads);
        }
        k->s.x = x;
    }
    w->vision_out = w->room.backward ? TAKE_REAL(n * c->vision_width) : w->vision[0].s.x;
    w->vision_stat = TAKE_REAL(2 * n);
}

static void place_trunk(struct vla_work *w, struct arena *a, const struct vla_config *c,
                        const struct rows *r)
{
    const bool all = w->room.backward && !w->room.checkpoint;
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const bool keeps_kv = c->head == VLA_FLOW && !w->room.backward; // for vla_again

    for (int i = 0; i < c->layers; i++) {
        struct vla_trunk_keep *k = &w->trunk[i];
        real *x[N_STREAM];

        if (i > 0 && !all)
            *k = w->trunk[0];
        for (int s = 0; s < N_STREAM; s++)
            x[s] =
                i > 0 && !w->room.backward
                    ? k->s[s].x
                    : TAKE_REAL(s == PREFIX ? r->prefix * c->width : r->suffix * c->expert_width);
        if (keeps_kv && i > 0) {
            k->k = TAKE_REAL(r->attn * kv);
            k->v = TAKE_REAL(r->attn * kv);
        }
        if (i == 0 || all) {
            const bool last = i > 0 && i == c->layers - 1;
            const int64_t n_q = last ? r->suffix : r->attn;

            place_keep(a, &k->s[PREFIX], last ? 0 : r->prefix, c->width, 2 * c->mlp, 1);
            if (last) // of the prefix only the norm before keys and values
                k->s[PREFIX].stat1 = TAKE_REAL(r->prefix);
            place_keep(a, &k->s[SUFFIX], r->suffix, c->expert_width, 2 * c->expert_mlp, 1);
            k->q = TAKE_REAL(n_q * q);
            k->o = TAKE_REAL(n_q * q);
            k->lse = TAKE_REAL(n_q * c->heads);
            k->k = TAKE_REAL(r->attn * kv);
            k->v = TAKE_REAL(r->attn * kv);
        }
        for (int s = 0; s < N_STREAM; s++)
            k->s[s].x = x[s];
    }
    w->suffix_out =
        w->room.backward ? TAKE_REAL(r->suffix * c->expert_width) : w->trunk[0].s[SUFFIX].x;
    w->suffix_stat = TAKE_REAL(r->suffix);
}

// The most positions, and keys, that a sequence of the room can have.
static int longest_sequence(const struct vla_config *c, const struct vla_room *room)
{
    return room->images * vla_patches(c) + room->texts + 1 + (int)c->chunk + 1;
}

static void place_prune(struct vla_work *w, struct arena *a, const struct vla_config *c,
                        const struct rows *r)
{
    const int64_t n_asking = w->room.texts + w->room.seqs;

    if (c->keep == 100)
        return;
    w->prune.x = TAKE_REAL(r->patch * c->vision_width);
    w->prune.normed = TAKE_REAL(r->patch * c->vision_width);
    w->prune.token = TAKE_REAL(r->patch * c->width);
    w->prune.k = TAKE_REAL(r->patch * c->kv_heads * c->head_dim);
    w->prune.score = TAKE_REAL(r->patch);
    w->prune.asking = TAKE_REAL(n_asking * c->width);
    w->prune.q = TAKE_REAL(n_asking * c->heads * c->head_dim);
    if (w->room.backward)
        w->prune.kept_patches = TAKE_REAL(r->vision * VLA_RGB * c->patch * c->patch);
}

static void place_flow(struct vla_work *w, struct arena *a, const struct vla_config *c)
{
    const int64_t numbers = w->room.seqs * c->chunk * c->expert_width;
    struct vla_flow *f = &w->flow;

    if (c->head != VLA_FLOW)
        return;
    f->in = TAKE_REAL(2 * numbers);
    f->mid = TAKE_REAL(numbers);
    f->act = TAKE_REAL(numbers);
    f->out = TAKE_REAL(numbers);
    f->time = TAKE_REAL(c->expert_width);
    if (!w->room.backward)
        return;
    f->d_in = TAKE_REAL(2 * numbers);
    f->d_mid = TAKE_REAL(numbers);
    f->d_out = TAKE_REAL(numbers);
}

static void place_scratch(struct vla_work *w, struct arena *a, const struct vla_config *c,
                          const struct rows *r)
{
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const int64_t n_trunk = most(r->prefix, r->suffix);
    const int64_t norm =
        most(most(r->vision * c->vision_width, r->prefix * c->width), r->suffix * c->expert_width);
    const int64_t qkv = n_trunk * (q + 2 * kv);
    const int64_t act = most(most(r->vision * c->vision_mlp, r->prefix * c->mlp),
                             r->suffix * most(c->expert_mlp, c->expert_width));
    const int64_t up = most(r->prefix * 2 * c->mlp, r->suffix * 2 * c->expert_mlp);
    const int64_t os = most(most(n_trunk * q, r->vision * c->width),
                            most(r->vision * c->vision_width, w->room.seqs * c->width));
    const int dim = (int)c->head_dim, vision_dim = (int)(c->vision_width / c->vision_heads);
    const bool back = w->room.backward;

    w->rope = TAKE_REAL((int64_t)longest_sequence(c, &w->room) * dim);
    w->patches = TAKE_REAL(r->patch * VLA_RGB * c->patch * c->patch);
    w->norm = TAKE_REAL(norm);
    w->qkv = TAKE_REAL(qkv);
    w->act = TAKE_REAL(act);
    w->os = TAKE_REAL(os);
    w->attn_scratch = TAKE_REAL(most(nn_attention_scratch(longest_sequence(c, &w->room), dim, back),
                                     nn_attention_scratch(vla_patches(c), vision_dim, back)));
    if (!back)
        return;
    w->d_vision = TAKE_REAL(r->vision * c->vision_width);
    w->d_prefix = TAKE_REAL(r->prefix * c->width);
    w->d_suffix = TAKE_REAL(r->suffix * c->expert_width);
    w->d_norm = TAKE_REAL(norm);
    w->d_qkv = TAKE_REAL(most(qkv, 3 * r->vision * c->vision_width));
    w->d_act = TAKE_REAL(act);
    w->d_up = TAKE_REAL(up);
    w->d_os = TAKE_REAL(os);
    w->dq = TAKE_REAL(r->attn * q);
    w->dk = TAKE_REAL(r->attn * kv);
    w->dv = TAKE_REAL(r->attn * kv);
    w->d_o = TAKE_REAL(r->attn * q);
}

// All of a workspace in `base`, or only its size. w->room is set.
static int64_t place(struct vla_work *w, const struct vla_config *c, void *base)
{
    const struct rows r = rows_of(c, &w->room);
    struct arena a = {.base = base};

    place_plan(w, &a, c, &r);
    place_vision(w, &a, c, r.vision);
    place_trunk(w, &a, c, &r);
    place_prune(w, &a, c, &r);
    place_flow(w, &a, c);
    place_scratch(w, &a, c, &r);
    return a.used;
}

int64_t vla_work_bytes(const struct vla_config *c, const struct vla_room *room)
{
    struct vla_work w = {.room = *room};

    return place(&w, c, NULL) + (int64_t)sizeof w;
}

enum status vla_work_create(struct vla_work **out, const struct vla_net *net,
                            const struct vla_room *room)
{
    struct vla_work *w;

    if (room->seqs < 1 || room->images < 0 || room->texts < 0)
        return FAIL(ST_INVAL,
                    "room for %d sequences, %d pictures, %d tokens; expected 1, 0, 0 and "
                    "more",
                    room->seqs, room->images, room->texts);
    w = mem_alloc(1, sizeof *w);
    if (!w)
        return ST_NOMEM;
    w->room = *room;
    w->bytes = place(w, &net->c, NULL);
    w->memory = mem_alloc((size_t)w->bytes, 1);
    if (!w->memory) {
        mem_free(w);
        return ST_NOMEM;
    }
    (void)place(w, &net->c, w->memory);
    net->op->rope_table(longest_sequence(&net->c, room), (int)net->c.head_dim, VLA_ROPE_BASE,
                        w->rope);
    *out = w;
    return ST_OK;
}

void vla_work_destroy(struct vla_work *w)
{
    if (!w)
        return;
    mem_free(w->memory);
    mem_free(w);
}

// --- the net ------------------------------------------------------------------------------------

enum status vla_net_init(struct vla_net *net, const struct vla_config *c, const real *params)
{
    TRY(vla_config_check(c));
    *net = (struct vla_net){.c = *c, .op = &nn_cpu, .params = params};
    return vla_table_init(&net->t, c);
}

void vla_net_fini(struct vla_net *net)
{
    vla_table_fini(&net->t);
}

// Rows of the prefix that are no pictures.
static void embed(const struct vla_net *net, struct vla_work *w, const struct vla_batch *b)
{
    const struct nn_backend *op = net->op;
    const struct vla_plan *p = &w->plan;
    const int width = (int)net->c.width;
    const struct nn_linear state =
        vla_linear(net, net->t.state, net->t.state_bias, net->c.state, width);
    real *prefix = w->trunk[0].s[PREFIX].x;

    op->rows_copy(
        &(struct nn_rows){.n = p->n_text, .width = width, .from = p->text, .to = p->text_to},
        net->params + net->t.text, width, prefix, width);
    op->linear_forward(&state, p->n_seq, b->state, state.n_in, w->os, width);
    op->rows_copy(&(struct nn_rows){.n = p->n_seq, .width = width, .to = p->state_to}, w->os, width,
                  prefix, width);
}

static void embed_suffix(const struct vla_net *net, struct vla_work *w, const struct vla_batch *b)
{
    const struct vla_plan *p = &w->plan;
    const int narrow = (int)net->c.expert_width;

    net->op->rows_copy(&(struct nn_rows){.n = p->n_suffix, .width = narrow, .from = p->query},
                       net->params + net->t.query, narrow, w->trunk[0].s[SUFFIX].x, narrow);
    if (net->c.head == VLA_FLOW)
        vla_flow_forward(net, w, b);
}

static void embed_backward(const struct vla_net *net, struct vla_work *w, const struct vla_batch *b,
                           real *grad)
{
    const struct nn_backend *op = net->op;
    const struct vla_plan *p = &w->plan;
    const int width = (int)net->c.width, narrow = (int)net->c.expert_width;
    const struct nn_linear state =
        vla_linear(net, net->t.state, net->t.state_bias, net->c.state, width);

    op->rows_add(
        &(struct nn_rows){.n = p->n_text, .width = width, .from = p->text_to, .to = p->text},
        w->d_prefix, width, grad + net->t.text, width);
    op->rows_copy(&(struct nn_rows){.n = p->n_seq, .width = width, .from = p->state_to},
                  w->d_prefix, width, w->d_os, width);
    vla_linear_backward(net, &state, p->n_seq, b->state, w->d_os, NULL, grad);
    op->rows_add(&(struct nn_rows){.n = p->n_suffix, .width = narrow, .to = p->query}, w->d_suffix,
                 narrow, grad + net->t.query, narrow);
    if (net->c.head == VLA_FLOW)
        vla_flow_backward(net, w, b, grad);
}

// The two heads and the rows of the suffix that they read.
struct head {
    struct nn_linear l;
    int n;
    const int *at;
};

static struct head mean_head(const struct vla_net *net, const struct vla_plan *p)
{
    return (struct head){
        .l = vla_linear(net, net->t.mean, net->t.mean_bias, net->c.expert_width, net->c.action),
        .n = p->n_seq * (int)net->c.chunk,
        .at = p->action_at};
}

static struct head value_head(const struct vla_net *net, const struct vla_plan *p)
{
    return (struct head){
        .l = vla_linear(net, net->t.value, net->t.value_bias, net->c.expert_width, 1),
        .n = p->n_seq,
        .at = p->value_at};
}

static struct nn_norm last_norm(const struct vla_net *net)
{
    return (struct nn_norm){.width = (int)net->c.expert_width,
                            .eps = (real)VLA_NORM_EPS,
                            .weight = net->params + net->t.expert_norm};
}

// From the normed rows in w->norm; w->act holds those that the head reads.
static void head_forward(const struct vla_net *net, struct vla_work *w, const struct head *h,
                         real *out)
{
    const int width = h->l.n_in;

    net->op->rows_copy(&(struct nn_rows){.n = h->n, .width = width, .from = h->at}, w->norm, width,
                       w->act, width);
    net->op->linear_forward(&h->l, h->n, w->act, width, out, h->l.n_out);
}

static void head_backward(const struct vla_net *net, struct vla_work *w, const struct head *h,
                          const real *d_out, real *grad)
{
    const int width = h->l.n_in;

    net->op->rows_copy(&(struct nn_rows){.n = h->n, .width = width, .from = h->at}, w->norm, width,
                       w->act, width);
    vla_linear_backward(net, &h->l, h->n, w->act, d_out, w->d_act, grad);
    net->op->rows_copy(&(struct nn_rows){.n = h->n, .width = width, .to = h->at}, w->d_act, width,
                       w->d_norm, width);
}

enum status vla_forward(const struct vla_net *net, struct vla_work *w,
                        const struct vla_batch *batch, real *mean, real *value)
{
    const struct nn_norm norm = last_norm(net);
    struct head actions, values;

    TRY(vla_plan_fill(&w->plan, &net->c, &w->room, batch));
    actions = mean_head(net, &w->plan);
    values = value_head(net, &w->plan);
    w->again = false;
    embed(net, w, batch);
    embed_suffix(net, w, batch);
    vla_vision_forward(net, w);
    vla_trunk_forward(net, w);
    net->op->rms_forward(&norm, w->plan.n_suffix, w->suffix_out, w->norm, w->suffix_stat);
    head_forward(net, w, &actions, mean);
    if (value)
        head_forward(net, w, &values, value);
    return ST_OK;
}

void vla_again(const struct vla_net *net, struct vla_work *w, const struct vla_batch *batch,
               real *velocity)
{
    const struct nn_norm norm = last_norm(net);
    const struct head actions = mean_head(net, &w->plan);

    w->again = true;
    embed_suffix(net, w, batch);
    vla_trunk_forward(net, w);
    net->op->rms_forward(&norm, w->plan.n_suffix, w->suffix_out, w->norm, NULL);
    head_forward(net, w, &actions, velocity);
}

void vla_backward(const struct vla_net *net, struct vla_work *w, const struct vla_batch *batch,
                  const real *d_mean, const real *d_value, real *grad)
{
    const struct nn_norm norm = last_norm(net);
    const struct head actions = mean_head(net, &w->plan), values = value_head(net, &w->plan);
    const int n = w->plan.n_suffix;

    net->op->rms_forward(&norm, n, w->suffix_out, w->norm, NULL);
    memset(w->d_norm, 0, (size_t)n * (size_t)norm.width * sizeof *w->d_norm);
    if (d_mean)
        head_backward(net, w, &actions, d_mean, grad);
    if (d_value)
        head_backward(net, w, &values, d_value, grad);
    net->op->rms_backward(
        &norm, n, w->suffix_out, w->suffix_stat, w->d_norm,
        &(struct nn_norm_grad){.dx = w->d_suffix, .dweight = grad + net->t.expert_norm});
    vla_trunk_backward(net, w, grad);
    embed_backward(net, w, batch, grad);
    vla_vision_backward(net, w, grad);
}
