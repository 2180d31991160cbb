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

#endif
