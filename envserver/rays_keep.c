#include "envserver/rays_keep.h"

#include "common/base/mem.h"

#include <string.h>

static void release(struct kept *kept)
{
    mem_free(kept->key);
    mem_free(kept->rgb);
    mem_free(kept->t);
    mem_free(kept->hit);
    mem_free(kept->limit);
    memset(kept, 0, sizeof *kept);
}

void rays_keep_fini(struct rays_keep *k)
{
    int i;

    for (i = 0; i < k->n; i++)
        release(&k->kept[i]);
    mem_free(k->key);
    memset(k, 0, sizeof *k);
}

// --- keys ---------------------------------------------------------------------------------------

static void put(struct rays_keep *k, const void *p, size_t n)
{
    memcpy(k->key + k->key_bytes, p, n);
    k->key_bytes += n;
}

#define PUT(k, x) put(k, &(x), sizeof(x))

static size_t key_most(const struct rays_scene *s)
{
    return sizeof(struct rays_view) + sizeof(struct rays_scene) + 64 +
           (size_t)s->n_inst * (sizeof(struct rays_inst) + sizeof(int)) +
           (size_t)s->n_geom * (sizeof(struct rays_material) + sizeof(int));
}

static void put_view(struct rays_keep *k, const struct rays_view *v)
{
    PUT(k, v->eye);
    PUT(k, v->right);
    PUT(k, v->up);
    PUT(k, v->forward);
    PUT(k, v->e0);
    PUT(k, v->e1);
    PUT(k, v->ortho);
    PUT(k, v->near);
    PUT(k, v->far);
    PUT(k, v->gl);
}

