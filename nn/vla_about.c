#include "nn/vla_about.h"

#include "common/base/mem.h"
#include "nn/h5file.h"
#include "nn/safetensors.h"
#include "nn/tokenizer.h"

#include <stdio.h>
#include <string.h>

#define VOCABULARY_MAX (64 << 20) // bytes

static const char *const orients[] = {"opengl", "upright", "rot180"};

static enum status check(const struct vla_about *a)
{
    struct tokenizer *t;
    int size;

    TRY(vla_config_check(&a->model));
    TRY(vla_input_check(&a->input));
    if (a->model.cameras != a->input.n_camera || a->model.action != a->input.n_action ||
        a->model.state != VLA_STATE)
        return FAIL(ST_INVAL,
                    "a model for %lld cameras, %lld numbers of state and %lld of an action, "
                    "expected %d, %d and %d",
                    (long long)a->model.cameras, (long long)a->model.state,
                    (long long)a->model.action, a->input.n_camera, VLA_STATE, a->input.n_action);
    TRY(tokenizer_parse(&t, a->vocabulary, a->n_vocabulary, "vocabulary"));
    size = tokenizer_size(t);
    tokenizer_destroy(t);
    if (size > a->model.vocab)
        return FAIL(ST_INVAL, "a vocabulary of %d tokens, the model has room for %lld", size,
                    (long long)a->model.vocab);
    return ST_OK;
}

static enum status set_vocabulary(struct vla_about *a, const char *vocabulary, size_t n)
{
    a->vocabulary = mem_alloc(n + 1, 1);
    if (!a->vocabulary)
        return ST_NOMEM;
    if (n > 0)
        memcpy(a->vocabulary, vocabulary, n);
    a->n_vocabulary = n;
    return ST_OK;
}

// *out = a if it is sound, else it is freed.
static enum status conclude(struct vla_about **out, struct vla_about *a, enum status st)
{
    if (st == ST_OK)
        st = check(a);
    if (st == ST_OK)
        *out = a;
    else
        vla_about_destroy(a);
    return st;
}

enum status vla_about_create(struct vla_about **out, const struct vla_config *model,
                             const struct vla_input *input, const char *vocabulary, size_t n)
{
    struct vla_about *a = mem_alloc(1, sizeof *a);

    if (!a)
        return ST_NOMEM;
    a->model = *model;
    a->input = *input;
    return conclude(out, a, set_vocabulary(a, vocabulary, n));
}

enum status vla_about_copy(struct vla_about **out, const struct vla_about *from)
{
    struct vla_about *a;

    TRY(vla_about_create(&a, &from->model, &from->input, from->vocabulary, from->n_vocabulary));
    memcpy(a->kwargs, from->kwargs, sizeof a->kwargs);
    *out = a;
    return ST_OK;
}

void vla_about_destroy(struct vla_about *a)
{
    if (!a)
        return;
    mem_free(a->vocabulary);
    mem_free(a);
}

bool vla_about_equal(const struct vla_about *a, const struct vla_about *b)
{
    return vla_config_equal(&a->model, &b->model) && vla_input_equal(&a->input, &b->input) &&
           a->n_vocabulary == b->n_vocabulary &&
           memcmp(a->vocabulary, b->vocabulary, a->n_vocabulary) == 0;
}

enum status vla_about_params(const struct vla_about *a, int64_t *n_param)
{
    struct vla_table t;

    TRY(vla_table_init(&t, &a->model));
    *n_param = t.n_param;
    vla_table_fini(&t);
    return ST_OK;
}

// ------------------------------------------------------------------ bytes

// Then the vocabulary.
struct blob {
    struct vla_config model;
    struct vla_input input;
    uint64_t n_vocabulary;
    char kwargs[2048];
};

size_t vla_about_blob_bytes(const struct vla_about *a)
{
    return sizeof(struct blob) + a->n_vocabulary;
}

void vla_about_blob_write(const struct vla_about *a, uint8_t *out)
{
    struct blob b;

    memset(&b, 0, sizeof b); // padding too
    b.model = a->model;
    b.n_vocabulary = a->n_vocabulary;
    memcpy(&b.input, &a->input, sizeof b.input);
    memcpy(b.kwargs, a->kwargs, sizeof b.kwargs);
    memcpy(out, &b, sizeof b);
    memcpy(out + sizeof b, a->vocabulary, a->n_vocabulary);
}

