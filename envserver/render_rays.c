// The rays backend: tiles of the picture, and in each tile what MuJoCo's renderer does to a whole
// frame: mirror image, opaque surfaces, shadows, sky, transparent surfaces; every sample is kept in
// 8 bits and rounded after each step, as the frame buffer does.
#include "envserver/rays_keep.h"
#include "envserver/rays_raster.h"
#include "envserver/rays_shade.h"
#include "envserver/render.h"

#include "common/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FACET_SLOTS 16384 // a power of two, more than twice FRAG_MAX
#define BLOCK_X     16    // tiles that are drawn together: small enough for the cache of a core
#define BLOCK_Y     8
#define PATCH_TILES (PATCH / TILE) // of a side; blocks are whole patches
#define PATCH_RAYS  (PATCH_TILES * PATCH_TILES * TILE_RAYS_MAX)
#define FRAG_MAX    (LAYER_MAX > PATCH_RAYS ? LAYER_MAX : PATCH_RAYS)
#define ALL_PIXELS  UINT64_MAX // of a tile: bit q is pixel q

struct facet_slot {
    uint32_t round;
    int facet;
};

struct rays_worker {
    const struct rays_shared *shared;
    const struct rays_tracer *tracer;
    const struct rays_raster *raster;
    const struct rays_shader *shader;
    struct rays_scene scene;
    struct rays_pattern pattern, centres;
    struct rays_tile block[BLOCK_X * BLOCK_Y], mirror;
    _Alignas(64) float near[TILE_RAYS_MAX], mirror_near[TILE_RAYS_MAX];
    struct pixel8 fb[TILE_RAYS_MAX]; // samples of the tile
    // triangles of the surfaces at hand, found by (instance, triangle)
    int n_facet;
    struct rays_facet facet[FRAG_MAX];
    int next_facet[FRAG_MAX]; // same instance
    struct facet_slot slot[FACET_SLOTS];
    uint32_t round;             // slots of other rounds are empty
    int n_used, used[FRAG_MAX]; // instances that have facets
    // (pixel, triangle) pairs
    int n_frag;
    struct rays_frag frag[FRAG_MAX];
    struct rays_colour colour[FRAG_MAX];
    struct pixel8 colour8[FRAG_MAX];
    int next_frag[FRAG_MAX];       // same instance
    int *first_facet, *first_frag; // owned (max_inst), -1 = none
    int frag_of[FRAG_MAX];         // by ray of the tile or the patch, or by layer
    struct rays_layers layers;
    bool keeps; // what stands still is kept
    struct rays_keep keep;
    bool *still;      // owned (max_geom), of the frame at hand: geoms that stand still
    int *transparent; // owned (max_geom), all of the scene while it shows what stands still
};

struct rays_backend {
    struct rays_shared shared;
    int samples, max_geom;
    bool keeps;
};

// --- create and destroy -------------------------------------------------------------------------

static void backend_destroy(void *p)
{
    struct rays_backend *b = p;

    if (!b)
        return;
    rays_shared_fini(&b->shared);
    mem_free(b);
}

static enum status backend_create(void **out, const mjModel *m, const struct render_config *cfg)
{
    struct rays_backend *b = mem_alloc(1, sizeof *b);
    enum status st;

    if (!b)
        return ST_NOMEM;
    b->samples = cfg->samples;
    b->max_geom = cfg->max_geom;
    b->keeps = !cfg->forget;
    st = rays_shared_init(&b->shared, m);
    if (st != ST_OK) {
        backend_destroy(b);
        return st;
    }
    *out = b;
    return ST_OK;
}

static void worker_destroy(void *p)
{
    struct rays_worker *w = p;

    if (!w)
        return;
    rays_scene_fini(&w->scene);
    rays_keep_fini(&w->keep);
    mem_free(w->still);
    mem_free(w->transparent);
    mem_free(w->first_facet);
    mem_free(w->first_frag);
    mem_free(w);
}

static enum status worker_create(void **out, void *shared)
{
    struct rays_backend *b = shared;
    struct rays_worker *w = mem_alloc(1, sizeof *w);
    int i;

    if (!w)
        return ST_NOMEM;
    w->shared = &b->shared;
    w->tracer = rays_tracer_best();
    w->raster = rays_raster_best();
    w->shader = rays_shader_best();
    rays_pattern_init(&w->pattern, b->samples);
    rays_pattern_init(&w->centres, 1);
    w->first_facet = mem_alloc((size_t)b->max_geom * 3, sizeof *w->first_facet);
    w->first_frag = mem_alloc((size_t)b->max_geom * 3, sizeof *w->first_frag);
    w->keeps = b->keeps;
    w->still = mem_alloc((size_t)b->max_geom, sizeof *w->still);
    w->transparent = mem_alloc((size_t)b->max_geom, sizeof *w->transparent);
    if (!w->first_facet || !w->first_frag || !w->still || !w->transparent ||
        rays_scene_init(&w->scene, b->max_geom) != ST_OK) {
        worker_destroy(w);
        return ST_NOMEM;
    }
    for (i = 0; i < b->max_geom * 3; i++)
        w->first_facet[i] = w->first_frag[i] = -1;
    *out = w;
    return ST_OK;
}

