// real.h - the number type of the numeric sources: float.
//
// Tests compile the same sources a second time in double, by defining REAL_IS_DOUBLE and including
// them; their functions then end in _f64, so that both sets live side by side.
#ifndef NN_REAL_H
#define NN_REAL_H

#ifdef REAL_IS_DOUBLE
typedef double real;
#else
typedef float real;
#endif

// Rows of activations and packed weights are padded to whole cache lines, so that a vector never
// straddles two rows. The padding is zero.
#define REAL_PAD   (64 / (int)sizeof(real))
#define REAL_LD(n) (((n) + REAL_PAD - 1) / REAL_PAD * REAL_PAD)

#endif
