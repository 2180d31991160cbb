// The EGL backend, on whatever device there is: Mesa on the CPU will do. The comparison with
// MuJoCo's own bindings is oracle/render_oracle.py.
#include "tests/render_world.h"

#include "common/base/thread.h"
#include "common/base/usage.h"
#include "envserver/egl_api.h"
#include "envserver/render.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAR_M 50.0f // zfar times extent of the scene

static struct render_config config(void)
{
    struct render_config cfg;

    render_config_default(&cfg);
    cfg.backend = "egl";
    return cfg;
}

// --- pictures -----------------------------------------------------------------------------------

static void known_scene(void **state)
{
    struct toy_world w = world_make(scene_xml);
    struct render_config cfg = config();
    struct render_camera cam = front(SIDE, SIDE, RENDER_UPRIGHT);
    uint8_t rgb[SIDE][SIDE][3];
    float depth[SIDE][SIDE];
    int32_t seg[SIDE][SIDE][2];
    struct render_out out = {&rgb[0][0][0], &depth[0][0], &seg[0][0][0], 0, 0, 0};
    struct render_shared *shared;
    struct render_worker *worker;

    (void)state;
    assert_ok(render_shared_create(&shared, w.m, &cfg));
    assert_ok(render_worker_create(&worker, shared));
    assert_string_equal(render_worker_backend(worker), "egl");
    assert_ok(render_frame(worker, w.m, w.d, &cam, &out));

    // the wall in the middle: ambient light 1 on its colour
    assert_int_equal(rgb[12][12][0], 51);
    assert_int_equal(rgb[12][12][1], 102);
    assert_int_equal(rgb[12][12][2], 153);
    assert_close(depth[12][12], 2.0, 0, 1e-4);
    assert_int_equal(seg[12][12][0], 0);
    assert_int_equal(seg[12][12][1], mjOBJ_GEOM);
    // the corner up on the left: 0.7 / 1.5 of the half picture (tan 30 degrees at 1.5 m: 0.866)
    assert_int_equal(rgb[3][3][0], 255);
    assert_int_equal(rgb[3][3][1], 0);
    assert_close(depth[3][3], 1.5, 0, 1e-4);
    assert_int_equal(seg[3][3][0], 1);
    assert_int_equal(seg[20][3][0], 0);

    // nothing is seen beyond the wall's edge
    w.m->cam_fovy[0] = 120;
    assert_ok(render_frame(worker, w.m, w.d, &cam, &out));
    assert_int_equal(rgb[0][0][0] | rgb[0][0][1] | rgb[0][0][2], 0);
    assert_close(depth[0][0], FAR_M, 1e-5, 0);
    assert_int_equal(seg[0][0][0], -1);
    assert_int_equal(seg[0][0][1], -1);
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    world_free(&w);
}

// One turn of the same picture, wanted planes only, rows apart, and sizes that grow and shrink.
static void orientations_and_sizes(void **state)
{
    static const int sizes[][2] = {{SIDE, SIDE}, {150, 90}, {17, 200}, {SIDE, SIDE}};
    static uint8_t a[200 * 200 * 3], b[200 * 200 * 3], c[200 * 200 * 3], first[PIXELS * 3];
    struct toy_world w = world_make(scene_xml);
    struct render_config cfg = config();
    struct render_shared *shared;
    struct render_worker *worker;
    int i, x, y;

    (void)state;
    assert_ok(render_shared_create(&shared, w.m, &cfg));
    assert_ok(render_worker_create(&worker, shared));
    for (i = 0; i < 4; i++) {
        int width = sizes[i][0], height = sizes[i][1];
        struct render_camera cam = front(width, height, RENDER_OPENGL);
        struct render_out out = {a, NULL, NULL, 0, 0, 0};

        assert_ok(render_frame(worker, w.m, w.d, &cam, &out));
        cam.orient = RENDER_UPRIGHT;
        out.rgb = b;
        assert_ok(render_frame(worker, w.m, w.d, &cam, &out));
        cam.orient = RENDER_ROT180;
        out.rgb = c;
        assert_ok(render_frame(worker, w.m, w.d, &cam, &out));
        for (y = 0; y < height; y++)
            for (x = 0; x < width; x++) {
                const uint8_t *p = a + 3 * (y * width + x);

                assert_memory_equal(p, b + 3 * ((height - 1 - y) * width + x), 3);
                assert_memory_equal(p, c + 3 * ((height - 1 - y) * width + width - 1 - x), 3);
            }
        if (i == 0)
            memcpy(first, a, sizeof first);
    }
    assert_memory_equal(first, a, sizeof first); // the buffer has grown since
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    world_free(&w);
}

