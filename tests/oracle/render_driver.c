// render_driver MODEL BACKEND - draws what render_oracle.py and render_robosuite.py ask for. MODEL
// is a .mjb file or the name of a task, then with all that one sees. A request on stdin is
//   int32[8]: camera (-1 = MuJoCo's free one), width, height, orientation (enum render_orient),
//             planes (1 colour, 2 depth, 4 segmentation), geom groups, site groups, 0
//   doubles:  the arrays of `fields` below, as long as the model says
//   floats:   site_rgba (nsite, 4)
// and the answer on stdout is the planes in that order. The poses are drawn as they come.
#include "envserver/render.h"

#include "common/base/mem.h"
#include "common/base/thread.h"
#include "scenes/scene.h"

#include <mujoco/mujoco.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct request {
    int32_t camera, width, height, orient, planes, geom_groups, site_groups, unused;
};

static void must(enum status st)
{
    if (st == ST_OK)
        return;
    fprintf(stderr, "render_driver: %s\n", error_last()->text);
    exit(2);
}

static void read_all(void *out, size_t n)
{
    if (fread(out, 1, n, stdin) != n)
        must(FAIL(ST_IO, "a request ends early"));
}

static void read_doubles(mjtNum *out, int rows, int columns)
{
    read_all(out, (size_t)rows * (size_t)columns * sizeof *out);
}

static void read_world(mjModel *m, mjData *d)
{
    read_doubles(d->xpos, (int)m->nbody, 3);
    read_doubles(d->xquat, (int)m->nbody, 4);
    read_doubles(d->xmat, (int)m->nbody, 9);
    read_doubles(d->xipos, (int)m->nbody, 3);
    read_doubles(d->ximat, (int)m->nbody, 9);
    read_doubles(d->geom_xpos, (int)m->ngeom, 3);
    read_doubles(d->geom_xmat, (int)m->ngeom, 9);
    read_doubles(d->site_xpos, (int)m->nsite, 3);
    read_doubles(d->site_xmat, (int)m->nsite, 9);
    read_doubles(d->cam_xpos, (int)m->ncam, 3);
    read_doubles(d->cam_xmat, (int)m->ncam, 9);
    read_doubles(d->light_xpos, (int)m->nlight, 3);
    read_doubles(d->light_xdir, (int)m->nlight, 3);
    read_all(m->site_rgba, (size_t)m->nsite * 4 * sizeof(float));
}

static void answer(struct render_worker *worker, mjModel *m, mjData *d, const struct request *r)
{
    struct render_camera cam = {.width = r->width, .height = r->height};
    size_t n = (size_t)r->width * (size_t)r->height;
    struct render_out out = {mem_alloc(n, 3), mem_alloc(n, 4), mem_alloc(n, 8), 0, 0, 0};
    uint8_t *rgb = out.rgb;
    float *depth = out.depth;
    int32_t *seg = out.seg;

    cam.orient = (enum render_orient)r->orient;
    if (r->camera < 0) {
        mjv_defaultFreeCamera(m, &cam.mjv);
    } else {
        mjv_defaultCamera(&cam.mjv);
        cam.mjv.type = mjCAMERA_FIXED;
        cam.mjv.fixedcamid = r->camera;
    }
    out.rgb = r->planes & 1 ? rgb : NULL;
    out.depth = r->planes & 2 ? depth : NULL;
    out.seg = r->planes & 4 ? seg : NULL;
    must(render_frame(worker, m, d, &cam, &out));
    if (out.rgb)
        fwrite(rgb, 3, n, stdout);
    if (out.depth)
        fwrite(depth, 4, n, stdout);
    if (out.seg)
        fwrite(seg, 8, n, stdout);
    fflush(stdout);
    mem_free(rgb);
    mem_free(depth);
    mem_free(seg);
}

// Of a task's model the copy that reads are written to.
static mjModel *open_model(const char *name)
{
    struct scene *scene;
    mjModel *m;

    if (strlen(name) > 4 && strcmp(name + strlen(name) - 4, ".mjb") == 0)
        return mj_loadModel(name, NULL);
    must(scene_create(&scene, name, "{\"visual\": true}"));
    m = mj_copyModel(NULL, scene->model);
    scene_destroy(scene);
    return m;
}

int main(int argc, char **argv)
{
    struct render_shared *shared = NULL;
    struct render_worker *worker = NULL;
    struct render_config cfg;
    struct request r;
    int64_t spent = 0, n = 0;
    mjModel *m;
    mjData *d;

    if (argc != 3 || !(m = open_model(argv[1])) || !(d = mj_makeData(m))) {
        fprintf(stderr, "usage: render_driver MODEL.mjb|TASK egl|rays\n");
        return 2;
    }
    mj_forward(m, d);
    render_config_default(&cfg);
    cfg.backend = argv[2];
    while (fread(&r, sizeof r, 1, stdin) == 1) {
        int64_t before;

        read_world(m, d);
        if (!worker) {
            cfg.geom_groups = (uint32_t)r.geom_groups;
            cfg.site_groups = (uint32_t)r.site_groups;
            must(render_shared_create(&shared, m, &cfg));
            must(render_worker_create(&worker, shared));
        }
        before = clock_now_ns();
        answer(worker, m, d, &r);
        spent += n++ ? clock_now_ns() - before : 0; // the first one compiles shaders
    }
    if (n > 1)
        fprintf(stderr, "render_driver: %s, %.1f ms a picture\n", render_worker_backend(worker),
                (double)spent / 1e6 / (double)(n - 1));
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    mj_deleteData(d);
    mj_deleteModel(m);
    return 0;
}
