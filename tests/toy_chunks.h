// toy_chunks.h - chunks of a small task made by the real policy, without envs: observations are
// noise, the reward is highest for one action per observation, episodes end in every possible way.
#ifndef TESTS_TOY_CHUNKS_H
#define TESTS_TOY_CHUNKS_H

#include "tests/testing.h"

#include "common/base/rng.h"
#include "common/wire/trainproto.h"
#include "nn/policy.h"

#define TOY_OBS 3
#define TOY_ACT 2
#define TOY_T   40

struct toy_chunk {
    struct chunk c;
    float obs[TOY_T * TOY_OBS], last_obs[TOY_OBS], final_obs[TOY_T * TOY_OBS];
    float action[TOY_T * TOY_ACT], logp[TOY_T], reward[TOY_T];
    uint32_t flags[TOY_T];
    uint64_t version[TOY_T];
};

static inline void toy_obs(struct rng *rng, float *obs)
{
    for (int k = 0; k < TOY_OBS; k++)
        obs[k] = (float)(3 * k + (1 + k) * rng_normal(rng));
}

static inline float toy_reward(const float *obs, const float *action)
{
    double d0 = (double)action[0] - 0.5 * sin((double)obs[0]), d1 = (double)action[1] + 0.3;

    return (float)(1 - d0 * d0 - d1 * d1);
}

// How step t ends: about one in twelve does, in every way in turn.
static inline uint32_t toy_flags(struct rng *rng, bool all_kinds)
{
    static const uint32_t kinds[] = {CHUNK_TERMINATED, CHUNK_TRUNCATED, CHUNK_ERROR, CHUNK_SKIP};

    return rng_below(rng, 12) > 0 ? 0 : kinds[rng_below(rng, all_kinds ? 4 : 2)];
}

// Chunk `index` of env `env`, acted by `w`.
static inline void toy_make(struct toy_chunk *t, struct policy *p, const struct weights *w,
                            uint32_t env, uint64_t index, bool all_kinds)
{
    struct rng rng = rng_make(env, RNG_TEST, index, w->version, 0);
    uint32_t n_truncated = 0;
    double obs[TOY_OBS];
    int i, k;

    for (i = 0; i < TOY_T; i++) {
        struct policy_row row = {obs, 1, env, index, (uint64_t)i, NULL, NULL};

        toy_obs(&rng, t->obs + i * TOY_OBS);
        for (k = 0; k < TOY_OBS; k++)
            obs[k] = (double)t->obs[i * TOY_OBS + k];
        assert_ok(policy_act(p, w, &row, 1, false, t->action + i * TOY_ACT, &t->logp[i]));
        t->reward[i] = toy_reward(t->obs + i * TOY_OBS, t->action + i * TOY_ACT);
        t->flags[i] = toy_flags(&rng, all_kinds);
        t->version[i] = w->version;
        if (t->flags[i] & CHUNK_TRUNCATED)
            toy_obs(&rng, t->final_obs + n_truncated++ * TOY_OBS);
    }
    toy_obs(&rng, t->last_obs);
    t->c = (struct chunk){
        .head = {.env = env,
                 .index = index,
                 .version_min = w->version,
                 .version_max = w->version,
                 .n_step = TOY_T,
                 .n_obs = TOY_OBS,
                 .n_act = TOY_ACT,
                 .n_truncated = n_truncated},
        .obs = t->obs,
        .last_obs = t->last_obs,
        .final_obs = t->final_obs,
        .action = t->action,
        .logp = t->logp,
        .reward = t->reward,
        .flags = t->flags,
        .version = t->version,
    };
}

static inline struct weights *toy_weights(const char *hidden)
{
    struct model_shape shape;
    struct weights *w;

    assert_ok(model_shape_parse(&shape, TOY_OBS, TOY_ACT, hidden));
    assert_ok(weights_create(&w, &shape));
    assert_ok(model_init(&shape, 1, -0.5, w->params));
    return w;
}

#endif
