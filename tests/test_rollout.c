// A rollout worker between an env server that counts and a learner that the test plays.
#include "rollout/rollout.h"

#include "common/wire/trainproto.h"
#include "nn/policy.h"
#include "tests/fake_env.h"

#include <string.h>

#define LEARNER "inproc://test-rollout-learner"
#define HORIZON 4

struct rig {
    struct fake_env env[2];
    struct listener *listener;
    struct link *link;
    struct rollout_config cfg;
    struct rollout_progress progress;
    atomic_bool stop;
    pthread_t thread;
    enum status st;
    struct error err;
    struct weights *weights;
};

static void *worker(void *arg)
{
    struct rig *r = arg;

    r->st = rollout_run(&r->cfg, &r->stop, &r->progress);
    r->err = *error_last();
    return NULL;
}

static struct msg *recv_type(struct rig *r, uint16_t type)
{
    struct msg *m = NULL;

    assert_ok(link_recv(r->link, &m, ENOUGH));
    assert_int_equal(m->type, type);
    return m;
}

static void send_weights(struct rig *r, uint64_t version, uint64_t admit, bool want_state)
{
    uint8_t *blob = mem_alloc(1, weights_blob_bytes(r->weights));
    struct weights_head h = {.version = version,
                             .admit = admit,
                             .blob_bytes = (uint32_t)weights_blob_bytes(r->weights),
                             .want_state = want_state};
    struct msg *m;

    r->weights->version = version;
    weights_blob_write(r->weights, blob);
    assert_ok(weights_write(&m, &h, blob));
    assert_ok(link_send(r->link, m));
    mem_free(blob);
}

static const struct join join_of_one = {.n_obs = FAKE_OBS, .n_act = 1};

// Servers of 2 envs each; the worker runs and has joined.
static void rig_init(struct rig *r, int n_server, uint32_t length)
{
    static const char *const urls[] = {"inproc://test-rollout-a", "inproc://test-rollout-b"};
    struct model_shape shape;
    struct join j;
    struct msg *m;
    int i;

    for (i = 0; i < n_server; i++) {
        r->env[i].url = urls[i];
        r->env[i].n_env = 2;
        r->env[i].length = length;
        fake_env_start(&r->env[i]);
    }
    assert_ok(listener_open(&r->listener, LEARNER, 1 << 20));
    snprintf(r->cfg.env, sizeof r->cfg.env, "%s%s%s", urls[0], n_server > 1 ? "," : "",
             n_server > 1 ? urls[1] : "");
    snprintf(r->cfg.learner, sizeof r->cfg.learner, LEARNER);
    r->cfg.horizon = HORIZON;
    r->cfg.seed = 7;
    r->cfg.env_offset = 10;
    r->cfg.connect_wait_ns = ENOUGH;
    assert_ok(model_shape_parse(&shape, FAKE_OBS, 1, "4"));
    assert_ok(weights_create(&r->weights, &shape));
    assert_ok(model_init(&shape, 1, 0, r->weights->params));
    assert_ok(thread_start(&r->thread, "worker", worker, r));
    assert_ok(listener_accept(r->listener, &r->link, ENOUGH));
    m = recv_type(r, MSG_JOIN);
    assert_ok(join_read(m, &j));
    assert_string_equal(j.task, "Counter");
    assert_int_equal(j.n_env, 2 * n_server);
    assert_int_equal(j.env_first, 10);
    msg_free(m);
}

static void rig_join(struct rig *r)
{
    pthread_join(r->thread, NULL);
    link_close(r->link);
    link_destroy(r->link);
    listener_close(r->listener);
    listener_destroy(r->listener);
}

static void rig_fini(struct rig *r)
{
    int i;

    for (i = 0; i < 2; i++)
        if (r->env[i].url)
            fake_env_stop(&r->env[i]);
    weights_drop(r->weights);
    mem_free(r);
    msg_drain();
}

static struct rig *rig_new(void)
{
    return mem_alloc(1, sizeof(struct rig));
}

static void bye(struct rig *r)
{
    struct msg *m;

    assert_ok(msg_new(&m, MSG_BYE, 0));
    assert_ok(link_send(r->link, m));
}

