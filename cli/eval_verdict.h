// eval_verdict.h - what `eval` and `merge` say of a finished evaluation in the same words.
#ifndef CLI_EVAL_VERDICT_H
#define CLI_EVAL_VERDICT_H

#include "evaluation/results.h"

// The line of the success rate; none if the task has no success.
void eval_print_success(const struct evaluator_summary *s);

// The line of the files in folder `out`.
void eval_print_report(const char *out);

// The exit code of a complete evaluation, with the reason on stderr unless it is EXIT_DONE: more
// errors than `max_errors`, or a success rate under `fail_below` (0 = any will do).
int eval_verdict(const struct evaluator_summary *s, int64_t max_errors, double fail_below);

#endif
