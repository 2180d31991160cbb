// simstream compare: two evaluations of the same items, paired item by item.
#include "cli/cmd.h"

#include "evaluation/compare.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

struct compare_options {
    int64_t flips;
    bool json;
};

#define AT(field) offsetof(struct compare_options, field)

static const struct opt table[] = {
    {"flips", OPT_INT, AT(flips), 0, WORKLIST_MAX, "20",
     "items to list that came out differently, at most; --json lists all", NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "print one JSON object", NULL},
    {0},
};

// ------------------------------------------------------------------ JSON

static void put_compared(struct json *j, const struct compared *c)
{
    json_int(j, "pairs", c->n);
    if (c->has_success) {
        json_int(j, "both", c->both);
        json_int(j, "only_a", c->only_a);
        json_int(j, "only_b", c->only_b);
        json_int(j, "neither", c->neither);
        json_real(j, "mcnemar_p", c->p);
        json_real(j, "difference", c->difference.rate);
        json_real(j, "difference_low", c->difference.low);
        json_real(j, "difference_high", c->difference.high);
    }
    json_real(j, "return_difference", c->returns.mean);
    json_real(j, "return_difference_low", c->returns.low);
    json_real(j, "return_difference_high", c->returns.high);
}

static void print_json(const char *const dirs[2], const struct results *a, const struct results *b,
                       const struct comparison *c)
{
    struct json j;
    int64_t k;
    int t;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "a", dirs[0]);
    json_str(&j, "b", dirs[1]);
    put_compared(&j, &c->all);
    json_int(&j, "unpaired_a", c->unpaired_a);
    json_int(&j, "unpaired_b", c->unpaired_b);
    json_open(&j, "tasks", '[');
    for (t = 0; t < a->n_task; t++) {
        json_open(&j, NULL, '{');
        json_str(&j, "task", a->tasks[t].name);
        put_compared(&j, &c->tasks[t]);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_open(&j, "flips", '[');
    for (k = 0; k < c->n_flip; k++) {
        const struct result *x = &a->rows[c->flips[k].a], *y = &b->rows[c->flips[k].b];

        json_open(&j, NULL, '{');
        json_str(&j, "task", a->tasks[x->task].name);
        json_int(&j, "episode", x->r.episode);
        json_str(&j, "a", outcome_name(x->r.outcome));
        json_str(&j, "b", outcome_name(y->r.outcome));
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_raw(&j, "settings_a", a->settings);
    json_raw(&j, "settings_b", b->settings);
    json_close(&j, '}');
    cmd_print_json(&j);
}

// ------------------------------------------------------------------ text

static double percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100 * (double)part / (double)whole : NAN;
}

static void print_compared(const char *name, const struct compared *c)
{
    if (c->has_success)
        printf("%-18s %5lld  %5.1f %%  %5.1f %%  %+6.1f  (%+.1f to %+.1f)  %5lld  %5lld  p %.3g\n",
               name, (long long)c->n, percent(c->both + c->only_a, c->n),
               percent(c->both + c->only_b, c->n), 100 * c->difference.rate,
               100 * c->difference.low, 100 * c->difference.high, (long long)c->only_a,
               (long long)c->only_b, c->p);
    else
        printf("%-18s %5lld  return %+.4g  (%+.4g to %+.4g)\n", name, (long long)c->n,
               c->returns.mean, c->returns.low, c->returns.high);
}

static void print_text(const struct compare_options *o, const char *const dirs[2],
                       const struct results *a, const struct results *b, const struct comparison *c)
{
    int64_t k;
    int t;

    printf("A  %s\nB  %s\n", dirs[0], dirs[1]);
    if (strcmp(a->settings, b->settings) == 0)
        printf("their settings are the same\n");
    if (c->all.has_success)
        printf("\n%-18s pairs        A        B   B - A  95 %% interval  A only B only\n", "task");
    for (t = 0; t < a->n_task; t++)
        if (c->tasks[t].n > 0)
            print_compared(a->tasks[t].name, &c->tasks[t]);
    print_compared("all", &c->all);
    if (c->unpaired_a + c->unpaired_b > 0)
        printf("without a partner: %lld of A, %lld of B\n", (long long)c->unpaired_a,
               (long long)c->unpaired_b);
    for (k = 0; k < c->n_flip && k < o->flips; k++) {
        const struct result *x = &a->rows[c->flips[k].a], *y = &b->rows[c->flips[k].b];

        printf("%s %s/%lld  %s -> %s\n", k == 0 ? "flips" : "     ", a->tasks[x->task].name,
               (long long)x->r.episode, outcome_name(x->r.outcome), outcome_name(y->r.outcome));
    }
    if (c->n_flip > o->flips)
        printf("      ... %lld more, --flips\n", (long long)(c->n_flip - o->flips));
}

int cmd_compare(int argc, char **argv)
{
    struct results a = {0}, b = {0};
    struct comparison c = {0};
    struct compare_options o;
    const char *dirs[2];
    enum status st;
    int n, code;

    memset(&o, 0, sizeof o);
    code = cmd_begin(table, &o, "compare A B [--option=value ...]   (folders of evaluations)", argc,
                     argv, 2, &n);
    if (code >= 0)
        return code;
    if (n != 2)
        return cmd_fail(FAIL(ST_INVAL, "expected two folders of evaluations, A and B"));
    dirs[0] = argv[0];
    dirs[1] = argv[1];
    st = results_read(&a, dirs[0]);
    if (st == ST_OK)
        st = results_read(&b, dirs[1]);
    if (st == ST_OK)
        st = compare_make(&c, &a, &b);
    if (st == ST_OK && o.json)
        print_json(dirs, &a, &b, &c);
    else if (st == ST_OK)
        print_text(&o, dirs, &a, &b, &c);
    compare_fini(&c);
    results_fini(&a);
    results_fini(&b);
    return st == ST_OK ? EXIT_DONE : cmd_fail(st);
}
