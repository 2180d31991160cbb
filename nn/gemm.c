#include "nn/gemm.h"

#include <pthread.h>

#include <cblas.h>

#ifdef REAL_IS_DOUBLE
#define xgemm cblas_dgemm
#else
#define xgemm cblas_sgemm
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void one_thread(void)
{
    openblas_set_num_threads(1);
}

void gemm_tn_add(int m, int n, int k, const real *a, int lda, const real *b, int ldb, real *c,
                 int ldc)
{
    pthread_once(&once, one_thread);
    xgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, k, 1, a, lda, b, ldb, 1, c, ldc);
}

void gemm_nn(int m, int n, int k, const real *a, int lda, const real *b, int ldb, real *c, int ldc)
{
    pthread_once(&once, one_thread);
    xgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
}
