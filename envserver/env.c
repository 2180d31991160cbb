#include "envserver/env.h"

#include "common/base/mem.h"

#include <math.h>
#include <string.h>

// A reset that fails is tried again with the next episode numbers before the env is given up.
#define RESET_TRIES 3

enum status env_init(struct env *env, const struct scene *scene, uint32_t id)
{
    enum status st;

    memset(env, 0, sizeof *env);
    st = sim_init(&env->sim, scene);
    env->head.env = id;
    env->reward = mem_alloc(SPEC_CHUNK_MAX, sizeof env->reward[0]);
    env->info = mem_alloc((size_t)scene->n_info, sizeof env->info[0]);
    env->final_obs = mem_alloc((size_t)scene->n_obs, sizeof env->final_obs[0]);
    env->final_info = mem_alloc((size_t)scene->n_info, sizeof env->final_info[0]);
    if (st == ST_OK && (!env->reward || !env->info || !env->final_obs || !env->final_info))
        st = ST_NOMEM;
    if (st != ST_OK)
        env_fini(env);
    return st;
}

void env_fini(struct env *env)
{
    sim_fini(&env->sim);
    mem_free(env->reward);
    mem_free(env->info);
    mem_free(env->final_obs);
    mem_free(env->final_info);
    memset(env, 0, sizeof *env);
}

static bool all_finite(const double *x, int n)
{
    double sum = 0; // 0 * x is NaN for every x that is not finite
    int i;

    for (i = 0; i < n; i++)
        sum += 0 * x[i];
    return sum == 0;
}

// Put the env at the start of its present (seed, stream, episode).
static enum row_error begin(struct env *env)
{
    struct rng rng = rng_make(env->seed, RNG_RESET, env->stream, env->episode, 0);
    enum row_error error = sim_reset(&env->sim, &rng);

    env->episode_return = 0;
    env->elapsed = 0;
    env->started = true;
    env->running = error == ROW_ERROR_NONE;
    return error;
}

// The head of a row: identity and counters of the present episode.
static void head_begin(struct env *env)
{
    struct row_head head = {.env = env->head.env};

    head.seed = env->seed;
    head.stream = env->stream;
    head.episode = env->episode;
    env->head = head;
}

static void head_end(struct env *env)
{
    env->head.episode_return = env->episode_return;
    env->head.elapsed = env->elapsed;
}

static void fail_episode(struct env *env, enum row_error error)
{
    env->head.flags |= ROW_ERROR;
    env->head.error = error;
    env->running = false;
}

static void first_row(struct env *env)
{
    enum row_error error = begin(env);

    head_begin(env);
    env->head.flags = ROW_FIRST;
    if (error != ROW_ERROR_NONE)
        fail_episode(env, error);
    sim_reset_info(&env->sim, env->info);
}

void env_reset(struct env *env, const struct reset_row *row)
{
    env->seed = row->seed;
    env->stream = row->stream;
    env->episode = row->episode;
    first_row(env);
}

// Same-step autoreset: keep what was final, then go to the start of the next episode.
static void reset_same_step(struct env *env)
{
    const struct scene *scene = env->sim.scene;
    int i;

    if (env->head.flags & ROW_ERROR) {
        memset(env->final_obs, 0, (size_t)scene->n_obs * sizeof env->final_obs[0]);
    } else {
        sim_observe(&env->sim, env->final_obs);
        if (!all_finite(env->final_obs, scene->n_obs)) {
            fail_episode(env, ROW_ERROR_OUTPUT);
            memset(env->final_obs, 0, (size_t)scene->n_obs * sizeof env->final_obs[0]);
        }
    }
    memcpy(env->final_info, env->info, (size_t)scene->n_info * sizeof env->info[0]);
    env->head.flags |= ROW_HAS_FINAL;
    for (i = 0; i < RESET_TRIES && !env->running; i++) {
        env->episode++;
        (void)begin(env); // a failure shows in `running`; the next request tries again
    }
    sim_reset_info(&env->sim, env->info);
}

void env_step(struct env *env, const float *actions, int n_sub, enum autoreset autoreset)
{
    const struct scene *scene = env->sim.scene;
    int64_t limit = ((const struct scene_common *)scene->params)->max_episode_steps;
    bool terminated = false, success = false;
    enum row_error error;

    if (!env->running) {
        env->episode++;
        first_row(env);
        return;
    }
    head_begin(env);
    while (env->head.n_sub < (uint32_t)n_sub && !(env->head.flags & ROW_DONE)) {
        const float *action = actions + (size_t)env->head.n_sub * (size_t)scene->n_act;
        double *reward = &env->reward[env->head.n_sub];

        error = sim_step(&env->sim, action, reward, &terminated, &success, env->info);
        if (error != ROW_ERROR_NONE) {
            fail_episode(env, error);
            break;
        }
        env->head.n_sub++;
        env->elapsed++;
        env->episode_return += *reward;
        if (success)
            env->head.flags |= ROW_SUCCESS;
        if (terminated)
            env->head.flags |= ROW_TERMINATED;
        if (limit > 0 && env->elapsed >= limit)
            env->head.flags |= ROW_TRUNCATED;
    }
    head_end(env);
    if (!(env->head.flags & ROW_DONE))
        return;
    env->running = false;
    if (autoreset == AUTORESET_SAME_STEP)
        reset_same_step(env);
}

void env_write(struct env *env, const struct row_layout *layout, uint8_t *out)
{
    const struct scene *scene = env->sim.scene;
    size_t obs_bytes = (size_t)scene->n_obs * sizeof(double);
    size_t info_bytes = (size_t)scene->n_info * sizeof(double);
    double *obs = (double *)(out + layout->obs);
    double *reward = (double *)(out + layout->reward);
    bool first = env->head.flags & (ROW_FIRST | ROW_HAS_FINAL);
    bool lost = (env->head.flags & ROW_ERROR) && !(env->head.flags & ROW_HAS_FINAL);
    size_t n_sub = env->head.n_sub;

    memcpy(reward, env->reward, n_sub * sizeof reward[0]);
    memset(reward + n_sub, 0, ((size_t)layout->k_max - n_sub) * sizeof reward[0]);
    if (!lost && (env->running || !first)) {
        sim_observe(&env->sim, obs);
        if (!all_finite(obs, scene->n_obs)) {
            fail_episode(env, ROW_ERROR_OUTPUT);
            lost = true;
        }
    } else {
        lost = true;
    }
    if (lost)
        memset(obs, 0, obs_bytes);
    memcpy(out + layout->info, env->info, info_bytes);
    if (layout->final_obs) {
        bool has = env->head.flags & ROW_HAS_FINAL;

        memset(out + layout->final_obs, 0, layout->stride - layout->final_obs);
        if (has) {
            memcpy(out + layout->final_obs, env->final_obs, obs_bytes);
            memcpy(out + layout->final_info, env->final_info, info_bytes);
        }
    }
    memcpy(out, &env->head, sizeof env->head);
}