// Several frames in one call, with all their kinds and sizes, are those of single calls. The third
// of five fails: two are complete, nothing is written for the others.
static void several_frames(void **state)
{
    static uint8_t rgb[2][5][60 * 60 * 3];
    static float depth[2][5][60 * 60];
    static int32_t seg[2][5][60 * 60 * 2];
    struct toy_world w = world_make(scene_xml), v = world_make(scene_xml);
    struct render_config cfg = config();
    struct render_camera cam[5];
    struct render_out out[2][5];
    struct render_view view[5];
    struct render_shared *shared;
    struct render_worker *worker;
    int i, k, done;

    (void)state;
    colour(&v, 0, 1, 1, 0);
    assert_ok(render_shared_create(&shared, w.m, &cfg));
    assert_ok(render_worker_create(&worker, shared));
    for (i = 0; i < 5; i++) {
        cam[i] = front(20 + 10 * i, 60 - 7 * i, (enum render_orient)(i % 3));
        for (k = 0; k < 2; k++)
            out[k][i] = (struct render_out){i == 3 ? NULL : rgb[k][i],
                                            i == 1 ? NULL : depth[k][i],
                                            i == 2 ? NULL : seg[k][i],
                                            0,
                                            0,
                                            0};
        view[i] = (struct render_view){i & 1 ? v.m : w.m, i & 1 ? v.d : w.d, &cam[i], &out[0][i]};
        assert_ok(render_frame(worker, view[i].m, view[i].d, &cam[i], &out[1][i]));
    }
    assert_ok(render_frames(worker, view, 5, &done));
    assert_int_equal(done, 5);
    assert_memory_equal(rgb[0], rgb[1], sizeof rgb[0]);
    assert_memory_equal(depth[0], depth[1], sizeof depth[0]);
    assert_memory_equal(seg[0], seg[1], sizeof seg[0]);
    assert_memory_not_equal(rgb[0][0], rgb[0][1], 60);

    memset(rgb[0], 7, sizeof rgb[0]);
    cam[2].mjv.fixedcamid = 9;
    assert_fails(render_frames(worker, view, 5, &done), ST_INVAL, "camera 9");
    assert_int_equal(done, 2);
    assert_memory_equal(rgb[0][1], rgb[1][1], 30 * 53 * 3);
    for (i = 0; i < 60 * 60 * 3; i++)
        assert_int_equal(rgb[0][2][i] & rgb[0][4][i], 7);
    assert_ok(render_frames(worker, NULL, 0, &done));
    assert_int_equal(done, 0);
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    world_free(&v);
    world_free(&w);
}

// An env's own view of the model: colours, poses and lights, without a new upload.
static void views_of_one_model(void **state)
{
    struct toy_world w = world_make(scene_xml), v;
    struct render_config cfg = config();
    struct render_camera cam = front(SIDE, SIDE, RENDER_UPRIGHT);
    uint8_t before[SIDE][SIDE][3], rgb[SIDE][SIDE][3];
    struct render_out out = {&before[0][0][0], NULL, NULL, 0, 0, 0};
    struct render_shared *shared;
    struct render_worker *worker;

    (void)state;
    assert_ok(render_shared_create(&shared, w.m, &cfg));
    assert_ok(render_worker_create(&worker, shared));
    assert_ok(render_frame(worker, w.m, w.d, &cam, &out));
    v.m = mj_copyModel(NULL, w.m);
    v.d = mj_makeData(v.m);
    colour(&v, 0, 0, 1, 0);
    v.m->geom_pos[3] = 0.7f; // the corner goes to the right
    mj_forward(v.m, v.d);
    out.rgb = &rgb[0][0][0];
    assert_ok(render_frame(worker, v.m, v.d, &cam, &out));
    assert_int_equal(rgb[12][12][1], 255);
    assert_int_equal(rgb[3][3][0], 0);
    assert_int_equal(rgb[3][20][0], 255);
    assert_ok(render_frame(worker, w.m, w.d, &cam, &out));
    assert_memory_equal(rgb, before, sizeof rgb);
    world_free(&v);
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    world_free(&w);
}

