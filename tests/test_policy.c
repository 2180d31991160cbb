#include "tests/testing.h"

#include "nn/policy.h"

#define N_OBS 17
#define N_ACT 6
#define N_ROW 33

static double obs[N_ROW][N_OBS];
static struct policy_row rows[N_ROW];

static struct weights *make_weights(uint64_t seed)
{
    struct model_shape shape;
    struct weights *w;

    assert_ok(model_shape_parse(&shape, N_OBS, N_ACT, "64,64"));
    assert_ok(weights_create(&w, &shape));
    assert_ok(model_init(&shape, seed, -0.5, w->params));
    for (int i = 0; i < N_OBS; i++) {
        w->obs_mean[i] = 0.1 * i;
        w->obs_var[i] = 1 + 0.2 * i;
    }
    return w;
}

static void make_rows(void)
{
    struct rng rng = rng_make(5, RNG_TEST, 0, 0, 0);
    int i, k;

    for (i = 0; i < N_ROW; i++) {
        for (k = 0; k < N_OBS; k++)
            obs[i][k] = rng_normal(&rng);
        rows[i] = (struct policy_row){obs[i], 3, (uint64_t)i, 2, (uint64_t)(100 + i), NULL, NULL};
    }
}

static void a_row_does_not_depend_on_its_batch(void **state)
{
    struct weights *w = make_weights(1);
    struct policy *small, *big;
    float alone[N_ROW][N_ACT], logp_alone[N_ROW], action[N_ROW][N_ACT], logp[N_ROW];
    int n, i;

    (void)state;
    make_rows();
    assert_ok(policy_create(&small, &w->shape, 1));
    assert_ok(policy_create(&big, &w->shape, N_ROW));
    for (i = 0; i < N_ROW; i++)
        assert_ok(policy_act(small, w, &rows[i], 1, false, alone[i], &logp_alone[i]));
    for (n = 1; n <= N_ROW; n++) {
        i = N_ROW - n;
        assert_ok(policy_act(big, w, &rows[i], n, false, action[0], logp));
        assert_memory_equal(action, alone[i], (size_t)n * sizeof *action);
        assert_memory_equal(logp, &logp_alone[i], (size_t)n * sizeof *logp);
    }
    policy_destroy(small);
    policy_destroy(big);
    weights_drop(w);
}

// The network by plain loops, in double.
static void reference_mean(const struct weights *w, const double *raw, double *out)
{
    struct model_table t;
    double in[64], next[64];
    int l, i, k;

    model_table_make(&t, &w->shape);
    for (k = 0; k < N_OBS; k++)
        in[k] = ((double)(float)raw[k] - w->obs_mean[k]) / sqrt(w->obs_var[k]);
    for (l = 0; l < 3; l++) {
        const struct model_piece *p = &t.piece[2 * l];

        for (i = 0; i < p->rows; i++) {
            next[i] = (double)w->params[p[1].offset + i];
            for (k = 0; k < p->cols; k++)
                next[i] += (double)w->params[p->offset + i * p->cols + k] * in[k];
            if (l < 2)
                next[i] = tanh(next[i]);
        }
        memcpy(in, next, sizeof in);
    }
    memcpy(out, in, N_ACT * sizeof *out);
}

static void greedy_is_the_mean_and_logp_is_its_density(void **state)
{
    struct weights *w = make_weights(2);
    float action[N_ROW][N_ACT], logp[N_ROW], sampled[N_ACT], sampled_logp;
    struct policy *p;
    double mean[N_ACT], want;
    int i, k;

    (void)state;
    make_rows();
    assert_ok(policy_create(&p, &w->shape, N_ROW));
    assert_ok(policy_act(p, w, rows, N_ROW, true, action[0], logp));
    for (i = 0; i < N_ROW; i++) {
        reference_mean(w, obs[i], mean);
        for (k = 0; k < N_ACT; k++)
            assert_close(action[i][k], mean[k], 1e-5, 1e-7);
        // at the mean: the peak of N(0, exp(-0.5))^6
        assert_close(logp[i], -N_ACT * (0.91893853320467274 - 0.5), 1e-6, 0);
        assert_ok(policy_act(p, w, &rows[i], 1, false, sampled, &sampled_logp));
        want = 0;
        for (k = 0; k < N_ACT; k++) {
            double z = ((double)sampled[k] - mean[k]) / exp(-0.5);

            want -= 0.5 * z * z + 0.91893853320467274 - 0.5;
        }
        assert_close(sampled_logp, want, 1e-5, 1e-6);
    }
    policy_destroy(p);
    weights_drop(w);
}

