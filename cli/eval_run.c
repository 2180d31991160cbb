#include "cli/eval_run.h"

#include "cli/cmd.h"
#include "cli/embedded.h"
#include "cli/eval_film.h"
#include "cli/indices.h"
#include "cli/limits.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/progress.h"
#include "common/base/sha256.h"
#include "common/base/usage.h"
#include "common/wire/hosts.h"
#include "evaluation/html.h"
#include "evaluation/stats.h"
#include "evaluation/summary.h"
#include "scenes/libero/libero.h"
#include "scenes/scene.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_NS     (50 * NS_PER_MS)
#define MIB         (1024.0 * 1024.0)
#define MEMORY_PART 0.8 // of what is free, by default
#define GROWTH      1.25

struct part { // one task
    char task[SPEC_NAME_MAX];
    char instruction[SPEC_TEXT_MAX];
    struct evaluator_config cfg;
    struct evaluator_progress progress;
    struct evaluator_summary summary;
    int64_t found, found_successes; // results from before
    struct error err;
    bool failed;
    atomic_bool ended;
};

struct run {
    const struct eval_run_config *cfg;
    const atomic_bool *stop;
    struct journal *journal;
    atomic_bool halt; // a task failed: start no more
    struct part *parts;
    int n_part, n_printed;
    int64_t wanted; // episodes, of this shard
    double memory_mib;
    pthread_mutex_t mtx; // guards the next five
    pthread_cond_t changed;
    int next, n_open;
    struct part *first;        // that was opened
    double base_mib, task_mib; // in use before the first task; most that one took, 0 = not known
};

// ------------------------------------------------------------------ which tasks

static enum status new_part(struct run *r, struct part **out)
{
    struct part *parts = mem_resize(r->parts, (size_t)r->n_part + 1, sizeof parts[0]);

    if (!parts)
        return ST_NOMEM;
    r->parts = parts;
    *out = &parts[r->n_part];
    (*out)->cfg = r->cfg->base;
    return ST_OK;
}

static enum status add_member(struct run *r, const struct scene_task *task, long index)
{
    struct part *p;
    int i;

    if (index < 0 || index >= task->n_member)
        return FAIL(ST_INVAL, "--tasks: %s has tasks 0 to %d, not %ld", task->name,
                    task->n_member - 1, index);
    TRY(new_part(r, &p));
    snprintf(p->task, sizeof p->task, "%s/%ld", task->name, index);
    snprintf(p->instruction, sizeof p->instruction, "%s", task->members[index].instruction);
    for (i = 0; i < r->n_part; i++)
        if (strcmp(r->parts[i].task, p->task) == 0)
            return FAIL(ST_INVAL, "'%s' names a task twice",
                        *r->cfg->tasks ? r->cfg->tasks : r->cfg->suites);
    if (snprintf(p->cfg.out, sizeof p->cfg.out, "%s/%s_%ld", r->cfg->base.out, task->name, index) >=
        (int)sizeof p->cfg.out)
        return FAIL(ST_INVAL, "--out: the folder name '%.60s...' is too long", r->cfg->base.out);
    r->n_part++;
    return ST_OK;
}

struct choice {
    struct run *run;
    const struct scene_task *suite;
};

static enum status choose_one(void *arg, long index)
{
    const struct choice *c = arg;

    return add_member(c->run, c->suite, index);
}

static enum status choose(struct run *r, const struct scene_task *task)
{
    struct choice c = {.run = r, .suite = task};

    if (*r->cfg->tasks)
        return indices_each(r->cfg->tasks, "--tasks", choose_one, &c);
    for (long i = 0; i < task->n_member; i++)
        TRY(add_member(r, task, i));
    return ST_OK;
}

static enum status add_suites(struct run *r)
{
    const char *p = r->cfg->suites;

    for (;;) {
        const struct scene_task *task;
        char name[SPEC_NAME_MAX];
        size_t n = strcspn(p, ",");

        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), p);
        if (scene_suite_find(&task, name) != ST_OK)
            return error_prefix("--suite");
        TRY(choose(r, task));
        if (!p[n])
            return ST_OK;
        p += n + 1;
    }
}

// Server k is of task k mod n, so that one list with ranges names several for each task.
static enum status share_servers(struct run *r)
{
    struct hosts *hosts = mem_alloc(1, sizeof *hosts);
    enum status st = hosts ? hosts_expand(hosts, r->cfg->base.env) : ST_NOMEM;
    int i;