// Two task models in one thread share its context, and neither sees the other.
static void two_models_in_a_thread(void **state)
{
    static const char *const xml[2] = {
        scene_xml,
        "<mujoco><asset><mesh name='m' vertex='0 0 0 1 0 0 0 1 0 0 0 1'/>"
        "<texture name='t' type='2d' builtin='checker' width='32' height='32' "
        "rgb1='1 0 0' rgb2='0 1 0'/><material name='t' texture='t'/></asset><worldbody>"
        "<light pos='0 0 3' castshadow='true'/><camera pos='0 -3 2' xyaxes='1 0 0 0 1 1'/>"
        "<geom type='plane' size='2 2 1' material='t'/><geom type='mesh' mesh='m'/>"
        "</worldbody></mujoco>"};
    struct render_config cfg = config();
    struct render_camera cam = front(SIDE, SIDE, RENDER_UPRIGHT);
    struct render_shared *shared[2];
    struct render_worker *worker[2];
    uint8_t alone[2][PIXELS * 3], rgb[PIXELS * 3];
    struct toy_world w[2];
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        struct render_out out = {alone[i], NULL, NULL, 0, 0, 0};

        w[i] = world_make(xml[i]);
        assert_ok(render_shared_create(&shared[i], w[i].m, &cfg));
        assert_ok(render_worker_create(&worker[i], shared[i]));
        assert_ok(render_frame(worker[i], w[i].m, w[i].d, &cam, &out));
        render_worker_destroy(worker[i]);
    }
    for (i = 0; i < 2; i++)
        assert_ok(render_worker_create(&worker[i], shared[i]));
    for (i = 0; i < 8; i++) {
        struct render_out out = {rgb, NULL, NULL, 0, 0, 0};
        int k = i % 2;

        assert_ok(render_frame(worker[k], w[k].m, w[k].d, &cam, &out));
        assert_memory_equal(rgb, alone[k], sizeof rgb);
    }
    for (i = 0; i < 2; i++) {
        render_worker_destroy(worker[i]);
        render_shared_destroy(shared[i]);
        world_free(&w[i]);
    }
}

// --- threads ------------------------------------------------------------------------------------

static void *borrow(void *arg)
{
    struct toy_world w = world_make(scene_xml);
    struct render_camera cam = front(SIDE, SIDE, RENDER_UPRIGHT);
    uint8_t rgb[PIXELS * 3];
    struct render_out out = {rgb, NULL, NULL, 0, 0, 0};
    enum status *st = mem_alloc(1, sizeof *st);

    *st = render_frame(arg, w.m, w.d, &cam, &out);
    world_free(&w);
    return st;
}

static void worker_of_another_thread(void **state)
{
    struct toy_world w = world_make(scene_xml);
    struct render_config cfg = config();
    struct render_shared *shared;
    struct render_worker *worker;
    enum status *st;
    pthread_t thread;
    void *result;

    (void)state;
    assert_ok(render_shared_create(&shared, w.m, &cfg));
    assert_ok(render_worker_create(&worker, shared));
    assert_ok(thread_start(&thread, "borrows", borrow, worker));
    pthread_join(thread, &result);
    st = result;
    assert_int_equal(*st, ST_INVAL);
    mem_free(st);
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    world_free(&w);
}

// --- memory -------------------------------------------------------------------------------------

