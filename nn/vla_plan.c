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

static void add_image(struct vla_plan *p, int patches, const uint8_t *image, int camera,
                      int position, int attn)
{
    p->image[p->n_image++] = image;
    for (int k = 0; k < patches; k++) {
        p->patch[p->n_vision] = k;
        p->camera[p->n_vision] = camera;
        p->image_to[p->n_vision++] = prefix_row(p, position + k, attn + k);
    }
    p->cu_vision[p->n_image] = p->n_vision;
}

static void add_text(struct vla_plan *p, int token, int position, int attn)
{
    p->text[p->n_text] = token;
    p->text_to[p->n_text++] = prefix_row(p, position, attn);
}

// The suffix of a sequence whose prefix has n rows that count, in attention from `attn` on.
static void add_suffix(struct vla_plan *p, int chunk, int n, int attn)
{
    for (int j = 0; j <= chunk; j++) {
        const int row = p->n_suffix++;

        p->suffix_position[row] = n + j;
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
    p->n_seq = p->n_image = p->n_vision = p->n_text = p->n_prefix = p->n_suffix = p->n_attn = 0;
    p->cu_vision[0] = p->cu_attn[0] = p->cu_suffix[0] = 0;
    for (int s = 0; s < b->n_seq; s++) {
        const int n_image = b->cu_image[s + 1] - b->cu_image[s];
        const int n_text = b->cu_text[s + 1] - b->cu_text[s], attn = p->n_attn;
        const int n = n_image * patches + n_text + 1; // of the prefix, without padding
        int pad = attn + n + chunk + 1, i;

        for (i = 0; i < n_image; i++)
            add_image(p, patches, b->image[b->cu_image[s] + i], b->camera[b->cu_image[s] + i],
                      i * patches, attn + i * patches);
        for (; i < each_image; i++, pad += patches)
            add_image(p, patches, p->blank, 0, 0, pad);
        for (i = 0; i < n_text; i++)
            add_text(p, b->text[b->cu_text[s] + i], n_image * patches + i,
                     attn + n_image * patches + i);
        for (; i < each_text; i++)
            add_text(p, 0, 0, pad++);
        p->state_to[s] = prefix_row(p, n - 1, attn + n - 1);
        for (i = 0; i < n; i++)
            p->limit[attn + i] = n;
        for (i = attn + n + chunk + 1; i < pad; i++)
            p->limit[i] = 0; // padding sees nothing, and nobody sees it
        add_suffix(p, chunk, n, attn);
        p->n_attn = pad;
        p->n_seq++;
        p->cu_attn[p->n_seq] = p->n_attn;
        p->cu_suffix[p->n_seq] = p->n_suffix;
    }
    return ST_OK;
}