    for (i = 0; i < r->n_part && st == ST_OK; i++)
        r->parts[i].cfg.env[0] = '\0';
    if (st == ST_OK && hosts->n % r->n_part != 0)
        st = FAIL(ST_INVAL, "--env has %d addresses for %d tasks, expected one or more for each",
                  hosts->n, r->n_part);
    for (i = 0; st == ST_OK && i < hosts->n; i++) {
        struct part *p = &r->parts[i % r->n_part];
        size_t n = strlen(p->cfg.env);

        if ((size_t)snprintf(p->cfg.env + n, sizeof p->cfg.env - n, "%s%s", n ? "," : "",
                             hosts->url[i]) >= sizeof p->cfg.env - n)
            st = FAIL(ST_INVAL, "--env: the addresses of %s are too long", p->task);
    }
    mem_free(hosts);
    return st;
}

static enum status add_task(struct run *r)
{
    int member;
    const struct scene_task *task = scene_task_find(r->cfg->task, &member);
    struct part *p;

    TRY(new_part(r, &p));
    snprintf(p->task, sizeof p->task, "%s", r->cfg->task);
    if (task && task->members)
        snprintf(p->instruction, sizeof p->instruction, "%s", task->members[member].instruction);
    else if (task && task->instruction)
        snprintf(p->instruction, sizeof p->instruction, "%s", task->instruction);
    r->n_part++;
    return ST_OK;
}

// This shard's items.
static void share_out(struct run *r)
{
    int64_t n = r->cfg->base.episodes, total = n * r->n_part;
    int64_t begin = total * r->cfg->shard / r->cfg->n_shard;
    int64_t end = total * (r->cfg->shard + 1) / r->cfg->n_shard;
    int i;

    r->wanted = end - begin;
    for (i = 0; i < r->n_part; i++) {
        struct part *p = &r->parts[i];

        p->cfg.first = begin - i * n < 0 ? 0 : begin - i * n;
        p->cfg.last = end - i * n > n ? n : end - i * n;
        if (p->cfg.last <= p->cfg.first)
            p->cfg.first = p->cfg.last = 0;
    }
}

// ------------------------------------------------------------------ the folder

static enum status open_journal(struct run *r)
{
    struct journal_config cfg = {.dir = r->cfg->base.out,
                                 .settings = r->cfg->settings,
                                 .seed = r->cfg->base.seed,
                                 .resume = r->cfg->resume};
    struct result_task *tasks = mem_alloc((size_t)r->n_part, sizeof tasks[0]);
    enum status st;
    int i;

    if (!tasks)
        return ST_NOMEM;
    for (i = 0; i < r->n_part; i++) {
        struct part *p = &r->parts[i];

        memcpy(tasks[i].name, p->task, sizeof tasks[i].name);
        memcpy(tasks[i].instruction, p->instruction, sizeof tasks[i].instruction);
        tasks[i].episodes = p->cfg.episodes;
        cfg.n_task += p->task[0] != '\0'; // otherwise the servers tell
    }
    cfg.tasks = tasks;
    st = journal_open(&r->journal, &cfg);
    mem_free(tasks);
    return st;
}

// A recording is of a whole task or of nothing: what is not complete is played again.
static enum status check_recording(struct run *r, int i)
{
    struct part *p = &r->parts[i];
    char path[PATH_MAX];
    int64_t e;
    bool whole;

    snprintf(path, sizeof path, "%s/demos.hdf5", p->cfg.out);
    whole = file_exists(path);
    for (e = p->cfg.first; e < p->cfg.last; e++)
        whole = whole && journal_has(r->journal, i, e);
    return whole ? ST_OK : journal_drop(r->journal, i);
}

static enum status take_stock(struct run *r)
{
    int i;

    for (i = 0; i < r->n_part && journal_found(r->journal) > 0; i++) {
        struct part *p = &r->parts[i];

        if (r->cfg->record && p->cfg.last > 0)
            TRY(check_recording(r, i));
        TRY(journal_summarise(r->journal, i, p->cfg.last - p->cfg.first, &p->summary));
        p->found = journal_count(r->journal, i, p->cfg.first, p->cfg.last, &p->found_successes);
    }
    return ST_OK;
}

// ------------------------------------------------------------------ one task

static int share(int total, int parts)
{
    return total > parts ? total / parts : 1;
}

static enum status hash_files(const struct scene *scene, struct result_input *in)
{
    const struct libero_params *params = scene->params;
    const struct libero *l = scene->data;

    if (scene->driver != &libero_driver)
        return ST_OK;
    TRY(sha256_file(l->bddl_path, in->bddl_sha256));
    return params->init_states == START_FILE ? sha256_file(l->init_path, in->init_sha256) : ST_OK;
}

