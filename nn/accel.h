// accel.h - a modelled accelerator: waits a configurable time per inference and per update, without
// using the CPU, so that the overlap of simulation, inference and training can be measured on a
// machine that has no accelerator. All zero (the default) waits for nothing.
#ifndef NN_ACCEL_H
#define NN_ACCEL_H

#include <stdint.h>

struct accel {
    int64_t infer_ns;      // per forward call
    int64_t infer_row_ns;  // and per row of it
    int64_t update_row_ns; // per sample of forward and backward
    int64_t update_ns;     // per optimizer step
};

void accel_infer(const struct accel *a, int n_row);
void accel_accumulate(const struct accel *a, int n_row);
void accel_step(const struct accel *a);

#endif
