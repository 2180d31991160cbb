#include "nn/weights.h"

#include "common/base/mem.h"
#include "nn/h5file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FILE_FORMAT   1
#define VISION_FORMAT 2 // with an encoder
#define VLA_FORMAT    3
#define VERSION_HIGH  1000000000000000LL
#define NUMBER_HIGH   1e300

// With unit normalisers; `vla` is taken, NULL for perceptrons.
static enum status create(struct weights **out, const struct model_shape *shape,
                          struct vla_about *vla, int64_t n_param)
{
    struct weights *w = mem_alloc(1, sizeof *w);
    size_t n_obs = (size_t)shape->n_obs;

    if (!w) {
        vla_about_destroy(vla);
        return ST_NOMEM;
    }
    atomic_init(&w->refs, 1);
    w->shape = *shape;
    w->vla = vla;
    w->n_param = n_param;
    w->ret_std = 1;
    w->params = mem_alloc((size_t)n_param, sizeof *w->params);
    w->obs_mean = mem_alloc(n_obs, sizeof *w->obs_mean);
    w->obs_var = mem_alloc(n_obs, sizeof *w->obs_var);
    if (!w->params || !w->obs_mean || !w->obs_var) {
        weights_drop(w);
        return ST_NOMEM;
    }
    for (size_t i = 0; i < n_obs; i++)
        w->obs_var[i] = 1;
    *out = w;
    return ST_OK;
}

enum status weights_create(struct weights **out, const struct model_shape *shape)
{
    struct model_table table;

    TRY(model_shape_check(shape));
    model_table_make(&table, shape);
    return create(out, shape, NULL, table.n_param);
}

enum status weights_create_vla(struct weights **out, const struct vla_about *about)
{
    struct model_shape shape = {.n_obs = VLA_STATE,
                                .n_act = (int)(about->model.chunk * about->model.action)};
    struct vla_about *vla;
    int64_t n_param;

    TRY(vla_about_params(about, &n_param));
    TRY(vla_about_copy(&vla, about));
    return create(out, &shape, vla, n_param);
}

bool weights_same_model(const struct weights *a, const struct weights *b)
{
    if (!a->vla || !b->vla)
        return !a->vla && !b->vla && model_shape_equal(&a->shape, &b->shape);
    return vla_about_equal(a->vla, b->vla);
}

enum status weights_copy(struct weights **out, const struct weights *from)
{
    size_t n_obs = (size_t)from->shape.n_obs;
    struct weights *w;

    if (from->vla)
        TRY(weights_create_vla(&w, from->vla));
    else
        TRY(weights_create(&w, &from->shape));
    w->version = from->version;
    memcpy(w->params, from->params, (size_t)from->n_param * sizeof *w->params);
    memcpy(w->obs_mean, from->obs_mean, n_obs * sizeof *w->obs_mean);
    memcpy(w->obs_var, from->obs_var, n_obs * sizeof *w->obs_var);
    w->obs_count = from->obs_count;
    w->ret_mean = from->ret_mean;
    w->ret_std = from->ret_std;
    memcpy(w->task, from->task, sizeof w->task);
    memcpy(w->picture, from->picture, sizeof w->picture);
    memcpy(w->config, from->config, sizeof w->config);
    *out = w;
    return ST_OK;
}

struct weights *weights_hold(struct weights *w)
{
    atomic_fetch_add_explicit(&w->refs, 1, memory_order_relaxed);
    return w;
}

void weights_drop(struct weights *w)
{
    // release: this holder's reads come before; acquire: before the memory is given back
    if (!w || atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) > 1)
        return;
    vla_about_destroy(w->vla);
    mem_free(w->params);
    mem_free(w->obs_mean);
    mem_free(w->obs_var);
    mem_free(w);
}

// The piece of an array that holds a number which is not finite, or a variance below zero; NULL if
// all is well. `t` has no pieces for a vision-language-action model.
static const char *find_bad(const struct weights *w, const struct model_table *t)
{
    int i;
    int64_t k, n;

    for (i = 0; i < t->n_piece; i++) {
        n = (int64_t)t->piece[i].rows * (t->piece[i].cols > 0 ? t->piece[i].cols : 1);
        for (k = 0; k < n; k++)
            if (!isfinite(w->params[t->piece[i].offset + k]))
                return t->piece[i].name;
    }
    for (k = 0; w->vla && k < w->n_param; k++)
        if (!isfinite(w->params[k]))
            return "model";
    for (i = 0; i < w->shape.n_obs; i++) {
        if (!isfinite(w->obs_mean[i]))
            return "obs_mean";
        if (!(w->obs_var[i] >= 0 && isfinite(w->obs_var[i])))
            return "obs_var";
    }
    if (!(w->obs_count >= 0 && isfinite(w->obs_count)))
        return "obs_count";
    if (!isfinite(w->ret_mean))
        return "ret_mean";
    return w->ret_std > 0 && isfinite(w->ret_std) ? NULL : "ret_std";
}

