// Workers that are processes: killed, stopped, hanging and crashing ones are replaced, their
// episodes end by an error, the other envs do not notice, and the numbers are those of threads.
#include "tests/testing.h"

#include "common/base/log.h"
#include "common/base/rng.h"
#include "envserver/pool_priv.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_ENV   8
#define ROW_MAX 8192

// What the engine does for an action, made before the workers so that they have it too.
#define HANGS   0.77f
#define CRASHES 0.66f

static void control(const mjModel *m, mjData *d)
{
    (void)m;
    if (d->ctrl[0] == (double)CRASHES)
        abort();
    while (d->ctrl[0] == (double)HANGS)
        pause();
}

struct rig {
    struct pool *pool;
    struct port *port;
    uint8_t rows[N_ENV][ROW_MAX];
    uint64_t hash[N_ENV]; // of all rows of an env
    int count[N_ENV], errors[N_ENV];
    uint32_t error[N_ENV]; // the latest
    float first[N_ENV];    // first number of the next action, 0 = the usual one
};

static void rig_init(struct rig *r, const struct pool_config *pc, const struct port_config *port)
{
    int i;

    memset(r, 0, sizeof *r);
    for (i = 0; i < N_ENV; i++)
        r->hash[i] = 14695981039346656037u;
    assert_ok(pool_create(&r->pool, pc));
    assert_ok(port_open(&r->port, r->pool, port));
    assert_true(port_layout(r->port)->stride <= ROW_MAX);
}

static void rig_fini(struct rig *r)
{
    port_close(r->port);
    pool_destroy(r->pool);
    msg_drain();
}

static void take_row(struct rig *r, const uint8_t *row, size_t stride)
{
    const struct row_head *head = (const struct row_head *)row;
    uint32_t env = head->env;
    size_t k;

    assert_true(env < N_ENV);
    memcpy(r->rows[env], row, stride);
    for (k = 0; k < stride; k++)
        r->hash[env] = (r->hash[env] ^ row[k]) * 1099511628211u;
    r->count[env]++;
    if (head->flags & ROW_ERROR) {
        assert_int_equal(head->flags & (ROW_TERMINATED | ROW_TRUNCATED | ROW_SUCCESS), 0);
        r->errors[env]++;
        r->error[env] = head->error;
    }
}

static void send(struct rig *r, const uint32_t *ids, int n)
{
    int n_act = pool_spec(r->pool)->n_act, i, k;
    size_t stride = step_stride(1, n_act);
    uint8_t buf[N_ENV * 256] = {0};

    for (i = 0; i < n; i++) {
        struct step_row *row = (struct step_row *)(buf + (size_t)i * stride);
        float *action = (float *)(row + 1);

        row->env = ids[i];
        row->n_sub = 1;
        for (k = 0; k < n_act; k++)
            action[k] = 0.5f * sinf((float)(ids[i] * 7 + (uint32_t)(r->count[ids[i]] * 3 + k)));
        if (r->first[ids[i]] != 0)
            action[0] = r->first[ids[i]];
        r->first[ids[i]] = 0;
    }
    assert_ok(port_step(r->port, buf, n));
}

// The envs of the next batch; 0 if nothing is in flight.
static int receive(struct rig *r, uint32_t *ids)
{
    const struct batch_head *head;
    const uint8_t *rows;
    enum status st;
    struct msg *m;
    uint32_t i;

    st = port_recv(r->port, &m, ENOUGH);
    if (st == ST_AGAIN)
        return 0;
    assert_ok(st);
    assert_ok(batch_read(m, port_layout(r->port), &head, &rows));
    for (i = 0; i < head->n; i++) {
        take_row(r, rows + (size_t)i * head->stride, head->stride);
        ids[i] = ((const struct row_head *)(rows + (size_t)i * head->stride))->env;
    }
    msg_free(m);
    return (int)i;
}

static void drain(struct rig *r)
{
    uint32_t ids[N_ENV];

    while (receive(r, ids) > 0)
        ;
}

static void reset_all(struct rig *r)
{
    struct reset_row rows[N_ENV];
    int i;

    for (i = 0; i < N_ENV; i++)
        rows[i] = (struct reset_row){.env = (uint32_t)i, .seed = 1, .stream = (uint64_t)i};
    assert_ok(port_reset(r->port, rows, N_ENV));
    drain(r);
}

