// The tokens of pictures that pass are those to which instruction and state attend most, by the
// definition in plain loops.
#define REAL_IS_DOUBLE
#include "tests/vla_testing.h"

#include "nn/vla_priv.h"

#define SEQS  8
#define TEXTS 5

// y (n_out) = W x + b
static void affine(const real *w, const real *b, const real *x, int n_in, int n_out, real *y)
{
    for (int o = 0; o < n_out; o++) {
        y[o] = b ? b[o] : 0;
        for (int i = 0; i < n_in; i++)
            y[o] += w[o * n_in + i] * x[i];
    }
}

static void rms(const real *w, int n, real *x)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        x[i] *= w[i] / sqrt(sum / n + VLA_NORM_EPS);
}

static void layer_norm(const real *w, const real *b, int n, real *x)
{
    double mean = 0, var = 0;

    for (int i = 0; i < n; i++)
        mean += x[i] / n;
    for (int i = 0; i < n; i++)
        var += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++)
        x[i] = (x[i] - mean) / sqrt(var + VLA_VISION_EPS) * w[i] + b[i];
}

// The key (12) of the token at `place` of a picture. Sizes are those of VLA_TEST_SIZES.
static void key_of(const struct vla_net *net, const uint8_t *image, int camera, int place,
                   real *key)
{
    const real *p = net->params;
    const struct vla_table *t = &net->t;
    real pixels[48], x[12], token[20];
    int n = 0;

    for (int c = 0; c < 3; c++)
        for (int y = 0; y < 4; y++)
            for (int k = 0; k < 4; k++)
                pixels[n++] =
                    image[((place / 2 * 4 + y) * 8 + place % 2 * 4 + k) * 3 + c] / 127.5 - 1;
    affine(p + t->patch, p + t->patch_bias, pixels, 48, 12, x);
    for (int i = 0; i < 12; i++)
        x[i] += p[t->position + place * 12 + i];
    layer_norm(p + t->post_norm, p + t->post_norm_bias, 12, x);
    affine(p + t->connector, p + t->connector_bias, x, 12, 20, token);
    for (int i = 0; i < 20; i++)
        token[i] += p[t->camera + camera * 20 + i];
    rms(p + t->trunk[0].norm1, 20, token);
    affine(p + t->trunk[0].qkv + 24 * 20, NULL, token, 20, 12, key);
}

// Add the probabilities of one query (20, not normed) over n keys to the scores.
static void ask(const struct vla_net *net, real *query, int n, real (*key)[12], double *score)
{
    real q[24];

    rms(net->params + net->t.trunk[0].norm1, 20, query);
    affine(net->params + net->t.trunk[0].qkv, NULL, query, 20, 24, q);
    for (int h = 0; h < 4; h++) {
        double e[12], sum = 0;

        for (int j = 0; j < n; j++) {
            e[j] = 0;
            for (int d = 0; d < 6; d++)
                e[j] += q[h * 6 + d] * key[j][h / 2 * 6 + d];
            sum += e[j] = exp(e[j] / sqrt(6));
        }
        for (int j = 0; j < n; j++)
            score[j] += e[j] / sum;
    }
}

static void check_sequence(const struct vla_net *net, const struct vla_work *w,
                           const struct vla_batch *b, int s, int *at)
{
    const struct vla_plan *p = &w->plan;
    const int n = (b->cu_image[s + 1] - b->cu_image[s]) * 4, first = b->cu_image[s];
    real key[12][12], query[20];
    double score[12] = {0}, worst = INFINITY;
    bool passes[12] = {false};
    const int n_kept = (n * 40 + 99) / 100;

    for (int j = 0; j < n; j++)
        key_of(net, b->image[first + j / 4], b->camera[first + j / 4], j % 4, key[j]);
    for (int i = b->cu_text[s]; i < b->cu_text[s + 1]; i++) {
        memcpy(query, net->params + net->t.text + b->text[i] * 20, sizeof query);
        ask(net, query, n, key, score);
    }
    affine(net->params + net->t.state, net->params + net->t.state_bias, b->state + s * 3, 3, 20,
           query);
    ask(net, query, n, key, score);
    for (int k = 0; k < n_kept; k++, ++*at) {
        const int j = p->kept[*at] - first * 4;

        assert_true(j >= 0 && j < n && !passes[j]);
        passes[j] = true;
        worst = fmin(worst, score[j]);
        // it stays where it was
        assert_int_equal(p->prefix_position[p->image_to[*at]], j);
        assert_int_equal(p->place[*at], j % 4);
        assert_int_equal(p->camera[*at], b->camera[first + j / 4]);
    }
    for (int j = 0; j < n; j++)
        assert_true(passes[j] || score[j] < worst);
}

static void the_tokens_asked_for_most_pass(void **state)
{
    const struct vla_room room = {.seqs = SEQS, .images = SEQS * 3, .texts = SEQS * TEXTS};
    struct rng r = rng_make(6, RNG_TEST, 0, 0, 0);
    struct vla_config c;
    struct vla_net net;
    struct vla_work *w;
    struct ragged g;
    real *params, mean[SEQS * 6];
    int at = 0;

    (void)state;
    assert_ok(vla_config_parse(&c, VLA_TEST_JSON_PRUNED, "test"));
    assert_ok(vla_net_init(&net, &c, NULL));
    net.params = params = test_params(&net, 1);
    ragged_make(&g, &r, &c, SEQS, TEXTS);
    assert_ok(vla_work_create(&w, &net, &room));
    assert_ok(vla_forward(&net, w, &g.b, mean, NULL));
    for (int s = 0; s < SEQS; s++)
        check_sequence(&net, w, &g.b, s, &at);
    assert_int_equal(at, w->plan.n_vision);
    assert_true(at > 0);
    vla_work_destroy(w);
    vla_net_fini(&net);
    ragged_free(&g);
    mem_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {leak_test(the_tokens_asked_for_most_pass)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
