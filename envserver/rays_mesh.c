#include "envserver/rays_mesh.h"

#include "common/base/mem.h"

#include <embree3/rtcore.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#define TWO_PI 6.283185307179586

// --- the ray tracing device: one for the process while there are trees --------------------------

static struct {
    pthread_mutex_t mtx;
    RTCDevice device;
    int users;
} embree = {.mtx = PTHREAD_MUTEX_INITIALIZER};

static void device_release(void)
{
    pthread_mutex_lock(&embree.mtx);
    if (--embree.users == 0) {
        rtcReleaseDevice(embree.device);
        embree.device = NULL;
    }
    pthread_mutex_unlock(&embree.mtx);
}

// Trees are built by the calling thread alone: env servers load many models at once.
static enum status device_acquire(RTCDevice *out)
{
    pthread_mutex_lock(&embree.mtx);
    if (embree.users == 0)
        embree.device = rtcNewDevice("threads=1,set_affinity=0");
    if (embree.device)
        embree.users++;
    *out = embree.device;
    pthread_mutex_unlock(&embree.mtx);
    if (!*out)
        return FAIL_SYS(ST_MISSING, (int)rtcGetDeviceError(NULL),
                        "the ray tracing library Embree does not start");
    return ST_OK;
}

// --- triangle soups -----------------------------------------------------------------------------

struct corner {
    double p[3], n[3], uv[2];
};

static enum status soup_build(struct shared_item *item)
{
    struct rays_mesh *mesh = (struct rays_mesh *)item;
    RTCDevice device;
    RTCGeometry geom;
    RTCScene scene;
    unsigned *index;
    size_t i, n = (size_t)mesh->n_tri * 3;
    enum RTCError err;

    TRY(device_acquire(&device));
    geom = rtcNewGeometry(device, RTC_GEOMETRY_TYPE_TRIANGLE);
    scene = rtcNewScene(device);
    mesh->tree = scene; // from here on soup_destroy gives the device back
    index = rtcSetNewGeometryBuffer(geom, RTC_BUFFER_TYPE_INDEX, 0, RTC_FORMAT_UINT3,
                                    3 * sizeof *index, (size_t)mesh->n_tri);
    rtcSetSharedGeometryBuffer(geom, RTC_BUFFER_TYPE_VERTEX, 0, RTC_FORMAT_FLOAT3, mesh->pos, 0,
                               3 * sizeof(float), n);
    for (i = 0; index && i < n; i++)
        index[i] = (unsigned)i;
    rtcSetGeometryBuildQuality(geom, RTC_BUILD_QUALITY_HIGH);
    rtcCommitGeometry(geom);
    rtcAttachGeometry(scene, geom);
    rtcReleaseGeometry(geom);
    rtcSetSceneFlags(scene, RTC_SCENE_FLAG_ROBUST | RTC_SCENE_FLAG_CONTEXT_FILTER_FUNCTION);
    rtcSetSceneBuildQuality(scene, RTC_BUILD_QUALITY_HIGH);
    rtcCommitScene(scene);
    err = rtcGetDeviceError(device);
    if (err != RTC_ERROR_NONE || !index)
        return FAIL_SYS(err == RTC_ERROR_OUT_OF_MEMORY ? ST_NOMEM : ST_IO, (int)err,
                        "Embree cannot build the tree of a mesh of %d triangles", mesh->n_tri);
    return clusters_build(&mesh->clusters, mesh->pos, mesh->n_tri);
}

static void soup_destroy(struct shared_item *item)
{
    struct rays_mesh *mesh = (struct rays_mesh *)item;

    if (mesh->tree) {
        rtcReleaseScene(mesh->tree);
        device_release();
    }
    clusters_free(&mesh->clusters);
    mem_free(mesh->pos);
    mem_free(mesh);
}

static const struct shared_kind soup_kind = {soup_build, soup_destroy};

// A soup with room for `n` triangles; rows are filled by put_tri.
static struct rays_mesh *soup_new(int n)
{
    struct rays_mesh *mesh = mem_alloc(1, sizeof *mesh);

