// Whole SmolVLA, pi0 and pi0.5 policies - tiny checkpoints in LeRobot's folders - from pictures,
// tokens, state and noise to actions, against what LeRobot's own PyTorch code got, at every vector
// width: pictures as prepared, the training pass's losses, the velocity at every step of the
// sampler, the actions in the end. Files that are damaged are refused by name.
//
// The checkpoints lie beside the source tree, in ../shared/vla; without them the test is skipped.
#include "nn/published.h"

#include "common/base/file.h"
#include "nn/safetensors.h"
#include "nn/simd.h"
#include "tests/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// as ../shared/docs say of float32 on both sides
#define PICTURE_TOL  5e-6 // absolute
#define VELOCITY_TOL 2e-5 // of the largest number
#define ACTION_TOL   1e-4

static const char *const folders[] = {"smolvla", "smolvla_cross", "pi0", "pi05"};
static const struct published_sizes sizes = {.head_dim = 8, .vision_heads = 2};
static char root[512], folder[64];

// Arrays of a folder's golden file; freed together.
struct golden {
    const char *folder;
    struct safetensors *file;
    void *held[64];
    int n_held;
};

static void *keep(struct golden *g, void *p)
{
    assert_non_null(p);
    assert_true(g->n_held < 64);
    return g->held[g->n_held++] = p;
}

static const struct safetensor *array(const struct golden *g, const char *name)
{
    const struct safetensor *t = safetensors_find(g->file, name);

    if (!t)
        fail_msg("%s: no array %s", g->folder, name);
    return t;
}

static float *numbers(struct golden *g, const char *name)
{
    const struct safetensor *t = array(g, name);
    float *p = keep(g, mem_alloc((size_t)t->n, sizeof *p));

    assert_ok(safetensors_read(g->file, t, p));
    return p;
}

static void *bytes(struct golden *g, const char *name)
{
    const struct safetensor *t = array(g, name);
    void *p = keep(g, mem_alloc((size_t)t->bytes, 1));

    assert_ok(safetensors_bytes(g->file, t, p));
    return p;
}

static void close_golden(struct golden *g)
{
    while (g->n_held > 0)
        mem_free(g->held[--g->n_held]);
    safetensors_close(g->file);
}

// The largest difference; relative to the largest number of `want` where `relative`.
static double apart(const float *got, const float *want, int64_t n, bool relative)
{
    double most = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)got[i] - want[i]));
        size = fmax(size, fabs((double)want[i]));
        if (!isfinite(got[i]))
            return INFINITY;
    }
    return relative ? most / size : most;
}

static double worst[2]; // of losses and velocities, of actions

static void near(const struct golden *g, const char *what, double is, double tol)
{
    double *most = &worst[tol == ACTION_TOL];

    *most = tol == PICTURE_TOL ? *most : fmax(*most, is);
    if (!(is <= tol))
        fail_msg("%s: %s is %.2e apart, expected at most %.0e", g->folder, what, is, tol);
}

// What row b of the batch sees: pictures prepared from their pixels, the tokens that are no
// padding.
struct seen {
    const float *image[PUBLISHED_CAMERAS_MAX];
    int text[64];
    struct published_row row;
};

static void prepare(struct golden *g, const struct published *p, int b, struct seen *s)
{
    const struct published_shape *shape = published_shape(p);
    const int64_t n = 3 * (int64_t)shape->side * shape->side;
    const int64_t *tokens = bytes(g, "in.tokens");
    const uint8_t *mask = bytes(g, "in.lang_mask");
    const int n_text = (int)array(g, "in.tokens")->dims[1];

    memset(s, 0, sizeof *s);
    for (int i = 0; i < shape->cameras; i++) {
        char name[64];
        const struct safetensor *t;
        const uint8_t *planes;
        uint8_t *rgb;
        float *image;
        int h, w;

        snprintf(name, sizeof name, "in.image%d_u8", i);
        t = safetensors_find(g->file, name);
        if (!t)
            continue; // a camera that is missing
        h = (int)t->dims[2];
        w = (int)t->dims[3];
        planes = (const uint8_t *)bytes(g, name) + (ptrdiff_t)b * 3 * h * w;
        rgb = keep(g, mem_alloc(3 * (size_t)(h * w), 1));
        for (int k = 0; k < 3 * h * w; k++)
            rgb[k % (h * w) * 3 + k / (h * w)] = planes[k];
        image = keep(g, mem_alloc((size_t)n, sizeof *image));
        assert_ok(published_picture(p, rgb, w, h, image));
        snprintf(name, sizeof name, "prep.image%d", i);
        near(g, name, apart(image, numbers(g, name) + b * n, n, false), PICTURE_TOL);
        s->image[i] = image;
    }
    for (int i = 0; i < n_text; i++)
        if (mask[b * n_text + i])
            s->text[s->row.n_text++] = (int)tokens[b * n_text + i];
    s->row.image = s->image;
    s->row.text = s->text;
    s->row.state = numbers(g, "in.state") + (ptrdiff_t)b * array(g, "in.state")->dims[1];
}

