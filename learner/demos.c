#include "learner/demos.h"

#include "common/base/config.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "nn/h5file.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#define STILL     0.01 // an action number that moves less keeps its unit
#define STD_LEAST 1e-4 // of a state's number that does not move: metres, radians

struct demo {
    int file, i_instruction;
    int64_t number; // of its name
    int64_t n;      // samples
    int64_t first;  // its first sample
    float *action;  // (n, n_action)
    double *state;  // (n, VLA_STATE)
};

struct file {
    char path[PATH_MAX];
    struct h5file *h5;
    struct {
        char key[SPEC_NAME_MAX + 8]; // "obs/agentview_rgb"
        int64_t height, width;
        struct vla_shrink shrink;
    } camera[VLA_CAMERAS_MAX];
};

struct demos {
    struct demos_config cfg;
    struct demos_info info;
    struct vla_camera camera[VLA_CAMERAS_MAX];
    int n_camera;
    struct file *files; // (n_file)
    struct demo *demos; // (n_demo)
    int64_t cap;
    char **instructions; // (n_instruction)
    size_t picture_bytes;
    uint8_t *cache;  // (n_slot, picture_bytes)
    int64_t *cached; // (n_slot) sample * n_camera + camera + 1; 0 = nothing
    int64_t n_slot;
    uint8_t *raw; // a picture as it is in a file
    size_t raw_bytes;
};

// ------------------------------------------------------------------ names

// Call fn for each part of a list with commas.
static enum status each_part(const char *list, enum status (*fn)(struct demos *, const char *),
                             struct demos *d)
{
    char part[PATH_MAX];
    const char *p = list;

    do {
        size_t n = strcspn(p, ",");

        if (n == 0 || n >= sizeof part)
            return FAIL(ST_INVAL, "'%.80s': expected names with commas between", list);
        memcpy(part, p, n);
        part[n] = '\0';
        TRY(fn(d, part));
        p += n;
    } while (*p++ == ',');
    return ST_OK;
}

static enum status add_camera(struct demos *d, const char *name)
{
    if (d->n_camera == VLA_CAMERAS_MAX || strlen(name) >= SPEC_NAME_MAX)
        return FAIL(ST_INVAL, "camera '%.80s': more than %d, or its name is too long", name,
                    VLA_CAMERAS_MAX);
    snprintf(d->camera[d->n_camera++].picture, SPEC_NAME_MAX, "%s", name);
    return ST_OK;
}

// LIBERO's name of a picture, as evaluation/record.c writes it.
static void libero_key(char *out, size_t size, const char *picture)
{
    static const char robot[] = "robot0_", image[] = "_image";
    size_t n;

    if (strncmp(picture, robot, strlen(robot)) == 0)
        picture += strlen(robot);
    n = strlen(picture);
    if (n > strlen(image) && strcmp(picture + n - strlen(image), image) == 0)
        snprintf(out, size, "%.*s_rgb", (int)(n - strlen(image)), picture);
    else
        snprintf(out, size, "%s", picture);
}

static enum status name_in(const struct demo *demo, const char *name, char *out, size_t size)
{
    if ((size_t)snprintf(out, size, "data/demo_%lld/%s", (long long)demo->number, name) >= size)
        return FAIL(ST_INVAL, "dataset name '%.60s...' is too long", name);
    return ST_OK;
}

// ------------------------------------------------------------------ a file

// The instruction of `problem_info`, into `out`.
static bool find_instruction(const char *info, char *out, size_t size)
{
    cJSON *j = config_parse(info);
    const char *text =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, "language_instruction"));
    bool found = text && text[0] && strlen(text) < size;

    if (found)
        memcpy(out, text, strlen(text) + 1);
    cJSON_Delete(j);
    return found;
}

static enum status take_instruction(struct demos *d, const char *text, int *number)
{
    char **more;
    int i;

    for (i = 0; i < d->info.n_instruction; i++)
        if (strcmp(d->instructions[i], text) == 0) {
            *number = i;
            return ST_OK;
        }
    more = mem_resize(d->instructions, (size_t)i + 1, sizeof more[0]);
    if (!more)
        return ST_NOMEM;
    d->instructions = more;
    more[i] = mem_strdup(text);
    if (!more[i])
        return ST_NOMEM;
    *number = i;
    d->info.n_instruction++;
    return ST_OK;
}

