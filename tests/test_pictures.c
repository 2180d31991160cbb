// Pictures in observations: which a task's options ask for, and that each row has its own world's.
#include "tests/testing.h"

#include "envserver/pool_priv.h"
#include "envserver/render.h"
#include "scenes/libero/libero.h"

#include <signal.h>
#include <stdio.h>

// ------------------------------------------------------------------ options

static enum status ask(const char *task, const char *kwargs, struct spec *spec)
{
    struct scene *scene = NULL;
    struct pictures *p = NULL;
    enum status st = scene_create(&scene, task, kwargs);

    memset(spec, 0, sizeof *spec);
    if (st == ST_OK)
        st = pictures_create(&p, scene, spec);
    if (st == ST_OK)
        assert_int_equal(p != NULL, spec->n_picture > 0);
    if (p)
        assert_int_equal(pictures_bytes(p), spec->picture_bytes);
    pictures_destroy(p);
    scene_destroy(scene);
    return st;
}

static void options_become_pictures(void **state)
{
    struct spec s;

    (void)state;
    assert_ok(ask("Ant-v5", "", &s));
    assert_int_equal(s.n_picture, 0);
    assert_ok(ask("Ant-v5", "{\"cameras\": \"default\"}", &s));
    assert_int_equal(s.n_picture, 1);
    assert_string_equal(s.pictures[0].name, "track_image");
    assert_string_equal(s.pictures[0].camera, "track");
    assert_int_equal(s.pictures[0].width, 480);
    assert_int_equal(s.pictures[0].height, 480);
    assert_int_equal(s.pictures[0].orient, RENDER_UPRIGHT);
    assert_int_equal(s.picture_bytes, 480 * 480 * 3);
    // a model without that camera
    assert_ok(ask("InvertedPendulum-v5", "{\"cameras\": \"default\"}", &s));
    assert_string_equal(s.pictures[0].name, "track_image");
    assert_ok(
        ask("Ant-v5",
            "{\"cameras\": \"track:7x5:depth+rgb:rot180,free,distance=3,azimuth=10:seg:opengl,"
            "track=torso\", \"image_size\": \"9x8\"}",
            &s));
    assert_int_equal(s.n_picture, 4);
    assert_string_equal(s.pictures[0].name, "track_image");
    assert_int_equal(s.pictures[0].width, 7);
    assert_int_equal(s.pictures[0].height, 5);
    assert_int_equal(s.pictures[0].orient, RENDER_ROT180);
    assert_string_equal(s.pictures[1].name, "track_depth");
    assert_int_equal(s.pictures[1].plane, SPEC_DEPTH);
    assert_int_equal(s.pictures[1].offset, 112);
    assert_string_equal(s.pictures[2].name, "free_segmentation");
    assert_int_equal(s.pictures[2].width, 9);
    assert_int_equal(s.pictures[2].orient, RENDER_OPENGL);
    assert_string_equal(s.pictures[3].name, "track_torso_image");
    assert_int_equal(s.pictures[3].orient, RENDER_UPRIGHT);
}

static void bad_options_are_named(void **state)
{
    struct spec s;

#define REFUSED(kwargs, part) assert_fails(ask("Ant-v5", "{" kwargs "}", &s), ST_INVAL, part)
    (void)state;
    REFUSED("\"cameras\": \"agentview\"",
            "cameras: the model has no camera 'agentview'; it has track; or say free");
    REFUSED("\"cameras\": \"track:5000x5\"", "picture size '5000x5', expected WIDTHxHEIGHT");
    REFUSED("\"cameras\": \"track:0x5\"", "picture size '0x5'");
    REFUSED("\"cameras\": \"track:sideways\"", "orientation 'sideways', expected opengl");
    REFUSED("\"cameras\": \"track:rgb+sound\"", "orientation 'rgb+sound'");
    REFUSED("\"cameras\": \"track:9x9:rgb+\"", "orientation 'rgb+'");
    REFUSED("\"cameras\": \"track:9x9:8x8\"", "'8x8' is a second size");
    REFUSED("\"cameras\": \"track:opengl:9x9:rgb:upright\"", "'upright' is a second orientation");
    assert_fails(ask("Reacher-v5", "{\"cameras\": \"#0\"}", &s), ST_INVAL,
                 "camera '#0': the model has none");
    REFUSED("\"cameras\": \"track,track:9x9\"", "two pictures are called 'track_image'");
    REFUSED("\"cameras\": \"track,\"", "cameras: the list ends with a comma");
    REFUSED("\"cameras\": \",track\"", "cameras: the model has no camera ''");
    REFUSED("\"cameras\": \"track:4096x4096:depth+seg\"", "more than 64 MiB");
    REFUSED("\"cameras\": \"track\", \"image_size\": \"big\"", "picture size 'big'");
    REFUSED("\"cameras\": \"track\", \"renderer\": \"blender\"", "renderer");
    REFUSED("\"cameras\": \"track\", \"render_samples\": 5", "render_samples");
    REFUSED("\"width\": 64", "pictures are asked for by 'cameras' and 'image_size'");
#undef REFUSED
}

