#include "learner/groups.h"

#include "tests/testing.h"

#include "common/base/rng.h"

#define SIZE 8

static struct groups *make(int size, uint64_t eta, enum group_baseline baseline)
{
    struct groups *g;

    assert_ok(
        groups_create(&g, &(struct groups_config){.size = size, .eta = eta, .baseline = baseline}));
    return g;
}

static enum group_verdict add(struct groups *g, uint64_t group, uint32_t member, uint64_t version,
                              double score)
{
    enum group_verdict verdict;

    assert_ok(
        groups_add(g,
                   &(struct group_member){
                       .group = group, .member = member, .version_min = version, .score = score},
                   &verdict));
    return verdict;
}

static void add_error(struct groups *g, uint64_t group, uint32_t member, uint64_t version)
{
    enum group_verdict verdict;

    assert_ok(groups_add(
        g,
        &(struct group_member){
            .group = group, .member = member, .version_min = version, .score = NAN, .error = true},
        &verdict));
    assert_int_equal(verdict, GROUP_HELD);
}

// The formulas of the header by hand: scores 1, 0, 0, 1, 1 have mean 0.6 and variance 0.3.
static void advantages_are_those_of_the_papers(void **state)
{
    const double score[] = {1, 0, 0, 1, 1};
    double a[5];

    (void)state;
    group_advantages(GROUP_RLOO, score, 5, a);
    assert_close(a[0], 1 - 2.0 / 4, 1e-15, 0); // the others' mean
    assert_close(a[1], 0 - 3.0 / 4, 1e-15, 0);
    group_advantages(GROUP_DRGRPO, score, 5, a);
    assert_close(a[0], 0.4, 1e-15, 0);
    assert_close(a[2], -0.6, 1e-15, 0);
    group_advantages(GROUP_GRPO, score, 5, a);
    assert_close(a[0], 0.4 / (sqrt(0.3) + 1e-6), 1e-14, 0);
    assert_close(a[1], -0.6 / (sqrt(0.3) + 1e-6), 1e-14, 0);
}

static void a_group_is_held_until_it_is_complete(void **state)
{
    struct groups *g = make(3, 5, GROUP_RLOO);
    struct group_result r;

    (void)state;
    add(g, 7, 2, 0, 1);
    add(g, 7, 0, 1, 0);
    assert_int_equal(groups_take(g, 1, GROUP_WHOLE, &r), ST_AGAIN);
    assert_int_equal(groups_take(g, 1, GROUP_LAST_CALL, &r),
                     ST_AGAIN); // it may wait for some versions yet
    assert_int_equal(groups_waiting(g), 2);
    add(g, 7, 1, 1, 0);
    assert_ok(groups_take(g, 1, GROUP_WHOLE, &r));
    assert_int_equal(r.fate, GROUP_KEPT);
    assert_int_equal(r.n, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(r.member[i].member, i);
    assert_close(r.advantage[0], -0.5, 1e-15, 0);
    assert_close(r.advantage[1], -0.5, 1e-15, 0);
    assert_close(r.advantage[2], 1, 1e-15, 0);
    assert_close(r.mean, 1 / 3.0, 1e-15, 0);
    assert_int_equal(groups_take(g, 1, GROUP_WHOLE, &r), ST_AGAIN);
    assert_int_equal(groups_counts(g)->kept, 1);
    assert_int_equal(groups_counts(g)->incomplete, 0);
    groups_destroy(g);
}

static void uniform_groups_are_dropped(void **state)
{
    struct groups *g = make(2, 0, GROUP_GRPO);
    struct group_result r;

    (void)state;
    for (uint64_t group = 0; group < 2; group++)
        for (uint32_t i = 0; i < 2; i++)
            add(g, group, i, 0, (double)group);
    for (uint64_t group = 0; group < 2; group++) {
        assert_ok(groups_take(g, 0, GROUP_WHOLE, &r));
        assert_int_equal(r.group, group);
        assert_int_equal(r.fate, GROUP_UNIFORM);
        assert_true(r.advantage[0] == 0 && r.advantage[1] == 0);
        assert_true(r.mean == (double)group);
    }
    groups_destroy(g);
}

// A single episode that succeeds must not get its own score as the advantage, nor NaN.
static void a_single_member_has_no_baseline(void **state)
{
    static const enum group_baseline all[] = {GROUP_RLOO, GROUP_GRPO, GROUP_DRGRPO};
    struct group_result r;

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct groups *g = make(4, 0, all[i]);

        add(g, 1, 3, 0, 1);
        assert_ok(groups_take(g, 0, GROUP_LAST_CALL, &r));
        assert_int_equal(r.fate, GROUP_SINGLE);
        assert_int_equal(r.n, 1);
        assert_true(r.advantage[0] == 0);
        // one with a score beside errors is as alone
        add(g, 2, 0, 0, 1);
        for (uint32_t k = 1; k < 4; k++)
            add_error(g, 2, k, 0);
        assert_ok(groups_take(g, 0, GROUP_WHOLE, &r));
        assert_int_equal(r.fate, GROUP_SINGLE);
        assert_int_equal(r.n, 4);
        groups_destroy(g);
    }
}

