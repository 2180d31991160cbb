#include "learner/sft.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/metrics.h"
#include "common/base/thread.h"
#include "learner/sft_batch.h"
#include "nn/adamw.h"
#include "nn/h5file.h"
#include "nn/tokenizer.h"
#include "nn/weights.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define WINDOW    50 // steps of the mean loss
#define STEPS_MAX 1000000000LL
#define OPTION    "option." // before an option's name in a checkpoint

struct stored {
    struct sft_config c;
};

static const struct opt result_options[] = {SFT_RESULT_OPTS(struct stored, c), {0}};

struct sft {
    const struct sft_config *cfg;
    struct demos *demos;
    struct vla_about *about;
    struct sft_batch *batch;
    enum clone_loss loss;
    struct weights *weights;   // parameters now
    float *m, *v, *ema, *grad; // (n_param) ema: NULL without
    int64_t n_param, step;
    int32_t *order;  // (n_sample) of `epoch`
    int64_t epoch;   // -1: none yet
    int32_t *picked; // (batch)
    struct metrics *metrics;
    double losses[WINDOW];
    int64_t began_ns, first_step;
    struct sft_result result;
};

// ------------------------------------------------------------------ options in files

// One option as JSON, {"lr": 0.001}.
static enum status option_text(const struct opt *o, const struct sft_config *cfg, char *out,
                               size_t size)
{
    const struct opt one[] = {*o, {0}};

    return opts_dump(one, cfg, out, size);
}

static enum status put_options(struct h5file *f, const struct sft_config *cfg)
{
    char text[OPT_STR_MAX + 64], name[64];

    for (const struct opt *o = result_options; o->name; o++) {
        TRY(option_text(o, cfg, text, sizeof text));
        snprintf(name, sizeof name, OPTION "%s", o->name);
        TRY(h5file_put_long_text(f, name, text));
    }
    return ST_OK;
}

static enum status check_options(struct h5file *f, const struct sft_config *cfg)
{
    char now[OPT_STR_MAX + 64], then[OPT_STR_MAX + 64], name[64];

    for (const struct opt *o = result_options; o->name; o++) {
        TRY(option_text(o, cfg, now, sizeof now));
        snprintf(name, sizeof name, OPTION "%s", o->name);
        TRY(h5file_get_text(f, name, then, sizeof then));
        if (strcmp(now, then) != 0)
            return FAIL(ST_INVAL, "option '%s' was %.120s in the checkpoint and is %.120s now",
                        o->name, then, now);
    }
    return ST_OK;
}

// ------------------------------------------------------------------ model

static enum status path_in(const struct sft *s, const char *name, char *out, size_t size)
{
    if ((size_t)snprintf(out, size, "%s/%s", s->cfg->out, name) >= size)
        return FAIL(ST_INVAL, "folder name '%.60s...' is too long", s->cfg->out);
    return ST_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);

    return n >= k && strcmp(text + n - k, end) == 0;
}

static int count_parts(const char *list)
{
    int n = 1;

    for (; *list; list++)
        n += *list == ',';
    return n;
}

static enum status open_demos(struct sft *s, const struct vla_config *c)
{
    struct demos_config cfg = {.files = s->cfg->data,
                               .cameras = s->cfg->cameras,
                               .image = (int)c->image,
                               .chunk = (int)c->chunk,
                               .demos_per_file = s->cfg->demos_per_file,
                               .memory_bytes = s->cfg->data_memory << 20};

    TRY(demos_open(&s->demos, &cfg));
    s->result.demos = demos_info(s->demos)->n_demo;
    s->result.samples = demos_info(s->demos)->n_sample;
    return ST_OK;
}

// Of the options. Presets take their cameras and actions from the data; a file says them itself.
static enum status make_about(struct sft *s)
{
    bool preset = !strchr(s->cfg->model, '.') && !strchr(s->cfg->model, '/');
    struct tokenizer *tokenizer;
    struct vla_config c;
    struct vla_input in;
    const char *text;
    enum status st;
    size_t n;

    TRY(vla_config_read(&c, s->cfg->model));
    TRY(open_demos(s, &c));
    TRY(demos_input(s->demos, s->cfg->scale == 1, &in));
    TRY(tokenizer_load(&tokenizer, s->cfg->vocabulary));
    if (preset) {
        c.cameras = count_parts(s->cfg->cameras);
        c.action = in.n_action;
        if (c.vocab < tokenizer_size(tokenizer))
            c.vocab = tokenizer_size(tokenizer);
    }
    text = tokenizer_text(tokenizer, &n);
    st = vla_about_create(&s->about, &c, &in, text, n);
    tokenizer_destroy(tokenizer);
    return st;
}