static enum status get_text_if(struct h5file *f, const char *name, char *out, size_t size)
{
    out[0] = '\0';
    return h5file_has_attr(f, name) ? h5file_get_text(f, name, out, size) : ST_OK;
}

// Of a task's keyword arguments those that determine its pictures.
static enum status keep_pictures(struct demos *d, const char *kwargs)
{
    static const char *const names[] = {"cameras", "image_size", "image_orientation",
                                        "render_samples", "render_fast"};
    cJSON *j = config_parse(kwargs);
    enum status st = ST_OK;
    struct json out;

    json_init(&out);
    json_open(&out, NULL, '{');
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(j, names[i]);

        if (cJSON_IsString(value))
            json_str(&out, names[i], value->valuestring);
        else if (cJSON_IsNumber(value))
            json_int(&out, names[i], (int64_t)value->valuedouble);
        else if (cJSON_IsBool(value))
            json_bool(&out, names[i], cJSON_IsTrue(value));
    }
    json_close(&out, '}');
    if (json_text(&out))
        snprintf(d->info.kwargs, sizeof d->info.kwargs, "%s", json_text(&out));
    else
        st = ST_NOMEM;
    json_fini(&out);
    cJSON_Delete(j);
    return st;
}

static enum status read_header(struct demos *d, struct file *file, int *i_instruction,
                               uint32_t *orient)
{
    static const char *const orients[] = {"opengl", "upright", "rot180"};
    char info[DEMOS_TEXT_MAX], text[DEMOS_TEXT_MAX];

    TRY(h5file_at(file->h5, "data"));
    TRY(get_text_if(file->h5, "problem_info", info, sizeof info));
    if (!find_instruction(info, text, sizeof text))
        return FAIL(ST_INVAL,
                    "'%s': attribute 'problem_info' of 'data' has no language_instruction",
                    file->path);
    TRY(take_instruction(d, text, i_instruction));
    TRY(get_text_if(file->h5, "image_orientation", text, sizeof text));
    for (*orient = 0; *orient < 3 && text[0] && strcmp(text, orients[*orient]) != 0; ++*orient)
        ;
    if (*orient == 3)
        return FAIL(ST_INVAL,
                    "'%s': image_orientation is '%.40s', expected opengl, upright or "
                    "rot180",
                    file->path, text);
    if (d->info.n_file > 0)
        return ST_OK;
    TRY(get_text_if(file->h5, "task", d->info.task, sizeof d->info.task));
    TRY(get_text_if(file->h5, "kwargs", text, sizeof text));
    return keep_pictures(d, text);
}

// Find a camera's pictures in a demo, and how they become the policy's.
static enum status find_pictures(struct demos *d, struct file *file, const struct demo *demo, int k,
                                 uint32_t orient)
{
    char key[SPEC_NAME_MAX + 8], libero[SPEC_NAME_MAX + 8], name[160];
    int64_t sizes[4];

    libero_key(libero, sizeof libero, d->camera[k].picture);
    snprintf(key, sizeof key, "obs/%.*s", SPEC_NAME_MAX - 1, libero);
    TRY(name_in(demo, key, name, sizeof name));
    if (!h5file_has(file->h5, name)) {
        snprintf(key, sizeof key, "obs/%.*s", SPEC_NAME_MAX - 1, d->camera[k].picture);
        TRY(name_in(demo, key, name, sizeof name));
    }
    if (!h5file_has(file->h5, name))
        return FAIL(ST_INVAL, "'%s': demo_%lld has neither obs/%s nor %s", file->path,
                    (long long)demo->number, libero, key);
    TRY(h5file_frames_shape(file->h5, name, sizes));
    if (sizes[3] != 3)
        return FAIL(ST_INVAL, "'%s': dataset '%s' has %lld channels, expected 3", file->path, name,
                    (long long)sizes[3]);
    snprintf(file->camera[k].key, sizeof file->camera[k].key, "%s", key);
    file->camera[k].height = sizes[1];
    file->camera[k].width = sizes[2];
    if ((size_t)(sizes[1] * sizes[2] * 3) > d->raw_bytes)
        d->raw_bytes = (size_t)(sizes[1] * sizes[2] * 3);
    if (d->info.n_file == 0)
        d->camera[k].orient = orient;
    if (vla_shrink_init(&file->camera[k].shrink, d->cfg.image, sizes[1], sizes[2], orient,
                        d->camera[k].orient) != ST_OK)
        return error_prefix("'%s': dataset '%s'", file->path, name);
    return ST_OK;
}

