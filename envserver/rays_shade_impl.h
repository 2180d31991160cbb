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

// --- pixels
// ---------------------------------------------------------------------------------------

typedef uint8_t NAME(bytes) __attribute__((vector_size(8)));
typedef uint16_t NAME(words) __attribute__((vector_size(16)));

INLINE VF NAME(floor)(VF x)
{
    VF t = V_(tofloat)(V_(toint)(x));

    return t - V_(pick)((VI)(t > x), V_(all)(1), V_(all)(0));
}

// What a level of a 2-D texture is asked for: texels and weights.
struct NAME(fetch) {
    _Alignas(32) int at[4][LANES], fx[LANES], fy[LANES];
};

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
    u = V_(toint)(NAME(floor)(s * V_(tofloat)(w) * 256)) - 128;
    v = V_(toint)(NAME(floor)(t * V_(tofloat)(h) * 256)) - 128;
    x0 = u >> 8;
    y0 = v >> 8;
    x1 = V_(picki)(x0 + 1 >= w, (VI){0}, x0 + 1);
    y1 = V_(picki)(y0 + 1 >= h, (VI){0}, y0 + 1);
    x0 = V_(picki)(x0 < 0, w - 1, x0);
    y0 = V_(picki)(y0 < 0, h - 1, y0);
    y0 = base + y0 * w;
    y1 = base + y1 * w;
    V_(storei)(f->at[0], y0 + x0);
    V_(storei)(f->at[1], y0 + x1);
    V_(storei)(f->at[2], y1 + x0);
    V_(storei)(f->at[3], y1 + x1);
    V_(storei)(f->fx, u & 255);
    V_(storei)(f->fy, v & 255);
}

// Two texels side by side.
INLINE NAME(words) NAME(texels)(const uint8_t *texel, int a, int b)
{
    NAME(bytes) x;

    memcpy(&x, texel + 4 * (size_t)a, 4);
    memcpy((uint8_t *)&x + 4, texel + 4 * (size_t)b, 4);
    return __builtin_convertvector(x, NAME(words));
}

// a + (((b - a) w + 128) >> 8) in bytes; what overflows cancels.
INLINE NAME(words) NAME(mix)(NAME(words) a, NAME(words) b, int w)
{
    return (a + (((b - a) * (uint16_t)w + 128) >> 8)) & 255;
}

INLINE NAME(words) NAME(bilinear)(const struct rays_tex *tex, const struct NAME(fetch) * f, int l)
{
    NAME(words) left = NAME(texels)(tex->texel, f->at[0][l], f->at[2][l]);
    NAME(words) right = NAME(texels)(tex->texel, f->at[1][l], f->at[3][l]);
    NAME(words) row = NAME(mix)(left, right, f->fx[l]);

    return NAME(mix)(row, __builtin_shufflevector(row, row, 4, 5, 6, 7, 4, 5, 6, 7), f->fy[l]);
}

// Coordinates of LANES pixels: in their middle, and in those of the first, its right and its upper
// neighbour in the block of 2 x 2 pixels.
struct NAME(coords) {
    VF at[3], q[3], right[3], up[3];
};

// The 2-D case of tex_sample in 8 bits, side by side.
INLINE void NAME(texture_2d)(const struct rays_tex *tex, const struct NAME(coords) * c, int n,
                             float out[8][4])
{
    float last = (float)(tex->n_level - 1);
    VF sx = (c->right[0] - c->q[0]) * (float)tex->w[0];
    VF tx = (c->right[1] - c->q[1]) * (float)tex->h[0];
    VF sy = (c->up[0] - c->q[0]) * (float)tex->w[0], ty = (c->up[1] - c->q[1]) * (float)tex->h[0];
    VF rho2 = V_(max)(sx * sx + tx * tx, sy * sy + ty * ty), s, t, lam;
    struct NAME(fetch) one, two;
    _Alignas(32) int weight[LANES];
    VI level, mixed;
    int l, k;

    lam = 0.5f * (V_(tofloat)((VI)rho2) * 0x1p-23f - 127);
    lam = V_(min)(V_(max)(lam, V_(all)(0)), V_(all)(last));
    level = V_(toint)(lam);
    mixed = V_(toint)((lam - V_(tofloat)(level)) * 256);
    s = V_(max)(V_(min)(c->at[0] - NAME(floor)(c->at[0]), V_(all)(1)), V_(all)(0));
    t = V_(max)(V_(min)(c->at[1] - NAME(floor)(c->at[1]), V_(all)(1)), V_(all)(0));
    NAME(find_texels)(&one, tex, level, s, t);
    if (V_(any)(mixed))
        NAME(find_texels)
    (&two, tex, V_(picki)(mixed > 0, level + 1, level), s, t);
    V_(storei)(weight, mixed);
    for (l = 0; l < n; l++) {
        NAME(words) x = NAME(bilinear)(tex, &one, l);

        if (weight[l] > 0)
            x = NAME(mix)(x, NAME(bilinear)(tex, &two, l), weight[l]);
        for (k = 0; k < 4; k++)
            out[l][k] = (float)x[k] * (1 / 255.0f);
    }
}

// The other kinds, one by one.
INLINE void NAME(texture_any)(const struct rays_tex *tex, const struct NAME(coords) * c, int n,
                              float out[8][4])
{
    _Alignas(32) float at[3][8], right[3][8], up[3][8];
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
        tex_sample(tex, a, r, u, out[l]);
    }
}