// --- surfaces -----------------------------------------------------------------------------------

static void tile_start(struct rays_tile *tile, const struct rays_pattern *pattern,
                       const float *tnear, int x, int y, float far)
{
    int i;

    tile->pattern = pattern;
    tile->tnear = tnear;
    tile->x = x;
    tile->y = y;
    tile->limit = far;
    tile->stale = false;
    for (i = 0; i < pattern->n_ray; i++) {
        tile->t[i] = far;
        tile->inst[i] = tile->prim[i] = -1;
    }
}

static bool in_tile(const struct rays_seen *seen, const struct rays_tile *tile)
{
    return seen->depth < INFINITY && seen->x[0] < (float)(tile->x + TILE) &&
           seen->x[1] > (float)tile->x && seen->y[0] < (float)(tile->y + TILE) &&
           seen->y[1] > (float)tile->y;
}

// Nearest surfaces of one instance by rays.
static void trace_one(const struct rays_worker *w, const struct rays_view *v, int i,
                      struct rays_tile *tile)
{
    if ((tile->stale || v->seen[i].depth <= tile->limit) && in_tile(&v->seen[i], tile))
        w->tracer->nearest(&w->scene, v, i, tile);
}

static bool in_block(const struct rays_seen *seen, const struct rays_block *b)
{
    return seen->x[0] < (float)(b->x + b->nx * TILE) && seen->x[1] > (float)b->x &&
           seen->y[0] < (float)(b->y + b->ny * TILE) && seen->y[1] > (float)b->y;
}

// Nearest surfaces of a block, from instances `first` to `end` of the order: that is by nearest
// possible depth, so that much of the rest is hidden. What has clusters is drawn as a whole where
// the view has an eye.
static void find_surfaces(const struct rays_worker *w, const struct rays_view *v, int first,
                          int end, bool opaque_only, const struct rays_block *b)
{
    const struct rays_scene *s = &w->scene;
    int k, j, n = b->nx * b->ny;

    for (k = first; k < end; k++) {
        int i = v->order[k];

        if (!in_block(&v->seen[i], b) || (opaque_only && s->material[s->inst[i].geom].transparent))
            continue;
        if (!v->ortho && s->inst[i].mesh->clusters.n_cluster > 0)
            w->raster->draw(s, v, i, b);
        else
            for (j = 0; j < n; j++)
                trace_one(w, v, i, &b->tile[j]);
    }
}

// Begin a set of surfaces.
static void start_frags(struct rays_worker *w)
{
    w->n_frag = w->n_facet = w->n_used = 0;
    if (++w->round == 0) {
        memset(w->slot, 0, sizeof w->slot);
        w->round = 1;
    }
}

// The number of a triangle, old or new.
static int facet_number(struct rays_worker *w, int inst, int prim)
{
    uint32_t at = ((uint32_t)prim * 0x9e3779b1u) ^ ((uint32_t)inst * 0x85ebca6bu);
    struct rays_facet *f;

    for (at = at >> 16 ^ at;; at++) {
        struct facet_slot *slot = &w->slot[at % FACET_SLOTS];

        if (slot->round != w->round) {
            *slot = (struct facet_slot){w->round, w->n_facet};
            break;
        }
        f = &w->facet[slot->facet];
        if (f->prim == prim && f->inst == inst)
            return slot->facet;
    }
    f = &w->facet[w->n_facet];
    f->inst = inst;
    f->prim = prim;
    mesh_prefetch(w->scene.inst[inst].mesh, prim);
    if (w->first_facet[inst] < 0)
        w->used[w->n_used++] = inst;
    w->next_facet[w->n_facet] = w->first_facet[inst];
    w->first_facet[inst] = w->n_facet;
    return w->n_facet++;
}

// Pixel `q` of a tile in its patch.
static uint16_t patch_pixel(const struct rays_tile *tile, int q)
{
    return (uint16_t)((tile->y % PATCH + q / TILE) * PATCH + tile->x % PATCH + q % TILE);
}

// A new (pixel, triangle) pair.
static int add_frag(struct rays_worker *w, uint16_t pixel, int inst, int facet)
{
    w->frag[w->n_frag] = (struct rays_frag){facet, pixel};
    w->next_frag[w->n_frag] = w->first_frag[inst];
    w->first_frag[inst] = w->n_frag;
    return w->n_frag++;
}

// The number of a triangle that neighbours may have seen just before.
static int next_facet(struct rays_worker *w, int inst, int prim)
{
    if (w->n_frag > 0) {
        int facet = w->frag[w->n_frag - 1].facet;

        if (w->facet[facet].prim == prim && w->facet[facet].inst == inst)
            return facet;
    }
    return facet_number(w, inst, prim);
}

// The number of a (pixel, triangle) pair: an earlier one from `since` on, or a new one.
static int frag_number(struct rays_worker *w, int since, uint16_t pixel, int inst, int prim)
{
    int f, facet = next_facet(w, inst, prim);

    for (f = w->n_frag - 1; f >= since; f--)
        if (w->frag[f].facet == facet && w->frag[f].pixel == pixel)
            return f;
    return add_frag(w, pixel, inst, facet);
}

