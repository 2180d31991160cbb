// The whole policy in float: sequences that do not depend on their company, to the bit; the same
// gradient in every layout; memory known beforehand and none taken on the way; faults by name.
#include "tests/vla_testing.h"

#define SEQS  6
#define TEXTS 7

struct rig {
    struct vla_net net;
    struct ragged g;
    real *params, *mean, *value, *d_mean, *d_value;
    int n_mean; // of a sequence
};

static void rig_make(struct rig *x, const char *json)
{
    struct rng r = rng_make(3, RNG_TEST, 0, 0, 0);
    struct vla_config c;

    assert_ok(vla_config_parse(&c, json, "test"));
    assert_ok(vla_net_init(&x->net, &c, NULL));
    x->net.params = x->params = test_params(&x->net, 4);
    ragged_make(&x->g, &r, &c, SEQS, TEXTS);
    x->n_mean = (int)(c.chunk * c.action);
    x->mean = zeros(SEQS * x->n_mean);
    x->value = zeros(SEQS);
    x->d_mean = normals(&r, SEQS * x->n_mean, 1);
    x->d_value = normals(&r, SEQS, 1);
}

static void rig_free(struct rig *x)
{
    ragged_free(&x->g);
    vla_net_fini(&x->net);
    mem_free(x->params);
    mem_free(x->mean);
    mem_free(x->value);
    mem_free(x->d_mean);
    mem_free(x->d_value);
}

static struct vla_work *work(const struct rig *x, bool backward, bool padded, bool checkpoint)
{
    const struct vla_room room = {.seqs = SEQS,
                                  .images = SEQS * 3,
                                  .texts = SEQS * TEXTS,
                                  .backward = backward,
                                  .padded = padded,
                                  .checkpoint = checkpoint};
    struct vla_work *w;

    assert_ok(vla_work_create(&w, &x->net, &room));
    return w;
}

// mean and value of the whole batch in a workspace of another kind are the same to the bit.
static void check_same(const struct rig *x, struct vla_work *w)
{
    real mean[SEQS * 64], value[SEQS];

    assert_ok(vla_forward(&x->net, w, &x->g.b, mean, value));
    assert_memory_equal(mean, x->mean, (size_t)(SEQS * x->n_mean) * sizeof *mean);
    assert_memory_equal(value, x->value, sizeof value);
}

static void check_company(const char *json)
{
    struct rig x;
    struct vla_work *w;
    real mean[64], value[1];

    rig_make(&x, json);
    w = work(&x, true, false, false);
    assert_ok(vla_forward(&x.net, w, &x.g.b, x.mean, x.value));
    for (int s = 0; s < SEQS; s++) {
        int cu[4];
        const struct vla_batch one = one_of(&x.g.b, &x.net.c, s, cu);

        assert_ok(vla_forward(&x.net, w, &one, mean, value));
        assert_memory_equal(mean, x.mean + s * x.n_mean, (size_t)x.n_mean * sizeof *mean);
        assert_memory_equal(value, x.value + s, sizeof value);
    }
    vla_work_destroy(w);
    for (int way = 1; way < 8; way++) {
        if (way & 2 && x.net.c.keep < 100)
            continue; // not padded
        w = work(&x, way & 1, way & 2, way & 4);
        check_same(&x, w);
        vla_work_destroy(w);
    }
    rig_free(&x);
}

static void a_sequence_gives_the_same_bits_in_any_company(void **state)
{
    (void)state;
    check_company(VLA_TEST_JSON);
    check_company(VLA_TEST_JSON_PRUNED);
    check_company(VLA_TEST_JSON_FLOW);
    check_company("vla-tiny");
}