INLINE VF NAME(inverse)(VF w)
{
    return 1 / V_(pick)((VI)(w == 0), V_(all)(1e-30f), w);
}

// Texture colours; footprints come from differences inside the 2 x 2 block of pixels at even window
// coordinates, as graphics hardware takes them.
INLINE void NAME(texture)(const struct rays_tex *tex, const struct rays_facet *const facet[],
                          const struct rays_frag *const frag[], int n, const VF at[8], VF inv,
                          float out[8][4])
{
    VF q[8], right[8], up[8];
    struct NAME(coords) c;
    int l, k;

    for (l = 0; l < 8; l++) {
        const struct rays_facet *f = facet[l];
        float x = (float)(frag[l]->pixel % TILE & ~1) + 0.5f; // tiles start at even coordinates
        float y = (float)(frag[l]->pixel / TILE & ~1) + 0.5f;
        VF px = V_(load)(f->plane[1]), py = V_(load)(f->plane[2]);

        q[l] = V_(load)(f->plane[0]) + x * px + y * py;
        right[l] = q[l] + px;
        up[l] = q[l] + py;
    }
    NAME(transpose)(q);
    NAME(transpose)(right);
    NAME(transpose)(up);
    for (k = 0; k < 3; k++) {
        c.at[k] = at[FACET_TEX + k] * inv;
        c.q[k] = q[FACET_TEX + k] * NAME(inverse)(q[FACET_W]);
        c.right[k] = right[FACET_TEX + k] * NAME(inverse)(right[FACET_W]);
        c.up[k] = up[FACET_TEX + k] * NAME(inverse)(up[FACET_W]);
    }
    if (tex->cube || tex->srgb)
        NAME(texture_any)(tex, &c, n, out);
    else
        NAME(texture_2d)(tex, &c, n, out);
}

// Where the frags' pixels see their facets, relative to the eye.
INLINE void NAME(points)(const struct rays_view *v, int x0, int y0,
                         const struct rays_frag *const frag[], const float t[8], float out[3][8])
{
    int l, k;

    for (l = 0; l < 8; l++) {
        double x = x0 + frag[l]->pixel % TILE + 0.5, y = y0 + frag[l]->pixel / TILE + 0.5;

        for (k = 0; k < 3; k++)
            out[k][l] = (float)(v->o[k] + v->ox[k] * x + v->oy[k] * y +
                                (v->d[k] + v->dx[k] * x + v->dy[k] * y) * (double)t[l]);
    }
}

TARGET static void NAME(colour)(const struct rays_scene *s, const struct rays_view *v,
                                const struct rays_tracer *tracer, int x0, int y0,
                                const struct rays_facet *facets,
                                const struct rays_frag *const frag[], int n,
                                const struct rays_lighting *how, struct rays_colour *const out[])
{
    const struct rays_facet *facet[8];
    const struct rays_frag *of[8];
    const struct rays_material *mat;
    _Alignas(32) float col[8][8], tex[8][4], point[3][8], depth[8], scale[8];
    VF at[8], inv;
    int l, i, k;

    for (l = 0; l < 8; l++) {
        const struct rays_facet *f;

        of[l] = frag[l < n ? l : 0];
        facet[l] = f = &facets[of[l]->facet];
        at[l] = V_(load)(f->plane[0]) +
                ((float)(of[l]->pixel % TILE) + 0.5f) * V_(load)(f->plane[1]) +
                ((float)(of[l]->pixel / TILE) + 0.5f) * V_(load)(f->plane[2]);
        V_(store)(col[l], at[l]);
    }
    mat = &s->material[s->inst[facet[0]->inst].geom];
    NAME(transpose)(at);
    inv = NAME(inverse)(at[FACET_W]);
    V_(store)(scale, inv);
    if (mat->tex)
        NAME(texture)(mat->tex, facet, of, n, at, inv, tex);
    for (l = 0; l < n; l++) {
        for (k = 0; k < 3; k++)
            out[l]->rgba[k] = col[l][FACET_RGB + k] * scale[l] * (mat->tex ? tex[l][k] : 1);
        out[l]->rgba[3] = mat->rgba[3] * (mat->tex ? tex[l][3] : 1);
    }
    if (!how->shadowed)
        return;
    V_(store)(depth, at[FACET_T] * inv);
    NAME(points)(v, x0, y0, of, depth, point);
    for (i = 0; i < RAYS_LIGHT_MAX; i++) {
        unsigned open;

        if (!(how->shadowed >> i & 1))
            continue;
        open = unshaded(s, v, tracer, i, (const float(*)[8])point, n);
        for (l = 0; l < n; l++)
            for (k = 0; k < 3; k++) {
                float x = (float)(of[l]->pixel % TILE) + 0.5f;
                float y = (float)(of[l]->pixel / TILE) + 0.5f;
                float c = (facet[l]->light[i][0][k] + x * facet[l]->light[i][1][k] +
                           y * facet[l]->light[i][2][k]) *
                          scale[l];
                bool acts = (open >> l & 1) && out[l]->rgba[3] >= 0.99f;

                out[l]->light[i][k] = acts ? c * (mat->tex ? tex[l][k] : 1) : 0;
            }
    }
}
