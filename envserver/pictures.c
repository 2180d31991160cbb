#include "envserver/pictures.h"

#include "common/base/mem.h"
#include "envserver/render.h"
#include "envserver/sim.h"
#include "scenes/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One camera and the pictures that are made of its view.
struct shot {
    struct render_camera cam;
    int picture[SPEC_PLANES]; // index into the spec's pictures, -1 = not wanted
};

struct pictures {
    const struct scene *scene; // borrowed
    struct render_config cfg;
    int n_shot;
    struct shot shots[SPEC_PICTURE_MAX];
    int n_picture;
    uint32_t bytes[SPEC_PICTURE_MAX];
    size_t total;
    struct render_shared *shared; // NULL until pictures_prepare
};

struct painter {
    const struct pictures *pictures; // borrowed
    struct render_worker *worker;
    mjModel view; // what is drawn: a copy of the world's model
    mjData *pose; // owned; NULL = worlds are drawn as they are
};

_Static_assert(SPEC_PICTURE_SIDE_MAX == RENDER_SIZE_MAX, "one limit, said where it is needed");

static const struct scene_pictures *options(const struct scene *scene)
{
    return &((const struct scene_common *)scene->params)->pictures;
}

// ------------------------------------------------------------------ which pictures

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

// Where Gymnasium's free camera looks: the median of the geoms' places.
static enum status median(const struct scene *scene, double out[3])
{
    const mjModel *m = scene->model;
    int n = (int)m->ngeom, i, k;
    double *x = mem_alloc((size_t)n + 1, sizeof *x);
    mjData *d = sim_make_data(m);
    struct engine_trap trap;
    enum status st = ST_OK;

    if (!x || !d) {
        st = ST_NOMEM;
    } else if (!ENGINE_TRY(&trap)) {
        st = FAIL(ST_ENGINE, "MuJoCo cannot place the geoms: %s", trap.text);
    } else {
        mj_kinematics(m, d);
        engine_end(&trap);
        for (k = 0; k < 3; k++) {
            for (i = 0; i < n; i++)
                x[i] = d->geom_xpos[3 * i + k];
            qsort(x, (size_t)n, sizeof *x, compare);
            out[k] = n ? 0.5 * (x[(n - 1) / 2] + x[n / 2]) : 0;
        }
    }
    mj_deleteData(d);
    mem_free(x);
    return st;
}

// Gymnasium's free camera.
static enum status free_view(const struct scene *scene, char *text, size_t size)
{
    const char *own = scene->task->free_view;
    double at[3];

    TRY(median(scene, at));
    snprintf(text, size,
             "free,distance=%.17g,azimuth=90,elevation=-45,lookat=%.17g/%.17g/%.17g%s%s",
             scene->model->stat.extent, at[0], at[1], at[2], own ? "," : "", own ? own : "");
    return ST_OK;
}

// Of "track=torso,distance=3" track_torso.
static void name_view(const char *view, size_t n, char *name, size_t size)
{
    const char *comma = memchr(view, ',', n);
    size_t i;

    snprintf(name, size, "%.*s", (int)(comma ? comma - view : (ptrdiff_t)n), view);
    for (i = 0; name[i]; i++)
        if (name[i] == '=' || name[i] == '#')
            name[i] = '_';
}

// Take PLANES out of `text`. At least one bit is set.
static unsigned take_planes(char *text)
{
    char *part = strchr(text, ':'), *end, *p;
    unsigned planes;
    int k;

    for (; part; part = *end ? end : NULL) {
        end = part + 1 + strcspn(part + 1, ":");
        for (planes = 0, p = part + 1; p < end;) {
            size_t n = strcspn(p, "+:");

            for (k = 0; k < SPEC_PLANES; k++)
                if (strlen(spec_plane_name((enum spec_plane)k)) == n &&
                    strncmp(p, spec_plane_name((enum spec_plane)k), n) == 0)
                    break;
            if (k == SPEC_PLANES)
                break;
            planes |= 1u << k;
            p += n + (p[n] == '+' && p + n + 1 < end);
        }
        if (p < end || planes == 0)
            continue; // a size or an orientation
        memmove(part, end, strlen(end) + 1);
        return planes;
    }
    return 1u << SPEC_RGB;
}

