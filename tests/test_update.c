#include "tests/toy_chunks.h"

#include "learner/gae.h"
#include "learner/pass.h"
#include "learner/update.h"
#include "nn/adamw.h"
#include "nn/obsnorm.h"

#define N_CHUNK 24

struct options {
    struct update_config u;
};

static const struct opt table[] = {UPDATE_OPTS(struct options, u), {0}};

static struct toy_chunk chunks[N_CHUNK];
static const struct chunk *list[N_CHUNK];

static struct update_config defaults(void)
{
    struct options o;

    assert_ok(opts_defaults(table, &o));
    return o.u;
}

// One window's chunks by the updater's present policy.
static void act(const struct weights *w, bool all_kinds)
{
    struct policy *p;

    assert_ok(policy_create(&p, &w->shape, 1));
    for (uint32_t i = 0; i < N_CHUNK; i++) {
        toy_make(&chunks[i], p, w, i, w->version, all_kinds);
        list[i] = &chunks[i].c;
    }
    policy_destroy(p);
}

static double mean_reward(void)
{
    double sum = 0;

    for (int i = 0; i < N_CHUNK; i++)
        for (int t = 0; t < TOY_T; t++)
            sum += (double)chunks[i].reward[t] / (N_CHUNK * TOY_T);
    return sum;
}

static struct updater *make(const struct update_config *cfg)
{
    struct weights *w = toy_weights("16,16");
    struct updater *u;

    assert_ok(updater_create(&u, cfg, w, 100));
    weights_drop(w);
    return u;
}

// `n` windows with fresh data each; the last one's statistics. The weights are the caller's.
static struct weights *run(struct updater *u, int n, bool one_by_one, struct update_stats *stats)
{
    struct weights *w = NULL;
    int i, k;

    for (i = 0; i < n; i++) {
        weights_drop(w);
        act(updater_weights(u), true);
        if (one_by_one)
            for (k = 0; k < N_CHUNK; k++)
                assert_ok(updater_accumulate(u, list[k]));
        else
            assert_ok(updater_accumulate_many(u, list, N_CHUNK));
        assert_ok(updater_step(u, &w, stats));
    }
    return w;
}

static void assert_same(const struct weights *a, const struct weights *b)
{
    assert_int_equal(a->version, b->version);
    assert_memory_equal(a->params, b->params, (size_t)a->n_param * sizeof *a->params);
    assert_memory_equal(a->obs_mean, b->obs_mean, TOY_OBS * sizeof *a->obs_mean);
    assert_memory_equal(a->obs_var, b->obs_var, TOY_OBS * sizeof *a->obs_var);
    assert_true(a->ret_mean == b->ret_mean && a->ret_std == b->ret_std);
}

static void fresh_data_has_ratio_one(void **state)
{
    struct update_config cfg = defaults();
    struct update_stats s;
    struct updater *u;

    (void)state;
    cfg.epochs = 1;
    u = make(&cfg);
    weights_drop(run(u, 3, false, &s));
    assert_true(s.weight_mean == 1 && s.weight_max == 1);
    assert_true(s.approx_kl == 0 && s.clip_fraction == 0 && s.lag_max == 0);
    assert_int_equal(s.steps, 1);
    assert_int_equal(s.chunks, N_CHUNK);
    updater_destroy(u);
}

static void threads_and_lists_change_nothing(void **state)
{
    static const int64_t epochs[] = {1, 3};
    struct update_config cfg = defaults();
    struct update_stats s;
    int i, threads;

    (void)state;
    for (i = 0; i < 2; i++) {
        struct weights *want, *got;
        struct updater *u;

        cfg.epochs = epochs[i];
        cfg.minibatches = 3;
        cfg.threads = 1;
        u = make(&cfg);
        want = run(u, 3, true, &s);
        updater_destroy(u);
        for (threads = 1; threads <= 5; threads += 2) {
            cfg.threads = threads;
            u = make(&cfg);
            got = run(u, 3, false, &s);
            assert_same(got, want);
            weights_drop(got);
            updater_destroy(u);
        }
        weights_drop(want);
    }
}