// Every env makes `n` more requests, as fast as it likes.
static void run(struct rig *r, int n)
{
    int target[N_ENV], i, k, m;
    uint32_t ids[N_ENV];

    for (i = 0; i < N_ENV; i++) {
        target[i] = r->count[i] + n;
        ids[i] = (uint32_t)i;
    }
    send(r, ids, N_ENV);
    while ((m = receive(r, ids)) > 0) {
        for (i = k = 0; i < m; i++)
            if (r->count[ids[i]] < target[ids[i]])
                ids[k++] = ids[i];
        if (k > 0)
            send(r, ids, k);
    }
}

static const struct pool_config processes = {.task = "Hopper-v5",
                                             .kwargs = "",
                                             .n_env = N_ENV,
                                             .n_thread = 2,
                                             .isolate = POOL_ISOLATE_PROCESS,
                                             .step_timeout_ns = ENOUGH};

static const struct port_config small = {
    .autoreset = AUTORESET_SAME_STEP, .k_max = 1, .b_max = 3, .t_max_ns = NS_PER_MS / 10};

static void processes_give_the_numbers_of_threads(void **state)
{
    static const char *const tasks[] = {"Hopper-v5", "Ant-v5", "Pusher-v5"};
    struct pool_config pc = processes;
    struct rig r, q;
    size_t i;
    int env;

    (void)state;
    for (i = 0; i < 2 * sizeof tasks / sizeof tasks[0]; i++) {
        pc.task = tasks[i / 2];
        pc.worlds = i % 2 ? POOL_WORLDS_OWN : POOL_WORLDS_AUTO;
        pc.isolate = POOL_ISOLATE_PROCESS;
        pc.step_timeout_ns = ENOUGH;
        rig_init(&r, &pc, &small);
        pc.isolate = POOL_ISOLATE_THREAD;
        pc.step_timeout_ns = 0;
        rig_init(&q, &pc, &small);
        reset_all(&r);
        reset_all(&q);
        run(&r, 150);
        run(&q, 150);
        for (env = 0; env < N_ENV; env++)
            assert_true(r.hash[env] == q.hash[env]);
        rig_fini(&q);
        rig_fini(&r);
    }
}

static int wait_for_restart(struct rig *r, int64_t restarts)
{
    int64_t until = clock_now_ns() + ENOUGH;
    struct pool_stats s;

    do {
        pool_stats_get(r->pool, &s);
        clock_sleep_ns(NS_PER_MS);
    } while (s.restarts < restarts && clock_now_ns() < until);
    return (int)s.restarts;
}

static void a_killed_worker_is_replaced(void **state)
{
    struct rig r;
    int i, env, errors = 0;

    (void)state;
    rig_init(&r, &processes, &small);
    reset_all(&r);
    for (i = 0; i < 12; i++) {
        int pid = pool_worker_pid(r.pool, i % 2);

        assert_true(pid > 0);
        assert_int_equal(kill(pid, SIGKILL), 0);
        run(&r, 40);
        assert_true(wait_for_restart(&r, i + 1) >= i + 1);
    }
    for (env = 0; env < N_ENV; env++) {
        assert_int_equal(r.count[env], 1 + 12 * 40); // every request was answered once
        errors += r.errors[env];
        if (r.errors[env])
            assert_int_equal(r.error[env], ROW_ERROR_CRASH);
    }
    assert_true(errors <= 12);
    rig_fini(&r);
}

// Envs 1 and 5 come to grief; the others see the numbers that they see without. False: another env
// took longer than the time allowed as well, since the machine is slow.
static bool try_mishap(enum pool_worlds worlds, enum autoreset mode, float action,
                       enum row_error want, int64_t step_timeout_ns)
{
    struct pool_config pc = processes;
    struct port_config port = small;
    struct rig r, q;
    int env, lost = 0;
    bool fine;