    if (!mesh)
        return NULL;
    mesh->head.kind = &soup_kind;
    mesh->kind = MESH_SOUP;
    mesh->pos = mem_alloc((size_t)n * 24 + 4, sizeof *mesh->pos); // Embree reads 4 bytes beyond
    if (!mesh->pos) {
        mem_free(mesh);
        return NULL;
    }
    mesh->attr = mesh->pos + (size_t)n * 9;
    return mesh;
}

static void put_tri(struct rays_mesh *mesh, const struct corner *a, const struct corner *b,
                    const struct corner *c)
{
    const struct corner *v[3] = {a, b, c};
    float *pos = mesh->pos + (size_t)mesh->n_tri * 9;
    float *attr = mesh->attr + (size_t)mesh->n_tri * 15;
    int i, k;

    for (i = 0; i < 3; i++) {
        for (k = 0; k < 3; k++) {
            pos[3 * i + k] = (float)v[i]->p[k];
            attr[3 * i + k] = (float)v[i]->n[k];
        }
        attr[9 + 2 * i] = (float)v[i]->uv[0];
        attr[10 + 2 * i] = (float)v[i]->uv[1];
    }
    mesh->n_tri++;
}

// MuJoCo cuts quads along q1-q3.
static void put_quad(struct rays_mesh *mesh, const struct corner q[4])
{
    put_tri(mesh, &q[0], &q[1], &q[3]);
    put_tri(mesh, &q[1], &q[2], &q[3]);
}

// The same with the order reversed: the face looks the other way.
static void put_quad_back(struct rays_mesh *mesh, const struct corner q[4])
{
    const struct corner r[4] = {q[3], q[2], q[1], q[0]};

    put_quad(mesh, r);
}

static enum status soup_finish(struct rays_mesh **out, struct rays_mesh *mesh)
{
    struct shared_item *item = NULL;
    int i, k;

    for (k = 0; k < 3; k++) {
        mesh->lo[k] = INFINITY;
        mesh->hi[k] = -INFINITY;
    }
    for (i = 0; i < mesh->n_tri * 3; i++)
        for (k = 0; k < 3; k++) {
            mesh->lo[k] = fminf(mesh->lo[k], mesh->pos[3 * i + k]);
            mesh->hi[k] = fmaxf(mesh->hi[k], mesh->pos[3 * i + k]);
        }
    mesh->head.key = mesh->pos;
    mesh->head.key_bytes = (size_t)mesh->n_tri * 24 * sizeof(float);
    TRY(rays_share(&item, &mesh->head));
    *out = (struct rays_mesh *)item;
    return ST_OK;
}

// --- round shapes -------------------------------------------------------------------------------

// Point of the unit sphere; `up` moves it (not its normal) along z.
static struct corner sphere_point(double az, double el, double up, double u, double v)
{
    struct corner c = {.uv = {u, v}};

    c.n[0] = cos(az) * cos(el);
    c.n[1] = sin(az) * cos(el);
    c.n[2] = sin(el);
    memcpy(c.p, c.n, sizeof c.p);
    c.p[2] += up;
    return c;
}

// Half a sphere above (sign 1) or below (-1) in `rows` rows of latitude. Texture row v_rim at the
// equator, v_pole at the pole.
static void put_half(struct rays_mesh *mesh, int sign, int ns, int rows, double up, double v_rim,
                     double v_pole)
{
    int i, j, k;

    for (i = 0; i < rows; i++)
        for (j = 0; j < ns; j++) {
            struct corner q[4];

            for (k = 0; k < 4; k++) {
                int jj = j + (k == 1 || k == 2), ii = i + (k >= 2);
                double f = (double)ii / rows;

                q[k] = sphere_point(TWO_PI * jj / ns, sign * TWO_PI / 4 * f, up, (double)jj / ns,
                                    v_rim + (v_pole - v_rim) * f);
            }
            if (i < rows - 1) {
                (sign > 0 ? put_quad : put_quad_back)(mesh, q);
                continue;
            }
            q[2] = sphere_point(0, sign * TWO_PI / 4, up, (j + 0.5) / ns, v_pole);
            if (sign > 0)
                put_tri(mesh, &q[0], &q[1], &q[2]);
            else
                put_tri(mesh, &q[2], &q[1], &q[0]);
        }
}

