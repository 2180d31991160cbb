// Operators, heads and policy in float against PyTorch, at every vector width.
#include "tests/golden_vla.h"

#include "nn/simd.h"

static void pytorch_gets_the_same_at_every_vector_width(void **state)
{
    (void)state;
    for (int level = SIMD_BASE; level <= SIMD_AVX512; level++) {
        simd_limit((enum simd_level)level);
        golden_vla_check(1e-5, 1e-4);
    }
    simd_limit(SIMD_AVX512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {leak_test(pytorch_gets_the_same_at_every_vector_width)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
