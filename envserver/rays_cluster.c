#include "envserver/rays_cluster.h"

#include "common/base/mem.h"

#include <math.h>
#include <string.h>

#define CLUSTER_TRIS (BATCH_LANES * CLUSTER_BATCHES)

struct sorter {
    const float *pos;
    int *order;         // owned (n), triangles
    float (*centre)[3]; // owned (n), by triangle
};

// --- order in space -----------------------------------------------------------------------------

static int widest_axis(const struct sorter *s, int from, int to)
{
    float lo[3] = {INFINITY, INFINITY, INFINITY}, hi[3] = {-INFINITY, -INFINITY, -INFINITY};
    int i, k, axis = 0;

    for (i = from; i < to; i++)
        for (k = 0; k < 3; k++) {
            float x = s->centre[s->order[i]][k];

            lo[k] = x < lo[k] ? x : lo[k];
            hi[k] = x > hi[k] ? x : hi[k];
        }
    for (k = 1; k < 3; k++)
        if (hi[k] - lo[k] > hi[axis] - lo[axis])
            axis = k;
    return axis;
}

// Put order[from..to) so that nothing before `at` is beyond anything from `at` on (quickselect).
static void divide(const struct sorter *s, int from, int to, int at, int axis)
{
    while (to - from > 1) {
        float pivot = s->centre[s->order[(from + to) / 2]][axis];
        int i = from, j = to - 1;

        while (i <= j) {
            while (s->centre[s->order[i]][axis] < pivot)
                i++;
            while (s->centre[s->order[j]][axis] > pivot)
                j--;
            if (i <= j) {
                int swap = s->order[i];

                s->order[i++] = s->order[j];
                s->order[j--] = swap;
            }
        }
        if (at <= j)
            to = j + 1;
        else if (at >= i)
            from = i;
        else
            return;
    }
}

// Halve until a batch is left; cuts are between clusters, then between batches.
static void sort(const struct sorter *s, int from, int to)
{
    int n = to - from, unit = n > CLUSTER_TRIS ? CLUSTER_TRIS : BATCH_LANES, at;

    if (n <= BATCH_LANES)
        return;
    at = from + (n / 2 + unit - 1) / unit * unit;
    divide(s, from, to, at, widest_axis(s, from, to));
    sort(s, from, at);
    sort(s, at, to);
}

// --- clusters -----------------------------------------------------------------------------------

static void fill_batch(struct rays_batch *b, const struct sorter *s, int from, int to)
{
    int l, i, k;

    for (l = 0; l < BATCH_LANES; l++) {
        bool real = from + l < to;
        const float *p = s->pos + 9 * (size_t)s->order[real ? from + l : from];

        b->prim[l] = real ? s->order[from + l] : -1;
        for (i = 0; i < 3; i++)
            for (k = 0; k < 3; k++)
                b->p[i][k][l] = p[real ? 3 * i + k : k];
    }
}

// Unit normal; false if the triangle has no area.
static bool normal_of(const float *p, double n[3])
{
    double e[3], f[3], len;
    int k;

    for (k = 0; k < 3; k++) {
        e[k] = (double)p[3 + k] - (double)p[k];
        f[k] = (double)p[6 + k] - (double)p[k];
    }
    n[0] = e[1] * f[2] - e[2] * f[1];
    n[1] = e[2] * f[0] - e[0] * f[2];
    n[2] = e[0] * f[1] - e[1] * f[0];
    len = sqrt(n[0] * n[0] + n[1] * n[1] + n[2] * n[2]);
    for (k = 0; k < 3; k++)
        n[k] /= len > 0 ? len : 1;
    return len > 0;
}

static void set_cone(struct rays_cluster *c, const struct sorter *s, int from, int to)
{
    double sum[3] = {0}, n[3], len, least = 1;
    int i, k;

    for (i = from; i < to; i++)
        if (normal_of(s->pos + 9 * (size_t)s->order[i], n))
            for (k = 0; k < 3; k++)
                sum[k] += n[k];
    len = sqrt(sum[0] * sum[0] + sum[1] * sum[1] + sum[2] * sum[2]);
    c->cutoff = 2;
    if (len < 1e-6)
        return;
    for (i = from; i < to; i++)
        if (normal_of(s->pos + 9 * (size_t)s->order[i], n))
            least = fmin(least, (n[0] * sum[0] + n[1] * sum[1] + n[2] * sum[2]) / len);
    for (k = 0; k < 3; k++)
        c->axis[k] = (float)(sum[k] / len);
    if (least > 0.05)
        c->cutoff = (float)sqrt(1 - least * least) + 1e-3f;
}

static void fill_cluster(struct rays_cluster *c, const struct sorter *s, int from, int to)
{
    double r2 = 0;
    int i, k;

    for (k = 0; k < 3; k++) {
        c->lo[k] = INFINITY;
        c->hi[k] = -INFINITY;
    }
    for (i = from; i < to; i++)
        for (k = 0; k < 9; k++) {
            float x = s->pos[9 * (size_t)s->order[i] + (size_t)k];

            c->lo[k % 3] = x < c->lo[k % 3] ? x : c->lo[k % 3];
            c->hi[k % 3] = x > c->hi[k % 3] ? x : c->hi[k % 3];
        }
    for (k = 0; k < 3; k++) {
        double half = 0.5 * ((double)c->hi[k] - (double)c->lo[k]);

        c->centre[k] = 0.5f * (c->lo[k] + c->hi[k]);
        r2 += half * half;
    }
    c->radius = (float)(sqrt(r2) * 1.001);
    set_cone(c, s, from, to);
}

static void fill_all(struct rays_clusters *out, const struct sorter *s, int n)
{
    int from, b;

    for (b = 0; b < out->n_batch; b++)
        fill_batch(&out->batch[b], s, b * BATCH_LANES, n);
    for (from = 0; from < n; from += CLUSTER_TRIS) {
        struct rays_cluster *c = &out->cluster[out->n_cluster++];
        int to = from + CLUSTER_TRIS < n ? from + CLUSTER_TRIS : n;

        fill_cluster(c, s, from, to);
        c->first = from / BATCH_LANES;
        c->n = (to - from + BATCH_LANES - 1) / BATCH_LANES;
    }
}

enum status clusters_build(struct rays_clusters *out, const float *pos, int n)
{
    struct sorter s = {.pos = pos};
    int i, k;

    memset(out, 0, sizeof *out);
    out->n_batch = (n + BATCH_LANES - 1) / BATCH_LANES;
    out->batch = mem_alloc((size_t)out->n_batch, sizeof *out->batch);
    out->cluster = mem_alloc((size_t)(n / CLUSTER_TRIS + 1), sizeof *out->cluster);
    s.order = mem_alloc((size_t)n, sizeof *s.order);
    s.centre = mem_alloc((size_t)n, sizeof *s.centre);
    if (out->batch && out->cluster && s.order && s.centre) {
        for (i = 0; i < n; i++) {
            const float *p = pos + 9 * (size_t)i;

            s.order[i] = i;
            for (k = 0; k < 3; k++)
                s.centre[i][k] = (p[k] + p[3 + k] + p[6 + k]) / 3;
        }
        sort(&s, 0, n);
        fill_all(out, &s, n);
    }
    mem_free(s.order);
    mem_free(s.centre);
    if (n > 0 && out->n_cluster == 0) {
        clusters_free(out);
        return ST_NOMEM;
    }
    return ST_OK;
}

void clusters_free(struct rays_clusters *c)
{
    mem_free(c->batch);
    mem_free(c->cluster);
    memset(c, 0, sizeof *c);
}
