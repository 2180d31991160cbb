// The ray renderer against what geometry and OpenGL's lighting formulas say.
#include "tests/testing.h"

#include "common/base/mem.h"
#include "common/base/thread.h"
#include "envserver/rays_shade.h"
#include "envserver/render.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define W 64

struct world {
    mjModel *m;
    mjData *d;
};

static void world_open(struct world *w, const char *xml)
{
    char path[] = "/tmp/test_rays.XXXXXX", error[500] = "";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");

    assert_non_null(f);
    fputs(xml, f);
    assert_int_equal(fclose(f), 0);
    w->m = mj_loadXML(path, NULL, error, sizeof error);
    (void)unlink(path);
    if (!w->m)
        fail_msg("%s", error);
    w->d = mj_makeData(w->m);
    mj_forward(w->m, w->d);
}

static void world_close(struct world *w)
{
    mj_deleteData(w->d);
    mj_deleteModel(w->m);
}

struct picture {
    uint8_t rgb[W][W][3];
    float depth[W][W];
    int32_t seg[W][W][2];
};

static void draw_with(struct render_worker *worker, struct world *w, const char *camera,
                      struct picture *out)
{
    struct render_camera cam = {.width = W, .height = W, .orient = RENDER_UPRIGHT};
    struct render_out planes = {&out->rgb[0][0][0], &out->depth[0][0], &out->seg[0][0][0], 0, 0, 0};

    assert_ok(render_camera_parse(&cam, w->m, camera));
    assert_ok(render_frame(worker, w->m, w->d, &cam, &planes));
}

static void draw(struct world *w, const struct render_config *cfg, const char *camera,
                 struct picture *out)
{
    struct render_config own;
    struct render_shared *shared = NULL;
    struct render_worker *worker = NULL;

    render_config_default(&own);
    assert_ok(render_shared_create(&shared, w->m, cfg ? cfg : &own));
    assert_ok(render_worker_create(&worker, shared));
    assert_string_equal(render_worker_backend(worker), "rays");
    draw_with(worker, w, camera, out);
    render_worker_destroy(worker);
    render_shared_destroy(shared);
}

// Camera `c` at z = 3 looks down; 90 degrees, so that the ground spans -3..3. Only ambient light of
// 1, so colours are those of the materials.
#define SCENE(geoms)                                                                \
    "<mujoco><visual><headlight ambient='1 1 1' diffuse='0 0 0' specular='0 0 0'/>" \
    "<map znear='.01' zfar='10'/></visual><statistic extent='1' center='0 0 0'/>"   \
    "<worldbody><camera name='c' pos='0 0 3' fovy='90'/>" geoms "</worldbody></mujoco>"

static void depth_and_identity_are_exact(void **state)
{
    struct world w;
    struct picture p;
    int x, y;

    (void)state;
    world_open(&w, SCENE("<geom type='plane' size='3 3 .1' rgba='0 1 0 1'/>"
                         "<geom type='box' size='.5 .5 .5' pos='1 1 .5' rgba='1 0 0 1'/>"
                         "<geom type='sphere' size='.5' pos='-1 -1 .5' rgba='0 0 1 1'/>"
                         "<site size='.1' pos='0 0 1' rgba='1 1 1 1'/>"));
    draw(&w, NULL, "c", &p);
    for (y = 0; y < W; y++)
        for (x = 0; x < W; x++) {
            // where the ray of the pixel's centre meets z = 0
            double gx = 3 * (2 * (x + 0.5) / W - 1), gy = -3 * (2 * (y + 0.5) / W - 1);

            if (p.seg[y][x][0] == 0 && p.seg[y][x][1] == mjOBJ_GEOM) {
                assert_close(p.depth[y][x], 3, 1e-5, 0);
                assert_false(fabs(gx - 0.8) < 0.3 && fabs(gy - 0.8) < 0.3);
            }
            if (gx > 0.9 && gx < 2.2 && gy > 0.9 && gy < 2.2)
                assert_int_equal(p.seg[y][x][0], 1);
            if (p.seg[y][x][0] == 1)
                assert_true(p.depth[y][x] > 1.99 && p.depth[y][x] < 3.01);
        }
    // the nearest point of the sphere's top, seen at an angle: a row of latitude off at most
    assert_int_equal(p.seg[W - 1 - 19][19][0], 2);
    assert_true(p.depth[W - 1 - 19][19] > 1.99 && p.depth[W - 1 - 19][19] < 2.25);
    assert_int_equal(p.seg[W / 2][W / 2][0], 0); // the site
    assert_int_equal(p.seg[W / 2][W / 2][1], mjOBJ_SITE);
    assert_close(p.depth[W / 2][W / 2], 1.9, 0, 0.02);
    assert_int_equal(p.rgb[2][W / 2][1], 255);
    assert_int_equal(p.rgb[2][W / 2][0], 0);
    world_close(&w);
}

