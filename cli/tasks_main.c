#include "cli/cmd.h"

#include "common/base/json.h"
#include "scenes/scene.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

struct tasks_options {
    char suite[OPT_STR_MAX];
    bool json;
};

#define AT(field) offsetof(struct tasks_options, field)

static const struct opt table[] = {
    {"suite", OPT_STR, AT(suite), 0, 0, "", "list the tasks of this suite", NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "print JSON", NULL},
    {0},
};

static int64_t time_limit(const struct scene *s)
{
    return ((const struct scene_common *)s->params)->max_episode_steps;
}

static void put_bounds(struct json *j, const char *key, const float *bound, int n)
{
    int k;

    json_open(j, key, '[');
    for (k = 0; k < n; k++)
        json_real(j, NULL, (double)bound[k]);
    json_close(j, ']');
}

static void put_scene(struct json *j, const struct scene *s)
{
    json_str(j, "name", s->name);
    json_int(j, "observations", s->n_obs);
    json_int(j, "actions", s->n_act);
    json_int(j, "max_episode_steps", time_limit(s));
    json_bool(j, "success", s->task->has_success);
    json_str(j, "instruction", s->instruction);
}

static void put_kwargs(struct json *j, const struct opt *table_of_task)
{
    static const char *const types[] = {"int", "real", "bool", "text", "time", "range", "enum"};
    const struct opt *o;

    json_open(j, "kwargs", '[');
    for (o = table_of_task; o->name; o++) {
        json_open(j, NULL, '{');
        json_str(j, "name", o->name);
        json_str(j, "type", types[o->type]);
        json_str(j, "default", o->def);
        if (o->type != OPT_BOOL && o->type != OPT_STR && o->type != OPT_ENUM) {
            json_real(j, "low", fabs(o->low) < 1e300 ? o->low : NAN); // null: no bound
            json_real(j, "high", fabs(o->high) < 1e300 ? o->high : NAN);
        }
        if (o->choices)
            json_str(j, "choices", o->choices);
        json_str(j, "help", o->help);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_details(struct json *j, const struct scene *s)
{
    int i;

    json_real(j, "seconds_per_step", s->dt_s);
    put_bounds(j, "action_low", s->act_low, s->n_act);
    put_bounds(j, "action_high", s->act_high, s->n_act);
    json_open(j, "info", '[');
    for (i = 0; i < s->n_info_key; i++) {
        json_open(j, NULL, '{');
        json_str(j, "name", s->info[i].name);
        json_int(j, "numbers", s->info[i].n);
        json_bool(j, "on_reset", s->info[i].on_reset);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_open(j, "fields", '[');
    for (i = 0; i < s->n_field; i++) {
        json_open(j, NULL, '{');
        json_str(j, "name", s->fields[i].name);
        json_int(j, "offset", s->fields[i].offset);
        json_int(j, "numbers", s->fields[i].n);
        json_close(j, '}');
    }
    json_close(j, ']');
    put_kwargs(j, s->task->kwargs);
}

static enum status print_text(struct json *j)
{
    const char *text = json_text(j);

    if (!text)
        return ST_NOMEM;
    puts(text);
    return ST_OK;
}

static void limit_text(const struct scene *s, char *buf, size_t size)
{
    if (time_limit(s) > 0)
        snprintf(buf, size, "%lld", (long long)time_limit(s));
    else
        snprintf(buf, size, "none");
}

static void list_suite(struct json *j, const struct scene_task *task, bool json)
{
    char name[SCENE_NAME_MAX];
    int i;

    for (i = 0; i < task->n_member; i++) {
        const struct scene_member *m = &task->members[i];

        if (!json) {
            printf("%-3d %s/%-3d %5lld  %s\n", i, task->name, i, (long long)m->horizon,
                   m->instruction);
            continue;
        }
        snprintf(name, sizeof name, "%s/%d", task->name, i);
        json_open(j, NULL, '{');
        json_int(j, "id", i);
        json_str(j, "name", name);
        json_str(j, "file", m->file);
        json_str(j, "instruction", m->instruction);
        json_int(j, "horizon", m->horizon);
        json_close(j, '}');
    }
}

static enum status list_task(struct json *j, const char *name, bool json)
{
    struct scene *s;
    char limit[24];

    TRY(scene_create(&s, name, ""));
    limit_text(s, limit, sizeof limit);
    if (json) {
        json_open(j, NULL, '{');
        put_scene(j, s);
        json_close(j, '}');
    } else {
        printf("%-28s %5d %5d %6s  %s\n", s->name, s->n_obs, s->n_act, limit, s->instruction);
    }
    scene_destroy(s);
    return ST_OK;
}

static enum status list(struct json *j, bool json)
{
    const struct scene_task *task;
    int i;

    if (!json)
        printf("%-28s %5s %5s %6s  %s\n", "task", "obs", "act", "limit", "what it asks for");
    for (i = 0; (task = scene_task_at(i)); i++)
        if (!task->members)
            TRY(list_task(j, task->name, json));
    if (!json)
        printf("\n%-28s %5s\n", "suite", "tasks");
    for (i = 0; (task = scene_task_at(i)); i++) {
        if (!task->members)
            continue;
        if (!json) {
            printf("%-28s %5d  %s/0 to %s/%d\n", task->name, task->n_member, task->name, task->name,
                   task->n_member - 1);
            continue;
        }
        json_open(j, NULL, '{');
        json_str(j, "suite", task->name);
        json_int(j, "tasks", task->n_member);
        json_close(j, '}');
    }
    if (!json)
        printf("\n'simstream tasks NAME' explains a task's keyword arguments, 'simstream tasks "
               "--suite=NAME' lists a suite's tasks.\n");
    return ST_OK;
}

static void describe_fields(const struct scene *s)
{
    int i;

    for (i = 0; i < s->n_field; i++)
        printf("  %5d..%-5d  %s\n", s->fields[i].offset, s->fields[i].offset + s->fields[i].n - 1,
               s->fields[i].name);
}

static void describe(const struct scene *s)
{
    const struct opt *o;
    char limit[24];
    int i, width = 0;

    limit_text(s, limit, sizeof limit);
    printf("%s: %s\n\n", s->name, s->instruction);
    printf("observations  %d float64\n", s->n_obs);
    describe_fields(s);
    printf("actions       %d float32 in", s->n_act);
    for (i = 0; i < s->n_act; i++)
        printf(" [%g, %g]", (double)s->act_low[i], (double)s->act_high[i]);
    printf("\nstep          %g s\ntime limit    %s steps\ninfo         ", s->dt_s, limit);
    for (i = 0; i < s->n_info_key; i++)
        printf(" %s(%d)", s->info[i].name, s->info[i].n);
    printf("\n\nkeyword arguments, as in --kwargs='{\"%s\": %s}':\n", s->task->kwargs[1].name,
           s->task->kwargs[1].def);
    for (o = s->task->kwargs; o->name; o++)
        width = (int)strlen(o->name) > width ? (int)strlen(o->name) : width;
    for (o = s->task->kwargs; o->name; o++)
        printf("  %-*s  %s [%s]\n", width, o->name, o->help, o->def);
}

static enum status one(struct json *j, const char *name, bool json)
{
    struct scene *s;

    TRY(scene_create(&s, name, ""));
    if (json) {
        json_open(j, NULL, '{');
        put_scene(j, s);
        put_details(j, s);
        json_close(j, '}');
    } else {
        describe(s);
    }
    scene_destroy(s);
    return ST_OK;
}

static enum status print_tasks(struct json *j, const struct tasks_options *o, const char *name)
{
    const struct scene_task *suite = NULL;
    enum status st = ST_OK;

    if (o->suite[0])
        TRY(scene_suite_find(&suite, o->suite));
    if (suite && name)
        return FAIL(ST_INVAL, "--suite and a task's name do not go together");
    if (name)
        return one(j, name, o->json);
    if (o->json)
        json_open(j, NULL, '[');
    if (suite)
        list_suite(j, suite, o->json);
    else
        st = list(j, o->json);
    if (o->json)
        json_close(j, ']');
    return st;
}

int cmd_tasks(int argc, char **argv)
{
    struct tasks_options o;
    struct json j;
    enum status st;
    int n_word,
        code = cmd_begin(table, &o, "tasks [NAME | --suite=NAME] [--json]", argc, argv, 1, &n_word);

    if (code >= 0)
        return code;
    json_init(&j);
    st = print_tasks(&j, &o, n_word == 1 ? argv[0] : NULL);
    if (st == ST_OK && o.json)
        st = print_text(&j);
    json_fini(&j);
    return st == ST_OK ? EXIT_DONE : cmd_fail(st);
}
