#include "tests/rl_testing.h"
#include "tests/wire_samples.h"

#include "common/base/rng.h"
#include "learner/actor.h"
#include "learner/chunk_gae.h"
#include "learner/scale.h"
#include "nn/gaussian.h"
#include "nn/policy.h"

#define OBS   3
#define ACT   2
#define CHUNK 3
#define WIDTH (ACT * CHUNK)
#define N_MAX 10 // decisions of an episode

static struct weights *make_weights(void)
{
    struct model_shape shape;
    struct weights *w;

    assert_ok(model_shape_parse(&shape, OBS, WIDTH, "8"));
    assert_ok(weights_create(&w, &shape));
    assert_ok(model_init(&shape, 3, -0.5, w->params));
    return w;
}

static const float *log_std_of(const struct weights *w)
{
    struct model_table t;

    model_table_make(&t, &w->shape);
    return w->params + t.piece[t.i_log_std].offset;
}

// An episode, number `index`, that `w` plays of a task without an env: what is seen is noise, and
// lengths vary. What was not executed holds `rest`.
static struct msg *play(const struct weights *w, uint64_t index, float rest, struct episode *out)
{
    static const struct join join = {.n_env = 1, .n_obs = OBS, .n_act = ACT, .chunk = CHUNK};
    static float obs[(N_MAX + 1) * OBS], mean[WIDTH], action[N_MAX * WIDTH], logp[N_MAX * CHUNK];
    static float reward[N_MAX * CHUNK], inv_std[WIDTH];
    static uint32_t executed[N_MAX];
    static uint64_t version[N_MAX];
    struct rng rng = rng_make(index, RNG_TEST, w->version, 0, 0);
    struct episode e = {.head = {.index = index,
                                 .n_decision = 1 + rng_below(&rng, N_MAX),
                                 .version_min = w->version,
                                 .version_max = w->version,
                                 .n_obs = OBS,
                                 .n_act = ACT,
                                 .chunk = CHUNK},
                        .version = version,
                        .obs = obs,
                        .action = action,
                        .logp = logp,
                        .reward = reward,
                        .executed = executed};
    struct policy *p;
    struct msg *m = NULL;

    assert_ok(policy_create(&p, &w->shape, 1));
    (void)gaussian_inv_std(log_std_of(w), WIDTH, inv_std);
    for (uint32_t i = 0; i < e.head.n_decision; i++) {
        double seen[OBS];
        struct policy_row row = {.obs = seen};

        for (int k = 0; k < OBS; k++)
            seen[k] = obs[(int)i * OBS + k] = (float)rng_normal(&rng);
        assert_ok(policy_act(p, w, &row, 1, true, mean, NULL));
        executed[i] = i + 1 < e.head.n_decision ? CHUNK : 1 + rng_below(&rng, CHUNK);
        version[i] = w->version;
        for (int d = 0; d < WIDTH; d++)
            action[(int)i * WIDTH + d] = mean[d] + (float)rng_normal(&rng) / inv_std[d];
        gaussian_parts(mean, WIDTH, action + i * WIDTH, 1, WIDTH, CHUNK, log_std_of(w), inv_std,
                       logp + i * CHUNK);
        memset(reward + i * CHUNK, 0, CHUNK * sizeof *reward);
        reward[i * CHUNK] = (float)(seen[0] > 0) + (float)(action[i * WIDTH] > 0);
        for (int k = (int)executed[i]; k < CHUNK; k++) {
            reward[(int)i * CHUNK + k] = rest;
            logp[(int)i * CHUNK + k] += rest;
            for (int d = 0; d < ACT; d++)
                action[(int)i * WIDTH + k * ACT + d] += rest;
        }
        e.head.n_sub += executed[i];
    }
    if (index % 4 == 0) { // cut off by the time limit
        e.head.flags = EPISODE_TRUNCATED | EPISODE_FINAL;
        for (int k = 0; k < OBS; k++)
            obs[(int)e.head.n_decision * OBS + k] = (float)rng_normal(&rng);
    }
    policy_destroy(p);
    assert_ok(episode_write(&m, &e));
    assert_ok(episode_read(m, &join, out));
    return m;
}

static double advantage_of(uint64_t index)
{
    return (index % 3 == 0) - 0.4;
}

static void add(struct rl_updater *u, const struct weights *w, uint64_t index, float rest)
{
    struct episode e;
    struct msg *m = play(w, index, rest, &e);

    assert_ok(rl_add(u, m, &e, "do it", advantage_of(index)));
}

#define EPISODES 40

