// Workers that are processes, and the warden who watches them.
//
//   server --fork--> warden --fork--> worker 0, worker 1, ...
//
// The warden is made by pool_create, has one thread, holds no file of the server's but its end of a
// pipe, and makes a new worker within milliseconds when one has died: the model is shared memory
// already. It ends when the server closes the pipe or dies. A new worker first answers for the one
// before it: the request that it was at ends the episode by an error.
#define _GNU_SOURCE
#include "envserver/pool_priv.h"

#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_LIMIT_NS (120 * NS_PER_S) // for a worker to make its worlds
#define STOP_LIMIT_NS  (3 * NS_PER_S)   // for workers to end by themselves
#define STILL_LIMIT_NS (10 * NS_PER_S)  // a stopped worker, if requests have no limit
#define RETRY_NS       (200 * NS_PER_MS)
#define TICK_NS        (50 * NS_PER_MS)

// ------------------------------------------------------------------ a worker

// Answer for the worker that was here before.
static void recover(struct pool *pool, int w, struct desk *desk)
{
    enum row_error cause = pool->workers[w].cause;
    unsigned owner;
    int i;

    for (i = 0; i < pool->n_env; i++) {
        struct slot *slot = &pool->slots[i];
        enum workq_state state = workq_look(&pool->cells[i], &owner);

        if (state == WORKQ_CLAIMED && owner == (unsigned)w) {
            bool restart = !slot->retried;

            slot->retried = true; // in case this kills us too
            env_abort(&slot->env, desk, cause, slot->view->autoreset, restart);
            pool_answer(pool, w, slot, desk);
        } else if (state == WORKQ_FINISHED && owner == (unsigned)w) {
            port_announce(slot, true);
        }
    }
}

// The worlds of the envs that this worker steps; those of the worker before are gone.
static enum status make_worlds(struct pool *pool, int w)
{
    enum row_error cause = pool->workers[w].cause;
    int i;

    for (i = 0; i < pool->n_env; i++) {
        struct slot *slot = &pool->slots[i];

        if (slot->lane != w)
            continue;
        TRY(env_make_world(&slot->env));
        if (cause != ROW_ERROR_NONE)
            slot->env.lost = cause; // of an open episode
    }
    return ST_OK;
}

_Noreturn static void be_worker(struct pool *pool, int w, pid_t warden)
{
    struct desk desk;
    char name[16];
    sigset_t none;
    enum status st;

    snprintf(name, sizeof name, "sim-worker-%d", w);
    prctl(PR_SET_NAME, name);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != warden)
        _exit(0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    st = placement_pin(&pool->placement, w);
    if (st == ST_OK)
        st = desk_init(&desk, pool->scene, pool->by_rows, pool->pictures);
    if (st == ST_OK && pool->fixed)
        st = make_worlds(pool, w);
    if (st != ST_OK) {
        log_error("worker", "worker %d cannot start: %s", w, error_last()->text);
        _exit(3);
    }
    atomic_store(&pool->workers[w].ready, true);
    recover(pool, w, &desk);
    pool_work(pool, w, &desk);
    _exit(0);
}

// ------------------------------------------------------------------ the warden

static void spawn(struct pool *pool, int i)
{
    struct worker *w = &pool->workers[i];
    pid_t warden = getpid(), pid;

    w->begun_ns = clock_now_ns();
    w->stopped = false;
    w->retry_ns = w->seen_ns = w->busy_ns = w->still_ns = w->start_ns = 0;
    atomic_store(&w->ready, false);
    atomic_store(&w->asleep, 0);
    atomic_store(&w->since_ns, w->begun_ns);
    pid = fork();
    if (pid == 0)
        be_worker(pool, i, warden);
    if (pid < 0) {
        log_error("warden", "cannot start worker %d: %s", i, strerror(errno));
        w->retry_ns = w->begun_ns + RETRY_NS;
        return;
    }
    atomic_store(&w->pid, pid);
    atomic_fetch_add(&w->starts, 1);
}

static struct worker *worker_of(struct pool *pool, pid_t pid)
{
    int i;

    for (i = 0; i < pool->n_worker; i++)
        if (atomic_load(&pool->workers[i].pid) == pid)
            return &pool->workers[i];
    return NULL;
}