static enum status add_picture(struct pictures *p, struct spec *spec, struct shot *shot,
                               const char *view, enum spec_plane plane)
{
    static const char *const suffixes[SPEC_PLANES] = {"image", "depth", "segmentation"};
    struct spec_picture picture = {.plane = plane,
                                   .width = (uint32_t)shot->cam.width,
                                   .height = (uint32_t)shot->cam.height,
                                   .orient = shot->cam.orient};

    if (snprintf(picture.name, sizeof picture.name, "%s_%s", view, suffixes[plane]) >=
            (int)sizeof picture.name ||
        snprintf(picture.camera, sizeof picture.camera, "%s", view) >= (int)sizeof picture.camera)
        return FAIL(ST_INVAL, "the name of camera '%s' is too long", view);
    TRY(spec_add_picture(spec, &picture));
    shot->picture[plane] = p->n_picture;
    p->bytes[p->n_picture++] = spec->pictures[spec->n_picture - 1].bytes;
    return ST_OK;
}

static bool is_gymnasiums(const struct scene *scene, const char *view)
{
    if (scene->task->members)
        return false;
    return strcmp(view, "gymnasium") == 0 ||
           (strcmp(view, "track") == 0 && mj_name2id(scene->model, mjOBJ_CAMERA, view) < 0);
}

// One entry of the list; `text` loses its planes.
static enum status add_camera(struct pictures *p, struct spec *spec, char *text)
{
    const struct scene *scene = p->scene;
    const struct scene_pictures *o = options(scene);
    struct shot *shot = &p->shots[p->n_shot];
    unsigned planes = take_planes(text);
    char full[2 * OPT_STR_MAX], view[SPEC_NAME_MAX], free_text[OPT_STR_MAX];
    size_t n = strcspn(text, ":");
    int k;

    if (p->n_shot == SPEC_PICTURE_MAX)
        return FAIL(ST_INVAL, "more than %d cameras", SPEC_PICTURE_MAX);
    name_view(text, n, view, sizeof view);
    snprintf(full, sizeof full, "%s", text);
    if (is_gymnasiums(scene, view)) {
        TRY(free_view(scene, free_text, sizeof free_text));
        snprintf(full, sizeof full, "%s%s", free_text, text + n);
    }
    shot->cam.orient = (enum render_orient)o->orient;
    TRY(render_size_parse(&shot->cam, o->size));
    TRY(render_camera_parse(&shot->cam, scene->model, full));
    for (k = 0; k < SPEC_PLANES; k++) {
        shot->picture[k] = -1;
        if (planes >> k & 1)
            TRY(add_picture(p, spec, shot, view, (enum spec_plane)k));
    }
    p->n_shot++;
    return ST_OK;
}

