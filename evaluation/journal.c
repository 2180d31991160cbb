#include "evaluation/journal.h"

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SYNC_NS (2 * NS_PER_S) // what a power failure can cost

struct journal {
    char dir[PATH_MAX - 64], rows_path[PATH_MAX], inputs_path[PATH_MAX];
    int64_t seed, n_found, synced_ns;
    int lock_fd, rows_fd, inputs_fd;
    bool made;           // the four files are of this process
    pthread_mutex_t mtx; // guards the rest
    struct results results;
    uint8_t **has; // (n_task) of (episodes)
};

static enum status open_append(int *fd, const char *path)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return *fd >= 0 ? ST_OK : FAIL_SYS(ST_IO, errno, "cannot open '%s'", path);
}

static enum status add_marks(struct journal *j, int64_t episodes)
{
    size_t n = (size_t)j->results.n_task;
    uint8_t **has = mem_resize(j->has, n, sizeof has[0]);

    if (!has)
        return ST_NOMEM;
    j->has = has;
    has[n - 1] = mem_alloc((size_t)episodes, 1);
    return has[n - 1] ? ST_OK : ST_NOMEM;
}

static enum status add_task(struct journal *j, const struct result_task *task)
{
    TRY(results_add_task(&j->results, task));
    return add_marks(j, task->episodes);
}

static void forget_errors(struct results *r)
{
    int64_t k, n = 0;

    for (k = 0; k < r->n; k++)
        if (r->rows[k].r.outcome != OUTCOME_ERROR)
            r->rows[n++] = r->rows[k];
    r->n = n;
}

static void free_marks(struct journal *j)
{
    int i;

    for (i = 0; j->has && i < j->results.n_task; i++)
        mem_free(j->has[i]);
    mem_free(j->has);
    j->has = NULL;
}

static enum status begin(struct journal *j, const struct journal_config *cfg)
{
    int i;

    j->results.settings = mem_strdup(cfg->settings);
    if (!j->results.settings)
        return ST_NOMEM;
    for (i = 0; i < cfg->n_task; i++)
        TRY(add_task(j, &cfg->tasks[i]));
    return ST_OK;
}

// Take over what the folder holds.
static enum status resume(struct journal *j, const struct journal_config *cfg)
{
    struct results there = {0};
    enum status st;
    int64_t k;
    int i;

    TRY(results_read(&there, j->dir));
    st = begin(j, cfg);
    if (st == ST_OK)
        st = results_check_same(&there, j->dir, &j->results);
    if (st != ST_OK) {
        results_fini(&there);
        return st;
    }
    forget_errors(&there);
    free_marks(j);
    results_fini(&j->results);
    j->results = there;
    j->has = mem_alloc((size_t)there.n_task + 1, sizeof j->has[0]);
    if (!j->has)
        return ST_NOMEM;
    for (i = 0; i < there.n_task; i++) {
        j->has[i] = mem_alloc((size_t)there.tasks[i].episodes, 1);
        if (!j->has[i])
            return ST_NOMEM;
    }
    for (k = 0; k < there.n; k++)
        j->has[there.rows[k].task][there.rows[k].r.episode] = 1;
    j->n_found = there.n;
    return ST_OK;
}

static enum status open_files(struct journal *j, const struct journal_config *cfg)
{
    bool there;

    snprintf(j->rows_path, sizeof j->rows_path, "%s/results.jsonl", j->dir);
    snprintf(j->inputs_path, sizeof j->inputs_path, "%s/inputs.jsonl", j->dir);
    TRY(results_lock(j->dir, &j->lock_fd));
    there = file_exists(j->rows_path);
    if (there && !cfg->resume)
        return FAIL(ST_INVAL,
                    "folder '%s' holds an evaluation: --resume goes on with it, another --out "
                    "leaves it alone",
                    j->dir);
    TRY(there ? resume(j, cfg) : begin(j, cfg));
    j->made = !there;
    // results.jsonl comes last, so a folder that has it has all four
    TRY(results_write(&j->results, j->dir));
    TRY(open_append(&j->inputs_fd, j->inputs_path));
    return open_append(&j->rows_fd, j->rows_path);
}

enum status journal_open(struct journal **out, const struct journal_config *cfg)
{
    struct journal *j = mem_alloc(1, sizeof *j);
    enum status st;

    if (!j)
        return ST_NOMEM;
    j->lock_fd = j->rows_fd = j->inputs_fd = -1;
    j->seed = cfg->seed;
    pthread_mutex_init(&j->mtx, NULL);
    if ((size_t)snprintf(j->dir, sizeof j->dir, "%s", cfg->dir) >= sizeof j->dir)
        st = FAIL(ST_INVAL, "folder name '%.60s...' is too long", cfg->dir);
    else
        st = open_files(j, cfg);
    if (st != ST_OK) {
        journal_close(j);
        return st;
    }
    *out = j;
    return ST_OK;
}

