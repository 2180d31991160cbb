#include "nn/vla_policy.h"

#include "evaluation/chunk_seats.h"
#include "nn/policy.h"
#include "tests/vla_policy_testing.h"

#include "common/base/rng.h"

#define ROWS  19
#define CHUNK 4
#define ACT   3
#define WIDTH (CHUNK * ACT)

static double obs[ROWS][VLA_STATE];
static uint8_t pixels[ROWS][2][4 * 4 * 3];
static const uint8_t *pictures[ROWS][2];
static struct policy_row rows[ROWS];

static void make_rows(void)
{
    static const char *const texts[] = {"lift the block", "open", ""};
    struct rng r = rng_make(9, RNG_TEST, 0, 0, 0);

    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < VLA_STATE; k++)
            obs[i][k] = rng_uniform(&r, -1, 1);
        for (int k = 0; k < 2; k++) {
            for (int j = 0; j < 48; j++)
                pixels[i][k][j] = (uint8_t)rng_u32(&r);
            pictures[i][k] = i % 5 == 4 && k == 1 ? NULL : pixels[i][k]; // a camera is missing
        }
        rows[i] = (struct policy_row){.obs = obs[i],
                                      .seed = 3,
                                      .episode = (uint64_t)i,
                                      .step = 8,
                                      .pictures = pictures[i],
                                      .instruction = texts[i % 3]};
    }
}

static void check_batches(struct weights *w, bool flow)
{
    float action[ROWS][WIDTH], logp[ROWS][CHUNK], one[WIDTH], one_logp[CHUNK];
    struct policy *p;

    make_rows();
    assert_ok(policy_create_of(&p, w, ROWS));
    assert_int_equal(policy_chunk(p), CHUNK);
    for (int greedy = 0; greedy < 2; greedy++) {
        const bool likely = !(flow && greedy);

        assert_ok(policy_act(p, w, rows, ROWS, greedy, action[0], likely ? logp[0] : NULL));
        for (int i = 0; i < ROWS; i++) {
            assert_ok(policy_act(p, w, &rows[i], 1, greedy, one, likely ? one_logp : NULL));
            assert_memory_equal(one, action[i], sizeof one);
            if (likely)
                assert_memory_equal(one_logp, logp[i], sizeof one_logp);
        }
    }
    if (flow)
        assert_fails(policy_act(p, w, rows, 1, true, one, one_logp), ST_INVAL,
                     "no log-probability");
    policy_destroy(p);
    weights_drop(w);
}

static void a_row_is_the_same_in_any_batch(void **state)
{
    (void)state;
    check_batches(vla_policy_weights(1), false);
    check_batches(vla_policy_weights_flow(1), true);
}

static void set_noise_level(struct weights *w, double log_level)
{
    struct vla_table t;

    assert_ok(vla_table_init(&t, &w->vla->model));
    for (int d = 0; d < ACT; d++)
        w->params[t.log_std + d] = (float)log_level;
    vla_table_fini(&t);
}