static void nothing_is_black_and_far(void **state)
{
    struct world w;
    struct picture p;

    (void)state;
    world_open(&w, SCENE("<geom size='.1'/>"));
    draw(&w, NULL, "c", &p);
    assert_int_equal(p.seg[0][0][0], -1);
    assert_int_equal(p.seg[0][0][1], -1);
    assert_close(p.depth[0][0], 10, 1e-5, 0);
    assert_int_equal(p.rgb[0][0][0] + p.rgb[0][0][1] + p.rgb[0][0][2], 0);
    world_close(&w);
}

static void edges_are_mixed_with_four_samples(void **state)
{
    struct render_config one;
    struct world w;
    struct picture p;
    int x, y, mixed[2] = {0, 0}, i;

    (void)state;
    world_open(&w, SCENE("<geom type='box' size='.7 .7 .1' euler='0 0 30' rgba='1 1 1 1'/>"));
    render_config_default(&one);
    for (i = 0; i < 2; i++) {
        one.samples = i ? 4 : 1;
        draw(&w, &one, "c", &p);
        for (y = 0; y < W; y++)
            for (x = 0; x < W; x++) {
                int v = p.rgb[y][x][0];

                assert_true(v == 0 || v == 64 || v == 128 || v == 191 || v == 255);
                mixed[i] += v != 0 && v != 255;
            }
    }
    assert_int_equal(mixed[0], 0);
    assert_true(mixed[1] > 20);
    world_close(&w);
}

// OpenGL blends what is farther first; MuJoCo draws the list twice, so that alpha acts twice.
static void transparent_things_are_blended_twice(void **state)
{
    struct world w;
    struct picture p;
    double bg, near = 0, far = 0, v[3];
    int i, k;

    (void)state;
    world_open(&w, SCENE("<geom type='plane' size='3 3 .1' rgba='0 0 1 1'/>"
                         "<geom type='box' size='1 1 .01' pos='0 0 1' rgba='1 0 0 .5'/>"
                         "<geom type='box' size='1 1 .01' pos='0 0 2' rgba='0 1 0 .25'/>"));
    draw(&w, NULL, "c", &p);
    bg = 1;
    for (i = 0; i < 2; i++) { // once in ascending and once in descending order of distance
        int order[2] = {i == 0, i != 0};

        for (k = 0; k < 2; k++) {
            double a = order[k] ? 0.25 : 0.5;

            near = near * (1 - a) + (order[k] ? a : 0);
            far = far * (1 - a) + (order[k] ? 0 : a);
            bg *= 1 - a;
        }
    }
    v[0] = far;
    v[1] = near;
    v[2] = bg;
    for (k = 0; k < 3; k++)
        assert_close(p.rgb[W / 2][W / 2][k], 255 * v[k], 0, 2.5);
    assert_int_equal(p.seg[W / 2][W / 2][0], 2); // segmentation sees it as solid
    world_close(&w);
}

