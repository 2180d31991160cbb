#include "scenes/libero/compose.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_MAX (BDDL_NAME_MAX + 2)

struct build {
    const struct compose_input *in;
    struct xml_doc *doc;
    struct xml_node *asset, *worldbody, *actuator, *sensor;
};

// Attributes that hold names, and so get an instance's prefix.
static bool is_name(const char *key)
{
    static const char *const keys[] = {
        "name", "class",     "childclass", "joint",  "joint1",   "joint2",  "jointinparent",
        "geom", "geom1",     "geom2",      "mesh",   "material", "texture", "fixed",
        "body", "body1",     "body2",      "tendon", "tendon1",  "tendon2", "actuator",
        "site", "slidesite", "cranksite",  "hfield", "target",   "prefix",  "objname",
    };
    size_t i;

    for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static void add_prefix(struct build *b, struct xml_node *top, const char *prefix)
{
    char text[512];
    struct xml_node *n;
    struct xml_attr *a;

    for (n = top; n; n = xml_walk(top, n))
        for (a = n->attrs; a; a = a->next)
            if (is_name(a->key) && strncmp(a->value, prefix, strlen(prefix)) != 0) {
                snprintf(text, sizeof text, "%s%s", prefix, a->value);
                a->value = xml_strdup(b->doc, text);
            }
}

// ------------------------------------------------------------------ one file

// robosuite's own inlining of defaults: an element with class="c" takes the attributes that it
// lacks from <default class="c"><TAG/>, and loses the class. Nothing is inherited.
static void inline_defaults(struct build *b, struct xml_node *root)
{
    struct xml_node *defaults = xml_child(root, "default", NULL), *n, *of_class, *e;

    for (n = root; n; n = xml_walk(root, n)) {
        const char *class = n->parent == defaults ? NULL : xml_get(n, "class");
        const struct xml_attr *a;

        if (!class || !defaults || n == defaults)
            continue;
        for (of_class = defaults->first; of_class; of_class = of_class->next)
            if (xml_get(of_class, "class") && strcmp(xml_get(of_class, "class"), class) == 0)
                break;
        e = of_class ? xml_child(of_class, n->tag, NULL) : NULL;
        for (a = e ? e->attrs : NULL; a; a = a->next)
            if (!xml_get(n, a->key))
                xml_set(b->doc, n, a->key, a->value);
        xml_unset(n, "class");
    }
    if (defaults)
        xml_remove(defaults);
}

static enum status make_files_absolute(struct build *b, struct xml_node *root, const char *folder)
{
    struct xml_node *asset = xml_child(root, "asset", NULL), *n;
    char path[PATH_MAX];

    for (n = asset ? asset->first : NULL; n; n = n->next) {
        const char *file = xml_get(n, "file");

        if (!file || file[0] == '/')
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
            return FAIL(ST_INVAL, "%s: the path of asset file '%s' is too long", folder, file);
        xml_set(b->doc, n, "file", path);
    }
    return ST_OK;
}

static enum status load(struct build *b, const char *folder, const char *file,
                        struct xml_node **root)
{
    char path[PATH_MAX], *slash;

    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
        return FAIL(ST_INVAL, "the path of '%s' is too long", file);
    TRY(xml_load(b->doc, path, root));
    if (!xml_child(*root, "worldbody", NULL))
        return FAIL(ST_INVAL, "%s: no <worldbody>", path);
    slash = strrchr(path, '/');
    *slash = '\0';
    inline_defaults(b, *root);
    return make_files_absolute(b, *root, path);
}

static bool same_asset(const struct xml_node *a, const struct xml_node *b)
{
    const char *x = xml_get(a, "name"), *y = xml_get(b, "name");

    return strcmp(a->tag, b->tag) == 0 && (x && y ? strcmp(x, y) == 0 : x == y);
}

// The first of two assets with one tag and name wins; one unnamed asset of a tag is kept.
static void add_assets(struct build *b, struct xml_node *root)
{
    struct xml_node *from = xml_child(root, "asset", NULL), *n, *next, *have;

    for (n = from ? from->first : NULL; n; n = next) {
        next = n->next;
        for (have = b->asset->first; have && !same_asset(have, n); have = have->next)
            ;
        if (!have)
            xml_append(b->asset, n);
    }
}

static void move_children(struct xml_node *from, struct xml_node *to)
{
    while (from && from->first)
        xml_append(to, from->first);
}

static bool is_collision_geom(const struct xml_node *n)
{
    const char *group = xml_get(n, "group");

    return strcmp(n->tag, "geom") == 0 && (!group || strcmp(group, "0") == 0);
}

// Collision geoms get one colour, so that a view of them tells arena, arm, mount and hand apart.
static void recolor(struct build *b, struct xml_node *top, const char *rgba, const char *except)
{
    struct xml_node *n;

    for (n = top; n; n = xml_walk(top, n)) {
        const char *name = xml_get(n, "name");

        if (!is_collision_geom(n) || (except && name && strcmp(name, except) == 0))
            continue;
        xml_set(b->doc, n, "rgba", rgba);
        xml_unset(n, "material");
    }
}

// ------------------------------------------------------------------ arena

static void set_texture(struct build *b, struct xml_node *root, const char *name, const char *file)
{
    struct xml_node *asset = xml_child(root, "asset", NULL);
    struct xml_node *texture = asset ? xml_child(asset, "texture", name) : NULL;
    char path[PATH_MAX];

    if (!texture || !file[0])
        return;
    if (snprintf(path, sizeof path, "%s/%s", b->in->assets, file) < (int)sizeof path)
        xml_set(b->doc, texture, "file", path);
}

// The full size of the table, its height and the distance of the legs from its border, in m, as
// the arena's class has them.
static void set_table(struct build *b, struct xml_node *table)
{
    static const double half[3] = {0.5, 0.6, 0.025}, leg[2] = {0.1, 0.1};
    const struct problem_class *p = b->in->problem;
    double top = p->offset[2], place[3] = {0, 0, top - half[2]}, surface[3] = {0, 0, half[2]};
    double leg_half = (top - half[2]) / 2, leg_size[2] = {0.025, leg_half};
    struct xml_node *n;

    xml_set_reals(b->doc, table, "pos", place, 3);
    for (n = table->first; n; n = n->next) {
        const char *name = xml_get(n, "name");

        if (!name)
            continue;
        if (strcmp(name, "table_collision") == 0)
            xml_set_reals(b->doc, n, "friction", p->friction, 3);
        if (strcmp(name, "table_collision") == 0 || strcmp(name, "table_visual") == 0)
            xml_set_reals(b->doc, n, "size", half, 3);
        if (strcmp(name, "table_top") == 0)
            xml_set_reals(b->doc, n, "pos", surface, 3);
        if (strncmp(name, "table_leg", 9) == 0 && name[9] >= '1' && name[9] <= '4') {
            int k = name[9] - '1';
            double x = half[0] - leg[0], y = half[1] - leg[1];
            double pos[3] = {k == 0 || k == 3 ? x : -x, k < 2 ? y : -y, -leg_half};

            xml_set_reals(b->doc, n, "pos", pos, 3);
            xml_set_reals(b->doc, n, "size", leg_size, 2);
        }
    }
}

static void set_cameras(struct build *b, struct xml_node *world)
{
    const struct problem_class *p = b->in->problem;
    int i;

    for (i = 0; i < p->n_camera; i++) {
        struct xml_node *camera = xml_find(world, "camera", p->cameras[i].name);

        if (!camera) {
            camera = xml_new(b->doc, "camera");
            xml_set(b->doc, camera, "name", p->cameras[i].name);
            xml_append(world, camera);
        }
        xml_set_reals(b->doc, camera, "pos", p->cameras[i].pos, 3);
        xml_set_reals(b->doc, camera, "quat", p->cameras[i].quat, 4);
    }
}

// Regions of the table or floor become box sites of its body.
static enum status add_zones(struct build *b, struct xml_node *body)
{
    const struct problem_class *p = b->in->problem;
    const struct bddl *bddl = b->in->bddl;
    int i;

    for (i = 0; i < bddl->n_region; i++) {
        const struct bddl_region *r = &bddl->regions[i];
        double x = (r->range[2] + r->range[0]) / 2, y = (r->range[3] + r->range[1]) / 2;
        double pos[3] = {p->zone_offset ? x + p->offset[0] : x,
                         p->zone_offset ? y + p->offset[1] : y, p->zone_z};
        double size[3] = {(r->range[2] - r->range[0]) / 2, (r->range[3] - r->range[1]) / 2, 0.007};
        struct xml_node *site;

        if (!strstr(r->key, p->token))
            continue;
        if (!r->has_range)
            return FAIL(ST_INVAL, "region '%s' of the workspace has no (:ranges ...)", r->key);
        site = xml_new(b->doc, "site");
        xml_set(b->doc, site, "name", r->key);
        xml_set_reals(b->doc, site, "pos", pos, 3);
        xml_set(b->doc, site, "quat", "1 0 0 0");
        xml_set(b->doc, site, "rgba", "0 0 1 0");
        xml_set_reals(b->doc, site, "size", size, 3);
        xml_set(b->doc, site, "type", "box");
        xml_append(body, site);
    }
    return ST_OK;
}

static enum status add_arena(struct build *b)
{
    const struct problem_class *p = b->in->problem;
    struct xml_node *root = NULL, *world, *body, *floor;

    TRY(load(b, b->in->assets, p->arena, &root));
    world = xml_child(root, "worldbody", NULL);
    body = xml_child(world, "body", p->zone_body);
    if (!body)
        return FAIL(ST_INVAL, "%s/%s: no <body name=\"%s\"> in the worldbody", b->in->assets,
                    p->arena, p->zone_body);
    recolor(b, world, "0.5 0.5 0 1", "floor");
    floor = xml_child(world, "geom", "floor");
    if (floor)
        xml_set(b->doc, floor, "pos", "0 0 0");
    set_texture(b, root, "texplane", p->floor);
    set_texture(b, root, "tex-wall", p->wall);
    if (p->sets_table)
        set_table(b, body);
    set_cameras(b, world);
    TRY(add_zones(b, body));
    move_children(world, b->worldbody);
    add_assets(b, root);
    return ST_OK;
}

// ------------------------------------------------------------------ robot

// Unnamed geoms are numbered apart as visual and collision geoms.
static void name_arm_geoms(struct build *b, struct xml_node *world)
{
    int n_visual = 0, n_collision = 0;
    struct xml_node *n;
    char name[32];

    for (n = world; n; n = xml_walk(world, n)) {
        if (strcmp(n->tag, "geom") != 0 || xml_get(n, "name"))
            continue;
        if (is_collision_geom(n))
            snprintf(name, sizeof name, "g%d_col", n_collision++);
        else
            snprintf(name, sizeof name, "g%d_vis", n_visual++);
        xml_set(b->doc, n, "name", name);
    }
}

// Friction, armature and damping of the arm's joints, as robosuite sets them in code.
static void set_arm_joints(struct build *b, struct xml_node *world)
{
    static const double friction = 0.1;
    struct xml_node *n;
    int i = 0;

    for (n = world; n; n = xml_walk(world, n)) {
        double armature = 5.0 / (i + 1), damping = i < 5 ? 0.1 : 0.01;

        if (strcmp(n->tag, "joint") != 0)
            continue;
        xml_set_reals(b->doc, n, "frictionloss", &friction, 1);
        xml_set_reals(b->doc, n, "armature", &armature, 1);
        xml_set_reals(b->doc, n, "damping", &damping, 1);
        i++;
    }
}

static enum status load_part(struct build *b, const char *file, const char *prefix,
                             const char *rgba, struct xml_node **root)
{
    struct xml_node *world;

    TRY(load(b, b->in->robot, file, root));
    world = xml_child(*root, "worldbody", NULL);
    if (strcmp(prefix, "robot0_") == 0) {
        name_arm_geoms(b, world);
        set_arm_joints(b, world);
    }
    add_prefix(b, *root, prefix);
    recolor(b, world, rgba, NULL);
    return ST_OK;
}

static enum status add_robot(struct build *b)
{
    static const double on_pedestal[3] = {0, 0, 0.01}, on_ground[3];
    bool mounted = b->in->problem->mounted;
    struct xml_node *arm = NULL, *mount = NULL, *hand = NULL, *base, *wrist, *foot, *hand_world;

    TRY(load_part(b, "robots/panda/robot.xml", "robot0_", "0 0.5 0 1", &arm));
    TRY(load_part(b, mounted ? "mounts/rethink_mount.xml" : "mounts/null_mount.xml", "mount0_",
                  "0.5 0.5 0 1", &mount));
    TRY(load_part(b, "grippers/panda_gripper.xml", "gripper0_", "0 0 0.5 1", &hand));
    base = xml_child(xml_child(arm, "worldbody", NULL), "body", NULL);
    foot = xml_child(xml_child(mount, "worldbody", NULL), "body", NULL);
    wrist = base ? xml_find(base, "body", "robot0_right_hand") : NULL;
    hand_world = xml_child(hand, "worldbody", NULL);
    if (!wrist || !foot)
        return FAIL(ST_INVAL,
                    "%s: robots/panda/robot.xml lacks body 'right_hand', or the mount "
                    "its body",
                    b->in->robot);
    xml_set_reals(b->doc, foot, "pos", mounted ? on_pedestal : on_ground, 3);
    xml_append(base, foot);
    xml_set_reals(b->doc, base, "pos", b->in->problem->base, 3);
    move_children(hand_world, wrist);
    xml_append(b->worldbody, base);
    add_assets(b, arm);
    add_assets(b, mount);
    add_assets(b, hand);
    move_children(xml_child(arm, "actuator", NULL), b->actuator);
    move_children(xml_child(hand, "actuator", NULL), b->actuator);
    move_children(xml_child(hand, "sensor", NULL), b->sensor);
    return ST_OK;
}

// ------------------------------------------------------------------ objects and fixtures

// Coordinate `axis` of one of the marker sites beside the object's body.
static enum status marker(const struct xml_node *outer, const char *file, const char *name,
                          int axis, double *out)
{
    const struct xml_node *site = xml_child(outer, "site", name);
    const char *pos = site ? xml_get(site, "pos") : NULL;
    double x[3];

    if (!pos || sscanf(pos, "%lf %lf %lf", &x[0], &x[1], &x[2]) != 3)
        return FAIL(ST_INVAL, "%s: no <site name=\"%s\" pos=\"X Y Z\"> beside the object", file,
                    name);
    *out = x[axis];
    return ST_OK;
}

static void add_element(struct build *b, struct xml_node *parent, const char *tag,
                        const char *const (*attrs)[2], int n)
{
    struct xml_node *node = xml_new(b->doc, tag);
    int i;

    for (i = 0; i < n; i++)
        xml_set(b->doc, node, attrs[i][0], attrs[i][1]);
    xml_append(parent, node);
}

static void finish_object(struct build *b, struct xml_node *body, bool movable)
{
    static const char *const joint[][2] = {
        {"type", "free"}, {"damping", "0.0005"}, {"name", "joint0"}};
    static const char *const site[][2] = {{"pos", "0 0 0"},    {"size", "0.002 0.002 0.002"},
                                          {"rgba", "1 0 0 0"}, {"type", "sphere"},
                                          {"group", "0"},      {"name", "default_site"}};
    struct xml_node *n;
    char name[32];
    int i = 0;

    xml_set(b->doc, body, "name", "main");
    for (n = body; n; n = xml_walk(body, n)) {
        if (strcmp(n->tag, "geom") != 0)
            continue;
        snprintf(name, sizeof name, "g%d", i++);
        if (!xml_get(n, "name"))
            xml_set(b->doc, n, "name", name);
    }
    if (movable)
        add_element(b, body, "joint", joint, 3);
    add_element(b, body, "site", site, 6);
}

static enum status add_object(struct build *b, const struct bddl_object *o, bool movable,
                              struct item *item)
{
    struct xml_node *root = NULL, *outer, *body;
    char prefix[PREFIX_MAX];

    memset(item, 0, sizeof *item);
    item->category = tables_category(b->in->tables, o->type);
    if (!item->category)
        return FAIL(ST_INVAL, "'%s' is of category '%s', which no table has", o->name, o->type);
    TRY(load(b, b->in->assets, item->category->file, &root));
    outer = xml_child(xml_child(root, "worldbody", NULL), "body", NULL);
    body = outer ? xml_child(outer, "body", "object") : NULL;
    if (!body)
        return FAIL(ST_INVAL, "%s: expected worldbody/body/body[name='object']",
                    item->category->file);
    memcpy(item->name, o->name, sizeof item->name);
    item->movable = movable;
    TRY(marker(outer, item->category->file, "bottom_site", 2, &item->bottom));
    TRY(marker(outer, item->category->file, "top_site", 2, &item->top));
    TRY(marker(outer, item->category->file, "horizontal_radius_site", 0, &item->radius));
    finish_object(b, body, movable);
    snprintf(prefix, sizeof prefix, "%s_", o->name);
    add_prefix(b, root, prefix);
    add_assets(b, root);
    xml_append(b->worldbody, body);
    return ST_OK;
}

static enum status add_objects(struct build *b, struct item *items, int *n)
{
    const struct bddl *bddl = b->in->bddl;
    int i;

    *n = 0;
    if (bddl->n_object + bddl->n_fixture > ITEMS_MAX)
        return FAIL(ST_INVAL, "%d objects and %d fixtures, expected at most %d together",
                    bddl->n_object, bddl->n_fixture, ITEMS_MAX);
    for (i = 0; i < bddl->n_object; i++)
        TRY(add_object(b, &bddl->objects[i], true, &items[(*n)++]));
    for (i = 0; i < bddl->n_fixture; i++)
        if (strcmp(bddl->fixtures[i].type, b->in->problem->workspace) != 0)
            TRY(add_object(b, &bddl->fixtures[i], false, &items[(*n)++]));
    return ST_OK;
}

// ------------------------------------------------------------------ what physics does not need

static bool is_zero(const struct xml_node *n, const char *key)
{
    const char *value = xml_get(n, key);

    return value && strtol(value, NULL, 10) == 0;
}

static bool is_visual_geom(const struct xml_node *n)
{
    return strcmp(n->tag, "geom") == 0 && !is_collision_geom(n) && is_zero(n, "contype") &&
           is_zero(n, "conaffinity");
}

static bool mesh_is_used(struct xml_node *world, const char *mesh)
{
    struct xml_node *n;

    for (n = world; n; n = xml_walk(world, n)) {
        const char *used = strcmp(n->tag, "geom") == 0 ? xml_get(n, "mesh") : NULL;

        if (used && strcmp(used, mesh) == 0)
            return true;
    }
    return false;
}

static void strip(struct build *b)
{
    struct xml_node *n, *next;

    for (n = b->worldbody; n; n = next) {
        next = xml_walk(b->worldbody, n);
        xml_unset(n, "material");
        if (is_visual_geom(n))
            xml_remove(n);
    }
    for (n = b->asset->first; n; n = next) {
        next = n->next;
        if (strcmp(n->tag, "mesh") != 0 ||
            !mesh_is_used(b->worldbody, xml_get(n, "name") ? xml_get(n, "name") : ""))
            xml_remove(n);
    }
}

// ------------------------------------------------------------------ the document

static struct xml_node *section(struct build *b, struct xml_node *root, const char *tag)
{
    struct xml_node *n = xml_new(b->doc, tag);

    xml_append(root, n);
    return n;
}

// Engine settings of robosuite's base document. `memory` replaces its nconmax and njmax, which
// would reserve more than 1 GB a world; it changes no number.
static struct xml_node *base(struct build *b)
{
    static const char *const settings[][3] = {
        {"compiler", "angle", "radian"},    {"compiler", "inertiagrouprange", "0 0"},
        {"option", "timestep", "0.002"},    {"option", "impratio", "20"},
        {"option", "cone", "elliptic"},     {"option", "density", "1.2"},
        {"option", "viscosity", "0.00002"}, {"size", "memory", "32M"},
    };
    struct xml_node *root = xml_new(b->doc, "mujoco"), *n;
    size_t i;

    xml_set(b->doc, root, "model", "base");
    for (i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        n = xml_child(root, settings[i][0], NULL);
        if (!n)
            n = section(b, root, settings[i][0]);
        xml_set(b->doc, n, settings[i][1], settings[i][2]);
    }
    b->asset = section(b, root, "asset");
    n = section(b, section(b, root, "visual"), "map");
    xml_set(b->doc, n, "znear", "0.001");
    b->actuator = section(b, root, "actuator");
    b->worldbody = section(b, root, "worldbody");
    b->sensor = section(b, root, "sensor");
    return root;
}

enum status compose(const struct compose_input *in, struct xml_doc *doc, struct xml_node **root,
                    struct item items[ITEMS_MAX], int *n_item)
{
    struct build b = {.in = in, .doc = doc};

    *root = base(&b);
    TRY(add_arena(&b));
    TRY(add_robot(&b));
    TRY(add_objects(&b, items, n_item));
    if (!in->visual)
        strip(&b);
    return doc->failed ? ST_NOMEM : ST_OK;
}