// The first of two names that is there.
static enum status choose(const struct file *file, const struct demo *demo, const char *first,
                          const char *second, char *out, size_t size, bool *is_second)
{
    TRY(name_in(demo, first, out, size));
    *is_second = !h5file_has(file->h5, out);
    if (!*is_second)
        return ST_OK;
    TRY(name_in(demo, second, out, size));
    if (!h5file_has(file->h5, out))
        return FAIL(ST_INVAL, "'%s': demo_%lld has neither %s nor %s", file->path,
                    (long long)demo->number, first, second);
    return ST_OK;
}

// One part of the state, (rows, cols), into columns from `at` of demo->state.
static enum status read_part(const struct file *file, struct demo *demo, const char *name,
                             int64_t rows, int cols, int at, bool quaternion)
{
    float *x = mem_alloc((size_t)rows * (size_t)cols, sizeof x[0]);
    enum status st = x ? h5file_get_floats(file->h5, name, rows, cols, x) : ST_NOMEM;

    for (int64_t t = 0; st == ST_OK && t < demo->n; t++) {
        double *out = demo->state + t * VLA_STATE + at, wide[4] = {0};

        for (int k = 0; k < cols; k++)
            wide[k] = x[t * cols + k];
        if (quaternion)
            vla_input_turn(wide, out);
        else
            memcpy(out, wide, (size_t)cols * sizeof out[0]);
        if (at == 3)
            vla_input_turn_choose(out);
    }
    mem_free(x);
    return st;
}

static enum status read_states(const struct file *file, struct demo *demo, int64_t rows)
{
    char name[160];
    bool second;

    demo->state = mem_alloc((size_t)demo->n * VLA_STATE, sizeof demo->state[0]);
    if (!demo->state)
        return ST_NOMEM;
    TRY(choose(file, demo, "obs/ee_pos", "obs/robot0_eef_pos", name, sizeof name, &second));
    TRY(read_part(file, demo, name, rows, 3, 0, false));
    TRY(choose(file, demo, "obs/ee_ori", "obs/robot0_eef_quat", name, sizeof name, &second));
    TRY(read_part(file, demo, name, rows, second ? 4 : 3, 3, second));
    TRY(choose(file, demo, "obs/gripper_states", "obs/robot0_gripper_qpos", name, sizeof name,
               &second));
    return read_part(file, demo, name, rows, 2, 6, false);
}

static enum status read_actions(struct demos *d, struct file *file, struct demo *demo, bool post,
                                int64_t *rows)
{
    int64_t cols;
    char name[160];
    float *all;
    enum status st;

    TRY(name_in(demo, "actions", name, sizeof name));
    TRY(h5file_shape(file->h5, name, rows, &cols));
    if (*rows < 1 + post || cols < 1 || cols > SPEC_ACT_MAX ||
        (d->info.n_action > 0 && cols != d->info.n_action) ||
        *rows > DEMOS_STEPS_MAX - d->info.n_sample)
        return FAIL(ST_INVAL,
                    "'%s': dataset '%s' is (%lld, %lld), expected %d rows or more of as many "
                    "numbers as in other demos, and at most %d rows in all",
                    file->path, name, (long long)*rows, (long long)cols, 1 + post, DEMOS_STEPS_MAX);
    d->info.n_action = (int)cols;
    demo->n = *rows - post;
    all = mem_alloc((size_t)(*rows * cols), sizeof all[0]);
    demo->action = mem_alloc((size_t)(demo->n * cols), sizeof demo->action[0]);
    st = all && demo->action ? h5file_get_floats(file->h5, name, *rows, cols, all) : ST_NOMEM;
    if (st == ST_OK)
        memcpy(demo->action, all + (post ? cols : 0),
               (size_t)(demo->n * cols) * sizeof demo->action[0]);
    mem_free(all);
    return st;
}

