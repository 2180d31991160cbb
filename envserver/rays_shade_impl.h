// rays_shade_impl.h - the loops of rays_shade.c, compiled once per instruction set. The including
// file defines LANES as 8, TARGET and NAME(x).

// 1 / sqrt(x), 1e-7 relative.
INLINE VF NAME(rsqrt)(VF x)
{
    VF y = (VF)(0x5f3759df - ((VI)x >> 1)), half = 0.5f * x;
    int i;

    for (i = 0; i < 3; i++)
        y = y * (1.5f - half * y * y);
    return y;
}

INLINE VF NAME(dot)(const VF a[3], const VF b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

INLINE void NAME(cross)(VF out[3], const VF a[3], const VF b[3])
{
    out[0] = a[1] * b[2] - a[2] * b[1];
    out[1] = a[2] * b[0] - a[0] * b[2];
    out[2] = a[0] * b[1] - a[1] * b[0];
}

INLINE void NAME(unit)(VF a[3])
{
    VF inv = NAME(rsqrt)(V_(max)(NAME(dot)(a, a), V_(all)(1e-30f)));
    int k;

    for (k = 0; k < 3; k++)
        a[k] *= inv;
}

// x^e for x >= 0: 2^(e log2 x) with log2 from a series in (m-1)/(m+1), about 1e-6 relative.
INLINE VF NAME(power)(VF x, VF e)
{
    VI bits = (VI)V_(max)(x, V_(all)(1e-30f));
    VI exponent = ((bits - 0x3f3504f3) >> 23); // so that the mantissa is 0.707..1.414
    VF m = (VF)(bits - (exponent << 23)), z = (m - 1) / (m + 1), z2 = z * z, y, f, r;
    VI n;

    y = 2.885390082f * z *
            (1 + z2 * (0.333333333f + z2 * (0.2f + z2 * (0.142857143f + z2 * 0.111111111f)))) +
        V_(tofloat)(exponent);
    y = V_(max)(y * e, V_(all)(-126));
    n = V_(toint)(y - 0.5f); // y <= 0 here: rounds to the nearest
    f = (y - V_(tofloat)(n)) * 0.693147181f;
    r = 1 +
        f * (1 + f * (0.5f + f * (0.166666667f + f * (0.0416666667f +
                                                      f * (0.00833333333f + f * 0.00138888889f)))));
    r = (VF)((VI)r + (n << 23));
    r = V_(pick)((VI)(x > 0), r, V_(all)(0));
    return V_(pick)((VI)(e == 0), V_(all)(1), r);
}

// LANES corners: place relative to the eye, normal, direction to the eye.
struct NAME(corner) {
    VF p[3], n[3], view[3];
};

// Corners of up to SHADE_GROUP triangles: number i * n + l is corner i of triangle l.
#define CORNERS (3 * SHADE_GROUP)
struct NAME(corners) {
    int n; // triangles
    _Alignas(32) float p[3][CORNERS + LANES], nrm[3][CORNERS + LANES], tex[3][CORNERS + LANES];
    _Alignas(32) float rgb[3][CORNERS + LANES];
};

INLINE void NAME(gather)(struct NAME(corners) * c, const struct rays_inst *in,
                         const struct rays_material *mat, struct rays_facet *const facet[])
{
    struct mesh_tri tri;
    int l, i, k;

    for (l = 0; l < c->n; l++) {
        mesh_fetch(in->mesh, facet[l]->prim, &tri);
        for (i = 0; i < 3; i++)
            for (k = 0; k < 3; k++) {
                int at = i * c->n + l;

                c->p[k][at] = tri.p[i][k];
                c->nrm[k][at] = tri.n[i][k];
                c->tex[k][at] = mat->coords == TEX_PLACE         ? tri.p[i][k]
                                : mat->coords == TEX_UV && k < 2 ? tri.uv[i][k]
                                                                 : 0;
            }
    }
}

// From list coordinates to those of the view.
INLINE void NAME(place)(struct NAME(corners) * c, struct NAME(corner) * out,
                        const struct rays_inst *in, const struct rays_material *mat,
                        const float rel[3], int at)
{
    VF lp[3], ln[3];
    int k;

    for (k = 0; k < 3; k++) {
        lp[k] = V_(load)(c->p[k] + at);
        ln[k] = V_(load)(c->nrm[k] + at);
    }
    for (k = 0; k < 3; k++) {
        const float *a = in->lin + 3 * k, *b = in->nrm + 3 * k;

        out->p[k] = a[0] * lp[0] + a[1] * lp[1] + a[2] * lp[2] + rel[k];
        out->n[k] = b[0] * ln[0] + b[1] * ln[1] + b[2] * ln[2];
        out->view[k] = -out->p[k];
        V_(store)(c->p[k] + at, out->p[k]);
        if (mat->coords != TEX_NONE)
            V_(store)(c->tex[k] + at, V_(load)(c->tex[k] + at) * mat->scale[k] + mat->bias[k]);
    }
    NAME(unit)(out->n);
    NAME(unit)(out->view);
}

// The direct terms of light `l` at one corner: out += f (amb rgb + dif rgb N.L + spe ks S).
INLINE void NAME(add_light)(const struct rays_light *l, const struct rays_material *mat,
                            const float rgb[3], const struct NAME(corner) * c, VF out[3])
{
    VF to[3], f = V_(all)(1), nl, spec, half[3];
    VI lit;
    int k;

    if (l->directional) {
        for (k = 0; k < 3; k++)
            to[k] = V_(all)(-l->dir[k]);
    } else {
        VF d2, inv, dist, cosine = V_(all)(0);

        for (k = 0; k < 3; k++)
            to[k] = l->pos[k] - c->p[k];
        d2 = V_(max)(NAME(dot)(to, to), V_(all)(1e-30f));
        inv = NAME(rsqrt)(d2);
        dist = d2 * inv;
        for (k = 0; k < 3; k++) {
            to[k] *= inv;
            cosine -= to[k] * l->dir[k];
        }
        if (l->cone)
            f = V_(pick)((VI)(cosine < l->cos_cutoff), V_(all)(0),
                         NAME(power)(V_(max)(cosine, V_(all)(0)), V_(all)(l->exponent)));
        f /= l->att[0] + l->att[1] * dist + l->att[2] * d2;
    }
    nl = NAME(dot)(c->n, to);
    lit = (VI)(nl > 0);
    nl = V_(max)(nl, V_(all)(0));
    if (mat->exponent == 0) {
        // Mesa: without shininess a positional light has (N.L)^(N.L) for its highlight
        spec = l->directional ? V_(all)(1) : NAME(power)(nl, nl);
    } else {
        for (k = 0; k < 3; k++)
            half[k] = to[k] + c->view[k];
        NAME(unit)(half);
        spec = NAME(power)(V_(max)(NAME(dot)(c->n, half), V_(all)(0)), V_(all)(mat->exponent));
    }
    spec = V_(pick)(lit, spec * mat->specular, V_(all)(0));
    for (k = 0; k < 3; k++)
        out[k] += f * (rgb[k] * (l->amb[k] + l->dif[k] * nl) + l->spe[k] * spec);
}

// Lit and clamped colours of lights `mask` at LANES corners.
INLINE void NAME(light)(const struct rays_view *v, const struct rays_material *mat,
                        const struct NAME(corner) * c, const float rgb[3], unsigned mask,
                        const float start[3], VF out[3])
{
    int k, l;

    for (k = 0; k < 3; k++)
        out[k] = V_(all)(start[k]);
    for (l = 0; l < RAYS_LIGHT_MAX; l++)
        if (mask >> l & 1)
            NAME(add_light)(&v->light[l], mat, rgb, c, out);
    for (k = 0; k < 3; k++)
        out[k] = V_(min)(V_(max)(out[k], V_(all)(0)), V_(all)(1));
}

// A quantity that is linear in the window coordinates.
struct NAME(plane) {
    VF v[3]; // at the tile's corner, change per pixel to the right, up
};

struct NAME(weights) {
    struct NAME(plane) w, w1, w2, t; // w times 1, weights of corners 1 and 2, depth
};

// `a` times the direction (perspective) or the origin (orthographic) of a ray of the tile.
INLINE void NAME(along)(struct NAME(plane) * out, const VF a[3], const double at[3],
                        const double dx[3], const double dy[3], int x0, int y0)
{
    int j, k;

    for (j = 0; j < 3; j++)
        out->v[j] = V_(all)(0);
    for (k = 0; k < 3; k++) {
        out->v[0] += a[k] * (float)(at[k] + dx[k] * x0 + dy[k] * y0);
        out->v[1] += a[k] * (float)dx[k];
        out->v[2] += a[k] * (float)dy[k];
    }
}

// The weights of the corners where rays meet the triangles' planes.
INLINE void NAME(weigh)(struct NAME(weights) * out, const struct rays_view *v, const VF p0[3],
                        const VF e1[3], const VF e2[3], int x0, int y0)
{
    VF n[3], m1[3], m2[3], d[3];
    int j, k;

    NAME(cross)(n, e1, e2);
    for (k = 0; k < 3; k++)
        d[k] = v->ortho ? V_(all)((float)v->d[k]) : p0[k];
    NAME(cross)(m1, e2, d);
    NAME(cross)(m2, d, e1);
    if (!v->ortho) {
        NAME(along)(&out->w, n, v->d, v->dx, v->dy, x0, y0);
        NAME(along)(&out->w1, m1, v->d, v->dx, v->dy, x0, y0);
        NAME(along)(&out->w2, m2, v->d, v->dx, v->dy, x0, y0);
        out->t.v[0] = NAME(dot)(n, p0);
        out->t.v[1] = out->t.v[2] = V_(all)(0);
        return;
    }
    NAME(along)(&out->w1, m1, v->o, v->ox, v->oy, x0, y0);
    NAME(along)(&out->w2, m2, v->o, v->ox, v->oy, x0, y0);
    NAME(along)(&out->t, n, v->o, v->ox, v->oy, x0, y0);
    out->w.v[0] = NAME(dot)(n, d);
    out->w.v[1] = out->w.v[2] = V_(all)(0);
    out->w1.v[0] -= NAME(dot)(m1, p0);
    out->w2.v[0] -= NAME(dot)(m2, p0);
    out->t.v[0] -= NAME(dot)(n, p0);
    for (j = 0; j < 3; j++)
        out->t.v[j] = -out->t.v[j];
}

INLINE void NAME(transpose)(VF a[8])
{
    VF b[8], c[8];
    int i;

    for (i = 0; i < 4; i++) {
        b[2 * i] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        b[2 * i + 1] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (i = 0; i < 8; i += 4) {
        c[i] = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        c[i + 1] = __builtin_shufflevector(b[i + 1], b[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        c[i + 2] = __builtin_shufflevector(b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        c[i + 3] = __builtin_shufflevector(b[i + 1], b[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (i = 0; i < 4; i++) {
        a[i] = __builtin_shufflevector(c[i], c[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        a[i + 4] = __builtin_shufflevector(c[i], c[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

// Values at the corners of triangles -> the plane of the value times w.
INLINE void NAME(spread)(const struct NAME(weights) * w, const float *at, int n, VF out[3])
{
    VF a = V_(loadu)(at), b = V_(loadu)(at + n) - a, c = V_(loadu)(at + 2 * n) - a;
    int j;

    for (j = 0; j < 3; j++)
        out[j] = a * w->w.v[j] + b * w->w1.v[j] + c * w->w2.v[j];
}

INLINE void NAME(light_corners)(struct NAME(corners) * c, const struct NAME(corner) * corner,
                                const struct rays_view *v, const struct rays_material *mat,
                                const float rgb[3], unsigned mask, const float start[3])
{
    int at, k;

    for (at = 0; at < 3 * c->n; at += LANES) {
        VF lit[3];

        NAME(light)(v, mat, &corner[at / LANES], rgb, mask, start, lit);
        for (k = 0; k < 3; k++)
            V_(store)(c->rgb[k] + at, lit[k]);
    }
}

TARGET static void NAME(prepare)(const struct rays_scene *s, const struct rays_view *v, int x0,
                                 int y0, struct rays_facet *const facet[], int n,
                                 const struct rays_lighting *how)
{
    const struct rays_inst *in = &s->inst[facet[0]->inst];
    const struct rays_material *mat = &s->material[in->geom];
    struct NAME(corner) corner[CORNERS / LANES];
    struct NAME(corners) c;
    struct NAME(weights) w;
    float rgb[3], start[3], dark[3] = {0, 0, 0};
    VF p0[3], e1[3], e2[3], plane[8][3], row[8];
    int at, i, j, k, l;

    c.n = n;
    for (k = 0; k < 3; k++) // lanes beyond the last corner
        for (at = 3 * n; at < 3 * n + LANES; at++)
            c.p[k][at] = c.nrm[k][at] = c.tex[k][at] = c.rgb[k][at] = 0;
    NAME(gather)(&c, in, mat, facet);
    for (at = 0; at < 3 * n; at += LANES)
        NAME(place)(&c, &corner[at / LANES], in, mat, v->seen[facet[0]->inst].rel, at);
    for (k = 0; k < 3; k++) {
        p0[k] = V_(loadu)(c.p[k]);
        e1[k] = V_(loadu)(c.p[k] + n) - p0[k];
        e2[k] = V_(loadu)(c.p[k] + 2 * n) - p0[k];
        rgb[k] = mat->rgba[k] * how->scale;
        start[k] = mat->emission * rgb[k] + (s->no_light ? 0.3f * rgb[k] : 0);
    }
    NAME(weigh)(&w, v, p0, e1, e2, x0, y0);
    NAME(light_corners)(&c, corner, v, mat, rgb, how->base, start);
    for (k = 0; k < 3; k++) {
        NAME(spread)(&w, c.rgb[k], n, plane[FACET_RGB + k]);
        NAME(spread)(&w, c.tex[k], n, plane[FACET_TEX + k]);
    }
    for (j = 0; j < 3; j++) {
        for (k = 0; k < FACET_T; k++)
            row[k] = plane[k][j];
        row[FACET_T] = w.t.v[j];
        row[FACET_W] = w.w.v[j];
        NAME(transpose)(row);
        for (l = 0; l < n; l++)
            V_(store)(facet[l]->plane[j], row[l]);
    }
    for (i = 0; i < RAYS_LIGHT_MAX && how->shadowed >> i; i++) {
        if (!(how->shadowed >> i & 1))
            continue;
        NAME(light_corners)(&c, corner, v, mat, rgb, 1u << i, dark);
        for (k = 0; k < 3; k++) {
            NAME(spread)(&w, c.rgb[k], n, plane[k]);
            for (l = 0; l < n; l++)
                for (j = 0; j < 3; j++)
                    facet[l]->light[i][j][k] = plane[k][j][l];
        }
    }
}

// --- pixels -------------------------------------------------------------------------------------

INLINE VF NAME(floor)(VF x)
{
    VF t = V_(tofloat)(V_(toint)(x));

    return t - V_(pick)((VI)(t > x), V_(all)(1), V_(all)(0));
}

// Four numbers of a lane each -> one vector a number.
INLINE void NAME(columns)(float in[LANES][4], VF out[4])
{
    int l, k;

    for (k = 0; k < 4; k++)
        for (l = 0; l < LANES; l++)
            out[k][l] = in[l][k];
}

// What a level of a 2-D texture is asked for: the four texels around a place (RGBA, red lowest),
// the place between them in 1/256 and exactly.
struct NAME(fetch) {
    VI texel[4], fx, fy;
    VF x, y;
};

INLINE VI NAME(texels)(const struct rays_tex *tex, VI at)
{
    _Alignas(32) int i[LANES];
    int l;

    V_(storei)(i, at);
    for (l = 0; l < LANES; l++)
        memcpy(&i[l], tex->texel + 4 * (size_t)(unsigned)i[l], 4);
    return V_(loadi)(i);
}

INLINE void NAME(find_texels)(struct NAME(fetch) * f, const struct rays_tex *tex, VI level, VF s,
                              VF t)
{
    VI w = ((VI){0} + tex->w[0]) >> level, h = ((VI){0} + tex->h[0]) >> level, base;
    VI u, v, x0, x1, y0, y1;
    _Alignas(32) int l[LANES], offset[LANES];
    int i;

    V_(storei)(l, level);
    for (i = 0; i < LANES; i++)
        offset[i] = (int)(tex->offset[l[i]] / 4);
    base = V_(loadi)(offset);
    w = V_(picki)(w < 1, (VI){0} + 1, w);
    h = V_(picki)(h < 1, (VI){0} + 1, h);
    f->x = s * V_(tofloat)(w);
    f->y = t * V_(tofloat)(h);
    u = V_(toint)(NAME(floor)(f->x * 256)) - 128;
    v = V_(toint)(NAME(floor)(f->y * 256)) - 128;
    x0 = u >> 8;
    y0 = v >> 8;
    x1 = V_(picki)(x0 + 1 >= w, (VI){0}, x0 + 1);
    y1 = V_(picki)(y0 + 1 >= h, (VI){0}, y0 + 1);
    x0 = V_(picki)(x0 < 0, w - 1, x0);
    y0 = V_(picki)(y0 < 0, h - 1, y0);
    y0 = base + y0 * w;
    y1 = base + y1 * w;
    f->texel[0] = NAME(texels)(tex, y0 + x0);
    f->texel[1] = NAME(texels)(tex, y0 + x1);
    f->texel[2] = NAME(texels)(tex, y1 + x0);
    f->texel[3] = NAME(texels)(tex, y1 + x1);
    f->fx = u & 255;
    f->fy = v & 255;
}

// Two bytes a lane, each in 16 bits.
typedef uint16_t NAME(words) __attribute__((vector_size(32)));

// a + (((b - a) w + 128) >> 8) in bytes; what overflows cancels.
INLINE VI NAME(mix)(VI a, VI b, VI w)
{
    NAME(words) x = (NAME(words))a, y = (NAME(words))b, by = (NAME(words))(w | w << 16);

    return (VI)((x + (((y - x) * by + 128) >> 8)) & 255);
}

// Bytes 0 and 2, or 1 and 3, of LANES pixels.
INLINE VI NAME(bilinear)(const struct NAME(fetch) * f, int from)
{
    VI t[4];
    int i;

    for (i = 0; i < 4; i++)
        t[i] = f->texel[i] >> (8 * from) & 0x00ff00ff;
    return NAME(mix)(NAME(mix)(t[0], t[1], f->fx), NAME(mix)(t[2], t[3], f->fx), f->fy);
}

INLINE void NAME(filter)(const struct NAME(fetch) * one, const struct NAME(fetch) * two, VI weight,
                         VF out[4])
{
    int k;

    for (k = 0; k < 2; k++) {
        VI x = NAME(bilinear)(one, k);

        if (V_(any)(weight))
            x = NAME(mix)(x, NAME(bilinear)(two, k), weight);
        out[k] = V_(tofloat)(x & 255) * (1 / 255.0f);
        out[k + 2] = V_(tofloat)(x >> 16 & 255) * (1 / 255.0f);
    }
}

// Byte `k` of texels as light: the curve of rays_tex.c for colours, alpha as it is.
INLINE VF NAME(decode)(VI texel, int k)
{
    VF c = V_(tofloat)(texel >> (8 * k) & 255) * (1 / 255.0f);

    if (k == 3)
        return c;
    return V_(pick)((VI)(c < 15.5f / 255), c * (1 / 12.92f),
                    0.0023f + c * (0.0030f + c * (0.6935f + c * 0.3012f)));
}

INLINE VF NAME(bilinear_srgb)(const struct NAME(fetch) * f, int k)
{
    VF fx = f->x - 0.5f, fy = f->y - 0.5f, t[4];
    int i;

    fx -= NAME(floor)(fx);
    fy -= NAME(floor)(fy);
    for (i = 0; i < 4; i++)
        t[i] = NAME(decode)(f->texel[i], k);
    t[0] += fx * (t[1] - t[0]);
    t[2] += fx * (t[3] - t[2]);
    return t[0] + fy * (t[2] - t[0]);
}

INLINE void NAME(filter_srgb)(const struct NAME(fetch) * one, const struct NAME(fetch) * two,
                              VF weight, VF out[4])
{
    int k;

    for (k = 0; k < 4; k++) {
        out[k] = NAME(bilinear_srgb)(one, k);
        if (V_(any)((VI)(weight > 0)))
            out[k] += weight * (NAME(bilinear_srgb)(two, k) - out[k]);
    }
}

// Coordinates of LANES pixels: in their middle, and in those of the first, its right and its upper
// neighbour in the block of 2 x 2 pixels.
struct NAME(coords) {
    VF at[3], q[3], right[3], up[3];
};

// 2-D textures, LANES pixels side by side: linear textures in 8 bits, sRGB ones in float.
INLINE void NAME(texture_2d)(const struct rays_tex *tex, const struct NAME(coords) * c, VF out[4])
{
    float last = (float)(tex->n_level - 1);
    VF sx = (c->right[0] - c->q[0]) * (float)tex->w[0];
    VF tx = (c->right[1] - c->q[1]) * (float)tex->h[0];
    VF sy = (c->up[0] - c->q[0]) * (float)tex->w[0], ty = (c->up[1] - c->q[1]) * (float)tex->h[0];
    VF rho2 = V_(max)(sx * sx + tx * tx, sy * sy + ty * ty), s, t, lam;
    struct NAME(fetch) one, two;
    VI level, mixed;

    lam = 0.5f * (V_(tofloat)((VI)rho2) * 0x1p-23f - 127);
    lam = V_(min)(V_(max)(lam, V_(all)(0)), V_(all)(last));
    level = V_(toint)(lam);
    lam -= V_(tofloat)(level);
    mixed = V_(toint)(lam * 256);
    s = V_(max)(V_(min)(c->at[0] - NAME(floor)(c->at[0]), V_(all)(1)), V_(all)(0));
    t = V_(max)(V_(min)(c->at[1] - NAME(floor)(c->at[1]), V_(all)(1)), V_(all)(0));
    NAME(find_texels)(&one, tex, level, s, t);
    two = one;
    if (V_(any)(mixed) || tex->srgb)
        NAME(find_texels)
    (&two, tex, V_(picki)((VI)(lam > 0), level + 1, level), s, t);
    if (tex->srgb)
        NAME(filter_srgb)(&one, &two, lam, out);
    else
        NAME(filter)(&one, &two, mixed, out);
}

// Cubes, one by one.
INLINE void NAME(texture_cube)(const struct rays_tex *tex, const struct NAME(coords) * c, int n,
                               VF out[4])
{
    _Alignas(32) float at[3][LANES], right[3][LANES], up[3][LANES];
    float rgba[LANES][4] = {{0}};
    int l, k;

    for (k = 0; k < 3; k++) {
        V_(store)(at[k], c->at[k]);
        V_(store)(right[k], c->at[k] + (c->right[k] - c->q[k]));
        V_(store)(up[k], c->at[k] + (c->up[k] - c->q[k]));
    }
    for (l = 0; l < n; l++) {
        float a[3], r[3], u[3];

        for (k = 0; k < 3; k++) {
            a[k] = at[k][l];
            r[k] = right[k][l];
            u[k] = up[k][l];
        }
        tex_sample_cube(tex, a, r, u, rgba[l]);
    }
    NAME(columns)(rgba, out);
}

INLINE VF NAME(inverse)(VF w)
{
    return 1 / V_(pick)((VI)(w == 0), V_(all)(1e-30f), w);
}

// The pairs at hand: up to LANES of one instance; lanes beyond the last repeat the first.
struct NAME(group) {
    const struct rays_facet *facet[LANES];
    bool same;                             // all of one facet
    _Alignas(32) float x[LANES], y[LANES]; // pixels' corners
    int n;
};

INLINE void NAME(set_group)(struct NAME(group) * g, const struct rays_facet *facets,
                            const struct rays_frag *frags, const int *which, int n)
{
    int l;

    g->n = n;
    g->same = true;
    for (l = 0; l < LANES; l++) {
        const struct rays_frag *f = &frags[which[l < n ? l : 0]];

        g->facet[l] = &facets[f->facet];
        g->same = g->same && g->facet[l] == g->facet[0];
        g->x[l] = (float)(f->pixel % PATCH);
        g->y[l] = (float)(f->pixel / PATCH);
    }
}

// The facets' quantities at (x, y).
INLINE void NAME(evaluate)(const struct NAME(group) * g, VF x, VF y, VF out[8])
{
    int l, k;

    if (g->same) {
        const struct rays_facet *f = g->facet[0];

        for (k = 0; k < 8; k++)
            out[k] = f->plane[0][k] + x * f->plane[1][k] + y * f->plane[2][k];
        return;
    }
    for (l = 0; l < LANES; l++) {
        const struct rays_facet *f = g->facet[l];

        out[l] =
            V_(load)(f->plane[0]) + x[l] * V_(load)(f->plane[1]) + y[l] * V_(load)(f->plane[2]);
    }
    NAME(transpose)(out);
}

// Texture colours; footprints come from differences inside the 2 x 2 block of pixels at even window
// coordinates, as graphics hardware takes them.
INLINE void NAME(texture)(const struct rays_tex *tex, const struct NAME(group) * g, const VF at[8],
                          VF inv, VF out[4])
{
    VF x = V_(load)(g->x), y = V_(load)(g->y), q[8], right[8], up[8];
    struct NAME(coords) c;
    int k;

    x = V_(tofloat)(V_(toint)(x) & ~1) + 0.5f; // patches start at even coordinates
    y = V_(tofloat)(V_(toint)(y) & ~1) + 0.5f;
    NAME(evaluate)(g, x, y, q);
    NAME(evaluate)(g, x + 1, y, right);
    NAME(evaluate)(g, x, y + 1, up);
    for (k = 0; k < 3; k++) {
        c.at[k] = at[FACET_TEX + k] * inv;
        c.q[k] = q[FACET_TEX + k] * NAME(inverse)(q[FACET_W]);
        c.right[k] = right[FACET_TEX + k] * NAME(inverse)(right[FACET_W]);
        c.up[k] = up[FACET_TEX + k] * NAME(inverse)(up[FACET_W]);
    }
    if (tex->cube)
        NAME(texture_cube)(tex, &c, g->n, out);
    else
        NAME(texture_2d)(tex, &c, out);
}

// Base colours, what the texture has to do with them, depths and 1 / w.
struct NAME(base) {
    VF rgba[4], tex[4], depth, inv;
};

INLINE void NAME(base_colours)(const struct rays_material *mat, const struct NAME(group) * g,
                               struct NAME(base) * out)
{
    VF at[8];
    int k;

    NAME(evaluate)(g, V_(load)(g->x) + 0.5f, V_(load)(g->y) + 0.5f, at);
    out->inv = NAME(inverse)(at[FACET_W]);
    out->depth = at[FACET_T] * out->inv;
    for (k = 0; k < 4; k++)
        out->tex[k] = V_(all)(1);
    if (mat->tex)
        NAME(texture)(mat->tex, g, at, out->inv, out->tex);
    for (k = 0; k < 3; k++)
        out->rgba[k] = at[FACET_RGB + k] * out->inv * out->tex[k];
    out->rgba[3] = mat->rgba[3] * out->tex[3];
}

// Where the pairs' pixels see their facets, relative to the eye.
INLINE void NAME(points)(const struct rays_view *v, int x0, int y0, const struct NAME(group) * g,
                         const float t[LANES], float out[3][LANES])
{
    int l, k;

    for (l = 0; l < LANES; l++) {
        double x = x0 + (double)g->x[l] + 0.5, y = y0 + (double)g->y[l] + 0.5;

        for (k = 0; k < 3; k++)
            out[k][l] = (float)(v->o[k] + v->ox[k] * x + v->oy[k] * y +
                                (v->d[k] + v->dx[k] * x + v->dy[k] * y) * (double)t[l]);
    }
}

// Colours of light `i` alone, where it reaches.
INLINE void NAME(lit)(const struct NAME(group) * g, const struct NAME(base) * base, int i,
                      unsigned open, const int *which, struct rays_colour *out)
{
    _Alignas(32) float tex[3][LANES], scale[LANES], alpha[LANES];
    int l, k;

    for (k = 0; k < 3; k++)
        V_(store)(tex[k], base->tex[k]);
    V_(store)(scale, base->inv);
    V_(store)(alpha, base->rgba[3]);
    for (l = 0; l < g->n; l++) {
        const float(*plane)[4] = g->facet[l]->light[i];
        bool acts = (open >> l & 1) && alpha[l] >= 0.99f;
        float x = g->x[l] + 0.5f, y = g->y[l] + 0.5f;

        for (k = 0; k < 3; k++)
            out[which[l]].light[i][k] =
                acts ? (plane[0][k] + x * plane[1][k] + y * plane[2][k]) * scale[l] * tex[k][l] : 0;
    }
}

TARGET static void NAME(colour)(const struct rays_scene *s, const struct rays_view *v,
                                const struct rays_tracer *tracer, int x0, int y0,
                                const struct rays_facet *facets, const struct rays_frag *frags,
                                const int *which, int n, const struct rays_lighting *how,
                                struct rays_colour *out)
{
    _Alignas(32) float point[3][LANES], depth[LANES], rgba[4][LANES];
    struct NAME(group) g;
    struct NAME(base) base;
    int l, i, k;

    NAME(set_group)(&g, facets, frags, which, n);
    NAME(base_colours)(&s->material[s->inst[g.facet[0]->inst].geom], &g, &base);
    for (k = 0; k < 4; k++)
        V_(store)(rgba[k], base.rgba[k]);
    for (l = 0; l < n; l++)
        for (k = 0; k < 4; k++)
            out[which[l]].rgba[k] = rgba[k][l];
    if (!how->shadowed)
        return;
    V_(store)(depth, base.depth);
    NAME(points)(v, x0, y0, &g, depth, point);
    for (i = 0; i < RAYS_LIGHT_MAX; i++)
        if (how->shadowed >> i & 1)
            NAME(lit)
    (&g, &base, i, unshaded(s, v, tracer, i, (const float(*)[8])point, n), which, out);
}

TARGET static void NAME(colour8)(const struct rays_scene *s, const struct rays_facet *facets,
                                 const struct rays_frag *frags, const int *which, int n,
                                 struct pixel8 *out)
{
    _Alignas(32) int packed[LANES];
    struct NAME(group) g;
    struct NAME(base) base;
    VI c[3];
    int l, k;

    NAME(set_group)(&g, facets, frags, which, n);
    NAME(base_colours)(&s->material[s->inst[g.facet[0]->inst].geom], &g, &base);
    for (k = 0; k < 3; k++)
        c[k] = V_(toint)(V_(min)(V_(max)(base.rgba[k], V_(all)(0)), V_(all)(1)) * 255 + 0.5f);
    V_(storei)(packed, c[0] | c[1] << 8 | c[2] << 16);
    for (l = 0; l < n; l++)
        memcpy(out[which[l]].c, &packed[l], 4);
}
