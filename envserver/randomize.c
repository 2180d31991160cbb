#include "envserver/randomize.h"

#include "common/base/crc.h"
#include "common/base/mem.h"
#include "scenes/engine.h"
#include "scenes/model_arrays.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX 64
#define FIELDS_MAX  128

// What may vary, and whether mj_setConst computes other fields from it.
static const struct allowed {
    const char *name;
    int object; // mjtObj of its elements
    bool consts;
} allowed[] = {
    {"gravity", mjOBJ_UNKNOWN, false},
    {"wind", mjOBJ_UNKNOWN, false},
    {"density", mjOBJ_UNKNOWN, false},
    {"viscosity", mjOBJ_UNKNOWN, false},
    {"body_mass", mjOBJ_BODY, true},
    {"body_inertia", mjOBJ_BODY, true},
    {"body_ipos", mjOBJ_BODY, true},
    {"body_iquat", mjOBJ_BODY, true},
    {"body_pos", mjOBJ_BODY, true},
    {"body_quat", mjOBJ_BODY, true},
    {"jnt_stiffness", mjOBJ_JOINT, false},
    {"jnt_range", mjOBJ_JOINT, false},
    {"jnt_margin", mjOBJ_JOINT, false},
    {"jnt_solref", mjOBJ_JOINT, false},
    {"jnt_solimp", mjOBJ_JOINT, false},
    {"jnt_actfrcrange", mjOBJ_JOINT, false},
    {"dof_damping", mjOBJ_DOF, false},
    {"dof_frictionloss", mjOBJ_DOF, false},
    {"dof_armature", mjOBJ_DOF, true},
    {"dof_solref", mjOBJ_DOF, false},
    {"dof_solimp", mjOBJ_DOF, false},
    {"geom_friction", mjOBJ_GEOM, false},
    {"geom_solmix", mjOBJ_GEOM, false},
    {"geom_solref", mjOBJ_GEOM, false},
    {"geom_solimp", mjOBJ_GEOM, false},
    {"geom_rgba", mjOBJ_GEOM, false},
    {"site_rgba", mjOBJ_SITE, false},
    {"cam_pos", mjOBJ_CAMERA, true},
    {"cam_quat", mjOBJ_CAMERA, true},
    {"cam_fovy", mjOBJ_CAMERA, false},
    {"light_pos", mjOBJ_LIGHT, true},
    {"light_dir", mjOBJ_LIGHT, true},
    {"light_ambient", mjOBJ_LIGHT, false},
    {"light_diffuse", mjOBJ_LIGHT, false},
    {"light_specular", mjOBJ_LIGHT, false},
    {"mat_rgba", mjOBJ_MATERIAL, false},
    {"mat_specular", mjOBJ_MATERIAL, false},
    {"mat_shininess", mjOBJ_MATERIAL, false},
    {"mat_reflectance", mjOBJ_MATERIAL, false},
    {"mat_emission", mjOBJ_MATERIAL, false},
    {"pair_friction", mjOBJ_PAIR, false},
    {"pair_solref", mjOBJ_PAIR, false},
    {"pair_solimp", mjOBJ_PAIR, false},
    {"eq_solref", mjOBJ_EQUALITY, false},
    {"eq_solimp", mjOBJ_EQUALITY, false},
    {"tendon_stiffness", mjOBJ_TENDON, false},
    {"tendon_damping", mjOBJ_TENDON, false},
    {"tendon_frictionloss", mjOBJ_TENDON, false},
    {"tendon_range", mjOBJ_TENDON, false},
    {"actuator_gainprm", mjOBJ_ACTUATOR, false},
    {"actuator_biasprm", mjOBJ_ACTUATOR, false},
    {"actuator_dynprm", mjOBJ_ACTUATOR, false},
    {"actuator_gear", mjOBJ_ACTUATOR, true},
    {"actuator_ctrlrange", mjOBJ_ACTUATOR, false},
    {"actuator_forcerange", mjOBJ_ACTUATOR, false},
};

