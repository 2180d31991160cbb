#include "rollout/player.h"

#include "common/base/mem.h"
#include "common/base/thread.h"
#include "nn/gaussian.h"
#include "rollout/eyes.h"
#include "rollout/played.h"

#include <string.h>

#define RESETS_MAX 16 // that fail one after the other

struct player {
    struct worker w; // an env's `used` are the episodes that it has ended
    struct hello hello;
    struct played *played;
    int chunk;
    size_t width; // numbers of a chunk
    struct eyes eyes;
    uint32_t group_size, n_env_all; // as the learner says

    bool *succeeded; // (n_env) the goal was reached in this episode
    int *failed;     // (n_env) resets that failed since the last that did not
    // (n_env, chunk, n_act) of the policy; of it actions on the task's scale, as sent
    struct policy_draw draw;
    float *unscaled, *clipped;
    size_t n_latent;          // numbers of a decision's latent
    float *logp;              // (n_env, chunk)
    float *log_std, *inv_std; // (chunk, n_act)
};

// ------------------------------------------------------------------ set-up

// What depends on the policy.
static enum status allocate_policy(struct player *p)
{
    const size_t n = (size_t)p->w.n_env;
    float *mean = mem_alloc(n * (5 * p->width + p->n_latent), sizeof *mean);

    p->draw.mean = mean; // the owner of all six
    p->logp = mem_alloc(n * (size_t)p->chunk, sizeof p->logp[0]);
    p->log_std = mem_alloc(2 * p->width, sizeof p->log_std[0]);
    if (!mean || !p->logp || !p->log_std)
        return ST_NOMEM;
    p->draw.drawn = mean + n * p->width;
    p->draw.action = p->draw.drawn + n * p->width;
    p->unscaled = p->draw.action + n * p->width;
    p->clipped = p->unscaled + n * p->width;
    p->draw.latent = p->clipped + n * p->width;
    p->inv_std = p->log_std + p->width;
    return ST_OK;
}

// Pictures that nobody looks at are not drawn; the end of an episode waits for a RESET.
static enum status wanted(struct player *p)
{
    const struct rollout_config *cfg = p->w.cfg;
    struct hello *h = &p->hello;

    *h = (struct hello){.autoreset = AUTORESET_DISABLED,
                        .k_max = (uint32_t)p->chunk,
                        .t_max_ns = -1,
                        .listed = !cfg->pixels};
    if (cfg->picture[0] && !cfg->pixels)
        return FAIL(ST_INVAL, "--picture=%s without --pixels", cfg->picture);
    return cfg->picture[0] ? hello_want(h, cfg->picture) : ST_OK;
}

static enum status set_up(struct player *p)
{
    const struct rollout_config *cfg = p->w.cfg;
    const struct spec *spec;
    struct join j = {.horizon = 1};

    if (cfg->action_chunk < 1 || cfg->action_chunk > SPEC_CHUNK_MAX)
        return FAIL(ST_INVAL, "chunks of %lld actions, expected 1 to %d",
                    (long long)cfg->action_chunk, SPEC_CHUNK_MAX);
    p->chunk = (int)cfg->action_chunk;
    TRY(wanted(p));
    TRY(worker_open(&p->w, &p->hello));
    spec = fleet_spec(p->w.fleet);
    p->width = (size_t)p->chunk * p->w.n_act;
    TRY(eyes_init(&p->eyes, spec, &p->hello, cfg->pixels));
    p->succeeded = mem_alloc((size_t)p->w.n_env, sizeof p->succeeded[0]);
    p->failed = mem_alloc((size_t)p->w.n_env, sizeof p->failed[0]);
    if (!p->succeeded || !p->failed)
        return ST_NOMEM;
    j.chunk = (uint32_t)p->chunk;
    j.n_view = (uint32_t)p->eyes.n_shown;
    memcpy(j.instruction, spec->instruction, sizeof j.instruction);
    memcpy(j.picture, p->eyes.names, sizeof j.picture);
    if (p->eyes.n_shown > 0) {
        j.width = p->eyes.view[0]->width;
        j.height = p->eyes.view[0]->height;
    }
    return worker_join(&p->w, &j);
}

static void tear_down(struct player *p)
{
    worker_close(&p->w);
    played_destroy(p->played);
    eyes_fini(&p->eyes);
    mem_free(p->succeeded);
    mem_free(p->failed);
    mem_free(p->draw.mean);
    mem_free(p->logp);
    mem_free(p->log_std);
}

// ------------------------------------------------------------------ episodes