// ------------------------------------------------------------------ one env

struct rig {
    struct scene *scene;
    struct spec spec;
    struct pictures *pictures;
    struct env env;
    struct desk desk;
    void *state; // NULL: the env has a world of its own
    struct row_layout layout;
    uint8_t *row;
    float zero[64];
};

static void rig_init(struct rig *r, const char *task, const char *kwargs, bool own,
                     enum autoreset autoreset)
{
    memset(r, 0, sizeof *r);
    assert_ok(scene_create(&r->scene, task, kwargs));
    r->spec.n_obs = r->scene->n_obs;
    r->spec.n_act = r->scene->n_act;
    r->spec.n_info = r->scene->n_info;
    assert_ok(pictures_create(&r->pictures, r->scene, &r->spec));
    r->state = own ? NULL : mem_alloc(1, sim_row_bytes(r->scene));
    assert_ok(desk_init(&r->desk, r->scene, !own, r->pictures));
    assert_ok(env_init(&r->env, r->scene, 0, r->state));
    row_layout_make(&r->layout, &r->spec, 1, autoreset);
    r->row = mem_alloc(1, r->layout.stride);
    memset(r->row, 0xa5, r->layout.stride);
}

static void rig_fini(struct rig *r)
{
    mem_free(r->row);
    env_fini(&r->env);
    desk_fini(&r->desk);
    pictures_destroy(r->pictures);
    mem_free(r->state);
    scene_destroy(r->scene);
}

static const struct row_head *head(const struct rig *r)
{
    return (const struct row_head *)r->row;
}

static void reset(struct rig *r, struct desk *desk, uint64_t seed)
{
    struct reset_row row = {.seed = seed};

    env_reset(&r->env, desk, &row);
    env_write(&r->env, desk, &r->layout, r->row);
}

static void step(struct rig *r, struct desk *desk, enum autoreset mode)
{
    env_step(&r->env, desk, r->zero, 1, mode);
    env_write(&r->env, desk, &r->layout, r->row);
}

#define SMALL "\"cameras\": \"default:37x21:rgb+depth+seg\", \"render_samples\": 1"

// The numbers of an episode are the same to the bit with pictures and without.
static void check_numbers(const char *task, const char *with, const char *without, bool own)
{
    struct rig a, b;
    int t, k;

    rig_init(&a, task, with, own, AUTORESET_SAME_STEP);
    rig_init(&b, task, without, own, AUTORESET_SAME_STEP);
    assert_int_equal(a.layout.pictures, b.layout.stride);
    reset(&a, &a.desk, 3);
    reset(&b, &b.desk, 3);
    for (t = 0; t < 40; t++) {
        for (k = 0; k < a.scene->n_act; k++)
            a.zero[k] = b.zero[k] = sinf((float)(3 * t + k));
        step(&a, &a.desk, AUTORESET_SAME_STEP);
        step(&b, &b.desk, AUTORESET_SAME_STEP);
        if (memcmp(a.row, b.row, b.layout.stride) != 0)
            fail_msg("%s: step %d differs", task, t);
    }
    rig_fini(&a);
    rig_fini(&b);
}

static void pictures_change_no_number(void **state)
{
    int own;

    (void)state;
    for (own = 0; own < 2; own++) {
        check_numbers("Ant-v5", "{" SMALL "}", "", own);
        check_numbers("Humanoid-v5", "{\"max_episode_steps\": 7, " SMALL "}",
                      "{\"max_episode_steps\": 7}", own);
        check_numbers("Reacher-v5", "{" SMALL "}", "", own);
    }
    check_numbers("tabletop/7", "{\"settle_steps\": 1, " SMALL "}", "{\"settle_steps\": 1}", true);
    check_numbers("tabletop/7", "{\"settle_steps\": 1, \"compat\": \"clean\", " SMALL "}",
                  "{\"settle_steps\": 1, \"compat\": \"clean\"}", true);
}

