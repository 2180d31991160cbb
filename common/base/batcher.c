#include "common/base/batcher.h"

enum status batcher_init(struct batcher *b, int b_max, int64_t t_max_ns)
{
    if (b_max < 1 || b_max > BATCHER_MAX)
        return FAIL(ST_INVAL, "batch size %d is outside 1..%d", b_max, BATCHER_MAX);
    if (t_max_ns < 0)
        return FAIL(ST_INVAL, "batch timeout %lld ns is negative", (long long)t_max_ns);
    *b = (struct batcher){.b_min = b_max, .b_max = b_max, .t_max_ns = t_max_ns};
    return ST_OK;
}

enum status batcher_set_min(struct batcher *b, int b_min)
{
    if (b_min < 1 || b_min > b->b_max)
        return FAIL(ST_INVAL, "a batch of at least %d rows is impossible, expected 1..%d (b_max)",
                    b_min, b->b_max);
    b->b_min = b_min;
    return ST_OK;
}

void batcher_add(struct batcher *b, int64_t now_ns)
{
    if (b->n++ == 0)
        b->oldest_ns = now_ns;
}

enum batcher_why batcher_check(const struct batcher *b, int64_t now_ns, int in_flight)
{
    if (b->n == 0)
        return BATCHER_WAIT;
    if (b->n >= b->b_max)
        return BATCHER_FULL;
    if (in_flight == 0)
        return BATCHER_DRAINED;
    if (b->n >= b->b_min)
        return BATCHER_ENOUGH;
    return now_ns - b->oldest_ns >= b->t_max_ns ? BATCHER_DEADLINE : BATCHER_WAIT;
}

int64_t batcher_due_ns(const struct batcher *b, int64_t now_ns)
{
    int64_t left;

    if (b->n == 0)
        return INT64_MAX;
    if (b->n >= b->b_min)
        return 0;
    left = b->t_max_ns - (now_ns - b->oldest_ns);
    return left > 0 ? left : 0;
}

int batcher_take(struct batcher *b, int64_t next_ns)
{
    int n = b->n < b->b_max ? b->n : b->b_max;

    b->n -= n;
    b->oldest_ns = next_ns;
    return n;
}

const char *batcher_why_name(enum batcher_why why)
{
    static const char *const names[] = {"wait", "full", "deadline", "drained", "enough"};

    return names[why];
}
