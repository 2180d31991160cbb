#include "learner/sft.h"

#include "common/base/file.h"
#include "learner/sft_batch.h"
#include "nn/policy.h"
#include "nn/weights.h"
#include "tests/demos_testing.h"

#include <unistd.h>

#define SIZES                                                                              \
    "{\"cameras\": 2, \"image\": 4, \"patch\": 2, \"vocab\": 256, \"state\": 8, "          \
    "\"action\": 3, \"chunk\": 4, \"vision_width\": 8, \"vision_layers\": 1, "             \
    "\"vision_heads\": 2, \"vision_mlp\": 8, \"width\": 16, \"layers\": 2, \"heads\": 2, " \
    "\"kv_heads\": 1, \"head_dim\": 8, \"mlp\": 16, \"expert_width\": 12, \"expert_mlp\": 12"
#define SIZES_GAUSSIAN SIZES "}"
#define SIZES_FLOW     SIZES ", \"head\": \"flow\"}"

static char folder[64], data[2][80], model[80], flow[80];
static atomic_bool never;

static struct demos *open_data(void)
{
    struct demos_config cfg = {
        .cameras = "agentview_image,robot0_eye_in_hand_image", .image = 4, .chunk = 4};
    char files[200];
    struct demos *d;

    snprintf(files, sizeof files, "%s,%s", data[0], data[1]);
    cfg.files = files;
    assert_ok(demos_open(&d, &cfg));
    return d;
}

static struct vla_about *make_about_of(const struct demos *d, const char *json)
{
    struct vla_config c;
    struct vla_input in;
    struct vla_about *a;

    assert_ok(vla_config_parse(&c, json, "sizes"));
    assert_ok(demos_input(d, false, &in));
    assert_ok(vla_about_create(&a, &c, &in, NULL, 0));
    return a;
}

static struct vla_about *make_about(const struct demos *d)
{
    return make_about_of(d, SIZES_GAUSSIAN);
}

// The gradient of all samples of the data, with these options.
static float *gradient(const struct sft_batch_config *cfg, struct demos *d,
                       const struct vla_about *a, int64_t *n_param, struct sft_sums *sums)
{
    int n = (int)demos_info(d)->n_sample;
    float *params, *grad;
    struct sft_batch *b;
    int32_t sample[64];

    assert_true(n <= 64);
    for (int i = 0; i < n; i++)
        sample[i] = i * 7 % n; // instructions of both lengths side by side
    assert_ok(sft_batch_create(&b, cfg, d, a));
    *n_param = sft_batch_params(b);
    params = mem_alloc((size_t)*n_param, sizeof params[0]);
    grad = mem_alloc((size_t)*n_param, sizeof grad[0]);
    assert_true(params && grad);
    sft_batch_init(b, 3, -1, params);
    assert_ok(sft_batch_run(b, params, sample, n, 1, 2, grad, sums));
    mem_free(params);
    sft_batch_destroy(b);
    return grad;
}

static double distance(const float *a, const float *b, int64_t n)
{
    double apart = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(apart / size);
}

// Instructions of two lengths, so batches are ragged.
static void check_layouts(const char *json, enum clone_loss loss)
{
    struct sft_batch_config whole = {.samples = 64, .budget = 4096, .threads = 1, .loss = loss};
    struct demos *d = open_data();
    struct vla_about *a = make_about_of(d, json);
    struct sft_sums want, got;
    int64_t n;
    float *one = gradient(&whole, d, a, &n, &want), *other;

    assert_int_equal(want.micro, 1);
    assert_true(want.tokens == want.computed);
    for (int way = 0; way < 4; way++) {
        struct sft_batch_config cfg = whole;

        cfg.budget = way == 0 ? 40 : 130; // one at a time; a few
        cfg.padded = way == 2;
        cfg.checkpoint = way == 3;
        other = gradient(&cfg, d, a, &n, &got);
        assert_true(way == 0 ? got.micro == (int)demos_info(d)->n_sample : got.micro > 1);
        assert_true(way == 2 ? got.computed > got.tokens : got.computed == got.tokens);
        assert_true(got.tokens == want.tokens && got.weight == want.weight);
        assert_close(got.loss, want.loss, 1e-6, 0);
        assert_true(distance(other, one, n) < 1e-5);
        mem_free(other);
    }
    mem_free(one);
    vla_about_destroy(a);
    demos_close(d);
}

static void packed_padded_and_single_gradients_agree(void **state)
{
    (void)state;
    check_layouts(SIZES_GAUSSIAN, CLONE_NLL);
    check_layouts(SIZES_FLOW, CLONE_FLOW);
}

