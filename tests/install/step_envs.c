// step_envs.c - step environments in process through the installed library, with random actions.
//
// Usage: step_envs TASK ENVS STEPS. Prints the steps taken, the episodes begun and the mean reward.
#include <common/base/mem.h>
#include <common/base/rng.h>
#include <envserver/pool.h>

#include <stdio.h>
#include <stdlib.h>

#define CHECK(expr)                                                 \
    do {                                                            \
        if ((expr) != ST_OK) {                                      \
            fprintf(stderr, "%s: %s\n", #expr, error_last()->text); \
            return 1;                                               \
        }                                                           \
    } while (0)

// An action for every row of the batch; adds up what the rows bring.
static void act(const struct batch_head *head, const uint8_t *rows, const struct port *port,
                const struct spec *spec, struct rng *rng, uint8_t *request, double *reward,
                long *episodes)
{
    for (uint32_t i = 0; i < head->n; i++, rows += head->stride) {
        const struct row_head *row = (const struct row_head *)rows;
        struct step_row *step = (struct step_row *)(request + i * step_stride(1, spec->n_act));
        float *action = (float *)(step + 1); // (n_act)

        if (row->n_sub > 0)
            *reward += *(const double *)(rows + port_layout(port)->reward);
        *episodes += (row->flags & ROW_FIRST) != 0;
        *step = (struct step_row){.env = row->env, .n_sub = 1};
        for (int k = 0; k < spec->n_act; k++)
            action[k] = (float)rng_uniform(rng, spec->act_low[k], spec->act_high[k]);
    }
}

int main(int argc, char **argv)
{
    int n_env = argc == 4 ? atoi(argv[2]) : 0;
    long want = argc == 4 ? atol(argv[3]) : 0, steps = 0, episodes = 0;
    struct rng rng = rng_make(1, RNG_ACTION, 0, 0, 0);
    struct reset_row *resets;
    const struct batch_head *head;
    double reward = 0;
    struct pool *pool;
    struct port *port;
    struct msg *batch;
    const uint8_t *rows;
    uint8_t *request;

    if (n_env < 1 || want < 1) {
        fprintf(stderr, "usage: step_envs TASK ENVS STEPS\n");
        return 2;
    }
    CHECK(pool_create(&pool, &(struct pool_config){.task = argv[1], .kwargs = "", .n_env = n_env}));
    CHECK(port_open(&port, pool, &(struct port_config){.k_max = 1, .b_max = n_env}));
    request = mem_alloc((size_t)n_env, step_stride(1, pool_spec(pool)->n_act));
    resets = mem_alloc((size_t)n_env, sizeof *resets);
    for (int i = 0; i < n_env; i++)
        resets[i] = (struct reset_row){.env = port_envs(port, &n_env)[i], .stream = (uint64_t)i};
    CHECK(port_reset(port, resets, n_env));
    while (steps < want) {
        CHECK(port_recv(port, &batch, WAIT_NEVER));
        CHECK(batch_read(batch, port_layout(port), &head, &rows));
        act(head, rows, port, pool_spec(pool), &rng, request, &reward, &episodes);
        steps += head->n;
        CHECK(port_step(port, request, (int)head->n));
        msg_free(batch);
    }
    port_close(port);
    pool_destroy(pool);
    printf("%ld steps, %ld episodes, mean reward %.3f\n", steps, episodes, reward / (double)steps);
    mem_free(resets);
    mem_free(request);
    return steps >= want && episodes >= n_env ? 0 : 1;
}
