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

void bench_print_spread(const char *what, double *x, int n)
{
    qsort(x, (size_t)n, sizeof x[0], by_value);
    printf("  %-44s %9.4g / %.4g / %.4g\n", what, x[0],
           n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2, x[n - 1]);
}

int bench_each(char *names, enum status (*one)(const void *options, const char *task),
               const void *options)
{
    char *task, *rest;
    enum status st;

    for (task = names; task && *task; task = rest) {
        rest = strchr(task, ',');
        if (rest)
            *rest++ = '\0';
        st = one(options, task);
        if (st != ST_OK)
            return cmd_fail(st);
    }
    return EXIT_DONE;
}

int cmd_bench(int argc, char **argv)
{
    static const char *const usage =
        "usage: simstream bench NAME [--option=value ...]\n\n"
        "  env    env server (in process, ipc, tcp) against a bare loop over mj_step on the same "
        "threads\n"
        "  libero LIBERO's tasks against a bare loop over mj_step on the same states\n"
        "  pictures  env steps with camera pictures in the observations\n"
        "  tail   dynamic batches against a barrier when some requests take 20 times as long\n"
        "  memory envs in rows of state against one world per env\n"
        "  render camera pictures by rays against MuJoCo's OpenGL renderer\n"
        "  vla    training steps and inference of a vision-language-action policy, packed against "
        "padded\n"
        "  episodes  such training steps on whole episodes as long as LIBERO's, packed against "
        "padded\n"
        "  async  sync, +train-async, +rollout-async, +streaming with a modelled accelerator\n\n"
        "simstream bench NAME --help explains the options. One JSON line a result.\n";

    if (argc > 0 && strcmp(argv[0], "env") == 0)
        return bench_env(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "tail") == 0)
        return bench_tail(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "memory") == 0)
        return bench_memory(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "async") == 0)
        return bench_async(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "libero") == 0)
        return bench_libero(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "render") == 0)
        return bench_render(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "vla") == 0)
        return bench_vla(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "episodes") == 0)
        return bench_episodes(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "pictures") == 0)
        return bench_pictures(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        fputs(usage, stdout);
        return EXIT_DONE;
    }
    fputs(usage, stderr);
    return EXIT_USAGE;
}