// What is drawn is the stochastic step in its own units, what is done is where it leads: with
// almost no noise to what is done greedily, with more of it elsewhere.
static void a_flow_draws_one_step_and_goes_on(void **state)
{
    struct weights *w = vla_policy_weights_flow(1);
    float greedy[ROWS * WIDTH], mean[ROWS * WIDTH], drawn[ROWS * WIDTH], action[ROWS * WIDTH];
    float latent[ROWS * (WIDTH + 1)], log_std[WIDTH];
    const struct policy_draw out = {mean, drawn, action, latent};
    bool seen[3] = {false};
    struct policy *p;

    (void)state;
    make_rows();
    assert_int_equal(policy_latent(w), WIDTH + 1);
    assert_ok(policy_log_std(w, log_std));
    assert_ok(policy_create_of(&p, w, ROWS));
    assert_ok(policy_act(p, w, rows, ROWS, true, greedy, NULL));
    for (int noisy = 0; noisy < 2; noisy++) {
        double apart = 0, square = 0;

        set_noise_level(w, noisy ? -0.7 : -14);
        assert_ok(policy_draw(p, w, rows, ROWS, &out));
        for (int i = 0; i < ROWS * CHUNK; i++)
            vla_input_unscale(&w->vla->input, action + i * ACT, action + i * ACT);
        for (int k = 0; k < ROWS * WIDTH; k++) {
            const double z = ((double)drawn[k] - mean[k]) / exp((double)log_std[k % WIDTH]);

            apart = fmax(apart, fabs((double)action[k] - greedy[k]));
            square += noisy ? z * z : 0;
        }
        // drawn numbers are of some 1e6 deviations where there is almost no noise
        assert_true(noisy ? apart > 0.1 : apart < 1e-3);
        if (noisy) // within 4 deviations of the mean of ROWS * WIDTH chi-squared numbers
            assert_close(square / (ROWS * WIDTH), 1, 0, 4 * sqrt(2.0 / (ROWS * WIDTH)));
    }
    for (int i = 0; i < ROWS; i++) {
        const float step = latent[i * (WIDTH + 1) + WIDTH];

        assert_true(step == 0 || step == 1 || step == 2);
        seen[(int)step] = true;
    }
    assert_true(seen[0] && seen[1] && seen[2]);
    policy_destroy(p);
    weights_drop(w);
}

// Samples have the mean of the greedy action and the learned deviation; their log-probability is
// that of the network's scale.
static void samples_are_those_of_the_gaussian(void **state)
{
    struct weights *w = vla_policy_weights(1);
    float mean[WIDTH], action[WIDTH], logp[CHUNK];
    double sum = 0, square = 0, std = exp(-1);
    const struct vla_input *in = &w->vla->input;
    struct policy_row row;
    struct policy *p;
    int n = 300;

    (void)state;
    make_rows();
    row = rows[0];
    assert_ok(policy_create_of(&p, w, 1));
    assert_ok(policy_act(p, w, &row, 1, true, mean, logp));
    assert_close(logp[0], ACT * (1 - log(2 * M_PI) / 2), 1e-5, 0);
    for (int i = 0; i < n; i++) {
        double want = 0;

        row.step = (uint64_t)i;
        assert_ok(policy_act(p, w, &row, 1, false, action, logp));
        for (int d = 0; d < ACT; d++) {
            double half = (in->action_high[d] - in->action_low[d]) / 2;
            double z = ((double)action[ACT + d] - mean[ACT + d]) / half / std;

            sum += z;
            square += z * z;
            want += -z * z / 2 + 1 - log(2 * M_PI) / 2;
        }
        assert_close(logp[1], want, 1e-3, 1e-3);
    }
    n *= ACT;
    assert_true(fabs(sum / n) < 4 / sqrt(n));
    assert_true(fabs(square / n - 1) < 4 * sqrt(2.0 / n));
    policy_destroy(p);
    weights_drop(w);
}

static void what_is_missing_is_named(void **state)
{
    struct weights *w = vla_policy_weights(1), *other = vla_policy_weights(1);
    float action[WIDTH];
    struct policy_row row;
    struct policy *p;

    (void)state;
    make_rows();
    assert_ok(policy_create_of(&p, w, 1));
    row = rows[0];
    row.instruction = NULL;
    assert_fails(policy_act(p, w, &row, 1, true, action, NULL), ST_INVAL, "no instruction");
    row = rows[0];
    obs[0][2] = NAN;
    assert_fails(policy_act(p, w, &row, 1, true, action, NULL), ST_INVAL, "row 0: state 2 is nan");
    other->vla->input.action_high[0] = 9;
    assert_fails(policy_act(p, other, &row, 1, true, action, NULL), ST_INVAL, "another model");
    assert_fails(policy_act(p, w, rows, 2, true, action, NULL), ST_INVAL, "at most 1");
    policy_destroy(p);
    weights_drop(w);
    weights_drop(other);
}

// ------------------------------------------------------------------ seats