// The policy to go on from says how large the model is, what it sees and its scales.
static enum status about_of_policy(struct sft *s, const struct weights *w)
{
    char cameras[OPT_STR_MAX] = "";

    if (!w->vla)
        return FAIL(ST_INVAL, "--init: '%s' is no vision-language-action policy", s->cfg->init);
    for (int i = 0; i < w->vla->input.n_camera; i++)
        snprintf(cameras + strlen(cameras), sizeof cameras - strlen(cameras), "%s%s", i ? "," : "",
                 w->vla->input.camera[i].picture);
    if (strcmp(cameras, s->cfg->cameras) != 0)
        return FAIL(ST_INVAL, "--init: '%s' sees %.200s, --cameras says %.200s", s->cfg->init,
                    cameras, s->cfg->cameras);
    TRY(open_demos(s, &w->vla->model));
    return vla_about_copy(&s->about, w->vla);
}

static enum status build_model(struct sft *s)
{
    bool tensors = ends_with(s->cfg->init, ".safetensors");
    struct weights *w = NULL;
    enum status st;

    if (s->cfg->init[0] && !tensors) {
        TRY(weights_load(&w, s->cfg->init));
        st = about_of_policy(s, w);
    } else {
        st = make_about(s);
    }
    if (st == ST_OK) {
        snprintf(s->about->kwargs, sizeof s->about->kwargs, "%s", demos_info(s->demos)->kwargs);
        st = weights_create_vla(&s->weights, s->about);
    }
    if (st == ST_OK && w)
        memcpy(s->weights->params, w->params, (size_t)w->n_param * sizeof w->params[0]);
    weights_drop(w);
    TRY(st);
    return tensors ? vla_about_import(s->about, s->weights->params, s->cfg->init) : ST_OK;
}

// The loss that fits the model's head.
static enum status choose_loss(struct sft *s)
{
    const bool flow = s->about->model.head == VLA_FLOW;

    if (s->cfg->loss == SFT_LOSS_AUTO)
        s->loss = flow ? CLONE_FLOW : CLONE_L1;
    else if ((s->cfg->loss == CLONE_FLOW) != flow)
        return FAIL(ST_INVAL, "--loss is %sfor a flow, the model's head is %s", flow ? "not " : "",
                    flow ? "one" : "gaussian");
    else
        s->loss = (enum clone_loss)s->cfg->loss;
    return ST_OK;
}

static enum status build(struct sft *s)
{
    const struct sft_config *cfg = s->cfg;
    struct sft_batch_config batch = {
        .samples = (int)cfg->batch,
        .budget = (int)cfg->micro_tokens,
        .threads = cfg->threads ? (int)cfg->threads : thread_cpus(),
        .shift = (int)cfg->shift,
        .padded = cfg->padded,
        .checkpoint = cfg->recompute,
    };
    size_t n;

    TRY(file_make_dir(cfg->out));
    TRY(build_model(s));
    TRY(choose_loss(s));
    batch.loss = s->loss;
    TRY(sft_batch_create(&s->batch, &batch, s->demos, s->about));
    if (!cfg->init[0])
        sft_batch_init(s->batch, (uint64_t)cfg->seed, cfg->log_std, s->weights->params);
    if (!cfg->init[0] && cfg->center)
        TRY(sft_batch_center(s->batch, (uint64_t)cfg->seed, s->weights->params));
    n = (size_t)(s->n_param = s->weights->n_param);
    s->m = mem_alloc(n, sizeof s->m[0]);
    s->v = mem_alloc(n, sizeof s->v[0]);
    s->grad = mem_alloc(n, sizeof s->grad[0]);
    s->ema = cfg->ema > 0 ? mem_alloc(n, sizeof s->ema[0]) : NULL;
    s->order = mem_alloc((size_t)s->result.samples, sizeof s->order[0]);
    s->picked = mem_alloc((size_t)cfg->batch, sizeof s->picked[0]);
    s->epoch = -1;
    if (!s->m || !s->v || !s->grad || (cfg->ema > 0 && !s->ema) || !s->order || !s->picked)
        return ST_NOMEM;
    if (s->ema)
        memcpy(s->ema, s->weights->params, n * sizeof s->ema[0]);
    if (demos_info(s->demos)->n_file == 1)
        snprintf(s->weights->task, sizeof s->weights->task, "%s", demos_info(s->demos)->task);
    s->result.params = s->n_param;
    s->result.work_bytes = sft_batch_bytes(s->batch);
    return opts_dump(result_options, cfg, s->weights->config, sizeof s->weights->config);
}

