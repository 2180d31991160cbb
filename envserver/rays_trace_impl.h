// rays_trace_impl.h - the packet loops of rays_trace.c, compiled once per instruction set. The
// including file defines LANES, RAYHIT, INTERSECT, OCCLUDED, TARGET and NAME(x).

struct NAME(ray) {
    VF o[3], d[3];
};

// Rays of packet p of the tile in the list coordinates of an instance. `base` and `step` are what
// tile_rays made: o, d at the tile's corner and their change per pixel.
struct NAME(frame) {
    float o[3], ox[3], oy[3], d[3], dx[3], dy[3];
    bool moving; // o changes: orthographic view
};

INLINE void NAME(set_frame)(struct NAME(frame) * f, const struct rays_view *v,
                            const struct rays_seen *s, const struct rays_tile *tile)
{
    int k;

    for (k = 0; k < 3; k++) {
        f->o[k] = (float)(s->o[k] + s->ox[k] * tile->x + s->oy[k] * tile->y);
        f->d[k] = (float)(s->d[k] + s->dx[k] * tile->x + s->dy[k] * tile->y);
        f->ox[k] = (float)s->ox[k];
        f->oy[k] = (float)s->oy[k];
        f->dx[k] = (float)s->dx[k];
        f->dy[k] = (float)s->dy[k];
    }
    f->moving = v->ortho;
}

INLINE void NAME(make_rays)(struct NAME(ray) * r, const struct NAME(frame) * f,
                            const struct rays_pattern *p, int at)
{
    VF x = V_(load)(p->x + at), y = V_(load)(p->y + at);
    int k;

    for (k = 0; k < 3; k++) {
        r->d[k] = f->d[k] + x * f->dx[k] + y * f->dy[k];
        r->o[k] = V_(all)(f->o[k]);
        if (f->moving)
            r->o[k] += x * f->ox[k] + y * f->oy[k];
    }
}

// Distances at which the rays enter (per axis, and all) and leave the bounds.
struct NAME(slab) {
    VF in[3], enter, leave;
};

INLINE void NAME(cross_bounds)(struct NAME(slab) * s, const struct NAME(ray) * r, const float lo[3],
                               const float hi[3])
{
    int k;

    for (k = 0; k < 3; k++) {
        VF inv = 1 / r->d[k];
        VF a = (lo[k] - r->o[k]) * inv, b = (hi[k] - r->o[k]) * inv;
        VF out = V_(max)(a, b);

        s->in[k] = V_(min)(a, b);
        s->enter = k ? V_(max)(s->enter, s->in[k]) : s->in[k];
        s->leave = k ? V_(min)(s->leave, out) : out;
    }
}

// Cell number along one direction of a box face and the place in the cell.
INLINE VI NAME(cell)(VF x, int n, VF *frac)
{
    VF f = (x + 1) * (0.5f * (float)n);
    VI c = V_(toint)(V_(max)(V_(min)(f, V_(all)((float)n - 0.5f)), V_(all)(0)));

    *frac = f - V_(tofloat)(c);
    return c;
}

INLINE VI NAME(box_prim)(const struct NAME(ray) * r, const struct NAME(slab) * s, int nq)
{
    VF p[3], a, b, fa, fb;
    VI ax, ay, axis, positive, back, ca, cb;
    int k;

    for (k = 0; k < 3; k++)
        p[k] = r->o[k] + s->enter * r->d[k];
    ax = (VI)(s->in[0] >= s->enter);
    ay = ~ax & (VI)(s->in[1] >= s->enter);
    axis = V_(picki)(ax, (VI){0}, V_(picki)(ay, (VI){0} + 1, (VI){0} + 2));
    // outward normal against the direction
    positive = (VI)(V_(pick)(ax, r->d[0], V_(pick)(ay, r->d[1], r->d[2])) < 0);
    a = V_(pick)(ax, p[1], p[0]);
    b = V_(pick)(ax | ay, p[2], p[1]);
    back = V_(picki)(ay, positive, ~positive);
    b = V_(pick)(back, -b, b);
    ca = NAME(cell)(a, nq, &fa);
    cb = NAME(cell)(b, nq, &fb);
    return (((axis * 2 - positive) * nq + ca) * nq + cb) * 2 - (VI)(fa + fb > 1);
}