// *keep: it is no failure.
static enum status read_attributes(const struct file *file, const struct demo *demo, bool *keep,
                                   bool *post)
{
    int64_t success = 1;
    char group[64], align[16] = "";

    TRY(name_in(demo, "", group, sizeof group));
    TRY(h5file_at(file->h5, group));
    if (h5file_has_attr(file->h5, "success"))
        TRY(h5file_get_int(file->h5, "success", 0, 1, &success));
    TRY(get_text_if(file->h5, "obs_alignment", align, sizeof align));
    if (align[0] && strcmp(align, "pre") != 0 && strcmp(align, "post") != 0)
        return FAIL(ST_INVAL, "'%s': obs_alignment of demo_%lld is '%s', expected pre or post",
                    file->path, (long long)demo->number, align);
    *post = strcmp(align, "post") == 0;
    *keep = success == 1;
    return ST_OK;
}

static struct demo *new_demo(struct demos *d)
{
    if (d->info.n_demo == d->cap) {
        int64_t cap = d->cap > 0 ? 2 * d->cap : 16;
        struct demo *more = mem_resize(d->demos, (size_t)cap, sizeof more[0]);

        if (!more)
            return NULL;
        d->demos = more;
        d->cap = cap;
    }
    return &d->demos[d->info.n_demo];
}

static enum status read_demo(struct demos *d, struct file *file, int64_t number, int i_instruction,
                             uint32_t orient, bool first)
{
    struct demo *demo = new_demo(d);
    int64_t rows, sizes[4];
    bool keep, post;
    char name[160];

    if (!demo)
        return ST_NOMEM;
    *demo = (struct demo){.file = (int)(file - d->files),
                          .number = number,
                          .i_instruction = i_instruction,
                          .first = d->info.n_sample};
    TRY(read_attributes(file, demo, &keep, &post));
    if (!keep)
        return ST_OK;
    d->info.n_demo++; // from here on demos_close frees it
    TRY(read_actions(d, file, demo, post, &rows));
    TRY(read_states(file, demo, rows));
    for (int k = 0; k < d->n_camera; k++) {
        if (first)
            TRY(find_pictures(d, file, demo, k, orient));
        TRY(name_in(demo, file->camera[k].key, name, sizeof name));
        TRY(h5file_frames_shape(file->h5, name, sizes));
        if (sizes[0] != rows || sizes[1] != file->camera[k].height ||
            sizes[2] != file->camera[k].width || sizes[3] != 3)
            return FAIL(ST_INVAL, "'%s': dataset '%s' is not of %lld pictures as in other demos",
                        file->path, name, (long long)rows);
    }
    d->info.n_sample += demo->n;
    if (d->info.n_demo == 1 || demo->n < d->info.shortest)
        d->info.shortest = demo->n;
    if (demo->n > d->info.longest)
        d->info.longest = demo->n;
    return ST_OK;
}

// Numbers of the demos of a file.
struct numbers {
    int64_t *number; // (n)
    int64_t n;
};

static enum status note_number(void *arg, const char *name)
{
    struct numbers *all = arg;
    int64_t *more;
    char *end;
    long long number;

    if (strncmp(name, "demo_", 5) != 0 || name[5] < '0' || name[5] > '9')
        return ST_OK;
    number = strtoll(name + 5, &end, 10);
    if (*end || number >= LLONG_MAX)
        return ST_OK;
    if ((all->n & (all->n - 1)) == 0) { // 0 and the powers of two
        more = mem_resize(all->number, (size_t)(all->n > 0 ? 2 * all->n : 1), sizeof more[0]);
        if (!more)
            return ST_NOMEM;
        all->number = more;
    }
    all->number[all->n++] = number;
    return ST_OK;
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static enum status read_demos(struct demos *d, struct file *file, const struct numbers *all)
{
    int64_t before = d->info.n_demo, most = d->cfg.demos_per_file;
    int i_instruction;
    uint32_t orient;

    TRY(read_header(d, file, &i_instruction, &orient));
    if (all->n > 0)
        qsort(all->number, (size_t)all->n, sizeof all->number[0], by_number);
    for (int64_t i = 0; i < all->n && (most == 0 || d->info.n_demo - before < most); i++)
        TRY(read_demo(d, file, all->number[i], i_instruction, orient, d->info.n_demo == before));
    if (d->info.n_demo == before)
        return FAIL(ST_INVAL, "'%s' has no successful demos, expected data/demo_0 and so on",
                    file->path);
    return ST_OK;
}

static enum status add_file(struct demos *d, const char *path)
{
    struct file *file = &d->files[d->info.n_file];
    struct numbers all = {0};
    enum status st;