// Why it ended, unless the warden ended it and knows.
static void explain(struct worker *w, int status)
{
    if (w->cause_text[0])
        return;
    w->cause = ROW_ERROR_CRASH;
    if (WIFSIGNALED(status))
        snprintf(w->cause_text, sizeof w->cause_text, "signal %d, %s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(w->cause_text, sizeof w->cause_text, "it left with code %d", WEXITSTATUS(status));
}

static void replace(struct pool *pool, struct worker *w)
{
    int i = (int)(w - pool->workers);
    int64_t now = clock_now_ns();

    log_warn("warden", "worker %d (process %d) has ended after %lld steps: %s; another takes over",
             i, atomic_load(&w->pid), (long long)atomic_load(&w->steps), w->cause_text);
    w->cause_text[0] = '\0';
    atomic_store(&w->pid, 0);
    if (now - w->begun_ns < RETRY_NS && atomic_load(&w->starts) > 3)
        w->retry_ns = now + RETRY_NS; // it dies at once, so do not burn a processor on it
    else
        spawn(pool, i);
}

// Children that ended, stopped or went on. With `last` nobody is replaced; how many are left.
static int reap(struct pool *pool, bool last)
{
    int status, n = 0, i;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        struct worker *w = worker_of(pool, pid);

        if (!w)
            continue;
        if (WIFSTOPPED(status)) {
            w->stopped = true;
        } else if (WIFCONTINUED(status)) {
            w->stopped = false;
            w->still_ns = 0;
        } else if (last) {
            atomic_store(&w->pid, 0);
        } else {
            explain(w, status);
            replace(pool, w);
        }
    }
    for (i = 0; i < pool->n_worker; i++)
        n += atomic_load(&pool->workers[i].pid) != 0;
    return n;
}

static void end(struct worker *w, const char *why)
{
    w->cause = ROW_ERROR_TIMEOUT;
    snprintf(w->cause_text, sizeof w->cause_text, "%s", why);
    (void)kill(atomic_load(&w->pid), SIGKILL);
}

// Add the time since the last look to what the worker does.
static void age(struct worker *w, int64_t passed_ns)
{
    int64_t since = atomic_load(&w->since_ns);

    w->busy_ns = since > 0 && since == w->seen_ns ? w->busy_ns + passed_ns : 0;
    w->seen_ns = since;
    if (w->stopped)
        w->still_ns += passed_ns;
    if (!atomic_load(&w->ready))
        w->start_ns += passed_ns;
}

// Who takes too long, who is due for another try, who was not woken? passed_ns: since the last
// look.
static void watch(struct pool *pool, int64_t passed_ns)
{
    int64_t now = clock_now_ns(), limit = pool->cfg.step_timeout_ns, still;
    bool waiting = false;
    int i;

    still = limit > 0 ? limit : STILL_LIMIT_NS;
    for (i = 0; i < pool->n_worker; i++) {
        struct worker *w = &pool->workers[i];
        bool ready = atomic_load(&w->ready);

        age(w, passed_ns);
        if (atomic_load(&w->pid) == 0) {
            if (w->retry_ns > 0 && now >= w->retry_ns)
                spawn(pool, i);
        } else if (w->cause_text[0]) {
            continue; // it is ending
        } else if (w->still_ns > still) {
            end(w, "it was stopped");
        } else if (ready && limit > 0 && w->busy_ns > limit) {
            end(w, w->stopped ? "it was stopped" : "a request took too long");
        } else if (!ready && w->start_ns > START_LIMIT_NS) {
            end(w, "its start took too long");
        }
    }
    for (i = 0; i < pool->n_lane && !waiting; i++)
        waiting = workq_any(&pool->lanes[i]);
    if (waiting) // a wake-up may have gone to a worker that died or stopped
        pool_rouse(pool);
}

// The server has closed the pipe.
static void finish(struct pool *pool)
{
    int64_t until = clock_now_ns() + STOP_LIMIT_NS;
    int i;

    atomic_store(&pool->shared->stop, true);
    while (reap(pool, true) > 0) {
        pool_rouse(pool);
        if (clock_now_ns() > until)
            for (i = 0; i < pool->n_worker; i++)
                if (atomic_load(&pool->workers[i].pid) > 0)
                    (void)kill(atomic_load(&pool->workers[i].pid), SIGKILL);
        clock_sleep_ns(NS_PER_MS);
    }
}

// 'R' once all workers are ready, 'F' if one cannot start.
static char starting(struct pool *pool)
{
    int i, n = 0;

    for (i = 0; i < pool->n_worker; i++) {
        n += atomic_load(&pool->workers[i].ready);
        if (atomic_load(&pool->workers[i].starts) != 1)
            return 'F';
    }
    return n == pool->n_worker ? 'R' : '\0';
}