static void order_changes_no_more_than_rounding(void **state)
{
    struct update_config cfg = defaults();
    struct rng rng = rng_make(9, RNG_TEST, 0, 0, 0);
    struct weights *want = NULL, *got;
    struct update_stats s;
    int round, i;

    (void)state;
    cfg.epochs = 1;
    cfg.adam_eps = 1; // Adam divides by the gradient's size: keep its noise from growing
    for (round = 0; round < 10; round++) {
        struct updater *u = make(&cfg);

        weights_drop(run(u, 1, false, &s));
        act(updater_weights(u), true);
        for (i = N_CHUNK - 1; i > 0 && round > 0; i--) {
            uint32_t k = rng_below(&rng, (uint32_t)i + 1);
            const struct chunk *held = list[i];

            list[i] = list[k];
            list[k] = held;
        }
        assert_ok(updater_accumulate_many(u, list, 7));
        assert_ok(updater_accumulate_many(u, list + 7, N_CHUNK - 7));
        assert_ok(updater_step(u, &got, &s));
        for (i = 0; i < got->n_param && want; i++)
            assert_close(got->params[i], want->params[i], 1e-5, 1e-7);
        if (want)
            weights_drop(got);
        else
            want = got;
        updater_destroy(u);
    }
    weights_drop(want);
}

// What a step that is no sample did, and what was seen after an error, reaches nothing.
static void masked_steps_reach_nothing(void **state)
{
    struct update_config cfg = defaults();
    struct weights *before, *after;
    struct update_stats s;
    struct updater *u;
    int i, t, n = 0;

    (void)state;
    cfg.epochs = 2;
    u = make(&cfg);
    before = run(u, 1, false, &s);
    updater_destroy(u);
    u = make(&cfg);
    for (i = 0; i < N_CHUNK; i++)
        for (t = 0; t < TOY_T; t++)
            if (chunks[i].flags[t] & (CHUNK_SKIP | CHUNK_ERROR)) {
                chunks[i].reward[t] = 1e6f;
                chunks[i].logp[t] = -77;
                chunks[i].action[t * TOY_ACT] = 123;
                n++;
            }
    assert_true(n > 10);
    assert_int_equal(s.samples, N_CHUNK * TOY_T - n);
    assert_ok(updater_accumulate_many(u, list, N_CHUNK));
    assert_int_equal(updater_samples(u), N_CHUNK * TOY_T - n);
    assert_ok(updater_step(u, &after, &s));
    assert_same(before, after);
    weights_drop(before);
    weights_drop(after);
    updater_destroy(u);
}

// --- one step from the pieces --------------------------------------------------------------------

// Gradient sums of the window in the order of the chunks, and the number of samples.
static int reference_gradient(const struct update_config *cfg, const struct weights *w, float *grad)
{
    struct loss_config loss = {cfg->clip, cfg->value_coef, cfg->entropy_coef, cfg->weight_cap};
    static float x[(2 * TOY_T + 1) * REAL_LD(TOY_OBS)];
    struct obsnorm norm = {0};
    struct nets nets = {0};
    struct pass pass = {0};
    int i, t, n = 0;

    assert_ok(nets_init(&nets, &w->shape));
    assert_ok(pass_init(&pass, &nets));
    assert_ok(obsnorm_init(&norm, TOY_OBS));
    obsnorm_set(&norm, w->obs_mean, w->obs_var);
    nets_pack(&nets, w->params);
    for (i = 0; i < N_CHUNK; i++) {
        const struct chunk *c = list[i];
        float value[2 * TOY_T + 1], adv[TOY_T], ret[TOY_T], weight, logp_ref;
        struct gae_input in = {TOY_T,    cfg->gamma, cfg->gae_lambda,  c->reward,
                               c->flags, value,      value + TOY_T + 1};
        struct loss_sums sums = {0};
        uint8_t valid[TOY_T];

        obsnorm_rows(&norm, c->obs, TOY_T, x);
        obsnorm_rows(&norm, c->last_obs, 1, x + TOY_T * REAL_LD(TOY_OBS));
        obsnorm_rows(&norm, c->final_obs, (int)c->head.n_truncated,
                     x + (TOY_T + 1) * REAL_LD(TOY_OBS));
        pass_value(&pass, &nets, x, NULL, TOY_T + 1 + (int)c->head.n_truncated, value);
        n += gae_run(&in, adv, ret, valid);
        for (t = 0; t < TOY_T; t++) {
            struct samples s = {1,           x + t * REAL_LD(TOY_OBS),
                                NULL,        c->action + t * TOY_ACT,
                                &adv[t],     &ret[t],
                                &c->logp[t], &weight,
                                &logp_ref};

            if (valid[t])
                pass_run(&pass, &nets, &loss, &s, true, false, grad, &sums);
        }
    }
    obsnorm_fini(&norm);
    pass_fini(&pass);
    nets_fini(&nets);
    return n;
}

