// Surfaces found instance by instance against those that Embree's rays find; clusters against the
// triangles that they are made of.
#include "tests/testing.h"

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "envserver/rays_raster.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define SIDE  64 // pixels
#define TILES ((SIDE / TILE) * (SIDE / TILE))

// Round shapes, boxes and a mesh, around, behind and across the eyes of several cameras.
static const char *const xml =
    "<mujoco><visual><map znear='.01' zfar='20'/></visual><statistic extent='1' center='0 0 0'/>"
    "<asset><mesh name='tetra' vertex='0 0 0  .6 0 0  0 .6 0  0 0 .6'/></asset><worldbody>"
    "<camera name='far' pos='0 -5 3' xyaxes='1 0 0 0 .5 .86' fovy='45'/>"
    "<camera name='amid' pos='.1 -.9 .5' xyaxes='1 .1 0 0 .3 1' fovy='100'/>"
    "<camera name='touching' pos='-.5 -.52 .5' xyaxes='1 .4 0 0 .2 1' fovy='120'/>"
    "<camera name='inside' pos='1 0 .5' xyaxes='0 1 0 0 0 1' fovy='60'/>"
    "<camera name='beside' pos='-8 0 .45' xyaxes='.05 -1 0 0 .01 1' fovy='20'/>"
    "<geom type='box' size='3 3 .1' pos='0 0 -.1'/>"
    "<geom type='box' size='.3 .3 .3' pos='1 0 .5' euler='20 30 40'/>"
    "<geom type='sphere' size='.4' pos='0 0 .5'/>"
    "<geom type='capsule' size='.2 .4' pos='-1 .5 .5' euler='30 0 20'/>"
    "<geom type='cylinder' size='.3 .5' pos='-.5 -.5 .5'/>"
    "<geom type='ellipsoid' size='.5 .2 .1' pos='.5 1 .8' euler='10 20 30'/>"
    "<geom type='mesh' mesh='tetra' pos='0 -.5 .2'/>"
    "<geom type='box' size='20 .01 5' pos='0 4 2'/></worldbody></mujoco>";

struct bed {
    mjModel *m;
    mjData *d;
    mjvScene scn;
    struct rays_shared shared;
    struct rays_scene scene;
};

static int setup(void **state)
{
    char path[] = "/tmp/test_raster.XXXXXX", error[500] = "";
    struct bed *b = mem_alloc(1, sizeof *b);
    int fd = mkstemp(path);

    assert_non_null(b);
    assert_int_equal(write(fd, xml, strlen(xml)), (ssize_t)strlen(xml));
    close(fd);
    b->m = mj_loadXML(path, NULL, error, sizeof error);
    (void)unlink(path);
    if (!b->m)
        fail_msg("%s", error);
    b->d = mj_makeData(b->m);
    mj_forward(b->m, b->d);
    mjv_defaultScene(&b->scn);
    mjv_makeScene(b->m, &b->scn, 100);
    assert_ok(rays_shared_init(&b->shared, b->m));
    assert_ok(rays_scene_init(&b->scene, 100));
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bed *b = *state;

    rays_scene_fini(&b->scene);
    rays_shared_fini(&b->shared);
    mjv_freeScene(&b->scn);
    mj_deleteData(b->d);
    mj_deleteModel(b->m);
    mem_free(b);
    return 0;
}

static void look(struct bed *b, int camera)
{
    mjvOption opt;
    mjvCamera cam;

    mjv_defaultOption(&opt);
    mjv_defaultCamera(&cam);
    cam.type = mjCAMERA_FIXED;
    cam.fixedcamid = camera;
    mjv_updateScene(b->m, b->d, &opt, NULL, &cam, mjCAT_ALL, &b->scn);
    assert_ok(rays_scene_set(&b->scene, &b->shared, b->m, &b->scn, SIDE, SIDE));
}

static void clear(struct rays_tile *tile, const struct rays_pattern *p, const float *near,
                  float far)
{
    int i, r;

    for (i = 0; i < TILES; i++) {
        tile[i].pattern = p;
        tile[i].tnear = near;
        tile[i].x = i % (SIDE / TILE) * TILE;
        tile[i].y = i / (SIDE / TILE) * TILE;
        tile[i].limit = far;
        tile[i].stale = false;
        for (r = 0; r < p->n_ray; r++) {
            tile[i].t[r] = far;
            tile[i].inst[r] = tile[i].prim[r] = -1;
        }
    }
}

// Rays on the outline of a triangle may go either way; all others agree.
static void compare(const struct rays_tile *want, const struct rays_tile *got, int n_ray)
{
    int i, r, hits = 0, other = 0;

    for (i = 0; i < TILES; i++)
        for (r = 0; r < n_ray; r++) {
            hits += want[i].inst[r] >= 0;
            if (want[i].inst[r] != got[i].inst[r])
                other++;
            else if (want[i].inst[r] >= 0)
                assert_true(fabsf(got[i].t[r] / want[i].t[r] - 1) < 2e-2f);
        }
    assert_true(hits > TILES * n_ray / 20);
    assert_true(other <= TILES * n_ray / 100);
}