// With the env server inside: recording and films need its scene.
static enum status play_inside(struct run *r, struct part *p, const struct pool *pool)
{
    const struct scene *scene = pool_scene(pool);
    const struct eval_run_config *cfg = r->cfg;
    struct eval_record record = {0};
    struct camera_man *man = NULL;
    char dir[PATH_MAX], name[SPEC_NAME_MAX + 16];
    struct error err;
    enum status st = ST_OK;

    film_path(name, sizeof name, p->task, -1);
    if ((size_t)snprintf(dir, sizeof dir, "%s/%s", cfg->base.out, name) >= sizeof dir)
        return FAIL(ST_INVAL, "--out: the folder name '%.60s...' is too long", cfg->base.out);
    if (cfg->record) {
        TRY(file_make_dir(p->cfg.out));
        st = eval_record_init(&record, scene, pool_spec(pool), cfg->record_align,
                              cfg->record_failures);
        p->cfg.record = &record.about;
    }
    if (st == ST_OK && cfg->films)
        st = eval_film_begin(&man, &p->cfg.film,
                             &(struct eval_film_config){.scene = scene,
                                                        .dir = dir,
                                                        .camera = cfg->film_camera,
                                                        .backend = cfg->film_backend,
                                                        .which = cfg->films,
                                                        .episodes = p->cfg.episodes,
                                                        .seed = (uint64_t)p->cfg.seed});
    if (st == ST_OK)
        st = hash_files(scene, &p->cfg.about.input);
    if (st == ST_OK)
        st = evaluator_run(&p->cfg, cfg->weights, &r->halt, &p->progress, &p->summary);
    err = *error_last();
    eval_film_end(man, p->cfg.film);
    eval_record_fini(&record);
    p->cfg.film = NULL;
    p->cfg.record = NULL;
    return st == ST_OK ? ST_OK : error_adopt(&err);
}

static enum status play(struct run *r, struct part *p)
{
    const struct eval_run_config *cfg = r->cfg;
    int n_env = share(cfg->n_env, cfg->n_model);
    struct embedded inside = {0};
    enum status st;

    p->cfg.task = p->task;
    p->cfg.journal = r->journal;
    memcpy(p->cfg.about.instruction, p->instruction, sizeof p->instruction);
    if (p->cfg.env[0])
        return evaluator_run(&p->cfg, cfg->weights, &r->halt, &p->progress, &p->summary);
    if (n_env > p->cfg.last - p->cfg.first - p->found)
        n_env = (int)(p->cfg.last - p->cfg.first - p->found);
    st = embedded_serve(&inside,
                        &(struct pool_config){.task = p->task,
                                              .kwargs = cfg->kwargs,
                                              .randomize = cfg->randomize,
                                              .n_env = n_env,
                                              .n_thread = share(cfg->n_thread, cfg->n_model)},
                        (n_env + 1) / 2, 2 * NS_PER_MS, p->cfg.env, sizeof p->cfg.env);
    p->cfg.own_plan = true;             // it is in the settings
    p->cfg.answer_wait_ns = WAIT_NEVER; // it cannot be lost, however slow; the watchdog sees to it
    if (st == ST_OK)
        st = play_inside(r, p, inside.pool);
    if (st != ST_OK)
        p->err = *error_last();
    (void)embedded_finish(&inside); // it has no rollout worker that could fail
    return st;
}

// ------------------------------------------------------------------ how many at a time

// What a task takes is measured while the first one plays; the others wait for that.
static void measure(struct run *r)
{
    const struct part *first = r->first;
    double used = usage_resident_bytes() / MIB - r->base_mib;

    if (!first || (r->task_mib == 0 && atomic_load(&first->progress.done) == 0 &&
                   !atomic_load(&first->ended)))
        return;
    if (r->n_open > 0 && isfinite(used))
        r->task_mib = fmax(fmax(r->task_mib, 1), GROWTH * used / r->n_open);
}

static bool fits(struct run *r)
{
    if (r->cfg->base.env[0])
        return true; // the tasks are in other processes
    measure(r);
    return r->n_open == 0 ||
           (r->task_mib > 0 && usage_resident_bytes() / MIB + r->task_mib < r->memory_mib);
}

// The next task that has something to play, once there is memory for it; NULL = none.
static struct part *take_part(struct run *r)
{
    struct part *p = NULL;

    pthread_mutex_lock(&r->mtx);
    while (!p && r->next < r->n_part && !atomic_load(&r->halt)) {
        struct part *q = &r->parts[r->next];

        if (q->cfg.last - q->cfg.first == q->found) {
            atomic_store(&q->ended, true);
            r->next++;
        } else if (!fits(r)) {
            (void)cond_wait_until(&r->changed, &r->mtx, deadline_after(TICK_NS));
        } else {
            p = q;
            r->first = r->first ? r->first : q;
            r->next++;
            r->n_open++;
        }
    }
    pthread_mutex_unlock(&r->mtx);
    return p;
}

