#define _GNU_SOURCE
#include "envserver/wake.h"

#include "common/base/thread.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(atomic_uint) == 4, "a futex is a word of 32 bits");

void wake_wait(atomic_uint *word, unsigned seen, int64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                             .tv_nsec = (long)(deadline_ns % NS_PER_S)};

    if (deadline_ns < 0)
        return;
    // WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC
    (void)syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen,
                  deadline_ns == WAIT_NEVER ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

void wake_one(atomic_uint *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void wake_all(atomic_uint *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
