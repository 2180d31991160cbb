#include "evaluation/html.h"

#include "common/base/json.h"

#include <limits.h>
#include <string.h>

#define MARK "@DATA@" // where the JSON goes

extern const char report_page[]; // the template, made by the build

// One array an episode: task, episode, outcome, steps, return, initial state, film, error.
static void put_row(struct json *j, const struct results *r, const struct result *row,
                    const struct summary_about *about)
{
    const struct episode_result *e = &row->r;
    char film[PATH_MAX];

    json_open(j, NULL, '[');
    json_int(j, NULL, row->task);
    json_int(j, NULL, e->episode);
    json_str(j, NULL, outcome_name(e->outcome));
    json_int(j, NULL, e->length);
    json_real(j, NULL, e->ret);
    json_int(j, NULL, e->init_state);
    if (summary_film(r, row, about, film, sizeof film))
        json_str(j, NULL, film);
    else
        json_raw(j, NULL, "null");
    if (e->cause)
        json_str(j, NULL, e->cause);
    else
        json_raw(j, NULL, "null");
    json_close(j, ']');
}

static enum status data_text(const struct results *r, const struct summary_about *about,
                             struct json *j)
{
    struct text summary;
    enum status st;
    int64_t k;

    text_init(&summary);
    st = summary_text(r, about, &summary);
    json_open(j, NULL, '{');
    if (st == ST_OK && text_get(&summary))
        json_raw(j, "summary", text_get(&summary));
    else if (st == ST_OK)
        st = ST_NOMEM;
    text_fini(&summary);
    json_open(j, "rows", '[');
    for (k = 0; k < r->n; k++)
        put_row(j, r, &r->rows[k], about);
    json_close(j, ']');
    json_close(j, '}');
    return st == ST_OK && !json_text(j) ? ST_NOMEM : st;
}

// JSON inside a script element: nothing in it may look like the end of one. In JSON a '<' stands
// in strings only.
static void put_data(struct text *page, const char *json)
{
    const char *p, *q;

    for (p = json; (q = strchr(p, '<')); p = q + 1) {
        text_bytes(page, p, (size_t)(q - p));
        text_add(page, "\\u003c");
    }
    text_bytes(page, p, strlen(p));
}

enum status html_write(const struct results *r, const struct summary_about *about)
{
    const char *mark = strstr(report_page, MARK);
    struct text page;
    struct json j;
    enum status st;

    json_init(&j);
    text_init(&page);
    st = data_text(r, about, &j);
    if (st == ST_OK) {
        text_bytes(&page, report_page, (size_t)(mark - report_page));
        put_data(&page, json_text(&j));
        text_bytes(&page, mark + strlen(MARK), strlen(mark + strlen(MARK)));
        st = results_write_text(about->dir, "report.html", &page);
    }
    json_fini(&j);
    text_fini(&page);
    return st;
}