static void *worker(void *arg)
{
    struct run *r = arg;
    struct part *p;

    while ((p = take_part(r))) {
        atomic_store(&p->progress.mean_return, NAN);
        p->failed = play(r, p) != ST_OK;
        if (p->failed) {
            p->err = *error_last();
            atomic_store(&r->halt, true);
        }
        atomic_store(&p->ended, true);
        pthread_mutex_lock(&r->mtx);
        measure(r);
        r->n_open--;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->mtx);
    }
    return NULL;
}

// ------------------------------------------------------------------ progress

static void print_part(const struct part *p)
{
    const struct evaluator_summary *s = &p->summary;

    if (p->failed || s->episodes + s->errors == 0)
        return;
    printf("%-18s %5.1f %%  %lld of %lld%s  %.1f steps  %s\n", p->task, 100 * s->success_rate,
           (long long)s->successes, (long long)s->episodes, s->errors ? " (errors)" : "",
           s->length_mean, p->instruction);
    fflush(stdout);
}

struct totals {
    long long now, done, errors, successes, steps; // now: of this run
    double return_mean;
};

static struct totals add_up(const struct run *r)
{
    struct totals t = {.return_mean = NAN};
    int i;

    for (i = 0; i < r->n_part; i++) {
        const struct part *p = &r->parts[i];
        long long done = atomic_load(&p->progress.done), errors = atomic_load(&p->progress.errors);

        t.now += done + errors;
        t.done += p->found + done;
        t.errors += errors;
        t.successes += p->found_successes + atomic_load(&p->progress.successes);
        t.steps += atomic_load(&p->progress.env_steps);
    }
    if (r->n_part == 1)
        t.return_mean = atomic_load(&r->parts[0].progress.mean_return);
    return t;
}

static void draw(struct run *r, const struct totals *t, double seconds, bool quiet)
{
    long long done = t->done + t->errors;
    struct stats_rate rate;
    char left[16], so_far[64];

    while (r->n_printed < r->n_part && atomic_load(&r->parts[r->n_printed].ended)) {
        if (!quiet && r->cfg->suites[0]) {
            progress_end();
            print_part(&r->parts[r->n_printed]);
        }
        r->n_printed++;
    }
    stats_wilson(&rate, (int)t->successes, (int)t->done);
    if (t->successes > 0 || r->cfg->suites[0])
        snprintf(so_far, sizeof so_far, "success %.1f %% (%.1f to %.1f)", 100 * rate.rate,
                 100 * rate.low, 100 * rate.high);
    else
        snprintf(so_far, sizeof so_far, "return %.1f", t->return_mean);
    progress_draw(false, "%3.0f%%  episodes %lld of %lld  %s  errors %lld  %.0f steps/s  left %s",
                  100 * (double)done / (double)r->wanted, done, (long long)r->wanted, so_far,
                  t->errors, (double)t->steps / fmax(seconds, 1e-3),
                  t->now > 0
                      ? progress_time(left, seconds * (double)(r->wanted - done) / (double)t->now)
                      : "?");
}

// ------------------------------------------------------------------ the run

static bool all_ended(const struct run *r)
{
    int i;

    for (i = 0; i < r->n_part; i++)
        if (!atomic_load(&r->parts[i].ended))
            return false;
    return true;
}

// All that is done is in the folder; nothing of this process can be trusted to end any more.
_Noreturn static void bite(const struct run *r, int64_t still_ns)
{
    progress_end();
    fprintf(stderr,
            "simstream: nothing has gone on for %.0f s (--watchdog), %s keeps what is done: "
            "--resume goes on\n",
            (double)still_ns * 1e-9, r->cfg->base.out);
    _exit(EXIT_WATCHDOG);
}

static void attend(struct run *r, int64_t begin_ns, bool quiet)
{
    int64_t moved_ns = begin_ns, now;
    long long before = -1;

    while (!all_ended(r) && !atomic_load(&r->halt)) {
        struct totals t = add_up(r);

        now = clock_now_ns();
        draw(r, &t, (double)(now - begin_ns) * 1e-9, quiet);
        if (before != t.steps + t.now) {
            before = t.steps + t.now;
            moved_ns = now;
        }
        if (r->cfg->watchdog_ns > 0 && now - moved_ns > r->cfg->watchdog_ns)
            bite(r, now - moved_ns);
        if (r->stop && atomic_load(r->stop))
            atomic_store(&r->halt, true);
        clock_sleep_ns(r->n_part > 1 ? TICK_NS : TICK_NS / 5);
    }
}

