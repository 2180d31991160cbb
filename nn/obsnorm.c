#include "nn/obsnorm.h"

#include "common/base/mem.h"
#include "nn/real.h"

#include <math.h>
#include <string.h>

#define VAR_MIN 1e-8 // keeps an observation that never changes at zero

enum status obsnorm_init(struct obsnorm *o, int n_obs)
{
    o->n_obs = n_obs;
    o->mean = mem_alloc((size_t)n_obs, 2 * sizeof *o->mean);
    if (!o->mean)
        return ST_NOMEM;
    o->inv_std = o->mean + n_obs;
    return ST_OK;
}

void obsnorm_fini(struct obsnorm *o)
{
    mem_free(o->mean);
    o->mean = NULL;
}

void obsnorm_set(struct obsnorm *o, const double *mean, const double *var)
{
    memcpy(o->mean, mean, (size_t)o->n_obs * sizeof *mean);
    for (int i = 0; i < o->n_obs; i++)
        o->inv_std[i] = 1 / sqrt(var[i] + VAR_MIN);
}

void obsnorm_rows(const struct obsnorm *o, const float *raw, int n, float *x)
{
    const double *mean = o->mean, *inv_std = o->inv_std;
    const int n_obs = o->n_obs;
    int i, k;

    for (i = 0; i < n; i++, raw += n_obs, x += REAL_LD(n_obs))
        for (k = 0; k < n_obs; k++) {
            double z = ((double)raw[k] - mean[k]) * inv_std[k];

            z = z > OBSNORM_CLIP ? OBSNORM_CLIP : z;
            x[k] = (float)(z < -OBSNORM_CLIP ? -OBSNORM_CLIP : z);
        }
}
