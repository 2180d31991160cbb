// A flow learned by reinforcement: one decision an episode, rewarded for being where it should be.
#include "tests/rl_testing.h"
#include "tests/vla_policy_testing.h"
#include "tests/wire_samples.h"

#include "nn/gaussian.h"
#include "nn/policy.h"

#define CHUNK    4
#define ACT      3
#define WIDTH    (CHUNK * ACT)
#define SIDE     4
#define VIEWS    2
#define EPISODES 48
#define TARGET   0.8

static double obs[VLA_STATE];
static float obs_single[VLA_STATE];
static uint8_t pixels[VIEWS * SIDE * SIDE * 3];
static const uint8_t *const pictures[VIEWS] = {pixels, pixels + SIDE *SIDE * 3};

static struct update_config two_passes(void)
{
    struct update_config u = update_defaults(0.003);

    u.epochs = 2; // the second pass has ratios
    u.minibatches = 2;
    return u;
}

static struct rl_config whole_window(void)
{
    struct rl_config r = rl_defaults();

    r.budget = 4096;
    return r;
}

static struct policy_row row_of(int i, uint64_t version)
{
    return (struct policy_row){.obs = obs,
                               .seed = 1,
                               .episode = (uint64_t)i,
                               .step = version,
                               .pictures = pictures,
                               .instruction = "go there"};
}

// How far a chunk is from where it should be, on the scale of the network.
static double away(const float *action)
{
    double sum = 0;

    for (int k = 0; k < WIDTH; k++)
        sum += fabs((double)action[k] - TARGET) / WIDTH;
    return sum;
}

// Episodes of one decision each, with their advantages: how much less far than the mean of all.
// Returns that mean.
static double add_window(struct rl_updater *u, const struct weights *w, struct policy *p)
{
    static const struct join join = {.n_env = 1,
                                     .n_obs = VLA_STATE,
                                     .n_act = ACT,
                                     .chunk = CHUNK,
                                     .width = SIDE,
                                     .height = SIDE,
                                     .n_view = VIEWS};
    static float mean[EPISODES * WIDTH], drawn[EPISODES * WIDTH], action[EPISODES * WIDTH];
    static float latent[EPISODES * (WIDTH + 1)], logp[EPISODES * CHUNK];
    const struct policy_draw out = {mean, drawn, action, latent};
    const float reward[CHUNK] = {0};
    const uint32_t executed = CHUNK;
    float log_std[WIDTH], inv_std[WIDTH];
    struct policy_row rows[EPISODES];
    double all = 0;

    for (int i = 0; i < EPISODES; i++)
        rows[i] = row_of(i, w->version);
    assert_ok(policy_draw(p, w, rows, EPISODES, &out));
    assert_ok(policy_log_std(w, log_std));
    (void)gaussian_inv_std(log_std, WIDTH, inv_std);
    gaussian_parts(mean, WIDTH, drawn, EPISODES, WIDTH, CHUNK, log_std, inv_std, logp);
    for (int i = 0; i < EPISODES; i++)
        all += away(action + i * WIDTH) / EPISODES;
    for (int i = 0; i < EPISODES; i++) {
        struct episode e = {.head = {.index = (uint64_t)i,
                                     .version_min = w->version,
                                     .version_max = w->version,
                                     .n_decision = 1,
                                     .n_sub = CHUNK,
                                     .n_obs = VLA_STATE,
                                     .n_act = ACT,
                                     .chunk = CHUNK,
                                     .n_view = VIEWS,
                                     .picture_bytes = SIDE * SIDE * 3,
                                     .n_latent = WIDTH + 1},
                            .version = &w->version,
                            .obs = obs_single,
                            .action = drawn + i * WIDTH,
                            .logp = logp + i * CHUNK,
                            .reward = reward,
                            .executed = &executed,
                            .pictures = pixels,
                            .latent = latent + i * (WIDTH + 1)},
                       back;
        struct msg *m;

        assert_ok(episode_write(&m, &e));
        assert_ok(episode_read(m, &join, &back));
        assert_ok(rl_add(u, m, &back, "go there", 4 * (all - away(action + i * WIDTH))));
    }
    return all;
}

static void a_flow_learns_what_is_rewarded(void **state)
{
    const struct update_config cfg = two_passes();
    const struct rl_config rl = whole_window();
    struct weights *first = vla_policy_weights_flow(3), *w;
    double before = 0, after = 0, level;
    struct rl_updater *u;
    struct policy *p;

    (void)state;
    for (int k = 0; k < VLA_STATE; k++)
        obs[k] = obs_single[k] = 0.1f * (float)k;
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 37);
    first->version = 0;
    assert_ok(policy_create_of(&p, first, EPISODES));
    assert_ok(rl_create(&u, &cfg, &rl, first, 1000));
    w = weights_hold(first);
    for (int i = 0; i < 40; i++) {
        struct rl_stats stats;

        after = add_window(u, w, p);
        before = i == 0 ? after : before;
        weights_drop(w);
        assert_ok(rl_step(u, &w, &stats));
        assert_int_equal(stats.steps, 4);
        level = stats.std_mean;
        assert_close(level, exp(-1), 1e-6, 0); // the noise level stays
    }
    print_message("from %.3f to %.3f away\n", before, after);
    assert_true(after < 0.6 * before);
    weights_drop(w);
    weights_drop(first);
    policy_destroy(p);
    rl_destroy(u);
}

// Of data that the present policy made the ratio is 1 to the bit.
static void fresh_data_has_a_ratio_of_one(void **state)
{
    struct update_config cfg = two_passes();
    const struct rl_config rl = whole_window();
    struct weights *w = vla_policy_weights_flow(5), *out;
    struct rl_stats stats;
    struct rl_updater *u;
    struct policy *p;

    (void)state;
    cfg.epochs = cfg.minibatches = 1;
    assert_ok(policy_create_of(&p, w, EPISODES));
    assert_ok(rl_create(&u, &cfg, &rl, w, 1000));
    (void)add_window(u, w, p);
    assert_ok(rl_step(u, &out, &stats));
    assert_true(stats.log_ratio_max == 0);
    assert_true(stats.entries == EPISODES * CHUNK && stats.grad_norm > 0);
    weights_drop(out);
    weights_drop(w);
    policy_destroy(p);
    rl_destroy(u);
}

static void another_latent_is_refused(void **state)
{
    const struct update_config cfg = two_passes();
    const struct rl_config rl = whole_window();
    struct weights *w = vla_policy_weights_flow(5);
    struct episode e = {.head = {.version_max = w->version,
                                 .n_decision = 1,
                                 .n_obs = VLA_STATE,
                                 .n_act = ACT,
                                 .chunk = CHUNK,
                                 .n_latent = 4}};
    struct rl_updater *u;
    struct msg *m;

    (void)state;
    assert_ok(rl_create(&u, &cfg, &rl, w, 10));
    assert_ok(msg_new(&m, MSG_EPISODE, 8));
    assert_fails(rl_add(u, m, &e, "", 1), ST_PROTO, "a latent of 4 numbers, expected 13");
    weights_drop(w);
    rl_destroy(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(a_flow_learns_what_is_rewarded),
        wire_test(fresh_data_has_a_ratio_of_one),
        wire_test(another_latent_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