// One quad of a plane, lit by one lamp: ambient, diffuse, specular, attenuation.
static void lights_follow_the_formula(void **state)
{
    struct world w;
    struct picture p;
    double att = 1 + 0.5 * 2 + 0.25 * 4, want;

    (void)state;
    world_open(&w, "<mujoco><visual><headlight active='0'/><quality shadowsize='0'/></visual>"
                   "<asset><material name='a' rgba='.8 .8 .8 1' specular='0' shininess='.5'/>"
                   "</asset><worldbody><camera name='c' pos='0 0 3' fovy='90'/>"
                   "<light pos='0 0 2' dir='0 0 -1' cutoff='45' exponent='0' "
                   "attenuation='1 .5 .25' ambient='.1 0 0' diffuse='.5 .9 0' "
                   "specular='1 1 1'/><geom type='plane' size='3 3 .01' material='a'/>"
                   "</worldbody></mujoco>");
    draw(&w, NULL, "c", &p);
    want = 0.8 * (0.1 + 0.5) / att; // straight below the lamp N.L = 1
    assert_close(p.rgb[W / 2][W / 2][0], 255 * want, 0, 1.5);
    assert_close(p.rgb[W / 2][W / 2][1], 255 * 0.8 * 0.9 / att, 0, 1.5);
    assert_int_equal(p.rgb[W / 2][W / 2][2], 0);
    // 56 degrees off the axis: outside of the cone
    assert_int_equal(p.rgb[W / 2][W - 1][0], 0);
    world_close(&w);
}

static void shadows_fall_where_the_geometry_says(void **state)
{
    struct render_config fast;
    struct world w;
    struct picture p;
    int i;

    (void)state;
    world_open(&w, "<mujoco><visual><headlight active='0'/></visual>"
                   "<statistic extent='3' center='0 0 0'/><worldbody>"
                   "<camera name='c' pos='0 0 3' fovy='90'/>"
                   "<light directional='true' pos='0 0 2' dir='1 0 -1' ambient='0 0 0' "
                   "diffuse='1 1 1' specular='0 0 0'/>"
                   "<geom type='plane' size='3 3 .1' rgba='1 1 1 1'/>"
                   "<geom type='sphere' size='.3' pos='0 0 1' rgba='1 0 0 1'/>"
                   "</worldbody></mujoco>");
    render_config_default(&fast);
    for (i = 0; i < 2; i++) {
        fast.fast = i;
        draw(&w, &fast, "c", &p);
        // the shadow's middle is at (1, 0, 0): pixel column 42
        assert_int_equal(p.seg[W / 2][42][0], 0);
        if (i == 0)
            assert_int_equal(p.rgb[W / 2][42][0], 0);
        else
            assert_true(p.rgb[W / 2][42][0] > 150);
        assert_close(p.rgb[W / 2][10][0], 255 * sqrt(0.5), 0, 2);
    }
    world_close(&w);
}

static void a_mirror_shows_what_is_behind_the_eye(void **state)
{
    struct world w;
    struct picture p;

    (void)state;
    world_open(&w, "<mujoco><visual><headlight ambient='1 1 1' diffuse='0 0 0' "
                   "specular='0 0 0'/></visual><asset>"
                   "<material name='m' reflectance='.5' rgba='0 .2 0 1'/></asset><worldbody>"
                   "<camera name='c' pos='0 0 3' fovy='90'/>"
                   "<geom type='plane' size='3 3 .1' material='m'/>"
                   "<geom type='box' size='1 1 .1' pos='0 0 4' rgba='1 0 0 1'/>"
                   "</worldbody></mujoco>");
    draw(&w, NULL, "c", &p);
    assert_close(p.rgb[W / 2][W / 2][0], 127.5, 0, 1);
    assert_close(p.rgb[W / 2][W / 2][1], 51, 0, 1);
    assert_int_equal(p.rgb[2][2][0], 0); // the box is not there
    world_close(&w);
}

static void orientation_and_stride_are_the_callers(void **state)
{
    enum { STRIDE = 3 * W + 7 };
    static uint8_t buf[3][W][STRIDE];
    struct render_config cfg;
    struct render_shared *shared = NULL;
    struct render_worker *worker = NULL;
    struct world w;
    int i, x, y;

    (void)state;
    world_open(&w, SCENE("<geom type='box' size='1 .5 .1' pos='1 2 0' rgba='1 .5 .2 1'/>"));
    render_config_default(&cfg);
    assert_ok(render_shared_create(&shared, w.m, &cfg));
    assert_ok(render_worker_create(&worker, shared));
    memset(buf, 77, sizeof buf);
    for (i = 0; i < 3; i++) {
        struct render_camera cam = {.width = W, .height = W, .orient = (enum render_orient)i};
        struct render_out out = {&buf[i][0][0], NULL, NULL, STRIDE, 0, 0};

        assert_ok(render_camera_parse(&cam, w.m, "#0"));
        assert_ok(render_frame(worker, w.m, w.d, &cam, &out));
    }
    for (y = 0; y < W; y++) {
        for (x = 0; x < W; x++) {
            assert_memory_equal(&buf[0][y][3 * x], &buf[1][W - 1 - y][3 * x], 3);
            assert_memory_equal(&buf[2][y][3 * x], &buf[1][y][3 * (W - 1 - x)], 3);
        }
        for (x = 3 * W; x < STRIDE; x++)
            assert_int_equal(buf[1][y][x], 77);
    }
    assert_int_equal(buf[1][10][3 * 42], 255); // up and right in the upright picture
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    world_close(&w);
}