// What mj_setConst writes, if only for a moment: it sets the modes of cameras and lights to fixed,
// and MuJoCo 4 makes tables anew that come out as they were. Other envs are stepped and drawn
// meanwhile. probe() finds out whether it has come to change more.
static const char *const derived[] = {
    "body_subtreemass",
    "body_invweight0",
    "dof_invweight0",
    "dof_M0",
    "tendon_length0",
    "tendon_invweight0",
    "tendon_lengthspring",
    "actuator_acc0",
    "actuator_length0",
    "actuator_lengthrange",
    "cam_mode",
    "cam_pos0",
    "cam_poscom0",
    "cam_mat0",
    "light_mode",
    "light_pos0",
    "light_poscom0",
    "light_dir0",
    "body_simple",
    "dof_simplenum",
    "body_sameframe",
    "eq_data",
    // MuJoCo 4
    "body_contype",
    "body_conaffinity",
    "body_margin",
    "body_treeid",
    "bvh_aabb",
    "geom_sameframe",
    "geom_aabb",
    "geom_rbound",
    "site_sameframe",
    "jnt_actuatorid",
    "dof_length",
    "tree_bodyadr",
    "tree_bodynum",
    "tree_dofadr",
    "tree_dofnum",
    "tree_sleep_policy",
    "tendon_actuatorid",
    "tendon_treenum",
    "tendon_treeid",
    "ten_J_rownnz",
    "ten_J_rowadr",
    "ten_J_colind",
};

struct field {
    const struct allowed *what; // NULL: derived
    struct model_array array;
    bool real32;
    bool in_opt;            // part of mjModel itself, not an array
    size_t now_at, base_at; // in the variant's block; base only where the plan names it
};

enum op { OP_SET, OP_SCALE, OP_ADD };
enum distribution { UNIFORM, LOG_UNIFORM, NORMAL };

// An entry as the option table fills it.
struct entry_options {
    char field[OPT_STR_MAX], element[OPT_STR_MAX], also[OPT_STR_MAX];
    int64_t component;
    int op, distribution;
    double range[2], ramp[2];
    bool shared;
};

#define AT(name) offsetof(struct entry_options, name)

static const struct opt entry_table[] = {
    {"field", OPT_STR, AT(field), 0, 0, NULL, "field of mjModel", NULL},
    {"element", OPT_STR, AT(element), 0, 0, "", "name or number of the element", NULL},
    {"also", OPT_STR, AT(also), 0, 0, "", "field that gets the same numbers", NULL},
    {"component", OPT_INT, AT(component), -1, 64, "-1", "component, -1 = all", NULL},
    {"op", OPT_ENUM, AT(op), 0, 0, "scale", "what the number does", "set|scale|add"},
    {"range", OPT_RANGE, AT(range), -1e12, 1e12, "1,1", "lowest and highest number", NULL},
    {"distribution", OPT_ENUM, AT(distribution), 0, 0, "uniform", "how it is drawn",
     "uniform|log-uniform|normal"},
    {"shared", OPT_BOOL, AT(shared), 0, 1, "false", "one number for all", NULL},
    {"ramp", OPT_RANGE, AT(ramp), 0, 1e15, "0,0", "episodes over which the range opens", NULL},
    {0},
};

struct entry {
    struct entry_options o;
    int field, also; // indices; also -1 = none
    int first, n;    // elements
    bool draws;
};

struct randomize {
    const struct scene *scene;
    int n_field, n_entry;
    struct field fields[FIELDS_MAX];
    struct entry entries[ENTRIES_MAX];
    bool consts; // mj_setConst is needed
    size_t block_bytes;
    uint64_t id;
    char text[RANDOMIZE_TEXT_MAX];
};

struct variant {
    const struct randomize *plan;
    mjModel model;
    struct scene scene; // with `model`
    bool stale;         // fields were set, and what depends on them is old
    uint8_t *block;     // (block_bytes) the arrays
};

// ------------------------------------------------------------------ the arrays of a model

static void **pointer_of(mjModel *m, const struct model_array *a)
{
    return (void **)((char *)m + a->offset);
}