static void memory_is_flat(void **state)
{
    static uint8_t rgb[PIXELS * 3];
    static float depth[PIXELS];
    static int32_t seg[PIXELS * 2];
    struct toy_world w = world_make(scene_xml);
    struct render_config cfg = config();
    struct render_camera cam = front(SIDE, SIDE, RENDER_UPRIGHT);
    struct render_out out = {rgb, depth, seg, 0, 0, 0};
    struct render_shared *shared;
    struct render_worker *worker;
    double early = 0, late;
    int64_t calls = 0;
    int i;

    (void)state;
    assert_ok(render_shared_create(&shared, w.m, &cfg));
    assert_ok(render_worker_create(&worker, shared));
    for (i = 0; i < 2000; i++) {
        if (i == 500) {
            early = usage_resident_bytes() / (1 << 20);
            calls = mem_calls();
        }
        assert_ok(render_frame(worker, w.m, w.d, &cam, &out));
    }
    late = usage_resident_bytes() / (1 << 20);
    print_message("resident: %.1f MiB after 500 frames, %.1f MiB after 2000\n", early, late);
    if (!sanitized) // a sanitizer keeps what is freed for a while
        assert_true(late <= early * 1.02 + 1);
    assert_int_equal(mem_calls(), calls); // a warm frame allocates nothing of ours
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    world_free(&w);
}

// --- failures -----------------------------------------------------------------------------------

static void bad_devices(void **state)
{
    struct toy_world w = world_make(scene_xml);
    struct render_config cfg = config();
    struct render_shared *shared;

    (void)state;
    cfg.egl_device = 99;
    assert_fails(render_shared_create(&shared, w.m, &cfg), ST_MISSING, "no EGL device 99");
    assert_non_null(strstr(error_last()->text, "EGL devices: 0: ")); // the list
    cfg = config();
    cfg.cuda_device = 77;
    assert_fails(render_shared_create(&shared, w.m, &cfg), ST_MISSING,
                 "no EGL device belongs to CUDA device 77");
    assert_non_null(strstr(error_last()->text, "EGL devices: 0: "));
    cfg = config();
    cfg.samples = 3;
    assert_fails(render_shared_create(&shared, w.m, &cfg), ST_INVAL, "3 samples");
    world_free(&w);
}

static void bad_sizes(void **state)
{
    struct toy_world w = world_make(scene_xml);
    struct render_config cfg = config();
    struct render_camera cam = front(0, SIDE, RENDER_UPRIGHT);
    uint8_t rgb[3];
    struct render_out out = {rgb, NULL, NULL, 0, 0, 0};
    struct render_shared *shared;
    struct render_worker *worker;

    (void)state;
    assert_ok(render_shared_create(&shared, w.m, &cfg));
    assert_ok(render_worker_create(&worker, shared));
    assert_int_equal(render_frame(worker, w.m, w.d, &cam, &out), ST_INVAL);
    cam.width = 1 << 20;
    assert_int_equal(render_frame(worker, w.m, w.d, &cam, &out), ST_INVAL);
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    world_free(&w);
}

static void software_names(void **state)
{
    (void)state;
    assert_true(egl_is_software("llvmpipe (LLVM 15.0.6, 256 bits)"));
    assert_true(egl_is_software("softpipe"));
    assert_false(egl_is_software("NVIDIA H200/PCIe/SSE2"));
    assert_false(egl_is_software("AMD Radeon RX 6800 (navi21, LLVM 15.0.6)"));
    assert_true(egl_lists("EGL_A EGL_B", "EGL_B"));
    assert_false(egl_lists("EGL_AB", "EGL_A"));
    assert_false(egl_lists(NULL, "EGL_A"));
}

// Faults of a driver: calls of the table are replaced by ones that misbehave.
static struct gl_calls *driver(void)
{
    const struct egl_calls *egl;
    const struct gl_calls *gl;

    assert_ok(egl_load(&egl, &gl));
    return (struct gl_calls *)(uintptr_t)gl;
}

static unsigned half_a_framebuffer(unsigned target)
{
    (void)target;
    return 0x8cd6; // GL_FRAMEBUFFER_INCOMPLETE_ATTACHMENT
}

