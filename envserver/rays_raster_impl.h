// rays_raster_impl.h - the loops of rays_raster.c, compiled once per instruction set. The including
// file defines LANES as 8, TARGET and NAME(x).

// Bit l: lane l of the mask.
INLINE TARGET unsigned NAME(bits)(VI mask)
{
#if BITS_256
    return (unsigned)__builtin_ia32_movmskps256((VF)mask);
#elif defined(__SSE__)
    typedef float half __attribute__((vector_size(16)));
    half h[2];

    memcpy(h, &mask, sizeof h);
    return (unsigned)__builtin_ia32_movmskps(h[0]) | (unsigned)__builtin_ia32_movmskps(h[1]) << 4;
#else
    unsigned bits = 0;
    int l;

    for (l = 0; l < LANES; l++)
        bits |= (unsigned)(mask[l] != 0) << l;
    return bits;
#endif
}

// Places of the samples of LANES rays that follow one another in a row of a tile, in units.
struct NAME(samples) {
    VF x, y;
    int pixels; // that they take
};

INLINE TARGET struct NAME(samples) NAME(sample_places)(const struct rays_pattern *p)
{
    struct NAME(samples) s = {V_(load)(p->x) * UNIT, V_(load)(p->y) * UNIT, LANES / p->samples};

    return s;
}

// --- one triangle -------------------------------------------------------------------------------

// Corners in units, 1 / depth, and what follows from them: insides of the edges are where
// a x + b y + c >= 0, and 1 / depth is q[0] + gx x + gy y, within lo and hi, x and y from corner 0.
struct NAME(tri) {
    float x[3], y[3], q[3];
    float a[3], b[3];
    float gx, gy, lo, hi;
    int prim;
};

INLINE TARGET bool NAME(set_tri)(struct NAME(tri) * t)
{
    float area =
        (t->x[1] - t->x[0]) * (t->y[2] - t->y[0]) - (t->x[2] - t->x[0]) * (t->y[1] - t->y[0]);
    int k;

    if (!(area > 0))
        return false;
    for (k = 0; k < 3; k++) {
        int n = k == 2 ? 0 : k + 1;

        t->a[k] = t->y[k] - t->y[n];
        t->b[k] = t->x[n] - t->x[k];
    }
    t->gx =
        ((t->q[1] - t->q[0]) * (t->y[2] - t->y[0]) - (t->q[2] - t->q[0]) * (t->y[1] - t->y[0])) /
        area;
    t->gy =
        ((t->q[2] - t->q[0]) * (t->x[1] - t->x[0]) - (t->q[1] - t->q[0]) * (t->x[2] - t->x[0])) /
        area;
    t->lo = t->q[0] < t->q[1] ? t->q[0] : t->q[1];
    t->lo = t->q[2] < t->lo ? t->q[2] : t->lo;
    t->hi = t->q[0] > t->q[1] ? t->q[0] : t->q[1];
    t->hi = t->q[2] > t->hi ? t->q[2] : t->hi;
    return true;
}

