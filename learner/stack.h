// stack.h - which pictures of a chunk each of its observations is seen with.
//
// Threads: pure functions.
#ifndef LEARNER_STACK_H
#define LEARNER_STACK_H

#include "common/wire/trainproto.h"

// picture (n_step + 1 + n_truncated, stack): for the observations of the steps, the last one and
// the final ones, numbers in c->pictures of those of as many steps up to it, the oldest first. At
// the start of an episode its first picture stands for the ones that are not there. The chunk has
// stack - 1 lead pictures.
void stack_pictures(const struct chunk *c, int stack, uint32_t *picture);

#endif
