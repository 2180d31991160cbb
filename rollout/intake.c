#include "rollout/intake.h"

#include "common/base/mem.h"
#include "common/base/queue.h"

#include <stdio.h>
#include <string.h>

#define EVENTS_MAX        4096
#define WEIGHTS_BYTES_MAX (256u << 20)

struct source {
    struct intake *intake;
    struct envclient *client;
    int i;
    pthread_t thread;
    bool started;
};

struct intake {
    struct queue *events; // struct event
    struct source source[INTAKE_SERVERS_MAX];
    int n_source;
    struct link *learner;
    char learner_url[LINK_URL_MAX];
    pthread_t learner_thread;
    bool learner_started;
};

void event_free(struct event *e)
{
    if (!e)
        return;
    msg_free(e->m);
    mem_free(e);
}

// Takes the event's message; false when nobody reads any more.
static bool post(struct intake *in, const struct event *from)
{
    struct event *e = mem_alloc(1, sizeof *e);

    if (!e) {
        msg_free(from->m);
        return false;
    }
    *e = *from;
    if (queue_push(in->events, e, WAIT_NEVER) == ST_OK)
        return true;
    event_free(e);
    return false;
}

static void *source_run(void *arg)
{
    struct source *s = arg;
    enum status st;

    for (;;) {
        struct event e = {.kind = EVENT_BATCH, .source = s->i};

        st = envclient_recv(s->client, &e.m, &e.head, &e.rows, WAIT_NEVER);
        if (st != ST_OK) {
            e = (struct event){.kind = EVENT_SOURCE_LOST, .source = s->i, .err = *error_last()};
            e.err.code = st;
        }
        if (!post(s->intake, &e) || st != ST_OK)
            return NULL;
    }
}

static void *learner_run(void *arg)
{
    struct intake *in = arg;
    enum status st;

    for (;;) {
        struct event e = {.kind = EVENT_LEARNER};

        st = link_recv(in->learner, &e.m, WAIT_NEVER);
        if (st != ST_OK) {
            if (st == ST_CLOSED)
                (void)FAIL(ST_CLOSED, "the learner at %s is gone", in->learner_url);
            e = (struct event){.kind = EVENT_LEARNER_LOST, .err = *error_last()};
        }
        if (!post(in, &e) || st != ST_OK)
            return NULL;
    }
}

static enum status dial_source(struct intake *in, const char *url, int n_env, int64_t wait_ns)
{
    struct source *s = &in->source[in->n_source];
    struct envclient_config cfg = {.url = url,
                                   .hello = {.autoreset = AUTORESET_SAME_STEP,
                                             .n_env = (uint32_t)n_env,
                                             .k_max = 1,
                                             .t_max_ns = -1},
                                   .connect_wait_ns = wait_ns};

    TRY(envclient_open(&s->client, &cfg));
    s->intake = in;
    s->i = in->n_source++;
    return ST_OK;
}

static enum status dial_all(struct intake *in, const struct intake_config *cfg)
{
    char urls[4096], *url, *rest;
    int n = 1, i = 0;

    if (snprintf(urls, sizeof urls, "%s", cfg->env_urls) >= (int)sizeof urls)
        return FAIL(ST_INVAL, "the list of env servers is too long");
    for (url = urls; *url; url++)
        n += *url == ',';
    if (n > INTAKE_SERVERS_MAX)
        return FAIL(ST_INVAL, "%d env servers, at most %d allowed", n, INTAKE_SERVERS_MAX);
    if (cfg->n_env > 0 && cfg->n_env < n)
        return FAIL(ST_INVAL, "%d envs of %d servers", cfg->n_env, n);
    for (url = urls; url; url = rest, i++) {
        // an even share each, so that the envs of a server do not depend on how fast it answers
        int share = cfg->n_env / n + (i < cfg->n_env % n);

        rest = strchr(url, ',');
        if (rest)
            *rest++ = '\0';
        TRY(dial_source(in, url, share, cfg->connect_wait_ns));
    }
    snprintf(in->learner_url, sizeof in->learner_url, "%s", cfg->learner_url);
    return link_dial(&in->learner, cfg->learner_url, WEIGHTS_BYTES_MAX, cfg->connect_wait_ns);
}

enum status intake_create(struct intake **out, const struct intake_config *cfg)
{
    struct intake *in = mem_alloc(1, sizeof *in);
    enum status st;

    if (!in)
        return ST_NOMEM;
    st = queue_create(&in->events, EVENTS_MAX);
    if (st == ST_OK)
        st = dial_all(in, cfg);
    if (st != ST_OK) {
        intake_destroy(in);
        return st;
    }
    *out = in;
    return ST_OK;
}

int intake_n_source(const struct intake *in)
{
    return in->n_source;
}

struct envclient *intake_source(struct intake *in, int i)
{
    return in->source[i].client;
}

struct link *intake_learner(struct intake *in)
{
    return in->learner;
}

enum status intake_start(struct intake *in)
{
    int i;

    for (i = 0; i < in->n_source; i++) {
        TRY(thread_start(&in->source[i].thread, "from-envs", source_run, &in->source[i]));
        in->source[i].started = true;
    }
    TRY(thread_start(&in->learner_thread, "from-learner", learner_run, in));
    in->learner_started = true;
    return ST_OK;
}

enum status intake_next(struct intake *in, struct event **out, int64_t wait_ns)
{
    void *e;

    TRY(queue_pop(in->events, &e, wait_ns));
    *out = e;
    return ST_OK;
}

int intake_length(struct intake *in)
{
    return queue_length(in->events);
}

void intake_destroy(struct intake *in)
{
    void *e;
    int i;

    if (!in)
        return;
    if (in->events)
        queue_close(in->events);
    for (i = 0; i < in->n_source; i++)
        envclient_close(in->source[i].client);
    if (in->learner)
        link_close(in->learner);
    for (i = 0; i < in->n_source; i++)
        if (in->source[i].started)
            pthread_join(in->source[i].thread, NULL);
    if (in->learner_started)
        pthread_join(in->learner_thread, NULL);
    while (in->events && queue_pop(in->events, &e, 0) == ST_OK)
        event_free(e);
    for (i = 0; i < in->n_source; i++)
        envclient_destroy(in->source[i].client);
    link_destroy(in->learner);
    queue_destroy(in->events);
    mem_free(in);
}
