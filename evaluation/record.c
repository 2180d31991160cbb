// A take is one array: the fixtures' poses, then a row an observation, then nothing; action and
// success of row t are those of action t, so the last row has none.
#include "evaluation/record.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/thread.h"
#include "nn/h5file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef SIMSTREAM_VERSION
#define SIMSTREAM_VERSION "unknown"
#endif

#define WAIT_BYTES   ((size_t)256 << 20)
#define LABEL_BYTES  16 // "demo_123" in a mask
#define NUMBER_BYTES 32 // a number as text

// Parts of a row. The first ones are copied from fields of the observation.
enum part {
    STATE,
    GRIPPER,
    POS,
    QUAT,
    JOINT,
    N_COPIED,
    ORI = N_COPIED,
    ACTION,
    SUCCESS,
    PICTURES, // bytes, as many as fill its numbers
    N_PART
};

static const struct {
    const char *field;
    int n; // 0: any number
} sources[N_COPIED] = {
    [STATE] = {"sim_state", 0},        [GRIPPER] = {"robot0_gripper_qpos", 2},
    [POS] = {"robot0_eef_pos", 3},     [QUAT] = {"robot0_eef_quat", 4},
    [JOINT] = {"robot0_joint_pos", 7},
};

// Datasets of a demo, each of up to three parts side by side.
static const struct dataset {
    const char *name;
    int n_part;
    enum part part[3];
    bool observed; // moves with obs_alignment
} datasets[] = {
    {"actions", 1, {ACTION}, false},
    {"states", 1, {STATE}, false},
    {"robot_states", 3, {GRIPPER, POS, QUAT}, true},
    {"obs/gripper_states", 1, {GRIPPER}, true},
    {"obs/joint_states", 1, {JOINT}, true},
    {"obs/ee_states", 2, {POS, ORI}, true},
    {"obs/ee_pos", 1, {POS}, true},
    {"obs/ee_ori", 1, {ORI}, true},
};

struct layout {
    struct {
        int at, n, from; // in the row; in the observation
    } part[N_PART];
    int width;             // numbers of a row
    int n_pose, pose_from; // fixture_pose
    int n_picture;
    struct spec_picture pictures[SPEC_PICTURE_MAX];
};

struct take {
    const struct layout *layout; // the recorder's
    uint64_t start;
    int64_t n_row, cap;
    double *data; // (n_pose + cap * width)
};

struct slot { // a take that waits for its turn
    uint64_t start;
    int64_t n_row; // 0: none
    double *data;  // NULL: it is in the spill file
    int64_t offset;
    bool success;
};

struct recorder {
    struct record_about about;
    struct layout layout;
    char path[PATH_MAX];
    struct h5file *file;
    pthread_mutex_t mtx; // guards the five below
    struct slot *slots;  // (n_episode)
    size_t waiting;      // bytes in memory
    size_t bound;
    int64_t spilled; // bytes in the spill file
    int spill_fd;    // -1: none yet
    int64_t n_demo, total;
    char (*labels[2])[LABEL_BYTES]; // of failures and of successes
    int64_t n_label[2];
};

// ------------------------------------------------------------------ layout

static enum status make_layout(struct layout *l, const struct spec *spec)
{
    const struct spec_field *pose = spec_field_find(spec, "fixture_pose");
    int i;

    for (i = 0; i < N_COPIED; i++) {
        const struct spec_field *f = spec_field_find(spec, sources[i].field);

        if (!f || (sources[i].n > 0 && f->n != sources[i].n))
            return FAIL(ST_INVAL,
                        "recording needs '%s' in the observation, which %s does not give with "
                        "these keyword arguments",
                        sources[i].field, spec->task);
        l->part[i].n = f->n;
        l->part[i].from = f->offset;
    }
    l->part[ORI].n = 3;
    l->part[ACTION].n = spec->n_act;
    l->part[SUCCESS].n = 1;
    l->part[PICTURES].n = (int)(spec->picture_bytes / sizeof(double));
    l->n_picture = spec->n_picture;
    for (i = 0; i < l->n_picture; i++) {
        l->pictures[i] = spec->pictures[i];
        if (l->pictures[i].orient != l->pictures[0].orient)
            return FAIL(ST_INVAL,
                        "recording needs pictures that are all the same way up: '%s' and '%s' of "
                        "%s are not",
                        l->pictures[0].name, l->pictures[i].name, spec->task);
    }
    for (i = 0; i < N_PART; i++) {
        l->part[i].at = l->width;
        l->width += l->part[i].n;
    }
    l->n_pose = pose ? pose->n : 0;
    l->pose_from = pose ? pose->offset : 0;
    return ST_OK;
}