static enum status check_numbers(const struct weights *w, enum status code, const char *where)
{
    struct model_table table = {0};
    const char *bad;

    if (!w->vla)
        model_table_make(&table, &w->shape);
    bad = find_bad(w, &table);
    if (bad)
        return FAIL(code, "%s: %s holds a number that is not finite or out of range", where, bad);
    return ST_OK;
}

// --- bytes on the wire ---------------------------------------------------------------------------

// Then: about_bytes of vla_about.h, params (n_param) float32, obs_mean, obs_var (n_obs) float64,
// all little-endian.
struct blob_head {
    uint32_t magic, bytes; // bytes of the whole blob
    uint64_t version;
    int32_t n_obs, n_act, n_hidden, hidden[MODEL_LAYERS_MAX];
    uint32_t state;       // 1: the networks see the observation beside the pictures
    uint32_t about_bytes; // 0: perceptrons
    double obs_count, ret_mean, ret_std;
    int32_t width, height, stack, n_conv;
    struct model_conv conv[MODEL_CONV_MAX];
    char task[64];
    char picture[64];
    char config[4096];
};

#define BLOB_MAGIC 0x33575353u // "SSW3"

size_t weights_blob_bytes(const struct weights *w)
{
    return sizeof(struct blob_head) + (w->vla ? vla_about_blob_bytes(w->vla) : 0) +
           (size_t)w->n_param * sizeof(float) + 2 * (size_t)w->shape.n_obs * sizeof(double);
}

void weights_blob_write(const struct weights *w, uint8_t *out)
{
    size_t params = (size_t)w->n_param * sizeof *w->params;
    size_t obs = (size_t)w->shape.n_obs * sizeof(double);
    struct blob_head head = {
        .magic = BLOB_MAGIC,
        .bytes = (uint32_t)weights_blob_bytes(w),
        .about_bytes = w->vla ? (uint32_t)vla_about_blob_bytes(w->vla) : 0,
        .version = w->version,
        .n_obs = w->shape.n_obs,
        .n_act = w->shape.n_act,
        .n_hidden = w->shape.n_hidden,
        .state = w->shape.vision.state,
        .width = w->shape.vision.width,
        .height = w->shape.vision.height,
        .stack = w->shape.vision.stack,
        .n_conv = w->shape.vision.n_conv,
        .obs_count = w->obs_count,
        .ret_mean = w->ret_mean,
        .ret_std = w->ret_std,
    };

    for (int i = 0; i < w->shape.n_hidden; i++)
        head.hidden[i] = w->shape.hidden[i];
    memcpy(head.conv, w->shape.vision.conv, sizeof head.conv);
    memcpy(head.task, w->task, sizeof head.task);
    memcpy(head.picture, w->picture, sizeof head.picture);
    memcpy(head.config, w->config, sizeof head.config);
    memcpy(out, &head, sizeof head);
    out += sizeof head;
    if (w->vla)
        vla_about_blob_write(w->vla, out);
    out += head.about_bytes;
    memcpy(out, w->params, params);
    memcpy(out + params, w->obs_mean, obs);
    memcpy(out + params + obs, w->obs_var, obs);
}

static enum status blob_shape(const struct blob_head *head, struct model_shape *out)
{
    struct model_shape s = {.n_obs = head->n_obs,
                            .n_act = head->n_act,
                            .n_hidden = head->n_hidden,
                            .vision = {.width = head->width,
                                       .height = head->height,
                                       .stack = head->stack,
                                       .state = head->state == 1,
                                       .n_conv = head->n_conv}};

    memcpy(s.vision.conv, head->conv, sizeof s.vision.conv);
    if (s.vision.n_conv == 0)
        memset(&s.vision, 0, sizeof s.vision);
    if (head->state > 1)
        return FAIL(ST_PROTO, "weights: state is %u, expected 0 or 1", head->state);
    for (int i = 0; i < MODEL_LAYERS_MAX && i < head->n_hidden; i++)
        s.hidden[i] = head->hidden[i];
    if (model_shape_check(&s) != ST_OK)
        return FAIL(ST_PROTO, "weights: %s", error_last()->text);
    *out = s;
    return ST_OK;
}

// Weights of the model that the head describes; the bytes behind it are those of vla_about.h.
static enum status blob_model(const struct blob_head *head, const uint8_t *behind, size_t n,
                              struct weights **out)
{
    struct model_shape shape;
    struct vla_about *about;
    enum status st;