enum status vla_about_blob_read(struct vla_about **out, const uint8_t *blob, size_t n)
{
    struct vla_about *a;
    struct blob b;

    if (n < sizeof b)
        return FAIL(ST_PROTO, "a policy's description has %zu bytes, expected %zu or more", n,
                    sizeof b);
    memcpy(&b, blob, sizeof b);
    if (b.n_vocabulary != n - sizeof b || b.n_vocabulary > VOCABULARY_MAX ||
        !memchr(b.kwargs, 0, sizeof b.kwargs))
        return FAIL(ST_PROTO, "a policy's description of %zu bytes is damaged", n);
    if (vla_about_create(&a, &b.model, &b.input, (const char *)blob + sizeof b,
                         (size_t)b.n_vocabulary) != ST_OK)
        return error_last()->code == ST_NOMEM ? ST_NOMEM
                                              : FAIL(ST_PROTO, "weights: %s", error_last()->text);
    memcpy(a->kwargs, b.kwargs, sizeof a->kwargs);
    *out = a;
    return ST_OK;
}

// ------------------------------------------------------------------ files

enum status vla_about_put(const struct vla_about *a, struct h5file *f)
{
    char model[VLA_JSON_MAX], name[32];

    vla_config_print(&a->model, model);
    TRY(h5file_put_text(f, "model", model));
    TRY(h5file_put_text(f, "kwargs", a->kwargs));
    for (int i = 0; i < a->input.n_camera; i++) {
        snprintf(name, sizeof name, "camera_%d", i);
        TRY(h5file_put_text(f, name, a->input.camera[i].picture));
        snprintf(name, sizeof name, "camera_%d_orientation", i);
        TRY(h5file_put_text(f, name, orients[a->input.camera[i].orient]));
    }
    TRY(h5file_put(f, "state_mean", H5_F64, VLA_STATE, 0, a->input.state_mean));
    TRY(h5file_put(f, "state_std", H5_F64, VLA_STATE, 0, a->input.state_std));
    TRY(h5file_put(f, "action_low", H5_F64, a->input.n_action, 0, a->input.action_low));
    TRY(h5file_put(f, "action_high", H5_F64, a->input.n_action, 0, a->input.action_high));
    return a->n_vocabulary > 0
               ? h5file_put(f, "vocabulary", H5_U8, (int64_t)a->n_vocabulary, 0, a->vocabulary)
               : ST_OK;
}

static enum status get_camera(struct h5file *f, int i, struct vla_camera *out)
{
    char name[32], orient[16];

    snprintf(name, sizeof name, "camera_%d", i);
    TRY(h5file_get_text(f, name, out->picture, sizeof out->picture));
    snprintf(name, sizeof name, "camera_%d_orientation", i);
    TRY(h5file_get_text(f, name, orient, sizeof orient));
    for (out->orient = 0; out->orient < 3; out->orient++)
        if (strcmp(orient, orients[out->orient]) == 0)
            return ST_OK;
    return FAIL(ST_INVAL, "attribute '%s' is '%s', expected opengl, upright or rot180", name,
                orient);
}

static enum status get_vocabulary(struct vla_about *a, struct h5file *f)
{
    int64_t rows, cols;

    if (!h5file_has(f, "vocabulary"))
        return set_vocabulary(a, NULL, 0);
    TRY(h5file_shape(f, "vocabulary", &rows, &cols));
    if (rows < 1 || rows > VOCABULARY_MAX || cols != 0)
        return FAIL(ST_INVAL, "'vocabulary' is not a list of at most %d bytes", VOCABULARY_MAX);
    TRY(set_vocabulary(a, NULL, 0));
    mem_free(a->vocabulary);
    a->vocabulary = mem_alloc((size_t)rows + 1, 1);
    if (!a->vocabulary)
        return ST_NOMEM;
    a->n_vocabulary = (size_t)rows;
    return h5file_get(f, "vocabulary", H5_U8, rows, 0, a->vocabulary);
}

static enum status get_all(struct vla_about *a, struct h5file *f)
{
    char model[VLA_JSON_MAX];