// Env `env` takes its episode number `index`: what to reset it to.
static struct reset_row take_episode(struct player *p, int env, uint64_t index)
{
    const struct rollout_config *cfg = p->w.cfg;
    const uint64_t size = p->group_size, e = worker_global(&p->w, env);
    const uint64_t group = index * (p->n_env_all / size) + e / size;
    uint64_t start = group;

    if (cfg->own_starts) // so that none is left out
        start = index * ((uint64_t)p->w.n_env / size) + (uint64_t)env / size;
    if (cfg->start_states > 0)
        start %= (uint64_t)cfg->start_states;
    played_begin(p->played, env, index, group, (uint32_t)(e % size));
    p->w.pending[env] = p->succeeded[env] = false;
    return (struct reset_row){.seed = (uint64_t)cfg->seed, .episode = start};
}

static enum status start_one(struct player *p, int env, uint64_t index)
{
    p->w.resets[0] = take_episode(p, env, index);
    return fleet_reset_some(p->w.fleet, &env, p->w.resets, 1);
}

// The first weights say how groups are made and where to begin.
static enum status begin(void *self, const struct weights_head *head)
{
    struct player *p = self;
    struct worker *w = &p->w;
    const uint32_t size = head->group_size, first = worker_global(w, 0);

    if (size < 1 || head->n_env % size != 0 || (uint32_t)w->n_env % size != 0 || first % size != 0)
        return FAIL(ST_INVAL,
                    "groups of %u episodes with %u envs in all, of which this worker has %u to %u: "
                    "expected multiples of the group's size",
                    size, head->n_env, first, first + (uint32_t)w->n_env - 1);
    p->group_size = size;
    p->n_env_all = head->n_env;
    for (int i = 0; i < w->n_env; i++) {
        w->batch[i] = i;
        w->resets[i] = take_episode(p, i, head->start);
    }
    return fleet_reset_some(w->fleet, w->batch, w->resets, w->n_env);
}

static uint64_t rounds(const void *self, int env)
{
    const struct player *p = self;

    return played_index(p->played, env); // episodes
}

static enum status go_on(void *self, int n, uint64_t index)
{
    struct player *p = self;
    struct worker *w = &p->w;

    if (!w->begun)
        return ST_OK; // begin() starts all
    for (int i = 0; i < n; i++)
        w->resets[i] = take_episode(p, w->batch[i], index);
    return fleet_reset_some(w->fleet, w->batch, w->resets, n);
}

// ------------------------------------------------------------------ actions out

// What is sent of the actions of n rows.
static void make_sendable(struct player *p, int n)
{
    const struct vla_about *vla = p->w.weights->vla;
    const size_t n_act = p->w.n_act;

    for (size_t k = 0; k < (size_t)n * p->width; k += n_act) {
        if (vla)
            vla_input_unscale(&vla->input, p->draw.action + k, p->unscaled + k);
        else
            memcpy(p->unscaled + k, p->draw.action + k, n_act * sizeof p->unscaled[0]);
        fleet_clip(p->w.fleet, p->unscaled + k, p->clipped + k);
    }
}

static enum status infer(void *self, int n)
{
    struct player *p = self;
    struct worker *w = &p->w;
    int i;

    for (i = 0; i < n; i++) {
        int env = w->batch[i];

        w->rows[i] = (struct policy_row){.seed = (uint64_t)w->cfg->seed,
                                         .stream = played_group(p->played, env),
                                         .episode = played_member(p->played, env),
                                         .step = (uint64_t)played_decisions(p->played, env)};
        eyes_row(&p->eyes, env, &w->rows[i]);
    }
    TRY(policy_draw(w->policy, w->weights, w->rows, n, &p->draw));
    make_sendable(p, n);
    gaussian_parts(p->draw.mean, (int)p->width, p->draw.drawn, n, (int)p->width, p->chunk,
                   p->log_std, p->inv_std, p->logp);
    for (i = 0; i < n; i++) {
        const struct played_decision d = {.obs = w->rows[i].obs,
                                          .views = w->rows[i].pictures,
                                          .action = p->draw.drawn + (size_t)i * p->width,
                                          .logp = p->logp + (size_t)i * (size_t)p->chunk,
                                          .latent = p->draw.latent + (size_t)i * p->n_latent,
                                          .version = w->weights->version};

        TRY(played_decide(p->played, w->batch[i], &d));
        w->pending[w->batch[i]] = true;
    }
    return fleet_step_chunks(w->fleet, w->batch, p->clipped, p->chunk, n);
}

// ------------------------------------------------------------------ rows in

// Returns go on behind a time limit; a critic says by how much from what is seen there.
static enum status note_final(struct player *p, int env)
{
    struct policy_row row = {0};

