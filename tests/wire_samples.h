// wire_samples.h - one valid message of every kind, for the tests and the fuzz target of the wire.
#ifndef TESTS_WIRE_SAMPLES_H
#define TESTS_WIRE_SAMPLES_H

#include "tests/testing.h"

#include "common/base/batcher.h"
#include "common/wire/control.h"
#include "common/wire/episode.h"
#include "common/wire/stateproto.h"
#include "common/wire/trainproto.h"

#include <stdio.h>

#define SAMPLE_OBS 5
#define SAMPLE_ACT 2
#define SAMPLE_K   4

// Fixture: messages go back to the list, and the list is emptied, before leaks are counted.
static inline int wire_teardown(void **state)
{
    msg_drain();
    return leak_teardown(state);
}

#define wire_test(fn) cmocka_unit_test_setup_teardown(fn, leak_setup, wire_teardown)

static inline struct spec sample_spec(void)
{
    struct spec s = {
        .task = "Ant-v5",
        .engine = "MuJoCo 3.3.7",
        .instruction = "do it",
        .n_field = 2,
        .fields = {{"position", 0, 2}, {"velocity", 2, SAMPLE_OBS - 2}},
        .n_picture = 2,
        .pictures = {{"agentview_image", "agentview", SPEC_RGB, 5, 3, 2, 0, 45},
                     {"agentview_depth", "agentview", SPEC_DEPTH, 5, 3, 2, 48, 60}},
        .picture_bytes = 112,
        .n_obs = SAMPLE_OBS,
        .n_act = SAMPLE_ACT,
        .n_info = 3,
        .n_info_key = 2,
        .info = {{"x_position", 1, true}, {"reward_parts", 2, false}},
        .act_low = {-1, -0.4f},
        .act_high = {1, 0.4f},
        .max_episode_steps = 1000,
        .dt_s = 0.05,
        .has_success = true,
        .n_env = 64,
    };

    return s;
}

static inline struct hello sample_hello(void)
{
    return (struct hello){.version = ENVPROTO_VERSION,
                          .autoreset = AUTORESET_SAME_STEP,
                          .n_env = 16,
                          .k_max = SAMPLE_K,
                          .b_max = 8,
                          .t_max_ns = 2000000,
                          .b_min = 4,
                          .features = FEATURE_HEARTBEAT | FEATURE_BYE,
                          .idle_ns = 30000000000,
                          .name = "sample",
                          .listed = true,
                          .n_picture = 1,
                          .pictures = {{"agentview_image", 128, 128}}};
}

// Free with mem_free.
static inline struct welcome *sample_welcome(void)
{
    struct welcome *w = mem_alloc(1, sizeof *w);

    w->spec = sample_spec();
    w->autoreset = AUTORESET_SAME_STEP;
    w->k_max = SAMPLE_K;
    w->b_max = 8;
    w->b_min = 4;
    w->t_max_ns = 2000000;
    w->idle_ns = 30000000000;
    w->features = FEATURE_BYE | FEATURE_PLAN;
    snprintf(w->plan, sizeof w->plan, "[{\"field\": \"gravity\"}]");
    w->session = 12;
    w->n_env = 3;
    w->env[0] = 0;
    w->env[1] = 7;
    w->env[2] = 63;
    return w;
}

static inline struct row_layout sample_layout(enum autoreset autoreset)
{
    struct spec spec = sample_spec();
    struct row_layout l;

    row_layout_make(&l, &spec, SAMPLE_K, autoreset);
    return l;
}