// The part of the tile at (ox, oy) within pixels x0..x1, y0..y1 of it.
INLINE TARGET void NAME(fill_tile)(const struct canvas *c, const struct NAME(samples) * s,
                                   const struct NAME(tri) * t, struct rays_tile *tile, float ox,
                                   float oy, const int px[2], const int py[2])
{
    float e[3], w = (float)((px[1] + 1) * UNIT), h = (float)((py[1] + 1) * UNIT), q, near;
    bool inside = true;
    VF step[3], depth;
    int k, y, g;

    for (k = 0; k < 3; k++) {
        float a = t->a[k], b = t->b[k], most, least;

        e[k] = (float)((double)a * (double)(ox - t->x[k]) + (double)b * (double)(oy - t->y[k])) +
               edge_bias(a, b);
        most = e[k] + (a > 0 ? a * w : 0) + (b > 0 ? b * h : 0);
        least = e[k] + (a < 0 ? a * w : 0) + (b < 0 ? b * h : 0);
        if (most < 0)
            return;
        inside = inside && least >= 0;
        step[k] = a * s->x + b * s->y;
    }
    q = t->q[0] + t->gx * (ox - t->x[0]) + t->gy * (oy - t->y[0]);
    near = q + (t->gx > 0 ? t->gx * w : 0) + (t->gy > 0 ? t->gy * h : 0);
    near = near < t->hi ? near : t->hi;
    if (near * tile->limit < 1 - 2 * SAME_DEPTH)
        return; // all of it is hidden
    depth = t->gx * s->x + t->gy * s->y;
    for (y = py[0]; y <= py[1]; y++)
        for (g = px[0] / s->pixels; g * s->pixels <= px[1]; g++) {
            float dx = (float)(g * s->pixels * UNIT), dy = (float)(y * UNIT);
            int at = (y * TILE + g * s->pixels) * c->pattern->samples;
            VF old = V_(load)(tile->t + at), d;
            VI hit = (VI){0} - 1, inst = V_(loadi)(tile->inst + at);

            if (!inside) {
                VF m = step[0] + (e[0] + t->a[0] * dx + t->b[0] * dy);

                for (k = 1; k < 3; k++)
                    m = V_(min)(m, step[k] + (e[k] + t->a[k] * dx + t->b[k] * dy));
                hit = (VI)(m >= 0);
                if (!NAME(bits)(hit))
                    continue;
            }
            d = depth + (q + t->gx * dx + t->gy * dy);
            d = 1 / V_(min)(V_(max)(d, V_(all)(t->lo)), V_(all)(t->hi));
            hit &= (VI)(d < old * (1 - SAME_DEPTH)) |
                   ((VI)(d <= old * (1 + SAME_DEPTH)) & (VI)(inst < c->inst));
            if (!NAME(bits)(hit))
                continue;
            V_(store)(tile->t + at, V_(pick)(hit, d, old));
            V_(storei)(tile->inst + at, V_(picki)(hit, (VI){0} + c->inst, inst));
            V_(storei)
            (tile->prim + at, V_(picki)(hit, (VI){0} + t->prim, V_(loadi)(tile->prim + at)));
            tile->stale = true;
        }
}

INLINE TARGET float NAME(least3)(const float x[3])
{
    float m = x[0] < x[1] ? x[0] : x[1];

    return x[2] < m ? x[2] : m;
}

INLINE TARGET float NAME(most3)(const float x[3])
{
    float m = x[0] > x[1] ? x[0] : x[1];

    return x[2] > m ? x[2] : m;
}

TARGET static void NAME(fill_tri)(const struct canvas *c, struct NAME(tri) * t)
{
    const struct rays_block *b = c->block;
    struct NAME(samples) s = NAME(sample_places)(c->pattern);
    float x0 = NAME(least3)(t->x), x1 = NAME(most3)(t->x);
    float y0 = NAME(least3)(t->y), y1 = NAME(most3)(t->y);
    int i, j, to_i, to_j;

    if (x1 < 0 || y1 < 0 || x0 >= c->width || y0 >= c->height || !NAME(set_tri)(t))
        return;
    to_i = into_tiles(x1, b->nx);
    to_j = into_tiles(y1, b->ny);
    for (j = into_tiles(y0, b->ny); j <= to_j; j++)
        for (i = into_tiles(x0, b->nx); i <= to_i; i++) {
            float ox = (float)(i * TILE_UNIT), oy = (float)(j * TILE_UNIT);
            int px[2], py[2];

            px[0] = x0 <= ox ? 0 : (int)(x0 - ox) / UNIT;
            py[0] = y0 <= oy ? 0 : (int)(y0 - oy) / UNIT;
            px[1] = x1 >= ox + TILE_UNIT ? TILE - 1 : (int)(x1 - ox) / UNIT;
            py[1] = y1 >= oy + TILE_UNIT ? TILE - 1 : (int)(y1 - oy) / UNIT;
            NAME(fill_tile)(c, &s, t, &b->tile[j * b->nx + i], ox, oy, px, py);
        }
}

