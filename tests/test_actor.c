// Both families of policies behind the door of the update: against the policies that act, and their
// gradients against differences.
#include "learner/actor.h"

#include "tests/vla_policy_testing.h"

#include "common/base/rng.h"
#include "nn/policy.h"

#define ROWS  7
#define VIEWS 2
#define SIDE  20 // of a picture of the perceptrons; more than the other model's

// The last ones: with a critic.
enum family { STATE, PICTURES, VLA, FLOW, KINDS, FAMILIES = 2 * KINDS };

static const char *const instructions[] = {"put the can on the plate", "lift", ""};

// Rows of a policy of one family, and what it sees.
struct rig {
    struct weights *w;
    struct actor *actor;
    bool critic;
    float obs[ROWS * VLA_STATE];
    double wide[ROWS * VLA_STATE];
    uint8_t pictures[ROWS * VIEWS * SIDE * SIDE * 3];
    const uint8_t *view[ROWS * VIEWS];
    float latent[ROWS * 13];
    struct actor_row row[ROWS];
    struct policy_row policy_row[ROWS];
};

static struct weights *perceptrons(bool pictures)
{
    struct model_shape shape;
    struct weights *w;

    assert_ok(model_shape_parse(&shape, VLA_STATE, 6, "10"));
    if (pictures) {
        shape.vision =
            (struct model_vision){.width = SIDE, .height = SIDE, .stack = VIEWS, .state = true};
        assert_ok(model_conv_parse(&shape.vision, "4x4/2,4x3/2"));
    }
    assert_ok(weights_create(&w, &shape));
    assert_ok(model_init(&shape, 5, -0.5, w->params));
    for (int i = 0; i < VLA_STATE; i++) {
        w->obs_mean[i] = 0.1 * i;
        w->obs_var[i] = 0.3;
    }
    return w;
}

static void rig_init(struct rig *r, enum family f)
{
    const enum family family = f % KINDS;
    struct rng rng = rng_make(family, RNG_TEST, 0, 0, 0);
    size_t bytes;

    memset(r, 0, sizeof *r);
    r->critic = f >= KINDS;
    r->w = family == VLA    ? vla_policy_weights(3)
           : family == FLOW ? vla_policy_weights_flow(3)
                            : perceptrons(family == PICTURES);
    bytes = r->w->vla            ? (size_t)(3 * r->w->vla->model.image * r->w->vla->model.image)
            : family == PICTURES ? 3 * SIDE * SIDE
                                 : 0;
    assert_ok(actor_create(&r->actor, r->w, 1000, r->critic));
    actor_use(r->actor, r->w->params);
    for (int i = 0; i < ROWS * VLA_STATE; i++)
        r->wide[i] = (double)(r->obs[i] = (float)rng_normal(&rng));
    for (size_t i = 0; i < sizeof r->pictures; i++)
        r->pictures[i] = (uint8_t)rng_below(&rng, 256);
    for (int i = 0; i < ROWS; i++) {
        const uint8_t *pictures = bytes ? r->pictures + (size_t)i * VIEWS * bytes : NULL;

        for (int k = 0; k < VIEWS; k++)
            r->view[i * VIEWS + k] = r->pictures + (size_t)(i * VIEWS + k) * bytes;
        r->row[i] = (struct actor_row){.obs = r->obs + i * VLA_STATE,
                                       .pictures = pictures,
                                       .latent = family == FLOW ? r->latent + 13 * i : NULL,
                                       .instruction = instructions[i % 3]};
        for (int k = 0; k < 12; k++)
            r->latent[13 * i + k] = (float)rng_normal(&rng);
        r->latent[13 * i + 12] = (float)(i % 3);
        r->policy_row[i] = (struct policy_row){.obs = r->wide + i * VLA_STATE,
                                               .pictures = bytes ? r->view + i * VIEWS : NULL,
                                               .instruction = instructions[i % 3]};
    }
}

static void rig_fini(struct rig *r)
{
    actor_destroy(r->actor);
    weights_drop(r->w);
}

