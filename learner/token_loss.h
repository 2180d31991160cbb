// token_loss.h - the policy loss of action chunks and its derivatives by what the network puts out.
//
// A row is a decision: a chunk of `chunk` sub-steps of n_act numbers each, of which the first n_sub
// were executed. What was not executed - after the end of the episode - enters no sum. An entry is
// an executed sub-step (level ACTION) or the executed part of the whole chunk (level CHUNK), and
// its log-probability l the sum over its numbers. With mu the policy that acted, p that at the
// start of the window, pi the present one, A the advantage and e_low, e_high the clip range, an
// entry's loss to be minimised is
//
//   BEHAVIOUR   max(-rho A, -clip(rho, 1 - e_low, 1 + e_high) A),  rho = pi / mu
//               (Schulman et al. 2017, eq. 7; two ranges: Yu et al. 2025)
//   DECOUPLED   w times the same with r = pi / p, w = min(p / mu, cap) held constant
//               (Hilton et al. 2021; cap: Espeholt et al. 2018). Before the first step of a window
//               pi = p: r = 1 and the gradient is that of -w A l
//
// and with a dual clip c at most -A c where A < 0 (Ye et al. 2020).
//
// Sums and one divisor. Each entry's loss and gradient are multiplied by omega; nobody divides
// here. Dividing the sums over any cut of the data by token_divisor gives, with omega from
// token_omega,
//
//   SEQUENCE  the mean over episodes of the mean over their entries   omega 1 / entries   episodes
//   ENTRY     the mean over all entries                               omega 1             entries
//   FIXED     as ENTRY, over a constant length (Liu et al. 2025)      omega 1    episodes * length
//
// An entry whose weight is capped or whose gradient is clipped away stays in the divisor.
//
// Threads: pure functions.
#ifndef LEARNER_TOKEN_LOSS_H
#define LEARNER_TOKEN_LOSS_H

#include "common/base/status.h"
#include "nn/real.h"

#include <stdint.h>

#ifdef REAL_IS_DOUBLE
#define token_loss     token_loss_f64
#define token_sums_add token_sums_add_f64
#define token_omega    token_omega_f64
#define token_divisor  token_divisor_f64
#define token_entries  token_entries_f64
#endif

enum token_level { TOKEN_ACTION, TOKEN_CHUNK };
enum token_mean { TOKEN_SEQUENCE, TOKEN_ENTRY, TOKEN_FIXED };
enum token_objective { TOKEN_BEHAVIOUR, TOKEN_DECOUPLED };
#define TOKEN_LEVELS     "action|chunk"
#define TOKEN_MEANS      "sequence|entry|fixed"
#define TOKEN_OBJECTIVES "behaviour|decoupled"

struct token_config {
    enum token_level level;
    enum token_mean mean;
    enum token_objective objective;
    double clip_low, clip_high;
    double dual_clip;  // 0 = off
    double weight_cap; // of w, DECOUPLED only
    double entropy_coef;
};

struct token_rows {
    int n, chunk, n_act, ld;    // ld: from one row of mean to the next, chunk * n_act or more
    const real *mean;           // (n, ld)
    const real *log_std;        // (chunk * n_act)
    const real *inv_std;        // (chunk * n_act) exp(-log_std)
    const real *action;         // (n, chunk, n_act) as sampled, before clipping
    const uint32_t *n_sub;      // (n) executed, 1..chunk
    const real *logp;           // (n, chunk) of each sub-step now, see gaussian_parts
    const real *logp_behaviour; // (n, chunk)
    const real *logp_start;     // (n, chunk) DECOUPLED: at the start of the window; NULL = now
    const real *advantage;      // (n)
    const real *omega;          // (n) weight of each entry of the row
};

struct token_sums {
    double entries;       // executed, each counted once
    double policy;        // loss, weighted by omega
    double clipped, dual; // entries whose gradient each clip took away
    double kl;            // k3 = rho - 1 - log rho of entries, rho = pi / mu (Schulman 2020)
    double log_ratio_max; // greatest |log rho|
    double weight, weight_square; // of w; 1 with BEHAVIOUR
    double weight_max, capped;    // entries that the cap cut
};

// mean_grad (n, ld): set; log_std_grad (chunk * n_act) and sums: added to.
void token_loss(const struct token_config *cfg, const struct token_rows *rows, real *mean_grad,
                real *log_std_grad, struct token_sums *sums);

void token_sums_add(struct token_sums *to, const struct token_sums *from);

// Entries of an episode of so many decisions and executed sub-steps.
int64_t token_entries(enum token_level level, int64_t decisions, int64_t sub_steps);

// omega of an episode's entries, and the divisor of sums over `episodes` with `entries` in all;
// `length` is the constant of FIXED, in entries.
double token_omega(enum token_mean mean, int64_t episode_entries);
double token_divisor(enum token_mean mean, int64_t episodes, int64_t entries, int64_t length);

#endif