static struct corner disk_point(double az, double r, int sign)
{
    struct corner c = {.p = {cos(az) * r, sin(az) * r, sign}, .n = {0, 0, sign}};

    c.uv[0] = 0.5 + 0.5 * c.p[0];
    c.uv[1] = 0.5 + 0.5 * c.p[1];
    return c;
}

static void put_disk(struct rays_mesh *mesh, int sign, int ns, int rings)
{
    int i, j;

    for (i = 0; i < rings; i++)
        for (j = 0; j < ns; j++) {
            double a = TWO_PI * j / ns, b = TWO_PI * (j + 1) / ns;
            double r1 = (double)i / rings, r2 = (double)(i + 1) / rings;
            struct corner q[4] = {disk_point(a, r2, sign), disk_point(b, r2, sign),
                                  disk_point(b, r1, sign), disk_point(a, r1, sign)};

            if (i > 0)
                (sign > 0 ? put_quad : put_quad_back)(mesh, q);
            else if (sign > 0)
                put_tri(mesh, &q[0], &q[1], &q[2]);
            else
                put_tri(mesh, &q[2], &q[1], &q[0]);
        }
}

static void put_tube(struct rays_mesh *mesh, int ns, int nt)
{
    int i, j, k;

    for (i = 0; i < nt; i++)
        for (j = 0; j < ns; j++) {
            struct corner q[4];

            for (k = 0; k < 4; k++) {
                int jj = j + (k == 1 || k == 2), ii = i + (k >= 2);
                double az = TWO_PI * jj / ns, z = 2.0 * ii / nt - 1;

                q[k] = (struct corner){.p = {cos(az), sin(az), z},
                                       .n = {cos(az), sin(az), 0},
                                       .uv = {(double)jj / ns, (1 - z) / 2}};
            }
            put_quad(mesh, q);
        }
}

enum status mesh_shape_create(struct rays_mesh **out, enum mesh_shape shape, int ns, int nt)
{
    struct rays_mesh *mesh = soup_new(2 * ns * (2 * nt + 4));
    int half = nt / 2;

    if (!mesh)
        return ST_NOMEM;
    switch (shape) {
    case SHAPE_SPHERE:
        put_half(mesh, 1, ns, half, 0, 0.5, 0);
        put_half(mesh, -1, ns, half, 0, 0.5, 1);
        break;
    case SHAPE_TUBE:
        put_tube(mesh, ns, nt);
        break;
    case SHAPE_CYLINDER:
        put_disk(mesh, -1, ns, half);
        put_tube(mesh, ns, nt);
        put_disk(mesh, 1, ns, half);
        break;
    case SHAPE_TOP:
        put_half(mesh, 1, ns, half, 1, 1, 0);
        break;
    case SHAPE_BOTTOM:
        put_half(mesh, -1, ns, half, -1, 0, 1);
        break;
    default:
        panic("no shape %d", (int)shape);
    }
    // the attributes were laid out for the room there was: move them behind the triangles there are
    memmove(mesh->pos + (size_t)mesh->n_tri * 9, mesh->attr,
            (size_t)mesh->n_tri * 15 * sizeof *mesh->attr);
    mesh->attr = mesh->pos + (size_t)mesh->n_tri * 9;
    return soup_finish(out, mesh);
}

// --- model meshes and height fields -------------------------------------------------------------

static void face_normal(double n[3], const double a[3], const double b[3], const double c[3])
{
    double e[3], f[3], len;
    int k;

    for (k = 0; k < 3; k++) {
        e[k] = b[k] - a[k];
        f[k] = c[k] - a[k];
    }
    n[0] = e[1] * f[2] - e[2] * f[1];
    n[1] = e[2] * f[0] - e[0] * f[2];
    n[2] = e[0] * f[1] - e[1] * f[0];
    len = sqrt(n[0] * n[0] + n[1] * n[1] + n[2] * n[2]);
    if (len < 1e-10) {
        n[0] = n[1] = 0;
        n[2] = 1;
        return;
    }
    for (k = 0; k < 3; k++)
        n[k] /= len;
}