// An evaluation that was refused or failed before its first result leaves nothing in the way of the
// next try.
static void clear_folder(const struct journal *j)
{
    static const char *const names[] = {"results.jsonl", "inputs.jsonl", "tasks.jsonl",
                                        "settings.json"};
    char path[PATH_MAX];
    int i;

    for (i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", j->dir, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(j->dir); // unless something else is in it
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    if (j->rows_fd >= 0)
        close(j->rows_fd);
    if (j->inputs_fd >= 0)
        close(j->inputs_fd);
    if (j->made && j->results.n == 0)
        clear_folder(j);
    if (j->lock_fd >= 0)
        close(j->lock_fd);
    free_marks(j);
    results_fini(&j->results);
    pthread_mutex_destroy(&j->mtx);
    mem_free(j);
}

int64_t journal_found(const struct journal *j)
{
    return j->n_found;
}

// ------------------------------------------------------------------ lines

static enum status append(int fd, const char *path, struct text *line)
{
    enum status st = text_get(line) ? file_append(fd, path, text_get(line), line->len) : ST_NOMEM;

    text_fini(line);
    return st;
}

// results_write makes new files: go on in those.
static enum status rewrite(struct journal *j)
{
    TRY(results_write(&j->results, j->dir));
    close(j->rows_fd);
    close(j->inputs_fd);
    j->rows_fd = j->inputs_fd = -1;
    TRY(open_append(&j->inputs_fd, j->inputs_path));
    return open_append(&j->rows_fd, j->rows_path);
}

static enum status begin_task(struct journal *j, const struct result_task *task, int *index)
{
    int i = results_find_task(&j->results, task->name);
    struct result_task *mine;
    struct text line;

    if (i < 0) { // the tasks were not known at the start
        i = j->results.n_task;
        TRY(add_task(j, task));
        TRY(rewrite(j));
    }
    mine = &j->results.tasks[i];
    *index = i;
    if (mine->input.engine[0] && results_same_input(&mine->input, &task->input))
        return ST_OK;
    if (mine->input.engine[0])
        return FAIL(ST_INVAL,
                    "%s: engine, limits, files or plan of --randomize of %s are not those of the "
                    "results so far",
                    j->inputs_path, task->name);
    mine->input = task->input;
    text_init(&line);
    results_put_input(mine, &line);
    return append(j->inputs_fd, j->inputs_path, &line);
}

enum status journal_begin(struct journal *j, const struct result_task *task, int *index)
{
    enum status st;

    pthread_mutex_lock(&j->mtx);
    st = begin_task(j, task, index);
    pthread_mutex_unlock(&j->mtx);
    return st;
}

bool journal_has(struct journal *j, int task, int64_t episode)
{
    bool has;

    pthread_mutex_lock(&j->mtx);
    has = j->has[task][episode];
    pthread_mutex_unlock(&j->mtx);
    return has;
}

int64_t journal_count(struct journal *j, int task, int64_t first, int64_t last, int64_t *successes)
{
    int64_t k, n = 0;

    *successes = 0;
    pthread_mutex_lock(&j->mtx);
    for (k = 0; k < j->results.n; k++) {
        const struct result *row = &j->results.rows[k];

        if (row->task != task || row->r.episode < first || row->r.episode >= last)
            continue;
        n++;
        *successes += row->r.outcome == OUTCOME_SUCCESS;
    }
    pthread_mutex_unlock(&j->mtx);
    return n;
}

enum status journal_drop(struct journal *j, int task)
{
    struct results *r = &j->results;
    enum status st;
    int64_t k, n = 0;

    pthread_mutex_lock(&j->mtx);
    for (k = 0; k < r->n; k++)
        if (r->rows[k].task != task)
            r->rows[n++] = r->rows[k];
    j->n_found -= r->n - n;
    r->n = n;
    memset(j->has[task], 0, (size_t)r->tasks[task].episodes);
    st = rewrite(j);
    pthread_mutex_unlock(&j->mtx);
    return st;
}

static enum status add_row(struct journal *j, const struct result *row)
{
    int64_t now = clock_now_ns();
    struct text line;

    text_init(&line);
    results_put_row(&j->results, row, &line);
    TRY(append(j->rows_fd, j->rows_path, &line));
    if (now - j->synced_ns > SYNC_NS) {
        if (fdatasync(j->rows_fd) != 0 && errno != EINVAL && errno != EROFS)
            return FAIL_SYS(ST_IO, errno, "cannot write '%s'", j->rows_path);
        j->synced_ns = now;
    }
    TRY(results_add(&j->results, row));
    j->has[row->task][row->r.episode] = 1;
    return ST_OK;
}

enum status journal_add(struct journal *j, int task, const struct episode_result *result)
{
    struct result row = {.task = task, .seed = j->seed, .r = *result};
    enum status st;

    pthread_mutex_lock(&j->mtx);
    st = add_row(j, &row);
    pthread_mutex_unlock(&j->mtx);
    return st;
}

enum status journal_summarise(struct journal *j, int task, int64_t wanted,
                              struct evaluator_summary *out)
{
    enum status st;

    pthread_mutex_lock(&j->mtx);
    st = results_summarise(&j->results, results_keep_task, &task, wanted, out);
    pthread_mutex_unlock(&j->mtx);
    return st;
}

enum status journal_finish(struct journal *j, struct results **results)
{
    enum status st;

    pthread_mutex_lock(&j->mtx);
    st = results_sort(&j->results);
    if (st == ST_OK)
        st = rewrite(j);
    pthread_mutex_unlock(&j->mtx);
    *results = &j->results;
    return st;
}
