#include "envserver/render.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/thread.h"
#include "scenes/engine.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_MASK ((1u << mjNGROUP) - 1)

struct render_shared {
    const mjModel *model; // borrowed
    struct render_config cfg;
    const struct render_backend *backend;
    void *state; // the backend's
    mjvOption opt;
    pthread_mutex_t fallback_lock;
    void *fallback; // state of the rays backend for workers whose own backend hangs, NULL = none
};

struct shot {                // a frame under way
    mjvScene scn;            // MuJoCo's memory
    struct render_image img; // owned planes, as large as any frame so far
    size_t room;             // pixels in each plane
    struct render_image now; // the planes that this frame wants
};

struct render_worker {
    struct render_shared *shared; // borrowed
    const struct render_backend *backend;
    void *state; // the backend's
    mjvPerturb pert;
    struct shot shot[RENDER_IN_FLIGHT];
};

static const struct render_backend *const backends[] = {&render_backend_rays, &render_backend_egl};

// --- options ------------------------------------------------------------------------------------

void render_config_default(struct render_config *cfg)
{
    *cfg = (struct render_config){
        .backend = "rays",
        .samples = 4,
        .geom_groups = 7,
        .site_groups = 7,
        .fallback = RENDER_OR_FAIL,
        .egl_device = -1,
        .cuda_device = -1,
        .watchdog_ns = 30000000000,
    };
}

static const char *const orient_names[] = {"opengl", "upright", "rot180"};

const char *render_orient_name(enum render_orient orient)
{
    return orient_names[orient];
}

enum status render_orient_parse(enum render_orient *out, const char *name)
{
    size_t i;

    for (i = 0; i < sizeof orient_names / sizeof orient_names[0]; i++)
        if (strcmp(name, orient_names[i]) == 0) {
            *out = (enum render_orient)i;
            return ST_OK;
        }
    return FAIL(ST_INVAL, "orientation '%s', expected opengl, upright or rot180", name);
}

static enum status config_check(const struct render_config *cfg,
                                const struct render_backend **backend)
{
    size_t i;

    *backend = NULL;
    for (i = 0; cfg->backend && i < sizeof backends / sizeof backends[0]; i++)
        if (strcmp(cfg->backend, backends[i]->name) == 0)
            *backend = backends[i];
    if (!*backend)
        return FAIL(ST_INVAL, "render backend '%s', expected rays or egl",
                    cfg->backend ? cfg->backend : "");
    if (cfg->samples != 1 && cfg->samples != 4)
        return FAIL(ST_INVAL, "%d samples per pixel, expected 1 or 4", cfg->samples);
    if (cfg->geom_groups & ~GROUP_MASK || cfg->site_groups & ~GROUP_MASK)
        return FAIL(ST_INVAL, "geom groups 0x%x, site groups 0x%x, expected bits 0 to %d",
                    cfg->geom_groups, cfg->site_groups, mjNGROUP - 1);
    if (cfg->max_geom < 0 || cfg->max_geom > 1000000)
        return FAIL(ST_INVAL, "max_geom %d, expected 0 to 1000000", cfg->max_geom);
    if (cfg->egl_device < -1 || cfg->cuda_device < -1 ||
        (cfg->egl_device >= 0 && cfg->cuda_device >= 0))
        return FAIL(ST_INVAL, "EGL device %d and CUDA device %d, expected one of them from 0 on",
                    cfg->egl_device, cfg->cuda_device);
    if ((cfg->egl_device >= 0 || cfg->cuda_device >= 0) && strcmp(cfg->backend, "egl") != 0)
        return FAIL(ST_INVAL, "%s device %d is asked for, but the renderer is %s, expected egl",
                    cfg->egl_device >= 0 ? "EGL" : "CUDA",
                    cfg->egl_device >= 0 ? cfg->egl_device : cfg->cuda_device, cfg->backend);
    if (cfg->watchdog_ns < 0)
        return FAIL(ST_INVAL, "the watchdog waits %lld ns, expected 0 or more",
                    (long long)cfg->watchdog_ns);
    return ST_OK;
}

// --- cameras ------------------------------------------------------------------------------------