static void a_step_is_the_clipped_mean_gradient_through_adamw(void **state)
{
    struct update_config cfg = defaults();
    struct weights *w = toy_weights("16,16"), *got;
    float *grad = mem_alloc((size_t)w->n_param, sizeof *grad);
    float *m = mem_alloc((size_t)w->n_param, sizeof *m),
          *v = mem_alloc((size_t)w->n_param, sizeof *v);
    struct adamw a;
    struct update_stats s;
    struct model_table t;
    struct updater *u;
    double norm = 0;
    int64_t i;
    int n;

    (void)state;
    cfg.epochs = 1;
    cfg.normalize_advantage = cfg.normalize_returns = cfg.normalize_obs = false;
    cfg.max_grad_norm = 0.3;
    cfg.adam_eps = 1e-2;
    a = (struct adamw){cfg.lr, cfg.beta1, cfg.beta2, cfg.adam_eps, 0};
    assert_ok(updater_create(&u, &cfg, w, 100));
    act(w, true);
    assert_ok(updater_accumulate_many(u, list, N_CHUNK));
    assert_ok(updater_step(u, &got, &s));
    n = reference_gradient(&cfg, w, grad);
    assert_int_equal(s.samples, n);
    model_table_make(&t, &w->shape);
    for (i = t.n_policy; i < w->n_param; i++)
        norm += (double)grad[i] * (double)grad[i];
    norm = sqrt(norm) / n;
    assert_true(norm > cfg.max_grad_norm); // the value network's is clipped
    adamw_step(&a, 1, grad + t.n_policy, cfg.max_grad_norm / norm / n, t.n_param - t.n_policy,
               w->params + t.n_policy, m + t.n_policy, v + t.n_policy);
    norm = 0;
    for (i = 0; i < t.n_policy; i++)
        norm += (double)grad[i] * (double)grad[i];
    norm = sqrt(norm) / n;
    adamw_step(&a, 1, grad, fmin(1, cfg.max_grad_norm / norm) / n, t.n_policy, w->params, m, v);
    for (i = 0; i < w->n_param; i++)
        assert_close(got->params[i], w->params[i], 1e-5, 2e-7);
    assert_int_equal(got->version, 1);
    mem_free(grad);
    mem_free(m);
    mem_free(v);
    weights_drop(w);
    weights_drop(got);
    updater_destroy(u);
}

// --- scales --------------------------------------------------------------------------------------