// What the actor says of a decision is what the policy that acted says, to the bit, though they cut
// their batches differently: the ratio of fresh data is exactly 1.
static void means_are_those_of_the_policy(void **state)
{
    static struct rig r;

    (void)state;
    for (enum family f = 0; f < FAMILIES; f++) {
        static float want[ROWS * 16];
        struct policy *p;
        const float *mean;
        int width;

        rig_init(&r, f);
        width = actor_width(r.actor);
        assert_ok(policy_create_of(&p, r.w, ROWS));
        assert_int_equal(policy_latent(r.w), f % KINDS == FLOW ? 13 : 0);
        assert_int_equal(actor_latent(r.actor), policy_latent(r.w));
        assert_ok(policy_draw(p, r.w, r.policy_row, ROWS,
                              &(struct policy_draw){.mean = want, .latent = r.latent}));
        for (int n = 1; n <= ROWS; n += 3) {
            assert_ok(actor_forward(r.actor, r.row + ROWS - n, n, &mean));
            for (int i = 0; i < n; i++)
                assert_memory_equal(mean + i * actor_ld(r.actor), want + (ROWS - n + i) * width,
                                    (size_t)width * sizeof want[0]);
        }
        policy_destroy(p);
        rig_fini(&r);
    }
}

// A loss that is linear in the means and values: the sum of some factors times them.
static double factor(int row, int d)
{
    return sin(3.0 * row + d);
}

static double loss(struct rig *r, const float *params)
{
    const float *mean;
    double sum = 0;

    actor_use(r->actor, params);
    assert_ok(actor_forward(r->actor, r->row, ROWS, &mean));
    for (int i = 0; i < ROWS; i++)
        for (int d = 0; d < actor_width(r->actor); d++)
            sum += factor(i, d) * (double)mean[i * actor_ld(r->actor) + d];
    for (int i = 0; r->critic && i < ROWS; i++)
        sum += factor(i, -1) * (double)actor_value(r->actor, i);
    return sum;
}

// Its gradient by rows first..first+n-1, added to grad.
static void gradient(struct rig *r, int first, int n, float *grad)
{
    const int width = actor_width(r->actor), ld = actor_ld(r->actor);
    float log_std_grad[16] = {0}, *mean_grad;
    const float *mean;

    assert_ok(actor_forward(r->actor, r->row + first, n, &mean));
    mean_grad = actor_mean_grad(r->actor);
    memset(mean_grad, 0, (size_t)(n * ld) * sizeof *mean_grad);
    for (int i = 0; i < n; i++)
        for (int d = 0; d < width; d++)
            mean_grad[i * ld + d] = (float)factor(first + i, d);
    for (int i = 0; r->critic && i < n; i++)
        *actor_value_grad(r->actor, i) = (float)factor(first + i, -1);
    for (int d = 0; d < width; d++)
        log_std_grad[d] = (float)(n * (d + 1));
    actor_backward(r->actor, n, log_std_grad, grad);
}

static float *vector(const struct rig *r)
{
    float *v = mem_alloc((size_t)r->w->n_param, sizeof *v);

    assert_non_null(v);
    return v;
}

static void gradients_are_those_of_differences(void **state)
{
    static struct rig r;

    (void)state;
    for (enum family f = 0; f < FAMILIES; f++) {
        float *grad, *high, *low;
        int64_t n;

        rig_init(&r, f);
        n = actor_params(r.actor);
        grad = vector(&r);
        high = vector(&r);
        low = vector(&r);
        gradient(&r, 0, ROWS, grad);
        for (int trial = 0; trial < 6; trial++) { // along random directions
            struct rng rng = rng_make(f, RNG_TEST, 7, (uint64_t)trial, 0);
            double along = 0, size = 0, got;

            memcpy(high, r.w->params, (size_t)r.w->n_param * sizeof *high);
            memcpy(low, r.w->params, (size_t)r.w->n_param * sizeof *low);
            for (int64_t k = 0; k < n; k++) {
                float step = (float)(2e-3 * rng_normal(&rng));
                int64_t from_std = k - actor_log_std_at(r.actor);

                if (from_std >= 0 && from_std < actor_n_log_std(r.actor))
                    continue; // not of the means
                high[k] += step;
                low[k] -= step;
                along += (double)grad[k] * ((double)high[k] - (double)low[k]);
                size += fabs((double)grad[k] * ((double)high[k] - (double)low[k]));
            }
            got = loss(&r, high) - loss(&r, low);
            assert_close(got, along, 0, 0.01 * size);
        }
        mem_free(grad);
        mem_free(high);
        mem_free(low);
        rig_fini(&r);
    }
}