static void finds_what_rays_find(void **state, const char *name, int samples)
{
    static struct rays_tile want[TILES], got[TILES];
    static struct rays_pattern p;
    static _Alignas(64) float near[TILE_RAYS_MAX];
    const struct rays_raster *raster = rays_raster_find(name);
    const struct rays_tracer *tracer = rays_tracer_find(name);
    struct rays_block block = {0, 0, SIDE / TILE, SIDE / TILE, got};
    struct bed *b = *state;
    const struct rays_view *v = &b->scene.main;
    int c, i, k;

    if (!raster || !tracer)
        skip(); // this processor, or this compiler, does without
    rays_pattern_init(&p, samples);
    for (c = 0; c < b->m->ncam; c++) {
        look(b, c);
        for (i = 0; i < TILE_RAYS_MAX; i++)
            near[i] = v->near;
        clear(want, &p, near, v->far);
        clear(got, &p, near, v->far);
        assert_true(v->n_order > 0);
        for (k = 0; k < v->n_order; k++) {
            for (i = 0; i < TILES; i++)
                tracer->nearest(&b->scene, v, v->order[k], &want[i]);
            raster->draw(&b->scene, v, v->order[k], &block);
        }
        compare(want, got, p.n_ray);
    }
}

static void sse_finds_what_rays_find(void **state)
{
    finds_what_rays_find(state, "sse", 1);
    finds_what_rays_find(state, "sse", 4);
}

static void avx2_finds_what_rays_find(void **state)
{
    finds_what_rays_find(state, "avx2", 1);
    finds_what_rays_find(state, "avx2", 4);
}

// What is hidden is left out whatever the order, and a picture may be cut into blocks anywhere.
static void blocks_and_order_change_nothing(void **state)
{
    static struct rays_tile whole[TILES], parts[TILES];
    static struct rays_pattern p;
    static _Alignas(64) float near[TILE_RAYS_MAX];
    const struct rays_raster *raster = rays_raster_best();
    struct rays_block block = {0, 0, SIDE / TILE, SIDE / TILE, whole};
    struct bed *b = *state;
    const struct rays_view *v = &b->scene.main;
    int i, k, r;

    rays_pattern_init(&p, 4);
    look(b, 1);
    clear(whole, &p, near, v->far);
    clear(parts, &p, near, v->far);
    for (k = 0; k < v->n_order; k++)
        raster->draw(&b->scene, v, v->order[k], &block);
    for (i = 0; i < TILES; i++) { // each tile alone, the farthest first
        struct rays_block one = {parts[i].x, parts[i].y, 1, 1, &parts[i]};

        for (k = v->n_order - 1; k >= 0; k--)
            raster->draw(&b->scene, v, v->order[k], &one);
    }
    for (i = 0; i < TILES; i++)
        for (r = 0; r < p.n_ray; r++) {
            assert_int_equal(whole[i].inst[r], parts[i].inst[r]);
            if (whole[i].inst[r] >= 0)
                assert_true(fabsf(whole[i].t[r] / parts[i].t[r] - 1) < 1e-5f);
        }
}

// Every triangle is in one lane, within its cluster's bounds.
static void check_clusters(int n)
{
    struct rng rng = rng_make(1, RNG_TEST, 0, 0, 0);
    float *pos = mem_alloc((size_t)n * 9, sizeof *pos);
    int *seen = mem_alloc((size_t)n, sizeof *seen);
    struct rays_clusters c;
    int i, j, k, l, batches = 0;

    assert_non_null(pos);
    assert_non_null(seen);
    for (i = 0; i < 9 * n; i++)
        pos[i] = (float)rng_uniform(&rng, -1, 1);
    assert_ok(clusters_build(&c, pos, n));
    for (i = 0; i < c.n_cluster; i++) {
        const struct rays_cluster *k0 = &c.cluster[i];

        assert_true(k0->n >= 1 && k0->n <= CLUSTER_BATCHES);
        assert_int_equal(k0->first, batches);
        batches += k0->n;
        for (j = k0->first; j < k0->first + k0->n; j++)
            for (l = 0; l < BATCH_LANES; l++) {
                const struct rays_batch *b = &c.batch[j];

                if (b->prim[l] < 0)
                    continue;
                seen[b->prim[l]]++;
                for (k = 0; k < 9; k++) {
                    float x = b->p[k / 3][k % 3][l];

                    assert_true(x == pos[9 * b->prim[l] + k]);
                    assert_true(x >= k0->lo[k % 3] && x <= k0->hi[k % 3]);
                }
            }
    }
    assert_int_equal(batches, c.n_batch);
    for (i = 0; i < n; i++)
        assert_int_equal(seen[i], 1);
    clusters_free(&c);
    mem_free(pos);
    mem_free(seen);
}

static void clusters_hold_every_triangle_once(void **state)
{
    static const int sizes[] = {0, 1, 7, 8, 9, 63, 64, 65, 71, 128, 129, 1000};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_clusters(sizes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sse_finds_what_rays_find, setup, teardown),
        cmocka_unit_test_setup_teardown(avx2_finds_what_rays_find, setup, teardown),
        cmocka_unit_test_setup_teardown(blocks_and_order_change_nothing, setup, teardown),
        cmocka_unit_test(clusters_hold_every_triangle_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