static void incomplete_framebuffer(void **state)
{
    struct toy_world w = world_make(scene_xml);
    struct render_config cfg = config();
    struct gl_calls *gl = driver(), good = *gl;
    struct render_shared *shared;
    struct render_worker *worker;

    (void)state;
    assert_ok(render_shared_create(&shared, w.m, &cfg));
    gl->CheckFramebufferStatus = half_a_framebuffer;
    assert_fails(render_worker_create(&worker, shared), ST_IO, "incomplete (0x8cd6)");
    *gl = good;
    assert_ok(render_worker_create(&worker, shared)); // nothing is left behind
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    world_free(&w);
}

static unsigned never_done(gl_sync sync, unsigned flags, uint64_t timeout_ns)
{
    (void)sync, (void)flags;
    clock_sleep_ns((int64_t)timeout_ns);
    return GL_TIMEOUT_EXPIRED;
}

struct hang {
    struct render_shared *shared;
    struct toy_world w;
    enum status first, second, third, again;
    double seconds;
    char text[512];
};

// The driver hangs while two frames are under way: both are drawn by rays, and all that follow.
static void *fall_back_in_a_frame(void *arg)
{
    struct hang *h = arg;
    struct gl_calls *gl = driver(), good = *gl;
    struct render_camera cam = front(SIDE, SIDE, RENDER_UPRIGHT);
    static uint8_t rgb[3][PIXELS * 3];
    struct render_out out[3] = {{.rgb = rgb[0]}, {.rgb = rgb[1]}, {.rgb = rgb[2]}};
    struct render_view view[2] = {{h->w.m, h->w.d, &cam, &out[1]}, {h->w.m, h->w.d, &cam, &out[2]}};
    struct render_worker *worker;
    int i, worst = 0;

    h->first = render_worker_create(&worker, h->shared);
    if (h->first == ST_OK)
        h->first = render_frame(worker, h->w.m, h->w.d, &cam, &out[0]);
    if (h->first != ST_OK)
        return NULL;
    gl->ClientWaitSync = never_done;
    h->second = render_frames(worker, view, 2, NULL);
    *gl = good;
    for (i = 0; i < PIXELS * 3; i++) {
        int apart = abs(rgb[0][i] - rgb[1][i]) + abs(rgb[1][i] - rgb[2][i]);

        worst = apart > worst ? apart : worst;
    }
    h->third = worst <= 8 ? ST_OK : ST_IO; // the same picture, edges sampled alike
    snprintf(h->text, sizeof h->text, "%s", render_worker_backend(worker));
    render_worker_destroy(worker);
    h->again = render_worker_create(&worker, h->shared); // in the lost thread: rays at once
    if (h->again == ST_OK)
        render_worker_destroy(worker);
    return NULL;
}

static void *hang_in_a_frame(void *arg)
{
    struct hang *h = arg;
    struct gl_calls *gl = driver(), good = *gl;
    struct render_camera cam = front(SIDE, SIDE, RENDER_UPRIGHT);
    uint8_t rgb[PIXELS * 3];
    struct render_out out = {rgb, NULL, NULL, 0, 0, 0};
    struct render_worker *worker;
    int64_t start;

    h->first = render_worker_create(&worker, h->shared);
    if (h->first != ST_OK)
        return NULL;
    h->first = render_frame(worker, h->w.m, h->w.d, &cam, &out);
    gl->ClientWaitSync = never_done;
    start = clock_now_ns();
    h->second = render_frame(worker, h->w.m, h->w.d, &cam, &out);
    h->seconds = (double)(clock_now_ns() - start) / NS_PER_S;
    snprintf(h->text, sizeof h->text, "%s", error_last()->text);
    *gl = good;
    h->third = render_frame(worker, h->w.m, h->w.d, &cam, &out);
    render_worker_destroy(worker);
    h->again = render_worker_create(&worker, h->shared);
    return NULL;
}

// A driver that never finishes costs the thread its context, and no more time than allowed. In a
// process of its own, since that context stays behind.
static int with_hanging_driver(void *(*scenario)(void *), enum render_fallback fallback)
{
    struct hang h = {.w = world_make(scene_xml)};
    struct render_config cfg = config();
    struct render_worker *worker;
    pthread_t thread;
    enum status other;

    cfg.watchdog_ns = 5 * NS_PER_S;
    cfg.fallback = fallback;
    if (render_shared_create(&h.shared, h.w.m, &cfg) != ST_OK ||
        thread_start(&thread, "hangs", scenario, &h) != ST_OK)
        return 1;
    pthread_join(thread, NULL);
    other = render_worker_create(&worker, h.shared); // other threads go on
    if (other == ST_OK)
        render_worker_destroy(worker);
    printf("%s %s %s %s %s %.1f %s\n", status_name(h.first), status_name(h.second),
           status_name(h.third), status_name(h.again), status_name(other), h.seconds, h.text);
    return 0;
}