// A task of a suite shows poses that are older than its joint angles, as robosuite does.
static void poses_of_a_suite_are_those_of_the_sampling(void **state)
{
    struct spec s;
    struct rig r;
    const struct libero_world *lw;

    (void)state;
    assert_ok(ask("tabletop/6", "{\"cameras\": \"default\", \"preset\": \"openpi\"}", &s));
    assert_int_equal(s.n_picture, 2);
    assert_string_equal(s.pictures[0].name, "agentview_image");
    assert_string_equal(s.pictures[1].name, "robot0_eye_in_hand_image");
    assert_int_equal(s.pictures[1].width, 256);
    assert_int_equal(s.pictures[1].orient, RENDER_ROT180);
    assert_fails(ask("tabletop/6", "{\"cameras\": \"wrist\"}", &s), ST_INVAL,
                 "no camera 'wrist'; it has frontview, birdview, agentview");
    rig_init(&r, "tabletop/6", "{" SMALL "}", true, AUTORESET_NEXT_STEP);
    lw = r.env.own->world.scratch;
    reset(&r, &r.desk, 0);
    r.zero[0] = 1;
    step(&r, &r.desk, AUTORESET_NEXT_STEP);
    assert_memory_not_equal(lw->seen_qpos, r.env.own->world.d->qpos, 7 * sizeof(double));
    rig_fini(&r);
    rig_init(&r, "tabletop/6", "{\"compat\": \"clean\", " SMALL "}", true, AUTORESET_NEXT_STEP);
    lw = r.env.own->world.scratch;
    reset(&r, &r.desk, 0);
    assert_null(lw->seen_qpos);
    rig_fini(&r);
}

// The pictures in a row are those that the renderer makes of the env's own world.
static void a_row_has_the_renderers_picture(void **state)
{
    struct rig r;
    struct render_config cfg;
    struct render_shared *shared = NULL;
    struct render_worker *worker = NULL;
    struct render_camera cam = {.width = 37, .height = 21, .orient = RENDER_UPRIGHT};
    static uint8_t rgb[37 * 21 * 3];
    static float depth[37 * 21];
    static int32_t seg[37 * 21 * 2];
    struct render_out out = {rgb, depth, seg, 0, 0, 0};
    const uint8_t *at;
    int t;

    (void)state;
    rig_init(&r, "HalfCheetah-v5", "{" SMALL "}", true, AUTORESET_NEXT_STEP);
    render_config_default(&cfg);
    cfg.samples = 1;
    assert_ok(render_shared_create(&shared, r.scene->model, &cfg));
    assert_ok(render_worker_create(&worker, shared));
    assert_ok(render_camera_parse(&cam, r.scene->model, "track"));
    reset(&r, &r.desk, 1);
    for (t = 0; t < 3; t++) {
        assert_ok(render_frame(worker, r.scene->model, r.env.own->world.d, &cam, &out));
        at = r.row + r.layout.pictures;
        assert_memory_equal(at + r.spec.pictures[0].offset, rgb, sizeof rgb);
        assert_memory_equal(at + r.spec.pictures[0].offset + sizeof rgb, "\0\0\0\0\0",
                            5); // padding
        assert_memory_equal(at + r.spec.pictures[1].offset, depth, sizeof depth);
        assert_memory_equal(at + r.spec.pictures[2].offset, seg, sizeof seg);
        r.zero[0] = 1;
        step(&r, &r.desk, AUTORESET_NEXT_STEP);
    }
    // the same row without the first and without any
    r.env.skip = 1;
    spec_skip_pictures(&r.spec, 1);
    row_layout_make(&r.layout, &r.spec, 1, AUTORESET_NEXT_STEP);
    memset(r.row, 0xa5, r.layout.stride + 8);
    step(&r, &r.desk, AUTORESET_NEXT_STEP);
    assert_ok(render_frame(worker, r.scene->model, r.env.own->world.d, &cam, &out));
    assert_memory_equal(r.row + r.layout.pictures, depth, sizeof depth);
    assert_int_equal(r.row[r.layout.stride], 0xa5);
    r.env.skip = 7;
    spec_skip_pictures(&r.spec, 3);
    row_layout_make(&r.layout, &r.spec, 1, AUTORESET_NEXT_STEP);
    assert_int_equal(r.layout.pictures, 0);
    memset(r.row, 0xa5, r.layout.stride + 8);
    step(&r, &r.desk, AUTORESET_NEXT_STEP);
    assert_int_equal(head(&r)->flags, 0);
    assert_int_equal(r.row[r.layout.stride], 0xa5);
    render_worker_destroy(worker);
    render_shared_destroy(shared);
    rig_fini(&r);
}

