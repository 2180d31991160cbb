#include "envserver/rays_depth.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define POLYGON 9 // corners of a triangle cut by six planes

static float dot3f(const float a[3], const float b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

// --- matrices -----------------------------------------------------------------------------------

static void normalize3f(float v[3])
{
    float scale = 1.0f / sqrtf(dot3f(v, v));
    int k;

    for (k = 0; k < 3; k++)
        v[k] *= scale;
}

static void cross3f(float out[3], const float a[3], const float b[3])
{
    out[0] = a[1] * b[2] - a[2] * b[1];
    out[1] = a[2] * b[0] - a[0] * b[2];
    out[2] = a[0] * b[1] - a[1] * b[0];
}

// As mjr_lookAt does.
static void look_at(struct rays_depth_view *v, const float pos[3], const float s[3],
                    const float u[3], const float f[3])
{
    int k;

    for (k = 0; k < 3; k++) {
        v->eye[0][k] = s[k];
        v->eye[1][k] = u[k];
        v->eye[2][k] = -f[k];
        v->eye[3][k] = 0;
    }
    v->eye[0][3] = -dot3f(s, pos);
    v->eye[1][3] = -dot3f(u, pos);
    v->eye[2][3] = dot3f(f, pos);
    v->eye[3][3] = 1;
}

void rays_depth_camera(struct rays_depth_view *v, const mjvGLCamera *cam, int width, int height)
{
    float near = cam->frustum_near, far = cam->frustum_far;
    float bottom = cam->frustum_bottom, top = cam->frustum_top, f[3], s[3], u[3];
    float half = cam->frustum_width != 0 ? cam->frustum_width
                                         : 0.5f * (float)width / (float)height * (top - bottom);
    float left = cam->frustum_center - half, right = cam->frustum_center + half;

    memset(v, 0, sizeof *v);
    memcpy(f, cam->forward, sizeof f);
    normalize3f(f);
    cross3f(s, f, cam->up);
    normalize3f(s);
    cross3f(u, s, f);
    normalize3f(u);
    look_at(v, cam->pos, s, u, f);
    // glFrustum behind the turn of depths that maps near to 1 and far to 0
    v->clip[0][0] = 2 * near / (right - left);
    v->clip[0][2] = (right + left) / (right - left);
    v->clip[1][1] = 2 * near / (top - bottom);
    v->clip[1][2] = (top + bottom) / (top - bottom);
    v->clip[2][2] = -0.5f * (-(far + near) / (far - near)) + 0.5f * -1.0f;
    v->clip[2][3] = -0.5f * (-(2 * far * near) / (far - near));
    v->clip[3][2] = -1;
    v->half[0] = 0.5f * (float)width;
    v->half[1] = 0.5f * (float)height;
}

void rays_depth_look(struct rays_depth_view *v, const double pos[3], const double right[3],
                     const double up[3], const double forward[3])
{
    float at[3], s[3], u[3], f[3];
    int k;

    for (k = 0; k < 3; k++) {
        at[k] = (float)pos[k];
        s[k] = (float)right[k];
        u[k] = (float)up[k];
        f[k] = (float)forward[k];
    }
    look_at(v, at, s, u, f);
}

void rays_depth_rows(struct rays_depth_rows *rows, const struct rays_depth_view *v,
                     const float lin[9], const double pos[3])
{
    float at[3] = {(float)pos[0], (float)pos[1], (float)pos[2]}, m[4][4];
    int i, j, k;

    for (i = 0; i < 4; i++) {
        m[i][3] = dot3f(v->eye[i], at) + v->eye[i][3]; // glTranslatef
        for (k = 0; k < 3; k++)
            m[i][k] = v->eye[i][0] * lin[k] + v->eye[i][1] * lin[3 + k] + v->eye[i][2] * lin[6 + k];
    }
    for (i = 0; i < 4; i++)
        for (k = 0; k < 4; k++) {
            float sum = v->clip[i][0] * m[0][k];

            for (j = 1; j < 4; j++)
                sum += v->clip[i][j] * m[j][k];
            rows->row[i][k] = sum;
        }
}

// --- clipping -----------------------------------------------------------------------------------

struct corner {
    float clip[4];
    float x, y, z; // window
};

static float distance_to(const struct corner *c, int plane)
{
    static const float planes[6][4] = {{-1, 0, 0, 1}, {1, 0, 0, 1}, {0, -1, 0, 1},
                                       {0, 1, 0, 1},  {0, 0, 1, 0}, {0, 0, -1, 1}};
    const float *p = planes[plane], *a = c->clip;

    return a[0] * p[0] + a[1] * p[1] + a[2] * p[2] + a[3] * p[3];
}

// A corner of the model: the shader's code has fused multiplications, that of clipping has not.
static void set_window(struct corner *c, const struct rays_depth_view *v, bool fused)
{
    float inv = 1.0f / c->clip[3], x = c->clip[0] * inv, y = c->clip[1] * inv;

    c->x = fused ? fmaf(x, v->half[0], v->half[0]) : x * v->half[0] + v->half[0];
    c->y = fused ? fmaf(y, v->half[1], v->half[1]) : y * v->half[1] + v->half[1];
    c->z = c->clip[2] * inv;
}

static void between(struct corner *out, const struct rays_depth_view *v, float t,
                    const struct corner *from, const struct corner *to)
{
    int k;

    for (k = 0; k < 4; k++)
        out->clip[k] = from->clip[k] + t * (to->clip[k] - from->clip[k]);
    set_window(out, v, false);
}

// Where the edge from a to b meets the plane, from the nearer end.
static void cross_plane(struct corner *out, const struct rays_depth_view *v, const struct corner *a,
                        float da, const struct corner *b, float db)
{
    float span = db - da;
    bool from_b = db < 0 ? -db < da : !(-da < db);

    if (from_b)
        between(out, v, db / span, b, a);
    else
        between(out, v, -da / span, a, b);
}

static int clip_to(struct corner *out, const struct corner *in, int n,
                   const struct rays_depth_view *v, int plane)
{
    float before = distance_to(&in[0], plane);
    int i, m = 0;

    for (i = 1; i <= n && m < POLYGON - 1; i++) {
        const struct corner *c = &in[i == n ? 0 : i];
        float d = distance_to(c, plane);

        if (before >= 0)
            out[m++] = in[i - 1];
        if (before >= 0 ? d < 0 : !(d < 0))
            cross_plane(&out[m++], v, &in[i - 1], before, c, d);
        before = d;
    }
    return m;
}

// Bit k: corners of the triangle are outside of plane k.
static unsigned planes_cut(const struct corner *c)
{
    unsigned cut = 0;
    int plane, i;

    for (plane = 0; plane < 6; plane++)
        for (i = 0; i < 3; i++)
            if (distance_to(&c[i], plane) < 0)
                cut |= 1u << plane;
    return cut;
}

// What is left of the triangle in view; returns its corners.
static int clip_triangle(struct corner *c, const struct rays_depth_view *v, unsigned cut)
{
    struct corner other[POLYGON];
    int plane, n = 3;

    for (plane = 0; plane < 6 && n >= 3; plane++)
        if (cut >> plane & 1) {
            n = clip_to(other, c, n, v, plane);
            memcpy(c, other, (size_t)n * sizeof c[0]);
        }
    return n;
}

// --- the plane ----------------------------------------------------------------------------------

static float twice_area(const struct corner *a, const struct corner *b, const struct corner *c)
{
    return (a->x - b->x) * (c->y - a->y) - (c->x - a->x) * (a->y - b->y);
}

// How far (x, y) is inside of a triangle, or outside (negative), as a share of its area.
static float inside(const struct corner *const c[3], float x, float y)
{
    float least = INFINITY;
    double area = 0, part[3];
    int k;

    for (k = 0; k < 3; k++) {
        const struct corner *a = c[k], *b = c[k == 2 ? 0 : k + 1];

        part[k] = ((double)a->x - (double)x) * ((double)b->y - (double)y) -
                  ((double)b->x - (double)x) * ((double)a->y - (double)y);
        area += part[k];
    }
    for (k = 0; k < 3; k++)
        least = fminf(least, (float)(part[k] / area));
    return least;
}

static float plane_at(const struct corner *a, const struct corner *b, const struct corner *c,
                      float centre, float x, float y)
{
    float dx01 = a->x - b->x, dy01 = a->y - b->y, dx20 = c->x - a->x, dy20 = c->y - a->y;
    float scale = 1.0f / (dx01 * dy20 - dy01 * dx20);
    float dz01 = a->z - b->z, dz20 = c->z - a->z;
    float dzdx = dz01 * (dy20 * scale) - dz20 * (dy01 * scale);
    float dzdy = dz20 * (dx01 * scale) - dz01 * (dx20 * scale);
    float z = a->z - (dzdx * (a->x - centre) + dzdy * (a->y - centre));

    return fmaf(dzdy, y - centre, fmaf(dzdx, x - centre, z));
}

// The polygon's part at (x, y): it is drawn as triangles, each of which ends with its first corner.
static void find_part(const struct corner *part[3], const struct corner *c, int n, float x, float y)
{
    float most = -INFINITY;
    int i;

    for (i = 2; i < n; i++) {
        const struct corner *const of[3] = {&c[i - 1], &c[i], &c[0]};
        float in = inside(of, x, y);

        if (i == 2 || in > most) {
            most = in;
            memcpy(part, of, sizeof of);
        }
    }
}

float rays_depth_at(const struct rays_depth_view *v, const struct rays_depth_rows *rows,
                    const float p[3][3], int samples, float x, float y)
{
    struct corner c[POLYGON];
    const struct corner *of[3] = {&c[0], &c[1], &c[2]};
    float centre = samples == 1 ? 0.5f : 0; // planes start from pixels' centres then
    unsigned cut;
    int i, k, n;

    for (i = 0; i < 3; i++) {
        for (k = 0; k < 4; k++)
            c[i].clip[k] = dot3f(rows->row[k], p[i]) + rows->row[k][3];
        set_window(&c[i], v, true);
    }
    cut = planes_cut(c);
    if (cut) {
        n = clip_triangle(c, v, cut);
        if (n < 3)
            return 0; // out of view
        find_part(of, c, n, x, y);
    }
    if (twice_area(of[0], of[1], of[2]) < 0) // seen from behind
        return plane_at(of[1], of[0], of[2], centre, x, y);
    return plane_at(of[0], of[1], of[2], centre, x, y);
}