// --- triangles that reach behind the eye or far beside the picture ------------------------------

// A corner before the division: X z, Y z, z.
struct NAME(point) {
    double v[3];
};

// Keep the part of the polygon where k . v >= k0.
INLINE TARGET int NAME(cut)(struct NAME(point) * p, int n, const double k[3], double k0)
{
    struct NAME(point) out[POLYGON];
    int i, j, m = 0;

    for (i = 0; i < n; i++) {
        const double *a = p[i].v, *b = p[i + 1 == n ? 0 : i + 1].v;
        double da = k[0] * a[0] + k[1] * a[1] + k[2] * a[2] - k0;
        double db = k[0] * b[0] + k[1] * b[1] + k[2] * b[2] - k0;

        if (da >= 0 && m < POLYGON)
            out[m++] = p[i];
        if ((da >= 0) != (db >= 0) && m < POLYGON) {
            for (j = 0; j < 3; j++)
                out[m].v[j] = a[j] + (b[j] - a[j]) * (da / (da - db));
            m++;
        }
    }
    memcpy(p, out, (size_t)m * sizeof out[0]);
    return m;
}

TARGET static void NAME(cut_and_fill)(const struct canvas *c, const struct rays_batch *b, int lane)
{
    static const double sides[4][3] = {
        {1, 0, REACH}, {-1, 0, REACH}, {0, 1, REACH}, {0, -1, REACH}};
    static const double ahead[3] = {0, 0, 1};
    struct NAME(point) p[POLYGON];
    struct NAME(tri) t;
    int i, k, n = 3, to[3];

    for (i = 0; i < 3; i++)
        for (k = 0; k < 3; k++) {
            const double *m = c->to.m[k];

            p[i].v[k] = m[0] * (double)b->p[i][0][lane] + m[1] * (double)b->p[i][1][lane] +
                        m[2] * (double)b->p[i][2][lane] + m[3];
        }
    n = NAME(cut)(p, n, ahead, (double)c->to.near);
    for (i = 0; i < 4; i++)
        n = NAME(cut)(p, n, sides[i], 0);
    for (i = 2; i < n; i++) {
        to[0] = 0;
        to[1] = i - 1;
        to[2] = i;
        t.prim = b->prim[lane];
        for (k = 0; k < 3; k++) {
            const double *v = p[to[k]].v;

            t.x[k] = (float)nearbyint(v[0] / v[2]);
            t.y[k] = (float)nearbyint(v[1] / v[2]);
            t.q[k] = (float)(1 / v[2]);
        }
        NAME(fill_tri)(c, &t);
    }
}

// --- batches ------------------------------------------------------------------------------------

// LANES triangles side by side.
struct NAME(batch) {
    VF x[3], y[3], q[3];
    VF a[3], b[3], bias[3];
    VF gx, gy, lo, hi;
    VI px[2], py[2]; // pixels with samples that may be inside
};

// Pixels of the first and last sample line between lo and hi.
INLINE TARGET VI NAME(sample_lines)(const struct canvas *c, VF lo, VF hi, VI at[2])
{
    VI a = V_(toint)(lo), b = V_(toint)(hi); // whole numbers
    VI some;

    if (c->pattern->samples == 1) {
        at[0] = (a + 127) >> 8;
        at[1] = (b - 128) >> 8;
        return at[0] <= at[1];
    }
    a = (a + 31) >> 6; // lines at 1/8, 3/8, 5/8 and 7/8 of a pixel
    b = (b - 32) >> 6;
    some = a <= b;
    at[0] = a >> 2;
    at[1] = b >> 2;
    return some;
}