// Chunk `index` of an env whose episodes last 3 steps: what must be in it.
static void check_chunk(struct rig *r, const struct chunk *c, struct policy *p, uint64_t version)
{
    uint32_t i, n_truncated = 0;
    float action, logp;

    assert_int_equal(c->head.n_step, HORIZON);
    for (i = 0; i < HORIZON; i++) {
        uint64_t step = c->head.index * HORIZON + i;
        const double obs[FAKE_OBS] = {(double)(step % 3), (double)(step / 3), c->head.env};
        struct policy_row row = {obs, 7, c->head.env, step / 3, step % 3, NULL, NULL};

        assert_true(c->obs[i * FAKE_OBS] == obs[0] && c->obs[i * FAKE_OBS + 1] == obs[1] &&
                    c->obs[i * FAKE_OBS + 2] == obs[2]);
        assert_ok(policy_act(p, r->weights, &row, 1, false, &action, &logp));
        assert_true(c->action[i] == action && c->logp[i] == logp); // not clipped
        assert_true(c->reward[i] == (float)(step % 3 + 1));
        assert_int_equal(c->version[i], version);
        assert_int_equal(c->flags[i], step % 3 == 2 ? CHUNK_TRUNCATED : 0);
        if (step % 3 == 2)
            assert_true(c->final_obs[FAKE_OBS * n_truncated++] == 3);
    }
    for (i = 0; i < c->head.n_episode; i++)
        assert_true(c->episode_return[i] == 6 && c->episode_length[i] == 3);
}

static void chunks_hold_the_counting_envs_and_no_more_than_is_admitted(void **state)
{
    struct rig *r = rig_new();
    uint32_t seen[2] = {0, 0};
    struct policy *p;
    struct chunk c;
    struct msg *m;
    int i;

    (void)state;
    rig_init(r, 1, 3);
    assert_ok(policy_create(&p, &r->weights->shape, 1));
    send_weights(r, 0, 2 * HORIZON, false);
    for (i = 0; i < 4; i++) {
        m = recv_type(r, MSG_CHUNK);
        assert_ok(chunk_read(m, &join_of_one, 0, &c));
        assert_int_equal(c.head.index, seen[c.head.env - 10]++);
        check_chunk(r, &c, p, 0);
        msg_free(m);
    }
    assert_int_equal(atomic_load(&r->progress.env_steps), 4 * HORIZON);
    // the answer to want_state comes before anything of the new version
    send_weights(r, 1, 3 * HORIZON, true);
    msg_free(recv_type(r, MSG_STATE));
    for (i = 0; i < 2; i++) {
        m = recv_type(r, MSG_CHUNK);
        assert_ok(chunk_read(m, &join_of_one, 0, &c));
        assert_int_equal(c.head.version_min, 1);
        msg_free(m);
    }
    bye(r);
    rig_join(r);
    assert_int_equal(r->st, ST_OK);
    policy_destroy(p);
    for (i = 0; i < r->env[0].n_log; i++)
        assert_true(fabsf(r->env[0].log[i].action) <= 0.5f); // clipped as sent
    rig_fini(r);
}

static void a_state_is_replayed_to_the_same_place(void **state)
{
    struct rig *a = rig_new(), *b = rig_new();
    struct msg *m;
    int i;

    (void)state;
    rig_init(a, 1, 100);
    send_weights(a, 0, HORIZON, false);
    for (i = 0; i < 2; i++)
        msg_free(recv_type(a, MSG_CHUNK));
    send_weights(a, 1, 2 * HORIZON, true);
    m = recv_type(a, MSG_STATE);
    for (i = 0; i < 2; i++)
        msg_free(recv_type(a, MSG_CHUNK));
    bye(a);
    rig_join(a);

    fake_env_stop(&a->env[0]);
    a->env[0].url = NULL;
    rig_init(b, 1, 100);
    assert_ok(link_send(b->link, m));
    send_weights(b, 1, HORIZON, false);
    for (i = 0; i < 2; i++)
        msg_free(recv_type(b, MSG_CHUNK));
    bye(b);
    rig_join(b);
    // both have executed the same 2 * HORIZON steps, half of them replayed
    assert_int_equal(a->env[0].n_log, 4 * HORIZON);
    assert_int_equal(b->env[0].n_log, 4 * HORIZON);
    assert_memory_equal(a->env[0].log, b->env[0].log, sizeof a->env[0].log[0] * 4 * HORIZON);
    rig_fini(a);
    rig_fini(b);
}

static void an_error_ends_the_episode_and_is_flagged(void **state)
{
    struct rig *r = rig_new();
    struct chunk c;
    struct msg *m;
    int i;

    (void)state;
    r->env[0].error_at = 2;
    rig_init(r, 1, 100);
    send_weights(r, 0, HORIZON, false);
    for (i = 0; i < 2; i++) {
        m = recv_type(r, MSG_CHUNK);
        assert_ok(chunk_read(m, &join_of_one, 0, &c));
        assert_int_equal(c.flags[0], 0);
        assert_int_equal(c.flags[1], CHUNK_ERROR);
        assert_int_equal(c.head.n_episode, 0); // never counted as a result
        assert_true(c.obs[2 * FAKE_OBS] == 0 && c.obs[2 * FAKE_OBS + 1] == 1);
        msg_free(m);
    }
    bye(r);
    rig_join(r);
    assert_int_equal(atomic_load(&r->progress.errors), 2);
    rig_fini(r);
}

