#include "nn/vla_priv.h"

#include <string.h>

static enum status check_range(const char *what, int at, int value, int64_t end)
{
    if (value < 0 || value >= end)
        return FAIL(ST_INVAL, "%s %d of the batch is %d, expected 0 to %lld", what, at, value,
                    (long long)end - 1);
    return ST_OK;
}

static enum status check_lengths(const char *what, const int *cu, int n_seq)
{
    if (cu[0] != 0)
        return FAIL(ST_INVAL, "cumulative %s of the batch begin with %d, expected 0", what, cu[0]);
    for (int s = 0; s < n_seq; s++)
        if (cu[s + 1] < cu[s])
            return FAIL(ST_INVAL, "cumulative %s of the batch fall from %d to %d at sequence %d",
                        what, cu[s], cu[s + 1], s);
    return ST_OK;
}

static enum status check_fits(const char *what, int64_t n, int room)
{
    if (n > room)
        return FAIL(ST_INVAL, "the batch has %lld %s, the workspace has room for %d", (long long)n,
                    what, room);
    return ST_OK;
}

static int longest(const int *cu, int n_seq)
{
    int most = 0;

    for (int s = 0; s < n_seq; s++)
        most = cu[s + 1] - cu[s] > most ? cu[s + 1] - cu[s] : most;
    return most;
}

// `each_image`, `each_text`: what every sequence is padded to, 0 without padding.
static enum status check(const struct vla_config *c, const struct vla_room *room,
                         const struct vla_batch *b, int each_image, int each_text)
{
    const int64_t n = b->n_seq;

    if (room->padded && c->keep < 100)
        return FAIL(ST_INVAL, "padded batches keep all tokens of pictures, this model %lld percent",
                    (long long)c->keep);
    if (c->head == VLA_FLOW && (!b->noisy || !b->time))
        return FAIL(ST_INVAL, "the batch has no noisy actions or times, which a flow needs");
    TRY(check_fits("sequences", n, room->seqs));
    TRY(check_fits("pictures", room->padded ? n * each_image : b->cu_image[n], room->images));
    TRY(check_fits("tokens", room->padded ? n * each_text : b->cu_text[n], room->texts));
    for (int i = 0; i < b->cu_image[n]; i++)
        TRY(check_range("camera", i, b->camera[i], c->cameras));
    for (int i = 0; i < b->cu_text[n]; i++)
        TRY(check_range("token", i, b->text[i], c->vocab));
    return ST_OK;
}

// The next row of the prefix, at `position` of its sequence, `attn` in the order of attention.
static int prefix_row(struct vla_plan *p, int position, int attn)
{
    p->prefix_position[p->n_prefix] = position;
    p->prefix_attn[p->n_prefix] = attn;
    return p->n_prefix++;
}

// The tokens of one more picture; which of them pass is not known yet.
static void add_image(struct vla_plan *p, int patches, const uint8_t *image, int camera)
{
    p->image[p->n_image++] = image;
    for (int k = 0; k < patches; k++) {
        p->all_place[p->n_patch] = k;
        p->all_camera[p->n_patch++] = camera;
    }
}

// Rows of the prefix for n tokens of pictures that pass, as if they were the first.
static void add_kept(struct vla_plan *p, int n, int position, int attn)
{
    for (int k = 0; k < n; k++)
        p->image_to[p->n_vision++] = prefix_row(p, position + k, attn + k);
}

// Token number `all` of the pictures passes, as row `kept` of those that do.
static void keep_one(struct vla_plan *p, int kept, int all)
{
    p->kept[kept] = all;
    p->place[kept] = p->all_place[all];
    p->camera[kept] = p->all_camera[all];
}

static void count_by_image(struct vla_plan *p, int patches)
{
    int at = 0;

    for (int i = 0; i < p->n_image; i++) {
        p->cu_vision[i] = at;
        while (at < p->n_vision && p->kept[at] < (i + 1) * patches)
            at++;
    }
    p->cu_vision[p->n_image] = at;
}

// How many of a sequence's scores are better than that of `at`; of equal ones the first.
static int rank_of(const real *score, int n, int at)
{
    int better = 0;

    for (int i = 0; i < n; i++)
        better += score[i] > score[at] || (score[i] == score[at] && i < at);
    return better;
}