    if (head->about_bytes > n)
        return FAIL(ST_PROTO, "weights: %u bytes about the model, there are %zu", head->about_bytes,
                    n);
    if (head->about_bytes == 0) {
        TRY(blob_shape(head, &shape));
        return weights_create(out, &shape);
    }
    TRY(vla_about_blob_read(&about, behind, head->about_bytes));
    st = weights_create_vla(out, about);
    vla_about_destroy(about);
    return st;
}

static void blob_fill(struct weights *w, const struct blob_head *head, const uint8_t *numbers)
{
    size_t params = (size_t)w->n_param * sizeof *w->params;
    size_t obs = (size_t)w->shape.n_obs * sizeof(double);

    w->version = head->version;
    w->obs_count = head->obs_count;
    w->ret_mean = head->ret_mean;
    w->ret_std = head->ret_std;
    memcpy(w->task, head->task, sizeof w->task);
    memcpy(w->picture, head->picture, sizeof w->picture);
    memcpy(w->config, head->config, sizeof w->config);
    memcpy(w->params, numbers, params);
    memcpy(w->obs_mean, numbers + params, obs);
    memcpy(w->obs_var, numbers + params + obs, obs);
}

enum status weights_blob_read(struct weights **out, const uint8_t *blob, size_t n)
{
    struct blob_head head;
    struct weights *w;
    enum status st;

    if (n < sizeof head)
        return FAIL(ST_PROTO, "weights: %zu bytes, expected at least %zu", n, sizeof head);
    memcpy(&head, blob, sizeof head);
    if (head.magic != BLOB_MAGIC)
        return FAIL(ST_PROTO, "weights: format %#x, expected %#x", head.magic, BLOB_MAGIC);
    if (!memchr(head.task, 0, sizeof head.task) || !memchr(head.config, 0, sizeof head.config) ||
        !memchr(head.picture, 0, sizeof head.picture))
        return FAIL(ST_PROTO, "weights: task, picture or config is not terminated");
    TRY(blob_model(&head, blob + sizeof head, n - sizeof head, &w));
    if (n != weights_blob_bytes(w) || head.bytes != n) {
        st = FAIL(ST_PROTO, "weights: %zu bytes, expected %zu", n, weights_blob_bytes(w));
    } else {
        blob_fill(w, &head, blob + sizeof head + head.about_bytes);
        st = check_numbers(w, ST_PROTO, "weights");
    }
    if (st != ST_OK) {
        weights_drop(w);
        return st;
    }
    *out = w;
    return ST_OK;
}

// --- files ---------------------------------------------------------------------------------------

static enum status put_vision(const struct weights *w, struct h5file *f)
{
    const struct model_vision *v = &w->shape.vision;
    char conv[96];

    model_conv_print(v, conv, sizeof conv);
    TRY(h5file_put_text(f, "conv", conv));
    TRY(h5file_put_text(f, "picture", w->picture));
    TRY(h5file_put_int(f, "picture_width", v->width));
    TRY(h5file_put_int(f, "picture_height", v->height));
    TRY(h5file_put_int(f, "frame_stack", v->stack));
    return h5file_put_int(f, "sees_state", v->state);
}

static enum status put_perceptrons(const struct weights *w, struct h5file *f)
{
    bool vision = w->shape.vision.n_conv > 0;
    struct model_table table;
    char hidden[64];

    model_table_make(&table, &w->shape);
    model_shape_print(&w->shape, hidden, sizeof hidden);
    TRY(h5file_put_int(f, "format", vision ? VISION_FORMAT : FILE_FORMAT));
    if (vision)
        TRY(put_vision(w, f));
    TRY(h5file_put_int(f, "n_obs", w->shape.n_obs));
    TRY(h5file_put_int(f, "n_act", w->shape.n_act));
    TRY(h5file_put_text(f, "hidden", hidden));
    for (int i = 0; i < table.n_piece; i++)
        TRY(h5file_put(f, table.piece[i].name, H5_F32, table.piece[i].rows, table.piece[i].cols,
                       w->params + table.piece[i].offset));
    return ST_OK;
}

static enum status put_vla(const struct weights *w, struct h5file *f)
{
    TRY(h5file_put_int(f, "format", VLA_FORMAT));
    TRY(vla_about_put(w->vla, f));
    return vla_about_put_params(w->vla, w->params, f);
}

enum status weights_put(const struct weights *w, struct h5file *f)
{
    TRY(w->vla ? put_vla(w, f) : put_perceptrons(w, f));
    TRY(h5file_put_int(f, "version", (int64_t)w->version));
    TRY(h5file_put_text(f, "task", w->task));
    TRY(h5file_put_real(f, "obs_count", w->obs_count));
    TRY(h5file_put_real(f, "ret_mean", w->ret_mean));
    TRY(h5file_put_real(f, "ret_std", w->ret_std));
    TRY(h5file_put(f, "obs_mean", H5_F64, w->shape.n_obs, 0, w->obs_mean));
    TRY(h5file_put(f, "obs_var", H5_F64, w->shape.n_obs, 0, w->obs_var));
    return h5file_put_text(f, "config", w->config);
}