static bool find_option(const char *name, struct model_array *out)
{
    static const struct model_array options[] = {
        {"gravity", "mjtNum", offsetof(mjModel, opt.gravity), 3 * sizeof(mjtNum), 1, 3},
        {"wind", "mjtNum", offsetof(mjModel, opt.wind), 3 * sizeof(mjtNum), 1, 3},
        {"density", "mjtNum", offsetof(mjModel, opt.density), sizeof(mjtNum), 1, 1},
        {"viscosity", "mjtNum", offsetof(mjModel, opt.viscosity), sizeof(mjtNum), 1, 1},
    };
    size_t i;

    for (i = 0; i < sizeof options / sizeof options[0]; i++)
        if (strcmp(options[i].name, name) == 0) {
            *out = options[i];
            return true;
        }
    return false;
}

static bool find_array(const mjModel *m, const char *name, struct model_array *out)
{
    struct model_array all[MODEL_ARRAYS_MAX];
    int i, n = model_arrays(m, all);

    for (i = 0; i < n; i++)
        if (strcmp(all[i].name, name) == 0) {
            *out = all[i];
            return true;
        }
    return find_option(name, out);
}

// ------------------------------------------------------------------ the plan

static size_t take(size_t *at, size_t bytes)
{
    size_t here = *at;

    *at += (bytes + 63) / 64 * 64;
    return here;
}

static int find_field(const struct randomize *r, const char *name)
{
    int i;

    for (i = 0; i < r->n_field; i++)
        if (strcmp(r->fields[i].array.name, name) == 0)
            return i;
    return -1;
}

// Give the field a place of its own in every variant.
static enum status add_field(struct randomize *r, const char *name, const struct allowed *what)
{
    struct field f = {.what = what};
    int at = find_field(r, name);

    if (at >= 0 && (r->fields[at].what || !what))
        return ST_OK;
    if (r->n_field == FIELDS_MAX)
        return FAIL(ST_INVAL, "more than %d fields vary", FIELDS_MAX);
    if (!find_array(r->scene->model, name, &f.array))
        return ST_OK; // a derived field that this version of the engine does not have
    f.real32 = strcmp(f.array.type, "float") == 0;
    f.in_opt = find_option(name, &f.array);
    f.now_at = take(&r->block_bytes, f.array.bytes);
    if (what)
        f.base_at = take(&r->block_bytes, f.array.bytes);
    r->fields[at >= 0 ? at : r->n_field++] = f;
    return ST_OK;
}

static enum status allow(struct randomize *r, const char *name, int *out)
{
    struct model_array a;
    size_t i;

    for (i = 0; i < sizeof allowed / sizeof allowed[0]; i++)
        if (strcmp(allowed[i].name, name) == 0) {
            TRY(add_field(r, name, &allowed[i]));
            r->consts |= allowed[i].consts;
            *out = find_field(r, name);
            return ST_OK;
        }
    if (find_array(r->scene->model, name, &a))
        return FAIL(ST_INVAL,
                    "field '%s' cannot vary: other parts of the model were compiled from it", name);
    return FAIL(ST_INVAL, "mjModel has no field '%s'", name);
}

// Elements of `f` that `name` (a name, a number, "" = all) means.
static enum status find_element(const struct randomize *r, const struct field *f, const char *name,
                                int *first, int *n)
{
    const mjModel *m = r->scene->model;
    int object = f->what->object, id;
    char *end;
    long number = strtol(name, &end, 10);

    *first = 0;
    *n = f->array.rows;
    if (name[0] == '\0')
        return ST_OK;
    *n = 1;
    if (*end == '\0') {
        if (number < 0 || number >= f->array.rows)
            return FAIL(ST_INVAL, "field '%s' has elements 0 to %d, not %ld", f->array.name,
                        f->array.rows - 1, number);
        *first = (int)number;
        return ST_OK;
    }
    id = object == mjOBJ_UNKNOWN ? -1
                                 : mj_name2id(m, object == mjOBJ_DOF ? mjOBJ_JOINT : object, name);
    if (id < 0)
        return FAIL(ST_INVAL, "field '%s': the model has no %s '%s'", f->array.name,
                    object == mjOBJ_UNKNOWN
                        ? "element"
                        : mju_type2Str(object == mjOBJ_DOF ? mjOBJ_JOINT : object),
                    name);
    *first = id;
    if (object == mjOBJ_DOF) {
        static const int dofs[] = {6, 3, 1, 1}; // free, ball, slide, hinge

        *first = m->jnt_dofadr[id];
        *n = dofs[m->jnt_type[id]];
    }
    return ST_OK;
}

