#include "envserver/env.h"

#include "common/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// A reset that fails is tried again with the next episode numbers before the env is given up.
#define RESET_TRIES 3

enum status desk_init(struct desk *desk, const struct scene *scene, bool by_rows,
                      struct pictures *pictures)
{
    enum status st = ST_OK;

    memset(desk, 0, sizeof *desk);
    if (by_rows)
        st = sim_init(&desk->sim, scene);
    desk->reward = mem_alloc(SPEC_CHUNK_MAX, sizeof desk->reward[0]);
    desk->info = mem_alloc((size_t)scene->n_info, sizeof desk->info[0]);
    desk->final_obs = mem_alloc((size_t)scene->n_obs, sizeof desk->final_obs[0]);
    desk->final_info = mem_alloc((size_t)scene->n_info, sizeof desk->final_info[0]);
    if (st == ST_OK && (!desk->reward || !desk->info || !desk->final_obs || !desk->final_info))
        st = ST_NOMEM;
    if (st == ST_OK && pictures) {
        desk->picture_bytes = pictures_bytes(pictures);
        desk->final_pictures = mem_alloc(desk->picture_bytes, 1);
        st = desk->final_pictures ? painter_create(&desk->painter, pictures) : ST_NOMEM;
    }
    if (st != ST_OK)
        desk_fini(desk);
    return st;
}

void desk_fini(struct desk *desk)
{
    sim_fini(&desk->sim);
    mem_free(desk->reward);
    mem_free(desk->info);
    mem_free(desk->final_obs);
    mem_free(desk->final_info);
    mem_free(desk->final_pictures);
    painter_destroy(desk->painter);
    memset(desk, 0, sizeof *desk);
}

enum status env_init(struct env *env, const struct scene *scene, uint32_t id, void *row)
{
    memset(env, 0, sizeof *env);
    env->scene = scene;
    env->head.env = id;
    env->row = row;
    return row ? ST_OK : env_make_world(env);
}

enum status env_make_world(struct env *env)
{
    env->own = mem_alloc(1, sizeof *env->own);
    if (!env->own)
        return ST_NOMEM;
    if (sim_init(env->own, env->scene) == ST_OK)
        return ST_OK;
    mem_free(env->own);
    env->own = NULL;
    return error_last()->code;
}

void env_fini(struct env *env)
{
    if (env->own)
        sim_fini(env->own);
    mem_free(env->own);
    memset(env, 0, sizeof *env);
}

// Sit down at the desk; with `load` the world of the open episode is needed.
static enum row_error enter(struct env *env, struct desk *desk, bool load)
{
    enum row_error error = ROW_ERROR_NONE;

    desk->at = env->own ? env->own : &desk->sim;
    desk->at->world.error[0] = '\0';
    if (env->variant)
        error = variant_enter(env->variant, desk->at);
    if (env->row && load && error == ROW_ERROR_NONE)
        sim_load(desk->at, env->row);
    return error;
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
static enum row_error begin(struct env *env, struct desk *desk)
{
    struct scene_start start = {env->seed, env->stream, env->episode};
    enum row_error error = ROW_ERROR_NONE;

    if (env->variant)
        error = variant_draw(env->variant, desk->at, &start);
    if (error == ROW_ERROR_NONE)
        error = sim_reset(desk->at, &start);
    env->episode_return = 0;
    env->elapsed = 0;
    env->started = true;
    env->running = error == ROW_ERROR_NONE;
    env->lost = ROW_ERROR_NONE;
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

// The info of a start; nothing is known of a world that could not be started.
static void start_info(struct env *env, struct desk *desk)
{
    int i;

    if (env->running)
        sim_reset_info(desk->at, desk->info);
    else
        for (i = 0; i < env->scene->n_info; i++)
            desk->info[i] = NAN;
}

static void first_row(struct env *env, struct desk *desk)
{
    enum row_error error = begin(env, desk);

    head_begin(env);
    env->head.flags = ROW_FIRST;
    if (error != ROW_ERROR_NONE)
        fail_episode(env, error);
    start_info(env, desk);
}

void env_reset(struct env *env, struct desk *desk, const struct reset_row *row)
{
    (void)enter(env, desk, false); // a failure shows again when the model is drawn
    env->seed = row->seed;
    env->stream = row->stream;
    env->episode = row->episode;
    first_row(env, desk);
}

// The pictures of the present observation; without them the episode ends.
static bool draw(struct env *env, struct desk *desk, uint8_t *out)
{
    struct world *w = &desk->at->world;

    if (painter_draw(desk->painter, w, env->skip, out) == ST_OK)
        return true;
    snprintf(w->error, sizeof w->error, "%.255s", error_last()->text);
    fail_episode(env, ROW_ERROR_PICTURE);
    return false;
}

// Same-step autoreset: keep what was final, then go to the start of the next episode.
static void reset_same_step(struct env *env, struct desk *desk, int tries)
{
    const struct scene *scene = env->scene;
    int i;

    if (!(env->head.flags & ROW_ERROR)) {
        sim_observe(desk->at, desk->final_obs);
        if (!all_finite(desk->final_obs, scene->n_obs))
            fail_episode(env, ROW_ERROR_OUTPUT);
        else if (desk->painter)
            (void)draw(env, desk, desk->final_pictures);
    }
    if (env->head.flags & ROW_ERROR) {
        memset(desk->final_obs, 0, (size_t)scene->n_obs * sizeof desk->final_obs[0]);
        if (desk->painter)
            memset(desk->final_pictures, 0, desk->picture_bytes);
    }
    memcpy(desk->final_info, desk->info, (size_t)scene->n_info * sizeof desk->info[0]);
    env->head.flags |= ROW_HAS_FINAL;
    for (i = 0; i < tries && !env->running; i++) {
        env->episode++;
        (void)begin(env, desk); // a failure shows in `running`; the next request tries again
    }
    start_info(env, desk);
}

// One action after the other until the chunk or the episode ends. The counters move at the end, so
// that a process that dies in here leaves those of the last answer.
static void run_chunk(struct env *env, struct desk *desk, const float *actions, uint32_t n_sub)
{
    const struct scene *scene = env->scene;
    int64_t limit = ((const struct scene_common *)scene->params)->max_episode_steps;
    double sum = env->episode_return;
    struct row_head *head = &env->head;
    struct scene_outcome out;
    enum row_error error;

    while (head->n_sub < n_sub && !(head->flags & ROW_DONE)) {
        const float *action = actions + (size_t)head->n_sub * (size_t)scene->n_act;

        error = sim_step(desk->at, action, &out, desk->info);
        if (error != ROW_ERROR_NONE) {
            fail_episode(env, error);
            break;
        }
        desk->reward[head->n_sub++] = out.reward;
        sum += out.reward;
        if (out.success)
            head->flags |= ROW_SUCCESS;
        if (out.terminated)
            head->flags |= ROW_TERMINATED;
        if (limit > 0 && env->elapsed + head->n_sub >= limit)
            head->flags |= ROW_TRUNCATED;
    }
    env->elapsed += head->n_sub;
    env->episode_return = sum;
}

void env_step(struct env *env, struct desk *desk, const float *actions, int n_sub,
              enum autoreset autoreset)
{
    enum row_error error = env->lost;

