// docs/protocol.md shows whole messages byte by byte: the encoders write the same. The bytes there
// were put together without these encoders.
#include "common/wire/auth.h"
#include "common/wire/link.h"

#include "tests/wire_samples.h"

#include <ctype.h>
#include <stdio.h>

#define TEXT_MAX (256 << 10)

// The bytes of the block "```hex NAME", without comments.
static size_t bytes_of(const char *name, uint8_t *out, size_t room)
{
    static char text[TEXT_MAX];
    char head[64];
    FILE *f = fopen(TESTS_DIR "/../docs/protocol.md", "r");
    const char *at, *end;
    size_t n = 0;

    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    snprintf(head, sizeof head, "```hex %s\n", name);
    at = strstr(text, head);
    if (!at)
        fail_msg("docs/protocol.md has no block %s", name);
    at += strlen(head);
    end = strstr(at, "```");
    while (at < end) {
        unsigned byte;

        if (*at == '#') {
            at += strcspn(at, "\n");
        } else if (isspace((unsigned char)*at)) {
            at++;
        } else {
            assert_int_equal(sscanf(at, "%2x", &byte), 1);
            assert_true(n < room);
            out[n++] = (uint8_t)byte;
            at += 2;
        }
    }
    return n;
}

// The message is what the block says. Takes `m`.
static void same(const char *name, struct msg *m)
{
    uint8_t want[1024], head[LINK_HEADER_BYTES];
    size_t n = bytes_of(name, want, sizeof want);

    link_header_encode(head, m);
    assert_int_equal(n, sizeof head + m->len);
    for (size_t i = 0; i < n; i++) {
        uint8_t got = i < sizeof head ? head[i] : m->data[i - sizeof head];

        if (got != want[i])
            fail_msg("%s: byte %zu is %02x, the documentation says %02x", name, i, got, want[i]);
    }
    msg_free(m);
}

static struct msg *hello(void)
{
    struct hello h = sample_hello();
    struct msg *m = NULL;

    assert_ok(hello_write(&m, &h));
    return m;
}

static void requests_are_as_documented(void **state)
{
    struct reset_row row = {.env = 7, .seed = 1, .stream = 2, .episode = 3};
    struct step_row *step;
    uint8_t *rows;
    struct msg *m;

    (void)state;
    same("HELLO", hello());
    assert_ok(reset_write(&m, 1, &row, 1));
    same("RESET", m);
    assert_ok(step_begin(&m, 2, 1, 2, 2, &rows));
    step = (struct step_row *)rows;
    *step = (struct step_row){.env = 7, .n_sub = 1};
    ((float *)(step + 1))[0] = 0.5f;
    ((float *)(step + 1))[1] = -1;
    same("STEP", m);
}

static void a_batch_is_as_documented(void **state)
{
    struct spec spec = {.n_obs = 1, .n_act = 2, .n_env = 16};
    struct batch_head head = {.seq = 1, .n = 1, .why = BATCHER_DRAINED};
    const struct batch_head *got;
    const uint8_t *rows;
    struct row_layout l;
    struct row_head *row;
    uint8_t bytes[512];
    struct msg *m, doc;
    uint8_t *at;

    (void)state;
    row_layout_make(&l, &spec, 2, AUTORESET_DISABLED);
    head.stride = l.stride;
    assert_ok(msg_new(&m, MSG_BATCH, 0));
    assert_ok(msg_bytes(m, &head, sizeof head));
    at = msg_append(m, l.stride);
    row = (struct row_head *)at;
    *row = (struct row_head){.env = 7,
                             .flags = ROW_TERMINATED,
                             .seed = 1,
                             .stream = 2,
                             .episode = 3,
                             .episode_return = 1.5,
                             .elapsed = 1,
                             .n_sub = 1};
    *(double *)(at + l.reward) = 1.5;
    *(double *)(at + l.obs) = 0.25;
    same("BATCH", m);
    // and the reader takes the documented bytes
    doc = (struct msg){.type = MSG_BATCH, .len = bytes_of("BATCH", bytes, sizeof bytes)};
    doc.len -= LINK_HEADER_BYTES;
    doc = exact_copy(&(struct msg){.type = MSG_BATCH, .data = bytes + LINK_HEADER_BYTES}, doc.len);
    assert_ok(batch_read(&doc, &l, &got, &rows));
    assert_int_equal(((const struct row_head *)rows)->env, 7);
    free(doc.data);
}

static void the_rest_is_as_documented(void **state)
{
    struct proto_error e = {
        .code = ST_PROTO, .env = 9, .seq = 3, .text = "env 9 is not one of this client's envs"};
    struct bye bye = {.seq = 2, .why = "the server is stopped"};
    struct msg *m;

    (void)state;
    assert_ok(proto_error_write(&m, &e));
    same("ERROR", m);
    assert_ok(bye_write(&m, &bye));
    same("BYE", m);
    assert_ok(ping_write(&m, MSG_PING, 1));
    same("PING", m);
}

static void states_and_fields_are_as_documented(void **state)
{
    static const uint32_t env[] = {7, 9};
    struct msg *m;
    uint8_t *rows;

    (void)state;
    assert_ok(state_ask(&m, MSG_SAVE, 5, env, 2, NULL, NULL));
    same("SAVE", m);
    assert_ok(state_ask(&m, MSG_GET, 3, env, 1, "body_mass", "torso"));
    same("GET", m);
    assert_ok(state_begin_rows(&m, MSG_VALUES, 3, env, 1, sizeof(double), &rows));
    *(double *)(rows + sizeof(struct state_row)) = 3.5;
    same("VALUES", m);
    assert_ok(state_begin_rows(&m, MSG_SET, 4, env, 1, sizeof(double), &rows));
    *(double *)(rows + sizeof(struct state_row)) = 4;
    assert_ok(state_name(m, "body_mass", "torso"));
    same("SET", m);
    assert_ok(executed_write(&m, 4));
    same("EXECUTED", m);
}

static void proofs_are_as_documented(void **state)
{
    struct auth_key key = {.n = 32, .bytes = "0123456789abcdef0123456789abcdef"};
    struct proof client = {0}, server = {0};
    struct msg *first = hello(), *m;
    struct auth_seen seen = {.hello = first->data, .n_hello = first->len};

    (void)state;
    for (int i = 0; i < NONCE_BYTES; i++) {
        seen.server[i] = (uint8_t)i;
        seen.client[i] = client.nonce[i] = (uint8_t)(64 + i);
    }
    assert_ok(challenge_write(&m, seen.server));
    same("CHALLENGE", m);
    assert_ok(auth_prove(&key, AUTH_CLIENT, &seen, client.mac));
    assert_ok(proof_write(&m, &client));
    same("PROOF", m);
    assert_ok(auth_prove(&key, AUTH_SERVER, &seen, server.mac));
    assert_ok(proof_write(&m, &server));
    same("PROOF-server", m);
    msg_free(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(requests_are_as_documented), wire_test(a_batch_is_as_documented),
        wire_test(the_rest_is_as_documented),  wire_test(states_and_fields_are_as_documented),
        wire_test(proofs_are_as_documented),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