// Envs that take turns at one desk show what envs with worlds of their own show.
static void turns_at_one_world_show_the_right_one(void **state)
{
    struct rig rows[3], own[3];
    int i, k, t;

    (void)state;
    for (i = 0; i < 3; i++) {
        rig_init(&rows[i], "Hopper-v5", "{" SMALL "}", false, AUTORESET_SAME_STEP);
        rig_init(&own[i], "Hopper-v5", "{" SMALL "}", true, AUTORESET_SAME_STEP);
        reset(&rows[i], &rows[0].desk, (uint64_t)i);
        reset(&own[i], &own[i].desk, (uint64_t)i);
    }
    for (t = 0; t < 60; t++)
        for (i = 0; i < 3; i++) {
            for (k = 0; k < rows[i].scene->n_act; k++)
                rows[i].zero[k] = own[i].zero[k] = sinf((float)(7 * i + 3 * t + k));
            step(&rows[i], &rows[0].desk, AUTORESET_SAME_STEP);
            step(&own[i], &own[i].desk, AUTORESET_SAME_STEP);
            if (memcmp(rows[i].row, own[i].row, own[i].layout.stride) != 0)
                fail_msg("step %d of env %d differs", t, i);
        }
    assert_memory_not_equal(rows[0].row + rows[0].layout.pictures,
                            rows[1].row + rows[1].layout.pictures, rows[0].spec.picture_bytes);
    for (i = 0; i < 3; i++) {
        rig_fini(&rows[i]);
        rig_fini(&own[i]);
    }
}

// In same-step mode the ended episode's picture is the one that next-step mode shows, and the
// picture is the next episode's first.
static void final_pictures_are_those_of_the_end(void **state)
{
    struct rig same, next;
    int t;

    (void)state;
    rig_init(&same, "InvertedPendulum-v5", "{" SMALL "}", false, AUTORESET_SAME_STEP);
    rig_init(&next, "InvertedPendulum-v5", "{" SMALL "}", false, AUTORESET_NEXT_STEP);
    reset(&same, &same.desk, 1);
    reset(&next, &next.desk, 1);
    same.zero[0] = next.zero[0] = 1;
    for (t = 0; t < 100; t++) {
        size_t bytes = same.spec.picture_bytes, i;

        step(&same, &same.desk, AUTORESET_SAME_STEP);
        step(&next, &next.desk, AUTORESET_NEXT_STEP);
        if (!(head(&same)->flags & ROW_DONE)) {
            for (i = 0; i < bytes; i++)
                assert_int_equal(same.row[same.layout.final_pictures + i], 0);
            continue;
        }
        assert_memory_equal(same.row + same.layout.final_pictures, next.row + next.layout.pictures,
                            bytes);
        step(&next, &next.desk, AUTORESET_NEXT_STEP);
        assert_int_equal(head(&next)->flags, ROW_FIRST);
        assert_memory_equal(same.row + same.layout.pictures, next.row + next.layout.pictures,
                            bytes);
        break;
    }
    assert_true(t < 100);
    rig_fini(&same);
    rig_fini(&next);
}

// What the renderer refuses ends the episode; with same-step autoreset so does a final picture.
static void a_renderer_that_fails_ends_the_episode(void **state)
{
    static const enum autoreset modes[] = {AUTORESET_NEXT_STEP, AUTORESET_SAME_STEP};
    mjModel other;
    struct rig r;
    size_t i, k;

    (void)state;
    for (i = 0; i < 2; i++) {
        rig_init(&r, "InvertedPendulum-v5", "{\"max_episode_steps\": 2, " SMALL "}", false,
                 modes[i]);
        reset(&r, &r.desk, 1);
        step(&r, &r.desk, modes[i]);
        assert_int_equal(head(&r)->flags, 0);
        other = *r.scene->model;
        other.nsite++;
        r.desk.sim.world.model = &other;
        step(&r, &r.desk, modes[i]);
        assert_int_equal(head(&r)->flags & ROW_ERROR, ROW_ERROR);
        assert_int_equal(head(&r)->error, ROW_ERROR_PICTURE);
        assert_non_null(strstr(r.desk.sim.world.error, "no view of the one that was uploaded"));
        for (k = 0; k < r.spec.picture_bytes; k++)
            assert_int_equal(r.row[r.layout.pictures + k], 0);
        for (k = 0; k < (size_t)r.spec.n_obs; k++)
            assert_true(((double *)(r.row + r.layout.obs))[k] == 0);
        r.desk.sim.world.model = r.scene->model;
        step(&r, &r.desk, modes[i]); // the next episode
        assert_int_equal(head(&r)->flags & ROW_ERROR, 0);
        rig_fini(&r);
    }
}