// The same for a grid with padding cells at both ends.
INLINE VI NAME(grid_cell)(const struct rays_mesh *mesh, int k, VF x, VF *frac)
{
    const float *line = mesh->line[k];
    int n = mesh->n_cell[k];
    float first = line[1], step = n < 3 ? 1 : line[2] - line[1];
    float pad = line[1] - line[0], last = line[n] - line[n - 1];
    VF u = (x - first) * mesh->inv_step[k];
    VI c = V_(toint)(V_(max)(V_(min)(u, V_(all)((float)n - 1.5f)), V_(all)(0))) + 1;
    VI before = (VI)(x < first), after;
    VF at, width;

    if (n == 1) {
        *frac = (x - line[0]) / pad;
        return (VI){0};
    }
    c = V_(picki)(before, (VI){0}, V_(picki)((VI)(c > n - 1), (VI){0} + (n - 1), c));
    after = (VI)(c == n - 1);
    at = V_(pick)(before, V_(all)(line[0]), first + V_(tofloat)(c - 1) * step);
    width = V_(pick)(before, V_(all)(pad), V_(pick)(after, V_(all)(last), V_(all)(step)));
    *frac = (x - at) / V_(max)(width, V_(all)(1e-30f));
    return c;
}

INLINE VI NAME(grid_prim)(const struct rays_mesh *mesh, VF x, VF y)
{
    VF fx, fy;
    VI i = NAME(grid_cell)(mesh, 0, x, &fx), j = NAME(grid_cell)(mesh, 1, y, &fy);

    return (i * mesh->n_cell[1] + j) * 2 - (VI)(fx + fy > 1);
}

// Front faces of a box or a plane: the mask of lanes that meet one between tnear and tfar, the
// distance and the triangle.
INLINE VI NAME(meet_box)(const struct NAME(ray) * r, const struct rays_mesh *mesh, VF tnear,
                         VF tfar, VF *t, VI *prim)
{
    struct NAME(slab) s;
    VI hit;

    NAME(cross_bounds)(&s, r, mesh->lo, mesh->hi);
    hit = (VI)(s.enter <= s.leave) & (VI)(s.enter >= tnear) & (VI)(s.enter <= tfar);
    *t = s.enter;
    if (V_(any)(hit))
        *prim = NAME(box_prim)(r, &s, mesh->n_cell[0]);
    return hit;
}

INLINE VI NAME(meet_grid)(const struct NAME(ray) * r, const struct rays_mesh *mesh, bool behind,
                          VF tnear, VF tfar, VF *t, VI *prim)
{
    VF at = -r->o[2] / r->d[2], x = r->o[0] + at * r->d[0], y = r->o[1] + at * r->d[1];
    VI hit = behind ? (VI)(r->d[2] > 0) : (VI)(r->d[2] < 0);

    hit &= (VI)(at >= tnear) & (VI)(at <= tfar);
    hit &= (VI)(x >= mesh->lo[0]) & (VI)(x <= mesh->hi[0]);
    hit &= (VI)(y >= mesh->lo[1]) & (VI)(y <= mesh->hi[1]);
    *t = at;
    if (V_(any)(hit))
        *prim = NAME(grid_prim)(mesh, x, y);
    return hit;
}

// --- ray trees ----------------------------------------------------------------------------------

INLINE void NAME(fill)(struct RAYHIT *rh, const struct NAME(ray) * r, VF tnear, VF tfar)
{
    V_(store)(rh->ray.org_x, r->o[0]);
    V_(store)(rh->ray.org_y, r->o[1]);
    V_(store)(rh->ray.org_z, r->o[2]);
    V_(store)(rh->ray.dir_x, r->d[0]);
    V_(store)(rh->ray.dir_y, r->d[1]);
    V_(store)(rh->ray.dir_z, r->d[2]);
    V_(store)(rh->ray.tnear, tnear);
    V_(store)(rh->ray.tfar, tfar);
    V_(store)(rh->ray.time, V_(all)(0));
    V_(storei)((int *)rh->ray.mask, (VI){0} - 1);
    V_(storei)((int *)rh->ray.flags, (VI){0});
    V_(storei)((int *)rh->hit.geomID, (VI){0} - 1);
    V_(storei)((int *)rh->hit.instID[0], (VI){0} - 1);
}

INLINE VI NAME(from_front)(const struct RAYHIT *rh, const struct NAME(ray) * r)
{
    VF n = V_(load)(rh->hit.Ng_x) * r->d[0] + V_(load)(rh->hit.Ng_y) * r->d[1] +
           V_(load)(rh->hit.Ng_z) * r->d[2];

    return (VI)(n < 0);
}

