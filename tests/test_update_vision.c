// The updater with pictures: where a window's pictures lie, how its chunks are cut and who works on
// them changes nothing.
#include "tests/toy_chunks.h"

#include "learner/update.h"

#define N_CHUNK 10
#define SIDE    12
#define BYTES   (SIDE * SIDE * 3)
#define STACK   3

struct options {
    struct update_config u;
};

static const struct opt table[] = {UPDATE_OPTS(struct options, u), {0}};

static struct toy_chunk chunks[N_CHUNK];
static uint8_t pictures[N_CHUNK][STACK + 2 * TOY_T][BYTES];
static const struct chunk *list[N_CHUNK];

static struct update_config defaults(void)
{
    struct options o;

    assert_ok(opts_defaults(table, &o));
    o.u.adam_eps = 1e-2; // a small gradient's step stays small
    return o.u;
}

static struct weights *vision_weights(bool state)
{
    struct model_shape shape;
    struct weights *w;

    assert_ok(model_shape_parse(&shape, TOY_OBS, TOY_ACT, "8"));
    shape.vision =
        (struct model_vision){.width = SIDE, .height = SIDE, .stack = STACK, .state = state};
    assert_ok(model_conv_parse(&shape.vision, "6x5/3,4x2/1"));
    assert_ok(weights_create(&w, &shape));
    assert_ok(model_init(&shape, 1, -0.5, w->params));
    return w;
}

// Chunks of pictures of random light.
static void make_chunks(uint64_t seed)
{
    struct weights *blind = toy_weights("4");
    struct policy *p;

    assert_ok(policy_create(&p, &blind->shape, 1));
    for (uint32_t i = 0; i < N_CHUNK; i++) {
        struct rng rng = rng_make(seed, RNG_TEST, i, 0, 0);
        struct chunk_head *h = &chunks[i].c.head;

        toy_make(&chunks[i], p, blind, i, seed, true);
        h->n_lead = STACK - 1;
        h->picture_bytes = BYTES;
        chunks[i].c.pictures = &pictures[i][0][0];
        for (uint32_t k = 0; k < chunk_n_picture(h); k++) {
            uint32_t light = rng_below(&rng, 200);

            for (int b = 0; b < BYTES; b++)
                pictures[i][k][b] = (uint8_t)(light + rng_below(&rng, 50));
        }
        list[i] = &chunks[i].c;
    }
    policy_destroy(p);
    weights_drop(blind);
}

// One window from the same weights; the caller's weights.
static struct weights *window(const struct update_config *cfg, bool state, int per_call)
{
    struct weights *w = vision_weights(state), *got;
    struct update_stats s;
    struct updater *u;
    int i;

    assert_ok(updater_create(&u, cfg, w, 100));
    for (i = 0; i < N_CHUNK; i += per_call)
        assert_ok(
            updater_accumulate_many(u, list + i, N_CHUNK - i < per_call ? N_CHUNK - i : per_call));
    assert_ok(updater_step(u, &got, &s));
    updater_destroy(u);
    weights_drop(w);
    return got;
}

static double distance(const struct weights *a, const struct weights *b)
{
    double most = 0;

    for (int64_t i = 0; i < a->n_param; i++)
        most = fmax(most, fabs((double)a->params[i] - (double)b->params[i]));
    return most;
}

// How far the window has moved the encoder.
static double encoder_moved(const struct weights *w)
{
    struct weights *start = vision_weights(w->shape.vision.state);
    struct model_table t;
    double sum = 0;

    model_table_make(&t, &w->shape);
    for (int64_t i = 0; i < t.n_encoder; i++)
        sum += fabs((double)w->params[i] - (double)start->params[i]);
    weights_drop(start);
    return sum;
}

static void threads_and_cuts_change_no_bit(void **state)
{
    struct update_config cfg = defaults();
    struct weights *a, *b;

    (void)state;
    cfg.epochs = 3;
    make_chunks(1);
    for (int see = 0; see < 2; see++)
        for (int threads = 1; threads <= 3; threads += 2) {
            cfg.threads = 1;
            a = window(&cfg, see, N_CHUNK);
            cfg.threads = threads;
            b = window(&cfg, see, threads == 1 ? 1 : 4);
            assert_memory_equal(a->params, b->params, (size_t)a->n_param * sizeof *a->params);
            assert_true(encoder_moved(a) > 1e-3);
            weights_drop(a);
            weights_drop(b);
        }
}