static void check_gradients(const char *json)
{
    struct rig x;
    real *grad[4], *alone, mean[64], value[1];
    int64_t n;
    struct vla_work *w;

    rig_make(&x, json);
    n = x.net.t.n_param;
    alone = zeros(n);
    for (int way = 0; way < 4; way++) {
        const bool padded = way & 1 && x.net.c.keep == 100;

        grad[way] = zeros(n);
        w = work(&x, true, padded, way & 2);
        assert_ok(vla_forward(&x.net, w, &x.g.b, x.mean, x.value));
        vla_backward(&x.net, w, &x.g.b, x.d_mean, x.d_value, grad[way]);
        vla_work_destroy(w);
    }
    assert_true(distance(alone, grad[0], n) == 1); // it is not zero
    for (int way = 1; way < 4; way++)
        assert_memory_equal(grad[way], grad[0], (size_t)n * sizeof(real));
    w = work(&x, true, false, false);
    for (int s = 0; s < SEQS; s++) {
        int cu[4];
        const struct vla_batch one = one_of(&x.g.b, &x.net.c, s, cu);

        assert_ok(vla_forward(&x.net, w, &one, mean, value));
        vla_backward(&x.net, w, &one, x.d_mean + s * x.n_mean, x.d_value + s, alone);
    }
    assert_memory_equal(alone, grad[0], (size_t)n * sizeof(real));
    vla_work_destroy(w);
    mem_free(alone);
    for (int way = 0; way < 4; way++)
        mem_free(grad[way]);
    rig_free(&x);
}

static void packed_padded_and_single_gradients_agree(void **state)
{
    (void)state;
    check_gradients(VLA_TEST_JSON);
    check_gradients(VLA_TEST_JSON_PRUNED);
    check_gradients(VLA_TEST_JSON_FLOW);
    check_gradients("vla-tiny");
}

// The suffix alone at other noisy actions gives the bits of a whole pass at them, also the other
// way round: what was computed last leaves nothing behind.
static void a_flow_goes_on_from_what_it_has_seen(void **state)
{
    struct rig x;
    struct vla_work *w;
    real *noisy, *got;
    struct rng r = rng_make(8, RNG_TEST, 0, 0, 0);
    double time[SEQS];
    struct vla_batch there;

    (void)state;
    rig_make(&x, VLA_TEST_JSON_FLOW);
    noisy = normals(&r, SEQS * x.n_mean, 1);
    got = zeros(SEQS * x.n_mean);
    for (int s = 0; s < SEQS; s++)
        time[s] = rng_unit(&r);
    there = x.g.b;
    there.noisy = noisy;
    there.time = time;
    w = work(&x, false, false, false);
    assert_ok(vla_forward(&x.net, w, &there, x.mean, x.value));
    assert_ok(vla_forward(&x.net, w, &x.g.b, got, x.value));
    assert_true(distance(got, x.mean, SEQS * x.n_mean) > 1e-3);
    vla_again(&x.net, w, &there, got);
    assert_memory_equal(got, x.mean, (size_t)(SEQS * x.n_mean) * sizeof *got);
    assert_ok(vla_forward(&x.net, w, &x.g.b, x.mean, x.value));
    vla_again(&x.net, w, &there, got);
    vla_again(&x.net, w, &x.g.b, got);
    assert_memory_equal(got, x.mean, (size_t)(SEQS * x.n_mean) * sizeof *got);
    there.time = NULL;
    assert_fails(vla_forward(&x.net, w, &there, x.mean, x.value), ST_INVAL, "times");
    vla_work_destroy(w);
    mem_free(noisy);
    mem_free(got);
    rig_free(&x);
}