static void normalisers_follow_the_data_and_predictions_stay(void **state)
{
    struct update_config cfg = defaults();
    struct update_stats s;
    struct updater *u;
    struct weights *w, *start = toy_weights("16,16");
    double mean = 0;
    float before[N_CHUNK], after[N_CHUNK], *x = mem_alloc(REAL_LD(TOY_OBS), sizeof *x);
    struct nets nets = {0};
    struct pass pass = {0};
    int i, t, n = 0;

    (void)state;
    cfg.lr = cfg.lr_final = 0; // only the scales move
    cfg.epochs = 2;
    u = make(&cfg);
    w = run(u, 1, false, &s);
    assert_true(w->ret_std != 1 && w->ret_mean != 0);
    for (i = 0; i < N_CHUNK; i++)
        for (t = 0; t < TOY_T; t++)
            if (!(chunks[i].flags[t] & (CHUNK_SKIP | CHUNK_ERROR))) {
                mean += (double)chunks[i].obs[t * TOY_OBS + 2];
                n++;
            }
    assert_close(w->obs_mean[2], mean / n, 1e-9, 0);
    assert_close(w->obs_var[2], 9, 0.2, 0);
    assert_close(w->obs_count, n, 0, 0);
    assert_ok(nets_init(&nets, &w->shape));
    assert_ok(pass_init(&pass, &nets));
    for (i = 0; i < N_CHUNK; i++) {
        x[0] = (float)i;
        nets_pack(&nets, start->params);
        pass_value(&pass, &nets, x, NULL, 1, &before[i]);
        nets_pack(&nets, w->params);
        pass_value(&pass, &nets, x, NULL, 1, &after[i]);
        assert_close(w->ret_mean + w->ret_std * (double)after[i], before[i], 1e-5, 1e-5);
    }
    mem_free(x);
    pass_fini(&pass);
    nets_fini(&nets);
    weights_drop(start);
    weights_drop(w);
    updater_destroy(u);
}

// The scale of the rewards is taken out: a thousandfold reward gives the same policy.
static void the_scale_of_rewards_does_not_matter(void **state)
{
    struct update_config cfg = defaults();
    struct weights *w[2];
    struct update_stats s;
    struct updater *u[2];
    int i, k, t, window;

    (void)state;
    cfg.epochs = 3;
    for (i = 0; i < 2; i++)
        u[i] = make(&cfg);
    for (window = 0; window < 3; window++)
        for (i = 0; i < 2; i++) {
            act(updater_weights(u[i]), true);
            for (k = 0; k < N_CHUNK && i == 1; k++)
                for (t = 0; t < TOY_T; t++)
                    chunks[k].reward[t] *= 1024;
            assert_ok(updater_accumulate_many(u[i], list, N_CHUNK));
            assert_ok(updater_step(u[i], &w[i], &s));
            if (window < 2)
                weights_drop(w[i]);
        }
    // at the start the value network's predictions are not on the rewards' scale: similar, not
    // equal
    for (i = 0; i < 300; i++)
        assert_close(w[0]->params[i], w[1]->params[i], 0, 0.02);
    for (i = 0; i < 2; i++) {
        weights_drop(w[i]);
        updater_destroy(u[i]);
    }
}

// --- learning ------------------------------------------------------------------------------------

// The best mean reward is 1 minus the noise's variance.
static void learns(struct update_config *cfg, int lag, int windows)
{
    struct weights *held[8];
    struct update_stats s;
    struct updater *u = make(cfg);
    double first = 0, last = 0, weight_max = 0;
    int i;

    for (i = 0; i < 8; i++)
        held[i] = weights_hold((struct weights *)updater_weights(u));
    for (i = 0; i < windows; i++) {
        // act by the policy of `lag` versions ago
        act(held[(i + 8 - lag) % 8], false);
        first = i == 0 ? mean_reward() : first;
        last = mean_reward();
        assert_ok(updater_accumulate_many(u, list, N_CHUNK));
        weights_drop(held[(i + 1) % 8]);
        assert_ok(updater_step(u, &held[(i + 1) % 8], &s));
        if (i > lag)
            assert_close(s.lag_mean, lag, 0, 0);
        weight_max = fmax(weight_max, s.weight_max);
    }
    assert_true(first < 0.3);
    assert_true(last > first + 0.3);
    assert_true(lag == 0 ? weight_max == 1 : weight_max > 1 && weight_max <= cfg->weight_cap);
    for (i = 0; i < 8; i++)
        weights_drop(held[i]);
    updater_destroy(u);
}