static void groups_hide_geoms(void **state)
{
    struct render_config cfg;
    struct world w;
    struct picture p;

    (void)state;
    world_open(&w, SCENE("<geom type='box' size='1 1 .1' group='0' rgba='1 0 0 1'/>"
                         "<geom type='box' size='1 1 .1' pos='0 0 -1' group='1' rgba='0 1 0 1'/>"
                         "<geom type='box' size='1 1 .1' pos='0 0 1' group='3' rgba='0 0 1 1'/>"));
    draw(&w, NULL, "c", &p);
    assert_int_equal(p.seg[W / 2][W / 2][0], 0);
    render_config_default(&cfg);
    cfg.geom_groups = 6;
    draw(&w, &cfg, "c", &p);
    assert_int_equal(p.seg[W / 2][W / 2][0], 1);
    world_close(&w);
}

static void every_shape_is_drawn(void **state)
{
    static const char *const shapes[] = {
        "<geom type='sphere' size='1'/>",          "<geom type='capsule' size='.5 .5'/>",
        "<geom type='ellipsoid' size='1 .8 .6'/>", "<geom type='cylinder' size='1 .5'/>",
        "<geom type='box' size='1 1 .5'/>",        "<geom type='plane' size='0 0 .1'/>",
    };
    struct world w;
    struct picture p;
    char xml[1000];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        snprintf(xml, sizeof xml, SCENE("%s"), shapes[i]);
        world_open(&w, xml);
        draw(&w, NULL, "c", &p);
        assert_int_equal(p.seg[W / 2][W / 2][0], 0);
        draw(&w, NULL, "free,distance=4,azimuth=30,elevation=-20,lookat=0/0/0", &p);
        assert_int_equal(p.seg[W / 2][W / 2][0], 0);
        world_close(&w);
    }
}

// The instruction sets agree; what this processor lacks is skipped by the dispatch itself.
static void instruction_sets_agree(void **state)
{
    assert_non_null(rays_tracer_find("sse"));
    assert_non_null(rays_shader_find("sse"));
    assert_null(rays_tracer_find("mmx"));
    assert_null(rays_shader_find("mmx"));
    assert_non_null(rays_tracer_best());
    (void)state;
}