static void floats3(double out[3], const float *in)
{
    out[0] = in[0];
    out[1] = in[1];
    out[2] = in[2];
}

// Meshes without texture coordinates are drawn faceted where normal and face differ by much.
static void sharpen(struct corner c[3])
{
    double f[3];
    int i;

    face_normal(f, c[0].p, c[1].p, c[2].p);
    for (i = 0; i < 3; i++)
        if (c[i].n[0] * f[0] + c[i].n[1] * f[1] + c[i].n[2] * f[2] < 0.8)
            memcpy(c[i].n, f, sizeof f);
}

enum status mesh_model_create(struct rays_mesh **out, const mjModel *m, int id)
{
    int n = m->mesh_facenum[id], i, k;
    const int *face = m->mesh_face + 3 * (size_t)m->mesh_faceadr[id];
    const int *fnormal = m->mesh_facenormal + 3 * (size_t)m->mesh_faceadr[id];
    const int *fuv = m->mesh_facetexcoord + 3 * (size_t)m->mesh_faceadr[id];
    const float *vert = m->mesh_vert + 3 * (size_t)m->mesh_vertadr[id];
    const float *normal = m->mesh_normal + 3 * (size_t)m->mesh_normaladr[id];
    const float *uv =
        m->mesh_texcoordadr[id] < 0 ? NULL : m->mesh_texcoord + 2 * (size_t)m->mesh_texcoordadr[id];
    struct rays_mesh *mesh = soup_new(n);

    if (!mesh)
        return ST_NOMEM;
    for (i = 0; i < n; i++) {
        struct corner c[3];

        for (k = 0; k < 3; k++) {
            floats3(c[k].p, vert + 3 * (size_t)face[3 * i + k]);
            floats3(c[k].n, normal + 3 * (size_t)fnormal[3 * i + k]);
            c[k].uv[0] = uv ? uv[2 * (size_t)fuv[3 * i + k]] : 0;
            c[k].uv[1] = uv ? uv[2 * (size_t)fuv[3 * i + k] + 1] : 0;
        }
        if (!uv)
            sharpen(c);
        put_tri(mesh, &c[0], &c[1], &c[2]);
    }
    return soup_finish(out, mesh);
}

struct hfield {
    const float *data; // (nrow, ncol)
    const mjtNum *size;
    int nrow, ncol;
};

static void hfield_point(const struct hfield *h, int r, int c, double p[3])
{
    p[0] = h->size[0] * (2.0 * c / (h->ncol - 1) - 1);
    p[1] = h->size[1] * (2.0 * r / (h->nrow - 1) - 1);
    p[2] = (double)h->data[(size_t)r * (size_t)h->ncol + (size_t)c] * h->size[2];
}

static void put_flat(struct rays_mesh *mesh, const double a[3], const double b[3],
                     const double c[3])
{
    struct corner v[3] = {{{0}, {0}, {0}}, {{0}, {0}, {0}}, {{0}, {0}, {0}}};
    int k;

    memcpy(v[0].p, a, sizeof v[0].p);
    memcpy(v[1].p, b, sizeof v[1].p);
    memcpy(v[2].p, c, sizeof v[2].p);
    face_normal(v[0].n, a, b, c);
    for (k = 1; k < 3; k++)
        memcpy(v[k].n, v[0].n, sizeof v[0].n);
    put_tri(mesh, &v[0], &v[1], &v[2]);
}

// The surface is one triangle strip per row: (c, r+1), (c, r), (c+1, r+1), ...
static void put_surface(struct rays_mesh *mesh, const struct hfield *h)
{
    int r, c;

    for (r = 0; r < h->nrow - 1; r++)
        for (c = 0; c < h->ncol - 1; c++) {
            double a[3], b[3], d[3], e[3];

            hfield_point(h, r + 1, c, a);
            hfield_point(h, r, c, b);
            hfield_point(h, r + 1, c + 1, d);
            hfield_point(h, r, c + 1, e);
            put_flat(mesh, a, b, d);
            put_flat(mesh, b, e, d);
        }
}

