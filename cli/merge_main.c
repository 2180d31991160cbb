// simstream merge: the parts of an evaluation that was played in shards become one.
#include "cli/cmd.h"
#include "cli/eval_verdict.h"

#include "common/base/file.h"
#include "evaluation/html.h"
#include "evaluation/summary.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define FOLDERS_MAX 4096

struct merge_options {
    char out[OPT_STR_MAX];
    int64_t max_errors;
    double fail_below;
    bool json;
};

#define AT(field) offsetof(struct merge_options, field)

static const struct opt table[] = {
    {"out", OPT_STR, AT(out), 0, 0, NULL,
     "folder of the whole; parts that it already holds stay in it", NULL},
    {"max-errors", OPT_INT, AT(max_errors), 0, WORKLIST_MAX, "0",
     "more episodes than this that ended by an error make the command fail", NULL},
    {"fail-below", OPT_REAL, AT(fail_below), 0, 1, "0",
     "a success rate below this makes the command fail, and junit.xml's last test", NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "print the summary as JSON", NULL},
    {0},
};

static enum status add(struct results *all, const char *dir)
{
    struct results part = {0};
    enum status st;

    TRY(results_read(&part, dir));
    st = results_merge(all, &part, dir);
    results_fini(&part);
    return st;
}

static enum status read_all(struct results *all, const struct merge_options *o, char **dirs, int n)
{
    char path[PATH_MAX];
    int i;

    if ((size_t)snprintf(path, sizeof path, "%s/results.jsonl", o->out) >= sizeof path)
        return FAIL(ST_INVAL, "--out: the folder name '%.60s...' is too long", o->out);
    if (n == 0 && !file_exists(path))
        return FAIL(ST_INVAL, "no folders to merge");
    if (file_exists(path))
        TRY(add(all, o->out));
    for (i = 0; i < n; i++)
        TRY(add(all, dirs[i]));
    return ST_OK;
}

static enum status write_all(struct results *all, const struct merge_options *o, char **dirs, int n,
                             struct evaluator_summary *sum)
{
    struct summary_about about = {.dir = o->out,
                                  .sources = (const char *const *)dirs,
                                  .n_source = n,
                                  .wall_s = NAN,
                                  .fail_below = o->fail_below > 0 ? o->fail_below : NAN};
    int i;

    TRY(read_all(all, o, dirs, n));
    for (i = 0; i < all->n_task; i++)
        about.wanted += all->tasks[i].episodes;
    TRY(results_write(all, o->out));
    TRY(summary_write(all, &about, sum));
    return html_write(all, &about);
}

// No evaluation and no other merge writes into the folder meanwhile.
static enum status merge(struct results *all, const struct merge_options *o, char **dirs, int n,
                         struct evaluator_summary *sum)
{
    int lock_fd = -1;
    enum status st = results_lock(o->out, &lock_fd);

    if (st == ST_OK)
        st = write_all(all, o, dirs, n, sum);
    if (lock_fd >= 0)
        close(lock_fd);
    if (st != ST_OK)
        (void)rmdir(o->out); // unless something is in it
    return st;
}

static int conclude(const struct merge_options *o, const struct evaluator_summary *s)
{
    if (!s->complete) {
        fprintf(stderr, "simstream: %lld of %lld episodes have a result\n",
                (long long)(s->episodes + s->errors), (long long)s->wanted);
        return EXIT_FAILED;
    }
    return eval_verdict(s, o->max_errors, o->fail_below);
}

static void print_table(const struct merge_options *o, const struct evaluator_summary *s)
{
    printf("episodes  %lld of %lld done, %lld ended by an error\n", (long long)s->episodes,
           (long long)s->wanted, (long long)s->errors);
    eval_print_success(s);
    if (!s->has_success)
        printf("return    %.4g  (95 %% interval %.4g to %.4g)\n", s->return_mean, s->return_low,
               s->return_high);
    eval_print_report(o->out);
}

int cmd_merge(int argc, char **argv)
{
    struct evaluator_summary sum = {0};
    struct results all = {0};
    struct merge_options o;
    enum status st;
    int n, code;

    memset(&o, 0, sizeof o);
    code = cmd_begin(table, &o, "merge --out=FOLDER [FOLDER ...]", argc, argv, FOLDERS_MAX, &n);
    if (code >= 0)
        return code;
    st = merge(&all, &o, argv, n, &sum);
    results_fini(&all);
    if (st == ST_OK && o.json)
        st = cmd_print_file(o.out, "summary.json");
    else if (st == ST_OK)
        print_table(&o, &sum);
    return st == ST_OK ? conclude(&o, &sum) : cmd_fail(st);
}