// The parameters after one window of the same episodes: in order, or not, accumulated after each
// `cut` of them.
static struct weights *window(const struct rl_config *rl, const struct update_config *cfg, int cut,
                              bool backwards, float rest, struct rl_stats *stats)
{
    struct weights *w = make_weights(), *out;
    struct rl_updater *u;

    assert_ok(rl_create(&u, cfg, rl, w, 10));
    for (int i = 0; i < EPISODES; i++) {
        add(u, w, (uint64_t)(backwards ? EPISODES - 1 - i : i), rest);
        if (i % cut == cut - 1)
            assert_ok(rl_accumulate(u));
    }
    assert_ok(rl_step(u, &out, stats));
    weights_drop(w);
    rl_destroy(u);
    return out;
}

static void the_cut_and_the_order_do_not_matter(void **state)
{
    static const int cuts[] = {1, 7, EPISODES};
    struct update_config cfg = update_defaults(0.01);
    struct rl_config rl = rl_defaults();
    struct rl_stats stats, other;

    (void)state;
    for (int m = 0; m < 6; m++) {
        struct weights *want;

        rl.mean = m % 3;
        if (m >= 3) { // values are taken after each cut
            rl.algo = RL_CHUNK_PPO;
            cfg.normalize_advantage = false;
        }
        want = window(&rl, &cfg, 1, false, 0, &stats);

        for (int i = 0; i < 6; i++) {
            struct weights *got = window(&rl, &cfg, cuts[i % 3], i >= 3, 0, &other);

            assert_close(other.grad_norm, stats.grad_norm, 1e-5, 0);
            assert_close(other.loss, stats.loss, 1e-5, 1e-7);
            assert_close(other.value_loss, stats.value_loss, 1e-5, 0);
            assert_true((stats.value_loss > 0) == (m >= 3));
            for (int64_t k = 0; k < want->n_param; k++)
                assert_close(got->params[k], want->params[k], 0, 2e-4);
            weights_drop(got);
        }
        weights_drop(want);
    }
}

static void the_same_order_gives_the_same_bits(void **state)
{
    struct update_config cfg = update_defaults(0.01);
    struct rl_config rl = rl_defaults();
    struct rl_stats stats;
    struct weights *a, *b;

    (void)state;
    for (int i = 0; i < 4; i++) {
        const int more = i % 2;

        cfg.epochs = 1 + 2 * more;
        cfg.minibatches = 1 + 3 * more;
        rl.objective = more ? TOKEN_DECOUPLED : TOKEN_BEHAVIOUR;
        rl.algo = i < 2 ? RL_RLOO : RL_CHUNK_PPO;
        a = window(&rl, &cfg, 5, false, 0, &stats);
        b = window(&rl, &cfg, 5, false, 0, &stats);
        assert_memory_equal(a->params, b->params, (size_t)a->n_param * sizeof a->params[0]);
        assert_int_equal(stats.steps, more ? 12 : 1);
        weights_drop(a);
        weights_drop(b);
    }
}

// Data of the present version: every ratio is exactly 1, though rollout and learner computed it in
// batches of other sizes.
static void fresh_data_has_no_ratio(void **state)
{
    struct update_config cfg = update_defaults(0.01);
    struct rl_config rl = rl_defaults();
    struct rl_stats stats;

    (void)state;
    for (rl.level = TOKEN_ACTION; rl.level <= TOKEN_CHUNK; rl.level++) {
        weights_drop(window(&rl, &cfg, 3, false, 0, &stats));
        assert_true(stats.log_ratio_max == 0 && stats.kl == 0 && stats.clip_fraction == 0);
        assert_true(stats.weight_mean == 1 && stats.ess == 1 && stats.capped == 0);
        assert_int_equal(stats.episodes, EPISODES);
    }
}

static void what_was_not_executed_changes_no_bit(void **state)
{
    struct update_config cfg = update_defaults(0.01);
    struct rl_config rl = rl_defaults();
    struct rl_stats stats, other;

    (void)state;
    for (int i = 0; i < 8; i++) {
        struct weights *a, *b;

        rl.algo = i < 4 ? RL_RLOO : RL_CHUNK_PPO;
        rl.level = i % 2;
        cfg.minibatches = 1 + i / 2 % 2;
        a = window(&rl, &cfg, 4, false, 0, &stats);
        b = window(&rl, &cfg, 4, false, 5, &other);
        assert_memory_equal(a->params, b->params, (size_t)a->n_param * sizeof a->params[0]);
        assert_memory_equal(&stats, &other, sizeof stats);
        weights_drop(a);
        weights_drop(b);
    }
}

