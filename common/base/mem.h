// mem.h - the only door to the heap: zeroed, 64-byte aligned, counted, able to fail on command.
//
// Threads: every function may be called from any thread.
#ifndef COMMON_BASE_MEM_H
#define COMMON_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

// `n` zeroed items of `size` bytes, aligned to 64; NULL (with error_last set) if there is no
// memory or n * size overflows. n * size == 0 gives a valid pointer. Free with mem_free.
void *mem_alloc(size_t n, size_t size);

// Enlarge or shrink to `n` items of `size` bytes, keeping the contents; new bytes are zero.
// `p` may be NULL. On failure NULL is returned and `p` is still valid.
void *mem_resize(void *p, size_t n, size_t size);

// A copy of a string. NULL if there is no memory.
char *mem_strdup(const char *text);

// NULL is fine.
void mem_free(void *p);

// Blocks alive now, and calls of mem_alloc/mem_resize so far, in all threads.
int64_t mem_live(void);
int64_t mem_calls(void);

// Tests: let the n-th next allocation of this process fail (0 = the next one); -1 = never again.
void mem_fail_after(int64_t n);

#endif
