#include "learner/gae.h"

#include "common/wire/trainproto.h"

#include <stdbool.h>

int gae_run(const struct gae_input *in, float *advantage, float *ret, uint8_t *valid)
{
    const float *final_value = in->final_value;
    double ahead = 0; // advantage of the step after, 0 across a boundary
    int t, n_sample = 0;

    for (t = 0; t < in->n; t++)
        final_value += (in->flags[t] & CHUNK_TRUNCATED) != 0;
    for (t = in->n - 1; t >= 0; t--) {
        uint32_t flags = in->flags[t];
        double next = in->value[t + 1], delta;
        bool end = (flags & (CHUNK_TERMINATED | CHUNK_TRUNCATED)) != 0;

        if (flags & CHUNK_TRUNCATED)
            next = *--final_value;
        if (flags & CHUNK_TERMINATED)
            next = 0;
        valid[t] = !(flags & (CHUNK_SKIP | CHUNK_ERROR));
        if (!valid[t]) {
            advantage[t] = ret[t] = 0;
            ahead = 0;
            continue;
        }
        delta = (double)in->reward[t] + in->gamma * next - (double)in->value[t];
        ahead = delta + (end ? 0 : in->gamma * in->lambda * ahead);
        advantage[t] = (float)ahead;
        ret[t] = (float)(ahead + (double)in->value[t]);
        n_sample++;
    }
    return n_sample;
}