// Losses of the training pass: (noise - action - v)^2 at x_t = t noise + (1 - t) action.
static void check_losses(struct golden *g, struct published *p, int b)
{
    const struct published_shape *s = published_shape(p);
    const int n = s->chunk * s->n_action;
    const float *noise = numbers(g, "in.noise") + (ptrdiff_t)b * n;
    const float *action = numbers(g, "in.action") + (ptrdiff_t)b * s->chunk * s->action;
    const float *want = numbers(g, "train.losses_padded") + (ptrdiff_t)b * n;
    const float t = numbers(g, "in.time")[b];
    float *x = keep(g, mem_alloc(3 * (size_t)n, sizeof *x)), *v = x + n, *loss = v + n;

    for (int k = 0; k < n; k++) {
        const int d = k % s->n_action;
        const float a = d < s->action ? action[k / s->n_action * s->action + d] : 0;

        x[k] = t * noise[k] + (1 - t) * a;
        loss[k] = noise[k] - a;
    }
    published_velocity(p, x, (double)t, v);
    for (int k = 0; k < n; k++)
        loss[k] = (loss[k] - v[k]) * (loss[k] - v[k]);
    near(g, "losses", apart(loss, want, n, true), VELOCITY_TOL);
}

static void check_sampler(struct golden *g, struct published *p, int b, int n_row)
{
    const struct published_shape *s = published_shape(p);
    const int n = s->chunk * s->n_action, steps = (int)array(g, "sample.times")->n;
    const float *times = numbers(g, "sample.times"), *x = numbers(g, "sample.x_t");
    const float *want = numbers(g, "sample.v_t"), *actions = numbers(g, "sample.actions");
    float *v = keep(g, mem_alloc((size_t)n, sizeof *v));

    assert_int_equal(steps, s->steps);
    for (int i = 0; i < steps; i++) {
        const ptrdiff_t at = ((ptrdiff_t)i * n_row + b) * n;

        published_velocity(p, x + at, (double)times[i], v);
        near(g, "velocity", apart(v, want + at, n, true), VELOCITY_TOL);
    }
    published_follow(p, numbers(g, "in.noise") + (ptrdiff_t)b * n, v);
    near(g, "actions",
         apart(v, actions + (ptrdiff_t)b * s->chunk * s->action, s->chunk * s->action, true),
         ACTION_TOL);
}

static void check_policy(const char *name)
{
    struct golden g = {.folder = name};
    char path[700];
    struct published *p;
    int n_row;

    snprintf(path, sizeof path, "%s/%s", root, name);
    assert_ok(published_open(&p, path, &sizes));
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", root, name);
    assert_ok(safetensors_open(&g.file, path));
    n_row = (int)array(&g, "in.tokens")->dims[0];
    assert_true(n_row > 1);
    for (int b = n_row - 1; b >= 0; b--) { // what one row leaves behind does not reach the next
        struct seen seen;

        prepare(&g, p, b, &seen);
        assert_ok(published_see(p, &seen.row));
        check_losses(&g, p, b);
        check_sampler(&g, p, b, n_row);
        while (g.n_held > 0)
            mem_free(g.held[--g.n_held]);
    }
    close_golden(&g);
    published_close(p);
}

static void need_checkpoints(void)
{
    const char *source = getenv("SOURCE_DIR");

    snprintf(root, sizeof root, "%s/../shared/vla", source ? source : ".");
    if (access(root, R_OK) != 0) {
        print_message("skipped: no checkpoints in %s\n", root);
        skip();
    }
}

static void whole_policies_do_what_lerobot_does(void **state)
{
    (void)state;
    need_checkpoints();
    for (int level = SIMD_BASE; level <= SIMD_AVX512; level++) {
        simd_limit((enum simd_level)level);
        for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
            check_policy(folders[i]);
    }
    simd_limit(SIMD_AVX512);
    print_message("at most %.1e apart, actions %.1e\n", worst[0], worst[1]);
}

