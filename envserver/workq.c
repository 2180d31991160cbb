#include "envserver/workq.h"

#include <sched.h>

#define WORD(state, worker) ((unsigned)(state) | (worker) << 2)

static uint64_t ring_size(int n_item)
{
    uint64_t size = 1024; // room for entries that will be skipped

    while (size < 2 * (uint64_t)n_item)
        size *= 2;
    return size;
}

size_t workq_ring_bytes(int n_item)
{
    return ring_size(n_item) * sizeof(atomic_uint);
}

void workq_init(struct workq *q, void *ring, struct workq_cell *cells, int n_item)
{
    atomic_init(&q->head, 0);
    atomic_init(&q->tail, 0);
    q->mask = ring_size(n_item) - 1;
    q->ring = ring;
    q->cells = cells;
}

// Move the head over an entry whose item is not queued.
static void skip(struct workq *q)
{
    unsigned long long head = atomic_load(&q->head);
    uint32_t item = atomic_load(&q->ring[head & q->mask]);

    if (head < atomic_load(&q->tail) && workq_look(&q->cells[item], NULL) != WORKQ_QUEUED)
        atomic_compare_exchange_strong(&q->head, &head, head + 1);
    else
        sched_yield();
}

void workq_put(struct workq *q, uint32_t item)
{
    unsigned long long tail = atomic_load_explicit(&q->tail, memory_order_relaxed);

    // an item is queued once at most, so a full ring holds entries to skip
    while (tail - atomic_load(&q->head) > q->mask)
        skip(q);
    atomic_store(&q->cells[item].word, WORD(WORKQ_QUEUED, 0));
    atomic_store_explicit(&q->ring[tail & q->mask], item, memory_order_relaxed);
    atomic_store(&q->tail, tail + 1);
}

int64_t workq_claim(struct workq *q, unsigned worker)
{
    for (;;) {
        unsigned long long head = atomic_load(&q->head);
        unsigned queued = WORD(WORKQ_QUEUED, 0);
        uint32_t item;
        bool won;

        if (head >= atomic_load(&q->tail))
            return -1;
        // if the head has moved on and the entry is a later one: its item is as good
        item = atomic_load_explicit(&q->ring[head & q->mask], memory_order_relaxed);
        won = atomic_compare_exchange_strong(&q->cells[item].word, &queued,
                                             WORD(WORKQ_CLAIMED, worker));
        atomic_compare_exchange_strong(&q->head, &head, head + 1);
        if (won)
            return item;
    }
}

bool workq_any(struct workq *q)
{
    return atomic_load(&q->head) < atomic_load(&q->tail);
}

void workq_release(struct workq_cell *cell)
{
    atomic_store_explicit(&cell->word, WORKQ_IDLE, memory_order_release);
}

void workq_finish(struct workq_cell *cell, unsigned worker)
{
    atomic_store(&cell->word, WORD(WORKQ_FINISHED, worker));
}

bool workq_collect(struct workq_cell *cell)
{
    unsigned word = atomic_load(&cell->word);

    return (word & 3) == WORKQ_FINISHED &&
           atomic_compare_exchange_strong(&cell->word, &word, WORKQ_IDLE);
}

enum workq_state workq_look(struct workq_cell *cell, unsigned *worker)
{
    unsigned word = atomic_load(&cell->word);

    if (worker)
        *worker = word >> 2;
    return (enum workq_state)(word & 3);
}
