#include "common/base/queue.h"

#include "common/base/thread.h"
#include "tests/testing.h"

#include <stdatomic.h>

static struct queue *make(int capacity)
{
    struct queue *q = NULL;

    assert_ok(queue_create(&q, capacity));
    return q;
}

static int items[64];

static void items_leave_in_order(void **state)
{
    struct queue *q = make(3);
    void *item;

    (void)state;
    for (int round = 0; round < 5; round++) { // the ring goes round
        assert_ok(queue_push(q, &items[0], 0));
        assert_ok(queue_push(q, &items[1], 0));
        assert_int_equal(queue_length(q), 2);
        assert_ok(queue_pop(q, &item, 0));
        assert_ptr_equal(item, &items[0]);
        assert_ok(queue_pop(q, &item, WAIT_NEVER));
        assert_ptr_equal(item, &items[1]);
        assert_int_equal(queue_length(q), 0);
    }
    queue_destroy(q);
    queue_destroy(NULL);
}

static void full_and_empty_say_again(void **state)
{
    struct queue *q = make(1);
    void *item = &items[9];

    (void)state;
    assert_int_equal(queue_pop(q, &item, 0), ST_AGAIN);
    assert_ptr_equal(item, &items[9]);
    assert_ok(queue_push(q, &items[0], 0));
    assert_int_equal(queue_push(q, &items[1], 0), ST_AGAIN);
    assert_int_equal(queue_length(q), 1);
    assert_ok(queue_pop(q, &item, 0));
    assert_ptr_equal(item, &items[0]);
    queue_destroy(q);
}

static void waits_end_in_time(void **state)
{
    struct queue *q = make(1);
    int64_t start = clock_now_ns();
    void *item;

    (void)state;
    assert_int_equal(queue_pop(q, &item, 3 * NS_PER_MS), ST_TIMEOUT);
    assert_true(clock_now_ns() - start >= 3 * NS_PER_MS);
    assert_ok(queue_push(q, &items[0], NS_PER_MS));
    start = clock_now_ns();
    assert_int_equal(queue_push(q, &items[1], 3 * NS_PER_MS), ST_TIMEOUT);
    assert_true(clock_now_ns() - start >= 3 * NS_PER_MS);
    queue_destroy(q);
}

static void queue_close_lets_pops_drain(void **state)
{
    struct queue *q = make(4);
    void *item;

    (void)state;
    assert_ok(queue_push(q, &items[0], 0));
    assert_ok(queue_push(q, &items[1], 0));
    queue_close(q);
    queue_close(q);
    assert_int_equal(queue_push(q, &items[2], 0), ST_CLOSED);
    assert_int_equal(queue_push(q, &items[2], WAIT_NEVER), ST_CLOSED);
    assert_ok(queue_pop(q, &item, WAIT_NEVER));
    assert_ptr_equal(item, &items[0]);
    assert_ok(queue_pop(q, &item, 0));
    assert_ptr_equal(item, &items[1]);
    assert_int_equal(queue_pop(q, &item, 0), ST_CLOSED);
    assert_int_equal(queue_pop(q, &item, WAIT_NEVER), ST_CLOSED);
    queue_destroy(q);
}

struct waiter {
    struct queue *q;
    bool push;
    enum status st;
};

static void *wait_for_it(void *arg)
{
    struct waiter *w = arg;
    void *item;

    w->st = w->push ? queue_push(w->q, &items[5], WAIT_NEVER) : queue_pop(w->q, &item, WAIT_NEVER);
    return NULL;
}