// ------------------------------------------------------------------ pools

struct crowd {
    struct pool *pool;
    struct port *port;
    const struct row_layout *layout;
    uint8_t *rows; // (n_env, stride)
    int n_env;
};

static void crowd_init(struct crowd *c, const struct pool_config *pc, uint32_t skip)
{
    struct port_config port = {.k_max = 1, .b_max = pc->n_env, .skip = skip};

    assert_ok(pool_create(&c->pool, pc));
    assert_ok(port_open(&c->port, c->pool, &port));
    c->layout = port_layout(c->port);
    c->n_env = pc->n_env;
    c->rows = mem_alloc((size_t)c->n_env, c->layout->stride);
}

static void crowd_fini(struct crowd *c)
{
    port_close(c->port);
    pool_destroy(c->pool);
    mem_free(c->rows);
    msg_drain();
}

static void gather(struct crowd *c)
{
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;
    enum status st;
    uint32_t i;

    while ((st = port_recv(c->port, &m, ENOUGH)) == ST_OK) {
        assert_ok(batch_read(m, c->layout, &head, &rows));
        for (i = 0; i < head->n; i++, rows += head->stride)
            memcpy(c->rows + ((const struct row_head *)rows)->env * (size_t)head->stride, rows,
                   head->stride);
        msg_free(m);
    }
    assert_int_equal(st, ST_AGAIN);
}

static void start_all(struct crowd *c, bool same_seed)
{
    struct reset_row rows[16] = {0};
    int i;

    for (i = 0; i < c->n_env; i++)
        rows[i] = (struct reset_row){.env = (uint32_t)i, .seed = same_seed ? 0 : (uint64_t)i};
    assert_ok(port_reset(c->port, rows, c->n_env));
    gather(c);
}

// One step of those envs whose bit in `skip` is not set.
static void send_step(struct crowd *c, int t, unsigned skip)
{
    int n_act = pool_spec(c->pool)->n_act, n = 0, i, k;
    size_t stride = step_stride(1, n_act);
    uint8_t rows[16 * 256] = {0};

    for (i = 0; i < c->n_env; i++) {
        struct step_row *row = (struct step_row *)(rows + (size_t)n * stride);

        if (skip >> i & 1)
            continue;
        *row = (struct step_row){.env = (uint32_t)i, .n_sub = 1};
        for (k = 0; k < n_act; k++)
            ((float *)(row + 1))[k] = 0.3f * sinf((float)(t + k));
        n++;
    }
    if (n > 0)
        assert_ok(port_step(c->port, rows, n));
}

static void step_all(struct crowd *c, int t)
{
    send_step(c, t, 0);
    gather(c);
}

static const struct row_head *row_of(const struct crowd *c, int env)
{
    return (const struct row_head *)(c->rows + (size_t)env * c->layout->stride);
}

static const uint8_t *picture(const struct crowd *c, int env)
{
    return c->rows + (size_t)env * c->layout->stride + c->layout->pictures;
}

// Sixteen envs, each of another colour, stepped by whichever worker is free: every picture shows
// its own env.
static void every_env_is_in_its_own_picture(void **state)
{
    struct pool_config pc = {.task = "InvertedPendulum-v5",
                             .kwargs = "{\"cameras\": \"default:32x32\", \"render_samples\": 1}",
                             .n_env = 16,
                             .n_thread = 3,
                             .randomize = "[{\"field\": \"geom_rgba\"}]"};
    size_t bytes = 32 * 32 * 3;
    struct crowd c;
    uint8_t *want;
    int i, t;

    (void)state;
    crowd_init(&c, &pc, 0);
    want = mem_alloc(16, bytes);
    start_all(&c, true);
    for (i = 1; i < 16; i++)
        assert_memory_equal(picture(&c, i), picture(&c, 0), bytes);
    for (i = 0; i < 16; i++) {
        double rgba[4] = {i % 4 / 3.0, i / 4 / 3.0, 0.5, 1};
        uint32_t env = (uint32_t)i;

        assert_ok(port_set_field(c.port, &env, 1, "geom_rgba", "cpole", rgba, sizeof rgba, 4));
    }
    start_all(&c, true);
    for (i = 0; i < 16; i++) {
        memcpy(want + (size_t)i * bytes, picture(&c, i), bytes);
        for (t = 0; t < i; t++)
            assert_memory_not_equal(want + (size_t)t * bytes, want + (size_t)i * bytes, bytes);
    }
    for (t = 0; t < 20; t++) {
        step_all(&c, t);
        start_all(&c, true);
        for (i = 0; i < 16; i++)
            if (memcmp(want + (size_t)i * bytes, picture(&c, i), bytes) != 0)
                fail_msg("round %d: the picture of env %d is not its own", t, i);
    }
    mem_free(want);
    crowd_fini(&c);
}