static void the_streamed_step_learns(void **state)
{
    struct update_config cfg = defaults();

    (void)state;
    cfg.epochs = 1;
    cfg.lr = cfg.lr_final = 0.02;
    cfg.gamma = 0;
    learns(&cfg, 0, 60);
    learns(&cfg, 1, 60);
    learns(&cfg, 4, 60);
}

static void replayed_windows_learn_faster(void **state)
{
    struct update_config cfg = defaults();

    (void)state;
    cfg.epochs = 6;
    cfg.minibatches = 4;
    cfg.lr = cfg.lr_final = 0.003;
    cfg.gamma = 0;
    learns(&cfg, 0, 15);
    learns(&cfg, 1, 20);
}

static void replay_stops_at_the_divergence_allowed(void **state)
{
    struct update_config cfg = defaults();
    struct update_stats s;
    struct updater *u;

    (void)state;
    cfg.epochs = 10;
    cfg.minibatches = 4;
    cfg.lr = 0.003;
    u = make(&cfg);
    weights_drop(run(u, 1, false, &s));
    assert_int_equal(s.steps, 37);
    assert_true(s.approx_kl > 0.01 && s.clip_fraction > 0);
    updater_destroy(u);
    cfg.target_kl = 0.01;
    u = make(&cfg);
    weights_drop(run(u, 1, false, &s));
    assert_true(s.steps > 1 && s.steps < 37);
    updater_destroy(u);
}

static void the_deviation_stays_in_its_range(void **state)
{
    static const double bonus[] = {100, -100};
    struct update_config cfg = defaults();
    struct update_stats s;
    struct model_table t;
    int i;

    (void)state;
    cfg.lr = cfg.lr_final = 1;
    cfg.epochs = 3;
    for (i = 0; i < 2; i++) {
        struct updater *u;
        struct weights *w;

        cfg.entropy_coef = bonus[i];
        u = make(&cfg);
        w = run(u, 2, false, &s);
        model_table_make(&t, &w->shape);
        assert_close(w->params[t.piece[t.i_log_std].offset],
                     i == 0 ? UPDATE_LOG_STD_MAX : UPDATE_LOG_STD_MIN, 0, 0);
        weights_drop(w);
        updater_destroy(u);
    }
}

// --- edges ---------------------------------------------------------------------------------------

static void published_weights_never_change(void **state)
{
    struct update_config cfg = defaults();
    struct weights *first, *copy;
    struct update_stats s;
    struct updater *u;

    (void)state;
    cfg.epochs = 2;
    u = make(&cfg);
    first = run(u, 1, false, &s);
    assert_ptr_equal(first, updater_weights(u));
    assert_ok(weights_copy(&copy, first));
    weights_drop(run(u, 2, false, &s));
    assert_same(first, copy);
    assert_int_equal(updater_weights(u)->version, 3);
    weights_drop(first);
    weights_drop(copy);
    updater_destroy(u);
}

static void an_empty_window_counts_the_version_only(void **state)
{
    struct update_config cfg = defaults();
    struct weights *w, *before;
    struct update_stats s;
    struct updater *u = make(&cfg);
    int t;

    (void)state;
    assert_ok(weights_copy(&before, updater_weights(u)));
    act(before, true);
    for (t = 0; t < TOY_T; t++)
        chunks[0].flags[t] = CHUNK_SKIP;
    chunks[0].c.head.n_truncated = 0;
    assert_ok(updater_accumulate(u, list[0]));
    assert_int_equal(updater_samples(u), 0);
    assert_ok(updater_step(u, &w, &s));
    assert_int_equal(w->version, 1);
    assert_int_equal(s.steps, 0);
    assert_memory_equal(w->params, before->params, (size_t)w->n_param * sizeof *w->params);
    weights_drop(w);
    weights_drop(before);
    updater_destroy(u);
}