    port.autoreset = mode;
    pc.worlds = worlds;
    rig_init(&q, &pc, &port);
    pc.step_timeout_ns = step_timeout_ns;
    rig_init(&r, &pc, &port);
    reset_all(&r);
    reset_all(&q);
    run(&r, 20);
    run(&q, 20);
    r.first[1] = r.first[5] = action;
    run(&r, 60);
    run(&q, 60);
    for (env = 0; env < N_ENV; env++) {
        assert_int_equal(r.count[env], q.count[env]);
        assert_int_equal(q.errors[env], 0);
        assert_true((r.errors[env] > 0) == (r.hash[env] != q.hash[env]));
        lost += r.errors[env];
        if (r.errors[env])
            assert_int_equal(r.error[env], want);
    }
    assert_true(r.errors[1] >= 1 && r.errors[5] >= 1);
    fine = r.errors[1] == 1 && r.errors[5] == 1 && (worlds == POOL_WORLDS_OWN || lost == 2);
    rig_fini(&r);
    rig_fini(&q);
    return fine;
}

static void check_mishap(enum pool_worlds worlds, enum autoreset mode, float action,
                         enum row_error want)
{
    int64_t timeout_ns = want == ROW_ERROR_TIMEOUT ? 300 * NS_PER_MS : ENOUGH;

    while (!try_mishap(worlds, mode, action, want, timeout_ns)) {
        timeout_ns *= 4;
        assert_true(timeout_ns < 60 * NS_PER_S);
    }
}

static void a_crash_in_the_engine_costs_one_episode(void **state)
{
    (void)state;
    check_mishap(POOL_WORLDS_AUTO, AUTORESET_SAME_STEP, CRASHES, ROW_ERROR_CRASH);
    check_mishap(POOL_WORLDS_AUTO, AUTORESET_NEXT_STEP, CRASHES, ROW_ERROR_CRASH);
}

static void a_step_that_hangs_costs_one_episode(void **state)
{
    (void)state;
    check_mishap(POOL_WORLDS_AUTO, AUTORESET_SAME_STEP, HANGS, ROW_ERROR_TIMEOUT);
    check_mishap(POOL_WORLDS_AUTO, AUTORESET_NEXT_STEP, HANGS, ROW_ERROR_TIMEOUT);
}

// Worlds that live in the process go down with it.
static void worlds_of_a_dead_worker_are_made_anew(void **state)
{
    (void)state;
    check_mishap(POOL_WORLDS_OWN, AUTORESET_NEXT_STEP, CRASHES, ROW_ERROR_CRASH);
    check_mishap(POOL_WORLDS_OWN, AUTORESET_SAME_STEP, HANGS, ROW_ERROR_TIMEOUT);
}

static void a_stopped_worker_is_replaced(void **state)
{
    struct pool_config pc = processes;
    struct pool_stats stats;
    struct rig r;
    int env, errors = 0;

    (void)state;
    pc.step_timeout_ns = 300 * NS_PER_MS;
    rig_init(&r, &pc, &small);
    reset_all(&r);
    assert_int_equal(kill(pool_worker_pid(r.pool, 0), SIGSTOP), 0);
    run(&r, 50);
    assert_true(wait_for_restart(&r, 1) >= 1);
    run(&r, 50);
    for (env = 0; env < N_ENV; env++) {
        assert_int_equal(r.count[env], 101);
        errors += r.errors[env];
        if (r.errors[env])
            assert_int_equal(r.error[env], ROW_ERROR_TIMEOUT);
    }
    pool_stats_get(r.pool, &stats);
    assert_true(errors <= stats.restarts); // one, unless the machine is very slow
    rig_fini(&r);
}

struct killer {
    struct pool *pool;
    atomic_bool stop;
    atomic_int kills;
};

static void *kill_some(void *arg)
{
    struct killer *k = arg;
    struct rng rng = rng_make(3, RNG_TEST, 0, 0, 0);

    while (!atomic_load(&k->stop)) {
        int pid;

        clock_sleep_ns(rng_below(&rng, 6 * NS_PER_MS));
        pid = pool_worker_pid(k->pool, (int)rng_below(&rng, 6));
        k->kills += pid > 0 && kill(pid, SIGKILL) == 0;
    }
    return NULL;
}

