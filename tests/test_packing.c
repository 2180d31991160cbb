#include "learner/packing.h"

#include "common/base/rng.h"
#include "tests/testing.h"

#define N_MAX 300

static int random_lengths(struct rng *r, int *length, int *budget)
{
    int n = (int)rng_below(r, N_MAX + 1), i;

    *budget = 1 + (int)rng_below(r, 200);
    for (i = 0; i < n; i++)
        length[i] = 1 + (int)rng_below(r, (uint32_t)*budget);
    return n;
}

// Every sequence is in one batch, in ascending order, and no batch is empty.
static void assert_partition(const struct packing *p, int n)
{
    int seen[N_MAX] = {0}, b, k;

    assert_int_equal(p->n, n);
    assert_int_equal(p->first[0], 0);
    assert_int_equal(p->first[p->n_batch], n);
    for (b = 0; b < p->n_batch; b++) {
        assert_true(p->first[b] < p->first[b + 1]);
        for (k = p->first[b]; k < p->first[b + 1]; k++) {
            seen[p->item[k]]++;
            assert_true(k == p->first[b] || p->item[k - 1] < p->item[k]);
        }
    }
    for (k = 0; k < n; k++)
        assert_int_equal(seen[k], 1);
}

static int batch_tokens(const struct packing *p, int b, const int *length, int *longest)
{
    int sum = 0, k;

    for (*longest = 0, k = p->first[b]; k < p->first[b + 1]; k++) {
        sum += length[p->item[k]];
        if (length[p->item[k]] > *longest)
            *longest = length[p->item[k]];
    }
    return sum;
}

// First-fit decreasing by its definition, without sort and tree.
static int reference(const int *length, int n, int budget, int *batch)
{
    int room[N_MAX], n_batch = 0, k, i, b;
    bool done[N_MAX] = {0};

    for (k = 0; k < n; k++) {
        int longest = -1;

        for (i = 0; i < n; i++)
            if (!done[i] && (longest < 0 || length[i] > length[longest]))
                longest = i;
        for (b = 0; b < n_batch && room[b] < length[longest]; b++)
            ;
        if (b == n_batch)
            room[n_batch++] = budget;
        room[b] -= length[longest];
        batch[longest] = b;
        done[longest] = true;
    }
    return n_batch;
}

static void packing_is_first_fit_decreasing(void **state)
{
    int length[N_MAX], batch[N_MAX], round;
    struct packing p;

    (void)state;
    assert_ok(packing_init(&p, N_MAX));
    for (round = 0; round < 1000; round++) {
        struct rng r = rng_make(1, RNG_TEST, 0, (uint64_t)round, 0);
        int64_t tokens = 0;
        int budget, n = random_lengths(&r, length, &budget), b, k, longest;

        assert_ok(packing_pack(&p, length, n, budget));
        assert_partition(&p, n);
        assert_int_equal(p.n_batch, reference(length, n, budget, batch));
        for (b = 0; b < p.n_batch; b++) {
            assert_true(batch_tokens(&p, b, length, &longest) <= budget);
            for (k = p.first[b]; k < p.first[b + 1]; k++)
                assert_int_equal(batch[p.item[k]], b);
        }
        for (k = 0; k < n; k++)
            tokens += length[k];
        assert_true(p.tokens == tokens && p.computed == tokens);
        // no two batches would fit into one
        assert_true(n == 0 || 2 * tokens > (int64_t)(p.n_batch - 1) * budget);
        assert_close(packing_share(&p), 1, 0, 0);
    }
    packing_fini(&p);
}

static void padded_batches_keep_the_order_and_the_budget(void **state)
{
    int length[N_MAX], round;
    struct packing p;

    (void)state;
    assert_ok(packing_init(&p, N_MAX));
    for (round = 0; round < 1000; round++) {
        struct rng r = rng_make(2, RNG_TEST, 0, (uint64_t)round, 0);
        int64_t computed = 0, tokens = 0;
        int budget, n = random_lengths(&r, length, &budget), b, k, longest, next;

        assert_ok(packing_pad(&p, length, n, budget));
        assert_partition(&p, n);
        for (k = 0; k < n; k++)
            assert_int_equal(p.item[k], k);
        for (b = 0; b < p.n_batch; b++) {
            int count = p.first[b + 1] - p.first[b];

            tokens += batch_tokens(&p, b, length, &longest);
            assert_true(count * longest <= budget);
            computed += count * longest;
            if (b + 1 < p.n_batch) { // the next one would not have fitted
                next = length[p.first[b + 1]];
                assert_true((count + 1) * (next > longest ? next : longest) > budget);
            }
        }
        assert_true(p.tokens == tokens && p.computed == computed);
        assert_close(packing_share(&p), n > 0 ? (double)tokens / (double)computed : 1, 1e-15, 0);
    }
    packing_fini(&p);
}

// Lengths 1 and 100 in turn: half of what is padded is for nothing.
static void packing_saves_what_padding_wastes(void **state)
{
    int length[N_MAX], i;
    struct packing p;

    (void)state;
    for (i = 0; i < N_MAX; i++)
        length[i] = i % 2 ? 100 : 1;
    assert_ok(packing_init(&p, N_MAX));
    assert_ok(packing_pad(&p, length, N_MAX, 1000));
    assert_int_equal(p.n_batch, N_MAX / 10);
    assert_close(packing_share(&p), 0.505, 1e-12, 0);
    assert_ok(packing_pack(&p, length, N_MAX, 1000));
    assert_int_equal(p.n_batch, 16);
    packing_fini(&p);
}

static void what_does_not_fit_is_named(void **state)
{
    struct packing p;

    (void)state;
    assert_ok(packing_init(&p, 3));
    assert_fails(packing_pack(&p, (int[]){4, 11, 5}, 3, 10), ST_INVAL, "sequence 1 has 11 tokens");
    assert_fails(packing_pad(&p, (int[]){4, 10, 0}, 3, 10), ST_INVAL, "sequence 2 has 0 tokens");
    assert_fails(packing_pack(&p, (int[]){1, 1, 1, 1}, 4, 10), ST_INVAL, "at most 3");
    assert_fails(packing_pack(&p, (int[]){1}, 1, 0), ST_INVAL, "budget of 0");
    assert_ok(packing_pack(&p, (int[]){10, 10, 10}, 3, 10));
    assert_int_equal(p.n_batch, 3);
    assert_ok(packing_pack(&p, NULL, 0, 10));
    assert_int_equal(p.n_batch, 0);
    packing_fini(&p);
}

static void out_of_memory_is_reported(void **state)
{
    struct packing p;
    int n;

    (void)state;
    for (n = 0;; n++) {
        mem_fail_after(n);
        if (packing_init(&p, 5) == ST_OK)
            break;
        assert_int_equal(error_last()->code, ST_NOMEM);
    }
    mem_fail_after(-1);
    assert_int_equal(n, 5);
    packing_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(packing_is_first_fit_decreasing),
        leak_test(padded_batches_keep_the_order_and_the_budget),
        leak_test(packing_saves_what_padding_wastes),
        leak_test(what_does_not_fit_is_named),
        leak_test(out_of_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
