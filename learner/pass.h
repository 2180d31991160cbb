// pass.h - forward, loss and backward of some samples: adds their gradient sums to a vector.
//
// The samples may be cut anywhere and come in any order: each adds its own terms, and nothing else
// depends on the cut.
//
// Threads: struct nets is shared and constant during passes; each thread has its own struct pass.
#ifndef LEARNER_PASS_H
#define LEARNER_PASS_H

#include "learner/loss.h"
#include "nn/encoder.h"
#include "nn/mlp.h"

#ifdef REAL_IS_DOUBLE
#define nets_init  nets_init_f64
#define nets_fini  nets_fini_f64
#define nets_pack  nets_pack_f64
#define pass_init  pass_init_f64
#define pass_fini  pass_fini_f64
#define pass_run   pass_run_f64
#define pass_value pass_value_f64
#endif

#define PASS_ROWS 256 // samples that go through the networks at once

// Both networks and the encoder before them, packed for the forward kernel.
struct nets {
    struct model_shape shape;
    struct model_table table;
    struct encoder encoder;
    struct mlp policy, value;
    real *inv_std; // (n_act)
    double logp_norm;
};

// Workspace of one thread.
struct pass {
    struct encoder_rows seen;
    real *x;                        // (PASS_ROWS, REAL_LD(n_in)) of a model with vision
    real *policy_grad, *value_grad; // (same) each network's by x
    struct mlp_rows policy, value;
    real *logp; // (PASS_ROWS)
};

// Samples of one pass: n <= PASS_ROWS of them for pass_run.
struct samples {
    int n;
    const real *x;                  // (n, n_obs) padded, normalised observations
    const uint8_t *const *pictures; // (n, stack) of a model with vision, see nn/encoder.h
    const real *action;             // (n, n_act)
    const real *advantage;          // (n) as it enters the loss
    const real *target;             // (n) of the value, on the network's scale
    const real *logp_behaviour;     // (n) only for the first pass of a window
    real *weight;                   // (n) first pass: set, else read
    real *logp_ref;                 // (n) first pass: set to the present log-probability, else read
};

NODISCARD enum status nets_init(struct nets *nets, const struct model_shape *shape);
void nets_fini(struct nets *nets);
void nets_pack(struct nets *nets, const real *params);

NODISCARD enum status pass_init(struct pass *p, const struct nets *nets);
void pass_fini(struct pass *p);

// V of n <= PASS_ROWS rows: out (n), on the network's scale. What it computed is kept for pass_run.
void pass_value(struct pass *p, const struct nets *nets, const real *x,
                const uint8_t *const *pictures, int n, real *out);

// First pass of a window (`first`: r = 1 and importance weights are computed) or a later one.
// `have_value`: pass_value has just run on rows of which these are the first. grad (n_param) and
// sums are added to.
void pass_run(struct pass *p, const struct nets *nets, const struct loss_config *cfg,
              const struct samples *s, bool first, bool have_value, real *grad,
              struct loss_sums *sums);

#endif