// Does this piece of the list go on with the view before it ("free" "distance=3")?
static bool goes_on(const char *piece)
{
    static const char *const names[] = {"distance=", "azimuth=", "elevation=", "lookat="};
    size_t i;

    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(piece, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static enum status add_cameras(struct pictures *p, struct spec *spec, const char *list)
{
    while (*list) {
        char text[OPT_STR_MAX];
        size_t n = strcspn(list, ",");

        while (list[n] && goes_on(list + n + 1))
            n += 1 + strcspn(list + n + 1, ",");
        snprintf(text, sizeof text, "%.*s", (int)n, list);
        list += n + (list[n] == ',');
        if (list[-1] == ',' && !*list)
            return FAIL(ST_INVAL, "cameras: the list ends with a comma");
        if (strncmp(text, "default", 7) == 0 && (text[7] == '\0' || text[7] == ':')) {
            char own[2 * OPT_STR_MAX];
            bool suite = p->scene->task->members;

            if (snprintf(own, sizeof own,
                         suite ? "agentview%1$s,robot0_eye_in_hand%1$s" : "track%s",
                         text + 7) >= (int)sizeof own)
                return FAIL(ST_INVAL, "cameras: '%.40s...' is too long", text);
            TRY(add_cameras(p, spec, own));
        } else if (add_camera(p, spec, text) != ST_OK) {
            return error_prefix("cameras");
        }
    }
    return ST_OK;
}

static void set_config(struct pictures *p)
{
    static const char *const names[] = {"rays", "egl"};
    const struct scene_pictures *o = options(p->scene);

    render_config_default(&p->cfg);
    p->cfg.backend = names[o->renderer];
    p->cfg.samples = (int)o->samples;
    p->cfg.fast = o->fast;
    p->cfg.fallback = o->fallback ? RENDER_OR_RAYS : RENDER_OR_FAIL;
    p->cfg.egl_device = (int)o->egl_device;
    p->cfg.cuda_device = (int)o->cuda_device;
    if (p->scene->task->members)
        p->cfg.geom_groups &= ~1u; // as robosuite: collision geoms are not drawn
}

enum status pictures_create(struct pictures **out, const struct scene *scene, struct spec *spec)
{
    struct pictures *p;
    enum status st;

    *out = NULL;
    if (!options(scene)->cameras[0])
        return ST_OK;
    p = mem_alloc(1, sizeof *p);
    if (!p)
        return ST_NOMEM;
    p->scene = scene;
    set_config(p);
    st = add_cameras(p, spec, options(scene)->cameras);
    p->total = spec->picture_bytes;
    if (st != ST_OK) {
        pictures_destroy(p);
        return st;
    }
    *out = p;
    return ST_OK;
}

void pictures_destroy(struct pictures *p)
{
    if (!p)
        return;
    render_shared_destroy(p->shared);
    mem_free(p);
}

size_t pictures_bytes(const struct pictures *p)
{
    return p->total;
}

enum status pictures_prepare(struct pictures *p)
{
    return p->shared ? ST_OK : render_shared_create(&p->shared, p->scene->model, &p->cfg);
}

bool pictures_can_fork(const struct pictures *p)
{
    return strcmp(p->cfg.backend, "rays") == 0;
}

// ------------------------------------------------------------------ drawing

enum status painter_create(struct painter **out, struct pictures *p)
{
    struct painter *painter;
    enum status st;

    TRY(pictures_prepare(p));
    painter = mem_alloc(1, sizeof *painter);
    if (!painter)
        return ST_NOMEM;
    painter->pictures = p;
    st = render_worker_create(&painter->worker, p->shared);
    if (st == ST_OK && p->scene->driver->pose) {
        painter->pose = sim_make_data(p->scene->model);
        if (!painter->pose)
            st = FAIL(ST_NOMEM, "the engine cannot make a world to draw");
    }
    if (st != ST_OK) {
        painter_destroy(painter);
        return st;
    }
    *out = painter;
    return ST_OK;
}

void painter_destroy(struct painter *painter)
{
    if (!painter)
        return;
    render_worker_destroy(painter->worker);
    mj_deleteData(painter->pose);
    mem_free(painter);
}

static enum status place(struct painter *painter, const struct world *w)
{
    struct engine_trap trap;

    painter->view = *w->model;
    if (!painter->pose)
        return ST_OK;
    if (!ENGINE_TRY(&trap))
        return FAIL(ST_ENGINE, "MuJoCo cannot place the world: %s", trap.text);
    w->scene->driver->pose(w, &painter->view, painter->pose);
    engine_end(&trap);
    return ST_OK;
}

// Where each picture starts in `out`, NULL = skipped; the bytes between them are zeroed.
static void lay_out(const struct pictures *p, uint32_t skip, uint8_t *out, uint8_t **at)
{
    int i;

    for (i = 0; i < p->n_picture; i++) {
        size_t pad = -(size_t)p->bytes[i] % 8;

        at[i] = skip >> i & 1 ? NULL : out;
        if (!at[i])
            continue;
        memset(out + p->bytes[i], 0, pad);
        out += p->bytes[i] + pad;
    }
}

static void *plane_at(const struct shot *shot, enum spec_plane plane, uint8_t *const *at)
{
    return shot->picture[plane] < 0 ? NULL : at[shot->picture[plane]];
}

enum status painter_draw(struct painter *painter, const struct world *w, uint32_t skip,
                         uint8_t *out)
{
    const struct pictures *p = painter->pictures;
    struct render_view views[SPEC_PICTURE_MAX];
    struct render_out planes[SPEC_PICTURE_MAX];
    uint8_t *at[SPEC_PICTURE_MAX];
    int i, n = 0;

    lay_out(p, skip, out, at);
    for (i = 0; i < p->n_shot; i++) {
        const struct shot *shot = &p->shots[i];

        planes[n] = (struct render_out){.rgb = plane_at(shot, SPEC_RGB, at),
                                        .depth = plane_at(shot, SPEC_DEPTH, at),
                                        .seg = plane_at(shot, SPEC_SEG, at)};
        views[n] = (struct render_view){&painter->view, painter->pose ? painter->pose : w->d,
                                        &shot->cam, &planes[n]};
        n += planes[n].rgb || planes[n].depth || planes[n].seg;
    }
    if (n == 0)
        return ST_OK;
    TRY(place(painter, w));
    return render_frames(painter->worker, views, n, NULL);
}