// A BATCH of n rows: plain, first of an episode, ended with final parts (same-step only).
static inline struct msg *sample_batch(enum autoreset autoreset, int n)
{
    struct row_layout l = sample_layout(autoreset);
    struct batch_head head = {
        .seq = 5, .n = (uint32_t)n, .why = BATCHER_FULL, .in_flight = 2, .stride = l.stride};
    struct msg *m = NULL;

    assert_ok(msg_new(&m, MSG_BATCH, 0));
    assert_ok(msg_bytes(m, &head, sizeof head));
    for (int i = 0; i < n; i++) {
        uint8_t *row = msg_append(m, l.stride);
        struct row_head *h = (struct row_head *)row;
        double *reward = (double *)(row + l.reward), *obs = (double *)(row + l.obs);

        h->env = (uint32_t)i;
        h->seed = 1;
        h->episode = 3;
        h->n_sub = i % 3 == 1 ? 0 : 3;
        h->flags = i % 3 == 0 ? 0 : i % 3 == 1 ? ROW_FIRST : ROW_TERMINATED;
        if (i % 3 == 2 && l.final_obs)
            h->flags |= ROW_HAS_FINAL | ROW_SUCCESS;
        h->episode_return = 1.5 * i;
        for (uint32_t k = 0; k < h->n_sub; k++)
            reward[k] = 0.25 * k;
        for (int k = 0; k < SAMPLE_OBS; k++)
            obs[k] = i + 0.1 * k;
    }
    return m;
}

static inline struct msg *sample_reset(void)
{
    static const struct reset_row rows[] = {{7, 0, 1, 2, 3}, {0, 0, ~0ull, 0, 1}};
    struct msg *m = NULL;

    assert_ok(reset_write(&m, 4, rows, 2));
    return m;
}

static inline struct msg *sample_step(void)
{
    size_t stride = step_stride(SAMPLE_K, SAMPLE_ACT);
    struct msg *m = NULL;
    uint8_t *rows;

    assert_ok(step_begin(&m, 9, 3, SAMPLE_K, SAMPLE_ACT, &rows));
    for (uint32_t i = 0; i < 3; i++) {
        struct step_row *row = (struct step_row *)(rows + i * stride);

        row->env = 10 + i;
        row->n_sub = 1 + i;
        ((float *)(row + 1))[0] = 0.5f * (float)i;
    }
    return m;
}

static inline struct msg *sample_error(void)
{
    struct proto_error e = {.code = ST_PROTO, .env = 12, .seq = 3, .text = "action 1 is NaN"};
    struct msg *m = NULL;

    assert_ok(proto_error_write(&m, &e));
    return m;
}

// SAVE, SAVED, LOAD, SET, GET or VALUES of envs 7 and 63, with 16 bytes each where that has some.
static inline struct msg *sample_states(enum msg_type type)
{
    static const uint32_t env[] = {7, 63};
    bool named = type == MSG_SET || type == MSG_GET;
    struct msg *m = NULL;
    uint8_t *rows;

    if (type == MSG_SAVE || type == MSG_GET) {
        assert_ok(state_ask(&m, type, 8, env, 2, named ? "body_mass" : NULL, "torso"));
        return m;
    }
    assert_ok(state_begin_rows(&m, type, 8, env, 2, 2 * sizeof(double), &rows));
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            ((double *)(rows + 24 * i + 8))[k] = 0.5 + 2 * i + k;
    if (named)
        assert_ok(state_name(m, "body_mass", "torso"));
    return m;
}

static inline struct join sample_join(void)
{
    return (struct join){.version = TRAINPROTO_VERSION,
                         .n_env = 8,
                         .env_first = 16,
                         .seed = 1,
                         .horizon = 32,
                         .n_obs = SAMPLE_OBS,
                         .n_act = SAMPLE_ACT,
                         .width = 4,
                         .height = 2,
                         .chunk = SAMPLE_K,
                         .n_view = 1,
                         .task = "Ant-v5",
                         .picture = "track_image",
                         .instruction = "walk"};
}

static inline struct msg *sample_weights(void)
{
    static const uint8_t blob[] = {1, 2, 3, 4, 5, 6, 7};
    struct weights_head h = {.version = 3, .admit = 4096, .blob_bytes = sizeof blob};
    struct msg *m = NULL;

    assert_ok(weights_write(&m, &h, blob));
    return m;
}

