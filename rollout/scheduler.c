#include "rollout/scheduler.h"

#include "common/base/mem.h"

enum env_state { RUNNING, READY, PARKED, REMOVED };

struct scheduler {
    int n_env, n_ready, n_parked, n_removed;
    bool barrier;
    struct batcher batcher;
    uint64_t limit;
    uint8_t *state;  // (n_env) enum env_state
    uint64_t *used;  // (n_env)
    int *order;      // (n_env) ring of ready envs, oldest first
    int64_t *arrive; // (n_env) when each became ready
    int first;
};

enum status scheduler_create(struct scheduler **out, int n_env, bool barrier, int b_max,
                             int64_t t_max_ns)
{
    struct batcher batcher;
    struct scheduler *s;

    TRY(batcher_init(&batcher, barrier || b_max > n_env ? n_env : b_max, t_max_ns));
    s = mem_alloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    s->n_env = n_env;
    s->barrier = barrier;
    s->batcher = batcher;
    s->state = mem_alloc((size_t)n_env, sizeof s->state[0]);
    s->used = mem_alloc((size_t)n_env, sizeof s->used[0]);
    s->order = mem_alloc((size_t)n_env, sizeof s->order[0]);
    s->arrive = mem_alloc((size_t)n_env, sizeof s->arrive[0]);
    if (!s->state || !s->used || !s->order || !s->arrive) {
        scheduler_destroy(s);
        return ST_NOMEM;
    }
    *out = s;
    return ST_OK;
}

void scheduler_destroy(struct scheduler *s)
{
    if (!s)
        return;
    mem_free(s->state);
    mem_free(s->used);
    mem_free(s->order);
    mem_free(s->arrive);
    mem_free(s);
}

static void make_ready(struct scheduler *s, int env, int64_t now_ns)
{
    s->state[env] = READY;
    s->arrive[env] = now_ns;
    s->order[(s->first + s->n_ready++) % s->n_env] = env;
    batcher_add(&s->batcher, now_ns);
}

void scheduler_arrive(struct scheduler *s, int env, uint64_t used, int64_t now_ns)
{
    s->used[env] = used;
    if (used < s->limit) {
        make_ready(s, env, now_ns);
    } else {
        s->state[env] = PARKED;
        s->n_parked++;
    }
}

void scheduler_admit(struct scheduler *s, uint64_t limit, int64_t now_ns)
{
    int i;

    s->limit = limit;
    for (i = 0; i < s->n_env; i++) {
        if (s->state[i] == PARKED && s->used[i] < limit) {
            s->n_parked--;
            make_ready(s, i, now_ns);
        }
    }
}

void scheduler_remove(struct scheduler *s, int env)
{
    int i, k = 0;

    if (s->state[env] == PARKED)
        s->n_parked--;
    if (s->state[env] == READY) { // close the gap in the ring
        for (i = 0; i < s->n_ready; i++) {
            int e = s->order[(s->first + i) % s->n_env];

            if (e != env)
                s->order[(s->first + k++) % s->n_env] = e;
        }
        s->n_ready--;
        s->batcher.n--;
    }
    if (s->state[env] != REMOVED)
        s->n_removed++;
    s->state[env] = REMOVED;
}

void scheduler_return(struct scheduler *s, int env)
{
    if (s->state[env] == REMOVED)
        s->n_removed--;
    s->state[env] = RUNNING;
}

static int in_flight(const struct scheduler *s)
{
    return s->n_env - s->n_ready - s->n_parked - s->n_removed;
}

// No env is on its way any more: give those that are ready in the order of their numbers. All are,
// as a rule; an env that has come back may have fewer decisions behind it than the parked ones.
static int take_all(struct scheduler *s, int *env)
{
    int i, n = 0;

    if (s->n_ready == 0 || in_flight(s) > 0)
        return 0;
    for (i = 0; i < s->n_env; i++)
        if (s->state[i] == READY)
            env[n++] = i;
    s->first = s->n_ready = s->batcher.n = 0;
    return n;
}

int scheduler_take(struct scheduler *s, int *env, int64_t now_ns)
{
    int i, n;

    if (s->barrier) {
        n = take_all(s, env);
    } else {
        if (batcher_check(&s->batcher, now_ns, in_flight(s)) == BATCHER_WAIT)
            return 0;
        n = s->n_ready < s->batcher.b_max ? s->n_ready : s->batcher.b_max;
        for (i = 0; i < n; i++)
            env[i] = s->order[(s->first + i) % s->n_env];
        s->first = (s->first + n) % s->n_env;
        s->n_ready -= n;
        (void)batcher_take(&s->batcher, s->n_ready > 0 ? s->arrive[s->order[s->first]] : 0);
    }
    for (i = 0; i < n; i++)
        s->state[env[i]] = RUNNING;
    return n;
}

int64_t scheduler_due_ns(const struct scheduler *s, int64_t now_ns)
{
    return s->barrier ? INT64_MAX : batcher_due_ns(&s->batcher, now_ns);
}
