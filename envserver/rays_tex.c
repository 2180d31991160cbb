#include "envserver/rays_tex.h"

#include "common/base/mem.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

typedef int int4 __attribute__((vector_size(16)));
typedef float float4 __attribute__((vector_size(16)));

// --- sRGB ---------------------------------------------------------------------------------------

static struct {
    pthread_once_t once;
    float decode[256];
} srgb = {.once = PTHREAD_ONCE_INIT};

// llvmpipe's cubic instead of the exact curve.
static void srgb_init(void)
{
    int i;

    for (i = 0; i < 256; i++) {
        double c = i / 255.0;

        srgb.decode[i] =
            (float)(i <= 15 ? c / 12.92 : 0.0023 + c * (0.0030 + c * (0.6935 + c * 0.3012)));
    }
}

static double srgb_encode(double c)
{
    return c <= 0.0031308 ? c * 12.92 : 1.055 * pow(c, 1 / 2.4) - 0.055;
}

// --- mip levels ---------------------------------------------------------------------------------

static int lerp8(int a, int b, int w)
{
    return a + (((b - a) * w + 128) >> 8);
}

// Where texel `i` of the next smaller level looks in a row of `n`: two neighbours and the weight.
static void shrink_at(int i, int n, int smaller, int at[2], double *frac)
{
    double u = (i + 0.5) * n / smaller - 0.5;
    int k = (int)floor(u);

    *frac = u - k;
    at[0] = k < 0 ? 0 : k;
    at[1] = k + 1 >= n ? n - 1 : k + 1;
}

static uint8_t shrink_linear(const uint8_t *const t[4], int c, double fx, double fy)
{
    int wx = (int)floor(fx * 256), wy = (int)floor(fy * 256);

    return (uint8_t)lerp8(lerp8(t[0][c], t[1][c], wx), lerp8(t[2][c], t[3][c], wx), wy);
}

// sRGB colours are averaged as light; alpha is linear.
static uint8_t shrink_srgb(const uint8_t *const t[4], int c, double fx, double fy)
{
    double v[4], r;
    int k;

    for (k = 0; k < 4; k++)
        v[k] = c < 3 ? (double)srgb.decode[t[k][c]] : t[k][c] / 255.0;
    r = (v[0] * (1 - fx) + v[1] * fx) * (1 - fy) + (v[2] * (1 - fx) + v[3] * fx) * fy;
    return (uint8_t)floor((c < 3 ? srgb_encode(r) : r) * 255 + 0.41);
}

static void shrink(const struct rays_tex *tex, int level, int face)
{
    int w = tex->w[level - 1], h = tex->h[level - 1], nw = tex->w[level], nh = tex->h[level];
    const uint8_t *src = tex->texel + tex->offset[level - 1] + (size_t)face * (size_t)(w * h) * 4;
    uint8_t *dst = tex->texel + tex->offset[level] + (size_t)face * (size_t)(nw * nh) * 4;
    int x, y, c;

    for (y = 0; y < nh; y++)
        for (x = 0; x < nw; x++) {
            int ax[2], ay[2];
            double fx, fy;
            const uint8_t *t[4];

            shrink_at(x, w, nw, ax, &fx);
            shrink_at(y, h, nh, ay, &fy);
            for (c = 0; c < 4; c++)
                t[c] = src + ((size_t)ay[c / 2] * (size_t)w + (size_t)ax[c % 2]) * 4;
            for (c = 0; c < 4; c++)
                *dst++ = tex->srgb ? shrink_srgb(t, c, fx, fy) : shrink_linear(t, c, fx, fy);
        }
}

static enum status tex_build(struct shared_item *item)
{
    struct rays_tex *tex = (struct rays_tex *)item;
    int l, f;

    for (l = 1; l < tex->n_level; l++)
        for (f = 0; f < tex->n_face; f++)
            shrink(tex, l, f);
    return ST_OK;
}

static void tex_destroy(struct shared_item *item)
{
    struct rays_tex *tex = (struct rays_tex *)item;

    mem_free((void *)(uintptr_t)tex->head.key);
    mem_free(tex);
}

static const struct shared_kind tex_kind = {tex_build, tex_destroy};

// Level sizes and offsets; the bytes of all levels.
static size_t lay_out(struct rays_tex *tex, int w, int h)
{
    size_t bytes = 0;

    for (tex->n_level = 0; tex->n_level < TEX_LEVEL_MAX; tex->n_level++) {
        tex->w[tex->n_level] = w;
        tex->h[tex->n_level] = h;
        tex->offset[tex->n_level] = bytes;
        bytes += (size_t)tex->n_face * (size_t)w * (size_t)h * 4;
        if (w == 1 && h == 1) {
            tex->n_level++;
            break;
        }
        w = w > 1 ? w / 2 : 1;
        h = h > 1 ? h / 2 : 1;
    }
    return bytes;
}

