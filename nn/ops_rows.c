#include "nn/ops.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static ptrdiff_t row(const int *map, int i)
{
    return map ? map[i] : i;
}

void nn_rows_copy(const struct nn_rows *r, const real *src, int lds, real *dst, int ldd)
{
    for (int i = 0; i < r->n; i++)
        memcpy(dst + row(r->to, i) * ldd, src + row(r->from, i) * lds,
               (size_t)r->width * sizeof *dst);
}

void nn_rows_add(const struct nn_rows *r, const real *src, int lds, real *dst, int ldd)
{
    for (int i = 0; i < r->n; i++) {
        const real *s = src + row(r->from, i) * lds;
        real *d = dst + row(r->to, i) * ldd;

        for (int k = 0; k < r->width; k++)
            d[k] += s[k];
    }
}

void nn_patches(int n_image, const uint8_t *const *image, int side, int patch, real *rows)
{
    const int n = side / patch;

    for (int p = 0; p < n_image * n * n; p++) {
        const int at = p % (n * n);
        const uint8_t *corner =
            image[p / (n * n)] + ((ptrdiff_t)(at / n) * side + at % n) * patch * 3;

        for (int c = 0; c < 3; c++)
            for (int y = 0; y < patch; y++)
                for (int x = 0; x < patch; x++)
                    *rows++ = (real)corner[((ptrdiff_t)y * side + x) * 3 + c] / (real)127.5 - 1;
    }
}

void nn_rope_table(int n, int head_dim, double base, real *table)
{
    const int half = head_dim / 2;

    for (int k = 0; k < half; k++) {
        const double f = pow(base, -(double)k / half);

        for (int i = 0; i < n; i++) {
            table[(ptrdiff_t)i * head_dim + k] = (real)cos(i * f);
            table[(ptrdiff_t)i * head_dim + half + k] = (real)sin(i * f);
        }
    }
}

void nn_rope(const struct nn_rope *m, const struct nn_rows *r, const real *src, int lds, real *dst,
             int ldd)
{
    const int half = m->head_dim / 2;

    for (int i = 0; i < r->n; i++) {
        const real *s = src + row(r->from, i) * lds;
        const real *c = m->table + (ptrdiff_t)m->position[i] * m->head_dim, *sines = c + half;
        const real sign = m->inverse ? -1 : 1;
        real *d = dst + row(r->to, i) * ldd;

        for (int h = 0; h < m->heads; h++, s += m->head_dim, d += m->head_dim)
            for (int k = 0; k < half; k++) {
                const real a = s[k], b = s[half + k], sine = sign * sines[k];

                d[k] = a * c[k] - b * sine;
                d[half + k] = b * c[k] + a * sine;
            }
    }
}

void nn_block_limits(int n_seq, const int *cu, const uint8_t *begins, int *limit)
{
    for (int s = 0; s < n_seq; s++) {
        int end = cu[s + 1];

        for (int i = cu[s + 1] - 1; i >= cu[s]; i--) {
            limit[i] = end - cu[s];
            if (begins[i])
                end = i;
        }
    }
}
