#include "envserver/monitor.h"

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/usage.h"
#include "common/wire/http.h"

#include <math.h>
#include <stdio.h>

extern const char monitor_page[]; // generated from monitor_page.html

struct monitor {
    struct monitor_config cfg;
    struct http *http;
};

// One look at everything.
struct look {
    struct server_stats server;
    struct pool_stats pool;
    double rss_bytes, cpu_s, fds;
};

static struct look *look_at(const struct monitor_config *cfg)
{
    struct look *l = mem_alloc(1, sizeof *l);

    if (!l)
        return NULL;
    server_stats_get(cfg->server, &l->server);
    pool_stats_get(cfg->pool, &l->pool);
    l->rss_bytes = usage_resident_bytes();
    l->cpu_s = usage_cpu_s();
    l->fds = usage_open_files();
    return l;
}

// ------------------------------------------------------------------ Prometheus

static void family(struct text *t, const char *name, const char *type, const char *help)
{
    text_add(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void number(struct text *t, const char *name, const char *type, const char *help,
                   double value)
{
    family(t, name, type, help);
    text_add(t, "%s %.17g\n", name, value);
}

// Label values hold no backslash, quote or line end in their own right.
static void label(struct text *t, const char *value)
{
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            text_add(t, "\\%c", *value);
        else if (*value == '\n')
            text_add(t, "\\n");
        else
            text_bytes(t, value, 1);
    }
}

static void put_histogram(struct text *t, const char *name, const char *help,
                          const struct histogram_view *v, double unit)
{
    int64_t below = 0;
    int i;

    family(t, name, "histogram", help);
    for (i = 0; i < v->n; i++) {
        below += v->count[i];
        text_add(t, "%s_bucket{le=\"%g\"} %lld\n", name, (double)v->bound[i] * unit,
                 (long long)below);
    }
    text_add(t, "%s_bucket{le=\"+Inf\"} %lld\n", name, (long long)v->total);
    text_add(t, "%s_sum %.17g\n%s_count %lld\n", name, (double)v->sum * unit, name,
             (long long)v->total);
}

static void put_envs(struct text *t, const struct look *l)
{
    const struct server_stats *s = &l->server;

    family(t, "simstream_envs", "gauge", "Environments by what they do.");
    text_add(t, "simstream_envs{state=\"idle\"} %d\n", s->n_env - s->leased);
    text_add(t, "simstream_envs{state=\"waiting_policy\"} %d\n", s->leased - s->in_flight);
    text_add(t, "simstream_envs{state=\"stepping\"} %d\n", s->in_flight);
}

static void put_pool(struct text *t, const struct look *l, const char *task)
{
    const struct pool_stats *p = &l->pool;
    int why;

    family(t, "simstream_steps_total", "counter", "Environment steps executed.");
    text_add(t, "simstream_steps_total{suite=\"");
    label(t, task);
    text_add(t, "\"} %lld\n", (long long)p->steps);
    family(t, "simstream_episodes_total", "counter", "Episodes ended, by how.");
    text_add(t, "simstream_episodes_total{suite=\"");
    label(t, task);
    text_add(t, "\",status=\"done\"} %lld\n", (long long)(p->episodes - p->errors));
    text_add(t, "simstream_episodes_total{suite=\"");
    label(t, task);
    text_add(t, "\",status=\"error\"} %lld\n", (long long)p->errors);
    number(t, "simstream_worker_restarts_total", "counter", "Workers that were replaced.",
           (double)p->restarts);
    family(t, "simstream_batches_total", "counter", "Batches sent, by why they left.");
    for (why = BATCHER_FULL; why < BATCHER_WHYS; why++)
        text_add(t, "simstream_batches_total{why=\"%s\"} %lld\n",
                 batcher_why_name((enum batcher_why)why), (long long)p->batches[why]);
    number(t, "simstream_rows_total", "counter", "Rows sent in batches.", (double)p->rows);
}

static void put_clients(struct text *t, const struct server_stats *s)
{
    int i;

    number(t, "simstream_client_sessions", "gauge", "Clients connected now.", s->clients);
    number(t, "simstream_sessions_total", "counter", "Clients so far.", (double)s->sessions);
    family(t, "simstream_sessions_ended_total", "counter", "Clients that left, by why.");
    for (i = 0; i < SESSION_ENDS; i++)
        text_add(t, "simstream_sessions_ended_total{cause=\"%s\"} %lld\n",
                 session_end_name((enum session_end)i), (long long)s->ended[i]);
    family(t, "simstream_requests_total", "counter", "Requests received, by kind.");
    text_add(t, "simstream_requests_total{kind=\"reset\"} %lld\n", (long long)s->resets);
    text_add(t, "simstream_requests_total{kind=\"step\"} %lld\n", (long long)s->steps);
    number(t, "simstream_requests_refused_total", "counter",
           "Requests that an environment may not do.", (double)s->refused);
    number(t, "simstream_queue_depth", "gauge", "Requests in flight.", s->in_flight);
    number(t, "simstream_received_bytes_total", "counter", "Message bytes received.",
           (double)s->bytes_in);
    number(t, "simstream_sent_bytes_total", "counter", "Message bytes sent.", (double)s->bytes_out);
    number(t, "simstream_draining", "gauge", "1 once no more clients are taken.", s->draining);
}

enum status monitor_metrics(struct text *t, const struct monitor_config *cfg)
{
    const struct spec *spec = pool_spec(cfg->pool);
    struct look *l = look_at(cfg);

    if (!l)
        return ST_NOMEM;
    family(t, "simstream_build_info", "gauge", "What is running.");
    text_add(t, "simstream_build_info{version=\"%s\",git=\"%s\",mujoco=\"", cfg->version,
             cfg->commit);
    label(t, spec->engine);
    text_add(t, "\"} 1\n");
    put_envs(t, l);
    put_pool(t, l, spec->task);
    put_clients(t, &l->server);
    put_histogram(t, "simstream_batch_rows", "Rows of a batch.", &l->server.batch_rows, 1);
    put_histogram(t, "simstream_batch_wait_seconds", "Wait of a batch's oldest row.",
                  &l->server.batch_wait_ns, 1e-9);
    put_histogram(t, "simstream_request_seconds",
                  "From the arrival of an environment's request to the departure of its row.",
                  &l->server.request_ns, 1e-9);
    number(t, "process_resident_memory_bytes", "gauge", "Resident memory.", l->rss_bytes);
    number(t, "process_cpu_seconds_total", "counter", "User and system time.", l->cpu_s);
    number(t, "process_open_fds", "gauge", "Open files.", l->fds);
    mem_free(l);
    return text_get(t) ? ST_OK : ST_NOMEM;
}

// ------------------------------------------------------------------ JSON

static void json_histogram(struct json *j, const char *key, const struct histogram_view *v,
                           double unit)
{
    int i;

    json_open(j, key, '{');
    json_open(j, "bound", '[');
    for (i = 0; i < v->n; i++)
        json_real(j, NULL, (double)v->bound[i] * unit);
    json_close(j, ']');
    json_open(j, "count", '[');
    for (i = 0; i <= v->n; i++)
        json_int(j, NULL, v->count[i]);
    json_close(j, ']');
    json_real(j, "mean", v->total ? (double)v->sum * unit / (double)v->total : NAN);
    json_real(j, "p50", histogram_quantile(v, 0.5) * unit);
    json_real(j, "p99", histogram_quantile(v, 0.99) * unit);
    json_close(j, '}');
}

static void json_clients(struct json *j, const struct server_stats *s)
{
    int i;

    json_open(j, "clients", '[');
    for (i = 0; i < s->n_client; i++) {
        const struct server_client *c = &s->client[i];

        json_open(j, NULL, '{');
        json_int(j, "session", (int64_t)c->session);
        json_str(j, "name", c->name);
        json_int(j, "envs", c->n_env);
        json_int(j, "in_flight", c->in_flight);
        json_int(j, "requests", c->requests);
        json_int(j, "rows", c->rows);
        json_real(j, "age_s", 1e-9 * (double)c->age_ns);
        json_real(j, "heard_s", 1e-9 * (double)c->heard_ns);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_faults(struct json *j, const struct server_stats *s)
{
    int i;

    json_open(j, "ended", '{');
    for (i = 0; i < SESSION_ENDS; i++)
        json_int(j, session_end_name((enum session_end)i), s->ended[i]);
    json_close(j, '}');
    json_open(j, "faults", '[');
    for (i = 0; i < s->n_fault; i++) {
        json_open(j, NULL, '{');
        json_real(j, "wall_s", s->fault[i].wall_s);
        json_int(j, "session", (int64_t)s->fault[i].session);
        json_str(j, "text", s->fault[i].text);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_work(struct json *j, const struct look *l)
{
    const struct server_stats *s = &l->server;
    int why;

    json_open(j, "envs", '{');
    json_int(j, "total", s->n_env);
    json_int(j, "idle", s->n_env - s->leased);
    json_int(j, "waiting_policy", s->leased - s->in_flight);
    json_int(j, "stepping", s->in_flight);
    json_close(j, '}');
    json_int(j, "steps", l->pool.steps);
    json_int(j, "episodes", l->pool.episodes);
    json_int(j, "errors", l->pool.errors);
    json_int(j, "worker_restarts", l->pool.restarts);
    json_int(j, "rows", l->pool.rows);
    json_open(j, "batches", '{');
    for (why = BATCHER_FULL; why < BATCHER_WHYS; why++)
        json_int(j, batcher_why_name((enum batcher_why)why), l->pool.batches[why]);
    json_close(j, '}');
    json_int(j, "resets_asked", s->resets);
    json_int(j, "steps_asked", s->steps);
    json_int(j, "refused", s->refused);
    json_int(j, "bytes_in", s->bytes_in);
    json_int(j, "bytes_out", s->bytes_out);
    json_histogram(j, "batch_rows", &s->batch_rows, 1);
    json_histogram(j, "batch_wait_s", &s->batch_wait_ns, 1e-9);
    json_histogram(j, "request_s", &s->request_ns, 1e-9);
}

enum status monitor_status(struct text *out, const struct monitor_config *cfg)
{
    const struct spec *spec = pool_spec(cfg->pool);
    struct look *l = look_at(cfg);
    struct json j;

    if (!l)
        return ST_NOMEM;
    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "task", spec->task);
    json_str(&j, "engine", spec->engine);
    json_str(&j, "version", cfg->version);
    json_str(&j, "commit", cfg->commit);
    json_str(&j, "url", server_url(cfg->server));
    json_real(&j, "wall_s", clock_wall_s());
    json_bool(&j, "draining", l->server.draining);
    json_int(&j, "client_sessions", l->server.clients);
    json_int(&j, "sessions", l->server.sessions);
    json_work(&j, l);
    json_clients(&j, &l->server);
    json_faults(&j, &l->server);
    json_real(&j, "resident_bytes", l->rss_bytes);
    json_real(&j, "cpu_s", l->cpu_s);
    json_real(&j, "open_files", l->fds);
    json_close(&j, '}');
    mem_free(l);
    if (json_text(&j))
        text_add(out, "%s\n", json_text(&j));
    else
        out->failed = true;
    json_fini(&j);
    return text_get(out) ? ST_OK : ST_NOMEM;
}

// ------------------------------------------------------------------ pages

static int make_page(void *arg, struct text *out)
{
    (void)arg;
    text_add(out, "%s", monitor_page);
    return 200;
}

static int make_metrics(void *arg, struct text *out)
{
    return monitor_metrics(out, &((struct monitor *)arg)->cfg) == ST_OK ? 200 : 500;
}

static int make_status(void *arg, struct text *out)
{
    return monitor_status(out, &((struct monitor *)arg)->cfg) == ST_OK ? 200 : 500;
}

static int make_health(void *arg, struct text *out)
{
    bool draining = server_draining(((struct monitor *)arg)->cfg.server);

    text_add(out, "%s\n", draining ? "draining" : "ok");
    return draining ? 503 : 200;
}

static const struct http_page pages[] = {
    {"/", "text/html; charset=utf-8", make_page},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", make_metrics},
    {"/status", "application/json", make_status},
    {"/healthz", "text/plain; charset=utf-8", make_health},
};

enum status monitor_open(struct monitor **out, const struct monitor_config *cfg)
{
    struct monitor *m = mem_alloc(1, sizeof *m);
    enum status st;

    if (!m)
        return ST_NOMEM;
    m->cfg = *cfg;
    st = http_open(&m->http, cfg->address, pages, sizeof pages / sizeof pages[0], m);
    if (st != ST_OK) {
        mem_free(m);
        return st;
    }
    *out = m;
    return ST_OK;
}

const char *monitor_address(const struct monitor *m)
{
    return http_address(m->http);
}

void monitor_close(struct monitor *m)
{
    if (!m)
        return;
    http_close(m->http);
    mem_free(m);
}
