// Operators, heads and policy in double against PyTorch.
#define REAL_IS_DOUBLE
#include "tests/golden_vla.h"

static void pytorch_gets_the_same(void **state)
{
    (void)state;
    golden_vla_check(1e-12, 1e-11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {leak_test(pytorch_gets_the_same)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