static void bad_options_are_refused(void **state)
{
    static const struct {
        const char *view, *part;
    } bad[] = {
        {"nowhere", "no camera 'nowhere'; it has c"},
        {"#1", "expected #0 to #0"},
        {"#", "expected #0"},
        {"c:0x4", "picture size '0x4'"},
        {"c:64x64x64", "picture size"},
        {"c:99999x1", "picture size"},
        {"c:sideways", "orientation 'sideways'"},
        {"c,distance=1", "takes no option"},
        {"track=hat", "no body 'hat'"},
        {"free,distance=0", "distance 0"},
        {"free,distance=x", "'x' is no number"},
        {"free,zoom=1", "camera option 'zoom=1'"},
        {"free,lookat=1/2", "lookat"},
        {"free,lookat=1/2/3/4", "more than three"},
    };
    struct render_camera cam = {.width = 5, .height = 6};
    struct render_shared *shared = NULL;
    struct render_config cfg;
    struct world w, other;
    size_t i;

    (void)state;
    world_open(&w, SCENE("<geom size='1'/>"));
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_fails(render_camera_parse(&cam, w.m, bad[i].view), ST_INVAL, bad[i].part);
    assert_int_equal(cam.width, 5); // untouched
    render_config_default(&cfg);
    cfg.backend = "vulkan";
    assert_fails(render_shared_create(&shared, w.m, &cfg), ST_INVAL, "expected rays or egl");
    render_config_default(&cfg);
    cfg.samples = 2;
    assert_fails(render_shared_create(&shared, w.m, &cfg), ST_INVAL, "expected 1 or 4");
    render_config_default(&cfg);
    cfg.geom_groups = 64;
    assert_fails(render_shared_create(&shared, w.m, &cfg), ST_INVAL, "geom groups");
    render_config_default(&cfg);
    cfg.max_geom = -1;
    assert_fails(render_shared_create(&shared, w.m, &cfg), ST_INVAL, "max_geom");
    render_config_default(&cfg);
    cfg.watchdog_ns = -1;
    assert_fails(render_shared_create(&shared, w.m, &cfg), ST_INVAL, "watchdog");
    world_open(&other, SCENE("<geom size='1'/><geom size='2'/>"));
    {
        struct render_worker *worker = NULL;
        struct render_out out = {0};

        render_config_default(&cfg);
        assert_ok(render_shared_create(&shared, w.m, &cfg));
        assert_ok(render_worker_create(&worker, shared));
        assert_ok(render_camera_parse(&cam, w.m, "c"));
        assert_fails(render_frame(worker, other.m, other.d, &cam, &out), ST_INVAL, "no view");
        cam.width = 0;
        assert_fails(render_frame(worker, w.m, w.d, &cam, &out), ST_INVAL, "picture size");
        cam.width = 8;
        cam.mjv.fixedcamid = 7;
        assert_fails(render_frame(worker, w.m, w.d, &cam, &out), ST_INVAL, "fixed camera 7");
        render_worker_destroy(worker);
        render_shared_destroy(shared);
    }
    world_close(&other);
    world_close(&w);
}

static void a_scene_that_is_too_large_is_an_error(void **state)
{
    struct render_config cfg;
    struct render_shared *shared = NULL;
    struct render_worker *worker = NULL;
    struct render_camera cam = {.width = 8, .height = 8};
    struct render_out out = {0};
    struct world w;

    (void)state;
    world_open(&w, SCENE("<geom size='1'/><geom size='1'/><geom size='1'/>"));
    render_config_default(&cfg);
    cfg.max_geom = 2;
    assert_ok(render_shared_create(&shared, w.m, &cfg));
    assert_ok(render_worker_create(&worker, shared));
    assert_ok(render_camera_parse(&cam, w.m, "c"));
    assert_fails(render_frame(worker, w.m, w.d, &cam, &out), ST_INVAL, "max_geom = 2");
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    world_close(&w);
}

static void meshes_are_shared_and_given_back(void **state)
{
    struct render_config cfg;
    struct render_shared *a = NULL, *b = NULL;
    struct world w;
    int i, n, before = rays_shared_items();

    (void)state;
    world_open(&w, SCENE("<geom size='1'/>"));
    render_config_default(&cfg);
    for (i = 0; i < 100; i++) {
        assert_ok(render_shared_create(&a, w.m, &cfg));
        n = rays_shared_items();
        assert_ok(render_shared_create(&b, w.m, &cfg));
        assert_true(n > before);
        assert_int_equal(rays_shared_items(), n);
        render_shared_destroy(a);
        assert_int_equal(rays_shared_items(), n);
        render_shared_destroy(b);
        assert_int_equal(rays_shared_items(), before);
    }
    world_close(&w);
}

static void running_out_of_memory_leaves_nothing_behind(void **state)
{
    struct render_config cfg;
    struct render_shared *shared = NULL;
    struct render_worker *worker = NULL;
    struct world w;
    int64_t live, n;

    (void)state;
    world_open(&w, SCENE("<geom size='1'/><geom type='plane' size='1 1 1'/>"));
    render_config_default(&cfg);
    live = mem_live();
    for (n = 0;; n++) {
        mem_fail_after(n);
        if (render_shared_create(&shared, w.m, &cfg) == ST_OK)
            break;
        assert_null(shared);
        assert_true(mem_live() == live);
    }
    assert_true(n > 10);
    live = mem_live();
    for (n = 0;; n++) {
        mem_fail_after(n);
        if (render_worker_create(&worker, shared) == ST_OK)
            break;
        assert_null(worker);
        assert_true(mem_live() == live);
    }
    mem_fail_after(-1);
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    world_close(&w);
}

