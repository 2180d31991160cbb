// adamw.h - one step of AdamW (Loshchilov and Hutter 2019) on a range of parameters.
#ifndef NN_ADAMW_H
#define NN_ADAMW_H

#include <stdint.h>

struct adamw {
    double lr, beta1, beta2, eps;
    double weight_decay; // per unit of learning rate, apart from the gradient
};

// Step number `step` (1, 2, ...): p (n) moves against grad (n) * scale; m and v (n) are the moving
// averages of the gradient and of its square, zero before the first step.
void adamw_step(const struct adamw *a, int64_t step, const float *grad, double scale, int64_t n,
                float *p, float *m, float *v);

// Factor of the learning rate at step number `step` (0, 1, ...): linear warm-up from about 0, then
// half a cosine from 1 to `floor` at `decay` steps, which warm-up does not shift. Where `total`
// steps are fewer than `decay`, both are shortened alike (the schedule of SmolVLA and pi0).
struct adamw_schedule {
    int64_t warmup, decay;
    int64_t total; // steps of the run; 0: not known
    double floor;  // share of the learning rate that stays
};

double adamw_factor(const struct adamw_schedule *s, int64_t step);

// Sum of squares of n numbers, in double and in one order.
double adamw_sum_squares(const float *grad, int64_t n);

// What clips a gradient of that sum of squares (times scale^2) to the norm `limit`: to be
// multiplied with the scale of adamw_step. limit 0: no clipping.
double adamw_clip(double sum_squares, double scale, double limit);

// average = decay * average + (1 - decay) * p: the exponential moving average of weights.
void adamw_average(double decay, int64_t n, const float *p, float *average);

#endif
