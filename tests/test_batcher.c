#include "common/base/batcher.h"

#include "common/base/rng.h"
#include "common/base/thread.h"
#include "tests/testing.h"

#define MS NS_PER_MS

static struct batcher make(int b_max, int64_t t_max_ns)
{
    struct batcher b;

    assert_ok(batcher_init(&b, b_max, t_max_ns));
    return b;
}

static void an_empty_batch_never_leaves(void **state)
{
    struct batcher b = make(4, 0);

    (void)state;
    assert_int_equal(batcher_check(&b, 0, 0), BATCHER_WAIT);
    assert_int_equal(batcher_check(&b, INT64_MAX, 3), BATCHER_WAIT);
    assert_true(batcher_due_ns(&b, 100) == INT64_MAX);
    assert_int_equal(batcher_take(&b, 0), 0);
}

static void a_full_batch_leaves_at_once(void **state)
{
    struct batcher b = make(2, 5 * MS);

    (void)state;
    batcher_add(&b, 10 * MS);
    assert_int_equal(batcher_check(&b, 10 * MS, 9), BATCHER_WAIT);
    assert_true(batcher_due_ns(&b, 10 * MS) == 5 * MS);
    batcher_add(&b, 11 * MS);
    assert_int_equal(batcher_check(&b, 11 * MS, 9), BATCHER_FULL);
    assert_true(batcher_due_ns(&b, 11 * MS) == 0);
    assert_int_equal(batcher_take(&b, 0), 2);
    assert_int_equal(batcher_check(&b, 99 * MS, 9), BATCHER_WAIT);
}

static void the_deadline_belongs_to_the_first_row_after_an_idle_gap(void **state)
{
    struct batcher b = make(8, 5 * MS);

    (void)state;
    batcher_add(&b, 1 * MS);
    assert_int_equal(batcher_check(&b, 6 * MS, 1), BATCHER_DEADLINE);
    assert_int_equal(batcher_take(&b, 0), 1);
    // a second of nothing, then two arrivals
    batcher_add(&b, 1000 * MS);
    assert_int_equal(batcher_check(&b, 1000 * MS, 7), BATCHER_WAIT);
    assert_true(batcher_due_ns(&b, 1000 * MS) == 5 * MS);
    batcher_add(&b, 1004 * MS); // must not push the deadline out
    assert_true(batcher_due_ns(&b, 1004 * MS) == 1 * MS);
    assert_int_equal(batcher_check(&b, 1005 * MS - 1, 6), BATCHER_WAIT);
    assert_int_equal(batcher_check(&b, 1005 * MS, 6), BATCHER_DEADLINE);
    assert_true(batcher_due_ns(&b, 1005 * MS) == 0);
    assert_true(batcher_due_ns(&b, 2000 * MS) == 0);
    assert_int_equal(batcher_take(&b, 0), 2);
}

static void a_drained_batch_leaves_before_its_deadline(void **state)
{
    struct batcher b = make(8, 1000 * MS);

    (void)state;
    batcher_add(&b, 1 * MS);
    assert_int_equal(batcher_check(&b, 1 * MS, 1), BATCHER_WAIT);
    assert_int_equal(batcher_check(&b, 1 * MS, 0), BATCHER_DRAINED);
}

static void without_time_a_row_never_waits(void **state)
{
    struct batcher b = make(8, 0);

    (void)state;
    batcher_add(&b, 7);
    assert_true(batcher_due_ns(&b, 7) == 0);
    assert_int_equal(batcher_check(&b, 7, 5), BATCHER_DEADLINE);
}

static void more_than_a_batch_leaves_in_several(void **state)
{
    struct batcher b = make(4, 5 * MS);

    (void)state;
    for (int i = 0; i < 10; i++)
        batcher_add(&b, i * MS);
    assert_int_equal(batcher_check(&b, 9 * MS, 3), BATCHER_FULL);
    assert_int_equal(batcher_take(&b, 4 * MS), 4);
    assert_int_equal(batcher_check(&b, 9 * MS, 3), BATCHER_FULL);
    assert_int_equal(batcher_take(&b, 8 * MS), 4);
    // the two that stay keep the arrival of the older one
    assert_int_equal(batcher_check(&b, 12 * MS, 3), BATCHER_WAIT);
    assert_true(batcher_due_ns(&b, 12 * MS) == 1 * MS);
    assert_int_equal(batcher_check(&b, 13 * MS, 3), BATCHER_DEADLINE);
    assert_int_equal(batcher_take(&b, 0), 2);
    assert_int_equal(batcher_take(&b, 0), 0);
}

static void enough_rows_leave_with_all_that_are_there(void **state)
{
    struct batcher b = make(8, 5 * MS);

    (void)state;
    assert_ok(batcher_set_min(&b, 3));
    batcher_add(&b, 1 * MS);
    batcher_add(&b, 2 * MS);
    assert_int_equal(batcher_check(&b, 2 * MS, 6), BATCHER_WAIT);
    assert_int_equal(batcher_check(&b, 6 * MS, 6), BATCHER_DEADLINE); // T_max decides below B_min
    batcher_add(&b, 3 * MS);
    assert_true(batcher_due_ns(&b, 3 * MS) == 0);
    assert_int_equal(batcher_check(&b, 3 * MS, 5), BATCHER_ENOUGH);
    batcher_add(&b, 3 * MS);
    assert_int_equal(batcher_take(&b, 0), 4); // the one that came in between goes along
    assert_fails(batcher_set_min(&b, 0), ST_INVAL, "at least 0 rows");
    assert_fails(batcher_set_min(&b, 9), ST_INVAL, "expected 1..8");
}