// The next part of "A:B:C" into `part`; false if it is too long.
static bool next_part(const char **text, char stop, char *part, size_t size)
{
    size_t n = strcspn(*text, (char[]){stop, '\0'});

    if (n >= size)
        return false;
    memcpy(part, *text, n);
    part[n] = '\0';
    *text += n + ((*text)[n] == stop);
    return true;
}

static enum status parse_number(const char *text, const char *what, double *out)
{
    char *end;

    errno = 0;
    *out = strtod(text, &end);
    if (end == text || *end || errno || !(*out >= -1e9 && *out <= 1e9))
        return FAIL(ST_INVAL, "%s '%s' is no number", what, text);
    return ST_OK;
}

static enum status parse_lookat(const char *text, mjtNum lookat[3])
{
    char part[64];
    double x[3];
    int k;

    for (k = 0; k < 3; k++) {
        if (!next_part(&text, '/', part, sizeof part) || !part[0])
            return FAIL(ST_INVAL, "lookat '%s', expected X/Y/Z", part);
        TRY(parse_number(part, "lookat", &x[k]));
    }
    if (*text)
        return FAIL(ST_INVAL, "lookat has more than three numbers: '%s'", text);
    for (k = 0; k < 3; k++)
        lookat[k] = x[k];
    return ST_OK;
}

static enum status parse_free_option(mjvCamera *cam, const char *part)
{
    static const char *const names[] = {"distance=", "azimuth=", "elevation="};
    mjtNum *const fields[] = {&cam->distance, &cam->azimuth, &cam->elevation};
    size_t i;

    for (i = 0; i < 3; i++) {
        size_t n = strlen(names[i]);

        if (strncmp(part, names[i], n) == 0)
            return parse_number(part + n, names[i], fields[i]);
    }
    if (strncmp(part, "lookat=", 7) == 0)
        return parse_lookat(part + 7, cam->lookat);
    return FAIL(ST_INVAL,
                "camera option '%s', expected distance=M, azimuth=DEG, elevation=DEG or "
                "lookat=X/Y/Z",
                part);
}

static enum status parse_free(mjvCamera *out, const mjModel *m, const char *first,
                              const char *options)
{
    mjvCamera cam;
    char part[128];

    mjv_defaultFreeCamera(m, &cam);
    if (strncmp(first, "track=", 6) == 0) {
        cam.type = mjCAMERA_TRACKING;
        cam.trackbodyid = mj_name2id(m, mjOBJ_BODY, first + 6);
        if (cam.trackbodyid < 0)
            return FAIL(ST_INVAL, "camera '%s': the model has no body '%s'", first, first + 6);
    }
    while (*options) {
        if (!next_part(&options, ',', part, sizeof part))
            return FAIL(ST_INVAL, "camera option '%.40s...' is too long", options);
        TRY(parse_free_option(&cam, part));
    }
    if (cam.distance <= 0)
        return FAIL(ST_INVAL, "camera distance %g, expected more than 0", cam.distance);
    *out = cam;
    return ST_OK;
}

// The cameras of a model for messages.
static const char *camera_names(const mjModel *m, char *text, size_t size)
{
    size_t n = 0;
    int i;

    text[0] = '\0';
    for (i = 0; i < m->ncam && n + 80 < size; i++) {
        const char *name = mj_id2name(m, mjOBJ_CAMERA, i);

        n += (size_t)snprintf(text + n, size - n, "%s%.60s", i ? ", " : "", name ? name : "-");
    }
    return m->ncam ? text : "none";
}

static enum status parse_fixed(mjvCamera *out, const mjModel *m, const char *name)
{
    char text[320], *end;
    long id;

    if (name[0] == '#') {
        errno = 0;
        id = strtol(name + 1, &end, 10);
        if (m->ncam == 0)
            return FAIL(ST_INVAL, "camera '%s': the model has none; say free", name);
        if (!isdigit((unsigned char)name[1]) || *end || errno || id >= m->ncam)
            return FAIL(ST_INVAL, "camera '%s', expected #0 to #%d", name, (int)m->ncam - 1);
    } else {
        id = mj_name2id(m, mjOBJ_CAMERA, name);
        if (id < 0)
            return FAIL(ST_INVAL, "the model has no camera '%s'; it has %s; or say free", name,
                        camera_names(m, text, sizeof text));
    }
    mjv_defaultCamera(out);
    out->type = mjCAMERA_FIXED;
    out->fixedcamid = (int)id;
    return ST_OK;
}

