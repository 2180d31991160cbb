// store.h - samples in memory, ready for the networks: a window that is replayed, or scratch.
//
// A sample of a model with vision names its pictures by their numbers in a list, which holds each
// once: the store's own list in a window, that of a chunk or of the window in scratch.
//
// Threads: after store_reserve, threads may write and read different rows at once.
#ifndef LEARNER_STORE_H
#define LEARNER_STORE_H

#include "learner/pass.h"

struct store {
    int n_obs, n_act, stack; // stack 0: no vision
    size_t picture_bytes;
    int64_t n, n_max;
    float *x;              // (n_max, REAL_LD(n_obs)) normalised observations, padding zero
    float *action;         // (n_max, n_act)
    float *advantage;      // (n_max) as GAE gave it
    float *ret;            // (n_max) the value's target, unscaled
    float *logp_behaviour; // (n_max)
    float *logp_ref;       // (n_max) set by the first pass
    float *weight;         // (n_max) set by the first pass
    uint32_t *picture;     // (n_max, stack) numbers in the list, the oldest first
    uint8_t *pictures;     // (n_picture_max, picture_bytes) the store's own list
    int64_t n_picture, n_picture_max;
};

void store_init(struct store *s, const struct model_shape *shape);
void store_fini(struct store *s);

// Room for `n` samples; what is there stays. Grows by half at least, so a warm loop allocates
// nothing.
NODISCARD enum status store_reserve(struct store *s, int64_t n);

// The same for the list of pictures.
NODISCARD enum status store_reserve_pictures(struct store *s, int64_t n);

// Copy sample `from` of `other` to row `to`.
void store_copy(struct store *s, int64_t to, const struct store *other, int64_t from);

// The rows from `first` on as a pass wants them; advantage and target are put on the loss's scale
// into the given arrays (n), the places of the pictures of `list` into pictures (n, stack).
struct scales {
    double adv_mean, adv_std, ret_mean, ret_std;
};
struct view {
    float *advantage, *target;
    const uint8_t **pictures;
};
struct samples store_view(const struct store *s, int64_t first, int n, const struct scales *scales,
                          const uint8_t *list, const struct view *to);

#endif
