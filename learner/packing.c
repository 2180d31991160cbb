#include "learner/packing.h"

#include "common/base/mem.h"

#include <string.h>

// Leaves of the tree: the least power of two that holds n_max batches.
static int leaves(int n_max)
{
    int n = 1;

    while (n < n_max)
        n *= 2;
    return n;
}

enum status packing_init(struct packing *p, int n_max)
{
    size_t n = (size_t)n_max;

    memset(p, 0, sizeof *p);
    p->n_max = n_max;
    p->item = mem_alloc(n, sizeof p->item[0]);
    p->first = mem_alloc(n + 1, sizeof p->first[0]);
    p->order = mem_alloc(n, sizeof p->order[0]);
    p->batch = mem_alloc(n, sizeof p->batch[0]);
    p->room = mem_alloc(2 * (size_t)leaves(n_max), sizeof p->room[0]);
    if (p->item && p->first && p->order && p->batch && p->room)
        return ST_OK;
    packing_fini(p);
    return ST_NOMEM;
}

void packing_fini(struct packing *p)
{
    mem_free(p->item);
    mem_free(p->first);
    mem_free(p->order);
    mem_free(p->batch);
    mem_free(p->room);
    memset(p, 0, sizeof *p);
}

static enum status check(const struct packing *p, const int *length, int n, int budget)
{
    int64_t total = 0;

    if (n < 0 || n > p->n_max)
        return FAIL(ST_INVAL, "%d sequences to pack, at most %d", n, p->n_max);
    if (budget < 1 || budget > PACKING_TOKENS_MAX)
        return FAIL(ST_INVAL, "a budget of %d tokens, expected 1 to %d", budget,
                    PACKING_TOKENS_MAX);
    for (int i = 0; i < n; i++) {
        if (length[i] < 1 || length[i] > budget)
            return FAIL(ST_INVAL, "sequence %d has %d tokens, expected 1 to the budget of %d", i,
                        length[i], budget);
        total += length[i];
        if (total > PACKING_TOKENS_MAX)
            return FAIL(ST_INVAL, "sequences of more than %d tokens in all", PACKING_TOKENS_MAX);
    }
    return ST_OK;
}

// Merge sort of `order` by falling length; stable, so equal ones stay in ascending order. `spare`
// has n places.
static void sort_falling(int *order, int *spare, const int *length, int n)
{
    int *from = order, *to = spare;

    for (int width = 1; width < n; width *= 2) {
        for (int at = 0; at < n; at += 2 * width) {
            int mid = at + width < n ? at + width : n;
            int end = at + 2 * width < n ? at + 2 * width : n;
            int a = at, b = mid;

            for (int k = at; k < end; k++)
                to[k] = b >= end || (a < mid && length[from[a]] >= length[from[b]]) ? from[a++]
                                                                                    : from[b++];
        }
        int *swap = from;

        from = to;
        to = swap;
    }
    if (from != order)
        memcpy(order, from, (size_t)n * sizeof order[0]);
}

// The first batch with room for `want`; the tree's root has it.
static int first_fit(const int *room, int n_leaf, int want)
{
    int k = 1;

    while (k < n_leaf)
        k = room[2 * k] >= want ? 2 * k : 2 * k + 1;
    return k - n_leaf;
}

static void use_room(int *room, int n_leaf, int b, int tokens)
{
    int k = n_leaf + b;

    room[k] -= tokens;
    for (k /= 2; k >= 1; k /= 2)
        room[k] = room[2 * k] > room[2 * k + 1] ? room[2 * k] : room[2 * k + 1];
}

// item and first from the batch of each sequence: a counting sort, so that the sequences of a batch
// are in ascending order.
static void gather(struct packing *p)
{
    memset(p->first, 0, (size_t)(p->n_batch + 1) * sizeof p->first[0]);
    for (int i = 0; i < p->n; i++)
        p->first[p->batch[i] + 1]++;
    for (int b = 0; b < p->n_batch; b++)
        p->first[b + 1] += p->first[b];
    memcpy(p->order, p->first, (size_t)p->n_batch * sizeof p->order[0]); // where the next one goes
    for (int i = 0; i < p->n; i++)
        p->item[p->order[p->batch[i]]++] = i;
}

enum status packing_pack(struct packing *p, const int *length, int n, int budget)
{
    int n_leaf = leaves(p->n_max);

    TRY(check(p, length, n, budget));
    p->n = n;
    p->n_batch = 0;
    p->tokens = 0;
    for (int i = 0; i < n; i++)
        p->order[i] = i;
    sort_falling(p->order, p->item, length, n);
    for (int k = 1; k < 2 * n_leaf; k++)
        p->room[k] = budget;
    for (int k = 0; k < n; k++) {
        int i = p->order[k], b = first_fit(p->room, n_leaf, length[i]);

        use_room(p->room, n_leaf, b, length[i]);
        p->batch[i] = b;
        p->tokens += length[i];
        if (b >= p->n_batch)
            p->n_batch = b + 1;
    }
    p->computed = p->tokens;
    gather(p);
    return ST_OK;
}

enum status packing_pad(struct packing *p, const int *length, int n, int budget)
{
    int count = 0, longest = 0;

    TRY(check(p, length, n, budget));
    p->n = n;
    p->n_batch = 0;
    p->tokens = p->computed = 0;
    for (int i = 0; i < n; i++) {
        int with = length[i] > longest ? length[i] : longest;

        if (count == 0 || (int64_t)(count + 1) * with > budget) {
            p->computed += (int64_t)count * longest;
            p->n_batch++;
            count = 0;
            with = length[i];
        }
        longest = with;
        count++;
        p->batch[i] = p->n_batch - 1;
        p->tokens += length[i];
    }
    p->computed += (int64_t)count * longest;
    gather(p);
    return ST_OK;
}

double packing_share(const struct packing *p)
{
    return p->computed > 0 ? (double)p->tokens / (double)p->computed : 1;
}