    if (error == ROW_ERROR_NONE || !env->running)
        error = enter(env, desk, env->running);
    if (error != ROW_ERROR_NONE && env->running) {
        env_abort(env, desk, error, autoreset, true);
        return;
    }
    if (!env->running) {
        env->episode++;
        first_row(env, desk);
        return;
    }
    head_begin(env);
    run_chunk(env, desk, actions, (uint32_t)n_sub);
    head_end(env);
    if (!(env->head.flags & ROW_DONE))
        return;
    env->running = false;
    if (autoreset == AUTORESET_SAME_STEP)
        reset_same_step(env, desk, RESET_TRIES);
}

void env_abort(struct env *env, struct desk *desk, enum row_error error, enum autoreset autoreset,
               bool restart)
{
    int i;

    (void)enter(env, desk, false);
    head_begin(env);
    head_end(env);
    fail_episode(env, error);
    env->lost = ROW_ERROR_NONE;
    for (i = 0; i < env->scene->n_info; i++)
        desk->info[i] = NAN;
    if (autoreset == AUTORESET_SAME_STEP)
        reset_same_step(env, desk, restart ? RESET_TRIES : 0);
}

void env_write(struct env *env, struct desk *desk, const struct row_layout *layout, uint8_t *out)
{
    const struct scene *scene = env->scene;
    size_t obs_bytes = (size_t)scene->n_obs * sizeof(double);
    size_t info_bytes = (size_t)scene->n_info * sizeof(double);
    double *obs = (double *)(out + layout->obs);
    double *reward = (double *)(out + layout->reward);
    bool first = env->head.flags & (ROW_FIRST | ROW_HAS_FINAL);
    bool lost = (env->head.flags & ROW_ERROR) && !(env->head.flags & ROW_HAS_FINAL);
    uint32_t pictures_end = layout->final_pictures ? layout->final_pictures : layout->stride;
    size_t n_sub = env->head.n_sub;

    memcpy(reward, desk->reward, n_sub * sizeof reward[0]);
    memset(reward + n_sub, 0, ((size_t)layout->k_max - n_sub) * sizeof reward[0]);
    if (!lost && (env->running || !first)) {
        sim_observe(desk->at, obs);
        if (!all_finite(obs, scene->n_obs)) {
            fail_episode(env, ROW_ERROR_OUTPUT);
            lost = true;
        } else if (layout->pictures) {
            lost = !draw(env, desk, out + layout->pictures);
        }
    } else {
        lost = true;
    }
    if (lost)
        memset(obs, 0, obs_bytes);
    if (lost && layout->pictures)
        memset(out + layout->pictures, 0, pictures_end - layout->pictures);
    memcpy(out + layout->info, desk->info, info_bytes);
    if (layout->final_obs) {
        bool has = env->head.flags & ROW_HAS_FINAL;

        memset(out + layout->final_obs, 0,
               (layout->pictures ? layout->pictures : layout->stride) - layout->final_obs);
        if (has) {
            memcpy(out + layout->final_obs, desk->final_obs, obs_bytes);
            memcpy(out + layout->final_info, desk->final_info, info_bytes);
        }
    }
    if (layout->final_pictures) {
        size_t n = layout->stride - layout->final_pictures;

        if (env->head.flags & ROW_HAS_FINAL)
            memcpy(out + layout->final_pictures, desk->final_pictures, n);
        else
            memset(out + layout->final_pictures, 0, n);
    }
    memcpy(out, &env->head, sizeof env->head);
    if (env->row && env->running)
        sim_save(desk->at, env->row);
}
