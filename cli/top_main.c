// simstream top - what an env server does, in a terminal: reads its /metrics twice and shows rates.
#include "cli/cmd.h"
#include "cli/signals.h"

#include "common/base/text.h"
#include "common/base/thread.h"
#include "common/wire/http.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_NS  (5 * NS_PER_S)
#define BAR      40
#define BINS_MAX 64

struct top_options {
    int64_t interval_ns;
    bool once, json;
};

#define AT(field) offsetof(struct top_options, field)

static const struct opt table[] = {
    {"interval", OPT_TIME, AT(interval_ns), 100e6, 3600e9, "1s", "time between two looks", NULL},
    {"once", OPT_BOOL, AT(once), 0, 1, "false", "show one look and end", NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false",
     "print the server's state as one JSON line a look instead", NULL},
    {0},
};

// A sample of the text format by its full name, labels included; NAN if it is not there.
static double sample(const char *text, const char *name)
{
    size_t n = strlen(name);
    const char *line;

    for (line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, name, n) == 0 && line[n] == ' ')
            return strtod(line + n, NULL);
    return NAN;
}

// The value of a label of the first sample whose name begins with `name`; "" if there is none.
static void label(const char *text, const char *name, const char *key, char *out, size_t size)
{
    const char *at = strstr(text, name), *end;
    char want[64];

    out[0] = '\0';
    snprintf(want, sizeof want, "%s=\"", key);
    while (at && at != text && at[-1] != '\n')
        at = strstr(at + 1, name);
    at = at ? strstr(at, want) : NULL;
    if (!at)
        return;
    at += strlen(want);
    end = strchr(at, '"');
    if (end)
        snprintf(out, size, "%.*s", (int)(end - at), at);
}

struct bins {
    int n;
    double bound[BINS_MAX], below[BINS_MAX];
};

