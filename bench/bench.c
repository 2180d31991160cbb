#include "bench/bench.h"

#include "cli/cmd.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void bench_spread(struct json *j, const char *key, double *x, int n)
{
    qsort(x, (size_t)n, sizeof x[0], by_value);
    json_open(j, key, '{');
    json_real(j, "min", x[0]);
    json_real(j, "median", n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2);
    json_real(j, "max", x[n - 1]);
    json_close(j, '}');
}

int cmd_bench(int argc, char **argv)
{
    static const char *const usage =
        "usage: simstream bench NAME [--option=value ...]\n\n"
        "  env    env server (inproc, ipc) against a bare loop over mj_step on the same threads\n"
        "  async  sync, +train-async, +rollout-async, +streaming with a modelled accelerator\n\n"
        "simstream bench NAME --help explains the options. One JSON line a result.\n";

    if (argc > 0 && strcmp(argv[0], "env") == 0)
        return bench_env(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "async") == 0)
        return bench_async(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        fputs(usage, stdout);
        return EXIT_DONE;
    }
    fputs(usage, stderr);
    return EXIT_USAGE;
}