// Worker processes draw what worker threads draw; a client may do without some.
static void processes_draw_the_same(void **state)
{
    struct pool_config pc = {.task = "Hopper-v5",
                             .kwargs = "{" SMALL "}",
                             .n_env = 4,
                             .n_thread = 2,
                             .isolate = POOL_ISOLATE_PROCESS};
    struct crowd processes, threads;
    int t;

    (void)state;
    crowd_init(&processes, &pc, 2);
    pc.isolate = POOL_ISOLATE_THREAD;
    crowd_init(&threads, &pc, 2);
    assert_int_equal(port_spec(threads.port)->n_picture, 2);
    assert_int_equal(pool_spec(threads.pool)->n_picture, 3);
    start_all(&processes, false);
    start_all(&threads, false);
    for (t = 0; t < 10; t++) {
        assert_memory_equal(processes.rows, threads.rows, 4 * threads.layout->stride);
        step_all(&processes, t);
        step_all(&threads, t);
    }
    crowd_fini(&threads);
    crowd_fini(&processes);
}

#define N_FIELD 4
static const char *const drawn[N_FIELD] = {"geom_rgba", "cam_pos", "cam_fovy", "light_diffuse"};
#define DRAWN                                                             \
    "[{\"field\": \"geom_rgba\", \"range\": [0.2, 1]},"                   \
    " {\"field\": \"cam_pos\", \"op\": \"add\", \"range\": [-0.4, 0.4]}," \
    " {\"field\": \"cam_fovy\", \"range\": [0.7, 1.3]},"                  \
    " {\"field\": \"light_diffuse\", \"range\": [0.3, 1]}]"

// The model of an env as the port tells it, from the compiled one.
static mjModel *model_of(struct crowd *c, uint32_t env)
{
    mjModel *m = mj_copyModel(NULL, pool_scene(c->pool)->model);
    mjData *d = mj_makeData(m);
    double x[1024];
    int i, k, n;

    for (i = 0; i < N_FIELD; i++) {
        float *reals = i == 0 ? m->geom_rgba : m->light_diffuse;

        assert_ok(port_field_size(c->port, drawn[i], "", &n));
        assert_true(n <= 1024);
        assert_ok(port_get_field(c->port, &env, 1, drawn[i], "", x, sizeof x, n));
        for (k = 0; k < n; k++)
            if (i == 0 || i == 3)
                reals[k] = (float)x[k];
            else if (i == 1)
                m->cam_pos[k] = x[k];
            else
                m->cam_fovy[k] = (__typeof__(m->cam_fovy[0]))x[k];
    }
    mj_setConst(m, d); // the camera follows a body: places relative to it
    mj_deleteData(d);
    return m;
}

