#define _GNU_SOURCE
#include "common/base/thread.h"

#include "common/base/mem.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t clock_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

double clock_wall_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static struct timespec to_timespec(int64_t ns)
{
    struct timespec ts = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

    return ts;
}

void clock_sleep_ns(int64_t ns)
{
    struct timespec until;

    if (ns <= 0)
        return;
    until = to_timespec(deadline_after(ns));
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        ;
}

void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

bool cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mtx, int64_t deadline_ns)
{
    struct timespec ts;

    if (deadline_ns == WAIT_NEVER)
        return pthread_cond_wait(cond, mtx) == 0;
    ts = to_timespec(deadline_ns > 0 ? deadline_ns : 0);
    return pthread_cond_timedwait(cond, mtx, &ts) == 0;
}

int64_t deadline_after(int64_t wait_ns)
{
    int64_t now = clock_now_ns();

    return wait_ns > INT64_MAX - now ? WAIT_NEVER : now + wait_ns;
}

enum status thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    rc = pthread_create(out, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return FAIL_SYS(ST_IO, rc, "cannot start thread '%s'", name);
    pthread_setname_np(*out, name);
    return ST_OK;
}

// CPUs that a cgroup v2 quota allows, 0 if there is none.
static int cgroup_cpus(void)
{
    long long quota, period;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    int n;

    if (!f)
        return 0;
    n = fscanf(f, "%lld %lld", &quota, &period);
    fclose(f);
    if (n != 2 || quota <= 0 || period <= 0)
        return 0;
    return (int)((quota + period - 1) / period);
}

int thread_cpus(void)
{
    cpu_set_t set;
    int n = 1, quota = cgroup_cpus();

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    return quota > 0 && quota < n ? quota : n;
}

struct seat {
    struct team *team;
    pthread_t thread;
    int i;
    bool started;
};

struct team {
    int n;
    pthread_mutex_t mtx;
    pthread_cond_t go, done;
    uint64_t round; // guarded by mtx
    int running;    // guarded by mtx
    bool stop;      // guarded by mtx
    team_fn fn;     // guarded by mtx, constant while running > 0
    void *arg;
    struct seat seats[]; // (n), the first is the caller's and has no thread
};

static void *seat_run(void *arg)
{
    struct seat *seat = arg;
    struct team *team = seat->team;
    uint64_t seen = 0;

    pthread_mutex_lock(&team->mtx);
    for (;;) {
        while (team->round == seen && !team->stop)
            pthread_cond_wait(&team->go, &team->mtx);
        if (team->stop)
            break;
        seen = team->round;
        pthread_mutex_unlock(&team->mtx);
        team->fn(team->arg, seat->i, team->n);
        pthread_mutex_lock(&team->mtx);
        if (--team->running == 0)
            pthread_cond_signal(&team->done);
    }
    pthread_mutex_unlock(&team->mtx);
    return NULL;
}

enum status team_create(struct team **out, int n)
{
    struct team *team;
    enum status st;
    int i;

    if (n < 1 || n > 1024)
        return FAIL(ST_INVAL, "a team of %d threads is outside 1..1024", n);
    team = mem_alloc(1, sizeof *team + (size_t)n * sizeof team->seats[0]);
    if (!team)
        return ST_NOMEM;
    team->n = n;
    pthread_mutex_init(&team->mtx, NULL);
    cond_init(&team->go);
    cond_init(&team->done);
    for (i = 1; i < n; i++) {
        team->seats[i].team = team;
        team->seats[i].i = i;
        st = thread_start(&team->seats[i].thread, "team", seat_run, &team->seats[i]);
        if (st != ST_OK) {
            team_destroy(team);
            return st;
        }
        team->seats[i].started = true;
    }
    *out = team;
    return ST_OK;
}

void team_run(struct team *team, team_fn fn, void *arg)
{
    pthread_mutex_lock(&team->mtx);
    team->fn = fn;
    team->arg = arg;
    team->running = team->n - 1;
    team->round++;
    pthread_cond_broadcast(&team->go);
    pthread_mutex_unlock(&team->mtx);
    fn(arg, 0, team->n);
    pthread_mutex_lock(&team->mtx);
    while (team->running > 0)
        pthread_cond_wait(&team->done, &team->mtx);
    pthread_mutex_unlock(&team->mtx);
}

int team_size(const struct team *team)
{
    return team->n;
}

void team_destroy(struct team *team)
{
    int i;

    if (!team)
        return;
    pthread_mutex_lock(&team->mtx);
    team->stop = true;
    pthread_cond_broadcast(&team->go);
    pthread_mutex_unlock(&team->mtx);
    for (i = 1; i < team->n; i++)
        if (team->seats[i].started)
            pthread_join(team->seats[i].thread, NULL);
    pthread_cond_destroy(&team->go);
    pthread_cond_destroy(&team->done);
    pthread_mutex_destroy(&team->mtx);
    mem_free(team);
}
