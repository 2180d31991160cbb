#include "learner/groups.h"

#include "common/base/mem.h"

#include <math.h>
#include <string.h>

#define STD_FLOOR 1e-6

struct group {
    uint64_t number;
    int n;
    struct group_member *member; // (size) in the order of their numbers
};

struct groups {
    struct groups_config cfg;
    struct group *open; // (n_max), the first n in the order of their numbers
    int n, n_max, n_member;
    uint64_t *settled; // (GROUPS_LATE_MAX) a ring
    uint64_t n_settled;
    struct groups_count count;
    // the last result
    struct group_member *member; // (size)
    double *score, *advantage;   // (size)
};

enum status groups_create(struct groups **out, const struct groups_config *cfg)
{
    const int low = cfg->baseline == GROUP_NONE ? 1 : 2;
    struct groups *g;
    size_t size;

    if (cfg->size < low || cfg->size > GROUPS_SIZE_MAX)
        return FAIL(ST_INVAL, "groups of %d episodes, expected %d to %d", cfg->size, low,
                    GROUPS_SIZE_MAX);
    g = mem_alloc(1, sizeof *g);
    if (!g)
        return ST_NOMEM;
    g->cfg = *cfg;
    size = (size_t)cfg->size;
    g->settled = mem_alloc(GROUPS_LATE_MAX, sizeof g->settled[0]);
    g->member = mem_alloc(size, sizeof g->member[0]);
    g->score = mem_alloc(size, sizeof g->score[0]);
    g->advantage = mem_alloc(size, sizeof g->advantage[0]);
    if (!g->settled || !g->member || !g->score || !g->advantage) {
        groups_destroy(g);
        return ST_NOMEM;
    }
    *out = g;
    return ST_OK;
}

void groups_destroy(struct groups *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_max; i++)
        mem_free(g->open[i].member);
    mem_free(g->open);
    mem_free(g->settled);
    mem_free(g->member);
    mem_free(g->score);
    mem_free(g->advantage);
    mem_free(g);
}

int groups_waiting(const struct groups *g)
{
    return g->n_member;
}

const struct groups_count *groups_counts(const struct groups *g)
{
    return &g->count;
}

void group_advantages(enum group_baseline b, const double *score, int n, double *advantage)
{
    double sum = 0, square = 0, mean, scale = 1;

    for (int i = 0; i < n; i++)
        sum += score[i];
    mean = sum / n;
    for (int i = 0; i < n; i++)
        square += (score[i] - mean) * (score[i] - mean);
    if (b == GROUP_RLOO)
        scale = (double)n / (n - 1);
    else if (b == GROUP_GRPO)
        scale = 1 / (sqrt(square / (n - 1)) + STD_FLOOR);
    for (int i = 0; i < n; i++)
        advantage[i] = (score[i] - mean) * scale;
}

// --- members in ----------------------------------------------------------------------------------

static bool was_settled(const struct groups *g, uint64_t number)
{
    uint64_t n = g->n_settled < GROUPS_LATE_MAX ? g->n_settled : GROUPS_LATE_MAX;

    for (uint64_t i = 0; i < n; i++)
        if (g->settled[i] == number)
            return true;
    return false;
}