static size_t take_numbers(const struct layout *l, int64_t n_row)
{
    return (size_t)l->n_pose + (size_t)n_row * (size_t)l->width;
}

static double *row_of(const struct layout *l, double *data, int64_t t)
{
    return data + take_numbers(l, t);
}

// ------------------------------------------------------------------ takes

enum status recorder_begin(const struct recorder *r, struct take **take, uint64_t start)
{
    if (!*take)
        *take = mem_alloc(1, sizeof **take);
    if (!*take)
        return ST_NOMEM;
    (*take)->layout = &r->layout;
    (*take)->start = start;
    (*take)->n_row = 0;
    return ST_OK;
}

void take_free(struct take *take)
{
    if (take)
        mem_free(take->data);
    mem_free(take);
}

static enum status grow(struct take *take)
{
    int64_t cap = take->cap > 0 ? 2 * take->cap : 128;
    double *data;

    if (take->n_row < take->cap)
        return ST_OK;
    data = mem_resize(take->data, take_numbers(take->layout, cap), sizeof data[0]);
    if (!data)
        return ST_NOMEM;
    take->data = data;
    take->cap = cap;
    return ST_OK;
}

// x, y, z, w -> rotation vector, as robosuite's quat2axisangle.
static void axis_angle(double out[3], const double quat[4])
{
    double w = fmin(fmax(quat[3], -1), 1), den = sqrt(1 - w * w);
    int i;

    for (i = 0; i < 3; i++)
        out[i] = den == 0 ? 0 : quat[i] * 2 * acos(w) / den;
}

enum status take_observe(struct take *take, const double *obs, const uint8_t *pictures,
                         bool success)
{
    const struct layout *l = take->layout;
    double *row;
    int i;

    TRY(grow(take));
    if (take->n_row == 0)
        memcpy(take->data, obs + l->pose_from, (size_t)l->n_pose * sizeof obs[0]);
    else
        row_of(l, take->data, take->n_row - 1)[l->part[SUCCESS].at] = success;
    row = row_of(l, take->data, take->n_row++);
    for (i = 0; i < N_COPIED; i++)
        memcpy(row + l->part[i].at, obs + l->part[i].from, (size_t)l->part[i].n * sizeof obs[0]);
    axis_angle(row + l->part[ORI].at, row + l->part[QUAT].at);
    if (l->n_picture > 0)
        memcpy(row + l->part[PICTURES].at, pictures, (size_t)l->part[PICTURES].n * sizeof row[0]);
    return ST_OK;
}

void take_act(struct take *take, const float *action)
{
    const struct layout *l = take->layout;
    double *row = row_of(l, take->data, take->n_row - 1);
    int i;

    for (i = 0; i < l->part[ACTION].n; i++)
        row[l->part[ACTION].at + i] = action[i];
}

// ------------------------------------------------------------------ waiting

static enum status transfer(const struct recorder *r, struct slot *s, double *data, bool out)
{
    size_t n = take_numbers(&r->layout, s->n_row) * sizeof data[0], done = 0;

    while (done < n) {
        off_t at = (off_t)(s->offset + (int64_t)done);
        ssize_t k = out ? pwrite(r->spill_fd, (char *)data + done, n - done, at)
                        : pread(r->spill_fd, (char *)data + done, n - done, at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return FAIL_SYS(ST_IO, errno, "cannot %s '%s.spill'", out ? "write" : "read", r->path);
        if (k == 0)
            return FAIL(ST_IO, "'%s.spill' is too short", r->path);
        done += (size_t)k;
    }
    return ST_OK;
}

// To the file without a name; r->mtx held.
static enum status spill(struct recorder *r, struct slot *s, double *data)
{
    char name[PATH_MAX + 16];

    snprintf(name, sizeof name, "%s.spill", r->path);
    if (r->spill_fd < 0) {
        r->spill_fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (r->spill_fd < 0)
            return FAIL_SYS(ST_IO, errno, "cannot make '%s'", name);
        unlink(name); // it goes with the process
    }
    s->offset = r->spilled;
    TRY(transfer(r, s, data, true));
    r->spilled += (int64_t)(take_numbers(&r->layout, s->n_row) * sizeof data[0]);
    return ST_OK;
}

static enum status keep_locked(struct recorder *r, struct take *take, struct slot *s)
{
    size_t bytes = take_numbers(&r->layout, take->n_row) * sizeof(double);
    double *fit;