// --- several threads: each has its own scene and must only ever see its own colour ---------------

#define N_THREAD 4
#define N_FRAME  30

struct painter {
    pthread_t thread;
    struct render_shared *shared;
    struct world world;
    int level;
    bool ok;
};

static void *paint(void *arg)
{
    struct painter *p = arg;
    static _Thread_local struct picture pic;
    struct render_worker *worker = NULL;
    int i, x, y;

    p->ok = render_worker_create(&worker, p->shared) == ST_OK;
    for (i = 0; p->ok && i < N_FRAME; i++) {
        struct render_camera cam = {.width = W, .height = W, .orient = RENDER_UPRIGHT};
        struct render_out out = {&pic.rgb[0][0][0], NULL, NULL, 0, 0, 0};

        p->ok = render_camera_parse(&cam, p->world.m, "c") == ST_OK &&
                render_frame(worker, p->world.m, p->world.d, &cam, &out) == ST_OK;
        for (y = 0; y < W; y++)
            for (x = 0; x < W; x++)
                p->ok = p->ok && pic.rgb[y][x][0] == p->level && pic.rgb[y][x][1] == 0;
    }
    render_worker_destroy(worker);
    return NULL;
}

static void threads_do_not_mix(void **state)
{
    static struct painter painter[N_THREAD];
    struct render_config cfg;
    char xml[1000];
    int i;

    (void)state;
    render_config_default(&cfg);
    for (i = 0; i < N_THREAD; i++) {
        painter[i].level = 51 * (i + 1);
        snprintf(xml, sizeof xml, SCENE("<geom type='plane' size='9 9 .1' rgba='%g 0 0 1'/>"),
                 0.2 * (i + 1));
        world_open(&painter[i].world, xml);
        assert_ok(render_shared_create(&painter[i].shared, painter[i].world.m, &cfg));
    }
    for (i = 0; i < N_THREAD; i++)
        assert_ok(thread_start(&painter[i].thread, "painter", paint, &painter[i]));
    for (i = 0; i < N_THREAD; i++) {
        pthread_join(painter[i].thread, NULL);
        assert_true(painter[i].ok);
        render_shared_destroy(painter[i].shared);
        world_close(&painter[i].world);
    }
}

// --- what stands still is kept ------------------------------------------------------------------

#define KEEP_W 140
#define KEEP_H 75
#define KEEP_SCENE                                                                            \
    "<mujoco><visual><headlight ambient='.2 .2 .2' diffuse='.3 .3 .3' specular='.5 .5 .5'/>"  \
    "<map znear='.01' zfar='30'/></visual><statistic extent='1' center='0 0 0'/><asset>"      \
    "<texture name='sky' type='skybox' builtin='gradient' rgb1='.2 .4 .8' rgb2='1 1 1' "      \
    "width='16' height='96'/><texture name='t' type='2d' builtin='checker' rgb1='1 0 0' "     \
    "rgb2='0 0 1' width='32' height='32'/><material name='t' texture='t' texrepeat='5 5'/>"   \
    "</asset><worldbody><light pos='1 -1 3' dir='0 0 -1' castshadow='false'/>"                \
    "<camera name='c' pos='0 -3 2' xyaxes='1 0 0 0 .5 .85' fovy='70'/>"                       \
    "<geom type='plane' size='2 2 .1' material='t'/>"                                         \
    "<geom type='sphere' size='.5' pos='-.8 0 .5' rgba='0 1 0 1'/>"                           \
    "<geom type='cylinder' size='.3 .6' pos='.9 .4 .6' rgba='1 1 0 1'/>"                      \
    "<geom type='box' size='.2 .02 .5' pos='0 -.5 .5' rgba='1 1 1 .4'/>"                      \
    "<body pos='0 .3 .6'><freejoint/><geom type='ellipsoid' size='.3 .2 .1' rgba='1 0 1 1'/>" \
    "</body><body pos='.5 -.8 1'><freejoint/><geom type='capsule' size='.1 .2' "              \
    "rgba='0 1 1 .5'/><camera name='moving' pos='0 -1 1' xyaxes='1 0 0 0 .5 .85'/></body>"    \
    "</worldbody></mujoco>"

