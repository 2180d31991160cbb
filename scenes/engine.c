#include "scenes/engine.h"

#include "common/base/log.h"
#include "common/base/status.h"

#include <mujoco/mujoco.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local struct engine_trap *armed;
static atomic_llong warnings;

// Hashes of the kinds of warnings that were logged, 0 = free; when all are taken, a new kind counts
// as known.
#define KINDS 64
static atomic_uint_fast64_t kinds[KINDS];

// The engine expects that this does not return.
static void on_error(const char *text)
{
    struct engine_trap *trap = armed;

    if (!trap)
        panic("the engine reported an error outside of a guarded call: %s", text);
    armed = NULL;
    snprintf(trap->text, sizeof trap->text, "%.255s", text);
    longjmp(trap->env, 1);
}

// Is this the first warning of its kind? Two texts that differ in numbers only are of one kind.
static bool first_of_kind(const char *text)
{
    uint64_t kind = 1469598103934665603u; // FNV-1a
    int i;

    for (; *text; text++)
        if (!strchr("0123456789+-.", *text))
            kind = (kind ^ (unsigned char)*text) * 1099511628211u;
    kind |= kind == 0;
    for (i = 0; i < KINDS; i++) {
        uint_fast64_t there = 0;

        if (atomic_compare_exchange_strong(&kinds[i], &there, kind))
            return true;
        if (there == kind)
            return false;
    }
    return false;
}

// Bad states reach the caller through the world's warning counters, so this is for the log only.
static void on_warning(const char *text)
{
    int n = (int)strcspn(text, "\n");

    atomic_fetch_add(&warnings, 1);
    if (first_of_kind(text))
        log_warn("engine", "%.*s (the next ones of this kind are logged at level debug)", n, text);
    else
        log_debug("engine", "%.*s", n, text);
}

#if mjVERSION_HEADER >= 4000000 // 3.3.7 is 337 and knows the two pointers only
static void on_message(const mjLogMessage *m)
{
    if (m->level == mjLOG_ERROR)
        on_error(m->subject);
    else if (m->level == mjLOG_WARNING)
        on_warning(m->subject);
}
#endif

static void install(void)
{
#if mjVERSION_HEADER >= 4000000
    (void)mju_setLogHandler(on_message);
#else
    mju_user_error = on_error;
    mju_user_warning = on_warning;
#endif
}

void engine_init(void)
{
    pthread_once(&once, install);
}

void engine_begin(struct engine_trap *trap)
{
    if (armed)
        panic("engine_begin: a trap is set already");
    trap->text[0] = '\0';
    armed = trap;
}

void engine_end(struct engine_trap *trap)
{
    if (armed != trap)
        panic("engine_end: this trap is not the one that was set");
    armed = NULL;
}

long long engine_warnings(void)
{
    return atomic_load(&warnings);
}