    s->start = take->start;
    s->n_row = take->n_row;
    if (r->waiting + bytes > r->bound)
        return spill(r, s, take->data);
    fit = mem_resize(take->data, bytes / sizeof(double), sizeof(double));
    s->data = fit ? fit : take->data;
    take->data = NULL;
    r->waiting += bytes;
    return ST_OK;
}

enum status recorder_keep(struct recorder *r, struct take **take,
                          const struct episode_result *result)
{
    enum status st = ST_OK;
    bool success = result->outcome == OUTCOME_SUCCESS;

    if (!*take || (*take)->n_row != result->length + 1)
        return FAIL(ST_INVAL, "episode %lld has %lld steps, %lld were recorded",
                    (long long)result->episode, (long long)result->length,
                    (long long)(*take ? (*take)->n_row - 1 : 0));
    if ((success || r->about.failures) && result->length > 0) {
        struct slot *s = &r->slots[result->episode];

        pthread_mutex_lock(&r->mtx);
        s->success = success;
        st = keep_locked(r, *take, s);
        pthread_mutex_unlock(&r->mtx);
    }
    take_free(*take);
    *take = NULL;
    return st;
}

// The numbers of an episode that waits; NULL without an error if there are none.
static enum status fetch(struct recorder *r, int64_t episode, struct slot *out)
{
    struct slot *s = &r->slots[episode];
    size_t n;

    pthread_mutex_lock(&r->mtx);
    *out = *s;
    n = take_numbers(&r->layout, s->n_row);
    if (s->data)
        r->waiting -= n * sizeof(double);
    *s = (struct slot){0};
    pthread_mutex_unlock(&r->mtx);
    if (out->n_row == 0 || out->data)
        return ST_OK;
    out->data = mem_alloc(n, sizeof(double));
    if (!out->data)
        return ST_NOMEM;
    if (transfer(r, out, out->data, false) == ST_OK)
        return ST_OK;
    mem_free(out->data);
    return ST_IO;
}

// ------------------------------------------------------------------ a demo

// Columns of the rows `first` to first + T - 1, side by side.
static enum status put_dataset(struct recorder *r, const char *group, const struct dataset *d,
                               double *data, int64_t n, double *buf)
{
    const struct layout *l = &r->layout;
    bool later = d->observed && r->about.align == RECORD_POST;
    char name[96];
    double *out = buf;
    int64_t t;
    int i;

    for (t = 0; t < n; t++)
        for (i = 0; i < d->n_part; i++) {
            int at = l->part[d->part[i]].at, k = l->part[d->part[i]].n;

            memcpy(out, row_of(l, data, t + later) + at, (size_t)k * sizeof out[0]);
            out += k;
        }
    snprintf(name, sizeof name, "%s/%s", group, d->name);
    return h5file_put(r->file, name, H5_F64, n, (out - buf) / n, buf);
}

// LIBERO's name of a picture: agentview_image -> agentview_rgb, robot0_eye_in_hand_image ->
// eye_in_hand_rgb; the other planes keep theirs.
static void picture_name(char *out, size_t size, const struct spec_picture *p)
{
    static const char robot[] = "robot0_", image[] = "_image";
    const char *name = p->name;
    size_t n;

    if (strncmp(name, robot, strlen(robot)) == 0)
        name += strlen(robot);
    n = strlen(name);
    if (n > strlen(image) && strcmp(name + n - strlen(image), image) == 0)
        snprintf(out, size, "%.*s_rgb", (int)(n - strlen(image)), name);
    else
        snprintf(out, size, "%s", name);
}

static enum status put_pictures(struct recorder *r, const char *group, const struct spec_picture *p,
                                double *data, int64_t n, uint8_t *buf)
{
    static const struct {
        enum h5_type type;
        int channels;
    } planes[SPEC_PLANES] = {{H5_U8, 3}, {H5_F32, 0}, {H5_I32, 2}};
    const struct layout *l = &r->layout;
    bool later = r->about.align == RECORD_POST;
    char name[32 + 8 + SPEC_NAME_MAX], key[SPEC_NAME_MAX];
    int64_t t;

    for (t = 0; t < n; t++) {
        const double *row = row_of(l, data, t + later);

        memcpy(buf + (size_t)t * p->bytes,
               (const uint8_t *)(row + l->part[PICTURES].at) + p->offset, p->bytes);
    }
    picture_name(key, sizeof key, p);
    snprintf(name, sizeof name, "%s/obs/%s", group, key);
    return h5file_put_frames(r->file, name, planes[p->plane].type, n, p->height, p->width,
                             planes[p->plane].channels, buf);
}

// 1 where the goal was reached; and 1 at the end.
static enum status put_outcomes(struct recorder *r, const char *group, double *data, int64_t n,
                                uint8_t *buf)
{
    char name[96];
    int64_t t;

    for (t = 0; t < n; t++)
        buf[t] = row_of(&r->layout, data, t)[r->layout.part[SUCCESS].at] != 0;
    snprintf(name, sizeof name, "%s/rewards", group);
    TRY(h5file_put(r->file, name, H5_U8, n, 0, buf));
    for (t = 0; t < n; t++)
        buf[t] = t == n - 1;
    snprintf(name, sizeof name, "%s/dones", group);
    return h5file_put(r->file, name, H5_U8, n, 0, buf);
}

// If `p` is at "@k@" with k below n: k and the text behind it, else NULL.
static const char *placeholder(const char *p, int n, int *k)
{
    int64_t value = 0;
    const char *q;

    for (q = p + 1; *q >= '0' && *q <= '9' && value < n; q++)
        value = 10 * value + (*q - '0');
    if (q == p + 1 || *q != '@' || value >= n)
        return NULL;
    *k = (int)value;
    return q + 1;
}

// The model with this episode's fixtures; *out is the caller's.
static enum status fill_model(const struct recorder *r, const double *pose, char **out)
{
    const char *p, *rest;
    size_t size = 1, n = 0;
    char *text;
    int k;