// Light the facets of an instance.
static void prepare(struct rays_worker *w, const struct rays_view *v, int x, int y, int inst,
                    const struct rays_lighting *how)
{
    struct rays_facet *group[SHADE_GROUP];
    int n, f = w->first_facet[inst];

    while (f >= 0) {
        for (n = 0; n < SHADE_GROUP && f >= 0; n++, f = w->next_facet[f])
            group[n] = &w->facet[f];
        w->shader->prepare(&w->scene, v, x, y, group, n, how);
    }
}

// Colours of all pairs, in groups of one instance; (x, y) is in the patch. `exact`: as they are,
// otherwise in 8 bits.
static void shade(struct rays_worker *w, const struct rays_view *v, int x, int y,
                  const struct rays_lighting *how, bool exact)
{
    int i, f, n, which[SHADE_GROUP];

    x -= x % PATCH;
    y -= y % PATCH;
    for (i = 0; i < w->n_used; i++) {
        int inst = w->used[i];

        prepare(w, v, x, y, inst, how);
        for (f = w->first_frag[inst]; f >= 0;) {
            for (n = 0; n < SHADE_GROUP && f >= 0; n++, f = w->next_frag[f])
                which[n] = f;
            if (exact)
                w->shader->colour(&w->scene, v, w->tracer, x, y, w->facet, w->frag, which, n, how,
                                  w->colour);
            else
                w->shader->colour8(&w->scene, w->facet, w->frag, which, n, w->colour8);
        }
        w->first_facet[inst] = w->first_frag[inst] = -1;
    }
}

// Not fminf and fmaxf: those are calls.
static float clamp01(float c)
{
    return c < 0 ? 0 : c > 1 ? 1 : c;
}

static int to8(float c)
{
    return (int)(clamp01(c) * 255 + 0.5f);
}

static int add8(int a, int b)
{
    return a + b > 255 ? 255 : a + b;
}

// The pairs' colours in 8 bits: the base, then each light that may be in shadow added to it.
static void quantize(struct rays_worker *w, unsigned shadowed)
{
    int f, k, l;

    for (f = 0; f < w->n_frag; f++) {
        const struct rays_colour *c = &w->colour[f];

        for (k = 0; k < 3; k++) {
            int x = to8(c->rgba[k]);

            for (l = 0; l < w->scene.n_light && shadowed >> l; l++)
                if (shadowed >> l & 1)
                    x = add8(x, to8(c->light[l][k]));
            w->colour8[f].c[k] = (uint8_t)x;
        }
    }
}

// Write the nearest surfaces into the samples. The mirror's own colour is added to its image: to
// the base, before the lights with shadows; adding saturates, so the order does not matter.
static void compose(struct rays_worker *w, const struct rays_tile *tile, bool over_mirror)
{
    int r, k;

    for (r = 0; r < tile->pattern->n_ray; r++) {
        struct pixel8 c;

        if (tile->inst[r] < 0)
            continue;
        c = w->colour8[w->frag_of[r]];
        if (over_mirror && w->scene.inst[tile->inst[r]].geom == w->scene.mirror_geom)
            for (k = 0; k < 3; k++)
                c.c[k] = (uint8_t)add8(c.c[k], w->fb[r].c[k]);
        w->fb[r] = c;
    }
}

// Do the samples of a pixel all meet the same triangle?
static bool alike(const int *inst, const int *prim, int n)
{
    return n == 1 || ((inst[0] ^ inst[1]) | (inst[0] ^ inst[2]) | (inst[0] ^ inst[3]) |
                      (prim[0] ^ prim[1]) | (prim[0] ^ prim[2]) | (prim[0] ^ prim[3])) == 0;
}

// Add the (pixel, triangle) pairs of the nearest surfaces in `pixels`, and say which by ray.
static void find_frags(struct rays_worker *w, const struct rays_tile *tile, uint64_t pixels,
                       int *frag_of)
{
    int n = tile->pattern->samples, corner = patch_pixel(tile, 0), r;

    for (; pixels; pixels &= pixels - 1) {
        int q = __builtin_ctzll(pixels), since = w->n_frag, *of = frag_of + q * n;
        const int *inst = tile->inst + q * n, *prim = tile->prim + q * n;
        uint16_t pixel = (uint16_t)(corner + q / TILE * PATCH + q % TILE);

        if (alike(inst, prim, n)) {
            if (inst[0] < 0)
                continue;
            of[0] = add_frag(w, pixel, inst[0], next_facet(w, inst[0], prim[0]));
            for (r = 1; r < n; r++)
                of[r] = of[0];
            continue;
        }
        for (r = 0; r < n; r++) {
            if (inst[r] < 0)
                continue;
            if (r && prim[r] == prim[r - 1] && inst[r] == inst[r - 1])
                of[r] = of[r - 1];
            else
                of[r] = frag_number(w, since, pixel, inst[r], prim[r]);
        }
    }
}

// Colours of the surfaces at hand, in 8 bits.
static void shade_frags(struct rays_worker *w, const struct rays_view *v,
                        const struct rays_tile *tile, const struct rays_lighting *how)
{
    shade(w, v, tile->x, tile->y, how, how->shadowed != 0);
    if (how->shadowed)
        quantize(w, how->shadowed);
}