static void errors_are_members_without_a_score(void **state)
{
    struct groups *g = make(3, 0, GROUP_RLOO);
    struct group_result r;

    (void)state;
    add(g, 1, 0, 0, 0);
    add_error(g, 1, 1, 0);
    add(g, 1, 2, 0, 1);
    assert_ok(groups_take(g, 0, GROUP_WHOLE, &r));
    assert_int_equal(r.fate, GROUP_KEPT);
    assert_close(r.advantage[0], -1, 1e-15, 0);
    assert_true(r.advantage[1] == 0);
    assert_close(r.advantage[2], 1, 1e-15, 0);
    groups_destroy(g);
}

// With a critic nothing is compared: all is kept that has a score.
static void without_a_baseline_all_are_kept(void **state)
{
    struct groups *g = make(1, 1, GROUP_NONE);
    struct group_result r;

    (void)state;
    for (uint64_t i = 0; i < 4; i++)
        add(g, i, 0, 3, 1);
    add_error(g, 4, 0, 3);
    add(g, 5, 0, 1, 1);
    for (uint64_t i = 0; i < 6; i++) {
        assert_ok(groups_take(g, 3, GROUP_WHOLE, &r));
        assert_int_equal(r.group, i);
        assert_int_equal(r.fate, i < 4 ? GROUP_KEPT : i < 5 ? GROUP_SINGLE : GROUP_STALE);
        assert_true(r.n == 1 && r.advantage[0] == 0);
    }
    groups_destroy(g);
}

static void the_last_call_settles_what_would_be_too_old(void **state)
{
    struct groups *g = make(4, 1, GROUP_RLOO);
    struct group_result r;

    (void)state;
    add(g, 1, 0, 3, 0);
    add(g, 1, 1, 4, 1);
    add(g, 2, 0, 4, 1);
    assert_int_equal(groups_take(g, 3, GROUP_LAST_CALL, &r),
                     ST_AGAIN); // at version 4 the lag is still 1
    assert_int_equal(groups_take(g, 4, GROUP_WHOLE, &r), ST_AGAIN);
    assert_ok(groups_take(g, 4, GROUP_LAST_CALL, &r)); // at 5 the first member would be 2 old
    assert_int_equal(r.group, 1);
    assert_int_equal(r.fate, GROUP_KEPT); // leave one out of the two that came
    assert_close(r.advantage[1], 1, 1e-15, 0);
    assert_int_equal(groups_take(g, 4, GROUP_LAST_CALL, &r), ST_AGAIN);
    assert_int_equal(add(g, 1, 2, 4, 1), GROUP_LATE);
    assert_int_equal(groups_counts(g)->late, 1);
    assert_int_equal(groups_counts(g)->incomplete, 1);
    groups_destroy(g);
}

static void all_are_settled_when_nobody_comes_any_more(void **state)
{
    struct groups *g = make(4, 9, GROUP_RLOO);
    struct group_result r;

    (void)state;
    add(g, 1, 0, 0, 0);
    add(g, 1, 3, 0, 1);
    assert_int_equal(groups_take(g, 0, GROUP_LAST_CALL, &r), ST_AGAIN);
    assert_ok(groups_take(g, 0, GROUP_ALL, &r));
    assert_int_equal(r.fate, GROUP_KEPT);
    groups_destroy(g);
}

static void one_member_that_is_too_old_drops_the_group(void **state)
{
    struct groups *g = make(3, 1, GROUP_RLOO);
    struct group_result r;

    (void)state;
    add(g, 1, 0, 5, 0);
    add(g, 1, 1, 3, 1);
    assert_ok(groups_take(g, 5, GROUP_WHOLE, &r)); // at once: nothing can make it younger
    assert_int_equal(r.fate, GROUP_STALE);
    assert_int_equal(r.n, 2);
    assert_true(r.advantage[0] == 0 && r.advantage[1] == 0);
    assert_int_equal(add(g, 1, 2, 5, 1), GROUP_LATE);
    groups_destroy(g);
}

static void a_member_counts_once(void **state)
{
    struct groups *g = make(2, 0, GROUP_RLOO);
    struct group_result r;

    (void)state;
    assert_int_equal(add(g, 1, 1, 0, 1), GROUP_HELD);
    assert_int_equal(add(g, 1, 1, 0, 0), GROUP_TWICE);
    assert_int_equal(add(g, 1, 0, 0, 0), GROUP_HELD);
    assert_ok(groups_take(g, 0, GROUP_WHOLE, &r));
    assert_close(r.advantage[1], 1, 1e-15, 0); // of the one that came first
    assert_int_equal(groups_counts(g)->twice, 1);
    groups_destroy(g);
}

