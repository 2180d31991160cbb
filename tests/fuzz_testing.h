// fuzz_testing.h - what fuzz programs of bytes share: a condition that must hold, and a run over
// damaged copies of seeds. A seed's first byte chooses the reader and is not damaged.
#ifndef TESTS_FUZZ_TESTING_H
#define TESTS_FUZZ_TESTING_H

#include "common/base/mem.h"
#include "common/base/rng.h"

#include <stdio.h>
#include <stdlib.h>

#define FUZZ_INPUT_MAX 4096

struct fuzz_seed {
    uint8_t bytes[FUZZ_INPUT_MAX];
    size_t n;
};

static void must(int fine, const char *what)
{
    if (!fine) {
        fprintf(stderr, "fuzz: %s\n", what);
        abort();
    }
}

#ifndef SIMSTREAM_LIBFUZZER
// One to three bytes of another kind, or the rest gone.
static inline void fuzz_damage(struct fuzz_seed *s, struct rng *r)
{
    for (uint32_t k = 1 + rng_below(r, 3); k > 0 && s->n > 1; k--) {
        uint32_t at = 1 + rng_below(r, (uint32_t)s->n - 1);

        if (rng_below(r, 8) == 0)
            s->n = at;
        else if (rng_below(r, 2) == 0)
            s->bytes[at] ^= (uint8_t)(1u << rng_below(r, 8));
        else
            s->bytes[at] = (uint8_t)rng_below(r, 256);
    }
}

// `count` damaged seeds through try_one, which says whether the input was accepted; some must be
// and some must not, and no memory may be left of what `live` bytes were before the seeds.
static inline int fuzz_run(const struct fuzz_seed *seeds, int n_seed, struct rng r, long count,
                           int64_t live, int (*try_one)(const uint8_t *data, size_t size))
{
    long accepted = 0;

    for (long i = 0; i < count; i++) {
        struct fuzz_seed s = seeds[rng_below(&r, (uint32_t)n_seed)];

        fuzz_damage(&s, &r);
        accepted += try_one(s.bytes, s.n);
    }
    printf("%ld of %ld inputs accepted\n", accepted, count);
    must(accepted > count / 100 && accepted < count * 9 / 10, "all or nothing is accepted");
    must(mem_live() == live, "memory is left");
    return 0;
}
#endif

#endif