    if (d->info.n_file == DEMOS_FILES_MAX)
        return FAIL(ST_INVAL, "more than %d files of demonstrations", DEMOS_FILES_MAX);
    snprintf(file->path, sizeof file->path, "%s", path);
    TRY(h5file_open_large(&file->h5, path));
    st = h5file_each(file->h5, "data", note_number, &all);
    if (st == ST_OK)
        st = read_demos(d, file, &all);
    mem_free(all.number);
    TRY(st);
    d->info.n_file++;
    return ST_OK;
}

// ------------------------------------------------------------------ all

static enum status make_cache(struct demos *d)
{
    int64_t all = d->info.n_sample * d->n_camera;

    d->picture_bytes = 3 * (size_t)d->cfg.image * (size_t)d->cfg.image;
    d->n_slot = d->cfg.memory_bytes / (int64_t)d->picture_bytes;
    if (d->n_slot > all)
        d->n_slot = all;
    if (d->n_slot < 1)
        d->n_slot = 1;
    d->cache = mem_alloc((size_t)d->n_slot, d->picture_bytes);
    d->cached = mem_alloc((size_t)d->n_slot, sizeof d->cached[0]);
    d->raw = mem_alloc(d->raw_bytes, 1);
    return d->cache && d->cached && d->raw ? ST_OK : ST_NOMEM;
}

static enum status build(struct demos *d)
{
    d->files = mem_alloc(DEMOS_FILES_MAX, sizeof d->files[0]);
    if (!d->files)
        return ST_NOMEM;
    if (d->cfg.image < 1 || d->cfg.chunk < 1)
        return FAIL(ST_INVAL, "pictures of %d pixels and chunks of %d, expected 1 or more",
                    d->cfg.image, d->cfg.chunk);
    TRY(each_part(d->cfg.cameras, add_camera, d));
    TRY(each_part(d->cfg.files, add_file, d));
    return make_cache(d);
}

enum status demos_open(struct demos **out, const struct demos_config *cfg)
{
    struct demos *d = mem_alloc(1, sizeof *d);
    enum status st;

    if (!d)
        return ST_NOMEM;
    d->cfg = *cfg;
    st = build(d);
    if (st != ST_OK) {
        demos_close(d);
        return st;
    }
    d->cfg.files = d->cfg.cameras = NULL;
    *out = d;
    return ST_OK;
}

void demos_close(struct demos *d)
{
    if (!d)
        return;
    for (int i = 0; d->files && i < DEMOS_FILES_MAX; i++)
        h5file_close(d->files[i].h5);
    for (int64_t i = 0; i < d->info.n_demo; i++) {
        mem_free(d->demos[i].action);
        mem_free(d->demos[i].state);
    }
    for (int i = 0; i < d->info.n_instruction; i++)
        mem_free(d->instructions[i]);
    mem_free(d->instructions);
    mem_free(d->files);
    mem_free(d->demos);
    mem_free(d->cache);
    mem_free(d->cached);
    mem_free(d->raw);
    mem_free(d);
}

const struct demos_info *demos_info(const struct demos *d)
{
    return &d->info;
}

const char *demos_instruction(const struct demos *d, int i)
{
    return d->instructions[i];
}

int64_t demos_length(const struct demos *d, int64_t demo)
{
    return d->demos[demo].n;
}

static const struct demo *demo_of(const struct demos *d, int64_t sample)
{
    int64_t low = 0, high = d->info.n_demo - 1;

    while (low < high) { // the last that begins at or before the sample
        int64_t mid = (low + high + 1) / 2;

        if (d->demos[mid].first <= sample)
            low = mid;
        else
            high = mid - 1;
    }
    return &d->demos[low];
}

void demos_at(const struct demos *d, int64_t sample, struct demos_sample *out)
{
    const struct demo *demo = demo_of(d, sample);
    int64_t t = sample - demo->first, left = demo->n - t;

    out->instruction = d->instructions[demo->i_instruction];
    out->i_instruction = demo->i_instruction;
    memcpy(out->state, demo->state + t * VLA_STATE, sizeof out->state);
    out->action = demo->action + t * d->info.n_action;
    out->n_real = left < d->cfg.chunk ? (int)left : d->cfg.chunk;
}

enum status demos_picture(struct demos *d, int64_t sample, int camera, uint8_t *out)
{
    int64_t key = sample * d->n_camera + camera, slot = key % d->n_slot;
    uint8_t *kept = d->cache + (size_t)slot * d->picture_bytes;

