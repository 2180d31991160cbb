// Both renderers, where envs, threads and renderers come and go: every frame belongs to its env,
// and nothing grows.
#include "tests/render_world.h"

#include "common/base/thread.h"
#include "common/base/usage.h"
#include "envserver/rays_share.h"
#include "envserver/sim.h"

#include <stdatomic.h>

// --- threads ------------------------------------------------------------------------------------

#define ENVS    16
#define THREADS 3
#define ROUNDS  12

struct crowd {
    struct render_config cfg;
    struct render_shared *shared;
    struct toy_world env[ENVS];
    pthread_mutex_t mtx[ENVS];      // one env is drawn by one thread at a time
    uint8_t want[ENVS][PIXELS * 3]; // drawn before, by one worker
    atomic_int turn;                // which env is next; every thread takes what comes
    atomic_int faults;
    atomic_bool stop;
};

static struct crowd crowd;

static bool draw_env(struct render_worker *worker, int i, uint8_t *rgb)
{
    struct render_camera cam = front(SIDE, SIDE, RENDER_UPRIGHT);
    struct render_out out = {rgb, NULL, NULL, 0, 0, 0};
    enum status st;

    pthread_mutex_lock(&crowd.mtx[i]);
    st = render_frame(worker, crowd.env[i].m, crowd.env[i].d, &cam, &out);
    pthread_mutex_unlock(&crowd.mtx[i]);
    return st == ST_OK;
}

// Envs go from thread to thread.
static void *draw_envs(void *arg)
{
    struct render_worker *worker;
    uint8_t rgb[PIXELS * 3];
    int turn;

    (void)arg;
    if (render_worker_create(&worker, crowd.shared) != ST_OK) {
        atomic_fetch_add(&crowd.faults, 1);
        return NULL;
    }
    while ((turn = atomic_fetch_add(&crowd.turn, 1)) < ENVS * ROUNDS) {
        int i = turn % ENVS;

        if (!draw_env(worker, i, rgb) || memcmp(rgb, crowd.want[i], sizeof rgb) != 0)
            atomic_fetch_add(&crowd.faults, 1);
    }
    render_worker_destroy(worker);
    return NULL;
}

// One worker of the common uploads, and one of uploads of its own.
static enum status make_and_free(void)
{
    struct render_worker *worker;
    struct render_shared *shared;
    enum status st;

    TRY(render_worker_create(&worker, crowd.shared));
    render_worker_destroy(worker);
    TRY(render_shared_create(&shared, crowd.env[0].m, &crowd.cfg));
    st = render_worker_create(&worker, shared);
    if (st == ST_OK)
        render_worker_destroy(worker);
    render_shared_destroy(shared);
    return st;
}

static void *come_and_go(void *arg)
{
    int *n = arg;

    for (*n = 0; *n < 100 || !atomic_load(&crowd.stop); ++*n)
        if (make_and_free() != ST_OK) {
            atomic_fetch_add(&crowd.faults, 1);
            break;
        }
    return NULL;
}

static void crowd_make(const char *backend)
{
    struct render_worker *worker;
    int i;

    memset(&crowd, 0, sizeof crowd);
    render_config_default(&crowd.cfg);
    crowd.cfg.backend = backend;
    crowd.cfg.watchdog_ns = 0; // the machine may be busy
    for (i = 0; i < ENVS; i++) {
        crowd.env[i] = world_make(scene_xml);
        pthread_mutex_init(&crowd.mtx[i], NULL);
        colour(&crowd.env[i], 0, (float)(i & 3) / 3, (float)(i >> 2) / 3, 0.5f);
    }
    assert_ok(render_shared_create(&crowd.shared, crowd.env[0].m, &crowd.cfg));
    assert_ok(render_worker_create(&worker, crowd.shared));
    for (i = 0; i < ENVS; i++) {
        const uint8_t *middle = crowd.want[i] + 3 * (12 * SIDE + 12);

        assert_true(draw_env(worker, i, crowd.want[i]));
        assert_int_equal(middle[0], (i & 3) * 85);
        assert_int_equal(middle[1], (i >> 2) * 85);
    }
    render_worker_destroy(worker);
}

