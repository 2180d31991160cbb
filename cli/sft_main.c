#include "cli/cmd.h"
#include "cli/signals.h"

#include "common/base/progress.h"
#include "learner/sft.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct sft_options {
    struct sft_config sft;
    bool json;
};

static const struct opt table[] = {
    SFT_RESULT_OPTS(struct sft_options, sft),
    SFT_OTHER_OPTS(struct sft_options, sft),
    {"json", OPT_BOOL, offsetof(struct sft_options, json), 0, 1, "false",
     "print the result as JSON", NULL},
    {0},
};

static void draw(void *arg, const struct sft_report *r)
{
    double share = (double)r->step / (double)r->steps;
    char left[16];

    (void)arg;
    progress_draw(false, "%3.0f%%  step %lld  loss %.4f  lr %.2g  %.0f tokens/s  left %s",
                  100 * share, (long long)r->step, r->loss, r->lr, r->tokens_per_s,
                  progress_time(left, r->tokens_per_s > 0 ? r->seconds * (1 / share - 1) : 0));
}

static void print(const struct sft_options *o, const struct sft_result *r)
{
    double share = r->computed > 0 ? (double)r->tokens / (double)r->computed : 1;
    struct json j;

    if (!o->json) {
        printf("%lld demos, %lld samples, %lld parameters\n%lld steps, loss %.4f, %.1f s, %.0f "
               "tokens/s, %.0f %% of them padding, %.1f MiB of memory\npolicy: %s/policy.h5\n",
               (long long)r->demos, (long long)r->samples, (long long)r->params,
               (long long)r->steps, r->loss, r->seconds,
               r->seconds > 0 ? (double)r->tokens / r->seconds : 0, 100 * (1 - share),
               (double)r->work_bytes / (1 << 20), o->sft.out);
        return;
    }
    json_init(&j);
    json_open(&j, NULL, '{');
    json_int(&j, "demos", r->demos);
    json_int(&j, "samples", r->samples);
    json_int(&j, "params", r->params);
    json_int(&j, "steps", r->steps);
    json_real(&j, "loss", r->loss);
    json_int(&j, "tokens", r->tokens);
    json_int(&j, "tokens_computed", r->computed);
    json_int(&j, "work_bytes", r->work_bytes);
    json_real(&j, "seconds", r->seconds);
    json_str(&j, "out", o->sft.out);
    json_close(&j, '}');
    cmd_print_json(&j);
}

int cmd_sft(int argc, char **argv)
{
    struct sft_result result = {0};
    struct sft_options o;
    enum status st;
    int code;

    memset(&o, 0, sizeof o);
    code =
        cmd_begin(table, &o, "sft --data=FILE[,FILE...] [--option=value ...]", argc, argv, 0, NULL);
    if (code >= 0)
        return code;
    st = sft_run(&o.sft, signals_install(), draw, NULL, &result);
    progress_end();
    if (st != ST_OK)
        return cmd_fail(st);
    print(&o, &result);
    if (result.steps < o.sft.steps)
        fprintf(stderr, "simstream: stopped after %lld of %lld steps, --resume goes on\n",
                (long long)result.steps, (long long)o.sft.steps);
    return EXIT_DONE;
}