INLINE TARGET void NAME(set_planes)(struct NAME(batch) * t, VF area)
{
    VF inv = 1 / V_(max)(area, V_(all)(1));
    int k;

    for (k = 0; k < 3; k++) {
        int n = k == 2 ? 0 : k + 1;

        t->a[k] = t->y[k] - t->y[n];
        t->b[k] = t->x[n] - t->x[k];
        t->bias[k] = V_(pick)((VI)(t->a[k] > 0) | ((VI)(t->a[k] == 0) & (VI)(t->b[k] > 0)),
                              V_(all)(0), V_(all)(-0.5f));
    }
    t->gx =
        ((t->q[1] - t->q[0]) * (t->y[2] - t->y[0]) - (t->q[2] - t->q[0]) * (t->y[1] - t->y[0])) *
        inv;
    t->gy =
        ((t->q[2] - t->q[0]) * (t->x[1] - t->x[0]) - (t->q[1] - t->q[0]) * (t->x[2] - t->x[0])) *
        inv;
    t->lo = V_(min)(V_(min)(t->q[0], t->q[1]), t->q[2]);
    t->hi = V_(max)(V_(max)(t->q[0], t->q[1]), t->q[2]);
}

// Samples of one pixel each of the lanes in `want`: those at px[0] + dx, py[0] + dy.
INLINE TARGET void NAME(fill_pixels)(const struct canvas *c, const struct NAME(batch) * t, VI want,
                                     int dx, int dy, const int *prim)
{
    const struct rays_block *blk = c->block;
    VI px = t->px[0] + dx, py = t->py[0] + dy;
    VF x = V_(tofloat)(px) * UNIT, y = V_(tofloat)(py) * UNIT, e[3], q;
    _Alignas(32) int tile[LANES], ray[LANES];
    _Alignas(32) float depth[LANES];
    int k, l, s, n = c->pattern->samples;

    for (k = 0; k < 3; k++)
        e[k] = t->a[k] * (x - t->x[k]) + t->b[k] * (y - t->y[k]) + t->bias[k];
    q = t->q[0] + t->gx * (x - t->x[0]) + t->gy * (y - t->y[0]);
    V_(storei)(tile, (py >> TILE_BITS) * blk->nx + (px >> TILE_BITS));
    V_(storei)(ray, (py & (TILE - 1)) * TILE + (px & (TILE - 1)));
    for (s = 0; s < n; s++) {
        float sx = c->pattern->x[s] * UNIT, sy = c->pattern->y[s] * UNIT;
        VF m =
            V_(min)(V_(min)(e[0] + t->a[0] * sx + t->b[0] * sy, e[1] + t->a[1] * sx + t->b[1] * sy),
                    e[2] + t->a[2] * sx + t->b[2] * sy);
        unsigned hit = NAME(bits)((VI)(m >= 0) & want);

        if (!hit)
            continue;
        V_(store)(depth, 1 / V_(min)(V_(max)(q + t->gx * sx + t->gy * sy, t->lo), t->hi));
        for (; hit; hit &= hit - 1) {
            l = __builtin_ctz(hit);
            meet(&blk->tile[tile[l]], ray[l] * n + s, depth[l], c->inst, prim[l]);
        }
    }
}