static void bad_chunks_and_options_are_named(void **state)
{
    struct update_config cfg = defaults();
    struct weights *w = toy_weights("8");
    struct updater *u = make(&cfg), *none;

    (void)state;
    act(updater_weights(u), true);
    chunks[1].c.head.n_obs = 4;
    assert_fails(updater_accumulate_many(u, list, 2), ST_PROTO, "4 observations");
    chunks[1].c.head.n_obs = TOY_OBS;
    chunks[1].c.head.version_max = 1;
    assert_fails(updater_accumulate(u, list[1]), ST_PROTO, "version 1");
    cfg.threads = 99;
    assert_fails(updater_create(&none, &cfg, w, 1), ST_INVAL, "99 learner threads");
    cfg.threads = 1;
    cfg.epochs = 0;
    assert_fails(updater_create(&none, &cfg, w, 1), ST_INVAL, "0 epochs");
    weights_drop(w);
    updater_destroy(u);
}

static void a_gradient_that_is_not_finite_is_an_error(void **state)
{
    struct update_config cfg = defaults();
    struct update_stats s;
    struct updater *u;
    struct weights *w;
    int t;

    (void)state;
    cfg.normalize_advantage = cfg.normalize_returns = false;
    u = make(&cfg);
    act(updater_weights(u), true);
    for (t = 0; t < TOY_T; t++)
        chunks[0].reward[t] = 3e38f;
    assert_ok(updater_accumulate_many(u, list, N_CHUNK));
    assert_fails(updater_step(u, &w, &s), ST_INVAL, "not finite");
    updater_destroy(u);
}

static void warm_windows_allocate_only_their_weights(void **state)
{
    struct update_config cfg = defaults();
    struct update_stats s;
    struct updater *u;
    struct weights *w;
    int64_t calls;

    (void)state;
    cfg.epochs = 3;
    cfg.threads = 2;
    u = make(&cfg);
    weights_drop(run(u, 3, false, &s));
    act(updater_weights(u), true);
    calls = mem_calls();
    assert_ok(updater_accumulate_many(u, list, N_CHUNK));
    assert_int_equal(mem_calls(), calls);
    assert_ok(updater_step(u, &w, &s));
    assert_int_equal(mem_calls() - calls, 4);
    weights_drop(w);
    updater_destroy(u);
}

static void out_of_memory_is_reported(void **state)
{
    struct update_config cfg = defaults();
    struct weights *w = toy_weights("8"), *next = NULL;
    struct updater *u = NULL;
    struct update_stats s;
    enum status st;
    int n;

    (void)state;
    cfg.threads = 2;
    for (n = 0;; n++) {
        mem_fail_after(n);
        st = updater_create(&u, &cfg, w, 1);
        mem_fail_after(-1);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_NOMEM);
        assert_null(u);
    }
    act(w, true);
    for (n = 0;; n++) {
        mem_fail_after(n);
        st = updater_accumulate_many(u, list, N_CHUNK);
        mem_fail_after(-1);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_NOMEM);
    }
    assert_true(n > 5);
    mem_fail_after(1);
    st = updater_step(u, &next, &s);
    mem_fail_after(-1);
    assert_int_equal(st, ST_NOMEM);
    assert_null(next);
    updater_destroy(u);
    updater_destroy(NULL);
    weights_drop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(fresh_data_has_ratio_one),
        leak_test(threads_and_lists_change_nothing),
        leak_test(order_changes_no_more_than_rounding),
        leak_test(masked_steps_reach_nothing),
        leak_test(a_step_is_the_clipped_mean_gradient_through_adamw),
        leak_test(normalisers_follow_the_data_and_predictions_stay),
        leak_test(the_scale_of_rewards_does_not_matter),
        leak_test(the_streamed_step_learns),
        leak_test(replayed_windows_learn_faster),
        leak_test(replay_stops_at_the_divergence_allowed),
        leak_test(the_deviation_stays_in_its_range),
        leak_test(published_weights_never_change),
        leak_test(an_empty_window_counts_the_version_only),
        leak_test(bad_chunks_and_options_are_named),
        leak_test(a_gradient_that_is_not_finite_is_an_error),
        leak_test(warm_windows_allocate_only_their_weights),
        leak_test(out_of_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