static enum status parse_view(mjvCamera *out, const mjModel *m, const char *view)
{
    char first[128];

    if (!next_part(&view, ',', first, sizeof first))
        return FAIL(ST_INVAL, "camera '%.40s...' is too long", view);
    if (strcmp(first, "free") == 0 || strncmp(first, "track=", 6) == 0)
        return parse_free(out, m, first, view);
    if (*view)
        return FAIL(ST_INVAL, "camera '%s' is fixed and takes no option '%s'", first, view);
    return parse_fixed(out, m, first);
}

static enum status parse_size(const char *part, int *width, int *height)
{
    int w, h, n = 0;

    if (sscanf(part, "%5dx%5d%n", &w, &h, &n) != 2 || part[n] || w < 1 || h < 1 ||
        w > RENDER_SIZE_MAX || h > RENDER_SIZE_MAX)
        return FAIL(ST_INVAL, "picture size '%s', expected WIDTHxHEIGHT from 1x1 to %dx%d", part,
                    RENDER_SIZE_MAX, RENDER_SIZE_MAX);
    *width = w;
    *height = h;
    return ST_OK;
}

enum status render_size_parse(struct render_camera *cam, const char *text)
{
    return parse_size(text, &cam->width, &cam->height);
}

enum status render_camera_parse(struct render_camera *cam, const mjModel *m, const char *text)
{
    struct render_camera out = *cam;
    int i, n_size = 0, n_orient = 0;
    char part[512];

    for (i = 0; i == 0 || *text; i++) {
        if (!next_part(&text, ':', part, sizeof part))
            return FAIL(ST_INVAL, "camera '%.40s...' is too long", text);
        if (i == 0) {
            TRY(parse_view(&out.mjv, m, part));
        } else if (isdigit((unsigned char)part[0])) {
            TRY(parse_size(part, &out.width, &out.height));
            n_size++;
        } else {
            TRY(render_orient_parse(&out.orient, part));
            n_orient++;
        }
        if (n_size > 1 || n_orient > 1)
            return FAIL(ST_INVAL, "'%s' is a second %s of the same camera", part,
                        n_size > 1 ? "size" : "orientation");
    }
    *cam = out;
    return ST_OK;
}

// --- create and destroy -------------------------------------------------------------------------

// Enough for all that MuJoCo may put into the scene with default options; tendons may be drawn as
// one capsule per wrap or up to 100 when slack.
static int scene_room(const mjModel *m)
{
    int64_t n = (int64_t)m->ngeom + m->nsite + m->nflex + m->nskin + 2 * (int64_t)m->nwrap +
                100 * (int64_t)m->ntendon + 2 * (int64_t)m->nu + m->nsensor + 100;

    return n > 1000000 ? 1000000 : (int)n;
}

// May a worker go on with rays after its backend gave `st`?
static bool can_fall_back(const struct render_shared *s, const struct render_backend *backend,
                          enum status st)
{
    return (st == ST_MISSING || st == ST_TIMEOUT) && backend != &render_backend_rays &&
           s->cfg.fallback == RENDER_OR_RAYS;
}