static void the_number_of_threads_changes_nothing(void **state)
{
    struct sft_batch_config cfg = {
        .samples = 64, .budget = 130, .threads = 1, .shift = 1, .loss = CLONE_L1};
    struct demos *d = open_data();
    struct vla_about *a = make_about(d);
    struct sft_sums want, got;
    int64_t n;
    float *one = gradient(&cfg, d, a, &n, &want), *other;

    (void)state;
    for (cfg.threads = 2; cfg.threads <= 5; cfg.threads++) {
        other = gradient(&cfg, d, a, &n, &got);
        assert_memory_equal(other, one, (size_t)n * sizeof one[0]);
        assert_true(got.loss == want.loss);
        mem_free(other);
    }
    cfg.shift = 0; // the pictures are others then
    other = gradient(&cfg, d, a, &n, &got);
    assert_true(distance(other, one, n) > 1e-6);
    mem_free(other);
    mem_free(one);
    vla_about_destroy(a);
    demos_close(d);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct sft_batch_config cfg = {.samples = 8, .budget = 20, .threads = 1};
    struct demos *d = open_data();
    struct vla_about *a = make_about(d);
    struct sft_batch *b = NULL;

    (void)state;
    assert_fails(sft_batch_create(&b, &cfg, d, a), ST_INVAL, "the budget of a micro-batch is 20");
    cfg.budget = 100;
    a->model.action = 4;
    assert_fails(sft_batch_create(&b, &cfg, d, a), ST_INVAL, "3 numbers an action, the model 4");
    vla_about_destroy(a);
    demos_close(d);
}

// The mean of the pictures that are looked at becomes zero behind the embedding, and what differs
// becomes larger, by at most 8.
static void the_embedding_begins_centred(void **state)
{
    struct sft_batch_config cfg = {.samples = 8, .budget = 100, .threads = 1};
    struct demos *d = open_data();
    struct vla_about *a = make_about(d);
    const int n_in = 3 * 2 * 2, n_patch = 4, width = 8;
    float *plain, *centred;
    struct vla_table t;
    struct sft_batch *b;
    double mean[4][12] = {{0}}, square = 0, of_means = 0, gain;

    (void)state;
    assert_ok(vla_table_init(&t, &a->model));
    assert_ok(sft_batch_create(&b, &cfg, d, a));
    plain = mem_alloc((size_t)t.n_param, sizeof plain[0]);
    centred = mem_alloc((size_t)t.n_param, sizeof centred[0]);
    sft_batch_init(b, 3, -1, plain);
    sft_batch_init(b, 3, -1, centred);
    assert_ok(sft_batch_center(b, 3, centred));
    for (int i = 0; i < 256; i++) {
        struct rng r = rng_make(3, RNG_SHUFFLE, 2, (uint64_t)i, 0);
        uint8_t p[4][4][3];

        assert_ok(
            demos_picture(d, rng_below(&r, (uint32_t)demos_info(d)->n_sample), i % 2, p[0][0]));
        for (int k = 0; k < n_patch * n_in; k++) { // (patch row, column), (colour, y, x)
            int y = k / n_in / 2 * 2 + k % 4 / 2, x = k / n_in % 2 * 2 + k % 2;
            double v = p[y][x][k % n_in / 4] / 127.5 - 1;

            mean[k / n_in][k % n_in] += v / 256;
            square += v * v / 256;
        }
    }
    for (int k = 0; k < n_patch * n_in; k++)
        of_means += mean[k / n_in][k % n_in] * mean[k / n_in][k % n_in];
    gain = fmax(0.5 / sqrt((square - of_means) / (n_patch * n_in)), 1);
    for (int64_t k = 0; k < t.n_param; k++) {
        bool weight = k >= t.patch && k < t.patch + width * n_in;
        bool position = k >= t.position && k < t.position + n_patch * width;

        if (weight)
            assert_close(centred[k], gain * plain[k], 1e-5, 0);
        else if (!position)
            assert_true(centred[k] == plain[k]);
    }
    for (int p = 0; p < n_patch; p++)
        for (int o = 0; o < width; o++) {
            double sum = centred[t.position + p * width + o];

            for (int k = 0; k < n_in; k++)
                sum += centred[t.patch + o * n_in + k] * mean[p][k];
            assert_close(sum, plain[t.position + p * width + o], 1e-4, 1e-4);
        }
    mem_free(plain);
    mem_free(centred);
    sft_batch_destroy(b);
    vla_table_fini(&t);
    vla_about_destroy(a);
    demos_close(d);
}

// ------------------------------------------------------------------ runs