static enum status check_numbers(const struct entry *e, const struct field *f)
{
    const struct entry_options *o = &e->o;

    if (o->component >= f->array.cols)
        return FAIL(ST_INVAL, "field '%s' has components 0 to %d, not %lld", f->array.name,
                    f->array.cols - 1, (long long)o->component);
    if (o->range[0] > o->range[1])
        return FAIL(ST_INVAL, "field '%s': range [%g, %g] is empty", f->array.name, o->range[0],
                    o->range[1]);
    if (o->distribution == LOG_UNIFORM && o->range[0] <= 0)
        return FAIL(ST_INVAL, "field '%s': a log-uniform range must be above 0, not [%g, %g]",
                    f->array.name, o->range[0], o->range[1]);
    if (o->ramp[0] > o->ramp[1])
        return FAIL(ST_INVAL, "field '%s': ramp [%g, %g] runs backwards", f->array.name, o->ramp[0],
                    o->ramp[1]);
    return ST_OK;
}

static enum status add_entry(struct randomize *r, const char *json)
{
    struct entry *e = &r->entries[r->n_entry];
    char what[32];

    if (r->n_entry == ENTRIES_MAX)
        return FAIL(ST_INVAL, "more than %d entries", ENTRIES_MAX);
    snprintf(what, sizeof what, "entry %d", r->n_entry);
    TRY(opts_defaults(entry_table, &e->o));
    TRY(opts_json(entry_table, &e->o, json, what));
    if (e->o.field[0] == '\0')
        return FAIL(ST_INVAL, "it names no field");
    TRY(allow(r, e->o.field, &e->field));
    e->also = -1;
    if (e->o.also[0])
        TRY(allow(r, e->o.also, &e->also));
    TRY(find_element(r, &r->fields[e->field], e->o.element, &e->first, &e->n));
    TRY(check_numbers(e, &r->fields[e->field]));
    if (e->also >= 0 && r->fields[e->also].array.rows != r->fields[e->field].array.rows)
        return FAIL(ST_INVAL, "field '%s' has %d elements, '%s' has %d", e->o.also,
                    r->fields[e->also].array.rows, e->o.field, r->fields[e->field].array.rows);
    e->draws = !(e->o.op == OP_SCALE && e->o.range[0] == 1 && e->o.range[1] == 1);
    r->n_entry++;
    return ST_OK;
}

// The end of the JSON object that begins at `p`, NULL if it does not end.
static const char *object_end(const char *p)
{
    bool text = false;
    int depth = 0;

    for (; *p; p++) {
        if (text && *p == '\\' && p[1])
            p++;
        else if (*p == '"')
            text = !text;
        else if (!text && *p == '{')
            depth++;
        else if (!text && *p == '}' && --depth == 0)
            return p + 1;
    }
    return NULL;
}

