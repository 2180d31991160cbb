// ops_vec.h - vectors of the numeric operators: loads and stores of any count, exp and tanh. Part
// of a header of kernels (ops_levels.h), so included once per instruction set and not guarded.
//
// A row's last, partial vector is filled with zeros when it is loaded, and only its numbers are
// stored; so rows may have any length and any distance.

typedef real LEVEL(vec) __attribute__((vector_size(VEC_BYTES)));
// the same at any address
typedef real LEVEL(uvec) __attribute__((vector_size(VEC_BYTES), aligned(sizeof(real)), may_alias));
// what comparing two gives: all bits of a lane or none
typedef __typeof__((LEVEL(vec)){0} < (LEVEL(vec)){0}) LEVEL(mask);
#define LANES ((int)(VEC_BYTES / sizeof(real)))

ALWAYS TARGET LEVEL(vec) LEVEL(load)(const real *p)
{
    return *(const LEVEL(uvec) *)p;
}

ALWAYS TARGET void LEVEL(store)(real *p, LEVEL(vec) v)
{
    *(LEVEL(uvec) *)p = v;
}

// n of the LANES numbers, 0 < n.
ALWAYS TARGET LEVEL(vec) LEVEL(load_n)(const real *p, int n)
{
    LEVEL(vec) v = {0};

    if (n >= LANES)
        return LEVEL(load)(p);
    for (int i = 0; i < n; i++)
        v[i] = p[i];
    return v;
}

ALWAYS TARGET void LEVEL(store_n)(real *p, int n, LEVEL(vec) v)
{
    if (n >= LANES)
        LEVEL(store)(p, v);
    else
        for (int i = 0; i < n; i++)
            p[i] = v[i];
}

ALWAYS TARGET real LEVEL(sum)(LEVEL(vec) v)
{
    real part[LANES];

    LEVEL(store)(part, v);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            part[i] += part[i + half];
    return part[0];
}

#ifdef REAL_IS_DOUBLE
ALWAYS TARGET LEVEL(vec) LEVEL(exp)(LEVEL(vec) x)
{
    for (int i = 0; i < LANES; i++)
        x[i] = exp(x[i]);
    return x;
}

ALWAYS TARGET LEVEL(vec) LEVEL(tanh)(LEVEL(vec) x)
{
    for (int i = 0; i < LANES; i++)
        x[i] = tanh(x[i]);
    return x;
}
#else
typedef int32_t LEVEL(ivec) __attribute__((vector_size(VEC_BYTES)));

// exp(x) = 2^k exp(r) with x = k ln 2 + r, |r| <= ln 2 / 2; exp(r) - 1 by its power series. Two
// roundings or so from the true one; 0 below -87, infinite above 88; a NaN stays one.
ALWAYS TARGET LEVEL(vec) LEVEL(exp)(LEVEL(vec) x)
{
    const float rounder = 12582912.0f; // 1.5 * 2^23: adding it leaves the whole number in the bits
    LEVEL(ivec) under = x<-87.0f, over = x> 88.0f, mid = ~(under | over);
    LEVEL(vec) a = (LEVEL(vec))(mid & (LEVEL(ivec))x), shifted, k, r, p;

    shifted = MADD(a, SPLAT(1.44269504f), SPLAT(rounder));
    k = shifted - rounder;
    r = MADD(k, SPLAT(-0.693359375f), a);
    r = MADD(k, SPLAT(2.12194440e-4f), r);
    p = MADD(r, SPLAT(1.0f / 5040), SPLAT(1.0f / 720));
    p = MADD(p, r, SPLAT(1.0f / 120));
    p = MADD(p, r, SPLAT(1.0f / 24));
    p = MADD(p, r, SPLAT(1.0f / 6));
    p = MADD(p, r, SPLAT(0.5f));
    p = p * r;
    p = MADD(p, r, r) + 1.0f;
    p = p * (LEVEL(vec))(((LEVEL(ivec))shifted << 23) + 0x3f800000);
    return (LEVEL(vec))((mid & (LEVEL(ivec))p) | (over & 0x7f800000));
}

// tanh |x| = e / (e + 2) with e = exp(2 |x|) - 1. With 2 |x| = k ln 2 + r and |r| <= ln 2 / 2,
// e = 2^k (exp(r) - 1) + (2^k - 1), which loses nothing near zero; exp(r) - 1 by its power series.
ALWAYS TARGET LEVEL(vec) LEVEL(tanh)(LEVEL(vec) x)
{
    const float rounder = 12582912.0f;
    LEVEL(ivec) bits = (LEVEL(ivec))x, sign = bits & INT32_MIN, over;
    LEVEL(vec) a = (LEVEL(vec))(bits & INT32_MAX), shifted, k, r, p, e, two_k;

    over = (LEVEL(ivec))(a > 9.5f); // tanh is 1 from here; a NaN stays one
    a = (LEVEL(vec))((over & 0x41180000) | (~over & (LEVEL(ivec))a));
    a = a + a;
    shifted = MADD(a, SPLAT(1.44269504f), SPLAT(rounder));
    k = shifted - rounder;
    r = MADD(k, SPLAT(-0.693359375f), a);
    r = MADD(k, SPLAT(2.12194440e-4f), r);
    two_k = (LEVEL(vec))(((LEVEL(ivec))shifted << 23) + 0x3f800000);
    p = MADD(r, SPLAT(1.0f / 5040), SPLAT(1.0f / 720));
    p = MADD(p, r, SPLAT(1.0f / 120));
    p = MADD(p, r, SPLAT(1.0f / 24));
    p = MADD(p, r, SPLAT(1.0f / 6));
    p = MADD(p, r, SPLAT(0.5f));
    p = p * r;
    p = MADD(p, r, r);
    e = MADD(two_k, p, two_k - 1.0f);
    return (LEVEL(vec))((LEVEL(ivec))(e / (e + 2.0f)) | sign);
}
#endif

ALWAYS TARGET LEVEL(vec) LEVEL(sigmoid)(LEVEL(vec) x)
{
    return (real)1 / ((real)1 + LEVEL(exp)(-x));
}
