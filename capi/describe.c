#include "capi/describe.h"

#include "scenes/scene.h"

#include <stddef.h>

#define HEAD(field, dtype) part(j, #field, offsetof(struct row_head, field), dtype, 0)

// One part of a row; `shape` ends with 0.
static void shaped(struct json *j, const char *name, size_t offset, const char *dtype,
                   const int *shape)
{
    json_open(j, NULL, '{');
    json_str(j, "name", name);
    json_int(j, "offset", (int64_t)offset);
    json_str(j, "dtype", dtype);
    json_open(j, "shape", '[');
    for (; *shape > 0; shape++)
        json_int(j, NULL, *shape);
    json_close(j, ']');
    json_close(j, '}');
}

// n = 0 is a single number.
static void part(struct json *j, const char *name, size_t offset, const char *dtype, int n)
{
    shaped(j, name, offset, dtype, (int[]){n, 0});
}

static void picture_parts(struct json *j, const struct spec *spec, const char *prefix, size_t block)
{
    static const char *const types[SPEC_PLANES] = {"|u1", "<f4", "<i4"};
    static const int numbers[SPEC_PLANES] = {3, 0, 2};
    char name[2 * SPEC_NAME_MAX];
    int i;

    for (i = 0; i < spec->n_picture; i++) {
        const struct spec_picture *p = &spec->pictures[i];

        snprintf(name, sizeof name, "%s.%s", prefix, p->name);
        shaped(j, name, block + p->offset, types[p->plane],
               (int[]){(int)p->height, (int)p->width, numbers[p->plane], 0});
    }
}

static void pictures(struct json *j, const struct spec *spec)
{
    static const char *const orientations[] = {"opengl", "upright", "rot180"};
    int i;

    json_open(j, "pictures", '[');
    for (i = 0; i < spec->n_picture; i++) {
        const struct spec_picture *p = &spec->pictures[i];

        json_open(j, NULL, '{');
        json_str(j, "name", p->name);
        json_str(j, "camera", p->camera);
        json_str(j, "plane", spec_plane_name((enum spec_plane)p->plane));
        json_int(j, "width", p->width);
        json_int(j, "height", p->height);
        json_str(j, "orientation", orientations[p->orient]);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void info_parts(struct json *j, const struct spec *spec, const char *prefix, size_t offset)
{
    char name[2 * SPEC_NAME_MAX];
    int i;

    for (i = 0; i < spec->n_info_key; i++) {
        int n = spec->info[i].n;

        snprintf(name, sizeof name, "%s.%s", prefix, spec->info[i].name);
        part(j, name, offset, "<f8", n > 1 ? n : 0);
        offset += (size_t)n * sizeof(double);
    }
}

static void row(struct json *j, const struct spec *spec, const struct row_layout *layout)
{
    HEAD(env, "<u4");
    HEAD(flags, "<u4");
    HEAD(seed, "<u8");
    HEAD(stream, "<u8");
    HEAD(episode, "<u8");
    HEAD(episode_return, "<f8");
    HEAD(elapsed, "<u4");
    HEAD(n_sub, "<u4");
    HEAD(error, "<u4");
    part(j, "reward", layout->reward, "<f8", layout->k_max > 1 ? layout->k_max : 0);
    part(j, "obs", layout->obs, "<f8", spec->n_obs);
    if (layout->info)
        info_parts(j, spec, "info", layout->info);
    if (layout->final_obs)
        part(j, "final_obs", layout->final_obs, "<f8", spec->n_obs);
    if (layout->final_info)
        info_parts(j, spec, "final_info", layout->final_info);
    picture_parts(j, spec, "picture", layout->pictures);
    if (layout->final_pictures)
        picture_parts(j, spec, "final_picture", layout->final_pictures);
}

// What the task asks for, if this library knows it.
static const char *instruction(const char *name)
{
    int member = 0;
    const struct scene_task *task = scene_task_find(name, &member);

    if (task && task->n_member > 0)
        return task->members[member].instruction;
    return task && task->instruction ? task->instruction : "";
}

static void task(struct json *j, const struct spec *spec)
{
    int i;

    json_str(j, "task", spec->task);
    json_str(j, "engine", spec->engine);
    json_str(j, "instruction", instruction(spec->task));
    json_int(j, "n_obs", spec->n_obs);
    json_int(j, "n_act", spec->n_act);
    json_open(j, "act_low", '[');
    for (i = 0; i < spec->n_act; i++)
        json_real(j, NULL, (double)spec->act_low[i]);
    json_close(j, ']');
    json_open(j, "act_high", '[');
    for (i = 0; i < spec->n_act; i++)
        json_real(j, NULL, (double)spec->act_high[i]);
    json_close(j, ']');
    json_int(j, "max_episode_steps", spec->max_episode_steps);
    json_real(j, "dt_s", spec->dt_s);
    json_bool(j, "has_success", spec->has_success);
}

void describe(struct json *j, const struct spec *spec, const struct row_layout *layout,
              const struct describe_settings *settings)
{
    int i;

    json_open(j, NULL, '{');
    task(j, spec);
    json_int(j, "autoreset", settings->autoreset);
    json_int(j, "n_env", settings->n_env);
    json_int(j, "b_max", settings->b_max);
    json_open(j, "env", '[');
    for (i = 0; i < settings->n_env; i++)
        json_int(j, NULL, settings->env[i]);
    json_close(j, ']');
    json_int(j, "stride", layout->stride);
    json_open(j, "row", '[');
    row(j, spec, layout);
    json_close(j, ']');
    json_open(j, "info", '[');
    for (i = 0; i < spec->n_info_key; i++) {
        json_open(j, NULL, '{');
        json_str(j, "name", spec->info[i].name);
        json_bool(j, "on_reset", spec->info[i].on_reset);
        json_close(j, '}');
    }
    json_close(j, ']');
    pictures(j, spec);
    json_close(j, '}');
}