// Words are enough for a hash: the keys themselves are compared.
static uint64_t hash_of(const uint8_t *p, size_t n)
{
    uint64_t h = n * 0x9e3779b97f4a7c15u + 1, x;
    size_t i;

    for (i = 0; i + sizeof x <= n; i += sizeof x) {
        memcpy(&x, p + i, sizeof x);
        h = (h ^ x) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

// All that the picture depends on. Meshes and textures do not change.
static enum status set_key(struct rays_keep *k, const struct rays_scene *s, const bool *still,
                           int samples)
{
    size_t most = key_most(s);
    int i;

    if (most > k->key_room) {
        uint8_t *key = mem_resize(k->key, most, 1);

        if (!key)
            return ST_NOMEM;
        k->key = key;
        k->key_room = most;
    }
    k->key_bytes = 0;
    PUT(k, samples);
    PUT(k, s->width);
    PUT(k, s->height);
    put_view(k, &s->main);
    PUT(k, s->n_light);
    PUT(k, s->no_light);
    put(k, s->main.light, (size_t)s->n_light * sizeof s->main.light[0]);
    PUT(k, s->sky);
    PUT(k, s->sky_distance);
    PUT(k, s->n_slice);
    for (i = 0; i < s->n_inst; i++)
        if (still[s->inst[i].geom]) {
            PUT(k, i);
            PUT(k, s->inst[i]);
        }
    for (i = 0; i < s->n_geom; i++)
        if (still[i]) {
            PUT(k, i);
            PUT(k, s->material[i]);
        }
    while (k->key_bytes % sizeof k->hash)
        k->key[k->key_bytes++] = 0;
    k->hash = hash_of(k->key, k->key_bytes);
    return ST_OK;
}

// --- pictures -----------------------------------------------------------------------------------

enum status rays_keep_find(struct rays_keep *k, const struct rays_scene *s, const bool *still,
                           int samples, struct kept **out, bool *missing)
{
    int i;

    *out = NULL;
    *missing = false;
    TRY(set_key(k, s, still, samples));
    k->frame++;
    for (i = 0; i < k->n; i++) {
        struct kept *e = &k->kept[i];

        if (e->hash == k->hash && e->key_bytes == k->key_bytes &&
            memcmp(e->key, k->key, k->key_bytes) == 0) {
            e->used = k->frame;
            *out = e;
            return ST_OK;
        }
    }
    for (i = 0; i < KEEP_RING; i++)
        *missing = *missing || k->ring[i] == k->hash;
    k->ring[k->frame % KEEP_RING] = k->hash;
    return ST_OK;
}

static int n_tile(const struct rays_scene *s)
{
    return (s->width + TILE - 1) / TILE * ((s->height + TILE - 1) / TILE);
}

void rays_keep_drop(struct rays_keep *k, struct kept *kept)
{
    k->bytes -= kept->bytes;
    release(kept);
    *kept = k->kept[--k->n];
    memset(&k->kept[k->n], 0, sizeof k->kept[k->n]);
}

// Drop what has been idle until there is room for `bytes` more.
static bool make_room(struct rays_keep *k, size_t bytes)
{
    while (k->n == KEEP_MAX || k->bytes + bytes > KEEP_BYTES) {
        struct kept *oldest = &k->kept[0];
        int i;

        for (i = 1; i < k->n; i++)
            if (k->kept[i].used < oldest->used)
                oldest = &k->kept[i];
        if (k->n == 0 || k->frame - oldest->used < KEEP_IDLE)
            return false;
        rays_keep_drop(k, oldest);
    }
    return true;
}

struct kept *rays_keep_add(struct rays_keep *k, const struct rays_scene *s, int samples)
{
    size_t pixels = (size_t)s->width * (size_t)s->height, tiles = (size_t)n_tile(s);
    size_t n_ray = (size_t)samples * TILE_PIXELS;
    struct kept *e;
    size_t bytes = 3 * pixels + tiles * (n_ray * 12 + 4) + k->key_bytes;

    if (!make_room(k, bytes))
        return NULL;
    e = &k->kept[k->n++];
    e->hash = k->hash;
    e->key_bytes = k->key_bytes;
    e->bytes = bytes;
    e->used = k->frame;
    e->n_ray = (int)n_ray;
    k->bytes += bytes;
    e->key = mem_alloc(k->key_bytes, 1);
    e->rgb = mem_alloc(pixels, 3);
    e->t = mem_alloc(tiles * n_ray, sizeof *e->t);
    e->hit = mem_alloc(tiles * n_ray, 2 * sizeof *e->hit);
    e->limit = mem_alloc(tiles, sizeof *e->limit);
    if (!e->key || !e->rgb || !e->t || !e->hit || !e->limit) {
        rays_keep_drop(k, e);
        return NULL;
    }
    memcpy(e->key, k->key, k->key_bytes);
    return e;
}

void rays_keep_save(struct kept *e, int at, struct rays_tile *tile)
{
    size_t n = (size_t)e->n_ray, from = (size_t)at * n;

    e->limit[at] = rays_tile_limit(tile);
    memcpy(e->t + from, tile->t, n * sizeof *e->t);
    memcpy(e->hit + 2 * from, tile->inst, n * sizeof *e->hit);
    memcpy(e->hit + 2 * from + n, tile->prim, n * sizeof *e->hit);
}

void rays_keep_load(const struct kept *e, int at, struct rays_tile *tile)
{
    size_t n = (size_t)e->n_ray, from = (size_t)at * n;

    tile->limit = e->limit[at];
    tile->stale = false;
    memcpy(tile->t, e->t + from, n * sizeof *e->t);
    memcpy(tile->inst, e->hit + 2 * from, n * sizeof *e->hit);
    memcpy(tile->prim, e->hit + 2 * from + n, n * sizeof *e->hit);
}

uint64_t rays_keep_changed(const struct kept *e, int at, const struct rays_tile *tile)
{
    const int *before = e->hit + 2 * (size_t)at * (size_t)e->n_ray;
    int n = e->n_ray / TILE_PIXELS, q, s;
    uint64_t changed = 0;

    for (q = 0; q < TILE_PIXELS; q++)
        for (s = q * n; s < (q + 1) * n; s++)
            changed |= (uint64_t)(tile->inst[s] != before[s]) << q;
    return changed;
}
