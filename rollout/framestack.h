// framestack.h - the pictures that a policy with vision sees of each env: those of the last `stack`
// steps of its episode, the oldest first. At the start of an episode its first picture stands for
// the ones that are not there.
//
// Threads: one at a time.
#ifndef ROLLOUT_FRAMESTACK_H
#define ROLLOUT_FRAMESTACK_H

#include "common/wire/spec.h"

// Which picture of `spec` a policy sees: the one of this name, or the first RGB one if it is empty.
// ST_INVAL, with a list of those that are there, if there is none or it is not RGB.
NODISCARD enum status framestack_choose(const struct spec *spec, const char *name,
                                        const struct spec_picture **out);

// Do the rows of two servers have the same pictures at the same places?
bool framestack_same(const struct spec *a, const struct spec *b);

struct framestack {
    int n_env, stack;        // stack 0: without vision; then all functions do nothing
    uint32_t offset;         // of the picture in the picture block of a row
    size_t bytes;            // of a picture
    uint8_t *memory;         // (n_env, stack, bytes)
    const uint8_t **picture; // (n_env, stack)
};

NODISCARD enum status framestack_init(struct framestack *f, const struct spec_picture *picture,
                                      int n_env, int stack);
void framestack_fini(struct framestack *f);

// A row with this block of pictures came; `first`: of an episode's first observation.
void framestack_push(struct framestack *f, int env, const uint8_t *block, bool first);

// What the policy sees of an env, (stack); NULL without vision.
static inline const uint8_t *const *framestack_at(const struct framestack *f, int env)
{
    return f->stack > 0 ? f->picture + (size_t)env * (size_t)f->stack : NULL;
}

// The newest of them.
static inline const uint8_t *framestack_newest(const struct framestack *f, int env)
{
    return f->stack > 0 ? framestack_at(f, env)[f->stack - 1] : NULL;
}

#endif