    for (p = r->about.model; *p; p++)
        size += *p == '@' ? NUMBER_BYTES : 1;
    text = mem_alloc(size, 1);
    if (!text)
        return ST_NOMEM;
    for (p = r->about.model; *p;) {
        if (*p == '@' && (rest = placeholder(p, r->layout.n_pose, &k))) {
            n += (size_t)snprintf(text + n, size - n, "%.17g", pose[k]);
            p = rest;
        } else {
            text[n++] = *p++;
        }
    }
    *out = text;
    return ST_OK;
}

static enum status put_attributes(struct recorder *r, const char *group, const struct slot *s)
{
    double *first = row_of(&r->layout, s->data, 0) + r->layout.part[STATE].at;
    enum status st;
    char *model;

    TRY(h5file_at(r->file, group));
    TRY(h5file_put_int(r->file, "num_samples", s->n_row - 1));
    TRY(h5file_put_reals(r->file, "init_state", r->layout.part[STATE].n, first));
    TRY(h5file_put_flag(r->file, "success", s->success));
    TRY(h5file_put_int(r->file, "episode", (int64_t)s->start));
    TRY(h5file_put_long_text(r->file, "obs_alignment",
                             r->about.align == RECORD_POST ? "post" : "pre"));
    TRY(fill_model(r, s->data, &model));
    st = h5file_put_long_text(r->file, "model_file", model);
    mem_free(model);
    return st;
}

static enum status add_label(struct recorder *r, bool success)
{
    int64_t n = r->n_label[success];
    void *labels;

    if ((n & (n - 1)) == 0) { // 0 and the powers of two
        labels = mem_resize(r->labels[success], (size_t)(n > 0 ? 2 * n : 1), LABEL_BYTES);
        if (!labels)
            return ST_NOMEM;
        r->labels[success] = labels;
    }
    snprintf(r->labels[success][n], LABEL_BYTES, "demo_%lld", (long long)r->n_demo);
    r->n_label[success]++;
    return ST_OK;
}

static enum status put_demo(struct recorder *r, const struct slot *s)
{
    int64_t n = s->n_row - 1;
    double *buf = mem_alloc((size_t)n * (size_t)r->layout.width, sizeof buf[0]);
    enum status st = buf ? ST_OK : ST_NOMEM;
    char group[32];
    size_t i;
    int k;

    snprintf(group, sizeof group, "data/demo_%lld", (long long)r->n_demo);
    for (i = 0; i < sizeof datasets / sizeof datasets[0] && st == ST_OK; i++)
        st = put_dataset(r, group, &datasets[i], s->data, n, buf);
    for (k = 0; k < r->layout.n_picture && st == ST_OK; k++)
        st = put_pictures(r, group, &r->layout.pictures[k], s->data, n, (uint8_t *)buf);
    if (st == ST_OK)
        st = put_outcomes(r, group, s->data, n, (uint8_t *)buf);
    mem_free(buf);
    if (st != ST_OK)
        return st;
    TRY(put_attributes(r, group, s));
    TRY(add_label(r, s->success));
    r->n_demo++;
    r->total += n;
    return ST_OK;
}

enum status recorder_write(struct recorder *r, int64_t episode)
{
    struct slot s;
    enum status st;

