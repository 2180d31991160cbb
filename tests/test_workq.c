// The queue of slots: order, every item claimed once by any number of threads, and workers that
// stop at the worst moment.
#include "tests/testing.h"

#include "common/base/thread.h"
#include "envserver/workq.h"

#include <sched.h>

#define N_ITEM   37
#define N_WORKER 4
#define ROUNDS   5000

struct rig {
    struct workq q;
    struct workq_cell *cells;
    void *ring;
    atomic_int claims[N_ITEM];
    int put[N_ITEM];
    atomic_bool stop;
};

static void rig_init(struct rig *r, int n_item)
{
    memset(r, 0, sizeof *r);
    r->cells = mem_alloc((size_t)n_item, sizeof r->cells[0]);
    r->ring = mem_alloc(1, workq_ring_bytes(n_item));
    assert_true(r->cells && r->ring);
    workq_init(&r->q, r->ring, r->cells, n_item);
}

static void rig_fini(struct rig *r)
{
    mem_free(r->cells);
    mem_free(r->ring);
}

static void items_come_in_order(void **state)
{
    struct rig r;
    unsigned owner;
    int i, round;

    (void)state;
    rig_init(&r, N_ITEM);
    for (round = 0; round < 200; round++) {
        assert_int_equal(workq_claim(&r.q, 1), -1);
        assert_false(workq_any(&r.q));
        for (i = 0; i < N_ITEM; i++)
            workq_put(&r.q, (uint32_t)((i * 5) % N_ITEM));
        for (i = 0; i < N_ITEM; i++) {
            int item = (i * 5) % N_ITEM;

            assert_int_equal(workq_look(&r.cells[item], NULL), WORKQ_QUEUED);
            assert_int_equal(workq_claim(&r.q, 3), item);
            assert_int_equal(workq_look(&r.cells[item], &owner), WORKQ_CLAIMED);
            assert_int_equal(owner, 3);
            if (i % 2) {
                workq_release(&r.cells[item]);
                continue;
            }
            assert_false(workq_collect(&r.cells[item]));
            workq_finish(&r.cells[item], 3);
            assert_int_equal(workq_look(&r.cells[item], &owner), WORKQ_FINISHED);
            assert_int_equal(owner, 3);
            assert_true(workq_collect(&r.cells[item]));
            assert_false(workq_collect(&r.cells[item]));
        }
    }
    rig_fini(&r);
}

// A worker claims an item and dies before it moves the head: the entry is skipped.
static void an_entry_without_its_item_is_skipped(void **state)
{
    struct rig r;
    int i;

    (void)state;
    rig_init(&r, N_ITEM);
    for (i = 0; i < 20000; i++) { // the ring is full of such entries long before the end
        workq_put(&r.q, 5);
        workq_put(&r.q, 6);
        atomic_store(&r.cells[5].word, WORKQ_IDLE); // as if claimed, answered, and never skipped
        assert_int_equal(workq_claim(&r.q, 0), 6);
        workq_release(&r.cells[6]);
        workq_put(&r.q, 5);
        atomic_store(&r.cells[5].word, WORKQ_IDLE);
    }
    workq_put(&r.q, 7);
    assert_int_equal(workq_claim(&r.q, 0), 7);
    assert_int_equal(workq_claim(&r.q, 0), -1);
    rig_fini(&r);
}

static void *claim_all(void *arg)
{
    struct rig *r = arg;

    while (!atomic_load(&r->stop)) {
        int64_t item = workq_claim(&r->q, 2);

        if (item < 0) {
            sched_yield();
            continue;
        }
        atomic_fetch_add(&r->claims[item], 1);
        workq_release(&r->cells[item]);
    }
    return NULL;
}

static void every_item_is_claimed_once(void **state)
{
    pthread_t threads[N_WORKER];
    struct rig r;
    int i, n = 0, left;

    (void)state;
    rig_init(&r, N_ITEM);
    for (i = 0; i < N_WORKER; i++)
        assert_ok(thread_start(&threads[i], "claim", claim_all, &r));
    while (n < ROUNDS * N_ITEM / 10) {
        int before = n;

        for (i = 0; i < N_ITEM; i++)
            if (workq_look(&r.cells[i], NULL) == WORKQ_IDLE) {
                assert_int_equal(atomic_load(&r.claims[i]), r.put[i]); // all that were put
                r.put[i]++;
                workq_put(&r.q, (uint32_t)i);
                n++;
            }
        if (n == before)
            sched_yield();
    }
    do {
        for (left = i = 0; i < N_ITEM; i++)
            left += workq_look(&r.cells[i], NULL) != WORKQ_IDLE;
        sched_yield();
    } while (left > 0);
    atomic_store(&r.stop, true);
    for (i = 0; i < N_WORKER; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < N_ITEM; i++)
        assert_int_equal(atomic_load(&r.claims[i]), r.put[i]);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(items_come_in_order),
        leak_test(an_entry_without_its_item_is_skipped),
        leak_test(every_item_is_claimed_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