// Whichever instruction workers die at, every request is answered once.
static void kills_at_any_moment_lose_no_request(void **state)
{
    struct pool_config pc = processes;
    int64_t until = clock_now_ns() + 3 * NS_PER_S;
    struct killer killer = {0};
    int env, errors = 0, rounds = 0;
    pthread_t thread;
    struct rig r;

    (void)state;
    pc.task = "InvertedPendulum-v5";
    pc.n_thread = 6;
    log_set_level(LOG_ERROR);
    rig_init(&r, &pc, &small);
    reset_all(&r);
    killer.pool = r.pool;
    assert_ok(thread_start(&thread, "killer", kill_some, &killer));
    for (; clock_now_ns() < until || killer.kills <= 10; rounds++)
        run(&r, 100);
    atomic_store(&killer.stop, true);
    pthread_join(thread, NULL);
    for (env = 0; env < N_ENV; env++) {
        assert_int_equal(r.count[env], 1 + rounds * 100);
        errors += r.errors[env];
    }
    assert_true(errors <= killer.kills);
    print_message("%d kills, %d episodes of %d requests ended by an error\n", killer.kills, errors,
                  N_ENV * rounds * 100);
    rig_fini(&r);
    log_set_level(LOG_INFO);
}

static int children(void)
{
    char path[64], text[256] = "";
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    f = fopen(path, "r");
    if (!f)
        return 0;
    if (!fgets(text, sizeof text, f))
        text[0] = '\0';
    fclose(f);
    return text[0] != '\0';
}

static int open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

// No process, no file, no mapping is left, also if nobody received what was in flight.
static void nothing_is_left_behind(void **state)
{
    struct rig r;
    uint32_t ids[N_ENV] = {0, 1, 2, 3, 4, 5, 6, 7};
    int i, files = open_files(), pid[2];

    (void)state;
    for (i = 0; i < 5; i++) {
        rig_init(&r, &processes, &small);
        reset_all(&r);
        pid[0] = pool_worker_pid(r.pool, 0);
        pid[1] = pool_worker_pid(r.pool, 1);
        send(&r, ids, N_ENV);
        rig_fini(&r);
        assert_int_equal(open_files(), files);
        assert_int_equal(children(), 0);
        assert_true(kill(pid[0], 0) != 0 && kill(pid[1], 0) != 0);
    }
}

// A server that dies takes its workers along.
static void workers_end_with_their_server(void **state)
{
    int fds[2], pid[2] = {0, 0};
    pid_t server;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    server = fork();
    if (server == 0) {
        struct pool *pool = NULL;

        if (pool_create(&pool, &processes) != ST_OK)
            _exit(1);
        pid[0] = pool_worker_pid(pool, 0);
        pid[1] = pool_worker_pid(pool, 1);
        if (write(fds[1], pid, sizeof pid) != (ssize_t)sizeof pid)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(fds[0], pid, sizeof pid), sizeof pid);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(kill(pid[0], 0), 0);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    while (kill(pid[0], 0) == 0 || kill(pid[1], 0) == 0)
        clock_sleep_ns(NS_PER_MS);
}

static void a_dead_warden_is_an_error_not_a_hang(void **state)
{
    struct rig r;
    uint32_t ids[N_ENV] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct msg *m;
    enum status st;

    (void)state;
    rig_init(&r, &processes, &small);
    reset_all(&r);
    r.first[0] = r.first[1] = r.first[2] = r.first[3] = HANGS;
    send(&r, ids, N_ENV);
    kill(r.pool->warden, SIGKILL);
    while ((st = port_recv(r.port, &m, ENOUGH)) == ST_OK)
        msg_free(m);
    assert_int_equal(st, ST_IO);
    rig_fini(&r);
}

static void a_timeout_of_a_thread_is_refused(void **state)
{
    struct pool_config pc = processes;
    struct pool *pool = NULL;

    (void)state;
    pc.isolate = POOL_ISOLATE_THREAD;
    assert_fails(pool_create(&pool, &pc), ST_INVAL, "needs isolate = process");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(processes_give_the_numbers_of_threads),
        leak_test(a_killed_worker_is_replaced),
        leak_test(a_crash_in_the_engine_costs_one_episode),
        leak_test(a_step_that_hangs_costs_one_episode),
        leak_test(worlds_of_a_dead_worker_are_made_anew),
        leak_test(a_stopped_worker_is_replaced),
        leak_test(kills_at_any_moment_lose_no_request),
        leak_test(nothing_is_left_behind),
        leak_test(workers_end_with_their_server),
        leak_test(a_dead_warden_is_an_error_not_a_hang),
        leak_test(a_timeout_of_a_thread_is_refused),
    };

    mjcb_control = control;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