void vla_plan_keep(struct vla_plan *p, const struct vla_config *c, const real *score)
{
    const int patches = vla_patches(c);
    int kept = 0;

    for (int s = 0; s < p->n_seq; s++) {
        const int first = p->cu_patch[s], n = p->cu_patch[s + 1] - first;
        const int n_kept = vla_kept(c, n / patches), end = kept + n_kept;

        for (int i = 0; i < n && kept < end; i++)
            if (rank_of(score + first, n, i) < n_kept) {
                p->prefix_position[p->image_to[kept]] = i;
                keep_one(p, kept++, first + i);
            }
    }
    count_by_image(p, patches);
}

static void add_text(struct vla_plan *p, int token, int position, int attn)
{
    p->text[p->n_text] = token;
    p->text_to[p->n_text++] = prefix_row(p, position, attn);
}

// The suffix of a sequence whose prefix has n rows that count, in attention from `attn` on.
static void add_suffix(struct vla_plan *p, int chunk, int n, int position, int attn)
{
    for (int j = 0; j <= chunk; j++) {
        const int row = p->n_suffix++;

        p->suffix_position[row] = position + j;
        p->suffix_attn[row] = attn + n + j;
        p->query[row] = j;
        p->suffix_limit[row] = p->limit[attn + n + j] = j < chunk ? n + chunk : n + chunk + 1;
        if (j < chunk)
            p->action_at[p->n_seq * chunk + j] = row;
        else
            p->value_at[p->n_seq] = row;
    }
}

enum status vla_plan_fill(struct vla_plan *p, const struct vla_config *c,
                          const struct vla_room *room, const struct vla_batch *b)
{
    const int patches = vla_patches(c), chunk = (int)c->chunk;
    int each_image, each_text;

    TRY(check_range("number of sequences", 0, b->n_seq, (int64_t)room->seqs + 1));
    TRY(check_lengths("pictures", b->cu_image, b->n_seq));
    TRY(check_lengths("tokens", b->cu_text, b->n_seq));
    each_image = room->padded ? longest(b->cu_image, b->n_seq) : 0;
    each_text = room->padded ? longest(b->cu_text, b->n_seq) : 0;
    TRY(check(c, room, b, each_image, each_text));
    p->n_seq = p->n_image = p->n_patch = p->n_vision = p->n_text = 0;
    p->n_prefix = p->n_suffix = p->n_attn = 0;
    p->cu_patch[0] = p->cu_attn[0] = p->cu_suffix[0] = p->cu_asking[0] = 0;
    for (int s = 0; s < b->n_seq; s++) {
        const int n_image = b->cu_image[s + 1] - b->cu_image[s];
        const int n_text = b->cu_text[s + 1] - b->cu_text[s], attn = p->n_attn;
        const int n_kept = vla_kept(c, n_image), text = n_image * patches;
        const int n = n_kept + n_text + 1; // of the prefix, without padding
        int pad = attn + n + chunk + 1, i, *asking = p->asking + p->cu_asking[s];

        for (i = 0; i < n_image; i++)
            add_image(p, patches, b->image[b->cu_image[s] + i], b->camera[b->cu_image[s] + i]);
        add_kept(p, n_kept, 0, attn);
        for (; i < each_image; i++, pad += patches) {
            add_image(p, patches, p->blank, 0);
            add_kept(p, patches, 0, pad);
        }
        for (i = 0; i < n_text; i++) {
            add_text(p, b->text[b->cu_text[s] + i], text + i, attn + n_kept + i);
            *asking++ = p->n_prefix - 1;
        }
        for (; i < each_text; i++)
            add_text(p, 0, 0, pad++);
        p->state_to[s] = prefix_row(p, text + n_text, attn + n - 1);
        *asking = p->state_to[s];
        for (i = 0; i < n; i++)
            p->limit[attn + i] = n;
        for (i = attn + n + chunk + 1; i < pad; i++)
            p->limit[i] = 0; // padding sees nothing, and nobody sees it
        add_suffix(p, chunk, n, text + n_text + 1, attn);
        p->n_attn = pad;
        p->n_seq++;
        p->cu_attn[p->n_seq] = p->n_attn;
        p->cu_suffix[p->n_seq] = p->n_suffix;
        p->cu_patch[p->n_seq] = p->n_patch;
        p->cu_asking[p->n_seq] = p->cu_asking[s] + n_text + 1;
    }
    for (int i = 0; i < p->n_vision && c->keep == 100; i++)
        keep_one(p, i, i);
    count_by_image(p, patches);
    return ST_OK;
}
