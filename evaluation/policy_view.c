#include "evaluation/policy_view.h"

#include "evaluation/resize.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/wire/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANGES_MAX 16
#define ALIGN(n)   (((n) + 63) / 64 * 64)

struct range { // numbers offset to offset + n - 1 of the observation
    int offset, n;
};

struct source { // of one item
    char key[SPEC_NAME_MAX];
    // of a picture
    uint32_t offset, w, h;
    bool flip_v, flip_h;
    struct resize *resize; // NULL = as it is
    // of numbers
    int n_range;
    struct range ranges[RANGES_MAX];
    bool single; // float32
    // where the item's bytes are in the scratch; a resize's before and between behind it
    size_t at, turned, between;
};

struct policy_view {
    struct source sources[POLICY_ITEMS_MAX];
    struct policy_input shape;
    struct policy_task task;
    size_t scratch;
    int problems;
};

// Note something that does not fit, and go on to find the rest.
static void problem(struct policy_view *v)
{
    v->problems++;
    log_error("eval", "policy and task do not fit: %s", error_last()->text);
}

static size_t claim(struct policy_view *v, size_t n)
{
    size_t at = v->scratch;

    v->scratch += ALIGN(n);
    return at;
}

static struct source *add(struct policy_view *v, const char *key, size_t n)
{
    struct source *s = &v->sources[v->shape.n_item];

    if (n < 1 || n >= sizeof s->key || v->shape.n_item == POLICY_ITEMS_MAX) {
        (void)FAIL(ST_INVAL, "'%.*s': %s", (int)n, key,
                   v->shape.n_item == POLICY_ITEMS_MAX ? "too many items" : "no key of an item");
        problem(v);
        return NULL;
    }
    memcpy(s->key, key, n);
    v->shape.items[v->shape.n_item].key = s->key;
    v->shape.n_item++;
    return s;
}

// ------------------------------------------------------------------ pictures

static enum status set_picture(struct policy_view *v, struct source *s, const struct spec *spec,
                               const struct policy_options *o, const char *name)
{
    const struct spec_picture *p = spec_picture_find(spec, name);
    struct tensor *t = &v->shape.items[s - v->sources].value;
    char list[512];
    int w, h;

    if (!p)
        return FAIL(ST_INVAL, "there is no picture '%s'; there are: %s", name,
                    spec_picture_list(spec, list, sizeof list));
    if (p->plane != SPEC_RGB)
        return FAIL(ST_INVAL, "picture '%s' is of %s, expected rgb", name,
                    spec_plane_name((enum spec_plane)p->plane));
    s->offset = p->offset;
    s->w = p->width;
    s->h = p->height;
    s->flip_v = (p->orient > 0) != (o->orient > 0);
    s->flip_h = (p->orient > 1) != (o->orient > 1);
    w = (int)s->w;
    h = (int)s->h;
    if (o->resize != POLICY_RESIZE_NONE) {
        TRY(policy_read_size(o->resize_to, RESIZE_MAX, &w, &h));
        if (w != (int)s->w || h != (int)s->h)
            TRY(resize_create(&s->resize,
                              o->resize == POLICY_RESIZE_PAD ? RESIZE_PAD : RESIZE_PLAIN, (int)s->w,
                              (int)s->h, w, h));
    }
    *t = (struct tensor){TENSOR_U1, 3, {(uint32_t)h, (uint32_t)w, 3}, NULL};
    s->at = claim(v, tensor_bytes(t));
    if (s->resize) {
        s->turned = claim(v, (size_t)s->w * s->h * 3);
        s->between = claim(v, resize_scratch(s->resize));
    }
    return ST_OK;
}

// The next "KEY=VALUE" of a list at *p; false at its end.
static bool next_pair(struct policy_view *v, const char **p, struct source **s, char *value,
                      size_t size)
{
    size_t n = strcspn(*p, ",");
    const char *eq = memchr(*p, '=', n);

    if (!**p)
        return false;
    *s = add(v, *p, eq ? (size_t)(eq - *p) : 0);
    snprintf(value, size, "%.*s", eq ? (int)(*p + n - eq - 1) : 0, eq ? eq + 1 : "");
    *p += n + ((*p)[n] == ',');
    return true;
}

// ------------------------------------------------------------------ numbers

// "FIELD" or "FIELD[FROM:TO]"
static enum status add_range(struct source *s, const struct spec *spec, const char *text)
{
    char name[SPEC_NAME_MAX], *end;
    size_t n = strcspn(text, "[");
    const struct spec_field *f;
    long from = 0, to;

    snprintf(name, sizeof name, "%.*s", (int)n, text);
    f = spec_field_find(spec, name);
    if (!f)
        return FAIL(ST_INVAL, "the observations of %s have no numbers '%s'", spec->task, name);
    if (s->n_range == RANGES_MAX)
        return FAIL(ST_INVAL, "'%s': more than %d fields", s->key, RANGES_MAX);
    to = f->n;
    if (text[n]) {
        from = strtol(text + n + 1, &end, 10);
        to = *end == ':' ? strtol(end + 1, &end, 10) : -1;
        if (strcmp(end, "]") != 0 || from < 0 || to <= from || to > f->n)
            return FAIL(ST_INVAL, "'%s': expected FIELD[FROM:TO] within 0:%d", text, f->n);
    }
    s->ranges[s->n_range++] = (struct range){f->offset + (int)from, (int)(to - from)};
    return ST_OK;
}