static void what_cannot_be_is_refused(void **state)
{
    struct groups *g;
    enum group_verdict verdict;

    (void)state;
    assert_fails(groups_create(&g, &(struct groups_config){.size = 1}), ST_INVAL, "2 to 256");
    g = make(2, 0, GROUP_RLOO);
    assert_fails(groups_add(g, &(struct group_member){.group = 4, .member = 2}, &verdict), ST_INVAL,
                 "member 2 of group 4, expected 0 to 1");
    assert_fails(groups_add(g, &(struct group_member){.score = NAN}, &verdict), ST_INVAL,
                 "not finite");
    groups_destroy(g);
}

static void draining_gives_every_episode_back(void **state)
{
    struct groups *g = make(4, 9, GROUP_RLOO);
    struct group_result r;
    int n = 0;

    (void)state;
    for (uint64_t i = 0; i < 100; i++)
        add(g, i * 37 % 100, (uint32_t)(i % 3), 0, 1);
    for (uint64_t last = 0; groups_drain(g, &r) == ST_OK; last = r.group) {
        assert_true(n == 0 || r.group > last);
        n += r.n;
    }
    assert_int_equal(n, 100);
    assert_int_equal(groups_waiting(g), 0);
    groups_destroy(g);
}

// Whatever the order in which members of many groups arrive and however often groups are asked for,
// each group's advantages are the same, those of an unbroken group sum to 0 under all baselines,
// and no episode is lost.
static void arrival_does_not_matter(void **state)
{
    enum { N = 40 };
    static double want[N][SIZE];
    static int order[N * SIZE];

    (void)state;
    for (int trial = 0; trial < 60; trial++) {
        struct groups *g = make(SIZE, 2, (enum group_baseline)(trial / 20));
        struct rng rng = rng_make(9, RNG_TEST, (uint64_t)trial, 0, 0);
        struct group_result r;
        int seen = 0;

        for (int i = 0; i < N * SIZE; i++) {
            int k = (int)rng_below(&rng, (uint32_t)i + 1);

            order[i] = order[k];
            order[k] = i;
        }
        for (int i = 0; i < N * SIZE; i++) {
            int group = order[i] / SIZE, member = order[i] % SIZE;

            add(g, (uint64_t)group, (uint32_t)member, 0, (group * 7 + member * member) % 5 < 2);
            while (rng_below(&rng, 3) == 0 && groups_take(g, 1, GROUP_WHOLE, &r) == ST_OK) {
                double sum = 0;

                assert_int_equal(r.n, SIZE);
                for (int k = 0; k < SIZE; k++) {
                    if (trial % 20 == 0)
                        want[r.group][k] = r.advantage[k];
                    assert_true(r.advantage[k] == want[r.group][k]);
                    sum += r.advantage[k];
                }
                assert_close(sum, 0, 0, 1e-12);
                seen += r.n;
            }
        }
        while (groups_take(g, 2, GROUP_LAST_CALL, &r) == ST_OK) {
            for (int k = 0; k < SIZE && trial % 20 == 0; k++)
                want[r.group][k] = r.advantage[k];
            for (int k = 0; k < SIZE; k++)
                assert_true(r.advantage[k] == want[r.group][k]);
            seen += r.n;
        }
        assert_int_equal(seen, N * SIZE);
        assert_int_equal(groups_waiting(g), 0);
        groups_destroy(g);
    }
}

static void memory_can_run_out(void **state)
{
    struct groups *g = NULL;

    (void)state;
    for (int n = 0;; n++) {
        mem_fail_after(n);
        if (groups_create(&g, &(struct groups_config){.size = 4}) == ST_OK)
            break;
        assert_null(g);
    }
    mem_fail_after(-1);
    groups_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(advantages_are_those_of_the_papers),
        leak_test(a_group_is_held_until_it_is_complete),
        leak_test(uniform_groups_are_dropped),
        leak_test(a_single_member_has_no_baseline),
        leak_test(errors_are_members_without_a_score),
        leak_test(without_a_baseline_all_are_kept),
        leak_test(the_last_call_settles_what_would_be_too_old),
        leak_test(all_are_settled_when_nobody_comes_any_more),
        leak_test(one_member_that_is_too_old_drops_the_group),
        leak_test(a_member_counts_once),
        leak_test(what_cannot_be_is_refused),
        leak_test(draining_gives_every_episode_back),
        leak_test(arrival_does_not_matter),
        leak_test(memory_can_run_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
