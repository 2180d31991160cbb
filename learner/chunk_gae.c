#include "learner/chunk_gae.h"

void chunk_gae_run(const struct episode *e, double gamma, double lambda, const float *value,
                   float *advantage, float *ret)
{
    const uint32_t n = e->head.n_decision;
    double next = e->head.flags & EPISODE_FINAL ? (double)value[n] : 0, ahead = 0;

    for (uint32_t k = n; k-- > 0;) {
        const float *reward = e->reward + (size_t)k * e->head.chunk;
        double sum = 0;

        for (uint32_t i = 0; i < e->executed[k]; i++)
            sum += (double)reward[i];
        ahead = sum + gamma * next - (double)value[k] + gamma * lambda * ahead;
        next = (double)value[k];
        advantage[k] = (float)ahead;
        ret[k] = (float)(ahead + next);
    }
}