    TRY(fetch(r, episode, &s));
    if (s.n_row == 0)
        return ST_OK;
    st = put_demo(r, &s);
    mem_free(s.data);
    return st;
}

// ------------------------------------------------------------------ the file

static enum status put_header(struct recorder *r, const struct spec *spec)
{
    static const char *const orients[] = {"opengl", "upright", "rot180"};
    const struct record_about *a = &r->about;
    uint32_t orient = r->layout.n_picture > 0 ? r->layout.pictures[0].orient : 0;
    const struct {
        const char *name, *text;
    } texts[] = {
        {"env_args", a->env_args},
        {"env_name", a->env_name},
        {"problem_info", a->problem_info},
        {"bddl_file_name", a->bddl_name},
        {"bddl_file_content", a->bddl_text},
        // robosuite's word for pictures whose row 0 is the top
        {"macros_image_convention", orient == 1 ? "opencv" : "opengl"},
        {"image_orientation", orients[orient]},
        {"tag", "libero-v1"},
        {"simstream", SIMSTREAM_VERSION},
        {"engine", spec->engine},
        {"task", spec->task},
        {"policy", a->policy},
        {"kwargs", a->kwargs},
    };
    size_t i;

    TRY(h5file_at(r->file, "data"));
    for (i = 0; i < sizeof texts / sizeof texts[0]; i++)
        TRY(h5file_put_long_text(r->file, texts[i].name, texts[i].text));
    return h5file_put_int(r->file, "seed", a->seed);
}

static enum status begin_file(struct recorder *r, const char *dir, const struct spec *spec)
{
    if (snprintf(r->path, sizeof r->path, "%s/demos.hdf5", dir) >= PATH_MAX - 16)
        return FAIL(ST_INVAL, "folder name '%.60s...' is too long", dir);
    // demos of other results must not stand beside the new ones
    if (unlink(r->path) != 0 && errno != ENOENT)
        return FAIL_SYS(ST_IO, errno, "cannot remove '%s'", r->path);
    TRY(h5file_stream(&r->file, r->path));
    return put_header(r, spec);
}

enum status recorder_open(struct recorder **out, const char *dir, const struct record_about *about,
                          const struct spec *spec)
{
    struct recorder *r = mem_alloc(1, sizeof *r);
    enum status st;

    if (!r)
        return ST_NOMEM;
    pthread_mutex_init(&r->mtx, NULL);
    r->about = *about;
    r->bound = WAIT_BYTES;
    r->spill_fd = -1;
    st = make_layout(&r->layout, spec);
    if (st == ST_OK) {
        r->slots = mem_alloc((size_t)about->n_episode, sizeof r->slots[0]);
        st = r->slots ? begin_file(r, dir, spec) : ST_NOMEM;
    }
    if (st != ST_OK) {
        recorder_close(r);
        return st;
    }
    *out = r;
    return ST_OK;
}

void recorder_set_bound(struct recorder *r, size_t bytes)
{
    r->bound = bytes;
}

enum status recorder_finish(struct recorder *r, int64_t *n_demo)
{
    static const char *const masks[] = {"mask/failure", "mask/success"};
    int i;

    TRY(h5file_at(r->file, "data"));
    TRY(h5file_put_int(r->file, "total", r->total));
    TRY(h5file_put_int(r->file, "num_demos", r->n_demo));
    for (i = 0; i < 2; i++)
        TRY(h5file_put_labels(r->file, masks[i], (const char *)r->labels[i], r->n_label[i],
                              LABEL_BYTES));
    TRY(h5file_finish(r->file));
    *n_demo = r->n_demo;
    return ST_OK;
}

void recorder_close(struct recorder *r)
{
    int64_t i;

    if (!r)
        return;
    h5file_close(r->file);
    for (i = 0; r->slots && i < r->about.n_episode; i++)
        mem_free(r->slots[i].data);
    if (r->spill_fd >= 0)
        close(r->spill_fd);
    mem_free(r->slots);
    mem_free(r->labels[0]);
    mem_free(r->labels[1]);
    pthread_mutex_destroy(&r->mtx);
    mem_free(r);
}
