// Depths of triangles as OpenGL's software renderer rounds them: near what geometry says, and where
// two faces share a place both renderers show the same one.
#include "tests/render_world.h"

#include "common/base/rng.h"
#include "envserver/egl_context.h"
#include "envserver/rays_depth.h"

#include <math.h>
#include <stdlib.h>

// --- geometry -----------------------------------------------------------------------------------

#define WIDTH  90
#define HEIGHT 70
#define NEAR   0.02
#define FAR    40.0
#define BOTTOM -0.012
#define TOP    0.01

// A camera at `pos` that looks at the origin.
static mjvGLCamera camera_at(const double pos[3])
{
    mjvGLCamera cam = {.up = {0, 0, 1},
                       .frustum_bottom = (float)BOTTOM,
                       .frustum_top = (float)TOP,
                       .frustum_near = (float)NEAR,
                       .frustum_far = (float)FAR};
    int k;

    for (k = 0; k < 3; k++) {
        cam.pos[k] = (float)pos[k];
        cam.forward[k] = (float)-pos[k];
    }
    return cam;
}

static double along(const double axis[3], const double at[3], const double eye[3])
{
    return axis[0] * (at[0] - eye[0]) + axis[1] * (at[1] - eye[1]) + axis[2] * (at[2] - eye[2]);
}

// Window coordinates and distance along the view axis of a place, for the camera above.
static void see(double out[3], const double eye[3], const double place[3])
{
    double forward[3] = {-eye[0], -eye[1], -eye[2]}, right[3], up[3], z;
    const double z_axis[3] = {0, 0, 1};

    mju_normalize3(forward);
    mju_cross(right, forward, z_axis);
    mju_normalize3(right);
    mju_cross(up, right, forward);
    z = along(forward, place, eye);
    out[0] = WIDTH / 2.0 + NEAR * along(right, place, eye) / z * HEIGHT / (TOP - BOTTOM);
    out[1] = (NEAR * along(up, place, eye) / z - BOTTOM) * HEIGHT / (TOP - BOTTOM);
    out[2] = z;
}

