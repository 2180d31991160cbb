#include "evaluation/stats.h"

#include <math.h>

#define Z975     1.9599639845400542 // 97.5 % point of the standard normal distribution
#define TERM_MAX 10000
#define TINY     1e-300

// Keeps Lentz's method away from a division by zero.
static double away_from_zero(double x)
{
    return fabs(x) < TINY ? TINY : x;
}

// The continued fraction of the incomplete beta function (Abramowitz and Stegun 26.5.8), evaluated
// from the front by Lentz's method. Converges fast for x < (a + 1) / (a + b + 2).
static double beta_fraction(double a, double b, double x)
{
    double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), value = d;
    int m;

    for (m = 1; m < TERM_MAX; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        double step;

        d = 1 / away_from_zero(1 + even * d);
        c = away_from_zero(1 + even / c);
        value *= d * c;
        d = 1 / away_from_zero(1 + odd * d);
        c = away_from_zero(1 + odd / c);
        step = d * c;
        value *= step;
        if (fabs(step - 1) < 1e-15)
            break;
    }
    return value;
}

// lgamma writes a global.
static double log_gamma(double x)
{
    int sign;

    return lgamma_r(x, &sign);
}

double stats_beta_inc(double a, double b, double x)
{
    double front;

    if (x <= 0)
        return 0;
    if (x >= 1)
        return 1;
    front = exp(a * log(x) + b * log1p(-x) + log_gamma(a + b) - log_gamma(a) - log_gamma(b));
    if (x < (a + 1) / (a + b + 2))
        return front * beta_fraction(a, b, x) / a;
    return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

// P(T > t) for t > 0: half of I_x(df / 2, 1 / 2) at x = df / (df + t^2).
static double t_tail(double t, double df)
{
    return 0.5 * stats_beta_inc(df / 2, 0.5, df / (df + t * t));
}

// The expansion of the quantile around the normal one (Abramowitz and Stegun 26.7.5). The terms
// left out are below 1e-13 from 1000 degrees of freedom on, where the logarithms of gamma functions
// begin to cancel.
static double t975_expansion(double df)
{
    double z = Z975, z2 = z * z;
    double g1 = z * (z2 + 1) / 4;
    double g2 = z * ((5 * z2 + 16) * z2 + 3) / 96;
    double g3 = z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384;
    double g4 = z * ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / 92160;

    return z + (g1 + (g2 + (g3 + g4 / df) / df) / df) / df;
}

double stats_t975(double df)
{
    double low = 0, high = 16; // 12.7 for df = 1, less for more
    int i;

    if (df >= 1000)
        return t975_expansion(df);
    for (i = 0; i < 60; i++) { // halves the interval to the last bits
        double middle = (low + high) / 2;

        if (t_tail(middle, df) > 0.025)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

void stats_mean(struct stats_mean *out, const double *values, int n)
{
    double sum = 0, squares = 0, half;
    int i;

    *out = (struct stats_mean){NAN, NAN, NAN, NAN, NAN, NAN};
    if (n < 1)
        return;
    out->min = out->max = values[0];
    for (i = 0; i < n; i++) {
        sum += values[i];
        out->min = fmin(out->min, values[i]);
        out->max = fmax(out->max, values[i]);
    }
    out->mean = sum / n;
    if (n < 2)
        return;
    for (i = 0; i < n; i++)
        squares += (values[i] - out->mean) * (values[i] - out->mean);
    out->std = sqrt(squares / (n - 1));
    half = stats_t975(n - 1) * out->std / sqrt(n);
    out->low = out->mean - half;
    out->high = out->mean + half;
}

void stats_wilson(struct stats_rate *out, int hits, int n)
{
    double p, z2 = Z975 * Z975, middle, half, scale;

    *out = (struct stats_rate){NAN, NAN, NAN};
    if (n < 1)
        return;
    p = (double)hits / n;
    scale = 1 / (1 + z2 / n);
    middle = scale * (p + z2 / (2 * n));
    half = scale * Z975 * sqrt(p * (1 - p) / n + z2 / (4.0 * n * n));
    out->rate = p;
    // exact at the ends, where rounding could leave 1e-17
    out->low = hits == 0 ? 0 : middle - half;
    out->high = hits == n ? 1 : middle + half;
}

double stats_mcnemar(int x, int y)
{
    int few = x < y ? x : y, n = x + y;
    double p;

    if (x == y)
        return 1;
    // P(X <= few) of the binomial distribution with n and 1/2
    p = 2 * stats_beta_inc(n - few, few + 1, 0.5);
    return p < 1 ? p : 1;
}

// The score statistic of the hypothesis that the difference is `d`: (x - y - n d) over its standard
// deviation under the most likely rates with that difference.
static double paired_score(int x, int y, int n, double d)
{
    double a = 2.0 * n, b = -x - y + (2.0 * n - x + y) * d, c = -y * d * (1 - d);
    double root = b * b - 4 * a * c, q, variance;

    q = (sqrt(root > 0 ? root : 0) - b) / (2 * a);
    variance = n * (2 * q + d * (1 - d));
    if (variance <= 0)
        return x - y - n * d == 0 ? 0 : copysign(INFINITY, x - y - n * d);
    return (x - y - n * d) / sqrt(variance);
}

// Where the score is `z`, between `low` and `high`; it falls with d.
static double paired_bound(int x, int y, int n, double z, double low, double high)
{
    int i;

    for (i = 0; i < 60; i++) {
        double middle = (low + high) / 2;

        if (paired_score(x, y, n, middle) > z)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

void stats_paired(struct stats_rate *out, int x, int y, int n)
{
    double d;

    *out = (struct stats_rate){NAN, NAN, NAN};
    if (n < 1)
        return;
    d = ((double)x - y) / n;
    out->rate = d;
    out->low = x - y == -n ? -1 : paired_bound(x, y, n, Z975, -1, d);
    out->high = x - y == n ? 1 : paired_bound(x, y, n, -Z975, d, 1);
}
