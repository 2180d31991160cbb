#include "learner/rl_start.h"

#include "common/base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// A new policy for the first worker's task.
static enum status new_weights(const struct learner_config *cfg, const struct join *j,
                               struct weights **out)
{
    struct model_shape shape;
    struct weights *w;
    enum status st;

    TRY(model_shape_parse(&shape, (int)j->n_obs, (int)(j->chunk * j->n_act), cfg->hidden));
    if (j->picture[0]) {
        shape.vision = (struct model_vision){.width = (int)j->width,
                                             .height = (int)j->height,
                                             .stack = (int)j->n_view,
                                             .state = cfg->pixels_state};
        TRY(model_conv_parse(&shape.vision, cfg->conv));
    }
    TRY(weights_create(&w, &shape));
    st = model_init(&shape, (uint64_t)cfg->seed, cfg->log_std, w->params);
    if (st != ST_OK) {
        weights_drop(w);
        return st;
    }
    snprintf(w->task, sizeof w->task, "%s", j->task);
    snprintf(w->picture, sizeof w->picture, "%s", j->picture);
    *out = w;
    return ST_OK;
}

// Read the policy to start from: that of the checkpoint, or of --init.
enum status rl_start_read(struct weights **out, const struct learner_config *cfg)
{
    const char *init = cfg->rl.init;
    size_t n = strlen(init);
    char file[OPT_STR_MAX + 32];

    if (cfg->resume)
        snprintf(file, sizeof file, "%s/checkpoint.h5", cfg->out);
    else if (n > 0)
        snprintf(file, sizeof file, "%s%s", init,
                 n > 3 && strcmp(init + n - 3, ".h5") == 0 ? "" : "/policy.h5");
    else {
        *out = NULL;
        return ST_OK;
    }
    TRY(weights_load(out, file));
    if (!cfg->resume)
        (*out)->version = 0;
    return ST_OK;
}

// Does it fit what the worker sees and does? A vision-language-action model was compared already.
static enum status check_fit(const struct weights *w, const struct join *j)
{
    if (w->vla ||
        (w->shape.n_obs == (int)j->n_obs && w->shape.n_act == (int)(j->chunk * j->n_act) &&
         strcmp(w->picture, j->picture) == 0 && w->shape.vision.stack == (int)j->n_view))
        return ST_OK;
    return FAIL(ST_INVAL,
                "the initial policy takes %d observations and the pictures '%s' and gives %d "
                "numbers; expected %u, '%s' and %u actions of %u",
                w->shape.n_obs, w->picture, w->shape.n_act, j->n_obs, j->picture, j->chunk,
                j->n_act);
}

static void set_std(struct weights *w, struct rl_updater *u, double std)
{
    struct rl_state state;

    rl_get(u, &state);
    for (int d = 0; d < state.n_log_std; d++)
        w->params[state.log_std_at + d] =
            (float)fmax(fmin(log(std), UPDATE_LOG_STD_MAX), UPDATE_LOG_STD_MIN);
}

enum status rl_start_updater(struct rl_updater **out, const struct learner_config *cfg,
                             const struct weights *initial, const struct join *j,
                             struct train_progress *progress)
{
    char file[OPT_STR_MAX + 32];
    struct weights *w;
    enum status st;

    if (initial) {
        TRY(check_fit(initial, j));
        TRY(weights_copy(&w, initial));
    } else {
        TRY(new_weights(cfg, j, &w));
    }
    snprintf(w->config, sizeof w->config, "%s", cfg->options ? cfg->options : "");
    st = rl_create(out, &cfg->update, &cfg->rl, w, cfg->rl.updates);
    if (st == ST_OK && cfg->rl.explore > 0 && !cfg->resume) {
        set_std(w, *out, cfg->rl.explore);
        st = rl_restore(*out, w, 0);
    }
    weights_drop(w);
    if (st != ST_OK || !cfg->resume)
        return st;
    snprintf(file, sizeof file, "%s/checkpoint.h5", cfg->out);
    TRY(rl_checkpoint_load(file, &cfg->update, &cfg->rl, *out, progress));
    log_info("learner", "going on from '%s', window %llu", file,
             (unsigned long long)progress->windows);
    return ST_OK;
}