// A streamed window reads pictures in the chunks, a kept one in its own list.
static void kept_and_streamed_windows_agree(void **state)
{
    struct update_config cfg = defaults();
    struct weights *a, *b;

    (void)state;
    cfg.normalize_advantage = cfg.normalize_returns = false;
    cfg.epochs = 1;
    make_chunks(2);
    a = window(&cfg, false, 3);
    cfg.epochs = 2;
    cfg.target_kl = 1e-30; // no step of the replay is taken
    b = window(&cfg, false, 3);
    assert_memory_equal(a->params, b->params, (size_t)a->n_param * sizeof *a->params);
    assert_true(encoder_moved(a) > 1e-3);
    weights_drop(a);
    weights_drop(b);
}

// Replayed rows find their pictures wherever those lie in the window.
static void order_changes_no_more_than_rounding(void **state)
{
    struct update_config cfg = defaults();
    struct weights *a, *b;

    (void)state;
    cfg.epochs = 4;
    cfg.minibatches = 1; // one step a pass, on all rows
    make_chunks(3);
    a = window(&cfg, true, N_CHUNK);
    for (int i = 0; i < N_CHUNK / 2; i++) {
        const struct chunk *held = list[i];

        list[i] = list[N_CHUNK - 1 - i];
        list[N_CHUNK - 1 - i] = held;
    }
    b = window(&cfg, true, 3);
    assert_true(distance(a, b) < 1e-6);
    // but one picture in another's place changes more
    weights_drop(b);
    memcpy(pictures[4][20], pictures[5][21], BYTES);
    b = window(&cfg, true, 3);
    assert_true(distance(a, b) > 1e-5);
    weights_drop(a);
    weights_drop(b);
}

static void chunks_of_other_pictures_are_refused(void **state)
{
    struct update_config cfg = defaults();
    struct weights *w = vision_weights(false), *blind = toy_weights("8");
    struct updater *u;

    (void)state;
    make_chunks(4);
    assert_ok(updater_create(&u, &cfg, w, 100));
    chunks[0].c.head.n_lead = STACK;
    assert_fails(updater_accumulate(u, list[0]), ST_PROTO, "3 before them");
    chunks[0].c.head.picture_bytes = chunks[0].c.head.n_lead = 0;
    assert_fails(updater_accumulate(u, list[0]), ST_PROTO, "the model sees 3 of 432 bytes");
    updater_destroy(u);
    assert_ok(updater_create(&u, &cfg, blind, 100));
    assert_fails(updater_accumulate(u, list[1]), ST_PROTO, "pictures of 432 bytes");
    updater_destroy(u);
    weights_drop(w);
    weights_drop(blind);
}

static void warm_windows_allocate_only_their_weights(void **state)
{
    struct update_config cfg = defaults();
    struct weights *w = vision_weights(true), *got;
    struct update_stats s;
    struct updater *u;
    int64_t calls = 0;

    (void)state;
    make_chunks(5);
    cfg.epochs = 2;
    assert_ok(updater_create(&u, &cfg, w, 100));
    for (int i = 0; i < 3; i++) {
        calls = mem_calls();
        assert_ok(updater_accumulate_many(u, list, N_CHUNK));
        assert_true(i == 0 || mem_calls() == calls);
        assert_ok(updater_step(u, &got, &s));
        assert_true(i == 0 || mem_calls() - calls == 4);
        weights_drop(got);
    }
    updater_destroy(u);
    weights_drop(w);
}

static void out_of_memory_is_reported(void **state)
{
    struct update_config cfg = defaults();
    struct weights *w = vision_weights(true);
    struct updater *u;
    enum status st;
    int64_t n;

    (void)state;
    make_chunks(6);
    for (n = 0;; n++) {
        mem_fail_after(n);
        st = updater_create(&u, &cfg, w, 100);
        if (st == ST_OK) {
            st = updater_accumulate_many(u, list, N_CHUNK);
            mem_fail_after(-1);
            updater_destroy(u);
        }
        mem_fail_after(-1);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_NOMEM);
    }
    assert_true(n > 60);
    weights_drop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(threads_and_cuts_change_no_bit),
        leak_test(kept_and_streamed_windows_agree),
        leak_test(order_changes_no_more_than_rounding),
        leak_test(chunks_of_other_pictures_are_refused),
        leak_test(warm_windows_allocate_only_their_weights),
        leak_test(out_of_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
