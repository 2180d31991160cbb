#include "common/base/queue.h"

#include "common/base/mem.h"
#include "common/base/thread.h"

struct queue {
    pthread_mutex_t mtx;
    pthread_cond_t not_empty, not_full;
    int capacity, first, n; // first and n guarded by mtx
    bool closed;            // guarded by mtx
    void *items[];          // (capacity) guarded by mtx
};

enum status queue_create(struct queue **out, int capacity)
{
    struct queue *q;

    if (capacity < 1)
        return FAIL(ST_INVAL, "queue capacity %d is less than 1", capacity);
    q = mem_alloc(1, sizeof *q + (size_t)capacity * sizeof q->items[0]);
    if (!q)
        return ST_NOMEM;
    q->capacity = capacity;
    pthread_mutex_init(&q->mtx, NULL);
    cond_init(&q->not_empty);
    cond_init(&q->not_full);
    *out = q;
    return ST_OK;
}

// Wait on `cond` until the deadline; called and returns with the lock held.
static enum status wait_on(struct queue *q, pthread_cond_t *cond, int64_t wait_ns,
                           int64_t *deadline)
{
    if (wait_ns == 0)
        return ST_AGAIN;
    if (*deadline == 0)
        *deadline = deadline_after(wait_ns);
    else if (*deadline != WAIT_NEVER && clock_now_ns() >= *deadline)
        return ST_TIMEOUT;
    (void)cond_wait_until(cond, &q->mtx, *deadline); // the caller looks again either way
    return ST_OK;
}

enum status queue_push(struct queue *q, void *item, int64_t wait_ns)
{
    enum status st = ST_OK;
    int64_t deadline = 0;

    pthread_mutex_lock(&q->mtx);
    while (st == ST_OK && !q->closed && q->n == q->capacity)
        st = wait_on(q, &q->not_full, wait_ns, &deadline);
    if (q->closed) {
        st = ST_CLOSED;
    } else if (st == ST_OK) {
        q->items[(q->first + q->n++) % q->capacity] = item;
        pthread_cond_signal(&q->not_empty);
    }
    pthread_mutex_unlock(&q->mtx);
    return st;
}

enum status queue_pop(struct queue *q, void **out, int64_t wait_ns)
{
    enum status st = ST_OK;
    int64_t deadline = 0;

    pthread_mutex_lock(&q->mtx);
    while (st == ST_OK && !q->closed && q->n == 0)
        st = wait_on(q, &q->not_empty, wait_ns, &deadline);
    if (q->n > 0) {
        *out = q->items[q->first];
        q->first = (q->first + 1) % q->capacity;
        q->n--;
        pthread_cond_signal(&q->not_full);
        st = ST_OK;
    } else if (q->closed) {
        st = ST_CLOSED;
    }
    pthread_mutex_unlock(&q->mtx);
    return st;
}

void queue_close(struct queue *q)
{
    pthread_mutex_lock(&q->mtx);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->mtx);
}

int queue_length(struct queue *q)
{
    int n;

    pthread_mutex_lock(&q->mtx);
    n = q->n;
    pthread_mutex_unlock(&q->mtx);
    return n;
}

void queue_destroy(struct queue *q)
{
    if (!q)
        return;
    pthread_cond_destroy(&q->not_empty);
    pthread_cond_destroy(&q->not_full);
    pthread_mutex_destroy(&q->mtx);
    mem_free(q);
}