// Colours of the nearest surfaces of a tile.
static void shade_surfaces(struct rays_worker *w, const struct rays_view *v,
                           const struct rays_tile *tile, const struct rays_lighting *how)
{
    start_frags(w);
    find_frags(w, tile, ALL_PIXELS, w->frag_of);
    shade_frags(w, v, tile, how);
}

// --- transparent things -------------------------------------------------------------------------

static int by_triangle(const void *a, const void *b)
{
    const struct rays_layer *x = a, *y = b;

    if (x->inst != y->inst)
        return x->inst - y->inst;
    return x->prim != y->prim ? x->prim - y->prim : x->ray - y->ray;
}

static float window_depth(const struct rays_scene *s, const struct rays_view *v,
                          const struct rays_tile *tile, int ray, int inst, int prim)
{
    const struct rays_pattern *p = tile->pattern;
    const struct rays_inst *in = &s->inst[inst];
    struct rays_depth_rows rows;
    struct mesh_tri tri;

    rays_depth_rows(&rows, &v->gl, in->lin, in->pos);
    mesh_fetch(in->mesh, prim, &tri);
    return rays_depth_at(&v->gl, &rows, tri.p, p->samples, (float)tile->x + p->x[ray],
                         (float)tile->y + p->y[ray]);
}

// Is a layer in front of what is opaque there? Parts of a model may share faces (a clear panel and
// the board that it is glued to): which of them is seen is then a matter of how OpenGL rounds.
static bool in_front(const struct rays_scene *s, const struct rays_view *v,
                     const struct rays_tile *tile, const struct rays_layer *h)
{
    float t = tile->t[h->ray];

    if (h->t < t * (1 - NEARLY) || tile->inst[h->ray] < 0 || v->ortho)
        return h->t <= t;
    return window_depth(s, v, tile, h->ray, h->inst, h->prim) >=
           window_depth(s, v, tile, h->ray, tile->inst[h->ray], tile->prim[h->ray]);
}

// Sort the layers from `first` on by triangle and keep what is seen; one of each: a tree that has
// split a triangle may report it once for every part.
static void order_layers(struct rays_layers *l, int first, const struct rays_scene *s,
                         const struct rays_view *v, const struct rays_tile *tile)
{
    int i, n = first;

    qsort(l->hit + first, (size_t)(l->n - first), sizeof l->hit[0], by_triangle);
    for (i = first; i < l->n; i++)
        if ((n == first || by_triangle(&l->hit[i], &l->hit[n - 1]) != 0) &&
            in_front(s, v, tile, &l->hit[i]))
            l->hit[n++] = l->hit[i];
    l->n = n;
}

// Blend layer `i` over its sample.
static void blend(struct rays_worker *w, int i)
{
    const struct rays_colour *c = &w->colour[w->frag_of[i]];
    uint8_t *dst = w->fb[w->layers.hit[i].ray].c;
    float a = clamp01(c->rgba[3]);
    int k;

    for (k = 0; k < 3; k++)
        dst[k] = (uint8_t)(clamp01(c->rgba[k]) * a * 255 + (float)dst[k] * (1 - a) + 0.5f);
}

// MuJoCo draws the sorted list once forward and once backward; each thing is blended twice, its
// triangles in their own order both times.
static void blend_all(struct rays_worker *w)
{
    int i, end, first, n = w->layers.n;

    for (i = 0; i < n; i++)
        blend(w, i);
    for (end = n; end > 0; end = first) {
        for (first = end - 1; first > 0; first--)
            if (w->layers.hit[first - 1].geom != w->layers.hit[end - 1].geom)
                break;
        for (i = first; i < end; i++)
            blend(w, i);
    }
}

// Layers of all transparent geoms, the nearest geom first.
static void find_layers(struct rays_worker *w, const struct rays_view *v,
                        const struct rays_tile *tile)
{
    const struct rays_scene *s = &w->scene;
    int i, j, g;

    w->layers.n = 0;
    for (i = 0; i < s->n_transparent; i++) {
        int before = w->layers.n;

        g = s->transparent[i];
        for (j = s->first_inst[g]; j < s->first_inst[g + 1]; j++)
            if (in_tile(&v->seen[j], tile))
                w->tracer->layers(s, v, j, tile, &w->layers);
        if (w->layers.n > before)
            order_layers(&w->layers, before, s, v, tile);
    }
}

static void draw_transparent(struct rays_worker *w, const struct rays_view *v,
                             const struct rays_tile *tile, const struct rays_lighting *how)
{
    int i;

    find_layers(w, v, tile);
    start_frags(w);
    for (i = 0; i < w->layers.n; i++) {
        const struct rays_layer *h = &w->layers.hit[i];
        int back = w->n_frag - 4 * TILE_PIXELS;

        w->frag_of[i] =
            frag_number(w, back > 0 ? back : 0, patch_pixel(tile, tile->pattern->pixel[h->ray]),
                        h->inst, h->prim);
    }
    if (w->n_frag > 0) {
        shade(w, v, tile->x, tile->y, how, true);
        blend_all(w);
    }
}

// --- mirror -------------------------------------------------------------------------------------