// The STATE of two envs, one of them at the start of its episode.
static inline struct msg *sample_state(void)
{
    static const float action[3 * SAMPLE_ACT] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f};
    struct episode_state s = {.episode = 7, .elapsed = 3, .action = action};
    struct msg *m = NULL;

    assert_ok(state_begin(&m, 16, 2, SAMPLE_ACT));
    assert_ok(state_add(m, &s, SAMPLE_ACT));
    s = (struct episode_state){.episode = 8};
    assert_ok(state_add(m, &s, SAMPLE_ACT));
    return m;
}

static inline struct msg *sample_lost(void)
{
    static const uint32_t env[] = {3, 4, 17};
    struct msg *m = NULL;

    assert_ok(lost_write(&m, env, 3));
    return m;
}

static inline struct msg *sample_back(void)
{
    static const uint32_t env[] = {3, 4, 17};
    struct msg *m = NULL;

    assert_ok(back_write(&m, 12, env, 3));
    return m;
}

// A PING, PONG, BYE, CHALLENGE or PROOF.
static inline struct msg *sample_control(enum msg_type type)
{
    static const struct bye bye = {.seq = 7, .why = "the server is stopped"};
    static const struct proof proof = {.nonce = {1, 2, 3}, .mac = {4, 5, 6}};
    struct msg *m = NULL;

    if (type == MSG_BYE)
        assert_ok(bye_write(&m, &bye));
    else if (type == MSG_CHALLENGE)
        assert_ok(challenge_write(&m, proof.nonce));
    else if (type == MSG_PROOF)
        assert_ok(proof_write(&m, &proof));
    else
        assert_ok(ping_write(&m, type, 99));
    return m;
}

#define SAMPLE_STEPS   6
#define SAMPLE_LEAD    2
#define SAMPLE_PICTURE 24 // bytes, as in sample_join

// A chunk of six steps: two truncated, one skipped, three episodes ended. Every byte of a picture
// is the picture's number.
static inline struct chunk sample_chunk(void)
{
    static float obs[SAMPLE_STEPS * SAMPLE_OBS], last_obs[SAMPLE_OBS], final_obs[2 * SAMPLE_OBS];
    static float action[SAMPLE_STEPS * SAMPLE_ACT], logp[SAMPLE_STEPS], reward[SAMPLE_STEPS];
    static const uint32_t flags[SAMPLE_STEPS] = {
        0, CHUNK_TRUNCATED, CHUNK_SKIP, CHUNK_TERMINATED, CHUNK_TRUNCATED, 0};
    static const uint64_t version[SAMPLE_STEPS] = {4, 4, 99, 5, 5, 6};
    static const float returns[3] = {1, 2, 3}, lengths[3] = {10, 20, 30};
    static uint8_t pictures[(SAMPLE_LEAD + SAMPLE_STEPS + 1 + 2) * SAMPLE_PICTURE];
    struct chunk c = {
        .head = {.worker = 1,
                 .env = 77,
                 .index = 5,
                 .version_min = 4,
                 .version_max = 6,
                 .n_step = SAMPLE_STEPS,
                 .n_obs = SAMPLE_OBS,
                 .n_act = SAMPLE_ACT,
                 .n_truncated = 2,
                 .n_episode = 3,
                 .n_lead = SAMPLE_LEAD,
                 .picture_bytes = SAMPLE_PICTURE},
        .obs = obs,
        .last_obs = last_obs,
        .final_obs = final_obs,
        .action = action,
        .logp = logp,
        .reward = reward,
        .flags = flags,
        .version = version,
        .episode_return = returns,
        .episode_length = lengths,
        .pictures = pictures,
        .final_pictures = pictures + (SAMPLE_LEAD + SAMPLE_STEPS + 1) * SAMPLE_PICTURE,
    };

    for (int i = 0; i < SAMPLE_STEPS * SAMPLE_OBS; i++)
        obs[i] = (float)i;
    for (int i = 0; i < SAMPLE_OBS; i++)
        last_obs[i] = (float)-i;
    for (int i = 0; i < 2 * SAMPLE_OBS; i++)
        final_obs[i] = 100 + (float)i;
    for (int i = 0; i < SAMPLE_STEPS * SAMPLE_ACT; i++)
        action[i] = 0.5f * (float)i;
    for (int i = 0; i < SAMPLE_STEPS; i++) {
        logp[i] = -1 - (float)i;
        reward[i] = 7 + (float)i;
    }
    for (size_t i = 0; i < sizeof pictures; i++)
        pictures[i] = (uint8_t)(i / SAMPLE_PICTURE);
    return c;
}

