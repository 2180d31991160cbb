#include "cli/eval_verdict.h"

#include "cli/cmd.h"

#include <stdio.h>

void eval_print_success(const struct evaluator_summary *s)
{
    if (s->has_success)
        printf("success   %.1f %%  (%lld of %lld; 95 %% interval %.1f to %.1f %%)\n",
               100 * s->success_rate, (long long)s->successes, (long long)s->episodes,
               100 * s->success_low, 100 * s->success_high);
}

void eval_print_report(const char *out)
{
    printf("report    %s/report.html, summary.json, results.jsonl, junit.xml\n", out);
}

int eval_verdict(const struct evaluator_summary *s, int64_t max_errors, double fail_below)
{
    if (s->errors > max_errors) {
        fprintf(stderr, "simstream: %lld episodes ended by an error, --max-errors is %lld\n",
                (long long)s->errors, (long long)max_errors);
        return EXIT_FAILED;
    }
    if (fail_below > 0 && !(s->success_rate >= fail_below)) {
        fprintf(stderr, "simstream: %lld of %lld episodes succeeded, --fail-below is %g\n",
                (long long)s->successes, (long long)s->episodes, fail_below);
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}