struct keeper {
    struct render_shared *shared;
    struct render_worker *worker;
    uint8_t rgb[KEEP_H][KEEP_W][3];
};

static void keeper_open(struct keeper *k, const struct world *w, int samples, bool forget)
{
    struct render_config cfg;

    render_config_default(&cfg);
    cfg.samples = samples;
    cfg.forget = forget;
    assert_ok(render_shared_create(&k->shared, w->m, &cfg));
    assert_ok(render_worker_create(&k->worker, k->shared));
}

// Returns how often memory was asked for.
static int64_t keeper_draw(struct keeper *k, struct world *w, const char *camera)
{
    struct render_camera cam = {.width = KEEP_W, .height = KEEP_H, .orient = RENDER_UPRIGHT};
    struct render_out out = {.rgb = &k->rgb[0][0][0]};
    int64_t before;

    assert_ok(render_camera_parse(&cam, w->m, camera));
    before = mem_calls();
    assert_ok(render_frame(k->worker, w->m, w->d, &cam, &out));
    return mem_calls() - before;
}

static void keeper_close(struct keeper *k)
{
    render_worker_destroy(k->worker);
    render_shared_destroy(k->shared);
}

// What may change at frame `i`; true if it does.
static bool change(struct world *w, int i)
{
    switch (i) {
    case 6:
        w->m->geom_rgba[4] = 0.5f; // the sphere's red
        return true;
    case 12:
        w->m->light_diffuse[0] += 0.125f;
        return true;
    case 18:
        w->m->geom_pos[3 * 2] += 0.25; // the cylinder
        return true;
    case 24:
        w->m->cam_pos[1] += 0.125;
        return true;
    default:
        return false;
    }
}

static void what_stands_still_is_kept_to_the_bit(void **state)
{
    static struct keeper warm, cold;
    static uint8_t last[KEEP_H][KEEP_W][3];
    struct world w;
    int samples, i;

    (void)state;
    for (samples = 1; samples <= 4; samples += 3) {
        int since = 0;

        world_open(&w, KEEP_SCENE);
        keeper_open(&warm, &w, samples, false);
        keeper_open(&cold, &w, samples, true);
        for (i = 0; i < 30; i++) {
            int64_t asked;

            since = change(&w, i) ? 0 : since;
            w.d->qpos[0] = 1.5 * sin(0.4 * i);
            w.d->qpos[4] = 0.1 * i;
            w.d->qpos[7] = 0.5 - 0.05 * i;
            mj_forward(w.m, w.d);
            asked = keeper_draw(&warm, &w, "c");
            assert_true(since == 1 ? asked >= 5 : since < 1 || asked == 0);
            since++;
            (void)keeper_draw(&cold, &w, "c");
            assert_memory_equal(warm.rgb, cold.rgb, sizeof warm.rgb);
            assert_memory_not_equal(warm.rgb, last, sizeof last);
            memcpy(last, warm.rgb, sizeof last);
            asked = keeper_draw(&warm, &w, "moving");
            assert_int_equal(asked, 0);
            (void)keeper_draw(&cold, &w, "moving");
            assert_memory_equal(warm.rgb, cold.rgb, sizeof warm.rgb);
        }
        keeper_close(&warm);
        keeper_close(&cold);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(depth_and_identity_are_exact),
        leak_test(nothing_is_black_and_far),
        leak_test(edges_are_mixed_with_four_samples),
        leak_test(transparent_things_are_blended_twice),
        leak_test(lights_follow_the_formula),
        leak_test(shadows_fall_where_the_geometry_says),
        leak_test(a_mirror_shows_what_is_behind_the_eye),
        leak_test(orientation_and_stride_are_the_callers),
        leak_test(groups_hide_geoms),
        leak_test(every_shape_is_drawn),
        leak_test(instruction_sets_agree),
        leak_test(bad_options_are_refused),
        leak_test(a_scene_that_is_too_large_is_an_error),
        leak_test(meshes_are_shared_and_given_back),
        leak_test(running_out_of_memory_leaves_nothing_behind),
        leak_test(threads_do_not_mix),
        leak_test(what_stands_still_is_kept_to_the_bit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
