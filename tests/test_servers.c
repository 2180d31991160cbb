// Two counting env servers as one, of which the second dies and comes back.
#include "capi/servers.h"

#include "tests/fake_env.h"

#include <string.h>

struct rig {
    struct fake_env env[2];
    struct servers *servers;
};

// Servers of 2 envs each; `die_after` requests of the second one.
static struct rig *rig_new(int die_after, bool stays_away)
{
    static const char *const urls[] = {"inproc://test-servers-a", "inproc://test-servers-b"};
    struct rig *r = mem_alloc(1, sizeof *r);
    struct intake_config cfg = {.env_urls = "inproc://test-servers-a,inproc://test-servers-b",
                                .connect_wait_ns = ENOUGH,
                                .hello = {.autoreset = AUTORESET_SAME_STEP, .k_max = 1}};
    int i;

    assert_non_null(r);
    for (i = 0; i < 2; i++) {
        r->env[i] = (struct fake_env){.url = urls[i], .n_env = 2, .length = 100};
        r->env[i].die_after = i == 1 ? die_after : 0;
        r->env[i].stays_away = stays_away;
        fake_env_start(&r->env[i]);
    }
    assert_ok(servers_open(&r->servers, &cfg));
    assert_int_equal(servers_spec(r->servers)->n_env, 4);
    return r;
}

static void rig_free(struct rig *r)
{
    servers_close(r->servers);
    fake_env_stop(&r->env[0]);
    fake_env_stop(&r->env[1]);
    mem_free(r);
    msg_drain();
}

static void reset(struct rig *r, uint32_t first, int n)
{
    struct reset_row rows[4];
    int i;

    for (i = 0; i < n; i++)
        rows[i] = (struct reset_row){.env = first + (uint32_t)i, .seed = 7};
    assert_ok(servers_reset(r->servers, rows, n));
}

static void step(struct rig *r, uint32_t first, int n)
{
    struct {
        struct step_row row;
        float action;
    } rows[4];
    int i;

    assert_int_equal(step_stride(1, 1), sizeof rows[0]);
    memset(rows, 0, sizeof rows);
    for (i = 0; i < n; i++)
        rows[i].row = (struct step_row){.env = first + (uint32_t)i, .n_sub = 1};
    assert_ok(servers_step(r->servers, (const uint8_t *)rows, n));
}

// Receive until each of n envs has answered once; their rows by env.
static void collect(struct rig *r, int n, struct row_head *heads, bool give_up)
{
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;
    uint32_t i;

    for (; n > 0; n -= (int)head->n, msg_free(m)) {
        while (give_up && servers_recv(r->servers, &m, &head, &rows, 20 * NS_PER_MS) == ST_TIMEOUT)
            servers_give_up(r->servers);
        if (!give_up)
            assert_ok(servers_recv(r->servers, &m, &head, &rows, ENOUGH));
        for (i = 0; i < head->n; i++) {
            const struct row_head *h = (const void *)(rows + (size_t)i * head->stride);

            assert_true(h->env < 4);
            heads[h->env] = *h;
        }
    }
    assert_int_equal(n, 0);
}

static void gather(struct rig *r, int n, struct row_head *heads)
{
    collect(r, n, heads, false);
}

static void check_error(const struct row_head *h, uint64_t episode)
{
    assert_int_equal(h->flags, ROW_ERROR);
    assert_int_equal(h->error, ROW_ERROR_SERVER);
    assert_int_equal(h->seed, 7);
    assert_int_equal(h->episode, episode);
}

static void all_servers_are_numbered_through(void **state)
{
    struct rig *r = rig_new(0, false);
    struct row_head heads[4];
    int i, t;

    (void)state;
    reset(r, 0, 4);
    for (t = 0; t < 5; t++) {
        gather(r, 4, heads);
        for (i = 0; i < 4; i++)
            assert_true(heads[i].elapsed == (uint32_t)t && heads[i].episode == 0);
        step(r, 0, 4);
    }
    gather(r, 4, heads);
    rig_free(r);
}

static void a_lost_server_answers_once_with_errors_and_then_when_it_is_back(void **state)
{
    struct rig *r = rig_new(2, false); // the reset and one step
    struct row_head heads[4];

    (void)state;
    reset(r, 0, 4);
    gather(r, 4, heads);
    step(r, 0, 4);
    gather(r, 4, heads);
    assert_true(heads[3].elapsed == 1 && heads[3].flags == 0);
    // the connection is cut: whether that is known by now or not, the steps are not lost
    step(r, 0, 4);
    gather(r, 4, heads);
    assert_true(heads[0].elapsed == 2 && heads[1].elapsed == 2);
    if (heads[2].flags & ROW_ERROR) { // it was known after the step was sent
        check_error(&heads[2], 0);
        check_error(&heads[3], 0);
        step(r, 2, 2);
        gather(r, 2, heads);
    }
    // the next episode has begun, without an action
    assert_true(heads[2].flags == ROW_FIRST && heads[3].flags == ROW_FIRST);
    assert_true(heads[2].episode == 1 && heads[3].episode == 1 && heads[3].seed == 7);
    step(r, 0, 4);
    gather(r, 4, heads);
    assert_true(heads[2].elapsed == 1 && heads[0].elapsed == 3);
    rig_free(r);
}

static void what_is_held_can_be_given_up(void **state)
{
    struct rig *r = rig_new(1, true); // the reset
    struct row_head heads[4] = {{0}};
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;

    (void)state;
    reset(r, 0, 4);
    gather(r, 4, heads);
    step(r, 2, 2);
    collect(r, 2, heads, true); // now the loss is known
    assert_true((heads[2].flags & heads[3].flags) == ROW_ERROR);
    step(r, 2, 2);
    assert_int_equal(servers_recv(r->servers, &m, &head, &rows, 0), ST_AGAIN); // held
    servers_give_up(r->servers);
    gather(r, 2, heads);
    check_error(&heads[2], 1);
    check_error(&heads[3], 1);
    reset(r, 2, 2); // held as well
    atomic_store(&r->env[1].away, false);
    gather(r, 2, heads);
    assert_true(heads[2].flags == ROW_FIRST && heads[3].flags == ROW_FIRST);
    assert_true(heads[2].episode == 0 && heads[3].episode == 0); // as asked for
    rig_free(r);
}

static void servers_that_differ_are_refused(void **state)
{
    struct fake_env env[2] = {{.url = "inproc://test-servers-a", .n_env = 2, .length = 9},
                              {.url = "inproc://test-servers-b", .n_env = 2, .length = 9}};
    struct intake_config cfg = {.env_urls = "inproc://test-servers-a,inproc://test-servers-b",
                                .connect_wait_ns = ENOUGH,
                                .hello = {.k_max = 1}};
    struct servers *s;

    (void)state;
    env[1].task = "Other";
    fake_env_start(&env[0]);
    fake_env_start(&env[1]);
    assert_fails(servers_open(&s, &cfg), ST_INVAL, "different tasks");
    fake_env_stop(&env[0]);
    fake_env_stop(&env[1]);
    msg_drain();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(all_servers_are_numbered_through),
        leak_test(a_lost_server_answers_once_with_errors_and_then_when_it_is_back),
        leak_test(what_is_held_can_be_given_up),
        leak_test(servers_that_differ_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