static enum status run_workers(struct run *r, bool quiet)
{
    int n = r->cfg->n_model < r->n_part ? r->cfg->n_model : r->n_part, started = 0, i;
    pthread_t *threads = mem_alloc((size_t)n, sizeof threads[0]);
    int64_t begin_ns = clock_now_ns();
    enum status st = threads ? ST_OK : ST_NOMEM;
    struct totals t;

    for (; started < n && st == ST_OK; started++) {
        st = thread_start(&threads[started], "task", worker, r);
        if (st != ST_OK)
            break;
    }
    if (st != ST_OK)
        atomic_store(&r->halt, true);
    else
        attend(r, begin_ns, quiet);
    for (i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    t = add_up(r);
    draw(r, &t, (double)(clock_now_ns() - begin_ns) * 1e-9, quiet);
    progress_end();
    mem_free(threads);
    return st;
}

static void put_machine(const struct run *r, struct json *j)
{
    struct limits limits;

    limits_measure(&limits);
    json_init(j);
    json_open(j, NULL, '{');
    json_int(j, "cpus", limits.cpus);
    json_real(j, "memory_mib", round(limits.memory_mib));
    json_real(j, "max_memory_mib", round(r->memory_mib));
    json_int(j, "envs", r->cfg->n_env);
    json_int(j, "models", r->cfg->n_model);
    json_int(j, "threads", r->cfg->n_thread);
    json_int(j, "shard", r->cfg->shard);
    json_int(j, "shards", r->cfg->n_shard);
    if (r->cfg->films)
        json_str(j, "films_drawn_by", opt_choice_name(EVAL_FILM_BACKENDS, r->cfg->film_backend));
    json_close(j, '}');
}

static enum status write_reports(struct run *r, double wall_s, struct evaluator_summary *out)
{
    struct summary_about about = {.dir = r->cfg->base.out,
                                  .options = r->cfg->options,
                                  .wall_s = wall_s,
                                  .wanted = r->wanted,
                                  .fail_below = r->cfg->fail_below};
    struct results *results;
    enum status st;
    struct json j;
    int i;

    for (i = 0; i < r->n_part; i++) {
        about.retries += atomic_load(&r->parts[i].progress.retries);
        about.returned += atomic_load(&r->parts[i].progress.returned);
    }
    TRY(journal_finish(r->journal, &results));
    put_machine(r, &j);
    about.machine = json_text(&j);
    st = summary_write(results, &about, out);
    if (st == ST_OK)
        st = html_write(results, &about);
    json_fini(&j);
    return st;
}

static enum status conclude(struct run *r, double wall_s, struct evaluator_summary *out)
{
    enum status st = write_reports(r, wall_s, out);
    int i;

    for (i = 0; i < r->n_part; i++)
        if (r->parts[i].failed)
            return error_adopt(&r->parts[i].err);
    return st;
}

static enum status prepare(struct run *r)
{
    TRY(r->cfg->suites[0] ? add_suites(r) : add_task(r));
    if (r->cfg->suites[0] && r->cfg->base.env[0])
        TRY(share_servers(r));
    share_out(r);
    if (r->wanted == 0)
        return FAIL(ST_INVAL, "--shard: shard %d of %d has no episode", r->cfg->shard,
                    r->cfg->n_shard);
    TRY(open_journal(r));
    return take_stock(r);
}

static void budget(struct run *r)
{
    struct limits limits;

    limits_measure(&limits);
    r->base_mib = usage_resident_bytes() / MIB;
    r->memory_mib = r->cfg->memory_mib;
    if (r->memory_mib == 0)
        r->memory_mib = r->base_mib + MEMORY_PART * limits.free_mib;
}

enum status eval_run(const struct eval_run_config *cfg, const atomic_bool *stop, bool quiet,
                     struct evaluator_summary *out)
{
    struct run r = {.cfg = cfg, .stop = stop};
    int64_t begin_ns = clock_now_ns();
    enum status st;

    pthread_mutex_init(&r.mtx, NULL);
    cond_init(&r.changed);
    budget(&r);
    st = prepare(&r);
    if (st == ST_OK)
        st = run_workers(&r, quiet);
    if (st == ST_OK)
        st = conclude(&r, (double)(clock_now_ns() - begin_ns) * 1e-9, out);
    journal_close(r.journal);
    mem_free(r.parts);
    pthread_cond_destroy(&r.changed);
    pthread_mutex_destroy(&r.mtx);
    return st;
}
