// Memory of a process that holds a pool: envs in rows of state against one world per env. Each pool
// is made in a process of its own.
#include "bench/bench.h"

#include "cli/cmd.h"
#include "common/base/mem.h"
#include "common/base/thread.h"
#include "common/base/usage.h"
#include "envserver/pool.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct memory_options {
    char task[OPT_STR_MAX];
    int64_t num_envs, threads;
};

#define AT(field) offsetof(struct memory_options, field)

static const struct opt table[] = {
    {"task", OPT_STR, AT(task), 0, 0, "Humanoid-v5", "the task", NULL},
    {"num-envs", OPT_INT, AT(num_envs), 1, SPEC_ENV_MAX, "256", "environments", NULL},
    {"threads", OPT_INT, AT(threads), 1, 256, "2", "workers", NULL},
    {0},
};

// Reset all envs and let each make a few steps.
static enum status warm_up(struct pool *pool, struct port *port)
{
    size_t stride = step_stride(1, pool_spec(pool)->n_act);
    struct reset_row *resets;
    uint8_t *steps;
    struct msg *m;
    enum status st = ST_OK;
    const uint32_t *ids;
    int i, n, t;

    ids = port_envs(port, &n);
    resets = mem_alloc((size_t)n, sizeof resets[0]);
    steps = mem_alloc((size_t)n, stride);
    if (!resets || !steps)
        st = ST_NOMEM;
    for (i = 0; i < n && st == ST_OK; i++) {
        resets[i] = (struct reset_row){.env = ids[i], .stream = ids[i]};
        memcpy(steps + (size_t)i * stride, &(struct step_row){.env = ids[i], .n_sub = 1},
               sizeof(struct step_row));
    }
    for (t = 0; t < 20 && st == ST_OK; t++) {
        st = t == 0 ? port_reset(port, resets, n) : port_step(port, steps, n);
        while (st == ST_OK && (st = port_recv(port, &m, WAIT_NEVER)) == ST_OK)
            msg_free(m);
        if (st == ST_AGAIN)
            st = ST_OK;
    }
    mem_free(resets);
    mem_free(steps);
    return st;
}

static enum status measure(const struct memory_options *o, enum pool_worlds worlds, double *mib)
{
    struct pool *pool = NULL;
    struct port *port = NULL;
    enum status st = pool_create(&pool, &(struct pool_config){.task = o->task,
                                                              .kwargs = "",
                                                              .n_env = (int)o->num_envs,
                                                              .n_thread = (int)o->threads,
                                                              .worlds = worlds});

    if (st == ST_OK)
        st = port_open(
            &port, pool,
            &(struct port_config){.autoreset = AUTORESET_SAME_STEP, .k_max = 1, .b_max = 64});
    if (st == ST_OK)
        st = warm_up(pool, port);
    *mib = usage_resident_bytes() / (1 << 20);
    port_close(port);
    pool_destroy(pool);
    return st;
}

// The same in a child.
static enum status measure_apart(const struct memory_options *o, enum pool_worlds worlds,
                                 double *mib)
{
    int fds[2];
    ssize_t got;
    pid_t pid;

    if (pipe(fds) != 0)
        return FAIL_SYS(ST_IO, errno, "cannot make a pipe");
    pid = fork();
    if (pid == 0) {
        if (measure(o, worlds, mib) != ST_OK) {
            fprintf(stderr, "%s\n", error_last()->text);
            _exit(1);
        }
        _exit(write(fds[1], mib, sizeof *mib) == (ssize_t)sizeof *mib ? 0 : 1);
    }
    close(fds[1]);
    got = pid > 0 ? read(fds[0], mib, sizeof *mib) : -1;
    close(fds[0]);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    if (got != (ssize_t)sizeof *mib)
        return FAIL(ST_IO, "the process that was to be measured has failed");
    return ST_OK;
}

int bench_memory(int argc, char **argv)
{
    struct memory_options o;
    double rows, own;
    struct json j;
    enum status st;
    int code = cmd_begin(table, &o, "bench memory [--option=value ...]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    st = measure_apart(&o, POOL_WORLDS_AUTO, &rows);
    if (st == ST_OK)
        st = measure_apart(&o, POOL_WORLDS_OWN, &own);
    if (st != ST_OK)
        return cmd_fail(st);
    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "bench", "memory");
    json_str(&j, "task", o.task);
    json_int(&j, "num_envs", o.num_envs);
    json_int(&j, "threads", o.threads);
    json_real(&j, "rows_mib", rows);
    json_real(&j, "own_worlds_mib", own);
    json_real(&j, "ratio", rows / own);
    json_close(&j, '}');
    cmd_print_json(&j);
    return EXIT_DONE;
}