static void reasons_have_an_order(void **state)
{
    struct batcher b = make(1, 5 * MS);

    (void)state;
    batcher_add(&b, 0);
    assert_int_equal(batcher_check(&b, 99 * MS, 0), BATCHER_FULL);
    b = make(2, 5 * MS);
    batcher_add(&b, 0);
    assert_int_equal(batcher_check(&b, 99 * MS, 0), BATCHER_DRAINED);
    assert_string_equal(batcher_why_name(BATCHER_FULL), "full");
    assert_string_equal(batcher_why_name(BATCHER_DEADLINE), "deadline");
    assert_string_equal(batcher_why_name(BATCHER_DRAINED), "drained");
    assert_string_equal(batcher_why_name(BATCHER_ENOUGH), "enough");
}

static void bad_settings_are_named(void **state)
{
    struct batcher b;

    (void)state;
    assert_fails(batcher_init(&b, 0, 0), ST_INVAL, "batch size 0");
    assert_fails(batcher_init(&b, BATCHER_MAX + 1, 0), ST_INVAL, "batch size");
    assert_fails(batcher_init(&b, 1, -1), ST_INVAL, "timeout -1");
    assert_ok(batcher_init(&b, BATCHER_MAX, INT64_MAX));
    batcher_add(&b, 5);
    assert_int_equal(batcher_check(&b, INT64_MAX / 2, 1), BATCHER_WAIT);
}

#define ROWS 100000

// Random arrivals on a clock of its own: the rows that left, in order, and how long each waited.
struct run {
    int64_t arrival[ROWS];
    int arrived, left;
    int why[4];
    int64_t now;
    struct rng rng;
};

static int64_t gap(struct run *run)
{
    switch (rng_below(&run->rng, 10)) {
    case 0:
        return (int64_t)(rng_unit(&run->rng) * 50 * MS); // idle
    case 1:
    case 2:
        return 0; // burst
    default:
        return (int64_t)(rng_unit(&run->rng) * 0.5 * MS);
    }
}

static void leave(struct run *run, struct batcher *b, int64_t t_max, int in_flight)
{
    enum batcher_why why = batcher_check(b, run->now, in_flight);
    int waiting = run->arrived - run->left, n;

    assert_int_equal(b->n, waiting);
    if (waiting == 0) {
        assert_int_equal(why, BATCHER_WAIT);
        return;
    }
    assert_true(run->now - run->arrival[run->left] <= t_max); // nobody waits longer
    if (why == BATCHER_WAIT) {
        assert_true(run->now < run->arrival[run->left] + t_max);
        assert_true(waiting < b->b_max && in_flight > 0);
        return;
    }
    n = waiting < b->b_max ? waiting : b->b_max;
    assert_int_equal(
        batcher_take(b, run->left + n < run->arrived ? run->arrival[run->left + n] : 0), n);
    run->left += n;
    run->why[why]++;
}

static void every_row_leaves_once_in_order_and_in_time(void **state)
{
    const int64_t t_max = 2 * MS;
    struct run *run = mem_alloc(1, sizeof *run);
    struct batcher b = make(16, t_max);
    int64_t next;

    (void)state;
    run->rng = rng_make(4, RNG_TEST, 0, 0, 0);
    next = gap(run);
    while (run->left < ROWS) {
        int64_t due = batcher_due_ns(&b, run->now);
        int in_flight = run->arrived < ROWS && rng_below(&run->rng, 50) ? 1 : 0;

        if (run->arrived < ROWS && (due == INT64_MAX || next <= run->now + due)) {
            run->now = next;
            run->arrival[run->arrived++] = run->now;
            batcher_add(&b, run->now);
            next = run->now + gap(run);
            if (rng_below(&run->rng, 20) == 0 && run->arrived < ROWS)
                continue; // the next one comes before anybody looks, if it is in time
        } else {
            run->now += due;
        }
        leave(run, &b, t_max, in_flight);
    }
    assert_int_equal(run->arrived, ROWS);
    assert_int_equal(b.n, 0);
    for (int why = BATCHER_FULL; why <= BATCHER_DRAINED; why++)
        assert_true(run->why[why] > 100);
    mem_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(an_empty_batch_never_leaves),
        leak_test(a_full_batch_leaves_at_once),
        leak_test(the_deadline_belongs_to_the_first_row_after_an_idle_gap),
        leak_test(a_drained_batch_leaves_before_its_deadline),
        leak_test(without_time_a_row_never_waits),
        leak_test(more_than_a_batch_leaves_in_several),
        leak_test(enough_rows_leave_with_all_that_are_there),
        leak_test(reasons_have_an_order),
        leak_test(bad_settings_are_named),
        leak_test(every_row_leaves_once_in_order_and_in_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