static void noise_is_standard_normal_and_keyed(void **state)
{
    struct weights *w = make_weights(3);
    struct policy_row row = {obs[0], 1, 2, 3, 0, NULL, NULL};
    float mean[N_ACT], a[N_ACT], b[N_ACT];
    double sum = 0, square = 0;
    struct policy *p;
    int i, k, n = 4000;

    (void)state;
    make_rows();
    assert_ok(policy_create(&p, &w->shape, 1));
    assert_ok(policy_act(p, w, &row, 1, true, mean, NULL));
    for (i = 0; i < n; i++) {
        row.step = (uint64_t)i;
        assert_ok(policy_act(p, w, &row, 1, false, a, NULL));
        for (k = 0; k < N_ACT; k++) {
            double z = (double)(a[k] - mean[k]) / exp(-0.5);

            sum += z;
            square += z * z;
        }
    }
    n *= N_ACT;
    assert_close(sum / n, 0, 0, 4 / sqrt(n));
    assert_close(square / n, 1, 0, 4 * sqrt(2.0 / n));
    assert_ok(policy_act(p, w, &row, 1, false, b, NULL));
    assert_memory_equal(a, b, sizeof a); // the same key, the same action
    row.episode++;
    assert_ok(policy_act(p, w, &row, 1, false, b, NULL));
    assert_memory_not_equal(a, b, sizeof a);
    policy_destroy(p);
    weights_drop(w);
}

static void new_weights_take_effect(void **state)
{
    struct weights *w1 = make_weights(1), *w2 = make_weights(2);
    float a[N_ACT], b[N_ACT], c[N_ACT];
    struct policy *p, *fresh;

    (void)state;
    make_rows();
    assert_ok(policy_create(&p, &w1->shape, 1));
    assert_ok(policy_create(&fresh, &w1->shape, 1));
    assert_ok(policy_act(p, w1, rows, 1, true, a, NULL));
    assert_ok(policy_act(p, w2, rows, 1, true, b, NULL));
    assert_ok(policy_act(fresh, w2, rows, 1, true, c, NULL));
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_equal(b, c, sizeof b);
    policy_destroy(p);
    policy_destroy(fresh);
    weights_drop(w1);
    weights_drop(w2);
}

static void bad_input_is_named(void **state)
{
    struct weights *w = make_weights(1), *other;
    struct model_shape shape;
    float action[2 * N_ACT];
    struct policy *p;

    (void)state;
    make_rows();
    assert_ok(policy_create(&p, &w->shape, 2));
    obs[1][4] = NAN;
    assert_fails(policy_act(p, w, rows, 2, true, action, NULL), ST_INVAL, "row 1: observation 4");
    obs[1][4] = 1e300; // no float32
    assert_fails(policy_act(p, w, rows, 2, true, action, NULL), ST_INVAL, "row 1: observation 4");
    assert_fails(policy_act(p, w, rows, 3, true, action, NULL), ST_INVAL, "at most 2");
    assert_ok(model_shape_parse(&shape, N_OBS, N_ACT, "64,32"));
    assert_ok(weights_create(&other, &shape));
    assert_fails(policy_act(p, other, rows, 1, true, action, NULL), ST_INVAL, "hidden layers");
    assert_fails(policy_create(&p, &shape, 0), ST_INVAL, "0 rows");
    policy_destroy(p);
    weights_drop(w);
    weights_drop(other);
}

static void out_of_memory_is_reported(void **state)
{
    struct weights *w = make_weights(1);
    struct policy *p = NULL;
    enum status st;
    int n;

    (void)state;
    for (n = 0;; n++) {
        mem_fail_after(n);
        st = policy_create(&p, &w->shape, 4);
        mem_fail_after(-1);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_NOMEM);
        assert_null(p);
    }
    assert_true(n > 4);
    policy_destroy(p);
    policy_destroy(NULL);
    weights_drop(w);
}

static void warm_acting_allocates_nothing(void **state)
{
    struct weights *w = make_weights(1);
    float action[N_ROW * N_ACT], logp[N_ROW];
    struct policy *p;
    int64_t calls;
    int i;

    (void)state;
    make_rows();
    assert_ok(policy_create(&p, &w->shape, N_ROW));
    calls = mem_calls();
    for (i = 0; i < 1000; i++)
        assert_ok(policy_act(p, w, rows, 1 + i % N_ROW, false, action, logp));
    assert_int_equal(mem_calls(), calls);
    policy_destroy(p);
    weights_drop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(a_row_does_not_depend_on_its_batch),
        leak_test(greedy_is_the_mean_and_logp_is_its_density),
        leak_test(noise_is_standard_normal_and_keyed),
        leak_test(new_weights_take_effect),
        leak_test(bad_input_is_named),
        leak_test(out_of_memory_is_reported),
        leak_test(warm_acting_allocates_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
