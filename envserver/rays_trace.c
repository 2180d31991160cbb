#include "envserver/rays_trace.h"

#include <embree3/rtcore.h>
#include <math.h>
#include <string.h>

// --- patterns -----------------------------------------------------------------------------------

void rays_pattern_init(struct rays_pattern *p, int samples)
{
    static const float sx[4] = {0.375f, 0.875f, 0.125f, 0.625f};
    static const float sy[4] = {0.125f, 0.375f, 0.625f, 0.875f};
    int i;

    p->samples = samples;
    p->n_ray = TILE_PIXELS * samples;
    for (i = 0; i < p->n_ray; i++) {
        int q = i / samples, s = i % samples, x = q % TILE, y = q / TILE;

        p->x[i] = (float)x + (samples == 1 ? 0.5f : sx[s]);
        p->y[i] = (float)y + (samples == 1 ? 0.5f : sy[s]);
        p->pixel[i] = (uint8_t)q;
    }
}

float rays_tile_limit(struct rays_tile *tile)
{
    float lane[8] = {0};
    int r, l;

    if (!tile->stale)
        return tile->limit;
    for (r = 0; r < tile->pattern->n_ray; r += 8) // a pattern has whole vectors
        for (l = 0; l < 8; l++)
            lane[l] = tile->t[r + l] > lane[l] ? tile->t[r + l] : lane[l];
    for (l = 1; l < 8; l++)
        lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    tile->limit = lane[0];
    tile->stale = false;
    return tile->limit;
}

// --- filters, called by Embree for hits on the way ----------------------------------------------

// Fields of a ray and of a hit in their order in memory; a packet of N has N values of each. (The
// accessors of the library are for C++.)
enum { RAY_DIR = 4, RAY_FAR = 8, RAY_ID = 10, HIT_NORMAL = 0, HIT_PRIM = 5 };

static float real_at(const void *packet, unsigned n, int field, unsigned k)
{
    float x;

    memcpy(&x, (const char *)packet + 4 * ((size_t)field * n + k), sizeof x);
    return x;
}

static int int_at(const void *packet, unsigned n, int field, unsigned k)
{
    int x;

    memcpy(&x, (const char *)packet + 4 * ((size_t)field * n + k), sizeof x);
    return x;
}

// Negative: the hit is on the front of its triangle.
static float toward(const struct RTCFilterFunctionNArguments *a, unsigned k)
{
    float sum = 0;
    int i;

    for (i = 0; i < 3; i++)
        sum += real_at(a->hit, a->N, HIT_NORMAL + i, k) * real_at(a->ray, a->N, RAY_DIR + i, k);
    return sum;
}

static void reject_back(const struct RTCFilterFunctionNArguments *a)
{
    unsigned k;

    for (k = 0; k < a->N; k++)
        if (a->valid[k] && !(toward(a, k) < 0))
            a->valid[k] = 0;
}

struct layer_context {
    struct RTCIntersectContext base;
    int geom, inst, first_ray;
    struct rays_layers *out;
};

static void add_layer(struct rays_layers *out, int ray, int geom, int inst, int prim, float t)
{
    if (out->n == LAYER_MAX) {
        out->full = true;
        return;
    }
    out->hit[out->n++] = (struct rays_layer){(short)ray, geom, inst, prim, t};
}

// Note every front face and go on.
static void collect_front(const struct RTCFilterFunctionNArguments *a)
{
    const struct layer_context *c = (const struct layer_context *)a->context;
    unsigned k;

    for (k = 0; k < a->N; k++) {
        if (a->valid[k] && toward(a, k) < 0)
            add_layer(c->out, c->first_ray + int_at(a->ray, a->N, RAY_ID, k), c->geom, c->inst,
                      int_at(a->hit, a->N, HIT_PRIM, k), real_at(a->ray, a->N, RAY_FAR, k));
        a->valid[k] = 0;
    }
}

// --- packets ------------------------------------------------------------------------------------

#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define NAME(x)      PASTE(x, SET)

#define LANES 8
#include "envserver/rays_simd.h"
#define lane_numbers(n) ((VI){0, 1, 2, 3, 4, 5, 6, 7})
#define RAYHIT          RTCRayHit8
#define INTERSECT       rtcIntersect8
#define SET             sse
#define TARGET
#include "envserver/rays_trace_impl.h"
#undef SET
#undef TARGET
#ifndef RAYS_BASE_ONLY
#define SET    avx2
#define TARGET TARGET_AVX2
#include "envserver/rays_trace_impl.h"
#undef SET
#undef TARGET
#undef RAYHIT
#undef INTERSECT
#undef lane_numbers
#undef LANES

#define LANES 16
#include "envserver/rays_simd.h"
#define lane_numbers(n) ((VI){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
#define RAYHIT          RTCRayHit16
#define INTERSECT       rtcIntersect16
#define SET             avx512
#define TARGET          TARGET_AVX512
#include "envserver/rays_trace_impl.h"
#endif

static const struct rays_tracer tracers[] = {
#ifndef RAYS_BASE_ONLY
    {"avx512", nearest_avx512, layers_avx512, blocked_avx2},
    {"avx2", nearest_avx2, layers_avx2, blocked_avx2},
#endif
    {"sse", nearest_sse, layers_sse, blocked_sse},
};

static bool can_run(const char *name)
{
#if defined(__x86_64__)
    if (strcmp(name, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    if (strcmp(name, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    if (strcmp(name, "sse") != 0)
        return false;
#endif
    return true;
}

const void *rays_set_find(const void *table, size_t n, size_t size, const char *name)
{
    const char *entry = table;

    for (; n > 0; n--, entry += size)
        if (strcmp(*(const char *const *)(const void *)entry, name) == 0 && can_run(name))
            return entry;
    return NULL;
}

const void *rays_set_best(const void *table, size_t n, size_t size)
{
    const char *entry = table;

    for (; n > 1 && !can_run(*(const char *const *)(const void *)entry); n--)
        entry += size;
    return entry;
}

const struct rays_tracer *rays_tracer_find(const char *name)
{
    return rays_set_find(tracers, sizeof tracers / sizeof tracers[0], sizeof tracers[0], name);
}

const struct rays_tracer *rays_tracer_best(void)
{
    return rays_set_best(tracers, sizeof tracers / sizeof tracers[0], sizeof tracers[0]);
}