static void every_frame_belongs_to_its_env(const char *backend)
{
    pthread_t thread[THREADS], other;
    int i, created = 0;

    crowd_make(backend);
    assert_ok(thread_start(&other, "comes-and-goes", come_and_go, &created));
    for (i = 0; i < THREADS; i++)
        assert_ok(thread_start(&thread[i], "draws", draw_envs, NULL));
    for (i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    atomic_store(&crowd.stop, true);
    pthread_join(other, NULL);
    assert_int_equal(atomic_load(&crowd.faults), 0);
    assert_true(created >= 100);
    render_shared_destroy(crowd.shared);
    for (i = 0; i < ENVS; i++) {
        pthread_mutex_destroy(&crowd.mtx[i]);
        world_free(&crowd.env[i]);
    }
}

static void rays_draw_the_right_env(void **state)
{
    (void)state;
    every_frame_belongs_to_its_env("rays");
    assert_int_equal(rays_shared_items(), 0);
}

static void egl_draws_the_right_env(void **state)
{
    struct toy_world w = world_make(scene_xml);
    struct render_shared *shared;
    struct render_config cfg;
    enum status st;

    (void)state;
    render_config_default(&cfg);
    cfg.backend = "egl";
    st = render_shared_create(&shared, w.m, &cfg);
    if (st == ST_OK)
        render_shared_destroy(shared);
    world_free(&w);
    if (st == ST_MISSING) {
        print_message("skipped: %s\n", error_last()->text);
        skip();
    }
    assert_ok(st);
    every_frame_belongs_to_its_env("egl");
}

// --- memory -------------------------------------------------------------------------------------

struct player {
    struct scene *scene;
    struct sim sim;
    struct render_shared *shared;
    struct render_worker *worker;
    struct render_camera cam;
};

static void player_open(struct player *p)
{
    struct render_config cfg;

    memset(p, 0, sizeof *p);
    assert_ok(scene_create(&p->scene, "tabletop/4", "{\"visual\": true, \"settle_steps\": 0}"));
    assert_ok(sim_init(&p->sim, p->scene));
    render_config_default(&cfg);
    assert_ok(render_shared_create(&p->shared, p->scene->model, &cfg));
    assert_ok(render_worker_create(&p->worker, p->shared));
    p->cam = (struct render_camera){.width = SIDE, .height = SIDE};
    assert_ok(render_camera_parse(&p->cam, p->scene->model, "agentview"));
}

static void player_close(struct player *p)
{
    render_worker_destroy(p->worker);
    render_shared_destroy(p->shared);
    sim_fini(&p->sim);
    scene_destroy(p->scene);
}

// Episodes of a task with fixtures, which move in the env's own view of the model.
static void many_resets_do_not_grow(void **state)
{
    int64_t i, n = sanitized ? 200 : 2000, changed = 0, live = 0;
    static uint8_t rgb[2][PIXELS * 3];
    struct player p;
    double early = 0, late;

    (void)state;
    player_open(&p);
    for (i = 0; i < n; i++) {
        struct scene_start start = {0, 0, (uint64_t)i};
        struct render_out out = {.rgb = rgb[i & 1]};

        if (i == n / 4) {
            early = usage_resident_bytes() / (1 << 20);
            live = mem_live();
        }
        assert_int_equal(sim_reset(&p.sim, &start), ROW_ERROR_NONE);
        assert_ok(render_frame(p.worker, p.sim.world.model, p.sim.world.d, &p.cam, &out));
        changed += memcmp(rgb[0], rgb[1], sizeof rgb[0]) != 0;
    }
    late = usage_resident_bytes() / (1 << 20);
    print_message("resident: %.1f MiB after %lld resets, %.1f MiB after %lld\n", early,
                  (long long)n / 4, late, (long long)n);
    assert_int_equal(mem_live(), live);
    if (!sanitized)
        assert_true(late <= early * 1.02 + 1);
    assert_true(changed > n * 9 / 10); // the pictures are of these episodes
    player_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(rays_draw_the_right_env),
        leak_test(egl_draws_the_right_env),
        leak_test(many_resets_do_not_grow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