static struct sft_config config(const char *out)
{
    struct sft_config c = {.demos_per_file = 0,
                           .steps = 12,
                           .batch = 10,
                           .micro_tokens = 130,
                           .warmup = 3,
                           .shift = 1,
                           .seed = 5,
                           .threads = 2,
                           .data_memory = 1,
                           .save_every = 5,
                           .lr = 0.01,
                           .lr_end = 0.1,
                           .weight_decay = 0.01,
                           .beta2 = 0.99,
                           .clip = 1,
                           .center = true,
                           .ema = 0.9,
                           .log_std = -1.5,
                           .loss = CLONE_L1};

    snprintf(c.data, sizeof c.data, "%s,%s", data[0], data[1]);
    snprintf(c.model, sizeof c.model, "%s", model);
    snprintf(c.cameras, sizeof c.cameras, "agentview_image,robot0_eye_in_hand_image");
    snprintf(c.out, sizeof c.out, "%s/%s", folder, out);
    return c;
}

static struct weights *policy_of(const struct sft_config *c)
{
    char path[OPT_STR_MAX + 16];
    struct weights *w;

    snprintf(path, sizeof path, "%s/policy.h5", c->out);
    assert_ok(weights_load(&w, path));
    return w;
}

static void assert_same_policy(const struct sft_config *a, const struct sft_config *b)
{
    struct weights *x = policy_of(a), *y = policy_of(b);

    assert_true(weights_same_model(x, y));
    assert_memory_equal(x->params, y->params, (size_t)x->n_param * sizeof x->params[0]);
    weights_drop(x);
    weights_drop(y);
}

struct stopper {
    int64_t at;
    atomic_bool stop;
};

static void stop_at(void *arg, const struct sft_report *r)
{
    struct stopper *s = arg;

    if (r->step == s->at)
        atomic_store(&s->stop, true);
}

static void runs_go_on_where_they_stopped(void **state)
{
    struct sft_config whole = config("whole"), parts = config("parts"), other;
    struct sft_result result;

    (void)state;
    assert_ok(sft_run(&whole, &never, NULL, NULL, &result));
    assert_int_equal(result.steps, 12);
    assert_int_equal(result.samples, 29);
    parts.threads = 3;
    for (int64_t at = 4; at < 12; at += 3) {
        struct stopper s = {.at = at};

        atomic_init(&s.stop, false);
        assert_ok(sft_run(&parts, &s.stop, stop_at, &s, &result));
        assert_int_equal(result.steps, at);
        parts.resume = true;
    }
    assert_ok(sft_run(&parts, &never, NULL, NULL, &result));
    assert_int_equal(result.steps, 12);
    assert_same_policy(&whole, &parts);
    other = parts;
    other.lr = 0.02;
    assert_fails(sft_run(&other, &never, NULL, NULL, &result), ST_INVAL,
                 "option 'lr' was {\"lr\": 0.01} in the checkpoint and is {\"lr\": 0.02} now");
    other = parts;
    snprintf(other.out, sizeof other.out, "%s/nowhere", folder);
    assert_fails(sft_run(&other, &never, NULL, NULL, &result), ST_MISSING, "nowhere/checkpoint.h5");
}

// The loss falls on data that can be learned by heart, and the task is named.
static void what_was_shown_is_learned(void **state)
{
    struct sft_config c = config("learned");
    struct sft_result first, last;
    struct weights *w;

    (void)state;
    snprintf(c.data, sizeof c.data, "%s", data[0]);
    c.demos_per_file = 1; // five samples
    c.shift = 0;
    c.steps = 1;
    c.ema = 0;
    assert_ok(sft_run(&c, &never, NULL, NULL, &first));
    c.steps = 150;
    assert_ok(sft_run(&c, &never, NULL, NULL, &last));
    assert_true(last.loss < 0.3 * first.loss);
    w = policy_of(&c);
    assert_string_equal(w->task, "tabletop/4");
    assert_string_equal(w->vla->kwargs, "{\"cameras\": \"default\"}");
    assert_int_equal(w->version, 150);
    weights_drop(w);
}

