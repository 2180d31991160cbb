#include "envserver/rays_scene.h"

#include "common/base/mem.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846
#define BUILTIN_UV \
    (mjVERSION_HEADER >= 3012000 || (mjVERSION_HEADER >= 400 && mjVERSION_HEADER < 3000000))
#define OPAQUE_ALPHA 0.995f
#define BEHIND_ALPHA 0.3f

// --- vectors ------------------------------------------------------------------------------------

static double dot3(const double a[3], const double b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static void cross3(double out[3], const double a[3], const double b[3])
{
    out[0] = a[1] * b[2] - a[2] * b[1];
    out[1] = a[2] * b[0] - a[0] * b[2];
    out[2] = a[0] * b[1] - a[1] * b[0];
}

static void unit3(double a[3])
{
    double len = sqrt(dot3(a, a));
    int k;

    for (k = 0; k < 3 && len > 1e-300; k++)
        a[k] /= len;
}

static void copy3f(double out[3], const float in[3])
{
    int k;

    for (k = 0; k < 3; k++)
        out[k] = in[k];
}

static void narrow3(float out[3], const double in[3])
{
    int k;

    for (k = 0; k < 3; k++)
        out[k] = (float)in[k];
}

// out = M v, M row-major
static void turn3(double out[3], const float m[9], const double v[3])
{
    int k;

    for (k = 0; k < 3; k++)
        out[k] =
            (double)m[3 * k] * v[0] + (double)m[3 * k + 1] * v[1] + (double)m[3 * k + 2] * v[2];
}

// --- what envs share ----------------------------------------------------------------------------

static enum status check_model(const mjModel *m)
{
    if (m->nflex > 0 || m->nskin > 0)
        return FAIL(ST_INVAL,
                    "the model has %d flexes and %d skins, which the rays backend does not draw: "
                    "use egl",
                    (int)m->nflex, (int)m->nskin);
    if (m->vis.quality.numslices < 3 || m->vis.quality.numslices > 1000 ||
        m->vis.quality.numstacks < 4 || m->vis.quality.numstacks > 1000 ||
        m->vis.quality.numquads < 1 || m->vis.quality.numquads > 1000)
        return FAIL(ST_INVAL,
                    "visual quality has numslices %d, numstacks %d, numquads %d, expected 3 to "
                    "1000, 4 to 1000, 1 to 1000",
                    m->vis.quality.numslices, m->vis.quality.numstacks, m->vis.quality.numquads);
    return ST_OK;
}

static enum status make_planes(struct rays_shared *s, const mjModel *m)
{
    int g;

    s->plane = mem_alloc((size_t)m->ngeom, sizeof(struct rays_mesh *));
    if (!s->plane)
        return ST_NOMEM;
    for (g = 0; g < m->ngeom; g++)
        if (m->geom_type[g] == mjGEOM_PLANE) {
            TRY(mesh_plane_create(&s->plane[s->n_plane], m, g));
            s->n_plane++;
        }
    return ST_OK;
}

static enum status make_textures(struct rays_shared *s, const mjModel *m)
{
    int i;

    s->n_tex = (int)m->ntex;
    s->tex = mem_alloc((size_t)m->ntex, sizeof(struct rays_tex *));
    if (!s->tex)
        return ST_NOMEM;
    for (i = 0; i < m->nmat; i++) {
        int id = m->mat_texid[i * mjNTEXROLE + mjTEXROLE_RGB];

        if (id >= 0 && !s->tex[id])
            TRY(tex_create(&s->tex[id], m, id));
    }
    for (i = 0; i < m->ntex && !s->sky; i++)
        if (m->tex_type[i] == mjTEXTURE_SKYBOX) {
            if (!s->tex[i])
                TRY(tex_create(&s->tex[i], m, i));
            s->sky = s->tex[i];
        }
    return ST_OK;
}

enum status rays_shared_init(struct rays_shared *s, const mjModel *m)
{
    int ns = m->vis.quality.numslices, nt = m->vis.quality.numstacks, nq = m->vis.quality.numquads;
    int i;

    memset(s, 0, sizeof *s);
    TRY(check_model(m));
    s->n_slice = ns;
    for (i = 0; i < N_SHAPE; i++)
        TRY(mesh_shape_create(&s->shape[i], (enum mesh_shape)i, ns, nt));
    TRY(mesh_box_create(&s->box, nq));
    TRY(mesh_square_create(&s->square, nq));
    TRY(make_planes(s, m));
    s->mesh = mem_alloc((size_t)m->nmesh, sizeof(struct rays_mesh *));
    s->hfield = mem_alloc((size_t)m->nhfield, sizeof(struct rays_mesh *));
    if (!s->mesh || !s->hfield)
        return ST_NOMEM;
    s->n_mesh = (int)m->nmesh;
    for (i = 0; i < m->nmesh; i++)
        TRY(mesh_model_create(&s->mesh[i], m, i));
    s->n_hfield = (int)m->nhfield;
    for (i = 0; i < m->nhfield; i++)
        TRY(mesh_hfield_create(&s->hfield[i], m, i));
    return make_textures(s, m);
}

static void release_all(struct rays_mesh **mesh, int n)
{
    int i;

    for (i = 0; i < n; i++)
        mesh_release(mesh[i]);
    mem_free(mesh);
}

void rays_shared_fini(struct rays_shared *s)
{
    int i;

    for (i = 0; i < N_SHAPE; i++)
        mesh_release(s->shape[i]);
    mesh_release(s->box);
    mesh_release(s->square);
    release_all(s->plane, s->n_plane);
    release_all(s->mesh, s->n_mesh);
    release_all(s->hfield, s->n_hfield);
    for (i = 0; i < s->n_tex; i++)
        tex_release(s->tex[i]);
    mem_free(s->tex);
    memset(s, 0, sizeof *s);
}

enum status rays_scene_init(struct rays_scene *s, int max_geom)
{
    size_t n = (size_t)max_geom, ni = 3 * n;

    memset(s, 0, sizeof *s);
    s->max_geom = max_geom;
    s->max_inst = (int)ni;
    s->inst = mem_alloc(ni, sizeof *s->inst);
    s->material = mem_alloc(n, sizeof *s->material);
    s->transparent = mem_alloc(n, sizeof *s->transparent);
    s->first_inst = mem_alloc(n + 1, sizeof *s->first_inst);
    s->main.seen = mem_alloc(ni, sizeof *s->main.seen);
    s->main.order = mem_alloc(ni, sizeof *s->main.order);
    s->mirrored.seen = mem_alloc(ni, sizeof *s->mirrored.seen);
    s->mirrored.order = mem_alloc(ni, sizeof *s->mirrored.order);
    if (!s->inst || !s->material || !s->transparent || !s->first_inst || !s->main.seen ||
        !s->main.order || !s->mirrored.seen || !s->mirrored.order) {
        rays_scene_fini(s);
        return ST_NOMEM;
    }
    return ST_OK;
}

void rays_scene_fini(struct rays_scene *s)
{
    mem_free(s->inst);
    mem_free(s->material);
    mem_free(s->transparent);
    mem_free(s->first_inst);
    mem_free(s->main.seen);
    mem_free(s->main.order);
    mem_free(s->mirrored.seen);
    mem_free(s->mirrored.order);
    memset(s, 0, sizeof *s);
}

// --- geoms --------------------------------------------------------------------------------------

// The mesh with scale `size` and an offset along its z axis, in the geom's frame.
static void put_inst(struct rays_scene *s, const mjvGeom *g, const struct rays_mesh *mesh,
                     const double size[3], double offset)
{
    struct rays_inst *in = &s->inst[s->n_inst++];
    int r, c;

    in->mesh = mesh;
    in->geom = s->n_geom;
    for (r = 0; r < 3; r++) {
        in->pos[r] = (double)g->pos[r] + (double)g->mat[3 * r + 2] * offset;
        for (c = 0; c < 3; c++) {
            double m = g->mat[3 * r + c];

            in->lin[3 * r + c] = (float)(m * size[c]);
            in->nrm[3 * r + c] = (float)(m / size[c]);
            in->inv[3 * c + r] = (float)(m / size[c]);
        }
    }
}

static void put_capsule(struct rays_scene *s, const struct rays_shared *sh, const mjvGeom *g)
{
    double size[3], r = 0.5 * ((double)g->size[0] + (double)g->size[1]);

    copy3f(size, g->size);
    put_inst(s, g, sh->shape[SHAPE_TUBE], size, 0);
    size[2] = r;
    put_inst(s, g, sh->shape[SHAPE_TOP], size, (double)g->size[2] - r);
    put_inst(s, g, sh->shape[SHAPE_BOTTOM], size, r - (double)g->size[2]);
}

static enum status put_instances(struct rays_scene *s, const struct rays_shared *sh,
                                 const mjvGeom *g)
{
    double size[3], one[3] = {1, 1, 1};
    const struct rays_mesh *mesh = NULL;

    copy3f(size, g->size);
    switch (g->type) {
    case mjGEOM_PLANE:
        if (g->dataid >= 0 && g->dataid < sh->n_plane) {
            put_inst(s, g, sh->plane[g->dataid], one, 0);
        } else {
            size[2] = 1;
            put_inst(s, g, sh->square, size, 0);
        }
        return ST_OK;
    case mjGEOM_SPHERE:
    case mjGEOM_ELLIPSOID:
        put_inst(s, g, sh->shape[SHAPE_SPHERE], size, 0);
        return ST_OK;
    case mjGEOM_CYLINDER:
        put_inst(s, g, sh->shape[SHAPE_CYLINDER], size, 0);
        return ST_OK;
    case mjGEOM_CAPSULE:
        put_capsule(s, sh, g);
        return ST_OK;
    case mjGEOM_BOX:
        put_inst(s, g, sh->box, size, 0);
        return ST_OK;
    case mjGEOM_MESH:
    case mjGEOM_SDF:
        if (g->dataid >= 0 && g->dataid / 2 < sh->n_mesh)
            mesh = sh->mesh[g->dataid / 2];
        break;
    case mjGEOM_HFIELD:
        if (g->dataid >= 0 && g->dataid < sh->n_hfield)
            mesh = sh->hfield[g->dataid];
        break;
    default: // lines, arrows, labels: decoration that rays leave out
        return ST_OK;
    }
    if (!mesh)
        return FAIL(ST_INVAL, "geom %d of type %d has no mesh %d", g->objid, g->type, g->dataid);
    put_inst(s, g, mesh, one, 0);
    return ST_OK;
}

// --- materials ----------------------------------------------------------------------------------

static bool builtin_uv(int type)
{
    return BUILTIN_UV &&
           (type == mjGEOM_PLANE || type == mjGEOM_SPHERE || type == mjGEOM_ELLIPSOID ||
            type == mjGEOM_BOX || type == mjGEOM_CYLINDER || type == mjGEOM_CAPSULE);
}

static void set_uv(struct rays_material *mat, const mjvGeom *g, const float repeat[2], bool uniform)
{
    int k;

    mat->coords = TEX_UV;
    for (k = 0; k < 2; k++) {
        mat->scale[k] = 1;
        mat->bias[k] = 0;
        if (!BUILTIN_UV)
            continue;
        if (repeat[k] > 0)
            mat->scale[k] = repeat[k];
        if (uniform && g->size[k] > 0)
            mat->scale[k] *= g->size[k];
        if (g->type == mjGEOM_PLANE && (g->size[0] <= 0 || g->size[1] <= 0))
            mat->bias[k] = -0.5f;
    }
}

static void set_place(struct rays_material *mat, const mjvGeom *g, const float repeat[2],
                      bool uniform)
{
    int k;

    mat->coords = TEX_PLACE;
    if (mat->tex->cube) {
        for (k = 0; k < 3; k++) {
            mat->scale[k] = uniform ? g->size[k] : 1;
            mat->bias[k] = 0;
        }
        return;
    }
    for (k = 0; k < 2; k++) {
        float a = repeat[k];

        if (g->dataid >= 0 && g->size[k] > 0)
            a /= g->size[k];
        if (uniform && g->size[k] > 0)
            a *= g->size[k];
        mat->scale[k] = k ? -0.5f * a : 0.5f * a;
        mat->bias[k] = -0.5f;
    }
}

static void set_texture(struct rays_material *mat, const struct rays_shared *sh, const mjModel *m,
                        const mjvGeom *g)
{
    const float *repeat;
    int id = g->matid;

    mat->tex = NULL;
    mat->coords = TEX_NONE;
    if (id < 0 || id >= m->nmat || m->mat_texid[id * mjNTEXROLE + mjTEXROLE_RGB] < 0)
        return;
    mat->tex = sh->tex[m->mat_texid[id * mjNTEXROLE + mjTEXROLE_RGB]];
    repeat = m->mat_texrepeat + 2 * (size_t)id;
    if (!mat->tex)
        return;
    if (g->texcoord || (!mat->tex->cube && builtin_uv(g->type))) {
        if (mat->tex->cube)
            mat->tex = NULL; // a cube map in the place of a 2-D one: OpenGL draws untextured
        else
            set_uv(mat, g, repeat, m->mat_texuniform[id]);
        return;
    }
    set_place(mat, g, repeat, m->mat_texuniform[id]);
}

static double bounding_radius(const mjvGeom *g)
{
    double x = g->size[0], y = g->size[1], z = g->size[2];

    if (g->objtype == mjOBJ_GEOM)
        return g->modelrbound;
    switch (g->type) {
    case mjGEOM_SPHERE:
        return x;
    case mjGEOM_CAPSULE:
        return x + z;
    case mjGEOM_CYLINDER:
        return sqrt(x * x + z * z);
    case mjGEOM_BOX:
        return sqrt(x * x + y * y + z * z);
    default:
        return fmax(x, fmax(y, z));
    }
}

static void set_looks(struct rays_scene *s, const mjvGeom *g, struct rays_material *mat)
{
    double toward[3], axis[3];
    bool plane = g->type == mjGEOM_PLANE;
    int k;

    for (k = 0; k < 3; k++) {
        toward[k] = s->main.eye[k] - (double)g->pos[k];
        axis[k] = g->mat[3 * k + 2];
    }
    memcpy(mat->rgba, g->rgba, sizeof mat->rgba);
    mat->behind = plane && dot3(toward, axis) < 0;
    if (mat->behind)
        mat->rgba[3] *= BEHIND_ALPHA;
    mat->transparent = g->rgba[3] < OPAQUE_ALPHA || mat->behind;
    mat->rgba[3] = fminf(fmaxf(mat->rgba[3], 0), 1);
    mat->emission = g->emission;
    mat->specular = g->specular;
    mat->exponent = g->shininess * 128;
    mat->reflectance = g->reflectance;
    mat->casts = g->category != mjCAT_DECOR && g->type != mjGEOM_LINE;
#if BUILTIN_UV
    mat->casts = mat->casts && g->castshadow;
#endif
    mat->camdist = plane ? 1e10 : sqrt(dot3(toward, toward)) - bounding_radius(g);
    mat->mirror = (plane || g->type == mjGEOM_BOX) && !mat->transparent && g->reflectance > 0 &&
                  s->mirror_geom < 0;
}

static void set_mirror(struct rays_scene *s, const mjvGeom *g)
{
    int k;

    s->mirror_geom = s->n_geom;
    for (k = 0; k < 3; k++) {
        s->mirror_normal[k] = g->mat[3 * k + 2];
        s->mirror_pos[k] = (double)g->pos[k];
        if (g->type == mjGEOM_BOX)
            s->mirror_pos[k] += (double)g->size[2] * s->mirror_normal[k];
    }
}

// Nearest first; the number of transparent geoms is small.
static void sort_transparent(struct rays_scene *s)
{
    int i, j;

    for (i = 1; i < s->n_transparent; i++) {
        int g = s->transparent[i];

        for (j = i; j > 0; j--) {
            if (s->material[s->transparent[j - 1]].camdist <= s->material[g].camdist)
                break;
            s->transparent[j] = s->transparent[j - 1];
        }
        s->transparent[j] = g;
    }
}

static enum status set_geoms(struct rays_scene *s, const struct rays_shared *sh, const mjModel *m,
                             const mjvScene *scn)
{
    int i;

    if (scn->ngeom > s->max_geom)
        return FAIL(ST_INVAL, "the scene has %d geoms, there is room for %d", scn->ngeom,
                    s->max_geom);
    s->n_inst = s->n_transparent = 0;
    s->mirror_geom = -1;
    for (i = 0; i < scn->ngeom; i++) {
        const mjvGeom *g = &scn->geoms[i];
        struct rays_material *mat = &s->material[i];

        s->n_geom = i;
        s->first_inst[i] = s->n_inst;
        set_looks(s, g, mat);
        set_texture(mat, sh, m, g);
        if (mat->mirror && scn->flags[mjRND_REFLECTION])
            set_mirror(s, g);
        if (mat->transparent && mat->rgba[3] > 0)
            s->transparent[s->n_transparent++] = i;
        TRY(put_instances(s, sh, g));
    }
    s->n_geom = scn->ngeom;
    s->first_inst[scn->ngeom] = s->n_inst;
    sort_transparent(s);
    return ST_OK;
}

// --- views --------------------------------------------------------------------------------------

static enum status set_main_view(struct rays_scene *s, const mjvScene *scn)
{
    const mjvGLCamera *a = &scn->camera[0], *b = &scn->camera[1];
    struct rays_view *v = &s->main;
    double top = a->frustum_top, bottom = a->frustum_bottom, near = a->frustum_near;
    double half, scale;
    int k;

    if (!(near > 0) || !(a->frustum_far > a->frustum_near) || !(top > bottom))
        return FAIL(ST_INVAL, "the camera sees nothing: near %g, far %g, bottom %g, top %g", near,
                    (double)a->frustum_far, bottom, top);
    for (k = 0; k < 3; k++) {
        v->eye[k] = (double)(0.5f * (a->pos[k] + b->pos[k]));
        v->forward[k] = (double)a->forward[k] + (double)b->forward[k];
        v->up[k] = (double)a->up[k] + (double)b->up[k];
    }
    unit3(v->forward);
    cross3(v->right, v->forward, v->up);
    unit3(v->right);
    cross3(v->up, v->right, v->forward);
    v->ortho = a->orthographic;
    v->near = a->frustum_near;
    v->far = a->frustum_far;
    half = a->frustum_width > 0 ? (double)a->frustum_width
                                : 0.5 * s->width / s->height * (top - bottom);
    scale = v->ortho ? 1 : 1 / near;
    v->e0[0] = ((double)a->frustum_center - half) * scale;
    v->e1[0] = 2 * half * scale / s->width;
    v->e0[1] = bottom * scale;
    v->e1[1] = (top - bottom) * scale / s->height;
    if (!v->ortho) {
        mjvGLCamera mean = mjv_averageCamera(a, b);

        rays_depth_camera(&v->gl, &mean, s->width, s->height);
    }
    return ST_OK;
}

static void set_rays(struct rays_view *v)
{
    int k;

    for (k = 0; k < 3; k++) {
        double at = v->right[k] * v->e0[0] + v->up[k] * v->e0[1];
        double sx = v->right[k] * v->e1[0], sy = v->up[k] * v->e1[1];

        v->o[k] = v->ortho ? at : 0;
        v->ox[k] = v->ortho ? sx : 0;
        v->oy[k] = v->ortho ? sy : 0;
        v->d[k] = v->forward[k] + (v->ortho ? 0 : at);
        v->dx[k] = v->ortho ? 0 : sx;
        v->dy[k] = v->ortho ? 0 : sy;
    }
}

static void reflect3(const struct rays_scene *s, double v[3])
{
    double along = dot3(v, s->mirror_normal);
    int k;

    for (k = 0; k < 3; k++)
        v[k] -= 2 * along * s->mirror_normal[k];
}

static void set_mirrored_view(struct rays_scene *s)
{
    struct rays_view *v = &s->mirrored;
    const struct rays_view *from = &s->main;
    double away[3], height;
    int k;

    memcpy(v->right, from->right, sizeof v->right);
    memcpy(v->up, from->up, sizeof v->up);
    memcpy(v->forward, from->forward, sizeof v->forward);
    memcpy(v->e0, from->e0, sizeof v->e0);
    memcpy(v->e1, from->e1, sizeof v->e1);
    v->ortho = from->ortho;
    v->near = from->near;
    v->far = from->far;
    for (k = 0; k < 3; k++)
        away[k] = from->eye[k] - s->mirror_pos[k];
    height = dot3(away, s->mirror_normal);
    if (height < 0)
        s->mirror_geom = -1; // seen from behind: nothing is mirrored
    for (k = 0; k < 3; k++)
        v->eye[k] = from->eye[k] - 2 * height * s->mirror_normal[k];
    reflect3(s, v->right);
    reflect3(s, v->up);
    reflect3(s, v->forward);
    v->gl = from->gl;
    rays_depth_look(&v->gl, v->eye, v->right, v->up, v->forward);
    set_rays(v);
}

// Window rectangle and nearest depth of an instance's bounds.
static void set_bounds(const struct rays_scene *s, const struct rays_view *v,
                       const struct rays_inst *in, struct rays_seen *seen)
{
    double lo[2] = {INFINITY, INFINITY}, hi[2] = {-INFINITY, -INFINITY}, depth = INFINITY, far = 0;
    int i, k;

    for (i = 0; i < 8; i++) {
        double p[3], at[3], z, e[2];

        for (k = 0; k < 3; k++)
            p[k] = i >> k & 1 ? in->mesh->hi[k] : in->mesh->lo[k];
        turn3(at, in->lin, p);
        for (k = 0; k < 3; k++)
            at[k] += (double)seen->rel[k];
        z = dot3(at, v->forward);
        depth = fmin(depth, z);
        far = fmax(far, z);
        e[0] = dot3(at, v->right);
        e[1] = dot3(at, v->up);
        for (k = 0; k < 2; k++) {
            double w = ((v->ortho ? e[k] : e[k] / fmax(z, 1e-30)) - v->e0[k]) / v->e1[k];

            lo[k] = fmin(lo[k], w);
            hi[k] = fmax(hi[k], w);
        }
    }
    if (!v->ortho && depth < (double)v->near) {
        lo[0] = lo[1] = -INFINITY; // reaches behind the eye: anywhere
        hi[0] = hi[1] = INFINITY;
    }
    seen->x[0] = (float)lo[0] - 1;
    seen->x[1] = (float)hi[0] + 1;
    seen->y[0] = (float)lo[1] - 1;
    seen->y[1] = (float)hi[1] + 1;
    seen->depth = (float)fmax(depth, (double)v->near);
    if (far < (double)v->near || depth > (double)v->far || seen->x[1] < 0 || seen->y[1] < 0 ||
        seen->x[0] > (float)s->width || seen->y[0] > (float)s->height)
        seen->depth = INFINITY;
}

static void look(const struct rays_scene *s, struct rays_view *v, int skip_geom)
{
    int i, j, k;

    v->n_order = 0;
    for (i = 0; i < s->n_inst; i++) {
        const struct rays_inst *in = &s->inst[i];
        struct rays_seen *seen = &v->seen[i];
        double rel[3], o[3];

        for (k = 0; k < 3; k++) {
            rel[k] = in->pos[k] - v->eye[k];
            o[k] = v->o[k] - rel[k];
        }
        narrow3(seen->rel, rel);
        turn3(seen->o, in->inv, o);
        turn3(seen->ox, in->inv, v->ox);
        turn3(seen->oy, in->inv, v->oy);
        turn3(seen->d, in->inv, v->d);
        turn3(seen->dx, in->inv, v->dx);
        turn3(seen->dy, in->inv, v->dy);
        set_bounds(s, v, in, seen);
        if (seen->depth == INFINITY || in->geom == skip_geom)
            continue;
        for (j = v->n_order++; j > 0 && v->seen[v->order[j - 1]].depth > seen->depth; j--)
            v->order[j] = v->order[j - 1];
        v->order[j] = i;
    }
}

// --- lights -------------------------------------------------------------------------------------

static void set_light(struct rays_light *out, const mjvLight *l, const mjvScene *scn)
{
    double dir[3];

    copy3f(dir, l->dir);
    unit3(dir);
    memset(out, 0, sizeof *out);
    narrow3(out->dir, dir);
    out->directional = l->type == mjLIGHT_DIRECTIONAL;
    memcpy(out->amb, l->ambient, sizeof out->amb);
    memcpy(out->dif, l->diffuse, sizeof out->dif);
    memcpy(out->spe, l->specular, sizeof out->spe);
    memcpy(out->att, l->attenuation, sizeof out->att);
    out->cone = !out->directional && l->cutoff <= 90; // OpenGL refuses wider ones
    out->cos_cutoff = (float)cos((double)l->cutoff * PI / 180);
    out->exponent = l->exponent >= 0 && l->exponent <= 128 ? l->exponent : 0;
    out->shadow = l->castshadow && scn->flags[mjRND_SHADOW];
}

static void set_shadow(struct rays_shadow *sh, const mjModel *m, const mjvLight *l)
{
    double dir[3], side[3], up[3], x[3] = {-1, 0, 0}, y[3] = {0, 1, 0}, angle;
    int size = m->vis.quality.shadowsize;

    copy3f(dir, l->dir);
    cross3(up, dir, x);
    if (dot3(up, up) <= 0.01)
        cross3(up, dir, y);
    unit3(up);
    unit3(dir);
    cross3(side, dir, up);
    unit3(side);
    cross3(up, side, dir);
    narrow3(sh->right, side);
    narrow3(sh->up, up);
    narrow3(sh->forward, dir);
    angle = fmin(2 * (double)l->cutoff * (double)m->vis.map.shadowscale, 160);
    sh->half = l->type == mjLIGHT_DIRECTIONAL
                   ? (float)(m->stat.extent * (double)m->vis.map.shadowclip)
                   : (float)tan(angle * PI / 360);
    sh->texel = 2 * sh->half / (float)(size > 0 ? size : 1);
}

static void set_lights(struct rays_scene *s, const mjModel *m, const mjvScene *scn)
{
    int i, k;

    s->n_light = scn->nlight < RAYS_LIGHT_MAX ? scn->nlight : RAYS_LIGHT_MAX;
    s->no_light = scn->nlight == 0;
    for (i = 0; i < s->n_light; i++) {
        const mjvLight *l = &scn->lights[i];

        set_light(&s->main.light[i], l, scn);
        if (m->vis.quality.shadowsize <= 0)
            s->main.light[i].shadow = false;
        set_shadow(&s->shadow[i], m, l);
        s->mirrored.light[i] = s->main.light[i];
        for (k = 0; k < 3; k++) {
            s->main.light[i].pos[k] = (float)((double)l->pos[k] - s->main.eye[k]);
            s->mirrored.light[i].pos[k] = (float)((double)l->pos[k] - s->mirrored.eye[k]);
        }
    }
}

static void set_sky(struct rays_scene *s, const struct rays_shared *sh, const mjvScene *scn)
{
    s->sky = scn->flags[mjRND_SKYBOX] ? sh->sky : NULL;
    s->sky_distance = 0.7 * (double)s->main.far;
    s->n_slice = sh->n_slice;
}

enum status rays_scene_set(struct rays_scene *s, const struct rays_shared *sh, const mjModel *m,
                           const mjvScene *scn, int width, int height)
{
    s->width = width;
    s->height = height;
    TRY(set_main_view(s, scn));
    set_rays(&s->main);
    TRY(set_geoms(s, sh, m, scn));
    if (s->mirror_geom >= 0)
        set_mirrored_view(s);
    set_lights(s, m, scn);
    set_sky(s, sh, scn);
    look(s, &s->main, -1);
    if (s->mirror_geom >= 0)
        look(s, &s->mirrored, s->mirror_geom);
    return ST_OK;
}