static void the_cut_of_the_rows_does_not_matter(void **state)
{
    static struct rig r;

    (void)state;
    for (enum family f = 0; f < FAMILIES; f++) {
        float *whole, *cut;
        double largest = 0;

        rig_init(&r, f);
        whole = vector(&r);
        cut = vector(&r);
        gradient(&r, 0, ROWS, whole);
        for (int i = ROWS; i-- > 0;)
            gradient(&r, i, 1, cut);
        for (int64_t k = 0; k < actor_params(r.actor); k++)
            largest = fmax(largest, fabs((double)whole[k]));
        for (int64_t k = 0; k < actor_params(r.actor); k++)
            assert_close((double)cut[k], (double)whole[k], 0, 2e-6 * largest);
        mem_free(whole);
        mem_free(cut);
        rig_fini(&r);
    }
}

// One standard deviation may be that of several numbers of a chunk.
static void gradients_of_shared_deviations_are_sums(void **state)
{
    static struct rig r;

    (void)state;
    for (enum family f = 0; f < FAMILIES; f++) {
        float *grad;
        int n;

        rig_init(&r, f);
        n = actor_n_log_std(r.actor);
        grad = vector(&r);
        gradient(&r, 0, 1, grad);
        for (int d = 0; d < n; d++) {
            double want = 0;

            for (int k = d; k < actor_width(r.actor); k += n) {
                const float own = r.w->params[actor_log_std_at(r.actor) + d];

                want += f % KINDS == FLOW ? 0 : k + 1; // a noise level, which has no gradient
                assert_true(actor_log_std(r.actor)[k] == (f % KINDS == FLOW ? 0 : own));
            }
            assert_true((double)grad[actor_log_std_at(r.actor) + d] == want);
        }
        assert_int_equal(n, r.w->vla ? 3 : actor_width(r.actor));
        mem_free(grad);
        rig_fini(&r);
    }
}

// Values on another scale are the same values, and the means stay.
static void rescaling_keeps_values(void **state)
{
    static struct rig r;

    (void)state;
    for (enum family f = KINDS; f < FAMILIES; f++) {
        float *params, before[ROWS], mean[ROWS];
        const float *out;

        rig_init(&r, f);
        params = vector(&r);
        memcpy(params, r.w->params, (size_t)r.w->n_param * sizeof *params);
        actor_use(r.actor, params);
        assert_ok(actor_forward(r.actor, r.row, ROWS, &out));
        for (int i = 0; i < ROWS; i++) {
            before[i] = actor_value(r.actor, i);
            mean[i] = out[i * actor_ld(r.actor)];
        }
        assert_true(before[0] != before[1]);
        actor_value_rescale(r.actor, params, 2, 3, -1, 0.5);
        actor_use(r.actor, params);
        assert_ok(actor_forward(r.actor, r.row, ROWS, &out));
        for (int i = 0; i < ROWS; i++) {
            assert_close(-1 + 0.5 * (double)actor_value(r.actor, i), 2 + 3 * (double)before[i], 0,
                         2e-5);
            assert_true(mean[i] == out[i * actor_ld(r.actor)]);
        }
        mem_free(params);
        rig_fini(&r);
    }
}

static void what_is_missing_is_named(void **state)
{
    static struct rig r;
    struct actor *a;
    const float *mean;

    (void)state;
    for (enum family f = 0; f < FAMILIES; f++) {
        if (f % KINDS == STATE)
            continue; // sees no pictures
        rig_init(&r, f);
        r.row[2].pictures = NULL;
        assert_fails(actor_forward(r.actor, r.row, ROWS, &mean), ST_INVAL,
                     "decision 2 has no pictures");
        assert_fails(actor_forward(r.actor, r.row, 0, &mean), ST_INVAL, "0 decisions in one pass");
        if (f % KINDS == VLA)
            assert_fails(actor_create(&a, r.w, 10, r.critic), ST_INVAL,
                         "the budget of a pass is 10");
        if (f % KINDS == FLOW) {
            r.row[2].pictures = r.row[1].pictures;
            r.latent[13 + 12] = 3; // of steps 0 to 2
            assert_fails(actor_forward(r.actor, r.row, ROWS, &mean), ST_INVAL,
                         "decision 1: the flow's step is 3, expected 0 to 2");
            r.latent[13 + 12] = 0.5f;
            assert_fails(actor_forward(r.actor, r.row, ROWS, &mean), ST_INVAL, "step is 0.5");
            r.row[1].latent = NULL;
            assert_fails(actor_forward(r.actor, r.row, ROWS, &mean), ST_INVAL, "decision 1");
        }
        rig_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(means_are_those_of_the_policy),
        leak_test(gradients_are_those_of_differences),
        leak_test(the_cut_of_the_rows_does_not_matter),
        leak_test(gradients_of_shared_deviations_are_sums),
        leak_test(rescaling_keeps_values),
        leak_test(what_is_missing_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