static void fini(struct sft *s)
{
    metrics_close(s->metrics);
    sft_batch_destroy(s->batch);
    weights_drop(s->weights);
    vla_about_destroy(s->about);
    demos_close(s->demos);
    mem_free(s->m);
    mem_free(s->v);
    mem_free(s->ema);
    mem_free(s->grad);
    mem_free(s->order);
    mem_free(s->picked);
}

// ------------------------------------------------------------------ saving

static enum status put_all(struct sft *s, struct h5file *f)
{
    TRY(weights_put(s->weights, f));
    TRY(put_options(f, s->cfg));
    TRY(h5file_put_int(f, "step", s->step));
    TRY(h5file_put(f, "adam_m", H5_F32, s->n_param, 0, s->m));
    TRY(h5file_put(f, "adam_v", H5_F32, s->n_param, 0, s->v));
    TRY(h5file_put(f, "losses", H5_F64, WINDOW, 0, s->losses));
    return s->ema ? h5file_put(f, "ema", H5_F32, s->n_param, 0, s->ema) : ST_OK;
}

static enum status save_checkpoint(struct sft *s)
{
    char path[PATH_MAX];
    struct h5file *f;
    enum status st;

    TRY(path_in(s, "checkpoint.h5", path, sizeof path));
    TRY(h5file_create(&f));
    st = put_all(s, f);
    if (st == ST_OK)
        st = h5file_save(f, path);
    h5file_close(f);
    return st;
}

static enum status save_policy(struct sft *s)
{
    char path[PATH_MAX];
    float *now = s->weights->params;
    enum status st;

    if (s->ema)
        s->weights->params = s->ema;
    st = path_in(s, "policy.h5", path, sizeof path);
    if (st == ST_OK)
        st = weights_save(s->weights, path);
    if (st == ST_OK && s->cfg->safetensors)
        st = path_in(s, "model.safetensors", path, sizeof path);
    if (st == ST_OK && s->cfg->safetensors)
        st = vla_about_export(s->about, s->weights->params, false, path);
    s->weights->params = now;
    return st;
}

static enum status save(struct sft *s)
{
    s->weights->version = (uint64_t)s->step;
    TRY(save_policy(s));
    return save_checkpoint(s);
}

static enum status get_all(struct sft *s, struct h5file *f)
{
    struct weights *w;
    enum status st = ST_OK;

    TRY(check_options(f, s->cfg));
    TRY(weights_get(&w, f));
    if (!weights_same_model(w, s->weights))
        st = FAIL(ST_INVAL, "it is of another model, or of other data");
    else
        memcpy(s->weights->params, w->params, (size_t)s->n_param * sizeof w->params[0]);
    weights_drop(w);
    TRY(st);
    TRY(h5file_get_int(f, "step", 0, STEPS_MAX, &s->step));
    TRY(h5file_get(f, "adam_m", H5_F32, s->n_param, 0, s->m));
    TRY(h5file_get(f, "adam_v", H5_F32, s->n_param, 0, s->v));
    TRY(h5file_get(f, "losses", H5_F64, WINDOW, 0, s->losses));
    return s->ema ? h5file_get(f, "ema", H5_F32, s->n_param, 0, s->ema) : ST_OK;
}

static enum status resume(struct sft *s)
{
    char path[PATH_MAX];
    struct h5file *f;
    enum status st;

    TRY(path_in(s, "checkpoint.h5", path, sizeof path));
    TRY(h5file_open(&f, path));
    st = get_all(s, f);
    h5file_close(f);
    return st != ST_OK && !strstr(error_last()->text, path) ? error_prefix("'%s'", path) : st;
}

// ------------------------------------------------------------------ steps

static double rate_at(const struct sft_config *cfg, int64_t step)
{
    struct adamw_schedule s = {
        .warmup = cfg->warmup, .decay = cfg->steps, .total = cfg->steps, .floor = cfg->lr_end};

    return cfg->lr * adamw_factor(&s, step);
}

// The samples of a step: the next ones of the stream of shuffled epochs.
static void pick(struct sft *s)
{
    int64_t n = s->result.samples;

    for (int64_t i = 0; i < s->cfg->batch; i++) {
        int64_t at = s->step * s->cfg->batch + i;

        if (at / n != s->epoch) {
            s->epoch = at / n;
            demos_shuffle(s->order, (int)n, (uint64_t)s->cfg->seed, (uint64_t)s->epoch);
        }
        s->picked[i] = s->order[at % n];
    }
}

// What divides the sum, with the norm cut off; *norm is that of the mean gradient.
static double scale_of(const struct sft *s, double weight, double *norm)
{
    double squares = adamw_sum_squares(s->grad, s->n_param);

    *norm = sqrt(squares) / weight;
    return adamw_clip(squares, 1 / weight, s->cfg->clip) / weight;
}