static void make_spec(struct spec *spec)
{
    struct spec_picture p = {.camera = "any", .width = 4, .height = 4, .orient = 1};

    memset(spec, 0, sizeof *spec);
    snprintf(spec->task, sizeof spec->task, "tabletop/0");
    snprintf(spec->instruction, sizeof spec->instruction, "open");
    spec->n_act = ACT;
    spec->n_field = 3;
    spec->fields[0] = (struct spec_field){"robot0_eef_pos", 0, 3};
    spec->fields[1] = (struct spec_field){"robot0_eef_quat", 3, 4};
    spec->fields[2] = (struct spec_field){"robot0_gripper_qpos", 7, 2};
    spec->n_obs = 9;
    snprintf(p.name, sizeof p.name, "agentview_image");
    assert_ok(spec_add_picture(spec, &p));
    snprintf(p.name, sizeof p.name, "robot0_eye_in_hand_image");
    assert_ok(spec_add_picture(spec, &p));
}

// What the policy would say itself at this step.
static void ask(struct policy *p, const struct weights *w, const struct chunk_seat_row *row,
                float *chunk)
{
    double state[VLA_STATE] = {row->row.obs[0], row->row.obs[1], row->row.obs[2]};
    const uint8_t *seen[2] = {row->block, row->block + 48};
    struct policy_row r = row->row;

    vla_input_turn(row->row.obs + 3, state + 3);
    state[6] = row->row.obs[7];
    state[7] = row->row.obs[8];
    r.obs = state;
    r.pictures = seen;
    r.instruction = "open";
    assert_ok(policy_act(p, w, &r, 1, true, chunk, NULL));
}

// Env 0 is one step behind env 1, so each asks when the other does not.
static void chunks_are_executed_and_asked_for_again(void **state)
{
    struct weights *w = vla_policy_weights(1);
    struct rng r = rng_make(4, RNG_TEST, 0, 0, 0);
    float chunk[2][WIDTH], got[2][ACT];
    double numbers[2][9];
    uint8_t blocks[2][96];
    struct chunk_seats *s;
    struct policy *p;
    struct spec spec;

    (void)state;
    make_spec(&spec);
    assert_ok(policy_create_of(&p, w, 1));
    for (int execute = 0; execute <= CHUNK; execute += 2) {
        int every = execute ? execute : CHUNK;

        assert_ok(chunk_seats_create(&s, w, &spec, 2, execute));
        for (int t = 0; t < 23; t++) {
            struct chunk_seat_row seat[2];
            int n = 0;

            for (int e = t == 0; e < 2; e++) {                // env 0 begins a step later
                uint64_t step = (uint64_t)((t + e - 1) % 10); // episodes of 10 steps

                for (int k = 0; k < 9; k++)
                    numbers[e][k] = rng_uniform(&r, -0.5, 0.5);
                for (int k = 0; k < 96; k++)
                    blocks[e][k] = (uint8_t)rng_u32(&r);
                seat[n] = (struct chunk_seat_row){
                    .env = e, .row = {.obs = numbers[e], .step = step}, .block = blocks[e]};
                if (step % (uint64_t)every == 0)
                    ask(p, w, &seat[n], chunk[e]);
                n++;
            }
            assert_ok(chunk_seats_act(s, w, seat, n, true, got[0]));
            for (int i = 0; i < n; i++) {
                int at = (int)(seat[i].row.step % (uint64_t)every) * ACT;

                assert_memory_equal(got[i], chunk[seat[i].env] + at, sizeof got[i]);
            }
        }
        chunk_seats_destroy(s);
    }
    assert_fails(chunk_seats_create(&s, w, &spec, 2, 5), ST_INVAL, "the policy's have 4");
    spec.n_picture = 1;
    assert_fails(chunk_seats_create(&s, w, &spec, 2, 0), ST_INVAL, "robot0_eye_in_hand");
    policy_destroy(p);
    weights_drop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(a_row_is_the_same_in_any_batch),
        leak_test(samples_are_those_of_the_gaussian),
        leak_test(a_flow_draws_one_step_and_goes_on),
        leak_test(what_is_missing_is_named),
        leak_test(chunks_are_executed_and_asked_for_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