// Colours, cameras and lights that differ per env are those of its picture: drawn again by another
// renderer from a model of its own.
static void drawn_models_are_in_their_pictures(void **state)
{
    struct pool_config pc = {.task = "Hopper-v5",
                             .kwargs = "{\"cameras\": \"track:48x32\", \"render_samples\": 1, "
                                       "\"exclude_current_positions_from_observation\": false}",
                             .n_env = 4,
                             .n_thread = 2,
                             .randomize = DRAWN};
    struct render_camera cam = {.width = 48, .height = 32, .orient = RENDER_UPRIGHT};
    static uint8_t rgb[48 * 32 * 3];
    struct render_out out = {.rgb = rgb};
    struct render_config cfg;
    struct crowd c;
    int i, k, t;

    (void)state;
    crowd_init(&c, &pc, 0);
    render_config_default(&cfg);
    cfg.samples = 1;
    for (t = 0; t < 3; t++) {
        start_all(&c, false);
        for (i = 0; i < c.n_env; i++) {
            const double *obs = (const double *)((const uint8_t *)row_of(&c, i) + c.layout->obs);
            mjModel *m = model_of(&c, (uint32_t)i);
            mjData *d = mj_makeData(m);
            struct render_shared *shared = NULL;
            struct render_worker *worker = NULL;

            mj_resetData(m, d);
            mju_copy(d->qpos, obs, (int)m->nq);
            mj_forward(m, d);
            assert_ok(render_shared_create(&shared, m, &cfg));
            assert_ok(render_worker_create(&worker, shared));
            assert_ok(render_camera_parse(&cam, m, "track"));
            assert_ok(render_frame(worker, m, d, &cam, &out));
            assert_memory_equal(picture(&c, i), rgb, sizeof rgb);
            render_worker_destroy(worker);
            render_shared_destroy(shared);
            mj_deleteData(d);
            mj_deleteModel(m);
        }
        for (i = 1; i < c.n_env; i++)
            assert_memory_not_equal(picture(&c, 0), picture(&c, i), sizeof rgb);
        for (k = 0; k < 3; k++)
            step_all(&c, k);
    }
    crowd_fini(&c);
}

// A state taken and loaded elsewhere goes on with the same pictures, those of a drawn model too,
// between threads and processes.
static void states_go_on_with_their_pictures(void **state)
{
    struct pool_config pc = {.task = "HalfCheetah-v5",
                             .kwargs = "{\"max_episode_steps\": 9, " SMALL "}",
                             .n_env = 3,
                             .n_thread = 2,
                             .randomize = DRAWN};
    struct crowd a, b;
    size_t bytes, from = sizeof(uint32_t);
    uint8_t *states;
    uint32_t env;
    int t, i;

    (void)state;
    crowd_init(&a, &pc, 0);
    pc.isolate = POOL_ISOLATE_PROCESS;
    crowd_init(&b, &pc, 0);
    bytes = port_state_bytes(a.port);
    states = mem_alloc(3, bytes);
    start_all(&a, false);
    for (t = 0; t < 5; t++)
        step_all(&a, t);
    for (i = 0; i < 3; i++) {
        env = (uint32_t)i;
        assert_ok(port_save(a.port, &env, 1, states + (size_t)i * bytes, bytes));
        env = (uint32_t)(2 - i);
        assert_ok(port_load(b.port, &env, 1, states + (size_t)i * bytes, bytes, bytes));
    }
    for (; t < 14; t++) { // over the end of the episode, and into the next one's model
        step_all(&a, t);
        step_all(&b, t);
        for (i = 0; i < 3; i++)
            assert_memory_equal((const uint8_t *)row_of(&a, i) + from,
                                (const uint8_t *)row_of(&b, 2 - i) + from, a.layout->stride - from);
    }
    assert_true(row_of(&a, 0)->episode == 1);
    assert_memory_not_equal(picture(&a, 0), picture(&a, 1), a.layout->stride - a.layout->pictures);
    mem_free(states);
    crowd_fini(&a);
    crowd_fini(&b);
}

// Rows of `c`, whose workers come to grief, against those of an undisturbed twin, which starts the
// next episode where `c` lost one. The envs that have lost theirs, a bit each.
static unsigned compare_with_twin(const struct crowd *c, const struct crowd *twin)
{
    unsigned now = 0;
    size_t k;
    int i;

    for (i = 0; i < c->n_env; i++) {
        const struct row_head *h = row_of(c, i);

        if (!(h->flags & ROW_ERROR)) {
            if (memcmp(h, row_of(twin, i), c->layout->stride) != 0)
                fail_msg("env %d, episode %llu, step %u: the row differs", i,
                         (unsigned long long)h->episode, h->elapsed);
            continue;
        }
        now |= 1u << i;
        assert_true(h->error == ROW_ERROR_CRASH || h->error == ROW_ERROR_TIMEOUT);
        assert_int_equal(h->flags & (ROW_TERMINATED | ROW_TRUNCATED), 0);
        for (k = c->layout->pictures; k < c->layout->stride; k++)
            assert_int_equal(((const uint8_t *)h)[k], 0);
    }
    return now;
}