enum status render_shared_create(struct render_shared **out, const mjModel *m,
                                 const struct render_config *cfg)
{
    const struct render_backend *backend;
    struct render_shared *s;
    enum status st;
    int g;

    TRY(config_check(cfg, &backend));
    engine_init();
    s = mem_alloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    s->model = m;
    s->cfg = *cfg;
    s->cfg.backend = backend->name;
    if (s->cfg.max_geom == 0)
        s->cfg.max_geom = scene_room(m);
    mjv_defaultOption(&s->opt);
    for (g = 0; g < mjNGROUP; g++) {
        s->opt.geomgroup[g] = cfg->geom_groups >> g & 1;
        s->opt.sitegroup[g] = cfg->site_groups >> g & 1;
    }
    s->backend = backend;
    pthread_mutex_init(&s->fallback_lock, NULL);
    st = backend->shared_create(&s->state, m, &s->cfg);
    if (can_fall_back(s, backend, st)) {
        log_warn("render", "drawing with rays instead: %s", error_last()->text);
        s->backend = &render_backend_rays;
        st = s->backend->shared_create(&s->state, m, &s->cfg);
    }
    if (st != ST_OK) {
        pthread_mutex_destroy(&s->fallback_lock);
        mem_free(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void render_shared_destroy(struct render_shared *s)
{
    if (!s)
        return;
    s->backend->shared_destroy(s->state);
    if (s->fallback)
        render_backend_rays.shared_destroy(s->fallback);
    pthread_mutex_destroy(&s->fallback_lock);
    mem_free(s);
}

static enum status scene_create(const struct render_shared *s, mjvScene *scn)
{
    struct engine_trap trap;

    if (ENGINE_TRY(&trap)) {
        mjv_makeScene(s->model, scn, s->cfg.max_geom);
        engine_end(&trap);
    } else {
        return FAIL(ST_NOMEM, "MuJoCo cannot make a scene: %s", trap.text);
    }
    if (s->cfg.fast)
        scn->flags[mjRND_SHADOW] = scn->flags[mjRND_REFLECTION] = 0;
    return ST_OK;
}

// Go on with rays, whose part for all workers is made by the first that needs it.
static enum status fall_back(struct render_worker *w)
{
    struct render_shared *s = w->shared;
    enum status st = ST_OK;

    log_warn("render", "drawing with rays instead: %s", error_last()->text);
    pthread_mutex_lock(&s->fallback_lock);
    if (!s->fallback)
        st = render_backend_rays.shared_create(&s->fallback, s->model, &s->cfg);
    pthread_mutex_unlock(&s->fallback_lock);
    if (st != ST_OK)
        return st;
    if (w->state)
        w->backend->worker_destroy(w->state);
    w->state = NULL;
    w->backend = &render_backend_rays;
    return w->backend->worker_create(&w->state, s->fallback);
}

enum status render_worker_create(struct render_worker **out, struct render_shared *shared)
{
    struct render_worker *w = mem_alloc(1, sizeof *w);
    enum status st = ST_OK;
    int i;

    if (!w)
        return ST_NOMEM;
    w->shared = shared;
    w->backend = shared->backend;
    mjv_defaultPerturb(&w->pert);
    for (i = 0; i < RENDER_IN_FLIGHT; i++)
        mjv_defaultScene(&w->shot[i].scn);
    for (i = 0; i < RENDER_IN_FLIGHT && st == ST_OK; i++)
        st = scene_create(shared, &w->shot[i].scn);
    if (st == ST_OK)
        st = w->backend->worker_create(&w->state, shared->state);
    if (can_fall_back(shared, w->backend, st))
        st = fall_back(w);
    if (st != ST_OK) {
        render_worker_destroy(w);
        return st;
    }
    *out = w;
    return ST_OK;
}

void render_worker_destroy(struct render_worker *w)
{
    int i;

    if (!w)
        return;
    if (w->state)
        w->backend->worker_destroy(w->state);
    for (i = 0; i < RENDER_IN_FLIGHT; i++) {
        mjv_freeScene(&w->shot[i].scn);
        mem_free(w->shot[i].img.rgb);
        mem_free(w->shot[i].img.depth);
        mem_free(w->shot[i].img.segid);
    }
    mem_free(w);
}

const char *render_worker_backend(const struct render_worker *w)
{
    return w->backend->name;
}

// --- frames -------------------------------------------------------------------------------------

static enum status frame_check(const struct render_worker *w, const mjModel *m,
                               const struct render_camera *cam)
{
    const mjModel *own = w->shared->model;

    if (m->ngeom != own->ngeom || m->nmesh != own->nmesh || m->nmeshface != own->nmeshface ||
        m->ntex != own->ntex || m->nmat != own->nmat || m->nhfield != own->nhfield ||
        m->nsite != own->nsite)
        return FAIL(ST_INVAL,
                    "the model is no view of the one that was uploaded: %d geoms, %d "
                    "meshes, %d textures, expected %d, %d, %d",
                    (int)m->ngeom, (int)m->nmesh, (int)m->ntex, (int)own->ngeom, (int)own->nmesh,
                    (int)own->ntex);
    if (cam->width < 1 || cam->height < 1 || cam->width > RENDER_SIZE_MAX ||
        cam->height > RENDER_SIZE_MAX)
        return FAIL(ST_INVAL, "picture size %d x %d, expected 1 to %d", cam->width, cam->height,
                    RENDER_SIZE_MAX);
    if (cam->mjv.type == mjCAMERA_FIXED &&
        (cam->mjv.fixedcamid < 0 || cam->mjv.fixedcamid >= m->ncam))
        return FAIL(ST_INVAL, "fixed camera %d, the model has %d", cam->mjv.fixedcamid,
                    (int)m->ncam);
    if (cam->mjv.type == mjCAMERA_TRACKING &&
        (cam->mjv.trackbodyid < 0 || cam->mjv.trackbodyid >= m->nbody))
        return FAIL(ST_INVAL, "the camera tracks body %d, the model has %d", cam->mjv.trackbodyid,
                    (int)m->nbody);
    return ST_OK;
}

// Geoms are placed relative to the camera where planes have no end, so the camera comes first.
static enum status scene_update(struct render_worker *w, mjvScene *scn, const mjModel *m, mjData *d,
                                const struct render_camera *camera)
{
    mjvCamera cam = camera->mjv;
    struct engine_trap trap;

    if (ENGINE_TRY(&trap)) {
        mjv_updateCamera(m, d, &cam, scn);
        mjv_updateScene(m, d, &w->shared->opt, &w->pert, &cam, mjCAT_ALL, scn);
        engine_end(&trap);
    } else {
        return FAIL(ST_ENGINE, "MuJoCo cannot make the scene: %s", trap.text);
    }
    if (scn->ngeom >= scn->maxgeom)
        return FAIL(ST_INVAL, "the scene has more than max_geom = %d things to draw", scn->maxgeom);
    return ST_OK;
}

// The planes that this frame wants, others NULL.
static enum status make_room(struct shot *s, const struct render_camera *cam,
                             const struct render_out *out)
{
    size_t n = (size_t)cam->width * (size_t)cam->height;

    if (n > s->room) {
        uint8_t *rgb = mem_resize(s->img.rgb, n, 3);
        float *depth = rgb ? mem_resize(s->img.depth, n, sizeof *depth) : NULL;
        int32_t *segid = depth ? mem_resize(s->img.segid, n, sizeof *segid) : NULL;

        s->img.rgb = rgb ? rgb : s->img.rgb;
        s->img.depth = depth ? depth : s->img.depth;
        s->img.segid = segid ? segid : s->img.segid;
        if (!segid)
            return ST_NOMEM;
        s->room = n;
    }
    s->now.width = cam->width;
    s->now.height = cam->height;
    s->now.rgb = out->rgb ? s->img.rgb : NULL;
    s->now.depth = out->depth ? s->img.depth : NULL;
    s->now.segid = out->seg ? s->img.segid : NULL;
    return ST_OK;
}

// Copy one row of `n` items of `size` bytes, backwards if `mirror`.
static void copy_row(uint8_t *dst, const uint8_t *src, int n, size_t size, bool mirror)
{
    int i;

    if (!mirror) {
        memcpy(dst, src, (size_t)n * size);
        return;
    }
    for (i = 0; i < n; i++)
        memcpy(dst + (size_t)i * size, src + (size_t)(n - 1 - i) * size, size);
}

static void copy_plane(void *dst, size_t stride, const void *src, size_t size,
                       const struct render_camera *cam)
{
    size_t row = (size_t)cam->width * size;
    int y;

    for (y = 0; y < cam->height; y++) {
        int from = cam->orient == RENDER_OPENGL ? y : cam->height - 1 - y;

        copy_row((uint8_t *)dst + (size_t)y * (stride ? stride : row),
                 (const uint8_t *)src + (size_t)from * row, cam->width, size,
                 cam->orient == RENDER_ROT180);
    }
}

// Scene index -> MuJoCo object id and type, at the place where the orientation puts it.
static void copy_seg(const struct shot *s, const struct render_camera *cam,
                     const struct render_out *out)
{
    size_t stride = out->seg_stride ? out->seg_stride : (size_t)cam->width * 2 * sizeof *out->seg;
    int x, y;

    for (y = 0; y < cam->height; y++) {
        int from = cam->orient == RENDER_OPENGL ? y : cam->height - 1 - y;
        const int32_t *src = s->img.segid + (size_t)from * (size_t)cam->width;
        int32_t *dst = (int32_t *)(void *)((uint8_t *)out->seg + (size_t)y * stride);

        for (x = 0; x < cam->width; x++) {
            int id = src[cam->orient == RENDER_ROT180 ? cam->width - 1 - x : x];
            bool known = id >= 0 && id < s->scn.ngeom;

            dst[2 * x] = known ? s->scn.geoms[id].objid : -1;
            dst[2 * x + 1] = known ? s->scn.geoms[id].objtype : -1;
        }
    }
}

// Does the view stay where it is while bodies move?
static bool stands_still(const mjModel *m, const mjvCamera *cam)
{
    if (cam->type == mjCAMERA_FIXED)
        return m->cam_mode[cam->fixedcamid] == mjCAMLIGHT_FIXED &&
               m->body_weldid[m->cam_bodyid[cam->fixedcamid]] == 0;
    return cam->type == mjCAMERA_FREE;
}

static enum status begin(struct render_worker *w, int slot, const struct render_view *v)
{
    struct shot *s = &w->shot[slot];

    TRY(frame_check(w, v->m, v->cam));
    TRY(make_room(s, v->cam, v->out));
    s->now.still = stands_still(v->m, &v->cam->mjv);
    TRY(scene_update(w, &s->scn, v->m, v->d, v->cam));
    return w->backend->submit(w->state, slot, v->m, &s->scn, &s->now);
}

static enum status finish(struct render_worker *w, int slot, const struct render_view *v)
{
    struct shot *s = &w->shot[slot];

    if (w->backend->collect)
        TRY(w->backend->collect(w->state, slot, &s->scn, &s->now));
    if (v->out->rgb)
        copy_plane(v->out->rgb, v->out->rgb_stride, s->now.rgb, 3, v->cam);
    if (v->out->depth)
        copy_plane(v->out->depth, v->out->depth_stride, s->now.depth, sizeof(float), v->cam);
    if (v->out->seg)
        copy_seg(s, v->cam, v->out);
    return ST_OK;
}

// A view is finished when the next one has begun, or could not begin.
static enum status draw_views(struct render_worker *w, const struct render_view *views, int n,
                              int *done)
{
    enum status st = ST_OK, last = ST_OK;
    struct error error;
    int i;

    for (i = 0; i < n && st == ST_OK; i++) {
        st = begin(w, i % RENDER_IN_FLIGHT, &views[i]);
        if (i == 0)
            continue;
        error = *error_last();
        last = finish(w, (i - 1) % RENDER_IN_FLIGHT, &views[i - 1]);
        if (last != ST_OK)
            return last;
        ++*done;
        if (st != ST_OK)
            return error_adopt(&error);
    }
    if (st == ST_OK && n > 0) {
        st = finish(w, (n - 1) % RENDER_IN_FLIGHT, &views[n - 1]);
        *done += st == ST_OK;
    }
    return st;
}

enum status render_frames(struct render_worker *w, const struct render_view *views, int n,
                          int *done)
{
    int ready = 0;
    enum status st = draw_views(w, views, n, &ready);

    if (can_fall_back(w->shared, w->backend, st)) {
        st = fall_back(w);
        if (st == ST_OK)
            st = draw_views(w, views + ready, n - ready, &ready);
    }
    if (done)
        *done = ready;
    return st;
}

enum status render_frame(struct render_worker *w, const mjModel *m, mjData *d,
                         const struct render_camera *cam, const struct render_out *out)
{
    struct render_view view = {m, d, cam, out};

    return render_frames(w, &view, 1, NULL);
}
