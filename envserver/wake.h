// wake.h - sleep until a word changes: the kernel's futex, which works between threads and between
// processes that share the word. Nobody owns it, so a process that dies in here locks up nobody.
//
//   seen = atomic_load(&word); if (nothing_to_do()) wake_wait(&word, seen, deadline);
//   make_something_to_do(); atomic_fetch_add(&word, 1); wake_one(&word);
//
// Threads: any.
#ifndef ENVSERVER_WAKE_H
#define ENVSERVER_WAKE_H

#include <stdatomic.h>
#include <stdint.h>

// Sleep until a wake, the deadline (WAIT_NEVER = none) or no reason at all; returns at once if the
// word is not `seen` any more.
void wake_wait(atomic_uint *word, unsigned seen, int64_t deadline_ns);
void wake_one(atomic_uint *word);
void wake_all(atomic_uint *word);

#endif