// The bins of a histogram, counted since `before` (NULL = the start).
static void read_bins(const char *text, const char *before, const char *name, struct bins *b)
{
    char prefix[128];
    const char *line = text;
    size_t n;

    n = (size_t)snprintf(prefix, sizeof prefix, "%s_bucket{le=\"", name);
    b->n = 0;
    while (line && b->n < BINS_MAX) {
        if (strncmp(line, prefix, n) == 0) {
            char full[192], *end;
            const char *brace = strchr(line, '}');

            if (!brace || brace - line > 180)
                return;
            snprintf(full, sizeof full, "%.*s", (int)(brace + 1 - line), line);
            b->bound[b->n] = strtod(line + n, &end); // "+Inf" too
            b->below[b->n] = sample(text, full) - (before ? sample(before, full) : 0);
            b->n++;
        }
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
}

static double quantile(const struct bins *b, double q)
{
    double total = b->n ? b->below[b->n - 1] : 0, low = 0, under = 0;
    int i;

    for (i = 0; i < b->n && total > 0; i++) {
        if (b->below[i] >= q * total)
            return isinf(b->bound[i]) ? low
                                      : low + (b->bound[i] - low) * (q * total - under) /
                                                  fmax(b->below[i] - under, 1e-300);
        low = b->bound[i];
        under = b->below[i];
    }
    return NAN;
}

static const char *seconds(double s, char out[32])
{
    if (isnan(s))
        snprintf(out, 32, "-");
    else if (s < 1e-3)
        snprintf(out, 32, "%.0f us", s * 1e6);
    else if (s < 1)
        snprintf(out, 32, "%.1f ms", s * 1e3);
    else
        snprintf(out, 32, "%.2f s", s);
    return out;
}

static void print_times(const char *title, const char *name, const char *now, const char *before)
{
    char a[32], b[32], c[32];
    struct bins bins;

    read_bins(now, before, name, &bins);
    printf("  %-26s half up to %-9s 90 %% up to %-9s 99 %% up to %s\n", title,
           seconds(quantile(&bins, 0.5), a), seconds(quantile(&bins, 0.9), b),
           seconds(quantile(&bins, 0.99), c));
}

static double per_second(const char *now, const char *before, const char *name, double dt)
{
    return (sample(now, name) - sample(before, name)) / dt;
}

static void print_envs(const char *now)
{
    double idle = sample(now, "simstream_envs{state=\"idle\"}");
    double waiting = sample(now, "simstream_envs{state=\"waiting_policy\"}");
    double stepping = sample(now, "simstream_envs{state=\"stepping\"}");
    double total = fmax(idle + waiting + stepping, 1);
    int a = (int)lround(BAR * stepping / total),
        b = (int)lround(BAR * (stepping + waiting) / total);
    int i;

    printf("  %-10.0f [", idle + waiting + stepping);
    for (i = 0; i < BAR; i++)
        putchar(i < a ? '#' : i < b ? '-' : ' ');
    printf("]  # %.0f stepping  - %.0f waiting for actions  %.0f idle\n", stepping, waiting, idle);
}

static void print_why(const char *now, const char *before, double dt)
{
    static const char *const why[] = {"full", "deadline", "drained", "enough"};
    char name[96];
    size_t i;

    printf("  batches/s ");
    for (i = 0; i < sizeof why / sizeof why[0]; i++) {
        snprintf(name, sizeof name, "simstream_batches_total{why=\"%s\"}", why[i]);
        printf("  %s %.0f", why[i], per_second(now, before, name, dt));
    }
    printf("\n");
}

static void print_look(const char *address, const char *now, const char *before, double dt)
{
    char task[64], engine[64], name[160];
    struct bins rows;

    label(now, "simstream_steps_total{", "suite", task, sizeof task);
    label(now, "simstream_build_info{", "mujoco", engine, sizeof engine);
    printf("simstream %s  %s, %s%s\n\nenvs\n", address, task, engine,
           sample(now, "simstream_draining") > 0 ? "  DRAINING" : "");
    print_envs(now);
    snprintf(name, sizeof name, "simstream_steps_total{suite=\"%s\"}", task);
    printf("\nlast %.1f s\n  steps/s    %.0f", dt, per_second(now, before, name, dt));
    snprintf(name, sizeof name, "simstream_episodes_total{suite=\"%s\",status=\"done\"}", task);
    printf("   episodes/s %.1f", per_second(now, before, name, dt));
    snprintf(name, sizeof name, "simstream_episodes_total{suite=\"%s\",status=\"error\"}", task);
    printf("   errors %.0f in all\n", sample(now, name));
    print_why(now, before, dt);
    read_bins(now, before, "simstream_batch_rows", &rows);
    printf("  rows/batch  mean %.1f\n",
           (sample(now, "simstream_batch_rows_sum") - sample(before, "simstream_batch_rows_sum")) /
               fmax(rows.n ? rows.below[rows.n - 1] : 0, 1));
    print_times("wait of the oldest row", "simstream_batch_wait_seconds", now, before);
    print_times("request to row", "simstream_request_seconds", now, before);
    printf("\nclients\n  %.0f now, %.0f so far   refused requests %.0f   dropped: protocol %.0f, "
           "key %.0f, silent %.0f\n",
           sample(now, "simstream_client_sessions"), sample(now, "simstream_sessions_total"),
           sample(now, "simstream_requests_refused_total"),
           sample(now, "simstream_sessions_ended_total{cause=\"protocol\"}"),
           sample(now, "simstream_sessions_ended_total{cause=\"auth\"}"),
           sample(now, "simstream_sessions_ended_total{cause=\"idle\"}"));
    printf("\nprocess\n  %.1f MiB resident   %.0f %% of a CPU   %.0f open files\n",
           sample(now, "process_resident_memory_bytes") / 1048576,
           100 * per_second(now, before, "process_cpu_seconds_total", dt),
           sample(now, "process_open_fds"));
}

// False when it was stopped.
static bool pause_ns(int64_t ns, const atomic_bool *stop)
{
    int64_t until = clock_now_ns() + ns;

    while (clock_now_ns() < until && !atomic_load(stop))
        clock_sleep_ns(20 * NS_PER_MS);
    return !atomic_load(stop);
}

static enum status run_json(const struct top_options *o, const char *address,
                            const atomic_bool *stop)
{
    struct text t;
    enum status st;

    do {
        text_init(&t);
        st = http_get(address, "/status", WAIT_NS, &t);
        if (st == ST_OK)
            fputs(text_get(&t), stdout);
        fflush(stdout);
        text_fini(&t);
    } while (st == ST_OK && !o->once && pause_ns(o->interval_ns, stop));
    return st;
}

static enum status run_terminal(const struct top_options *o, const char *address,
                                const atomic_bool *stop)
{
    bool redraw = !o->once && isatty(STDOUT_FILENO);
    struct text now, before;
    int64_t t_now, t_before = clock_now_ns();
    enum status st;

    text_init(&now);
    text_init(&before);
    st = http_get(address, "/metrics", WAIT_NS, &before);
    while (st == ST_OK && pause_ns(o->interval_ns, stop)) {
        st = http_get(address, "/metrics", WAIT_NS, &now);
        if (st != ST_OK)
            break;
        t_now = clock_now_ns();
        if (redraw)
            fputs("\x1b[H\x1b[2J", stdout);
        print_look(address, text_get(&now), text_get(&before), 1e-9 * (double)(t_now - t_before));
        fflush(stdout);
        if (o->once)
            break;
        text_fini(&before);
        before = now;
        text_init(&now);
        t_before = t_now;
    }
    text_fini(&now);
    text_fini(&before);
    return st;
}

int cmd_top(int argc, char **argv)
{
    struct top_options o;
    enum status st;
    int n_word, code = cmd_begin(table, &o, "top HOST:PORT [--once] [--json] [--interval=1s]", argc,
                                 argv, 1, &n_word);

    if (code >= 0)
        return code;
    if (n_word != 1)
        return cmd_fail(FAIL(ST_INVAL, "top: expected the address of a server's --http"));
    st = o.json ? run_json(&o, argv[0], signals_install())
                : run_terminal(&o, argv[0], signals_install());
    return st == ST_OK ? EXIT_DONE : cmd_fail(st);
}