    TRY(h5file_get_text(f, "model", model, sizeof model));
    TRY(vla_config_parse(&a->model, model, "attribute 'model'"));
    TRY(h5file_get_text(f, "kwargs", a->kwargs, sizeof a->kwargs));
    if (a->model.cameras > VLA_CAMERAS_MAX || a->model.action > SPEC_ACT_MAX)
        return FAIL(ST_INVAL,
                    "a model for %lld cameras and actions of %lld numbers, at most %d "
                    "and %d are possible",
                    (long long)a->model.cameras, (long long)a->model.action, VLA_CAMERAS_MAX,
                    SPEC_ACT_MAX);
    a->input.n_camera = (int)a->model.cameras;
    a->input.n_action = (int)a->model.action;
    for (int i = 0; i < a->input.n_camera; i++)
        TRY(get_camera(f, i, &a->input.camera[i]));
    TRY(h5file_get(f, "state_mean", H5_F64, VLA_STATE, 0, a->input.state_mean));
    TRY(h5file_get(f, "state_std", H5_F64, VLA_STATE, 0, a->input.state_std));
    TRY(h5file_get(f, "action_low", H5_F64, a->input.n_action, 0, a->input.action_low));
    TRY(h5file_get(f, "action_high", H5_F64, a->input.n_action, 0, a->input.action_high));
    return get_vocabulary(a, f);
}

enum status vla_about_get(struct vla_about **out, struct h5file *f)
{
    struct vla_about *a = mem_alloc(1, sizeof *a);

    if (!a)
        return ST_NOMEM;
    return conclude(out, a, get_all(a, f));
}

enum status vla_about_put_params(const struct vla_about *a, const float *params, struct h5file *f)
{
    char name[VLA_NAME_MAX + 8];
    enum status st = ST_OK;
    struct vla_table t;

    TRY(vla_table_init(&t, &a->model));
    for (int i = 0; i < t.n_piece && st == ST_OK; i++) {
        const struct vla_piece *p = &t.piece[i];

        snprintf(name, sizeof name, "model/%s", p->name);
        st = h5file_put(f, name, H5_F32, p->rows, p->cols, params + p->offset);
    }
    vla_table_fini(&t);
    return st;
}

enum status vla_about_get_params(const struct vla_about *a, float *params, struct h5file *f)
{
    char name[VLA_NAME_MAX + 8];
    enum status st = ST_OK;
    struct vla_table t;

    TRY(vla_table_init(&t, &a->model));
    for (int i = 0; i < t.n_piece && st == ST_OK; i++) {
        const struct vla_piece *p = &t.piece[i];

        snprintf(name, sizeof name, "model/%s", p->name);
        st = h5file_get(f, name, H5_F32, p->rows, p->cols, params + p->offset);
    }
    vla_table_fini(&t);
    return st;
}

static struct safetensors_part part_of(const struct vla_piece *p, const float *params, bool bf16)
{
    return (struct safetensors_part){.name = p->name,
                                     .type = bf16 ? SAFETENSORS_BF16 : SAFETENSORS_F32,
                                     .rank = p->cols > 0 ? 2 : 1,
                                     .dims = {p->rows, p->cols},
                                     .data = params + p->offset};
}

enum status vla_about_export(const struct vla_about *a, const float *params, bool bf16,
                             const char *path)
{
    char model[VLA_JSON_MAX];
    struct safetensors_note notes[] = {{"format", "pt"}, {"model", model}};
    struct safetensors_part *parts;
    struct vla_table t;
    enum status st;

    vla_config_print(&a->model, model);
    TRY(vla_table_init(&t, &a->model));
    parts = mem_alloc((size_t)t.n_piece, sizeof parts[0]);
    for (int i = 0; parts && i < t.n_piece; i++)
        parts[i] = part_of(&t.piece[i], params, bf16);
    st = parts ? safetensors_save(path, parts, t.n_piece, notes, 2) : ST_NOMEM;
    mem_free(parts);
    vla_table_fini(&t);
    return st;
}

enum status vla_about_import(const struct vla_about *a, float *params, const char *path)
{
    struct safetensors *s;
    struct vla_table t;
    enum status st;

    TRY(safetensors_open(&s, path));
    st = vla_table_init(&t, &a->model);
    if (st == ST_OK) {
        for (int i = 0; i < t.n_piece && st == ST_OK; i++) {
            const struct vla_piece *p = &t.piece[i];
            int64_t dims[2] = {p->rows, p->cols};

            st = safetensors_get(s, p->name, p->cols > 0 ? 2 : 1, dims, params + p->offset);
        }
        vla_table_fini(&t);
    }
    safetensors_close(s);
    return st;
}