// Nearest front face of a soup for the lanes in `want`.
INLINE VI NAME(meet_soup)(const struct NAME(ray) * r, const struct rays_mesh *mesh, VI want,
                          VF tnear, VF tfar, VF *t, VI *prim)
{
    struct RTCIntersectContext context;
    _Alignas(64) struct RAYHIT rh;
    _Alignas(64) int valid[LANES];
    VI hit, back, again;

    rtcInitIntersectContext(&context);
    context.flags = RTC_INTERSECT_CONTEXT_FLAG_COHERENT;
    NAME(fill)(&rh, r, tnear, tfar);
    V_(storei)(valid, want);
    INTERSECT(valid, mesh->tree, &context, &rh);
    hit = (VI)(V_(loadi)((int *)rh.hit.geomID) != -1) & want;
    *t = V_(load)(rh.ray.tfar);
    *prim = V_(loadi)((int *)rh.hit.primID);
    back = hit & ~NAME(from_front)(&rh, r);
    if (!V_(any)(back))
        return hit;
    // the nearest face looks away: ask again for front faces only
    NAME(fill)(&rh, r, tnear, tfar);
    V_(storei)(valid, back);
    context.filter = reject_back;
    INTERSECT(valid, mesh->tree, &context, &rh);
    again = (VI)(V_(loadi)((int *)rh.hit.geomID) != -1) & back;
    *t = V_(pick)(back, V_(load)(rh.ray.tfar), *t);
    *prim = V_(picki)(back, V_(loadi)((int *)rh.hit.primID), *prim);
    return (hit & ~back) | again;
}

TARGET static void NAME(nearest)(const struct rays_scene *s, const struct rays_view *v, int i,
                                 struct rays_tile *tile)
{
    const struct rays_inst *in = &s->inst[i];
    const struct rays_mesh *mesh = in->mesh;
    const struct rays_pattern *pat = tile->pattern;
    bool behind = s->material[in->geom].behind;
    _Alignas(64) float far[LANES];
    struct NAME(frame) f;
    VF farthest = {0};
    int at;

    NAME(set_frame)(&f, v, &v->seen[i], tile);
    for (at = 0; at < pat->n_ray; at += LANES) {
        VF old = V_(load)(tile->t + at), tnear = V_(load)(tile->tnear + at), t = old;
        VF tfar = old * (1 + SAME_DEPTH);
        VI inst = V_(loadi)(tile->inst + at);
        struct NAME(ray) r;
        VI hit, prim = {0};

        NAME(make_rays)(&r, &f, pat, at);
        if (mesh->kind == MESH_BOX) {
            hit = NAME(meet_box)(&r, mesh, tnear, tfar, &t, &prim);
        } else if (mesh->kind == MESH_GRID) {
            hit = NAME(meet_grid)(&r, mesh, behind, tnear, tfar, &t, &prim);
        } else {
            struct NAME(slab) slab;

            NAME(cross_bounds)(&slab, &r, mesh->lo, mesh->hi);
            hit = (VI)(slab.enter * 0.99999f <= slab.leave * 1.00001f) &
                  (VI)(slab.enter * 0.99999f <= tfar) & (VI)(slab.leave * 1.00001f >= tnear);
            if (!V_(any)(hit)) {
                farthest = V_(max)(farthest, old);
                continue;
            }
            hit = NAME(meet_soup)(&r, mesh, hit, tnear, tfar, &t, &prim);
        }
        // of two surfaces at the same depth the one that is drawn later stays
        hit &= (VI)(t < old * (1 - SAME_DEPTH)) | (VI)(inst < i);
        old = V_(pick)(hit, t, old);
        farthest = V_(max)(farthest, old);
        V_(store)(tile->t + at, old);
        V_(storei)(tile->inst + at, V_(picki)(hit, (VI){0} + i, inst));
        V_(storei)(tile->prim + at, V_(picki)(hit, prim, V_(loadi)(tile->prim + at)));
    }
    V_(store)(far, farthest);
    for (at = 1; at < LANES; at++)
        far[0] = far[at] > far[0] ? far[at] : far[0];
    tile->limit = far[0];
    tile->stale = false;
}