// Small triangles, and large ones that the picture's borders and the near plane cut; from both
// sides, in all orders of their corners.
static void depths_are_those_of_the_geometry(void **state)
{
    static const float unit[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    static const double zero[3] = {0, 0, 0};
    struct rng rng = rng_make(1, RNG_TEST, 0, 0, 0);
    struct rays_depth_rows rows;
    struct rays_depth_view v;
    int i, j, k, n[2] = {0, 0};

    (void)state;
    for (i = 0; i < 5000; i++) {
        double size = i % 2 ? 4 : 0.3, eye[3], at[3] = {0, 0, 0}, seen[3], share[3], exact;
        float p[5][3]; // corners 0, 1, 2, 0, 1
        mjvGLCamera cam;

        share[0] = rng_uniform(&rng, 0.1, 0.5);
        share[1] = rng_uniform(&rng, 0.1, 0.4);
        share[2] = 1 - share[0] - share[1];
        for (k = 0; k < 3; k++)
            eye[k] = (double)(float)rng_uniform(&rng, 1, 3);
        for (j = 0; j < 5; j++)
            for (k = 0; k < 3; k++) {
                p[j][k] = j < 3 ? (float)rng_uniform(&rng, -size, size) : p[j - 3][k];
                at[k] += j < 3 ? share[j] * (double)p[j][k] : 0;
            }
        see(seen, eye, at);
        if (seen[2] < 0.5 || seen[0] < 0 || seen[0] > WIDTH || seen[1] < 0 || seen[1] > HEIGHT)
            continue;
        cam = camera_at(eye);
        rays_depth_camera(&v, &cam, WIDTH, HEIGHT);
        rays_depth_rows(&rows, &v, unit, zero);
        exact = NEAR * (FAR - seen[2]) / (seen[2] * (FAR - NEAR));
        for (j = 0; j < 3; j++)
            assert_close(rays_depth_at(&v, &rows, (const float(*)[3])(p + j), j == 2 ? 1 : 4,
                                       (float)seen[0], (float)seen[1]),
                         exact, 1e-3, 1e-5);
        n[i % 2]++;
    }
    assert_true(n[0] > 1000 && n[1] > 300);
}

// --- shared faces -------------------------------------------------------------------------------

// A rack of boards with a clear panel that has their very faces, as LIBERO's wine rack has; as
// meshes, so that every geom has its own rounding.
#define BOARD(x)                                                                          \
    "<geom type='mesh' mesh='board' pos='" x " .1 .2' euler='7 3 11' rgba='.8 .5 .2 1'/>" \
    "<geom type='mesh' mesh='panel' pos='" x " .1 .2' euler='7 3 11' rgba='.1 .1 .9 .4'/>"
static const char rack_xml[] =
    "<mujoco><statistic extent='1' center='0 0 0'/><visual><map znear='.01' zfar='30'/></visual>"
    "<asset><mesh name='board' vertex='-.02 -.4 -.3 .02 -.4 -.3 -.02 .4 -.3 .02 .4 -.3 "
    "-.02 -.4 .3 .02 -.4 .3 -.02 .4 .3 .02 .4 .3'/>"
    "<mesh name='panel' vertex='.02 .4 .3 -.02 .4 .3 .02 -.4 .3 -.02 -.4 .3 .02 .4 -.3 "
    "-.02 .4 -.3 .02 -.4 -.3 -.02 -.4 -.3'/></asset><worldbody>"
    "<geom type='plane' size='3 3 .1' pos='0 0 -.4' rgba='.5 .6 .5 1'/>" BOARD("-.5") BOARD("-.2")
        BOARD("0.13") BOARD(".45") "</worldbody></mujoco>";

static enum status draw_rack(const char *backend, int view, int samples, uint8_t *rgb)
{
    struct toy_world w = world_make(rack_xml);
    struct render_camera cam = {.width = 160, .height = 120, .orient = RENDER_UPRIGHT};
    struct render_out out = {.rgb = rgb};
    struct render_shared *shared;
    struct render_worker *worker;
    struct render_config cfg;
    enum status st;

    render_config_default(&cfg);
    cfg.backend = backend;
    cfg.samples = samples;
    cfg.watchdog_ns = 0; // the machine may be busy
    st = render_shared_create(&shared, w.m, &cfg);
    if (st == ST_OK) {
        assert_ok(render_worker_create(&worker, shared));
        mjv_defaultCamera(&cam.mjv);
        cam.mjv.azimuth = 75 + 4 * view; // nearly along the boards
        cam.mjv.elevation = -10 - 7 * (view % 5);
        cam.mjv.distance = 0.7 + 0.2 * (view % 3);
        assert_ok(render_frame(worker, w.m, w.d, &cam, &out));
        render_worker_destroy(worker);
        render_shared_destroy(shared);
    }
    world_free(&w);
    return st;
}

// Where rounding decides which of two faces is seen, it is that of Mesa's renderer on the CPU.
static void shared_faces_look_alike(void **state)
{
    enum { N = 160 * 120 };
    static uint8_t rgb[2][3 * N];
    struct egl_about about;
    int view, samples, i;

    (void)state;
    if (egl_probe(&about, &(struct egl_choice){-1, -1}, 0) != ST_OK || !about.software) {
        print_message("skipped: Mesa's renderer on the CPU is not what OpenGL has here\n");
        skip();
    }
    for (samples = 1; samples <= 4; samples += 3)
        for (view = 0; view < 8; view++) {
            int off = 0;

            assert_ok(draw_rack("rays", view, samples, rgb[0]));
            assert_ok(draw_rack("egl", view, samples, rgb[1]));
            for (i = 0; i < N; i++) {
                const uint8_t *a = rgb[0] + 3 * i, *b = rgb[1] + 3 * i;

                off += abs(a[0] - b[0]) > 10 || abs(a[1] - b[1]) > 10 || abs(a[2] - b[2]) > 10;
            }
            print_message("view %d, %d samples: %d of %d pixels are off\n", view, samples, off, N);
            assert_true(off < N / 500);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(depths_are_those_of_the_geometry),
        leak_test(shared_faces_look_alike),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