static void close_between(int first, int last)
{
    if (first <= last)
        (void)close_range((unsigned)first, (unsigned)last, 0);
}

// Keep nothing of the server's but the two pipes; end by the first of them alone.
static int settle_in(int hold_fd, int say_fd)
{
    static const int quiet[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM};
    int low = hold_fd < say_fd ? hold_fd : say_fd, high = hold_fd < say_fd ? say_fd : hold_fd;
    sigset_t child;
    size_t i;

    prctl(PR_SET_NAME, "sim-warden");
    for (i = 0; i < sizeof quiet / sizeof quiet[0]; i++)
        signal(quiet[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    close_between(3, low - 1);
    close_between(low + 1, high - 1);
    close_between(high + 1, INT_MAX);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &child, NULL);
    return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

// hold_fd: at its end when the server is; say_fd: takes one letter.
_Noreturn static void be_warden(struct pool *pool, int hold_fd, int say_fd)
{
    struct pollfd fds[2] = {{.fd = hold_fd, .events = POLLIN}, {.events = POLLIN}};
    struct signalfd_siginfo info;
    int64_t tick = TICK_NS, looked = clock_now_ns();
    char said = '\0';
    int i;

    fds[1].fd = settle_in(hold_fd, say_fd);
    if (pool->cfg.step_timeout_ns > 0 && pool->cfg.step_timeout_ns / 8 < tick)
        tick = pool->cfg.step_timeout_ns / 8;
    for (i = 0; i < pool->n_worker; i++)
        spawn(pool, i);
    for (;;) {
        int64_t wait = said ? tick : NS_PER_MS, passed;

        if (poll(fds, 2, (int)(wait / NS_PER_MS) + 1) < 0 && errno != EINTR)
            break;
        if (fds[0].revents)
            break;
        while (read(fds[1].fd, &info, sizeof info) == (ssize_t)sizeof info)
            ;
        (void)reap(pool, false);
        passed = clock_now_ns() - looked;
        looked += passed;
        // a look that comes late counts as one in time: the machine stood still, not a worker
        watch(pool, passed < 2 * wait ? passed : 2 * wait);
        if (!said && (said = starting(pool)) && write(say_fd, &said, 1) != 1)
            break;
    }
    finish(pool);
    _exit(0);
}

// ------------------------------------------------------------------ the server's side

static enum status make_warden(struct pool *pool, const int hold[2], const int say[2])
{
    pid_t pid;

    fflush(NULL);
    log_before_fork();
    pid = fork();
    log_after_fork(pid == 0);
    if (pid == 0)
        be_warden(pool, hold[0], say[1]);
    if (pid < 0)
        return FAIL_SYS(ST_IO, errno, "cannot start the worker processes");
    pool->warden = pid;
    pool->warden_fd = hold[1];
    return ST_OK;
}

enum status isolate_start(struct pool *pool)
{
    int hold[2], say[2];
    char said = '\0';
    enum status st;

    if (pipe2(hold, O_CLOEXEC) != 0)
        return FAIL_SYS(ST_IO, errno, "cannot make a pipe to the worker processes");
    if (pipe2(say, O_CLOEXEC) != 0) {
        close(hold[0]);
        close(hold[1]);
        return FAIL_SYS(ST_IO, errno, "cannot make a pipe to the worker processes");
    }
    st = make_warden(pool, hold, say);
    close(hold[0]);
    close(say[1]);
    if (st != ST_OK)
        close(hold[1]);
    while (st == ST_OK && read(say[0], &said, 1) < 0 && errno == EINTR)
        ;
    close(say[0]);
    if (st == ST_OK && said != 'R')
        st = FAIL(ST_IO, "the worker processes could not start; the log says why");
    return st;
}

enum status isolate_check(struct pool *pool)
{
    siginfo_t info = {0};

    // WNOWAIT leaves it for isolate_stop; ECHILD: somebody else has collected it
    if (waitid(P_PID, (id_t)pool->warden, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == 0)
        return ST_OK;
    return FAIL(ST_IO, "the process that watches the workers has died");
}

void isolate_stop(struct pool *pool)
{
    int64_t until = clock_now_ns() + 2 * STOP_LIMIT_NS;
    pid_t got;

    if (pool->warden <= 0)
        return;
    close(pool->warden_fd);
    while ((got = waitpid(pool->warden, NULL, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (clock_now_ns() > until)
            (void)kill(pool->warden, SIGKILL);
        clock_sleep_ns(NS_PER_MS);
    }
}