static enum status check(const mjModel *m, int id)
{
    int w = m->tex_width[id], h = m->tex_height[id], nc = m->tex_nchannel[id];
    bool cube = m->tex_type[id] != mjTEXTURE_2D;

    if (w < 1 || h < 1 || w > 1 << (TEX_LEVEL_MAX - 1) || h > 1 << (TEX_LEVEL_MAX - 1))
        return FAIL(ST_INVAL, "texture %d is %d x %d, expected 1 to %d", id, w, h,
                    1 << (TEX_LEVEL_MAX - 1));
    if (nc != 3 && nc != 4)
        return FAIL(ST_INVAL, "texture %d has %d channels, expected 3 or 4", id, nc);
    if (cube && (nc != 3 || (w != h && h != 6 * w)))
        return FAIL(ST_INVAL,
                    "cube texture %d is %d x %d with %d channels, expected 3 channels and one "
                    "square or six below one another",
                    id, w, h, nc);
    return ST_OK;
}

enum status tex_create(struct rays_tex **out, const mjModel *m, int id)
{
    struct rays_tex *tex;
    struct shared_item *item = NULL;
    const mjtByte *src = m->tex_data + m->tex_adr[id];
    int w = m->tex_width[id], h = m->tex_height[id], nc = m->tex_nchannel[id], c;
    size_t n = (size_t)w * (size_t)h, i, bytes;
    uint8_t *block;

    TRY(check(m, id));
    pthread_once(&srgb.once, srgb_init);
    tex = mem_alloc(1, sizeof *tex);
    if (!tex)
        return ST_NOMEM;
    tex->head.kind = &tex_kind;
    tex->cube = m->tex_type[id] != mjTEXTURE_2D;
    tex->srgb = !tex->cube && m->tex_colorspace[id] == mjCOLORSPACE_SRGB;
    tex->n_face = tex->cube && w != h ? 6 : 1;
    bytes = lay_out(tex, w, tex->cube ? w : h);
    block = mem_alloc(sizeof tex->id + bytes, 1);
    if (!block) {
        mem_free(tex);
        return ST_NOMEM;
    }
    tex->id[0] = tex->cube;
    tex->id[1] = tex->srgb;
    tex->id[2] = w;
    tex->id[3] = h;
    memcpy(block, tex->id, sizeof tex->id);
    tex->texel = block + sizeof tex->id;
    for (i = 0; i < n; i++)
        for (c = 0; c < 4; c++)
            tex->texel[4 * i + (size_t)c] = c < nc ? src[i * (size_t)nc + (size_t)c] : 255;
    tex->head.key = block;
    tex->head.key_bytes = sizeof tex->id + n * 4;
    TRY(rays_share(&item, &tex->head));
    *out = (struct rays_tex *)item;
    return ST_OK;
}

void tex_release(struct rays_tex *tex)
{
    if (tex)
        rays_unshare(&tex->head);
}

// --- level of detail ----------------------------------------------------------------------------

// Half of the piecewise linear log2 of the squared footprint.
static float level_of(float rho2)
{
    union {
        float f;
        uint32_t u;
    } bits = {rho2};

    return rho2 > 0 ? 0.5f * ((float)bits.u * 0x1p-23f - 127) : -100;
}

static float footprint(const struct rays_tex *tex, const float a[2], const float right[2],
                       const float up[2])
{
    float w = (float)tex->w[0], h = (float)tex->h[0];
    float sx = (right[0] - a[0]) * w, tx = (right[1] - a[1]) * h;
    float sy = (up[0] - a[0]) * w, ty = (up[1] - a[1]) * h;

    return fmaxf(sx * sx + tx * tx, sy * sy + ty * ty);
}

static int4 load4(const uint8_t *p)
{
    return (int4){p[0], p[1], p[2], p[3]};
}

// The two levels of `lam` and the weight of the second (0: only the first counts).
static float pick_level(const struct rays_tex *tex, float lam, int *level)
{
    int last = tex->n_level - 1;

    *level = lam <= 0 ? 0 : lam >= (float)last ? last : (int)lam;
    return lam <= 0 || lam >= (float)last ? 0 : lam - (float)*level;
}

// --- cube ---------------------------------------------------------------------------------------

