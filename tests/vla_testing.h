// vla_testing.h - a small vision-language-action policy and ragged batches for tests, in the
// precision of nn/real.h.
#ifndef TESTS_VLA_TESTING_H
#define TESTS_VLA_TESTING_H

#include "tests/ops_testing.h"

#include "nn/vla.h"

// as CONFIG of tests/oracle/vla_golden.py
#define VLA_TEST_SIZES                                                                          \
    "{\"cameras\": 3, \"image\": 8, \"vocab\": 11, \"state\": 3, \"action\": 2, \"chunk\": 3, " \
    "\"patch\": 4, \"vision_width\": 12, \"vision_layers\": 2, \"vision_heads\": 2, "           \
    "\"vision_mlp\": 18, \"width\": 20, \"layers\": 3, \"heads\": 4, \"kv_heads\": 2, "         \
    "\"head_dim\": 6, \"mlp\": 10, \"expert_width\": 14, \"expert_mlp\": 9"
#define VLA_TEST_JSON        VLA_TEST_SIZES "}"
#define VLA_TEST_JSON_PRUNED VLA_TEST_SIZES ", \"keep\": 40}"
#define VLA_TEST_JSON_FLOW   VLA_TEST_SIZES ", \"head\": \"flow\"}"

// A batch with the memory of its arrays.
struct ragged {
    struct vla_batch b;
    int *cu_image, *cu_text, *camera, *text;
    const uint8_t **image;
    uint8_t *pixels;
    real *state, *noisy;
    double *time;
};

// Sequences with 0 to c->cameras pictures and 0 to max_text tokens.
static inline void ragged_make(struct ragged *g, struct rng *r, const struct vla_config *c,
                               int n_seq, int max_text)
{
    const int64_t bytes = VLA_RGB * c->image * c->image;
    const int max_image = n_seq * (int)c->cameras;

    memset(g, 0, sizeof *g);
    g->cu_image = mem_alloc((size_t)n_seq + 1, sizeof(int));
    g->cu_text = mem_alloc((size_t)n_seq + 1, sizeof(int));
    g->camera = mem_alloc((size_t)max_image, sizeof(int));
    g->text = mem_alloc((size_t)(n_seq * max_text), sizeof(int));
    g->image = mem_alloc((size_t)max_image, sizeof *g->image);
    g->pixels = mem_alloc((size_t)max_image, (size_t)bytes);
    g->state = normals(r, n_seq * c->state, 1);
    g->noisy = normals(r, n_seq * c->chunk * c->action, 1);
    g->time = mem_alloc((size_t)n_seq, sizeof *g->time);
    assert_non_null(g->time);
    for (int s = 0; s < n_seq; s++)
        g->time[s] = rng_unit(r);
    assert_true(g->cu_image && g->cu_text && g->camera && g->text && g->image && g->pixels);
    for (int64_t i = 0; i < max_image * bytes; i++)
        g->pixels[i] = (uint8_t)rng_u32(r);
    for (int i = 0; i < max_image; i++) {
        g->image[i] = g->pixels + i * bytes;
        g->camera[i] = (int)rng_below(r, (uint32_t)c->cameras);
    }
    for (int i = 0; i < n_seq * max_text; i++)
        g->text[i] = (int)rng_below(r, (uint32_t)c->vocab);
    for (int s = 0; s < n_seq; s++) {
        g->cu_image[s + 1] = g->cu_image[s] + between(r, 0, (int)c->cameras);
        g->cu_text[s + 1] = g->cu_text[s] + between(r, 0, max_text);
    }
    g->b = (struct vla_batch){.n_seq = n_seq,
                              .cu_image = g->cu_image,
                              .image = g->image,
                              .camera = g->camera,
                              .cu_text = g->cu_text,
                              .text = g->text,
                              .state = g->state,
                              .noisy = g->noisy,
                              .time = g->time};
}

static inline void ragged_free(struct ragged *g)
{
    mem_free(g->cu_image);
    mem_free(g->cu_text);
    mem_free(g->camera);
    mem_free(g->text);
    mem_free(g->image);
    mem_free(g->pixels);
    mem_free(g->state);
    mem_free(g->noisy);
    mem_free(g->time);
}

// Sequence s of a batch alone; `cu` has four numbers.
static inline struct vla_batch one_of(const struct vla_batch *b, const struct vla_config *c, int s,
                                      int *cu)
{
    cu[0] = cu[2] = 0;
    cu[1] = b->cu_image[s + 1] - b->cu_image[s];
    cu[3] = b->cu_text[s + 1] - b->cu_text[s];
    return (struct vla_batch){.n_seq = 1,
                              .cu_image = cu,
                              .image = b->image + b->cu_image[s],
                              .camera = b->camera + b->cu_image[s],
                              .cu_text = cu + 2,
                              .text = b->text + b->cu_text[s],
                              .state = b->state + s * c->state,
                              .noisy = b->noisy + s * c->chunk * c->action,
                              .time = b->time + s};
}

// First values with every bias and norm disturbed, so that no gradient is zero by symmetry.
static inline real *test_params(const struct vla_net *net, uint64_t seed)
{
    const int64_t n = net->t.n_param;
    struct rng r = rng_make(seed, RNG_TEST, 9, 0, 0);
    float *first = mem_alloc((size_t)n, sizeof *first);
    real *p = zeros(n);

    assert_non_null(first);
    vla_init(&net->c, &net->t, seed, -1, first);
    for (int64_t i = 0; i < n; i++)
        p[i] = (real)(first[i] + 0.1 * rng_normal(&r));
    mem_free(first);
    return p;
}

#endif