// Small ones all at once, larger ones one by one.
INLINE TARGET void NAME(fill_batch)(const struct canvas *c, const struct NAME(batch) * t, VI want,
                                    const struct rays_batch *b)
{
    VI wide = (VI)(t->px[1] > t->px[0]), high = (VI)(t->py[1] > t->py[0]);
    VI small = want & (VI)(t->px[1] - t->px[0] <= 1) & (VI)(t->py[1] - t->py[0] <= 1);
    VI left = want & ~small;

    if (NAME(bits)(small)) {
        NAME(fill_pixels)(c, t, small, 0, 0, b->prim);
        if (NAME(bits)(small & wide))
            NAME(fill_pixels)(c, t, small & wide, 1, 0, b->prim);
        if (NAME(bits)(small & high))
            NAME(fill_pixels)(c, t, small & high, 0, 1, b->prim);
        if (NAME(bits)(small & wide & high))
            NAME(fill_pixels)(c, t, small & wide & high, 1, 1, b->prim);
    }
    if (NAME(bits)(left)) {
        struct NAME(tri) one;
        unsigned rest = NAME(bits)(left);
        _Alignas(32) float x[3][LANES], y[3][LANES], q[3][LANES];
        int l, k;

        for (k = 0; k < 3; k++) {
            V_(store)(x[k], t->x[k]);
            V_(store)(y[k], t->y[k]);
            V_(store)(q[k], t->q[k]);
        }
        for (; rest; rest &= rest - 1) {
            l = __builtin_ctz(rest);
            for (k = 0; k < 3; k++) {
                one.x[k] = x[k][l];
                one.y[k] = y[k][l];
                one.q[k] = q[k][l];
            }
            one.prim = b->prim[l];
            NAME(fill_tri)(c, &one);
        }
    }
}

INLINE TARGET VF NAME(row)(const float m[4], VF x, VF y, VF z)
{
    return m[0] * x + m[1] * y + m[2] * z + m[3];
}

TARGET static void NAME(draw_batch)(const struct canvas *c, const struct rays_batch *b)
{
    const VF round = V_(all)(12582912.0f); // 1.5 * 2^23: what is left has no fraction
    VI cut = {0}, behind = (VI){0} - 1, real = (VI)(V_(loadi)(b->prim) >= 0), want;
    VF area, x0, x1, y0, y1;
    struct NAME(batch) t;
    unsigned left;
    int k;

    for (k = 0; k < 3; k++) {
        VF px = V_(load)(b->p[k][0]), py = V_(load)(b->p[k][1]), pz = V_(load)(b->p[k][2]);
        VF z = NAME(row)(c->to.f[2], px, py, pz), x, y;
        VI near = (VI)(z < c->to.near);

        t.q[k] = 1 / V_(max)(z, V_(all)(c->to.near));
        x = NAME(row)(c->to.f[0], px, py, pz) * t.q[k];
        y = NAME(row)(c->to.f[1], px, py, pz) * t.q[k];
        cut |= near | (VI)(V_(max)(V_(abs)(x), V_(abs)(y)) > REACH);
        behind &= near;
        t.x[k] = (x + round) - round;
        t.y[k] = (y + round) - round;
    }
    real &= ~behind;
    cut &= real;
    area = (t.x[1] - t.x[0]) * (t.y[2] - t.y[0]) - (t.x[2] - t.x[0]) * (t.y[1] - t.y[0]);
    x0 = V_(max)(V_(min)(V_(min)(t.x[0], t.x[1]), t.x[2]), V_(all)(0));
    y0 = V_(max)(V_(min)(V_(min)(t.y[0], t.y[1]), t.y[2]), V_(all)(0));
    x1 = V_(min)(V_(max)(V_(max)(t.x[0], t.x[1]), t.x[2]), V_(all)(c->width - 1));
    y1 = V_(min)(V_(max)(V_(max)(t.y[0], t.y[1]), t.y[2]), V_(all)(c->height - 1));
    want = real & ~cut & (VI)(area > 0) & (VI)(x0 <= x1) & (VI)(y0 <= y1);
    if (NAME(bits)(want)) {
        want &= NAME(sample_lines)(c, x0, x1, t.px) & NAME(sample_lines)(c, y0, y1, t.py);
        if (NAME(bits)(want)) {
            NAME(set_planes)(&t, area);
            NAME(fill_batch)(c, &t, want, b);
        }
    }
    for (left = NAME(bits)(cut); left; left &= left - 1)
        NAME(cut_and_fill)(c, b, __builtin_ctz(left));
}

// --- clusters -----------------------------------------------------------------------------------