static void an_empty_window_only_counts(void **state)
{
    struct update_config cfg = update_defaults(0.01);
    struct rl_config rl = rl_defaults();
    struct weights *w = make_weights(), *out;
    struct rl_updater *u;
    struct rl_stats stats;

    (void)state;
    assert_ok(rl_create(&u, &cfg, &rl, w, 10));
    assert_ok(rl_step(u, &out, &stats));
    assert_int_equal(out->version, 1);
    assert_int_equal(stats.steps, 0);
    assert_memory_equal(out->params, w->params, (size_t)w->n_param * sizeof w->params[0]);
    weights_drop(out);
    weights_drop(w);
    rl_destroy(u);
}

// The learning rate rises in the first steps: AdamW's are of the same length whatever the gradient.
static void the_first_steps_are_short(void **state)
{
    struct update_config cfg = update_defaults(0.01);
    struct rl_config rl = rl_defaults();
    double moved[2] = {0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct weights *w = make_weights(), *out;
        struct rl_stats stats;

        rl.warmup = 10 * i;
        out = window(&rl, &cfg, 3, false, 0, &stats);
        for (int64_t k = 0; k < w->n_param; k++)
            moved[i] = fmax(moved[i], fabs((double)out->params[k] - (double)w->params[k]));
        weights_drop(out);
        weights_drop(w);
    }
    assert_close(moved[1], moved[0] / 10, 0.01, 0);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct update_config cfg = update_defaults(0.01);
    struct rl_config rl = rl_defaults();
    struct weights *w = make_weights();
    struct rl_updater *u;
    struct episode e;
    struct msg *m;

    (void)state;
    cfg.threads = 2;
    assert_fails(rl_create(&u, &cfg, &rl, w, 10), ST_INVAL, "--learner-threads is 2, expected 1");
    cfg.threads = 1;
    assert_ok(rl_create(&u, &cfg, &rl, w, 10));
    m = play(w, 0, 0, &e);
    e.head.n_obs = 4;
    assert_fails(rl_add(u, m, &e, "", 1), ST_PROTO, "an episode of 4 observations");
    m = play(w, 0, 0, &e);
    e.head.version_max = 1;
    assert_fails(rl_add(u, m, &e, "", 1), ST_PROTO, "of version 1, the present one is 0");
    m = play(w, 0, 0, &e);
    e.head.n_decision = 0;
    assert_fails(rl_add(u, m, &e, "", 1), ST_PROTO, "without decisions");
    weights_drop(w);
    rl_destroy(u);
}

// --- a critic ------------------------------------------------------------------------------------

// A window of fresh data, against the formulas.
static void losses_with_a_critic_are_those_of_the_formulas(void **state)
{
    struct update_config cfg = update_defaults(0.01);
    struct rl_config rl = rl_defaults();
    struct weights *w = make_weights();
    struct tally all = {0}, rets = {0};
    double policy = 0, value = 0, scaled = 0;
    struct rl_stats stats;
    struct actor *actor;

    (void)state;
    rl.algo = RL_CHUNK_PPO; // the mean over episodes of the means over their actions
    cfg.normalize_returns = false;
    assert_ok(actor_create(&actor, w, 1000, true));
    actor_use(actor, w->params);
    for (int round = 0; round < 2; round++) // advantages' scale first
        for (uint64_t index = 0; index < EPISODES; index++) {
            float v[N_MAX + 1], advantage[N_MAX], ret[N_MAX];
            struct episode e;
            struct msg *m = play(w, index, 0, &e);
            const float *mean;

            for (uint32_t i = 0; i < episode_n_seen(&e.head); i++) {
                const struct actor_row row = {.obs = e.obs + i * OBS};

                assert_ok(actor_forward(actor, &row, 1, &mean));
                v[i] = actor_value(actor, 0);
            }
            chunk_gae_run(&e, cfg.gamma, cfg.gae_lambda, v, advantage, ret);
            for (uint32_t i = 0; i < e.head.n_decision; i++) {
                const double share = (double)e.executed[i] / (double)e.head.n_sub / EPISODES;

                if (round == 0) {
                    tally_add(&all, (double)advantage[i]);
                    tally_add(&rets, (double)ret[i]);
                    continue;
                }
                scaled = ((double)advantage[i] - tally_mean(&all)) / sqrt(tally_var(&all));
                policy -= share * scaled;
                value += share * 0.5 * (double)advantage[i] * (double)advantage[i];
            }
            msg_free(m);
        }
    weights_drop(window(&rl, &cfg, 7, false, 0, &stats));
    assert_close(stats.loss, policy, 1e-4, 1e-6);
    assert_close(stats.value_loss, value, 1e-5, 0);
    assert_close(stats.explained_variance, 1 - tally_var(&all) / tally_var(&rets), 1e-5, 1e-5);
    actor_destroy(actor);
    weights_drop(w);
}

