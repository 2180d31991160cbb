#include "scenes/model_arrays.h"

#include "common/base/crc.h"

#include <mujoco/mjxmacro.h>
#include <string.h>

int model_arrays(const mjModel *m, struct model_array out[MODEL_ARRAYS_MAX])
{
    int n = 0;

    MJMODEL_POINTERS_PREAMBLE(m)
    (void)nuser_sensor;
    (void)nq;
    (void)nv;
    (void)na;
    (void)nu;
    (void)nmocap;
#if mjVERSION_HEADER >= 4000000
    (void)nplastic;
#endif
#define X(type_, name_, nr, nc)                                                   \
    out[n++] = (struct model_array){#name_,                                       \
                                    #type_,                                       \
                                    offsetof(mjModel, name_),                     \
                                    sizeof(type_) * (size_t)m->nr * (size_t)(nc), \
                                    (int)m->nr,                                   \
                                    (int)(nc)};
    MJMODEL_POINTERS
#undef X
    return n;
}

const void *model_data(const mjModel *m, const struct model_array *a)
{
    void *p;

    memcpy(&p, (const char *)m + a->offset, sizeof p);
    return p;
}

uint32_t model_signature(const mjModel *m)
{
    const mjOption *o = &m->opt;
    const double reals[] = {o->timestep,  o->gravity[0], o->gravity[1], o->gravity[2],
                            o->wind[0],   o->wind[1],    o->wind[2],    o->density,
                            o->viscosity, o->impratio,   o->tolerance,  o->ls_tolerance};
    const int numbers[] = {o->integrator, o->cone,         o->solver,
                           o->iterations, o->disableflags, o->enableflags};
    struct model_array all[MODEL_ARRAYS_MAX];
    int i, n = model_arrays(m, all);
    uint32_t crc = crc32c(0, reals, sizeof reals);

    crc = crc32c(crc, numbers, sizeof numbers);
    for (i = 0; i < n; i++) {
        if (strcmp(all[i].name, "tex_data") == 0)
            continue; // large, and nothing that moves depends on it
        crc = crc32c(crc, &all[i].rows, sizeof all[i].rows);
        if (all[i].bytes > 0)
            crc = crc32c(crc, model_data(m, &all[i]), all[i].bytes);
    }
    return crc;
}