// Coordinates of direction v on face f: (sc, tc) over the main axis, as S and T in [0,1].
static void on_face(int f, const float v[3], float st[2])
{
    static const signed char axes[6][6] = {
        // main axis, sign; axis of sc, sign; axis of tc, sign
        {0, 1, 2, -1, 1, -1}, {0, -1, 2, 1, 1, -1}, {1, 1, 0, 1, 2, 1},
        {1, -1, 0, 1, 2, -1}, {2, 1, 0, 1, 1, -1},  {2, -1, 0, -1, 1, -1},
    };
    const signed char *a = axes[f];
    float ma = fmaxf(v[a[0]] * (float)a[1], 1e-9f);

    st[0] = (v[a[2]] * (float)a[3] / ma + 1) * 0.5f;
    st[1] = (v[a[4]] * (float)a[5] / ma + 1) * 0.5f;
}

static int main_face(const float v[3])
{
    float x = fabsf(v[0]), y = fabsf(v[1]), z = fabsf(v[2]);

    if (x >= y && x >= z)
        return v[0] >= 0 ? 0 : 1;
    if (y >= z)
        return v[1] >= 0 ? 2 : 3;
    return v[2] >= 0 ? 4 : 5;
}

static void face_direction(int f, float s, float t, float v[3])
{
    const float all[6][3] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t},
                             {s, -1, -t}, {s, -t, 1},  {-s, -t, -1}};

    memcpy(v, all[f], sizeof all[f]);
}

static float4 cube_texel(const struct rays_tex *tex, int level, int face, int x, int y)
{
    int n = tex->w[level];
    size_t image = tex->n_face == 1 ? 0 : (size_t)face;
    const uint8_t *p = tex->texel + tex->offset[level] +
                       4 * (image * (size_t)(n * n) + (size_t)y * (size_t)n + (size_t)x);

    return __builtin_convertvector(load4(p), float4);
}

static int into(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

// A texel that may lie one step off the face: then the neighbouring face has it, and the corner,
// where three faces meet, is their mean.
static float4 seam_texel(const struct rays_tex *tex, int level, int face, int x, int y)
{
    int n = tex->w[level], xi = into(x, n), yi = into(y, n), f;
    float v[3], st[2];

    if (xi == x && yi == y)
        return cube_texel(tex, level, face, x, y);
    if (xi != x && yi != y)
        return (cube_texel(tex, level, face, xi, yi) + seam_texel(tex, level, face, x, yi) +
                seam_texel(tex, level, face, xi, y)) /
               3.0f;
    face_direction(face, 2 * ((float)x + 0.5f) / (float)n - 1, 2 * ((float)y + 0.5f) / (float)n - 1,
                   v);
    f = main_face(v);
    on_face(f, v, st);
    return cube_texel(tex, level, f, into((int)floorf(st[0] * (float)n), n),
                      into((int)floorf(st[1] * (float)n), n));
}

static float4 bilinear_cube(const struct rays_tex *tex, int level, int face, const float st[2])
{
    float n = (float)tex->w[level], u = st[0] * n - 0.5f, v = st[1] * n - 0.5f;
    int x = (int)floorf(u), y = (int)floorf(v);
    float fx = u - (float)x, fy = v - (float)y;
    float4 a, b;

    if (x >= 0 && y >= 0 && x + 1 < tex->w[level] && y + 1 < tex->w[level]) {
        a = cube_texel(tex, level, face, x, y);
        b = cube_texel(tex, level, face, x, y + 1);
        a += fx * (cube_texel(tex, level, face, x + 1, y) - a);
        b += fx * (cube_texel(tex, level, face, x + 1, y + 1) - b);
        return a + fy * (b - a);
    }
    a = seam_texel(tex, level, face, x, y);
    b = seam_texel(tex, level, face, x, y + 1);
    a += fx * (seam_texel(tex, level, face, x + 1, y) - a);
    b += fx * (seam_texel(tex, level, face, x + 1, y + 1) - b);
    return a + fy * (b - a);
}

void tex_sample_cube(const struct rays_tex *tex, const float at[3], const float right[3],
                     const float up[3], float out_rgba[4])
{
    int face = main_face(at), level;
    float a[2], b[2], c[2], frac;
    float4 out;

    on_face(face, at, a);
    on_face(face, right, b);
    on_face(face, up, c);
    frac = pick_level(tex, level_of(footprint(tex, a, b, c)), &level);
    out = bilinear_cube(tex, level, face, a);
    if (frac > 0)
        out += frac * (bilinear_cube(tex, level + 1, face, a) - out);
    out *= 1 / 255.0f;
    memcpy(out_rgba, &out, sizeof out);
}
