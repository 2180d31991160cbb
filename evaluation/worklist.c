#include "evaluation/worklist.h"

#include "common/base/mem.h"

#include <assert.h>

enum state { WAITING, RUNNING, FINISHED };

struct entry {
    enum state state;
    int64_t tries; // that ended by an error
    struct episode_result result;
};

struct worklist {
    int64_t n, n_retry;
    int64_t next;     // no episode below waits; later ones may run or be finished
    int64_t finished; // episodes that are over: with a result, or skipped
    int64_t n_order, n_emit;
    struct worklist_counts counts;
    struct entry *entries; // (n)
    int64_t *order;        // (n) episodes as their results came, n_order of them
};

const char *outcome_name(enum outcome outcome)
{
    static const char *const names[] = {"done", "success", "failure", "error"};

    return names[outcome];
}

enum status worklist_create(struct worklist **out, int64_t n_episode, int64_t n_retry)
{
    struct worklist *w;

    if (n_episode < 1 || n_episode > WORKLIST_MAX)
        return FAIL(ST_INVAL, "%lld episodes, expected 1..%d", (long long)n_episode, WORKLIST_MAX);
    if (n_retry < 0)
        return FAIL(ST_INVAL, "%lld retries, expected 0 or more", (long long)n_retry);
    w = mem_alloc(1, sizeof *w);
    if (!w)
        return ST_NOMEM;
    w->entries = mem_alloc((size_t)n_episode, sizeof w->entries[0]);
    w->order = mem_alloc((size_t)n_episode, sizeof w->order[0]);
    if (!w->entries || !w->order) {
        worklist_destroy(w);
        return ST_NOMEM;
    }
    w->n = n_episode;
    w->n_retry = n_retry;
    *out = w;
    return ST_OK;
}

void worklist_destroy(struct worklist *w)
{
    if (!w)
        return;
    mem_free(w->entries);
    mem_free(w->order);
    mem_free(w);
}

enum status worklist_take(struct worklist *w, int64_t *episode)
{
    for (; w->next < w->n; w->next++) {
        struct entry *e = &w->entries[w->next];

        if (e->state != WAITING)
            continue;
        e->state = RUNNING;
        w->counts.running++;
        w->counts.retries += e->tries > 0;
        *episode = w->next++;
        return ST_OK;
    }
    return worklist_complete(w) ? ST_CLOSED : ST_AGAIN;
}

static void wait_again(struct worklist *w, int64_t episode)
{
    w->entries[episode].state = WAITING;
    if (episode < w->next)
        w->next = episode;
}

void worklist_finish(struct worklist *w, const struct episode_result *result)
{
    struct entry *e = &w->entries[result->episode];

    assert(e->state == RUNNING);
    w->counts.running--;
    if (result->outcome == OUTCOME_ERROR && e->tries++ < w->n_retry) {
        wait_again(w, result->episode);
        return;
    }
    e->state = FINISHED;
    e->result = *result;
    w->finished++;
    w->order[w->n_order++] = result->episode;
    w->counts.successes += result->outcome == OUTCOME_SUCCESS;
    if (result->outcome == OUTCOME_ERROR)
        w->counts.errors++;
    else
        w->counts.done++;
}

void worklist_give_back(struct worklist *w, int64_t episode)
{
    assert(w->entries[episode].state == RUNNING);
    w->counts.running--;
    w->counts.returned++;
    wait_again(w, episode);
}

void worklist_skip(struct worklist *w, int64_t episode)
{
    assert(w->entries[episode].state == WAITING);
    w->entries[episode].state = FINISHED;
    w->finished++;
}

bool worklist_emit(struct worklist *w, struct episode_result *out)
{
    if (w->n_emit == w->n_order)
        return false;
    *out = w->entries[w->order[w->n_emit++]].result;
    return true;
}

bool worklist_complete(const struct worklist *w)
{
    return w->finished == w->n;
}

const struct worklist_counts *worklist_count(const struct worklist *w)
{
    return &w->counts;
}
