// compose.h - one BDDL problem -> one MJCF document, as LIBERO and robosuite 1.4 merge theirs.
//
// The arena, the arm with mount and hand, the movable objects and the fixtures are merged as text
// trees, since their files rely on it: names get a prefix per instance, the first of two assets of
// one name wins, and the files' own compiler settings are ignored. Order of bodies and joints is
// that of the Python stack, so that its init states mean the same here.
//
// Threads: any.
#ifndef SCENES_LIBERO_COMPOSE_H
#define SCENES_LIBERO_COMPOSE_H

#include "scenes/libero/bddl.h"
#include "scenes/libero/tables.h"
#include "scenes/libero/xml.h"

// One object or fixture of the scene.
struct item {
    char name[BDDL_NAME_MAX];
    const struct category *category; // borrowed from the tables
    bool movable;                    // has a free joint
    double bottom, top, radius;      // m; for placing it: z, z and x of its marker sites
};

struct compose_input {
    const struct bddl *bddl;
    const struct tables *tables;
    const struct problem_class *problem; // that of bddl->problem
    const char *assets;                  // folder that FILE entries of the tables are relative to
    const char *robot;                   // folder with robots/, mounts/ and grippers/ (robosuite's)
    bool visual; // false: no geoms, meshes, textures and materials that physics does not need
};

// Most objects and fixtures of a scene.
#define ITEMS_MAX 64

// The document and its movable objects, then fixtures, in model order. ST_MISSING and ST_INVAL name
// the file, or the line of the BDDL file's category that no table has.
NODISCARD enum status compose(const struct compose_input *in, struct xml_doc *doc,
                              struct xml_node **root, struct item items[ITEMS_MAX], int *n_item);

#endif
