#include "learner/stack.h"

void stack_pictures(const struct chunk *c, int stack, uint32_t *picture)
{
    const struct chunk_head *h = &c->head;
    const uint32_t lead = (uint32_t)stack - 1, last = lead + h->n_step;
    uint32_t *final = picture + (size_t)(h->n_step + 1) * (size_t)stack;
    uint32_t start = 0, at, i, next = last + 1; // start: of the episode, or of the list

    for (at = lead; at <= last; at++) {
        uint32_t flags = at < last ? c->flags[at - lead] : 0;

        for (i = 0; i <= lead; i++, picture++)
            *picture = at + i < lead + start ? start : at + i - lead;
        if (flags & CHUNK_TRUNCATED) {
            for (i = 0; i < lead; i++, final++)
                *final = at + 1 + i < lead + start ? start : at + 1 + i - lead;
            *final++ = next++;
        }
        if (flags) // each of them ends the episode
            start = at + 1;
    }
}
