#include "nn/accel.h"

#include "common/base/thread.h"

void accel_infer(const struct accel *a, int n_row)
{
    clock_sleep_ns(a->infer_ns + a->infer_row_ns * n_row);
}

void accel_accumulate(const struct accel *a, int n_row)
{
    clock_sleep_ns(a->update_row_ns * n_row);
}

void accel_step(const struct accel *a)
{
    clock_sleep_ns(a->update_ns);
}