static bool mirrors(const struct rays_scene *s, const struct rays_tile *tile, int r)
{
    const struct rays_inst *in;

    if (tile->inst[r] < 0)
        return false;
    in = &s->inst[tile->inst[r]];
    return in->geom == s->mirror_geom &&
           (in->mesh->kind != MESH_BOX || mesh_box_is_top(in->mesh, tile->prim[r]));
}

// The image in the mirror, into the samples that see the mirror.
static void draw_mirror(struct rays_worker *w, const struct rays_tile *tile)
{
    const struct rays_scene *s = &w->scene;
    const struct rays_lighting how = {(1u << s->n_light) - 1, 0,
                                      s->material[s->mirror_geom].reflectance};
    bool any = false;
    int r, k;

    tile_start(&w->mirror, tile->pattern, w->mirror_near, tile->x, tile->y, s->main.far);
    for (r = 0; r < tile->pattern->n_ray; r++) {
        bool yes = mirrors(s, tile, r);

        any = any || yes;
        if (yes)
            w->mirror_near[r] = tile->t[r];
        else
            w->mirror.t[r] = 0; // nothing is nearer
    }
    if (!any)
        return;
    for (k = 0; k < s->mirrored.n_order; k++)
        if (!s->material[s->inst[s->mirrored.order[k]].geom].transparent)
            trace_one(w, &s->mirrored, s->mirrored.order[k], &w->mirror);
    shade_surfaces(w, &s->mirrored, &w->mirror, &how);
    compose(w, &w->mirror, false);
    draw_transparent(w, &s->mirrored, &w->mirror, &how);
}

// --- sky ----------------------------------------------------------------------------------------

static void ray_at(const struct rays_view *v, double x, double y, double o[3], double d[3])
{
    int k;

    for (k = 0; k < 3; k++) {
        o[k] = v->o[k] + v->ox[k] * x + v->oy[k] * y;
        d[k] = v->d[k] + v->dx[k] * x + v->dy[k] * y;
    }
}

// Where a ray leaves the closed cylinder around the eye that carries the sky.
static double sky_exit(const struct rays_scene *s, const double o[3], const double d[3])
{
    double t = INFINITY, apothem = s->sky_distance * cos(M_PI / s->n_slice);
    int j;

    for (j = 0; j < s->n_slice; j++) {
        double a = 2 * M_PI * (j + 0.5) / s->n_slice, along = cos(a) * d[0] + sin(a) * d[1];

        if (along > 0)
            t = fmin(t, (apothem - cos(a) * o[0] - sin(a) * o[1]) / along);
    }
    if (d[2] != 0)
        t = fmin(t, ((d[2] > 0 ? s->sky_distance : -s->sky_distance) - o[2]) / d[2]);
    return t;
}

static void sky_coords(const struct rays_scene *s, double x, double y, float out[3])
{
    double o[3], d[3], t;

    ray_at(&s->main, x, y, o, d);
    t = s->main.ortho ? sky_exit(s, o, d) : 1; // through the eye only the direction counts
    out[0] = (float)(o[0] + t * d[0]);
    out[1] = (float)(o[2] + t * d[2]);
    out[2] = (float)-(o[1] + t * d[1]);
}

static struct pixel8 sky_colour(const struct rays_scene *s, int px, int py)
{
    float at[3], q[3], right[3], up[3], c[4];
    int qx = px & ~1, qy = py & ~1, k;
    struct pixel8 out = {{0}};

    sky_coords(s, px + 0.5, py + 0.5, at);
    sky_coords(s, qx + 0.5, qy + 0.5, q);
    sky_coords(s, qx + 1.5, qy + 0.5, right);
    sky_coords(s, qx + 0.5, qy + 1.5, up);
    for (k = 0; k < 3; k++) {
        right[k] += at[k] - q[k];
        up[k] += at[k] - q[k];
    }
    tex_sample_cube(s->sky, at, right, up, c);
    for (k = 0; k < 3; k++)
        out.c[k] = (uint8_t)to8(c[k]);
    return out;
}

// Does the sky hide what sample r sees? Its cylinder is nearer than the far plane.
static bool sees_sky(const struct rays_scene *s, struct rays_tile *tile, int r)
{
    double o[3], d[3], reach, t;

    if (tile->inst[r] < 0)
        return true;
    if ((double)tile->t[r] < 0.4 * s->sky_distance && !s->main.ortho)
        return false; // at most 68 degrees off the axis it cannot be that far
    ray_at(&s->main, tile->x + (double)tile->pattern->x[r], tile->y + (double)tile->pattern->y[r],
           o, d);
    reach = (double)tile->t[r] * sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
    if (!s->main.ortho && reach < s->sky_distance * cos(M_PI / s->n_slice))
        return false;
    t = sky_exit(s, o, d);
    if (t > (double)tile->t[r])
        return false;
    tile->t[r] = (float)t;
    return true;
}

static void draw_sky(struct rays_worker *w, struct rays_tile *tile)
{
    const struct rays_pattern *p = tile->pattern;
    struct pixel8 colour = {{0}};
    int r, of = -1;

    for (r = 0; r < p->n_ray; r++) {
        if (!sees_sky(&w->scene, tile, r))
            continue;
        if (of != r / p->samples) {
            of = r / p->samples;
            colour =
                sky_colour(&w->scene, tile->x + p->pixel[r] % TILE, tile->y + p->pixel[r] / TILE);
        }
        w->fb[r] = colour;
    }
}