static const char *blank(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

// An array of objects, each of them handed to add_entry.
static enum status read_plan(struct randomize *r, const char *json)
{
    const char *p = blank(json), *end;
    char *copy;
    enum status st;

    if (*p != '[')
        return FAIL(ST_INVAL, "randomize: expected a JSON array of objects");
    for (p = blank(p + 1); *p == '{'; p = *p == ',' ? blank(p + 1) : p) {
        end = object_end(p);
        if (!end)
            return FAIL(ST_INVAL, "randomize: entry %d does not end", r->n_entry);
        copy = mem_alloc((size_t)(end - p) + 1, 1);
        if (!copy)
            return ST_NOMEM;
        memcpy(copy, p, (size_t)(end - p));
        st = add_entry(r, copy);
        mem_free(copy);
        if (st != ST_OK)
            return error_prefix("randomize: entry %d", r->n_entry);
        p = blank(end);
    }
    if (*p != ']' || *blank(p + 1) != '\0')
        return FAIL(ST_INVAL, "randomize: expected ',' or the end of the array at '%.20s'", p);
    return ST_OK;
}

// ------------------------------------------------------------------ variants

size_t randomize_variant_bytes(const struct randomize *r)
{
    return (sizeof(struct variant) + 63) / 64 * 64 + r->block_bytes;
}

void variant_reset(struct variant *v)
{
    const struct randomize *r = v->plan;
    const mjModel *m = r->scene->model;
    int i;

    v->model = *m;
    v->stale = false;
    for (i = 0; i < r->n_field; i++) {
        const struct field *f = &r->fields[i];
        const void *data = f->in_opt ? (const char *)m + f->array.offset : model_data(m, &f->array);

        if (f->array.bytes == 0)
            continue;
        memcpy(v->block + f->now_at, data, f->array.bytes);
        if (f->what)
            memcpy(v->block + f->base_at, data, f->array.bytes);
        if (!f->in_opt)
            *pointer_of(&v->model, &f->array) = v->block + f->now_at;
    }
}

struct variant *variant_make(const struct randomize *r, void *mem)
{
    struct variant *v = mem;

    v->plan = r;
    v->scene = *r->scene;
    v->scene.model = &v->model;
    v->block = (uint8_t *)mem + (sizeof *v + 63) / 64 * 64;
    variant_reset(v);
    return v;
}

static double get(const struct field *f, const uint8_t *data, int i)
{
    return f->real32 ? ((const float *)data)[i] : ((const double *)data)[i];
}

static void put(const struct field *f, uint8_t *data, int i, double x)
{
    if (f->real32)
        ((float *)data)[i] = (float)x;
    else
        ((double *)data)[i] = x;
}

// Options lie in mjModel itself.
static void options_take_effect(struct variant *v)
{
    int i;

    for (i = 0; i < v->plan->n_field; i++) {
        const struct field *f = &v->plan->fields[i];

        if (f->in_opt)
            memcpy((char *)&v->model + f->array.offset, v->block + f->now_at, f->array.bytes);
    }
}

static void derive(struct variant *v, mjData *d)
{
    options_take_effect(v);
    if (v->plan->consts)
        mj_setConst(&v->model, d);
    v->stale = false;
}

static enum row_error derive_guarded(struct variant *v, struct sim *sim)
{
    struct engine_trap trap;

    if (!ENGINE_TRY(&trap)) {
        snprintf(sim->world.error, sizeof sim->world.error, "%s", trap.text);
        sim->broken = true;
        return ROW_ERROR_ENGINE;
    }
    derive(v, sim->world.d);
    engine_end(&trap);
    return ROW_ERROR_NONE;
}

enum row_error variant_enter(struct variant *v, struct sim *sim)
{
    sim->world.model = &v->model;
    sim->world.scene = &v->scene;
    return v->stale ? derive_guarded(v, sim) : ROW_ERROR_NONE;
}

// How far the range is open in this episode, 0..1.
static double opened(const struct entry *e, uint64_t episode)
{
    double a = e->o.ramp[0], b = e->o.ramp[1], t = (double)episode;

    if (t >= b)
        return 1;
    return t <= a ? 0 : (t - a) / (b - a);
}

static double draw(const struct entry *e, struct rng *rng, double open, double neutral)
{
    double low = neutral + open * (e->o.range[0] - neutral);
    double high = neutral + open * (e->o.range[1] - neutral), x;

    switch ((enum distribution)e->o.distribution) {
    case LOG_UNIFORM:
        return exp(rng_uniform(rng, log(low), log(high)));
    case NORMAL:
        x = (low + high) / 2 + (high - low) / 4 * rng_normal(rng);
        return x < low ? low : x > high ? high : x;
    case UNIFORM:
        break;
    }
    return rng_uniform(rng, low, high);
}

static double apply(enum op op, double old, double x)
{
    return op == OP_SET ? x : op == OP_SCALE ? old * x : old + x;
}

static void make_unit(const struct field *f, uint8_t *data, int element)
{
    size_t n = strlen(f->array.name);

    if (n > 4 && strcmp(f->array.name + n - 4, "quat") == 0 && !f->real32)
        mju_normalize4((double *)data + 4 * element);
}

// Draw the numbers of one entry and put them over what is there.
static void apply_entry(struct variant *v, const struct entry *e, int index,
                        const struct scene_start *start)
{
    const struct field *f = &v->plan->fields[e->field];
    const struct field *also = e->also >= 0 ? &v->plan->fields[e->also] : NULL;
    struct rng rng =
        rng_make(start->seed, RNG_MODEL, start->stream, start->episode, (uint64_t)index);
    double open = opened(e, start->episode), x = 0;
    int i, k, first = e->o.component < 0 ? 0 : (int)e->o.component;
    int last = e->o.component < 0 ? f->array.cols - 1 : first;
    bool drawn = false;

    for (i = e->first; i < e->first + e->n; i++) {
        uint8_t *now = v->block + f->now_at;

        for (k = first; k <= last; k++) {
            double old = get(f, now, i * f->array.cols + k);
            double neutral = e->o.op == OP_SCALE ? 1 : e->o.op == OP_ADD ? 0 : old;

            if (!drawn || (!e->o.shared && (!also || k == first)))
                x = draw(e, &rng, open, neutral);
            drawn = true;
            put(f, now, i * f->array.cols + k, apply((enum op)e->o.op, old, x));
        }
        make_unit(f, now, i);
        for (k = 0; also && k < also->array.cols; k++) {
            now = v->block + also->now_at;
            put(also, now, i * also->array.cols + k,
                apply((enum op)e->o.op, get(also, now, i * also->array.cols + k), x));
        }
    }
}

enum row_error variant_draw(struct variant *v, struct sim *sim, const struct scene_start *start)
{
    const struct randomize *r = v->plan;
    int i;

    for (i = 0; i < r->n_field; i++)
        if (r->fields[i].what)
            memcpy(v->block + r->fields[i].now_at, v->block + r->fields[i].base_at,
                   r->fields[i].array.bytes);
    for (i = 0; i < r->n_entry; i++)
        if (r->entries[i].draws)
            apply_entry(v, &r->entries[i], i, start);
    return derive_guarded(v, sim);
}

// ------------------------------------------------------------------ by hand

static enum status locate(const struct randomize *r, const char *field, const char *element,
                          const struct field **f, int *first, int *n)
{
    int i = find_field(r, field), n_element;

    if (i < 0 || !r->fields[i].what)
        return FAIL(ST_INVAL, "field '%s' is not in the plan of what may vary", field);
    *f = &r->fields[i];
    TRY(find_element(r, *f, element, first, &n_element));
    *n = n_element * (*f)->array.cols;
    *first *= (*f)->array.cols;
    return ST_OK;
}

enum status randomize_field_size(const struct randomize *r, const char *field, const char *element,
                                 int *n)
{
    const struct field *f;
    int first;

    return locate(r, field, element, &f, &first, n);
}

void variant_set(struct variant *v, const char *field, const char *element, const double *x)
{
    const struct field *f;
    int first, n, k;

    if (locate(v->plan, field, element, &f, &first, &n) != ST_OK)
        return; // randomize_field_size has found it
    for (k = 0; k < n; k++) {
        put(f, v->block + f->now_at, first + k, x[k]);
        put(f, v->block + f->base_at, first + k, x[k]);
    }
    v->stale = true;
}

void variant_get(const struct variant *v, const char *field, const char *element, double *x)
{
    const struct field *f;
    int first, n, k;

    if (locate(v->plan, field, element, &f, &first, &n) != ST_OK)
        return; // as above
    for (k = 0; k < n; k++)
        x[k] = get(f, v->block + f->now_at, first + k);
}

// What the plan names is saved: the numbers in force and those that episodes vary from. What the
// engine computes from them is computed again, as after variant_set.
size_t variant_saved_bytes(const struct variant *v)
{
    size_t n = 0;
    int i;

    for (i = 0; i < v->plan->n_field; i++)
        if (v->plan->fields[i].what)
            n += 2 * ((v->plan->fields[i].array.bytes + 7) / 8 * 8);
    return n;
}

void variant_save(const struct variant *v, void *out)
{
    uint8_t *p = out;
    int i, k;

    memset(out, 0, variant_saved_bytes(v));
    for (i = 0; i < v->plan->n_field; i++) {
        const struct field *f = &v->plan->fields[i];

        for (k = 0; k < 2 && f->what; k++, p += (f->array.bytes + 7) / 8 * 8)
            memcpy(p, v->block + (k ? f->base_at : f->now_at), f->array.bytes);
    }
}

void variant_load(struct variant *v, const void *in)
{
    const uint8_t *p = in;
    int i, k;

    for (i = 0; i < v->plan->n_field; i++) {
        const struct field *f = &v->plan->fields[i];

        for (k = 0; k < 2 && f->what; k++, p += (f->array.bytes + 7) / 8 * 8)
            memcpy(v->block + (k ? f->base_at : f->now_at), p, f->array.bytes);
    }
    v->stale = true;
}

enum status variant_check(const struct variant *v, const void *in)
{
    const uint8_t *p = in;
    int i, k;

    for (i = 0; i < v->plan->n_field; i++) {
        const struct field *f = &v->plan->fields[i];
        int n = f->array.rows * f->array.cols;

        if (!f->what)
            continue;
        for (k = 0; k < 2 * n; k++)
            if (!isfinite(get(f, p + k / n * ((f->array.bytes + 7) / 8 * 8), k % n)))
                return FAIL(ST_PROTO, "field '%s' of the state has a number that is not finite",
                            f->array.name);
        p += 2 * ((f->array.bytes + 7) / 8 * 8);
    }
    return ST_OK;
}

// ------------------------------------------------------------------ making a plan

// Does mj_setConst write an array that the variants share? Tried on a copy of the model in which
// everything that may vary is a little different.
static enum status probe(const struct randomize *r, mjModel *copy, mjData *d)
{
    const mjModel *m = r->scene->model;
    struct model_array all[MODEL_ARRAYS_MAX];
    int i, k, n = model_arrays(m, all);

    for (i = 0; i < r->n_field; i++) {
        const struct field *f = &r->fields[i];

        if (!f->what || f->in_opt || !f->what->consts)
            continue;
        for (k = 0; k < f->array.rows * f->array.cols; k++)
            put(f, *pointer_of(copy, &f->array), k, 1.01 * get(f, *pointer_of(copy, &f->array), k));
    }
    mj_setConst(copy, d);
    for (i = 0; i < n; i++)
        if (find_field(r, all[i].name) < 0 && all[i].bytes > 0 &&
            memcmp(model_data(copy, &all[i]), model_data(m, &all[i]), all[i].bytes) != 0)
            return FAIL(ST_INVAL, "randomize: this engine also computes '%s' anew", all[i].name);
    return ST_OK;
}

static enum status check_consts(const struct randomize *r)
{
    struct engine_trap trap;
    mjModel *volatile copy = NULL;
    mjData *volatile d = NULL;
    volatile enum status st = ST_NOMEM;

    if (ENGINE_TRY(&trap)) {
        copy = mj_copyModel(NULL, r->scene->model);
        if (copy)
            d = mj_makeData(copy);
        if (d)
            st = probe(r, copy, d);
        engine_end(&trap);
    } else {
        st = FAIL(ST_INVAL, "randomize: %s", trap.text);
    }
    mj_deleteData(d);
    mj_deleteModel(copy);
    return st;
}

static enum status build(struct randomize *r, const char *json)
{
    size_t i;

    if (!sim_by_rows(r->scene))
        return FAIL(ST_INVAL, "randomize: task '%s' keeps models of its own", r->scene->name);
    TRY(read_plan(r, json));
    if (!r->consts)
        return ST_OK;
    for (i = 0; i < sizeof derived / sizeof derived[0]; i++)
        TRY(add_field(r, derived[i], NULL));
    return check_consts(r);
}

enum status randomize_create(struct randomize **out, const struct scene *scene, const char *json)
{
    struct randomize *r;
    enum status st;

    if (strlen(json) >= RANDOMIZE_TEXT_MAX)
        return FAIL(ST_INVAL, "randomize: a plan of %zu bytes, at most %d are possible",
                    strlen(json), RANDOMIZE_TEXT_MAX - 1);
    r = mem_alloc(1, sizeof *r);
    if (!r)
        return ST_NOMEM;
    r->scene = scene;
    memcpy(r->text, json, strlen(json) + 1);
    r->id = (uint64_t)crc32c(0, json, strlen(json)) << 32 | (uint32_t)strlen(json);
    st = build(r, json);
    if (st != ST_OK) {
        randomize_destroy(r);
        return st;
    }
    *out = r;
    return ST_OK;
}

void randomize_destroy(struct randomize *r)
{
    mem_free(r);
}

const char *randomize_text(const struct randomize *r)
{
    return r->text;
}

uint64_t variant_plan_id(const struct variant *v)
{
    return v->plan->id;
}