    eyes_row(&p->eyes, env, &row);
    return played_final(p->played, env, row.obs, row.pictures);
}

static enum status end_episode(struct player *p, int env, const struct row_head *head)
{
    struct rollout_progress *progress = p->w.progress;
    const bool judged = fleet_spec(p->w.fleet)->has_success;
    const bool success = p->succeeded[env];
    const bool error = (head->flags & ROW_ERROR) != 0;
    uint32_t flags = (success ? EPISODE_SUCCESS : 0) | (error ? EPISODE_ERROR : 0);
    struct msg *m;

    // where success is known a time-out is a failure like any other
    if ((head->flags & ROW_TRUNCATED) && !(head->flags & ROW_TERMINATED)) {
        flags |= EPISODE_TRUNCATED;
        if (!judged && !error)
            TRY(note_final(p, env));
    }
    atomic_fetch_add(error ? &progress->errors : &progress->episodes, 1);
    TRY(played_end(p->played, env, worker_global(&p->w, env), flags,
                   judged ? (double)success : head->episode_return, head->episode_return, &m));
    return intake_send(p->w.intake, m);
}

static enum status take_row(void *self, int env, const uint8_t *row,
                            const struct row_layout *layout)
{
    struct player *p = self;
    struct worker *w = &p->w;
    const struct row_head *head = (const struct row_head *)row;
    uint64_t index = played_index(p->played, env);

    eyes_see(&p->eyes, env, row, layout);
    p->succeeded[env] |= (head->flags & ROW_SUCCESS) != 0; // a task may go on after it
    p->failed[env] = (head->flags & ROW_ERROR) && head->n_sub == 0 ? p->failed[env] + 1 : 0;
    if (p->failed[env] > RESETS_MAX)
        return FAIL(ST_IO, "env %d of %s cannot begin an episode: %s", env,
                    fleet_spec(w->fleet)->task, row_error_name((enum row_error)head->error));
    if (w->pending[env]) {
        w->pending[env] = false;
        played_outcome(p->played, env, (const double *)(row + layout->reward), head->n_sub);
        atomic_fetch_add(&w->progress->env_steps, head->n_sub);
    }
    if (head->flags & ROW_DONE) {
        TRY(end_episode(p, env, head));
        return start_one(p, env, index + 1);
    }
    scheduler_arrive(w->scheduler, env, index, clock_now_ns());
    return ST_OK;
}

// ------------------------------------------------------------------ weights

// The first weights say what the policy sees.
static enum status set_up_policy(struct player *p, const struct weights *weights)
{
    TRY(eyes_open(&p->eyes, weights, p->w.n_env, (int)p->width));
    p->n_latent = (size_t)policy_latent(weights);
    TRY(allocate_policy(p));
    TRY(played_create(&p->played, &(struct played_config){.n_env = p->w.n_env,
                                                          .n_obs = p->eyes.n_obs,
                                                          .n_act = (int)p->w.n_act,
                                                          .chunk = p->chunk,
                                                          .n_view = p->eyes.n_view,
                                                          .picture_bytes = p->eyes.picture_bytes,
                                                          .n_latent = (int)p->n_latent}));
    return policy_create_of(&p->w.policy, weights, p->w.n_env);
}

static enum status take_std(struct player *p, const struct weights *weights)
{
    TRY(policy_log_std(weights, p->log_std));
    (void)gaussian_inv_std(p->log_std, (int)p->width, p->inv_std);
    return ST_OK;
}

static enum status use_weights(void *self, const struct weights *weights)
{
    struct player *p = self;

    if (!p->w.policy)
        TRY(set_up_policy(p, weights));
    else if (!weights_same_model(weights, p->w.weights))
        return FAIL(ST_PROTO, "the learner at %s sent weights of another model", p->w.cfg->learner);
    return take_std(p, weights);
}

// ------------------------------------------------------------------ the run

enum status player_run(const struct rollout_config *cfg, const atomic_bool *stop,
                       struct rollout_progress *progress)
{
    static const struct worker_role role = {.infer = infer,
                                            .take_row = take_row,
                                            .use_weights = use_weights,
                                            .begin = begin,
                                            .rounds = rounds,
                                            .go_on = go_on};
    struct player p = {
        .w = {.cfg = cfg, .stop = stop, .progress = progress, .role = &role, .self = &p}};
    enum status st = set_up(&p);

    if (st == ST_OK)
        st = worker_work(&p.w);
    tear_down(&p);
    return atomic_load(stop) ? ST_OK : st; // a stop may cut off anything
}
