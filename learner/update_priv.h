// update_priv.h - the updater's insides, shared by update.c (interface, chunks) and update_step.c
// (closing a window).
//
// Gradients are summed in SLOTS vectors whose shares depend on the order of the chunks alone, and
// added up in the order of the slots: the number of threads and their timing change nothing.
#ifndef LEARNER_UPDATE_PRIV_H
#define LEARNER_UPDATE_PRIV_H

#include "common/base/thread.h"
#include "learner/scale.h"
#include "learner/store.h"
#include "learner/update.h"
#include "nn/obsnorm.h"

#define SLOTS UPDATE_THREADS_MAX

// One share of a window's sums. A slot belongs to one thread at a time.
struct slot {
    bool used;   // since it was last cleared
    float *grad; // (n_param)
    struct loss_sums loss;
    // of the whole window
    struct obs_sums obs;
    struct tally advantage, ret;
    double lag, lag_max;
};

// What one thread works with.
struct worker {
    struct pass pass;
    struct store scratch;   // samples of one chunk or of one block of a replay
    int64_t n_max;          // rows of the arrays below
    float *x;               // (n_max, REAL_LD(n_obs)) a chunk's observations, last, final ones
    float *value;           // (n_max) of them
    float *advantage, *ret; // (n_max)
    uint8_t *valid;         // (n_max)
    uint32_t *picture;      // (n_max, stack) of a model with vision: numbers in the chunk's list
    struct view view;       // (PASS_ROWS)
};

struct updater {
    struct update_config cfg;
    struct loss_config loss;
    int64_t total_windows;
    struct weights *weights; // the present version
    float *params;           // (n_param) of it; move ahead of it while a window closes
    float *m, *v;            // (n_param) moments
    float *grad;             // (n_param) a step's sum over the slots
    int64_t n_step;          // optimizer steps in all
    struct nets nets;        // packed params
    struct obsnorm norm;
    struct average adv_average, ret_average;
    struct scales scales; // for the losses of the pass at hand
    struct slot slot[SLOTS];
    struct worker worker[UPDATE_THREADS_MAX];
    struct team *team;

    // the open window
    int64_t n_sample, n_chunk;
    struct store window; // its samples, if it is kept
    bool deferred;       // its first pass waits for the whole window

    // the work that the team shares
    const struct chunk *const *chunks;
    int64_t *chunk_first; // (chunk_max, 2) row of the window for a chunk's first sample, and the
                          // number of its first picture there
    int n_chunks, chunk_max;
    const uint32_t *order; // rows of a minibatch; NULL: all rows of the window, first pass
    int64_t n_order;
    uint32_t *shuffled; // (shuffled_max)
    int64_t shuffled_max;
};

// Does the window stay in memory until it closes?
static inline bool window_kept(const struct updater *u)
{
    return u->deferred || u->cfg.epochs > 1;
}

// Take over u->params: pack both networks.
void updater_pack(struct updater *u);

// Ready for the next window: clears the slots, freezes the scales of u->weights.
void updater_open_window(struct updater *u);

// Add the gradient of the rows in u->order to the slots (see there).
void updater_run_rows(struct updater *u);

#endif
