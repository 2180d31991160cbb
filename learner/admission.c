#include "learner/admission.h"

#include "common/base/mem.h"

enum status admission_init(struct admission *a, uint32_t n_env, uint64_t horizon, uint64_t eta,
                           uint64_t joined)
{
    uint64_t *chunks = mem_alloc(n_env, sizeof chunks[0]);

    if (!chunks)
        return ST_NOMEM;
    *a = (struct admission){.horizon = horizon,
                            .eta = eta,
                            .rounds = 1,
                            .joined = joined,
                            .n_env = n_env,
                            .n_left = n_env,
                            .chunks = chunks};
    return ST_OK;
}

void admission_fini(struct admission *a)
{
    mem_free(a->chunks);
    a->chunks = NULL;
}

void admission_count(struct admission *a, uint32_t env, bool dropped)
{
    if (a->chunks[env] != ADMISSION_LOST)
        a->chunks[env]++;
    a->dropped += dropped;
}

void admission_lose(struct admission *a, uint32_t env)
{
    if (a->chunks[env] != ADMISSION_LOST)
        a->n_left--;
    a->chunks[env] = ADMISSION_LOST;
}

void admission_return(struct admission *a, uint32_t env, uint64_t chunks)
{
    if (a->chunks[env] != ADMISSION_LOST)
        return;
    a->chunks[env] = chunks;
    a->n_left++;
}

void admission_grant(struct admission *a)
{
    a->granted++;
}

// The limit in chunks. Dropped ones come back when there is one for every env.
static uint64_t limit(const struct admission *a, uint64_t version)
{
    uint64_t back = a->n_left > 0 ? a->dropped / a->n_left : 0;

    return (version - a->joined + 1 + a->eta) * a->rounds + back + a->granted;
}

uint64_t admission_limit(const struct admission *a, uint64_t version)
{
    return limit(a, version) * a->horizon;
}

uint64_t admission_open(const struct admission *a, uint64_t version)
{
    uint64_t max = limit(a, version), open = 0;
    uint32_t i;

    for (i = 0; i < a->n_env; i++)
        if (a->chunks[i] < max) // a lost env never is
            open += max - a->chunks[i];
    return open * a->horizon;
}

uint64_t admission_lag(uint64_t version, uint64_t version_min)
{
    return version > version_min ? version - version_min : 0;
}