static void memory_is_known_before_and_not_taken_on_the_way(void **state)
{
    struct rig x;
    struct vla_work *w;
    real *grad;
    int64_t plain, kept, calls;
    struct vla_room room = {.seqs = SEQS, .images = 18, .texts = 42, .backward = true};

    (void)state;
    rig_make(&x, "vla-tiny");
    plain = vla_work_bytes(&x.net.c, &room);
    room.checkpoint = true;
    kept = vla_work_bytes(&x.net.c, &room);
    print_message("%.1f MB, with checkpoints %.1f MB\n", (double)plain / 1e6, (double)kept / 1e6);
    assert_true(kept < plain * 2 / 3);
    room.backward = room.checkpoint = false;
    assert_true(vla_work_bytes(&x.net.c, &room) < kept);
    grad = zeros(x.net.t.n_param);
    w = work(&x, true, false, false);
    calls = mem_calls();
    for (int i = 0; i < 2; i++) {
        assert_ok(vla_forward(&x.net, w, &x.g.b, x.mean, x.value));
        vla_backward(&x.net, w, &x.g.b, x.d_mean, x.d_value, grad);
    }
    assert_int_equal(mem_calls(), calls);
    vla_work_destroy(w);
    mem_free(grad);
    rig_free(&x);
}

static void faults_are_named(void **state)
{
    struct rig x;
    struct vla_work *w;
    struct vla_room room = {.seqs = 2, .images = 3, .texts = 4};
    const int cu_falls[] = {0, 2, 1}, cu_late[] = {1, 1, 1}, cu_many[] = {0, 2, 4};
    const int cu_two[] = {0, 1, 2}, cu_none[] = {0, 0, 0}, wrong[] = {1, 99};
    struct vla_batch b;

    (void)state;
    rig_make(&x, VLA_TEST_JSON);
    assert_ok(vla_work_create(&w, &x.net, &room));
    b = x.g.b;
    assert_fails(vla_forward(&x.net, w, &b, x.mean, x.value), ST_INVAL, "sequences");
    b.n_seq = 2;
    b.cu_image = b.cu_text = cu_falls;
    assert_fails(vla_forward(&x.net, w, &b, x.mean, x.value), ST_INVAL, "fall from 2 to 1");
    b.cu_image = cu_late;
    assert_fails(vla_forward(&x.net, w, &b, x.mean, x.value), ST_INVAL, "begin with 1");
    b.cu_image = cu_many;
    b.cu_text = cu_none;
    assert_fails(vla_forward(&x.net, w, &b, x.mean, x.value), ST_INVAL, "room for 3");
    b.cu_image = cu_two;
    b.camera = wrong;
    assert_fails(vla_forward(&x.net, w, &b, x.mean, x.value), ST_INVAL, "camera 1");
    b.camera = x.g.camera;
    b.cu_text = cu_two;
    b.text = wrong;
    assert_fails(vla_forward(&x.net, w, &b, x.mean, x.value), ST_INVAL, "token 1");
    vla_work_destroy(w);
    room.padded = true;
    x.net.c.keep = 50;
    assert_ok(vla_work_create(&w, &x.net, &room));
    assert_fails(vla_forward(&x.net, w, &b, x.mean, x.value), ST_INVAL, "50 percent");
    vla_work_destroy(w);
    room.seqs = 0;
    assert_fails(vla_work_create(&w, &x.net, &room), ST_INVAL, "0 sequences");
    rig_free(&x);
}

static void memory_that_runs_out_is_reported(void **state)
{
    struct vla_config c;
    struct vla_net net;
    struct vla_work *w = NULL;
    const struct vla_room room = {.seqs = 1, .images = 1, .texts = 1, .backward = true};
    int64_t n = 0;

    (void)state;
    assert_ok(vla_config_parse(&c, VLA_TEST_JSON, "test"));
    assert_ok(vla_net_init(&net, &c, NULL));
    for (;; n++) {
        mem_fail_after(n);
        if (vla_work_create(&w, &net, &room) == ST_OK)
            break;
        assert_null(w);
    }
    mem_fail_after(-1);
    assert_int_equal(n, 2);
    vla_work_destroy(w);
    vla_work_destroy(NULL);
    vla_net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(a_sequence_gives_the_same_bits_in_any_company),
        leak_test(packed_padded_and_single_gradients_agree),
        leak_test(a_flow_goes_on_from_what_it_has_seen),
        leak_test(memory_is_known_before_and_not_taken_on_the_way),
        leak_test(faults_are_named),
        leak_test(memory_that_runs_out_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