static void what_is_out_of_range_is_named(void **state)
{
    struct golden g = {.folder = "smolvla"};
    char path[700];
    struct published *p = NULL;
    struct seen seen;

    (void)state;
    need_checkpoints();
    snprintf(path, sizeof path, "%s/nowhere", root);
    assert_fails(published_open(&p, path, &sizes), ST_MISSING, "nowhere/config.json");
    snprintf(path, sizeof path, "%s/pi0", root);
    assert_fails(published_open(&p, path, NULL), ST_INVAL, "model.safetensors");
    assert_null(p);
    snprintf(path, sizeof path, "%s/smolvla", root);
    assert_ok(published_open(&p, path, &sizes));
    assert_int_equal(published_shape(p)->kind, PUBLISHED_SMOLVLA);
    assert_int_equal(published_shape(p)->cameras, 3);
    assert_int_equal(published_shape(p)->n_action, 9);
    snprintf(path, sizeof path, "%s/smolvla/golden.safetensors", root);
    assert_ok(safetensors_open(&g.file, path));
    prepare(&g, p, 0, &seen);
    seen.text[1] = 64;
    assert_fails(published_see(p, &seen.row), ST_INVAL, "token 1 is 64, expected 0 to 63");
    seen.text[1] = 1;
    seen.row.n_text = 13;
    assert_fails(published_see(p, &seen.row), ST_INVAL, "13 tokens, expected at most 12");
    seen.row.n_text = 2;
    memset(seen.image, 0, sizeof seen.image);
    assert_fails(published_see(p, &seen.row), ST_INVAL, "without pictures");
    close_golden(&g);
    published_close(p);
    published_close(NULL);
}

// A folder with the parts of pi0's but for one change.
static enum status open_changed(const char *config, const char *without)
{
    char path[700], *text;
    struct safetensors_part parts[128];
    struct safetensors *s;
    struct published *p = NULL;
    enum status st;
    size_t n;
    int k = 0;

    snprintf(path, sizeof path, "%s/pi0/config.json", root);
    assert_ok(file_read(path, &text, &n));
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_ok(file_write_atomic(path, config ? config : text, config ? strlen(config) : n));
    mem_free(text);
    snprintf(path, sizeof path, "%s/pi0/model.safetensors", root);
    assert_ok(safetensors_open(&s, path));
    assert_true(safetensors_count(s) <= 128);
    for (int i = 0; i < safetensors_count(s); i++) {
        const struct safetensor *t = safetensors_at(s, i);
        float *data = mem_alloc((size_t)t->n, sizeof *data);

        assert_non_null(data);
        assert_ok(safetensors_read(s, t, data));
        // names that lack what is in front of all are the same names
        parts[k] = (struct safetensors_part){
            .name = t->name + strlen("model."), .rank = t->rank, .data = data};
        memcpy(parts[k].dims, t->dims, sizeof parts[k].dims);
        if (without && strcmp(parts[k].name, without) == 0)
            mem_free(data);
        else
            k++;
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_ok(safetensors_save(path, parts, k, NULL, 0));
    for (int i = 0; i < k; i++)
        mem_free((float *)parts[i].data);
    safetensors_close(s);
    st = published_open(&p, folder, &sizes);
    published_close(p);
    return st;
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    need_checkpoints();
    assert_ok(open_changed(NULL, NULL));
    assert_ok(open_changed(NULL, "paligemma_with_expert.gemma_expert.lm_head.weight")); // not used
    assert_fails(open_changed(NULL, "action_in_proj.bias"), ST_INVAL,
                 "there is no array 'action_in_proj.bias'");
    assert_fails(open_changed(NULL, "paligemma_with_expert.gemma_expert.model.layers.1.mlp.up_proj."
                                    "weight"),
                 ST_INVAL, "layers.1.mlp.up_proj.weight'");
    assert_fails(open_changed("{}", NULL), ST_INVAL, "type is ''");
    assert_fails(open_changed("{\"type\": \"pi0\"}", NULL), ST_INVAL, "has 0 pictures");
    assert_fails(open_changed("[]", NULL), ST_INVAL, "config.json: not a JSON object");
}

static void memory_that_runs_out_is_reported(void **state)
{
    struct published *p = NULL;
    char path[700];
    int64_t n = 0;

    (void)state;
    need_checkpoints();
    snprintf(path, sizeof path, "%s/pi05", root);
    for (;; n++) {
        mem_fail_after(n);
        if (published_open(&p, path, &sizes) == ST_OK)
            break;
        assert_null(p);
        assert_int_equal(error_last()->code, ST_NOMEM);
    }
    mem_fail_after(-1);
    assert_true(n > 100);
    published_close(p);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/simstream-published-%d", (int)getpid());
    return file_make_dir(folder) == ST_OK ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[100];

    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(whole_policies_do_what_lerobot_does),
        leak_test(what_is_out_of_range_is_named),
        leak_test(what_is_missing_is_named),
        leak_test(memory_that_runs_out_is_reported),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
