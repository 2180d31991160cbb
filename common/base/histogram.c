#include "common/base/histogram.h"

#include <math.h>
#include <string.h>

void histogram_init(struct histogram *h, const int64_t *bound, int n)
{
    memset(h, 0, sizeof *h);
    h->bound = bound;
    h->n = n;
}

void histogram_add(struct histogram *h, int64_t value)
{
    int i = 0;

    while (i < h->n && value > h->bound[i])
        i++;
    atomic_fetch_add_explicit(&h->count[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum, value, memory_order_relaxed);
}

void histogram_read(const struct histogram *h, struct histogram_view *out)
{
    int i;

    memset(out, 0, sizeof *out);
    out->n = h->n;
    out->bound = h->bound;
    out->sum = atomic_load_explicit(&h->sum, memory_order_relaxed);
    for (i = 0; i <= h->n; i++) {
        out->count[i] = atomic_load_explicit(&h->count[i], memory_order_relaxed);
        out->total += out->count[i];
    }
}

double histogram_quantile(const struct histogram_view *v, double q)
{
    double want = q * (double)v->total, before = 0;
    int i;

    if (v->total == 0)
        return NAN;
    for (i = 0; i < v->n; i++) {
        double n = (double)v->count[i], low = i > 0 ? (double)v->bound[i - 1] : 0;

        if (before + n >= want && n > 0)
            return low + ((double)v->bound[i] - low) * (want - before) / n;
        before += n;
    }
    return (double)v->bound[v->n - 1];
}