// A wall from the surface's edge p-q down to the base; outward is to the right of p -> q seen from
// above.
static void put_skirt(struct rays_mesh *mesh, const double p[3], const double q[3], double base,
                      const double normal[3])
{
    struct corner v[4];
    int k;

    memset(v, 0, sizeof v);
    memcpy(v[0].p, p, sizeof v[0].p);
    memcpy(v[1].p, q, sizeof v[1].p);
    memcpy(v[2].p, q, sizeof v[2].p);
    memcpy(v[3].p, p, sizeof v[3].p);
    v[0].p[2] = v[1].p[2] = base;
    for (k = 0; k < 4; k++)
        memcpy(v[k].n, normal, sizeof v[k].n);
    put_quad(mesh, v);
}

static void put_skirts(struct rays_mesh *mesh, const struct hfield *h)
{
    static const double nx[2][3] = {{-1, 0, 0}, {1, 0, 0}}, ny[2][3] = {{0, -1, 0}, {0, 1, 0}};
    double p[3], q[3], base = -h->size[3];
    int r, c;

    for (r = 0; r < h->nrow - 1; r++) {
        hfield_point(h, r, 0, p);
        hfield_point(h, r + 1, 0, q);
        put_skirt(mesh, q, p, base, nx[0]);
        hfield_point(h, r, h->ncol - 1, p);
        hfield_point(h, r + 1, h->ncol - 1, q);
        put_skirt(mesh, p, q, base, nx[1]);
    }
    for (c = 0; c < h->ncol - 1; c++) {
        hfield_point(h, 0, c, p);
        hfield_point(h, 0, c + 1, q);
        put_skirt(mesh, p, q, base, ny[0]);
        hfield_point(h, h->nrow - 1, c, p);
        hfield_point(h, h->nrow - 1, c + 1, q);
        put_skirt(mesh, q, p, base, ny[1]);
    }
}

static void put_floor(struct rays_mesh *mesh, const struct hfield *h, int nq)
{
    int r, c, k;

    for (r = 0; r < nq; r++)
        for (c = 0; c < nq; c++) {
            struct corner q[4];

            memset(q, 0, sizeof q);
            for (k = 0; k < 4; k++) {
                q[k].p[0] = h->size[0] * (2.0 * (c + (k >= 2)) / nq - 1);
                q[k].p[1] = h->size[1] * (2.0 * (r + (k == 1 || k == 2)) / nq - 1);
                q[k].p[2] = -h->size[3];
                q[k].n[2] = -1;
            }
            put_quad(mesh, q);
        }
}

enum status mesh_hfield_create(struct rays_mesh **out, const mjModel *m, int id)
{
    struct hfield h = {m->hfield_data + m->hfield_adr[id], m->hfield_size + 4 * (size_t)id,
                       m->hfield_nrow[id], m->hfield_ncol[id]};
    int nq = m->vis.quality.numquads;
    struct rays_mesh *mesh;

    if (h.nrow < 2 || h.ncol < 2)
        return FAIL(ST_INVAL, "height field %d has %d x %d points, expected 2 x 2 or more", id,
                    h.nrow, h.ncol);
    mesh = soup_new(2 * ((h.nrow - 1) * (h.ncol - 1) + 2 * (h.nrow + h.ncol - 2) + nq * nq));
    if (!mesh)
        return ST_NOMEM;
    put_surface(mesh, &h);
    put_skirts(mesh, &h);
    put_floor(mesh, &h, nq);
    return soup_finish(out, mesh);
}

// --- boxes and planes ---------------------------------------------------------------------------

static struct rays_mesh *grid_new(int nx, int ny)
{
    struct rays_mesh *mesh = mem_alloc(1, sizeof *mesh);

    if (!mesh)
        return NULL;
    mesh->kind = MESH_GRID;
    mesh->n_cell[0] = nx;
    mesh->n_cell[1] = ny;
    mesh->line[0] = mem_alloc((size_t)nx + 1, sizeof(float));
    mesh->line[1] = mem_alloc((size_t)ny + 1, sizeof(float));
    if (!mesh->line[0] || !mesh->line[1]) {
        mesh_release(mesh);
        return NULL;
    }
    return mesh;
}