// --- frames -------------------------------------------------------------------------------------

// Mean of the tile's samples, pixel by pixel.
static void resolve(const struct rays_worker *w, const struct rays_tile *tile,
                    const struct render_image *img)
{
    int n = tile->pattern->samples, q, s, k;

    for (q = 0; q < TILE_PIXELS; q++) {
        int x = tile->x + q % TILE, y = tile->y + q / TILE, sum[3] = {0, 0, 0};
        uint8_t *out = img->rgb + 3 * ((size_t)y * (size_t)img->width + (size_t)x);

        if (x >= img->width || y >= img->height)
            continue;
        for (s = 0; s < n; s++)
            for (k = 0; k < 3; k++)
                sum[k] += w->fb[q * n + s].c[k];
        for (k = 0; k < 3; k++)
            out[k] = (uint8_t)((sum[k] + n / 2) / n);
    }
}

// The same of `pixels` straight from the surfaces' colours, where there is nothing else.
static void resolve_surfaces(const struct rays_worker *w, const struct rays_tile *tile,
                             uint64_t pixels, const int *frag_of, const struct render_image *img)
{
    int n = tile->pattern->samples, k;

    for (; pixels; pixels &= pixels - 1) {
        int q = __builtin_ctzll(pixels), x = tile->x + q % TILE, y = tile->y + q / TILE;
        const int *of = frag_of + q * n;
        uint8_t *out = img->rgb + 3 * ((size_t)y * (size_t)img->width + (size_t)x);

        if (x >= img->width || y >= img->height)
            continue;
        if (n == 1 || (of[0] == of[1] && of[0] == of[2] && of[0] == of[3])) {
            memcpy(out, w->colour8[of[0]].c, 3);
            continue;
        }
        for (k = 0; k < 3; k++)
            out[k] = (uint8_t)((w->colour8[of[0]].c[k] + w->colour8[of[1]].c[k] +
                                w->colour8[of[2]].c[k] + w->colour8[of[3]].c[k] + 2) /
                               4);
    }
}

// Every ray of the tile meets a surface, none of them a mirror, too near for the sky to hide it,
// and there is nothing transparent about.
static bool is_plain(const struct rays_worker *w, struct rays_tile *tile)
{
    const struct rays_scene *s = &w->scene;
    int i, j, g, r, none = 0;

    for (i = 0; i < s->n_transparent; i++) {
        g = s->transparent[i];
        for (j = s->first_inst[g]; j < s->first_inst[g + 1]; j++)
            if (in_tile(&s->main.seen[j], tile))
                return false;
    }
    if (s->sky && (s->main.ortho || (double)rays_tile_limit(tile) >= 0.4 * s->sky_distance))
        return false;
    for (r = 0; r < tile->pattern->n_ray; r++)
        none |= tile->inst[r]; // the sign says
    if (none < 0)
        return false;
    for (r = 0; s->mirror_geom >= 0 && r < tile->pattern->n_ray; r++)
        if (s->inst[tile->inst[r]].geom == s->mirror_geom)
            return false;
    return true;
}

static struct rays_lighting main_lights(const struct rays_scene *s)
{
    struct rays_lighting how = {0, 0, 1};
    int l;

    for (l = 0; l < s->n_light; l++) {
        if (s->main.light[l].shadow)
            how.shadowed |= 1u << l;
        else
            how.base |= 1u << l;
    }
    return how;
}

// A tile with everything that there may be.
static void draw_tile(struct rays_worker *w, struct rays_tile *tile, const struct render_image *img)
{
    const struct rays_scene *s = &w->scene;
    struct rays_lighting how = main_lights(s), all = {(1u << s->n_light) - 1, 0, 1};

    memset(w->fb, 0, sizeof w->fb);
    if (s->mirror_geom >= 0)
        draw_mirror(w, tile);
    shade_surfaces(w, &s->main, tile, &how);
    compose(w, tile, s->mirror_geom >= 0);
    if (s->sky)
        draw_sky(w, tile);
    if (s->n_transparent > 0)
        draw_transparent(w, &s->main, tile, &all);
    resolve(w, tile, img);
}

// At least `pixels` of each tile of the patch from tile (i0, j0) of the block on: plain ones
// together, the others one by one.
static void draw_patch(struct rays_worker *w, const struct rays_block *b, int i0, int j0,
                       const uint64_t *pixels, const struct render_image *img)
{
    struct rays_tile *plain[PATCH_TILES * PATCH_TILES], *rest[PATCH_TILES * PATCH_TILES];
    struct rays_lighting how = main_lights(&w->scene);
    int i, j, n = 0, n_rest = 0;
    uint64_t of[PATCH_TILES * PATCH_TILES];

    start_frags(w);
    for (j = j0; j < b->ny && j < j0 + PATCH_TILES; j++)
        for (i = i0; i < b->nx && i < i0 + PATCH_TILES; i++) {
            struct rays_tile *tile = &b->tile[j * b->nx + i];

            of[n] = pixels[j * b->nx + i];
            if (of[n] && is_plain(w, tile)) {
                find_frags(w, tile, of[n], w->frag_of + n * TILE_RAYS_MAX);
                plain[n++] = tile;
            } else if (of[n]) {
                rest[n_rest++] = tile;
            }
        }
    if (n > 0)
        shade_frags(w, &w->scene.main, plain[0], &how);
    for (i = 0; i < n; i++)
        resolve_surfaces(w, plain[i], of[i], w->frag_of + i * TILE_RAYS_MAX, img);
    for (i = 0; i < n_rest; i++)
        draw_tile(w, rest[i], img);
}