static enum status get_vision(struct h5file *f, struct model_vision *out)
{
    int64_t width, height, stack, state;
    char conv[96];

    TRY(h5file_get_int(f, "picture_width", 1, MODEL_SIDE_MAX, &width));
    TRY(h5file_get_int(f, "picture_height", 1, MODEL_SIDE_MAX, &height));
    TRY(h5file_get_int(f, "frame_stack", 1, MODEL_STACK_MAX, &stack));
    TRY(h5file_get_int(f, "sees_state", 0, 1, &state));
    TRY(h5file_get_text(f, "conv", conv, sizeof conv));
    *out = (struct model_vision){
        .width = (int)width, .height = (int)height, .stack = (int)stack, .state = state == 1};
    return model_conv_parse(out, conv);
}

static enum status get_shape(struct h5file *f, int64_t format, struct model_shape *out)
{
    int64_t n_obs, n_act;
    char hidden[64];

    TRY(h5file_get_int(f, "n_obs", 1, MODEL_OBS_MAX, &n_obs));
    TRY(h5file_get_int(f, "n_act", 1, MODEL_ACT_MAX, &n_act));
    TRY(h5file_get_text(f, "hidden", hidden, sizeof hidden));
    TRY(model_shape_parse(out, (int)n_obs, (int)n_act, hidden));
    return format == VISION_FORMAT ? get_vision(f, &out->vision) : ST_OK;
}

static enum status get_params(struct weights *w, struct h5file *f)
{
    struct model_table table;

    if (w->vla)
        return vla_about_get_params(w->vla, w->params, f);
    model_table_make(&table, &w->shape);
    for (int i = 0; i < table.n_piece; i++)
        TRY(h5file_get(f, table.piece[i].name, H5_F32, table.piece[i].rows, table.piece[i].cols,
                       w->params + table.piece[i].offset));
    return ST_OK;
}

static enum status get_fields(struct weights *w, struct h5file *f)
{
    int64_t version;

    TRY(h5file_get_int(f, "version", 0, VERSION_HIGH, &version));
    w->version = (uint64_t)version;
    TRY(h5file_get_text(f, "task", w->task, sizeof w->task));
    if (w->shape.vision.n_conv > 0)
        TRY(h5file_get_text(f, "picture", w->picture, sizeof w->picture));
    TRY(h5file_get_text(f, "config", w->config, sizeof w->config));
    TRY(h5file_get_real(f, "obs_count", 0, NUMBER_HIGH, &w->obs_count));
    TRY(h5file_get_real(f, "ret_mean", -NUMBER_HIGH, NUMBER_HIGH, &w->ret_mean));
    TRY(h5file_get_real(f, "ret_std", 1 / NUMBER_HIGH, NUMBER_HIGH, &w->ret_std));
    TRY(get_params(w, f));
    TRY(h5file_get(f, "obs_mean", H5_F64, w->shape.n_obs, 0, w->obs_mean));
    TRY(h5file_get(f, "obs_var", H5_F64, w->shape.n_obs, 0, w->obs_var));
    return ST_OK;
}

// Zero parameters of the file's model.
static enum status get_model(struct weights **out, struct h5file *f)
{
    struct model_shape shape;
    struct vla_about *about;
    int64_t format;
    enum status st;

    TRY(h5file_get_int(f, "format", FILE_FORMAT, VLA_FORMAT, &format));
    if (format != VLA_FORMAT) {
        TRY(get_shape(f, format, &shape));
        return weights_create(out, &shape);
    }
    TRY(vla_about_get(&about, f));
    st = weights_create_vla(out, about);
    vla_about_destroy(about);
    return st;
}

enum status weights_get(struct weights **out, struct h5file *f)
{
    struct weights *w;
    enum status st;

    TRY(get_model(&w, f));
    st = get_fields(w, f);
    if (st == ST_OK)
        st = check_numbers(w, ST_INVAL, "weights");
    if (st != ST_OK) {
        weights_drop(w);
        return st;
    }
    *out = w;
    return ST_OK;
}

enum status weights_save(const struct weights *w, const char *path)
{
    struct h5file *f;
    enum status st;

    TRY(h5file_create(&f));
    st = weights_put(w, f);
    if (st == ST_OK)
        st = h5file_save(f, path);
    h5file_close(f);
    return st;
}

enum status weights_load(struct weights **out, const char *path)
{
    struct h5file *f;
    enum status st;

    TRY(h5file_open(&f, path));
    st = weights_get(out, f);
    h5file_close(f);
    return st == ST_INVAL && !strstr(error_last()->text, path) ? error_prefix("'%s'", path) : st;
}
