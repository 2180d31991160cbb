#include "bench/episode_lengths.h"

#include <math.h>

#define DECILES 11
#define TASKS   10
#define SUITES  4

static const struct suite {
    int horizon;          // steps of a failure
    int success[DECILES]; // steps of the shortest, of 10 % ..., of the longest
    int text[TASKS];      // bytes of each task's instruction
} suites[SUITES] = {
    {220,
     {71, 76, 78, 79, 82, 84, 91, 95, 105, 110, 170},
     {82, 68, 66, 66, 88, 63, 71, 61, 66, 70}},
    {280, {82, 85, 87, 89, 91, 93, 93, 95, 96, 99, 102}, {52, 51, 53, 48, 46, 51, 45, 43, 56, 51}},
    {300, {50, 58, 65, 72, 78, 80, 83, 91, 98, 161, 241}, {37, 25, 41, 43, 34, 40, 32, 17, 25, 31}},
    {520,
     {70, 95, 150, 162, 176, 181, 183, 185, 187, 191, 518},
     {61, 58, 44, 67, 87, 66, 86, 65, 31, 58}},
};

static double fraction(double x)
{
    return x - floor(x);
}

// Steps of a success that is longer than the share u (0..1) of all.
static int steps_at(const struct suite *s, double u)
{
    const int i = (int)(u * (DECILES - 1));
    const double rest = u * (DECILES - 1) - i;

    return (int)lround(s->success[i] + rest * (s->success[i + 1] - s->success[i]));
}

struct episode episode_draw(int suite, double success, int i)
{
    struct episode e = {.suite = suite > 0 ? suite - 1 : i % SUITES};
    const struct suite *s = &suites[e.suite];
    const int k = suite > 0 ? i : i / SUITES; // of the suite's own
    const double before = 0.5 + (double)e.suite / SUITES + k * success;

    e.task = k % TASKS;
    e.text = s->text[e.task];
    e.success = floor(before + success) > floor(before);
    e.steps = e.success ? steps_at(s, fraction(0.5 + k * 0.6180339887498949)) : s->horizon;
    return e;
}