// At least `pixels` of each tile.
static void draw_tiles(struct rays_worker *w, const struct rays_block *b, const uint64_t *pixels,
                       const struct render_image *img)
{
    int i, j;

    for (j = 0; j < b->ny; j += PATCH_TILES)
        for (i = 0; i < b->nx; i += PATCH_TILES)
            draw_patch(w, b, i, j, pixels, img);
}

// Depth and identity are those at the pixel's centre, of everything that is drawn.
static void measure_tile(const struct rays_worker *w, const struct rays_tile *tile,
                         const mjvScene *scn, const struct render_image *img)
{
    int r;

    for (r = 0; r < TILE_PIXELS; r++) {
        int x = tile->x + r % TILE, y = tile->y + r / TILE;
        size_t at = (size_t)y * (size_t)img->width + (size_t)x;
        int g = tile->inst[r] < 0 ? -1 : w->scene.inst[tile->inst[r]].geom;

        if (x >= img->width || y >= img->height)
            continue;
        if (img->depth)
            img->depth[at] = tile->t[r];
        if (img->segid)
            img->segid[at] = g < 0 ? -1 : scn->geoms[g].segid;
    }
}

static void start_block(struct rays_worker *w, const struct rays_pattern *pattern,
                        const struct rays_block *b)
{
    int i;

    for (i = 0; i < b->nx * b->ny; i++)
        tile_start(&b->tile[i], pattern, w->near, b->x + i % b->nx * TILE, b->y + i / b->nx * TILE,
                   w->scene.main.far);
}

static void measure_block(struct rays_worker *w, const mjvScene *scn, const struct rays_block *b,
                          const struct render_image *img)
{
    const struct rays_view *v = &w->scene.main;
    int i;

    start_block(w, &w->centres, b);
    find_surfaces(w, v, 0, v->n_order, false, b);
    for (i = 0; i < b->nx * b->ny; i++)
        measure_tile(w, &b->tile[i], scn, img);
}

static void draw_block(struct rays_worker *w, const struct rays_block *b,
                       const struct render_image *img)
{
    const struct rays_view *v = &w->scene.main;
    uint64_t pixels[BLOCK_X * BLOCK_Y];

    memset(pixels, 0xff, sizeof pixels);
    start_block(w, &w->pattern, b);
    find_surfaces(w, v, 0, v->n_order, true, b);
    draw_tiles(w, b, pixels, img);
}

// --- what stands still --------------------------------------------------------------------------

// Put what stands still first in the order, which is otherwise kept; returns how many.
static int still_first(const struct rays_worker *w, struct rays_view *v)
{
    int i, j, n = 0;

    for (i = 0; i < v->n_order; i++) {
        int at = v->order[i];

        if (!w->still[w->scene.inst[at].geom])
            continue;
        for (j = i; j > n; j--)
            v->order[j] = v->order[j - 1];
        v->order[n++] = at;
    }
    return n;
}

static int tile_number(const struct rays_scene *s, const struct rays_tile *tile)
{
    return tile->y / TILE * ((s->width + TILE - 1) / TILE) + tile->x / TILE;
}

// Fill in the block of a kept picture.
static void keep_block(struct rays_worker *w, int n_still, const struct rays_block *b,
                       struct kept *kept)
{
    struct rays_scene *s = &w->scene;
    struct render_image img = {.width = s->width, .height = s->height, .rgb = kept->rgb};
    uint64_t pixels[BLOCK_X * BLOCK_Y];
    int i, n = 0, n_transparent = s->n_transparent;

    memcpy(w->transparent, s->transparent, (size_t)n_transparent * sizeof *s->transparent);
    for (i = 0; i < n_transparent; i++)
        if (w->still[w->transparent[i]])
            s->transparent[n++] = w->transparent[i];
    s->n_transparent = n;
    start_block(w, &w->pattern, b);
    find_surfaces(w, &s->main, 0, n_still, true, b);
    for (i = 0; i < b->nx * b->ny; i++)
        rays_keep_save(kept, tile_number(s, &b->tile[i]), &b->tile[i]);
    memset(pixels, 0xff, sizeof pixels);
    draw_tiles(w, b, pixels, &img);
    memcpy(s->transparent, w->transparent, (size_t)n_transparent * sizeof *s->transparent);
    s->n_transparent = n_transparent;
}

static void copy_tile(const struct rays_tile *tile, const uint8_t *rgb,
                      const struct render_image *img)
{
    int w = img->width - tile->x < TILE ? img->width - tile->x : TILE, y;

    for (y = tile->y; y < tile->y + TILE && y < img->height; y++) {
        size_t at = 3 * ((size_t)y * (size_t)img->width + (size_t)tile->x);

        memcpy(img->rgb + at, rgb + at, (size_t)w * 3);
    }
}