// A flow learns by heart too: the loss falls, and what it does from noise is what was shown.
static void a_flow_learns_what_was_shown(void **state)
{
    struct sft_config c = config("flow");
    struct sft_result first, last;
    double apart = 0, error = 0;
    struct demos *d;
    struct weights *w;
    struct policy *p;

    (void)state;
    snprintf(c.data, sizeof c.data, "%s", data[0]);
    snprintf(c.model, sizeof c.model, "%s", flow);
    c.loss = SFT_LOSS_AUTO;
    c.demos_per_file = 1;
    c.shift = 0;
    c.steps = 1;
    c.batch = 32;
    assert_ok(sft_run(&c, &never, NULL, NULL, &first));
    c.steps = 400;
    assert_ok(sft_run(&c, &never, NULL, NULL, &last));
    w = policy_of(&c);
    d = open_data();
    assert_ok(policy_create_of(&p, w, 1));
    for (int i = 0; i < 5; i++) {
        struct demos_sample s;
        uint8_t picture[2][4 * 4 * 3];
        const uint8_t *seen[2] = {picture[0], picture[1]};
        struct policy_row row = {.obs = s.state, .step = (uint64_t)i, .pictures = seen};
        float action[4 * 3];

        demos_at(d, i, &s);
        row.obs = s.state;
        row.instruction = demos_instruction(d, s.i_instruction);
        for (int k = 0; k < 2; k++)
            assert_ok(demos_picture(d, i, k, picture[k]));
        assert_ok(policy_act(p, w, &row, 1, true, action, NULL));
        for (int k = 0; k < 3 * s.n_real; k++) {
            float of[3], want[3];

            vla_input_scale(&w->vla->input, s.action + k / 3 * 3, want);
            vla_input_scale(&w->vla->input, action + k / 3 * 3, of);
            error += ((double)of[k % 3] - want[k % 3]) * ((double)of[k % 3] - want[k % 3]);
            apart++;
        }
    }
    print_message("loss %g to %g; actions %.3f apart\n", first.loss, last.loss,
                  sqrt(error / apart));
    assert_true(last.loss < 0.5 * first.loss);
    assert_true(sqrt(error / apart) < 0.25);
    policy_destroy(p);
    weights_drop(w);
    demos_close(d);
    c.loss = CLONE_L2;
    assert_fails(sft_run(&c, &never, NULL, NULL, &last), ST_INVAL, "--loss is not for a flow");
    snprintf(c.model, sizeof c.model, "%s", model);
    c.loss = CLONE_FLOW;
    assert_fails(sft_run(&c, &never, NULL, NULL, &last), ST_INVAL, "the model's head is gaussian");
}

static void training_goes_on_from_a_policy(void **state)
{
    struct sft_config c = config("base"), next = config("next"), tensors = config("tensors");
    struct sft_result result;

    (void)state;
    c.safetensors = true;
    assert_ok(sft_run(&c, &never, NULL, NULL, &result));
    snprintf(next.init, sizeof next.init, "%.200s/policy.h5", c.out);
    assert_ok(sft_run(&next, &never, NULL, NULL, &result));
    snprintf(tensors.init, sizeof tensors.init, "%.200s/model.safetensors", c.out);
    assert_ok(sft_run(&tensors, &never, NULL, NULL, &result));
    assert_same_policy(&next, &tensors);
    next.batch = 0;
    snprintf(next.cameras, sizeof next.cameras, "agentview_image");
    assert_fails(sft_run(&next, &never, NULL, NULL, &result), ST_INVAL, "--cameras says");
    snprintf(tensors.init, sizeof tensors.init, "/nonexistent.safetensors");
    assert_fails(sft_run(&tensors, &never, NULL, NULL, &result), ST_MISSING, "/nonexistent");
}

static void data_that_do_not_fit_the_model_are_refused(void **state)
{
    struct sft_config c = config("refused");
    struct sft_result result;

    (void)state;
    snprintf(c.cameras, sizeof c.cameras, "agentview_image");
    assert_fails(sft_run(&c, &never, NULL, NULL, &result), ST_INVAL, "a model for 2 cameras");
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/simstream-sft-%d", (int)getpid());
    assert_ok(file_make_dir(folder));
    for (int i = 0; i < 2; i++)
        snprintf(data[i], sizeof data[i], "%s/data%d.hdf5", folder, i);
    snprintf(model, sizeof model, "%s/sizes.json", folder);
    write_demos(data[0], 0, 3, DEMO_OURS);
    write_demos(data[1], 1, 2, DEMO_OURS);
    snprintf(flow, sizeof flow, "%s/flow.json", folder);
    return file_write_atomic(model, SIZES_GAUSSIAN, sizeof SIZES_GAUSSIAN - 1) == ST_OK &&
                   file_write_atomic(flow, SIZES_FLOW, sizeof SIZES_FLOW - 1) == ST_OK
               ? 0
               : -1;
}

static int remove_folder(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(packed_padded_and_single_gradients_agree),
        leak_test(the_number_of_threads_changes_nothing),
        leak_test(what_does_not_fit_is_refused),
        leak_test(the_embedding_begins_centred),
        leak_test(runs_go_on_where_they_stopped),
        leak_test(what_was_shown_is_learned),
        leak_test(a_flow_learns_what_was_shown),
        leak_test(training_goes_on_from_a_policy),
        leak_test(data_that_do_not_fit_the_model_are_refused),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