static void grid_finish(struct rays_mesh **out, struct rays_mesh *mesh)
{
    int k;

    for (k = 0; k < 2; k++) {
        int n = mesh->n_cell[k];

        mesh->lo[k] = mesh->line[k][0];
        mesh->hi[k] = mesh->line[k][n];
        mesh->inv_step[k] = n < 3 ? 1 : 1 / (mesh->line[k][2] - mesh->line[k][1]);
    }
    *out = mesh;
}

enum status mesh_square_create(struct rays_mesh **out, int nq)
{
    struct rays_mesh *mesh = grid_new(nq, nq);
    int k, i;

    if (!mesh)
        return ST_NOMEM;
    for (k = 0; k < 2; k++)
        for (i = 0; i <= nq; i++)
            mesh->line[k][i] = (float)(2.0 * i / nq - 1);
    mesh->size[0] = mesh->size[1] = 1;
    grid_finish(out, mesh);
    return ST_OK;
}

// Cells of one side of a plane geom: a finite side has two padding cells around equal ones, an
// infinite one has equal cells far beyond what the camera sees.
struct side {
    bool finite;
    int n;
    double half, pad, step; // step = half a cell
};

#define SIDE_MAX 200

static struct side plane_side(const mjModel *m, int geom, int k)
{
    const mjtNum *size = m->geom_size + 3 * (size_t)geom;
    double zfar = (double)m->vis.map.zfar * m->stat.extent, period;
    int mat = m->geom_matid[geom];
    struct side s = {.finite = size[k] > 0, .half = size[k]};

    if (s.finite) {
        s.step = fmax(size[2], size[k] / (SIDE_MAX - 2));
        s.n = (int)floor(size[k] / fmax(1e-15, s.step));
        s.n -= s.n % 2;
        s.pad = size[k] - s.n * s.step;
        s.n += 2;
        return s;
    }
    period = mat >= 0 && m->mat_texrepeat[2 * mat + k] > 0
                 ? 2 / (double)m->mat_texrepeat[2 * mat + k]
                 : 2.1 * zfar / (SIDE_MAX - 2);
    s.n = SIDE_MAX;
    s.step = (2.1 * zfar + 2 * period) / SIDE_MAX;
    return s;
}

static void side_lines(const struct side *s, float *line)
{
    int i;

    for (i = 0; i <= s->n; i++) {
        if (!s->finite)
            line[i] = (float)(s->step * (i - SIDE_MAX / 2));
        else if (i == 0 || i == s->n)
            line[i] = (float)(i ? s->half : -s->half);
        else
            line[i] = (float)(-s->half + s->pad + (i - 1) * s->step * 2);
    }
}

enum status mesh_plane_create(struct rays_mesh **out, const mjModel *m, int geom)
{
    struct side s[2] = {plane_side(m, geom, 0), plane_side(m, geom, 1)};
    struct rays_mesh *mesh = grid_new(s[0].n, s[1].n);
    int k;

    if (!mesh)
        return ST_NOMEM;
    for (k = 0; k < 2; k++) {
        side_lines(&s[k], mesh->line[k]);
        mesh->size[k] = s[k].finite ? (float)s[k].half : 0;
    }
    grid_finish(out, mesh);
    return ST_OK;
}

void mesh_release(struct rays_mesh *mesh)
{
    if (!mesh)
        return;
    if (mesh->kind == MESH_SOUP) {
        rays_unshare(&mesh->head);
        return;
    }
    clusters_free(&mesh->clusters);
    mem_free(mesh->tri);
    mem_free(mesh->line[0]);
    mem_free(mesh->line[1]);
    mem_free(mesh);
}

// --- triangles by number ------------------------------------------------------------------------

// Corner k of half `half` of a cell, as 0/1 in each direction.
static const int cell_corner[2][3][2] = {{{0, 0}, {1, 0}, {0, 1}}, {{1, 0}, {1, 1}, {0, 1}}};

// Box faces: the two directions of cells, and whether the second one runs backwards, so that the
// corners stay counter-clockwise from outside.
static void face_axes(int axis, bool positive, int ab[2], bool *back)
{
    ab[0] = axis == 0 ? 1 : 0;
    ab[1] = axis == 2 ? 1 : 2;
    *back = axis == 1 ? positive : !positive;
}