#define SAMPLE_DECISIONS 3
#define SAMPLE_LATENT    5

// An episode of three decisions, the last of which was cut after one action.
static inline struct episode sample_episode(void)
{
    enum { SUBS = SAMPLE_DECISIONS * SAMPLE_K };
    static const uint64_t version[SAMPLE_DECISIONS] = {8, 8, 9};
    static const uint32_t executed[SAMPLE_DECISIONS] = {SAMPLE_K, SAMPLE_K, 1};
    static float obs[SAMPLE_DECISIONS * SAMPLE_OBS], action[SUBS * SAMPLE_ACT], logp[SUBS];
    static float reward[SUBS], latent[SAMPLE_DECISIONS * SAMPLE_LATENT];
    static uint8_t pictures[SAMPLE_DECISIONS * SAMPLE_PICTURE];

    for (int i = 0; i < SAMPLE_DECISIONS * SAMPLE_OBS; i++)
        obs[i] = (float)i;
    for (int i = 0; i < SUBS * SAMPLE_ACT; i++)
        action[i] = 0.25f * (float)i;
    for (int i = 0; i < SUBS; i++) {
        logp[i] = -(float)i;
        reward[i] = i == 2 * SAMPLE_K;
    }
    for (int i = 0; i < SAMPLE_DECISIONS * SAMPLE_LATENT; i++)
        latent[i] = 0.5f * (float)i;
    for (size_t i = 0; i < sizeof pictures; i++)
        pictures[i] = (uint8_t)(i / SAMPLE_PICTURE);
    return (struct episode){.head = {.index = 4,
                                     .group = 33,
                                     .version_min = 8,
                                     .version_max = 9,
                                     .score = 1,
                                     .episode_return = 1,
                                     .env = 18,
                                     .member = 2,
                                     .flags = EPISODE_SUCCESS,
                                     .n_decision = SAMPLE_DECISIONS,
                                     .n_sub = 2 * SAMPLE_K + 1,
                                     .n_obs = SAMPLE_OBS,
                                     .n_act = SAMPLE_ACT,
                                     .chunk = SAMPLE_K,
                                     .n_view = 1,
                                     .picture_bytes = SAMPLE_PICTURE,
                                     .n_latent = SAMPLE_LATENT},
                            .latent = latent,
                            .version = version,
                            .obs = obs,
                            .action = action,
                            .logp = logp,
                            .reward = reward,
                            .executed = executed,
                            .pictures = pictures};
}

// A copy of the first n bytes in a block of exactly that size, so that a sanitizer sees any read
// past it. Free data with free().
static inline struct msg exact_copy(const struct msg *m, size_t n)
{
    struct msg cut = {.type = m->type, .len = n, .cap = n};
    void *p = NULL;

    if (posix_memalign(&p, 64, n ? n : 1) != 0)
        abort();
    memcpy(p, m->data, n);
    cut.data = p;
    return cut;
}

// Every prefix of a valid message, and the message with one byte more, is refused.
#define assert_only_whole(m, read)                       \
    do {                                                 \
        for (size_t cut_ = 0; cut_ < (m)->len; cut_++) { \
            struct msg part = exact_copy((m), cut_);     \
            assert_int_equal((read), ST_PROTO);          \
            free(part.data);                             \
        }                                                \
        assert_non_null(msg_append((m), 1));             \
        {                                                \
            struct msg part = exact_copy((m), (m)->len); \
            assert_int_equal((read), ST_PROTO);          \
            free(part.data);                             \
        }                                                \
        (m)->len--;                                      \
        {                                                \
            struct msg part = exact_copy((m), (m)->len); \
            assert_int_equal((read), ST_OK);             \
            part.type++;                                 \
            assert_int_equal((read), ST_PROTO);          \
            free(part.data);                             \
        }                                                \
    } while (0)

#endif