// The first line of what this program prints when it is called with `how`.
static void run_self(char *line, int size, const char *environment, const char *how)
{
    char command[256];
    FILE *f;

    snprintf(command, sizeof command, "exec env %s \"$TEST_RENDER_EGL\" %s", environment, how);
    f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, size, f));
    if (pclose(f) != 0)
        fail_msg("%s: %s", how, line);
}

static void watchdog(void **state)
{
    char line[800], status[5][32];
    double seconds;

    (void)state;
    run_self(line, sizeof line, "ASAN_OPTIONS=detect_leaks=0", "hanging-driver");
    assert_int_equal(sscanf(line, "%31s %31s %31s %31s %31s %lf", status[0], status[1], status[2],
                            status[3], status[4], &seconds),
                     6);
    assert_string_equal(status[0], status_name(ST_OK));
    assert_string_equal(status[1], status_name(ST_TIMEOUT));
    assert_string_equal(status[2], status_name(ST_TIMEOUT));
    assert_string_equal(status[3], status_name(ST_TIMEOUT));
    assert_string_equal(status[4], status_name(ST_OK));
    assert_true(seconds >= 4.9 && seconds < 30);
    assert_non_null(strstr(line, "the driver hangs"));
}

// In a process whose EGL finds no driver. The answer is the exit code and the text on stdout.
static int without_driver(void)
{
    struct toy_world w = world_make(scene_xml);
    struct render_config cfg = config();
    struct render_shared *shared;
    enum status st = render_shared_create(&shared, w.m, &cfg);

    puts(error_last()->text);
    world_free(&w);
    return st == ST_MISSING ? 0 : 1;
}

static void watchdog_with_fallback(void **state)
{
    char line[800];

    (void)state;
    run_self(line, sizeof line, "ASAN_OPTIONS=detect_leaks=0", "fallback");
    assert_string_equal(line, "ok ok ok ok ok 0.0 rays\n");
}

static void missing_driver(void **state)
{
    char line[800];

    (void)state;
    run_self(line, sizeof line, "__EGL_VENDOR_LIBRARY_DIRS=/nonexistent/egl_vendor.d",
             "without-driver");
    if (!strstr(line, "libegl-mesa0"))
        fail_msg("got: %s", line);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_test(known_scene),
        leak_test(orientations_and_sizes),
        leak_test(several_frames),
        leak_test(views_of_one_model),
        leak_test(two_models_in_a_thread),
        leak_test(worker_of_another_thread),
        leak_test(memory_is_flat),
        leak_test(bad_devices),
        leak_test(bad_sizes),
        leak_test(software_names),
        leak_test(incomplete_framebuffer),
        leak_test(watchdog),
        leak_test(watchdog_with_fallback),
        leak_test(missing_driver),
    };
    struct toy_world w;
    struct render_config cfg = config();
    struct render_shared *shared;
    enum status st;

    if (argc > 1 && strcmp(argv[1], "without-driver") == 0)
        return without_driver();
    if (argc > 1 && strcmp(argv[1], "hanging-driver") == 0)
        return with_hanging_driver(hang_in_a_frame, RENDER_OR_FAIL);
    if (argc > 1 && strcmp(argv[1], "fallback") == 0)
        return with_hanging_driver(fall_back_in_a_frame, RENDER_OR_RAYS);
    setenv("TEST_RENDER_EGL", argv[0], 1);
    w = world_make(scene_xml);
    st = render_shared_create(&shared, w.m, &cfg);
    if (st == ST_MISSING) {
        print_message("skipped: %s\n", error_last()->text);
        return 77;
    }
    if (st == ST_OK)
        render_shared_destroy(shared);
    world_free(&w);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