// The pixels of a tile in which something that moves is seen.
static uint64_t pixels_of_moving(const struct rays_worker *w, int n_still,
                                 const struct rays_tile *tile, const struct kept *kept)
{
    const struct rays_scene *s = &w->scene;
    const struct rays_view *v = &s->main;
    int k;

    for (k = n_still; s->n_transparent > 0 && k < v->n_order; k++) {
        int i = v->order[k];

        if (s->material[s->inst[i].geom].transparent && in_tile(&v->seen[i], tile))
            return ALL_PIXELS; // it may be in front of any of them
    }
    return rays_keep_changed(kept, tile_number(s, tile), tile);
}

// The kept picture, with what moves in the pixels that it is seen in.
static void draw_over(struct rays_worker *w, int n_still, const struct rays_block *b,
                      const struct kept *kept, const struct render_image *img)
{
    const struct rays_view *v = &w->scene.main;
    bool touched[BLOCK_X * BLOCK_Y] = {false};
    uint64_t pixels[BLOCK_X * BLOCK_Y];
    int i, k, n = b->nx * b->ny;

    for (i = 0; i < n; i++) {
        struct rays_tile *tile = &b->tile[i];

        tile->pattern = &w->pattern;
        tile->tnear = w->near;
        tile->x = b->x + i % b->nx * TILE;
        tile->y = b->y + i / b->nx * TILE;
        for (k = n_still; k < v->n_order && !touched[i]; k++)
            touched[i] = in_tile(&v->seen[v->order[k]], tile);
        if (touched[i]) {
            rays_keep_load(kept, tile_number(&w->scene, tile), tile);
        } else {
            tile->limit = 0; // nothing is drawn here
            tile->stale = false;
        }
        copy_tile(tile, kept->rgb, img);
    }
    find_surfaces(w, v, n_still, v->n_order, true, b);
    for (i = 0; i < n; i++)
        pixels[i] = touched[i] ? pixels_of_moving(w, n_still, &b->tile[i], kept) : 0;
    draw_tiles(w, b, pixels, img);
}

// Mirrors and shadows show what moves anywhere.
static bool may_keep(const struct rays_scene *s, const struct render_image *img)
{
    int l;

    for (l = 0; l < s->n_light; l++)
        if (s->main.light[l].shadow)
            return false;
    return img->rgb && img->still && s->mirror_geom < 0;
}

// --- pictures -----------------------------------------------------------------------------------

static int tiles(int pixels, int most)
{
    int n = (pixels + TILE - 1) / TILE;

    return n < most ? n : most;
}

static bool next_block(struct rays_block *b, int width, int height)
{
    if (b->nx > 0)
        b->x += BLOCK_X * TILE;
    if (b->x >= width) {
        b->x = 0;
        b->y += BLOCK_Y * TILE;
    }
    b->nx = tiles(width - b->x, BLOCK_X);
    b->ny = tiles(height - b->y, BLOCK_Y);
    return b->y < height;
}

// The kept picture of what stands still, made if it is worth it; NULL = none.
static enum status find_kept(struct rays_worker *w, int n_still, struct kept **out)
{
    const struct rays_scene *s = &w->scene;
    struct rays_block b = {.tile = w->block};
    bool missing;

    TRY(rays_keep_find(&w->keep, s, w->still, w->pattern.samples, out, &missing));
    if (missing)
        *out = rays_keep_add(&w->keep, s, w->pattern.samples);
    if (!missing || !*out)
        return ST_OK;
    while (next_block(&b, s->width, s->height))
        keep_block(w, n_still, &b, *out);
    if (w->layers.full) {
        rays_keep_drop(&w->keep, *out);
        *out = NULL;
    }
    return ST_OK;
}

static enum status frame(void *worker, int slot, const mjModel *m, mjvScene *scn,
                         const struct render_image *img)
{
    struct rays_worker *w = worker;
    struct rays_block b = {.tile = w->block};
    struct kept *kept = NULL;
    int i, n_still = 0;

    (void)slot; // the frame is complete at the end of this call
    w->layers.full = false;
    TRY(rays_scene_set(&w->scene, w->shared, m, scn, img->width, img->height));
    for (i = 0; i < TILE_RAYS_MAX; i++)
        w->near[i] = w->scene.main.near;
    if (may_keep(&w->scene, img)) {
        for (i = 0; i < scn->ngeom; i++)
            w->still[i] = scn->geoms[i].category == mjCAT_STATIC;
        n_still =
            still_first(w, &w->scene.main); // with kept pictures or without: ties are the same
        if (w->keeps)
            TRY(find_kept(w, n_still, &kept));
    }
    while (next_block(&b, img->width, img->height)) {
        if (kept)
            draw_over(w, n_still, &b, kept, img);
        else if (img->rgb)
            draw_block(w, &b, img);
        if (img->depth || img->segid)
            measure_block(w, scn, &b, img);
    }
    if (w->layers.full)
        return FAIL(ST_INVAL, "more than %d transparent surfaces within %d x %d pixels", LAYER_MAX,
                    TILE, TILE);
    return ST_OK;
}

const struct render_backend render_backend_rays = {
    "rays", backend_create, backend_destroy, worker_create, worker_destroy, frame, NULL,
};