INLINE TARGET float NAME(least)(VF v)
{
    _Alignas(32) float x[LANES];
    int l;

    V_(store)(x, v);
    for (l = 1; l < LANES; l++)
        x[0] = x[l] < x[0] ? x[l] : x[0];
    return x[0];
}

// Is anything of the block's tiles from (x0, y0) to (x1, y1), in units, farther than `depth`?
INLINE TARGET bool NAME(visible)(const struct canvas *c, float x0, float y0, float x1, float y1,
                                 float depth)
{
    const struct rays_block *b = c->block;
    int i, j, to_i = into_tiles(x1, b->nx), to_j = into_tiles(y1, b->ny);

    for (j = into_tiles(y0, b->ny); j <= to_j; j++)
        for (i = into_tiles(x0, b->nx); i <= to_i; i++)
            if (depth <= b->tile[j * b->nx + i].limit * (1 + 1e-5f))
                return true;
    return false;
}

INLINE TARGET bool NAME(turned_away)(const struct canvas *c, const struct rays_cluster *k)
{
    float d[3], along = 0, len2 = 0;
    int i;

    for (i = 0; i < 3; i++) {
        d[i] = k->centre[i] - c->to.eye[i];
        along += d[i] * k->axis[i];
        len2 += d[i] * d[i];
    }
    return along > 0 && along >= k->cutoff * sqrtf(len2) + k->radius;
}

INLINE TARGET bool NAME(in_view)(const struct canvas *c, const struct rays_cluster *k)
{
    VF x = {k->lo[0], k->hi[0], k->lo[0], k->hi[0], k->lo[0], k->hi[0], k->lo[0], k->hi[0]};
    VF y = {k->lo[1], k->lo[1], k->hi[1], k->hi[1], k->lo[1], k->lo[1], k->hi[1], k->hi[1]};
    VF z = {k->lo[2], k->lo[2], k->lo[2], k->lo[2], k->hi[2], k->hi[2], k->hi[2], k->hi[2]};
    VF depth = NAME(row)(c->to.f[2], x, y, z), wx, wy;
    float nearest = NAME(least)(depth), x0, x1, y0, y1;

    if (nearest < c->to.near)
        return -NAME(least)(-depth) >= c->to.near;
    wx = NAME(row)(c->to.f[0], x, y, z) / depth;
    wy = NAME(row)(c->to.f[1], x, y, z) / depth;
    x0 = NAME(least)(wx) - 1;
    y0 = NAME(least)(wy) - 1;
    x1 = 1 - NAME(least)(-wx);
    y1 = 1 - NAME(least)(-wy);
    if (x1 < 0 || y1 < 0 || x0 >= c->width || y0 >= c->height || nearest > c->to.far)
        return false;
    return NAME(visible)(c, x0, y0, x1, y1, nearest * (1 - 1e-5f));
}

TARGET static void NAME(draw)(const struct rays_scene *s, const struct rays_view *v, int i,
                              const struct rays_block *b)
{
    const struct rays_clusters *all = &s->inst[i].mesh->clusters;
    struct canvas c = {.block = b, .pattern = b->tile[0].pattern, .inst = i};
    int k, j;

    c.width = (float)(b->nx * TILE_UNIT);
    c.height = (float)(b->ny * TILE_UNIT);
    project(&c.to, s, v, i, b);
    // Limits are kept for the whole instance: they can only be too far then.
    for (j = 0; j < b->nx * b->ny; j++)
        (void)rays_tile_limit(&b->tile[j]);
    for (k = 0; k < all->n_cluster; k++) {
        const struct rays_cluster *cluster = &all->cluster[k];

        if (NAME(turned_away)(&c, cluster) || !NAME(in_view)(&c, cluster))
            continue;
        for (j = cluster->first; j < cluster->first + cluster->n; j++)
            NAME(draw_batch)(&c, &all->batch[j]);
    }
}