static enum status set_numbers(struct policy_view *v, struct source *s, const struct spec *spec,
                               const struct policy_options *o, const char *fields)
{
    struct tensor *t = &v->shape.items[s - v->sources].value;
    char field[OPT_STR_MAX];
    const char *p = fields;
    int i;

    s->single = o->state_type;
    *t = (struct tensor){.type = s->single ? TENSOR_F4 : TENSOR_F8, .n_dim = 1};
    do {
        size_t n = strcspn(p, "+");

        snprintf(field, sizeof field, "%.*s", (int)n, p);
        TRY(add_range(s, spec, field));
        p += n + (p[n] == '+');
    } while (*p);
    for (i = 0; i < s->n_range; i++)
        t->shape[0] += (uint32_t)s->ranges[i].n;
    s->at = claim(v, tensor_bytes(t));
    return ST_OK;
}

// ------------------------------------------------------------------ the whole

static void fill(struct policy_view *v, const struct spec *spec, const struct policy_options *o)
{
    char value[OPT_STR_MAX];
    struct source *s;
    const char *p;

    for (p = o->images; next_pair(v, &p, &s, value, sizeof value);) {
        if (s)
            v->shape.items[s - v->sources].picture = true;
        if (s && set_picture(v, s, spec, o, value) != ST_OK)
            problem(v);
    }
    for (p = o->states; next_pair(v, &p, &s, value, sizeof value);)
        if (s && set_numbers(v, s, spec, o, value) != ST_OK)
            problem(v);
}

enum status policy_view_create(struct policy_view **out, const struct spec *spec,
                               const struct policy_options *options)
{
    struct policy_view *v = mem_alloc(1, sizeof *v);
    int n;

    if (!v)
        return ST_NOMEM;
    snprintf(v->task.name, sizeof v->task.name, "%s", spec->task);
    snprintf(v->task.prompt, sizeof v->task.prompt, "%s", spec->instruction);
    v->task.n_act = spec->n_act;
    v->task.obs_bytes = (size_t)spec->n_obs * sizeof(double);
    v->task.picture_bytes = spec->picture_bytes;
    fill(v, spec, options);
    n = v->problems;
    if (n == 0) {
        *out = v;
        return ST_OK;
    }
    policy_view_destroy(v);
    return n == 1 ? error_prefix("policy and task do not fit")
                  : FAIL(ST_INVAL, "policy and task do not fit in %d points", n);
}

void policy_view_destroy(struct policy_view *v)
{
    int i;

    if (!v)
        return;
    for (i = 0; i < v->shape.n_item; i++)
        resize_destroy(v->sources[i].resize);
    mem_free(v);
}

size_t policy_view_scratch(const struct policy_view *v)
{
    return v->scratch;
}

const struct policy_task *policy_view_task(const struct policy_view *v)
{
    return &v->task;
}

const struct policy_input *policy_view_shape(const struct policy_view *v)
{
    return &v->shape;
}

static void turn(const struct source *s, const uint8_t *src, uint8_t *dst)
{
    size_t row = (size_t)s->w * 3, y, x;

    for (y = 0; y < s->h; y++, dst += row) {
        const uint8_t *line = src + (s->flip_v ? s->h - 1 - y : y) * row;

        if (!s->flip_h) {
            memcpy(dst, line, row);
            continue;
        }
        for (x = 0; x < s->w; x++)
            memcpy(dst + 3 * x, line + 3 * (s->w - 1 - x), 3);
    }
}

static void make_picture(const struct source *s, const uint8_t *pictures, uint8_t *scratch)
{
    if (!s->resize) {
        turn(s, pictures + s->offset, scratch + s->at);
        return;
    }
    turn(s, pictures + s->offset, scratch + s->turned);
    resize_run(s->resize, scratch + s->turned, scratch + s->at, scratch + s->between);
}

static void make_numbers(const struct source *s, const double *obs, uint8_t *scratch)
{
    double *wide = (void *)(scratch + s->at);
    float *narrow = (void *)(scratch + s->at);
    int i, k;

    for (i = 0; i < s->n_range; i++)
        for (k = 0; k < s->ranges[i].n; k++) {
            if (s->single)
                *narrow++ = (float)obs[s->ranges[i].offset + k];
            else
                *wide++ = obs[s->ranges[i].offset + k];
        }
}

void policy_view_make(const struct policy_view *v, const double *obs, const uint8_t *pictures,
                      void *scratch, struct policy_input *in)
{
    int i;

    in->n_item = v->shape.n_item;
    memcpy(in->items, v->shape.items, sizeof in->items);
    for (i = 0; i < in->n_item; i++) {
        const struct source *s = &v->sources[i];

        if (in->items[i].picture)
            make_picture(s, pictures, scratch);
        else
            make_numbers(s, obs, scratch);
        in->items[i].value.data = (uint8_t *)scratch + s->at;
    }
}
