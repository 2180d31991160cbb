#include "evaluation/chunk.h"

#include "tests/testing.h"

// Chunk asked for at `step`: action k of it is (step, k).
static void add(struct chunk *c, uint64_t step, int n)
{
    float a[2 * CHUNK_STEPS_MAX];
    int k;

    for (k = 0; k < n; k++) {
        a[2 * k] = (float)step;
        a[2 * k + 1] = (float)k;
    }
    assert_ok(chunk_add(c, step, a, n));
}

static void a_part_of_a_chunk_is_executed(void **state)
{
    static const struct {
        int execute, n;
    } cases[] = {{5, 10}, {0, 10}, {1, 10}, {10, 10}, {0, 1}, {0, 256}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct chunk_config cfg = {.n_act = 2, .execute = cases[i].execute};
        int every = cases[i].execute ? cases[i].execute : cases[i].n, episode;
        struct chunk *c;
        uint64_t step;

        assert_ok(chunk_create(&c, &cfg));
        for (episode = 0; episode < 2; episode++) {
            chunk_reset(c);
            for (step = 0; step < 600; step++) {
                float a[2];

                assert_int_equal(chunk_wanted(c, step), step % (uint64_t)every == 0);
                if (chunk_wanted(c, step))
                    add(c, step, cases[i].n);
                chunk_act(c, step, a);
                assert_true(a[0] == (float)(step / (uint64_t)every * (uint64_t)every));
                assert_true(a[1] == (float)(step % (uint64_t)every));
            }
        }
        chunk_destroy(c);
    }
}

// By the definition, over all chunks that were ever made.
static double ensemble(enum chunk_ensemble how, double w, uint64_t step, int every, int n)
{
    double sum = 0, total = 0;
    int age = 0;
    uint64_t s;

    for (s = 0; s <= step; s += (uint64_t)every) {
        double a = (double)s, weight = how == CHUNK_ACT ? exp(-w * age) : 1;

        if (step - s >= (uint64_t)n)
            continue;
        if (how == CHUNK_EMA && age > 0) {
            sum = w * a + (1 - w) * sum;
        } else {
            sum += weight * a;
            total += weight;
        }
        age++;
    }
    return sum / total;
}

static void chunks_that_overlap_are_combined(void **state)
{
    static const struct {
        enum chunk_ensemble how;
        double w;
        int every, n;
    } cases[] = {{CHUNK_AVERAGE, 0, 1, 10}, {CHUNK_ACT, 0.1, 1, 100}, {CHUNK_ACT, 0.01, 3, 10},
                 {CHUNK_EMA, 0.3, 2, 7},    {CHUNK_AVERAGE, 0, 5, 5}, {CHUNK_ACT, 0.01, 1, 256}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct chunk_config cfg = {
            .n_act = 2, .execute = cases[i].every, .ensemble = cases[i].how, .a = cases[i].w};
        struct chunk *c;
        uint64_t step;

        assert_ok(chunk_create(&c, &cfg));
        for (step = 0; step < 700; step++) {
            float a[2];

            if (chunk_wanted(c, step))
                add(c, step, cases[i].n);
            chunk_act(c, step, a);
            assert_close(a[0], ensemble(cases[i].how, cases[i].w, step, cases[i].every, cases[i].n),
                         1e-6, 1e-6);
        }
        chunk_destroy(c);
    }
}

static void chunks_that_are_too_short_are_refused(void **state)
{
    struct chunk_config cfg = {.n_act = 1, .execute = 5};
    float a[4] = {0};
    struct chunk *c;

    (void)state;
    assert_ok(chunk_create(&c, &cfg));
    assert_fails(chunk_add(c, 0, a, 4), ST_INVAL, "chunk of 4 actions, 5 are to be executed");
    assert_fails(chunk_add(c, 0, a, 0), ST_INVAL, "chunk of 0");
    chunk_destroy(c);
    cfg.execute = 257;
    assert_fails(chunk_create(&c, &cfg), ST_INVAL, "257 steps");
    cfg = (struct chunk_config){.n_act = 1, .ensemble = CHUNK_ACT};
    assert_fails(chunk_create(&c, &cfg), ST_INVAL, "overlap");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(a_part_of_a_chunk_is_executed),
        leak_test(chunks_that_overlap_are_combined),
        leak_test(chunks_that_are_too_short_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