// The place of a group in the order of the open ones.
static int place_of(const struct groups *g, uint64_t number)
{
    int low = 0, high = g->n;

    while (low < high) {
        int middle = (low + high) / 2;

        if (g->open[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum status grow(struct groups *g)
{
    int n = g->n_max ? 2 * g->n_max : 16;
    struct group *open;

    if (g->n < g->n_max)
        return ST_OK;
    open = mem_resize(g->open, (size_t)n, sizeof open[0]);
    if (!open)
        return ST_NOMEM;
    memset(open + g->n_max, 0, (size_t)(n - g->n_max) * sizeof open[0]);
    g->open = open;
    g->n_max = n;
    return ST_OK;
}

// Open group `number` at place i; its memory is that of a group which was settled, if there is one.
static enum status open_at(struct groups *g, int i, uint64_t number)
{
    struct group fresh;

    TRY(grow(g));
    fresh = g->open[g->n];
    if (!fresh.member)
        fresh.member = mem_alloc((size_t)g->cfg.size, sizeof fresh.member[0]);
    if (!fresh.member)
        return ST_NOMEM;
    fresh.number = number;
    fresh.n = 0;
    memmove(g->open + i + 1, g->open + i, (size_t)(g->n - i) * sizeof g->open[0]);
    g->open[i] = fresh;
    g->n++;
    return ST_OK;
}

enum status groups_add(struct groups *g, const struct group_member *m, enum group_verdict *out)
{
    struct group *group;
    int i, k;

    if (m->member >= (uint32_t)g->cfg.size)
        return FAIL(ST_INVAL, "member %u of group %llu, expected 0 to %d", m->member,
                    (unsigned long long)m->group, g->cfg.size - 1);
    if (!m->error && !isfinite(m->score))
        return FAIL(ST_INVAL, "the score of member %u of group %llu is not finite", m->member,
                    (unsigned long long)m->group);
    if (was_settled(g, m->group)) {
        g->count.late++;
        *out = GROUP_LATE;
        return ST_OK;
    }
    i = place_of(g, m->group);
    if (i == g->n || g->open[i].number != m->group)
        TRY(open_at(g, i, m->group));
    group = &g->open[i];
    for (k = group->n; k > 0 && group->member[k - 1].member >= m->member; k--)
        if (group->member[k - 1].member == m->member) {
            g->count.twice++;
            *out = GROUP_TWICE;
            return ST_OK;
        }
    memmove(group->member + k + 1, group->member + k,
            (size_t)(group->n - k) * sizeof group->member[0]);
    group->member[k] = *m;
    group->n++;
    g->n_member++;
    *out = GROUP_HELD;
    return ST_OK;
}

// --- groups out ----------------------------------------------------------------------------------

// Is there a member that `version` finds too old?
static bool is_stale(const struct groups *g, const struct group *group, uint64_t version)
{
    for (int i = 0; i < group->n; i++)
        if (version > group->member[i].version_min &&
            version - group->member[i].version_min > g->cfg.eta)
            return true;
    return false;
}

static enum group_fate judge(struct groups *g, struct group_result *r)
{
    double low = INFINITY, high = -INFINITY, sum = 0, *advantage = g->advantage;
    int i, n = 0;

    for (i = 0; i < r->n; i++) {
        if (g->member[i].error)
            continue;
        g->score[n++] = g->member[i].score;
        low = fmin(low, g->member[i].score);
        high = fmax(high, g->member[i].score);
        sum += g->member[i].score;
    }
    memset(advantage, 0, (size_t)g->cfg.size * sizeof *advantage);
    r->mean = n > 0 ? sum / n : 0;
    if (g->cfg.baseline == GROUP_NONE)
        return n > 0 ? GROUP_KEPT : GROUP_SINGLE;
    if (n < 2)
        return GROUP_SINGLE;
    if (low == high)
        return GROUP_UNIFORM;
    group_advantages(g->cfg.baseline, g->score, n, advantage);
    for (i = r->n - 1; i >= 0; i--) // errors have none
        advantage[i] = g->member[i].error ? 0 : advantage[--n];
    return GROUP_KEPT;
}

// Take the open group at place i out.
static void settle(struct groups *g, int i, bool stale, struct group_result *out)
{
    struct group group = g->open[i];

    memcpy(g->member, group.member, (size_t)group.n * sizeof g->member[0]);
    memmove(g->open + i, g->open + i + 1, (size_t)(g->n - i - 1) * sizeof g->open[0]);
    g->open[--g->n] = group; // its memory is used again
    g->n_member -= group.n;
    g->settled[g->n_settled++ % GROUPS_LATE_MAX] = group.number;
    *out = (struct group_result){
        .group = group.number, .n = group.n, .member = g->member, .advantage = g->advantage};
    out->fate = judge(g, out);
    if (stale) {
        out->fate = GROUP_STALE;
        memset(g->advantage, 0, (size_t)g->cfg.size * sizeof g->advantage[0]);
    }
    g->count.incomplete += group.n < g->cfg.size;
    g->count.kept += out->fate == GROUP_KEPT;
    g->count.uniform += out->fate == GROUP_UNIFORM;
    g->count.stale += out->fate == GROUP_STALE;
    g->count.single += out->fate == GROUP_SINGLE;
}

enum status groups_take(struct groups *g, uint64_t version, enum group_call call,
                        struct group_result *out)
{
    for (int i = 0; i < g->n; i++) {
        bool stale = is_stale(g, &g->open[i], version);

        if (!stale && g->open[i].n < g->cfg.size && call != GROUP_ALL &&
            !(call == GROUP_LAST_CALL && is_stale(g, &g->open[i], version + 1)))
            continue;
        settle(g, i, stale, out);
        return ST_OK;
    }
    return ST_AGAIN;
}

enum status groups_drain(struct groups *g, struct group_result *out)
{
    if (g->n == 0)
        return ST_AGAIN;
    settle(g, 0, true, out);
    return ST_OK;
}