// Send `signal` to worker w while it has a request, if it comes to have one.
static void strike(struct crowd *c, int w, int signal)
{
    unsigned owner;
    int i, pid;

    while (port_in_flight(c->port) > 0) {
        for (i = 0; i < c->n_env; i++)
            if (workq_look(&c->pool->cells[i], &owner) == WORKQ_CLAIMED && owner == (unsigned)w &&
                (pid = pool_worker_pid(c->pool, w)) > 0) {
                kill(pid, signal);
                return;
            }
        if (workq_any(&c->pool->lanes[0]))
            continue;
        return; // the other one has taken them all
    }
}

// Workers that draw are killed and stopped: each request is answered once, by the row that an
// undisturbed pool gives or by an error without a picture.
static void killed_and_stopped_painters_are_replaced(void **state)
{
    struct pool_config pc = {.task = "Hopper-v5",
                             .kwargs = "{\"cameras\": \"track:160x120\"}",
                             .n_env = 4,
                             .n_thread = 2,
                             .isolate = POOL_ISOLATE_PROCESS,
                             .step_timeout_ns = NS_PER_S};
    int t, i, errors = 0;
    struct crowd c, twin;
    struct pool_stats s;
    unsigned lost;

    (void)state;
    crowd_init(&c, &pc, 0);
    pc.isolate = POOL_ISOLATE_THREAD;
    pc.step_timeout_ns = 0;
    crowd_init(&twin, &pc, 0);
    start_all(&c, false);
    start_all(&twin, false);
    lost = compare_with_twin(&c, &twin);
    for (t = 0; t < 40 || errors == 0; t++) {
        send_step(&c, t, 0);
        if (t % 4 == 3)
            strike(&c, t / 4 % 2, t % 20 == 7 ? SIGSTOP : SIGKILL);
        gather(&c);
        send_step(&twin, t, lost);
        for (i = 0; i < c.n_env; i++) { // these have begun another episode
            struct reset_row row = {
                .env = (uint32_t)i, .seed = (uint64_t)i, .episode = row_of(&c, i)->episode};

            if (lost >> i & 1)
                assert_ok(port_reset(twin.port, &row, 1));
        }
        gather(&twin);
        lost = compare_with_twin(&c, &twin);
        errors += __builtin_popcount(lost);
    }
    pool_stats_get(c.pool, &s);
    assert_true(errors <= s.restarts);
    print_message("%lld workers were replaced, %d of %d requests ended by an error\n",
                  (long long)s.restarts, errors, t * c.n_env);
    crowd_fini(&twin);
    crowd_fini(&c);
}

static void a_batch_that_no_message_holds_is_refused(void **state)
{
    struct pool_config pc = {.task = "Hopper-v5",
                             .kwargs = "{\"cameras\": \"default:4096x4096\"}",
                             .n_env = 8,
                             .n_thread = 1};
    struct port_config port = {.k_max = 1, .b_max = 8};
    struct pool *pool = NULL;
    struct port *p = NULL;

    (void)state;
    assert_ok(pool_create(&pool, &pc));
    assert_fails(port_open(&p, pool, &port), ST_INVAL, "ask for at most 5 rows a batch");
    port.b_max = 5;
    assert_ok(port_open(&p, pool, &port));
    port_close(p);
    pool_destroy(pool);
    msg_drain();
}

static void what_cannot_be_drawn_is_no_pool(void **state)
{
    struct pool_config pc = {.task = "Hopper-v5", .n_env = 1, .n_thread = 1};
    struct pool *pool = NULL;

    (void)state;
    pc.kwargs = "{\"cameras\": \"wrist\"}";
    assert_fails(pool_create(&pool, &pc), ST_INVAL, "no camera 'wrist'; it has track");
    pc.kwargs = "{\"cameras\": \"track\", \"render_samples\": 3}";
    assert_fails(pool_create(&pool, &pc), ST_INVAL, "3 samples per pixel, expected 1 or 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(options_become_pictures),
        leak_test(bad_options_are_named),
        leak_test(pictures_change_no_number),
        leak_test(poses_of_a_suite_are_those_of_the_sampling),
        leak_test(a_row_has_the_renderers_picture),
        leak_test(turns_at_one_world_show_the_right_one),
        leak_test(final_pictures_are_those_of_the_end),
        leak_test(a_renderer_that_fails_ends_the_episode),
        leak_test(every_env_is_in_its_own_picture),
        leak_test(processes_draw_the_same),
        leak_test(drawn_models_are_in_their_pictures),
        leak_test(states_go_on_with_their_pictures),
        leak_test(killed_and_stopped_painters_are_replaced),
        leak_test(a_batch_that_no_message_holds_is_refused),
        leak_test(what_cannot_be_drawn_is_no_pool),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