// A chunk of a server that was lost before its first one, in episode 0, and is back: episode 1.
static void check_returned(const struct chunk *c)
{
    uint32_t i;

    for (i = 0; i < HORIZON; i++) {
        assert_true(c->obs[i * FAKE_OBS] == (float)(c->head.index * HORIZON + i));
        assert_true(c->obs[i * FAKE_OBS + 1] == 1 && c->obs[i * FAKE_OBS + 2] == c->head.env);
        assert_int_equal(c->flags[i], 0);
    }
}

static void a_server_is_lost_and_comes_back_and_the_rest_goes_on(void **state)
{
    uint64_t chunks = UINT64_MAX, seen[4] = {0, 0, 0, 0};
    struct rig *r = rig_new();
    const uint32_t *env;
    struct chunk c;
    struct msg *m;
    uint32_t n;

    (void)state;
    r->env[1].die_after = 3;
    rig_init(r, 2, 100);
    send_weights(r, 0, 2 * HORIZON, false);
    m = recv_type(r, MSG_LOST);
    assert_ok(lost_read(m, &env, &n));
    assert_true(n == 2 && env[0] == 12 && env[1] == 13);
    msg_free(m);
    while (seen[0] + seen[1] < 4 || chunks == UINT64_MAX || seen[2] + seen[3] < 2 * (2 - chunks)) {
        assert_ok(link_recv(r->link, &m, ENOUGH));
        if (m->type == MSG_BACK) {
            assert_ok(back_read(m, &chunks, &env, &n));
            assert_true(n == 2 && env[0] == 12 && env[1] == 13 && chunks <= 2);
        } else {
            assert_int_equal(m->type, MSG_CHUNK);
            assert_ok(chunk_read(m, &join_of_one, 0, &c));
            if (c.head.env >= 12)
                check_returned(&c);
            seen[c.head.env - 10]++;
        }
        msg_free(m);
    }
    // each may make two more, whatever it missed
    send_weights(r, 1, 4 * HORIZON, false);
    for (n = 0; n < 8; n++) {
        m = recv_type(r, MSG_CHUNK);
        assert_ok(chunk_read(m, &join_of_one, 0, &c));
        if (c.head.env >= 12)
            check_returned(&c);
        seen[c.head.env - 10]++;
        msg_free(m);
    }
    assert_true(seen[0] == 4 && seen[1] == 4);
    assert_true(seen[2] == 4 - chunks && seen[3] == 4 - chunks);
    bye(r);
    rig_join(r);
    assert_int_equal(r->st, ST_OK);
    assert_int_equal(atomic_load(&r->progress.errors), 2);
    rig_fini(r);
}

static void the_loss_of_all_servers_is_a_failure(void **state)
{
    struct rig *r = rig_new();

    (void)state;
    r->env[0].die_after = 2;
    rig_init(r, 1, 100);
    send_weights(r, 0, HORIZON, false);
    rig_join(r);
    assert_int_equal(r->st, ST_CLOSED);
    assert_string_equal(r->err.text, "env server inproc://test-rollout-a is gone");
    rig_fini(r);
}

static void a_learner_that_goes_or_refuses_ends_it(void **state)
{
    struct proto_error e = {.code = ST_INVAL, .text = "the horizon is wrong"};
    struct rig *r = rig_new();
    struct msg *m;

    (void)state;
    rig_init(r, 1, 100);
    link_close(r->link);
    rig_join(r);
    assert_int_equal(r->st, ST_CLOSED);
    assert_string_equal(r->err.text, "the learner at " LEARNER " is gone");
    rig_fini(r);
    r = rig_new();
    rig_init(r, 1, 100);
    assert_ok(proto_error_write(&m, &e));
    assert_ok(link_send(r->link, m));
    rig_join(r);
    assert_int_equal(r->st, ST_INVAL);
    assert_non_null(strstr(r->err.text, "refuses: the horizon is wrong"));
    rig_fini(r);
}

static void a_stop_ends_it_even_when_nobody_answers(void **state)
{
    struct rig *r = rig_new();

    (void)state;
    rig_init(r, 1, 100);
    atomic_store(&r->stop, true);
    rig_join(r);
    assert_int_equal(r->st, ST_OK);
    rig_fini(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(chunks_hold_the_counting_envs_and_no_more_than_is_admitted),
        leak_test(a_state_is_replayed_to_the_same_place),
        leak_test(an_error_ends_the_episode_and_is_flagged),
        leak_test(a_server_is_lost_and_comes_back_and_the_rest_goes_on),
        leak_test(the_loss_of_all_servers_is_a_failure),
        leak_test(a_learner_that_goes_or_refuses_ends_it),
        leak_test(a_stop_ends_it_even_when_nobody_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