static void move(struct sft *s, double scale, double lr)
{
    struct adamw a = {.lr = lr,
                      .beta1 = 0.9,
                      .beta2 = s->cfg->beta2,
                      .eps = 1e-8,
                      .weight_decay = s->cfg->weight_decay};
    float *p = s->weights->params, log_std[SPEC_ACT_MAX];
    size_t n_std = (size_t)s->about->model.action;
    int64_t at = sft_batch_log_std(s->batch);

    memcpy(log_std, p + at, n_std * sizeof p[0]);
    adamw_step(&a, s->step + 1, s->grad, scale, s->n_param, p, s->m, s->v);
    if (s->loss != CLONE_NLL) // no gradient: nor shall it decay
        memcpy(p + at, log_std, n_std * sizeof p[0]);
    if (s->ema)
        adamw_average(fmin(s->cfg->ema, (double)(1 + s->step) / (double)(10 + s->step)), s->n_param,
                      p, s->ema);
}

static enum status note(struct sft *s, const struct sft_sums *sums, double norm, double lr,
                        sft_report_fn report, void *arg)
{
    double seconds = (double)(clock_now_ns() - s->began_ns) * 1e-9, mean = 0;
    int64_t n = s->step < WINDOW ? s->step : WINDOW;
    struct sft_report r;

    for (int64_t i = 0; i < n; i++)
        mean += s->losses[i] / (double)n;
    s->result.loss = mean;
    s->result.seconds = seconds;
    r = (struct sft_report){.step = s->step,
                            .steps = s->cfg->steps,
                            .loss = mean,
                            .lr = lr,
                            .tokens_per_s = (double)s->result.tokens / fmax(seconds, 1e-9),
                            .seconds = seconds};
    if (report)
        report(arg, &r);
    if (s->step % 10 == 0 || s->step == s->cfg->steps) {
        const struct metric values[] = {
            {"train/loss", sums->loss / sums->weight},
            {"train/loss_mean", mean},
            {"train/grad_norm", norm},
            {"train/lr", lr},
            {"perf/tokens_per_s", r.tokens_per_s},
            {"perf/micro_batches", sums->micro},
        };

        return metrics_write(s->metrics, s->step, values, sizeof values / sizeof values[0]);
    }
    return ST_OK;
}

static enum status one_step(struct sft *s, sft_report_fn report, void *arg)
{
    double lr = rate_at(s->cfg, s->step), norm, scale;
    struct sft_sums sums;

    pick(s);
    TRY(sft_batch_run(s->batch, s->weights->params, s->picked, (int)s->cfg->batch,
                      (uint64_t)s->cfg->seed, (uint64_t)s->step, s->grad, &sums));
    scale = scale_of(s, sums.weight, &norm);
    if (!isfinite(scale) || !isfinite(norm))
        return FAIL(ST_INVAL, "the gradient of step %lld is not finite: a lower --lr may help",
                    (long long)s->step);
    move(s, scale, lr);
    s->losses[s->step % WINDOW] = sums.loss / sums.weight;
    s->step++;
    s->result.tokens += sums.tokens;
    s->result.computed += sums.computed;
    return note(s, &sums, norm, lr, report, arg);
}

static enum status train(struct sft *s, const atomic_bool *stop, sft_report_fn report, void *arg)
{
    int64_t every = s->cfg->save_every;

    while (s->step < s->cfg->steps && !atomic_load(stop)) {
        TRY(one_step(s, report, arg));
        if (every > 0 && s->step % every == 0 && s->step < s->cfg->steps)
            TRY(save(s));
    }
    return save(s);
}

enum status sft_run(const struct sft_config *cfg, const atomic_bool *stop, sft_report_fn report,
                    void *arg, struct sft_result *out)
{
    struct sft s = {.cfg = cfg, .began_ns = clock_now_ns()};
    enum status st = build(&s);

    if (st == ST_OK && cfg->resume)
        st = resume(&s);
    if (st == ST_OK)
        st = metrics_open(&s.metrics, cfg->out);
    if (st == ST_OK) {
        log_info("sft",
                 "%lld demos, %lld samples, %d instructions; %lld parameters, %.1f MiB of "
                 "workspace and gradients",
                 (long long)s.result.demos, (long long)s.result.samples,
                 demos_info(s.demos)->n_instruction, (long long)s.n_param,
                 (double)s.result.work_bytes / (1 << 20));
        s.began_ns = clock_now_ns();
        st = train(&s, stop, report, arg);
    }
    s.result.steps = s.step;
    if (st == ST_OK)
        *out = s.result;
    fini(&s);
    return st;
}