    if (d->cached[slot] != key + 1) {
        const struct demo *demo = demo_of(d, sample);
        const struct file *file = &d->files[demo->file];
        char name[160];
        int64_t sizes[4];

        d->cached[slot] = 0;
        TRY(name_in(demo, file->camera[camera].key, name, sizeof name));
        TRY(h5file_frames_shape(file->h5, name, sizes));
        TRY(h5file_get_frames(file->h5, name, sizes, sample - demo->first, 1, d->raw));
        vla_shrink(&file->camera[camera].shrink, d->raw, kept);
        d->cached[slot] = key + 1;
    }
    memcpy(out, kept, d->picture_bytes);
    return ST_OK;
}

void demos_shuffle(int32_t *order, int n, uint64_t seed, uint64_t epoch)
{
    struct rng r = rng_make(seed, RNG_SHUFFLE, 0, epoch, 0);

    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)rng_below(&r, (uint32_t)i + 1);
        int32_t swap = order[i];

        order[i] = order[k];
        order[k] = swap;
    }
}

// ------------------------------------------------------------------ scales

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

// numpy's quantile of sorted numbers: linear between the two nearest.
static double quantile(const float *sorted, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t low = (int64_t)at, high = low + 1 < n ? low + 1 : low;

    return sorted[low] + (at - (double)low) * ((double)sorted[high] - sorted[low]);
}

static enum status action_scales(const struct demos *d, struct vla_input *out)
{
    float *column = mem_alloc((size_t)d->info.n_sample, sizeof column[0]);
    int n_action = d->info.n_action;

    if (!column)
        return ST_NOMEM;
    for (int k = 0; k < n_action - 1; k++) {
        int64_t n = 0;
        double low, high;

        for (int64_t i = 0; i < d->info.n_demo; i++)
            for (int64_t t = 0; t < d->demos[i].n; t++)
                column[n++] = d->demos[i].action[t * n_action + k];
        qsort(column, (size_t)n, sizeof column[0], by_value);
        low = quantile(column, n, 0.01);
        high = quantile(column, n, 0.99);
        if (high - low < STILL) {
            out->action_low[k] = (low + high) / 2 - 1;
            out->action_high[k] = (low + high) / 2 + 1;
        } else {
            out->action_low[k] = low;
            out->action_high[k] = high;
        }
    }
    mem_free(column);
    return ST_OK;
}

static void state_scales(const struct demos *d, struct vla_input *out)
{
    double n = (double)d->info.n_sample;

    for (int k = 0; k < VLA_STATE; k++) {
        double sum = 0, square = 0;

        for (int64_t i = 0; i < d->info.n_demo; i++)
            for (int64_t t = 0; t < d->demos[i].n; t++)
                sum += d->demos[i].state[t * VLA_STATE + k];
        for (int64_t i = 0; i < d->info.n_demo; i++)
            for (int64_t t = 0; t < d->demos[i].n; t++) {
                double x = d->demos[i].state[t * VLA_STATE + k] - sum / n;

                square += x * x;
            }
        out->state_mean[k] = sum / n;
        out->state_std[k] = fmax(sqrt(square / n), STD_LEAST);
    }
}

enum status demos_input(const struct demos *d, bool plain, struct vla_input *out)
{
    memset(out, 0, sizeof *out);
    out->n_camera = d->n_camera;
    memcpy(out->camera, d->camera, sizeof out->camera);
    out->n_action = d->info.n_action;
    for (int k = 0; k < d->info.n_action; k++) {
        out->action_low[k] = -1;
        out->action_high[k] = 1;
    }
    state_scales(d, out);
    if (!plain)
        TRY(action_scales(d, out));
    return vla_input_check(out);
}
