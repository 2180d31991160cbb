#include "common/base/mem.h"

#include "common/base/status.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// The size stands in front of the block, so that resize knows what to copy.
#define HEAD 64

static atomic_llong live, calls;
static atomic_llong fail_at = -1;

static bool fail_now(void)
{
    long long left = atomic_load(&fail_at);

    if (left < 0)
        return false;
    return atomic_fetch_sub(&fail_at, 1) == 0;
}

void *mem_alloc(size_t n, size_t size)
{
    size_t bytes;
    char *block = NULL;

    atomic_fetch_add(&calls, 1);
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX - 2 * HEAD) {
        (void)FAIL(ST_NOMEM, "cannot allocate %zu items of %zu bytes", n, size);
        return NULL;
    }
    if (!fail_now())
        block = aligned_alloc(HEAD, (bytes + 2 * HEAD - 1) / HEAD * HEAD);
    if (!block) {
        (void)FAIL(ST_NOMEM, "out of memory for %zu bytes", bytes);
        return NULL;
    }
    memset(block, 0, HEAD + bytes);
    memcpy(block, &bytes, sizeof bytes);
    atomic_fetch_add(&live, 1);
    return block + HEAD;
}

void *mem_resize(void *p, size_t n, size_t size)
{
    size_t old;
    void *q = mem_alloc(n, size);

    if (!q || !p)
        return q;
    memcpy(&old, (char *)p - HEAD, sizeof old);
    memcpy(q, p, old < n * size ? old : n * size);
    mem_free(p);
    return q;
}

char *mem_strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = mem_alloc(n, 1);

    if (copy)
        memcpy(copy, text, n);
    return copy;
}

void mem_free(void *p)
{
    if (!p)
        return;
    atomic_fetch_sub(&live, 1);
    free((char *)p - HEAD);
}

int64_t mem_live(void)
{
    return atomic_load(&live);
}

int64_t mem_calls(void)
{
    return atomic_load(&calls);
}

void mem_fail_after(int64_t n)
{
    atomic_store(&fail_at, n);
}