// Whether they wait already or come later, a close must end them all.
static void queue_close_wakes_all_waiters(void **state)
{
    for (int push = 0; push < 2; push++) {
        struct queue *q = make(1);
        struct waiter w[4];
        pthread_t threads[4];
        void *item;

        (void)state;
        if (push)
            assert_ok(queue_push(q, &items[0], 0));
        for (int i = 0; i < 4; i++) {
            w[i] = (struct waiter){.q = q, .push = push, .st = ST_OK};
            assert_ok(thread_start(&threads[i], "waiter", wait_for_it, &w[i]));
        }
        clock_sleep_ns(2 * NS_PER_MS); // most of them wait by now
        queue_close(q);
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(w[i].st, ST_CLOSED);
        }
        if (push)
            assert_ok(queue_pop(q, &item, 0));
        queue_destroy(q);
    }
}

#define PRODUCERS 4
#define CONSUMERS 3
#define EACH      5000

static struct hammer {
    struct queue *q;
    atomic_int seen[PRODUCERS][EACH];
    atomic_int disorder, errors;
} hammer;

static int numbers[PRODUCERS][EACH];

static void *produce(void *arg)
{
    int me = *(int *)arg;

    for (int i = 0; i < EACH; i++) {
        enum status st;

        do
            st = queue_push(hammer.q, &numbers[me][i], i % 3 ? WAIT_NEVER : i % 2 ? 1000 : 0);
        while (st == ST_AGAIN || st == ST_TIMEOUT);
        if (st != ST_OK)
            atomic_fetch_add(&hammer.errors, 1);
    }
    return NULL;
}

static void *consume(void *arg)
{
    int last[PRODUCERS] = {-1, -1, -1, -1};
    enum status st;
    void *item;

    (void)arg;
    while ((st = queue_pop(hammer.q, &item, WAIT_NEVER)) == ST_OK) {
        int at = (int)((int *)item - &numbers[0][0]), from = at / EACH, i = at % EACH;

        atomic_fetch_add(&hammer.seen[from][i], 1);
        if (i <= last[from]) // one consumer sees a producer's items in order
            atomic_fetch_add(&hammer.disorder, 1);
        last[from] = i;
    }
    if (st != ST_CLOSED)
        atomic_fetch_add(&hammer.errors, 1);
    return NULL;
}

static void nothing_is_lost_or_doubled_between_threads(void **state)
{
    int ids[PRODUCERS];
    pthread_t producers[PRODUCERS], consumers[CONSUMERS];

    (void)state;
    hammer.q = make(7);
    for (int i = 0; i < CONSUMERS; i++)
        assert_ok(thread_start(&consumers[i], "consumer", consume, NULL));
    for (int i = 0; i < PRODUCERS; i++) {
        ids[i] = i;
        assert_ok(thread_start(&producers[i], "producer", produce, &ids[i]));
    }
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(producers[i], NULL);
    queue_close(hammer.q);
    for (int i = 0; i < CONSUMERS; i++)
        pthread_join(consumers[i], NULL);
    for (int i = 0; i < PRODUCERS; i++)
        for (int k = 0; k < EACH; k++)
            assert_int_equal(atomic_load(&hammer.seen[i][k]), 1);
    assert_int_equal(atomic_load(&hammer.disorder), 0);
    assert_int_equal(atomic_load(&hammer.errors), 0);
    queue_destroy(hammer.q);
}

static void a_queue_needs_room_and_memory(void **state)
{
    struct queue *q = NULL;

    (void)state;
    assert_fails(queue_create(&q, 0), ST_INVAL, "capacity 0");
    assert_fails(queue_create(&q, -5), ST_INVAL, "capacity -5");
    for (int64_t n = 0;; n++) {
        enum status st;

        mem_fail_after(n);
        st = queue_create(&q, 4);
        mem_fail_after(-1);
        if (st == ST_OK) {
            assert_true(n > 0);
            break;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_null(q);
    }
    queue_destroy(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(items_leave_in_order),
        leak_test(full_and_empty_say_again),
        leak_test(waits_end_in_time),
        leak_test(queue_close_lets_pops_drain),
        leak_test(queue_close_wakes_all_waiters),
        leak_test(nothing_is_lost_or_doubled_between_threads),
        leak_test(a_queue_needs_room_and_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