TARGET static void NAME(layers)(const struct rays_scene *s, const struct rays_view *v, int i,
                                const struct rays_tile *tile, struct rays_layers *out)
{
    const struct rays_inst *in = &s->inst[i];
    const struct rays_mesh *mesh = in->mesh;
    bool behind = s->material[in->geom].behind;
    struct NAME(frame) f;
    int at;

    NAME(set_frame)(&f, v, &v->seen[i], tile);
    for (at = 0; at < tile->pattern->n_ray; at += LANES) {
        VF tfar = V_(load)(tile->t + at) * (1 + NEARLY), tnear = V_(load)(tile->tnear + at);
        _Alignas(64) int hit[LANES], prim[LANES];
        _Alignas(64) float depth[LANES];
        VF tt = {0};
        VI pp = {0};
        struct NAME(ray) r;
        int k;

        NAME(make_rays)(&r, &f, tile->pattern, at);
        if (mesh->kind == MESH_SOUP) {
            struct layer_context c;
            _Alignas(64) struct RAYHIT rh;
            struct NAME(slab) slab;

            NAME(cross_bounds)(&slab, &r, mesh->lo, mesh->hi);
            V_(storei)(hit, (VI)(slab.enter * 0.99999f <= slab.leave * 1.00001f));
            rtcInitIntersectContext(&c.base);
            c.base.filter = collect_front;
            c.geom = in->geom;
            c.inst = i;
            c.first_ray = at;
            c.out = out;
            NAME(fill)(&rh, &r, tnear, tfar);
            V_(storei)((int *)rh.ray.id, lane_numbers(LANES));
            INTERSECT(hit, mesh->tree, &c.base, &rh);
            continue;
        }
        V_(storei)
        (hit, mesh->kind == MESH_BOX ? NAME(meet_box)(&r, mesh, tnear, tfar, &tt, &pp)
                                     : NAME(meet_grid)(&r, mesh, behind, tnear, tfar, &tt, &pp));
        V_(storei)(prim, pp);
        V_(store)(depth, tt);
        for (k = 0; k < LANES; k++)
            if (hit[k])
                add_layer(out, at + k, in->geom, i, prim[k], depth[k]);
    }
}

#if LANES == 8
// A box or a plane anywhere on the way, from either side.
INLINE VI NAME(on_the_way)(const struct NAME(ray) * r, const struct rays_mesh *mesh, VF t0, VF t1)
{
    struct NAME(slab) s;

    NAME(cross_bounds)(&s, r, mesh->lo, mesh->hi);
    return (VI)(s.enter <= s.leave) & (((VI)(s.enter >= t0) & (VI)(s.enter <= t1)) |
                                       ((VI)(s.leave >= t0) & (VI)(s.leave <= t1)));
}

INLINE VI NAME(blocked_by)(const struct rays_inst *in, const float rel[3],
                           const struct rays_probe *probe, VI want)
{
    VF t0 = V_(load)(probe->t0), t1 = V_(load)(probe->t1);
    struct RTCIntersectContext context;
    struct NAME(slab) slab;
    struct NAME(ray) r;
    _Alignas(64) struct RTCRay8 ray;
    _Alignas(64) int valid[8];
    VF p[3];
    int k;

    for (k = 0; k < 3; k++)
        p[k] = V_(load)(probe->o[k]) - rel[k];
    for (k = 0; k < 3; k++) {
        const float *m = in->inv + 3 * k;

        r.o[k] = m[0] * p[0] + m[1] * p[1] + m[2] * p[2];
        r.d[k] = m[0] * V_(load)(probe->d[0]) + m[1] * V_(load)(probe->d[1]) +
                 m[2] * V_(load)(probe->d[2]);
    }
    if (in->mesh->kind != MESH_SOUP)
        return want & NAME(on_the_way)(&r, in->mesh, t0, t1);
    NAME(cross_bounds)(&slab, &r, in->mesh->lo, in->mesh->hi);
    want &= (VI)(slab.enter <= slab.leave) & (VI)(slab.enter <= t1) & (VI)(slab.leave >= t0);
    if (!V_(any)(want))
        return want;
    for (k = 0; k < 3; k++) {
        V_(store)(k == 0 ? ray.org_x : k == 1 ? ray.org_y : ray.org_z, r.o[k]);
        V_(store)(k == 0 ? ray.dir_x : k == 1 ? ray.dir_y : ray.dir_z, r.d[k]);
    }
    V_(store)(ray.tnear, t0);
    V_(store)(ray.tfar, t1);
    V_(store)(ray.time, V_(all)(0));
    V_(storei)((int *)ray.mask, (VI){0} - 1);
    V_(storei)((int *)ray.flags, (VI){0});
    V_(storei)(valid, want);
    rtcInitIntersectContext(&context);
    rtcOccluded8(valid, in->mesh->tree, &context, &ray);
    return want & (VI)(V_(load)(ray.tfar) < 0);
}

TARGET static unsigned NAME(blocked)(const struct rays_scene *s, const struct rays_view *v,
                                     const struct rays_probe *probe)
{
    _Alignas(64) int hit[8];
    VI open = {0}, found = {0};
    unsigned bits = 0;
    int i, k;

    for (k = 0; k < 8; k++)
        hit[k] = k < probe->n ? -1 : 0;
    open = V_(loadi)(hit);
    for (i = 0; i < s->n_inst && V_(any)(open & ~found); i++)
        if (s->material[s->inst[i].geom].casts)
            found |= NAME(blocked_by)(&s->inst[i], v->seen[i].rel, probe, open & ~found);
    V_(storei)(hit, found);
    for (k = 0; k < 8; k++)
        bits |= (unsigned)(hit[k] != 0) << k;
    return bits;
}
#endif
