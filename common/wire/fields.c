#include "common/wire/fields.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

_Static_assert(FIELDS_MAX >= 4 + 3 + 9 + 3 + 2 * SPEC_INFO_MAX + 2 * SPEC_PICTURE_MAX,
               "every field has a place");

static void add(struct fields *f, enum field_type type, size_t offset, int rows, int columns,
                const char *row, const char *name)
{
    struct field *to = &f->field[f->n++];

    *to = (struct field){
        .type = type, .offset = (uint32_t)offset, .shape = {(uint32_t)rows, (uint32_t)columns}};
    snprintf(to->name, sizeof to->name, "%s.%s", row, name);
}

static void add_info(struct fields *f, const struct spec *spec, uint32_t offset, const char *row)
{
    size_t at = offset;
    int i;

    for (i = 0; i < spec->n_info_key; i++) {
        add(f, FIELD_F64, at, 1, spec->info[i].n, row, spec->info[i].name);
        at += (size_t)spec->info[i].n * sizeof(double);
    }
}

static void add_pictures(struct fields *f, const struct spec *spec, uint32_t block, const char *row)
{
    static const enum field_type types[SPEC_PLANES] = {FIELD_U8, FIELD_F32, FIELD_I32};
    static const int numbers[SPEC_PLANES] = {3, 1, 2};
    int i;

    for (i = 0; i < spec->n_picture; i++) {
        const struct spec_picture *p = &spec->pictures[i];

        add(f, types[p->plane], (size_t)block + p->offset, (int)p->height,
            (int)p->width * numbers[p->plane], row, p->name);
    }
}

#define HEAD(type, member) add(f, type, offsetof(struct row_head, member), 1, 1, "batch", #member)

static void add_batch(struct fields *f, const struct spec *spec, const struct row_layout *l)
{
    HEAD(FIELD_U32, env);
    HEAD(FIELD_U32, flags);
    HEAD(FIELD_U64, seed);
    HEAD(FIELD_U64, stream);
    HEAD(FIELD_U64, episode);
    HEAD(FIELD_F64, episode_return);
    HEAD(FIELD_U32, elapsed);
    HEAD(FIELD_U32, n_sub);
    HEAD(FIELD_U32, error);
    add(f, FIELD_F64, l->reward, 1, l->k_max, "batch", "reward");
    add(f, FIELD_F64, l->obs, 1, spec->n_obs, "batch", "obs");
    if (l->info)
        add_info(f, spec, l->info, "batch.info");
    if (l->final_obs)
        add(f, FIELD_F64, l->final_obs, 1, spec->n_obs, "batch", "final_obs");
    if (l->final_info)
        add_info(f, spec, l->final_info, "batch.final_info");
    if (l->pictures)
        add_pictures(f, spec, l->pictures, "batch.picture");
    if (l->final_pictures)
        add_pictures(f, spec, l->final_pictures, "batch.final_picture");
}

void fields_make(struct fields *f, const struct spec *spec, int k_max, enum autoreset autoreset)
{
    struct row_layout l;

    row_layout_make(&l, spec, k_max, autoreset);
    memset(f, 0, sizeof *f);
    add(f, FIELD_U32, offsetof(struct reset_row, env), 1, 1, "reset", "env");
    add(f, FIELD_U64, offsetof(struct reset_row, seed), 1, 1, "reset", "seed");
    add(f, FIELD_U64, offsetof(struct reset_row, stream), 1, 1, "reset", "stream");
    add(f, FIELD_U64, offsetof(struct reset_row, episode), 1, 1, "reset", "episode");
    add(f, FIELD_U32, offsetof(struct step_row, env), 1, 1, "step", "env");
    add(f, FIELD_U32, offsetof(struct step_row, n_sub), 1, 1, "step", "n_sub");
    add(f, FIELD_F32, sizeof(struct step_row), k_max, spec->n_act, "step", "action");
    add_batch(f, spec, &l);
}

enum status fields_write(struct msg *m, const struct fields *f)
{
    int i;

    TRY(msg_u32(m, (uint32_t)f->n));
    for (i = 0; i < f->n; i++) {
        TRY(msg_str(m, f->field[i].name));
        TRY(msg_u32(m, f->field[i].type));
        TRY(msg_u32(m, f->field[i].offset));
        TRY(msg_u32(m, f->field[i].shape[0]));
        TRY(msg_u32(m, f->field[i].shape[1]));
    }
    return ST_OK;
}

enum status fields_check(struct reader *r, const struct fields *want)
{
    uint32_t n = read_u32(r);
    int i;

    TRY(reader_end(r, false, "the table of fields"));
    if (n != (uint32_t)want->n)
        return FAIL(ST_PROTO, "the server declares %u fields, expected %d", n, want->n);
    for (i = 0; i < want->n; i++) {
        const struct field *w = &want->field[i];
        struct field f;

        read_str(r, f.name, sizeof f.name);
        f.type = read_u32(r);
        f.offset = read_u32(r);
        f.shape[0] = read_u32(r);
        f.shape[1] = read_u32(r);
        TRY(reader_end(r, false, "the table of fields"));
        if (strcmp(f.name, w->name) != 0 || f.type != w->type || f.offset != w->offset ||
            f.shape[0] != w->shape[0] || f.shape[1] != w->shape[1])
            return FAIL(ST_PROTO,
                        "field %d of the server: type %u at byte %u of shape (%u, %u), expected "
                        "'%s': %u at %u of (%u, %u)",
                        i, f.type, f.offset, f.shape[0], f.shape[1], w->name, w->type, w->offset,
                        w->shape[0], w->shape[1]);
    }
    return ST_OK;
}