bool mesh_box_is_top(const struct rays_mesh *mesh, int prim)
{
    return prim / (2 * mesh->n_cell[0] * mesh->n_cell[0]) == 2 * 2 + 1;
}

static void make_box_tri(int nq, int prim, struct mesh_tri *out)
{
    int half = prim & 1, j = prim / 2 % nq, i = prim / 2 / nq % nq;
    int face = prim / (2 * nq * nq), axis = face / 2, ab[2], k;
    bool positive = face & 1, back;
    float sign = positive ? 1 : -1;

    face_axes(axis, positive, ab, &back);
    for (k = 0; k < 3; k++) {
        float a = 2 * (float)(i + cell_corner[half][k][0]) / (float)nq - 1;
        float b = 2 * (float)(j + cell_corner[half][k][1]) / (float)nq - 1;

        b = back ? -b : b;
        out->p[k][ab[0]] = a;
        out->p[k][ab[1]] = b;
        out->p[k][axis] = sign;
        out->n[k][ab[0]] = out->n[k][ab[1]] = 0;
        out->n[k][axis] = sign;
        out->uv[k][0] = (a + 1) / 2;
        out->uv[k][1] = 1 - (b + 1) / 2;
    }
}

enum status mesh_box_create(struct rays_mesh **out, int nq)
{
    struct rays_mesh *mesh = mem_alloc(1, sizeof *mesh);
    int i, k, n = 12 * nq * nq;
    enum status st;
    float *pos;

    if (!mesh)
        return ST_NOMEM;
    mesh->kind = MESH_BOX;
    mesh->n_cell[0] = nq;
    for (k = 0; k < 3; k++) {
        mesh->lo[k] = -1;
        mesh->hi[k] = 1;
    }
    mesh->tri = mem_alloc((size_t)n, sizeof *mesh->tri);
    pos = mem_alloc((size_t)n * 9, sizeof *pos);
    if (!mesh->tri || !pos) {
        mesh_release(mesh);
        mem_free(pos);
        return ST_NOMEM;
    }
    for (i = 0; i < n; i++) {
        make_box_tri(nq, i, &mesh->tri[i]);
        memcpy(pos + 9 * (size_t)i, mesh->tri[i].p, sizeof mesh->tri[i].p);
    }
    st = clusters_build(&mesh->clusters, pos, n);
    mem_free(pos);
    if (st != ST_OK)
        mesh_release(mesh);
    else
        *out = mesh;
    return st;
}

static void fetch_grid(const struct rays_mesh *mesh, int prim, struct mesh_tri *out)
{
    int half = prim & 1, j = prim / 2 % mesh->n_cell[1], i = prim / 2 / mesh->n_cell[1], k, q;

    for (k = 0; k < 3; k++) {
        out->p[k][0] = mesh->line[0][i + cell_corner[half][k][0]];
        out->p[k][1] = mesh->line[1][j + cell_corner[half][k][1]];
        out->p[k][2] = 0;
        out->n[k][0] = out->n[k][1] = 0;
        out->n[k][2] = 1;
        for (q = 0; q < 2; q++) {
            float s = mesh->size[q], x = out->p[k][q];

            out->uv[k][q] = s > 0 ? (x + s) / (2 * s) : x / 2;
        }
        out->uv[k][1] = mesh->size[1] > 0 ? 1 - out->uv[k][1] : -out->uv[k][1];
    }
}

void mesh_fetch(const struct rays_mesh *mesh, int prim, struct mesh_tri *out)
{
    if (mesh->kind == MESH_SOUP) {
        memcpy(out->p, mesh->pos + (size_t)prim * 9, sizeof out->p);
        memcpy(out->n, mesh->attr + (size_t)prim * 15, sizeof out->n);
        memcpy(out->uv, mesh->attr + (size_t)prim * 15 + 9, sizeof out->uv);
    } else if (mesh->kind == MESH_BOX) {
        *out = mesh->tri[prim];
    } else {
        fetch_grid(mesh, prim, out);
    }
}
