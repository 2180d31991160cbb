#include "envserver/rays_shade.h"

#include <math.h>
#include <string.h>

static float dot3f(const float a[3], const float b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

// One point's way to light `l`; false where no shadow can fall: outside of the square that MuJoCo's
// shadow map would cover, or beside the light.
static bool make_probe(const struct rays_scene *s, const struct rays_view *v, int l,
                       const float p[3], struct rays_probe *probe)
{
    const struct rays_light *light = &v->light[l];
    const struct rays_shadow *sh = &s->shadow[l];
    float to[3], depth, x, y, half, texel, near = s->main.near;
    int k, i = probe->n;

    for (k = 0; k < 3; k++)
        to[k] = p[k] - light->pos[k];
    depth = dot3f(to, sh->forward);
    x = dot3f(to, sh->right);
    y = dot3f(to, sh->up);
    half = light->directional ? sh->half : sh->half * depth;
    if (depth <= near || fabsf(x) > half || fabsf(y) > half)
        return false;
    texel = light->directional ? sh->texel : sh->texel * depth;
    for (k = 0; k < 3; k++) {
        probe->o[k][i] = p[k];
        probe->d[k][i] = light->directional ? -light->dir[k] : -to[k];
    }
    // start two texels off the surface, end at the light's near plane
    if (light->directional) {
        probe->t0[i] = 2 * texel;
        probe->t1[i] = depth - near;
    } else {
        probe->t0[i] = 2 * texel / sqrtf(dot3f(to, to));
        probe->t1[i] = 1 - near / depth;
    }
    probe->n++;
    return true;
}

// Bit i: light `l` reaches point i.
static unsigned unshaded(const struct rays_scene *s, const struct rays_view *v,
                         const struct rays_tracer *tracer, int l, const float point[3][8], int n)
{
    struct rays_probe probe;
    unsigned open = (1u << n) - 1, blocked;
    int of[8], i, k;

    memset(&probe, 0, sizeof probe);
    for (i = 0; i < n; i++) {
        float p[3];

        for (k = 0; k < 3; k++)
            p[k] = point[k][i];
        of[probe.n & 7] = i;
        if (!make_probe(s, v, l, p, &probe))
            continue;
    }
    if (probe.n == 0)
        return open;
    blocked = tracer->blocked(s, v, &probe);
    for (i = 0; i < probe.n; i++)
        if (blocked >> i & 1)
            open &= ~(1u << of[i]);
    return open;
}

#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define NAME(x)      PASTE(x, SET)
#define LANES        8
#include "envserver/rays_simd.h"

#define SET sse
#define TARGET
#include "envserver/rays_shade_impl.h"
#ifndef RAYS_BASE_ONLY
#undef SET
#undef TARGET
#define SET    avx2
#define TARGET TARGET_AVX2
#include "envserver/rays_shade_impl.h"

#endif

static const struct rays_shader shaders[] = {
#ifndef RAYS_BASE_ONLY
    {"avx2", prepare_avx2, colour_avx2, colour8_avx2},
#endif
    {"sse", prepare_sse, colour_sse, colour8_sse},
};

const struct rays_shader *rays_shader_find(const char *name)
{
    return rays_set_find(shaders, sizeof shaders / sizeof shaders[0], sizeof shaders[0], name);
}

const struct rays_shader *rays_shader_best(void)
{
    return rays_set_best(shaders, sizeof shaders / sizeof shaders[0], sizeof shaders[0]);
}