// A decision's reward tells whether its first number was positive, and what was seen: the policy
// learns the one, the critic the other. Streamed, and replayed.
static void a_critic_and_its_policy_learn(void **state)
{
    enum { UPDATES = 80 };

    (void)state;
    for (int replay = 0; replay < 2; replay++) {
        struct update_config cfg = update_defaults(0.02);
        struct rl_config rl = rl_defaults();
        struct weights *w = make_weights();
        struct rl_stats stats;
        struct rl_updater *u;
        double first = 0;
        int good = 0, n = 0;

        rl.algo = RL_CHUNK_PPO;
        cfg.gamma = 0;
        cfg.epochs = 1 + replay;
        assert_ok(rl_create(&u, &cfg, &rl, w, UPDATES));
        for (uint64_t step = 0; step < UPDATES; step++) {
            struct weights *next;

            for (uint64_t i = 0; i < 16; i++) {
                struct episode e;
                struct msg *m = play(w, step * 16 + i, 0, &e);

                for (uint32_t k = 0; step >= UPDATES - 5 && k < e.head.n_decision; k++, n++)
                    good += e.action[k * WIDTH] > 0;
                assert_ok(rl_add(u, m, &e, "", 0));
                assert_ok(rl_accumulate(u));
            }
            assert_ok(rl_step(u, &next, &stats));
            weights_drop(w);
            w = next;
            if (step == 0)
                first = stats.explained_variance;
        }
        assert_true(first < 0.3);
        assert_true(good > n * 9 / 10); // so what varies is what the critic sees
        assert_true(stats.explained_variance > 0.5);
        weights_drop(w);
        rl_destroy(u);
    }
}

// --- a bandit ------------------------------------------------------------------------------------

// Episodes of one decision; an action counts as good where its first number is positive. Groups of
// eight with RLOO, acted by the policy `lag` versions ago: the good action is learned with data of
// any age that the weights bear.
static double learn_bandit(int lag, enum token_objective objective)
{
    enum { KEEP = 8, SIZE = 8, UPDATES = 50 };
    struct update_config cfg = update_defaults(0.02);
    struct rl_config rl = rl_defaults();
    struct weights *w = make_weights(), *past[KEEP];
    struct rl_updater *u;
    int good = 0, all = 0;

    rl.objective = objective;
    assert_ok(rl_create(&u, &cfg, &rl, w, UPDATES));
    for (int i = 0; i < KEEP; i++)
        past[i] = weights_hold(w);
    for (int step = 0; step < UPDATES; step++) {
        const struct weights *act = past[(step - lag + KEEP) % KEEP];
        struct episode e[SIZE];
        struct msg *m[SIZE];
        double score[SIZE], advantage[SIZE];
        struct rl_stats stats;
        struct weights *out;

        for (int i = 0; i < SIZE; i++) {
            m[i] = play(act, (uint64_t)(step * SIZE + i), 0, &e[i]);
            e[i].head.n_decision = e[i].head.n_sub = 1;
            score[i] = e[i].action[0] > 0;
            good += step >= UPDATES - 10 && score[i] > 0;
            all += step >= UPDATES - 10;
        }
        group_advantages(GROUP_RLOO, score, SIZE, advantage);
        for (int i = 0; i < SIZE; i++)
            assert_ok(rl_add(u, m[i], &e[i], "", advantage[i]));
        assert_ok(rl_step(u, &out, &stats));
        weights_drop(past[(step + 1) % KEEP]);
        past[(step + 1) % KEEP] = out;
    }
    for (int i = 0; i < KEEP; i++)
        weights_drop(past[i]);
    weights_drop(w);
    rl_destroy(u);
    return (double)good / all;
}

static void a_bandit_is_learned_from_fresh_and_stale_data(void **state)
{
    static const int lags[] = {0, 1, 4};

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_true(learn_bandit(lags[i], TOKEN_BEHAVIOUR) > 0.9);
        assert_true(learn_bandit(lags[i], TOKEN_DECOUPLED) > 0.9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(the_cut_and_the_order_do_not_matter),
        wire_test(the_same_order_gives_the_same_bits),
        wire_test(fresh_data_has_no_ratio),
        wire_test(what_was_not_executed_changes_no_bit),
        wire_test(an_empty_window_only_counts),
        wire_test(the_first_steps_are_short),
        wire_test(what_does_not_fit_is_refused),
        wire_test(losses_with_a_critic_are_those_of_the_formulas),
        wire_test(a_critic_and_its_policy_learn),
        wire_test(a_bandit_is_learned_from_fresh_and_stale_data),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
