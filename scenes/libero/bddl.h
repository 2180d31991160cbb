// bddl.h - reader of BDDL problem files (Behaviour Domain Definition Language, as LIBERO uses it).
//
// The file is lower-cased, `;` starts a comment, words are runs of characters without blanks and
// parentheses. Lists are kept in file order, since the order of the objects is the order of the
// bodies in the model.
//
// Threads: any; a struct bddl belongs to its maker.
#ifndef SCENES_LIBERO_BDDL_H
#define SCENES_LIBERO_BDDL_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

#define BDDL_NAME_MAX 96
#define BDDL_ARG_MAX  3

// One instance of `:objects` or `:fixtures`, grouped by type in order of first appearance.
struct bddl_object {
    char name[BDDL_NAME_MAX], type[BDDL_NAME_MAX];
};

struct bddl_region {
    char key[2 * BDDL_NAME_MAX]; // TARGET_NAME
    char target[BDDL_NAME_MAX];
    bool has_range;
    double range[4]; // x0 y0 x1 y1, of the first rectangle
    double yaw[2];   // low, high; 0 0 if absent
};

struct bddl_atom {
    char predicate[BDDL_NAME_MAX];
    int n_arg;
    char arg[BDDL_ARG_MAX][2 * BDDL_NAME_MAX];
    bool negated; // inside `not`
    int line;
};

struct bddl {
    char problem[BDDL_NAME_MAX];
    char language[512]; // words of (:language ...), one blank between
    struct bddl_object *objects, *fixtures;
    struct bddl_region *regions;
    struct bddl_atom *init, *goal; // the goal is a conjunction
    int n_object, n_fixture, n_region, n_init, n_goal;
};

// Parse `size` bytes; `what` names the text in errors, which say line and column: ST_INVAL.
NODISCARD enum status bddl_parse(struct bddl *out, const char *text, size_t size, const char *what);

// Read and parse a file; also ST_MISSING and ST_IO.
NODISCARD enum status bddl_load(struct bddl *out, const char *path);

// NULL if the problem has no region of this key.
const struct bddl_region *bddl_region_find(const struct bddl *b, const char *key);

// ST_INVAL with the atom, its line and `why` it cannot be used.
enum status bddl_refuse(const struct bddl_atom *atom, const char *why);

// A struct of zeroes is fine.
void bddl_fini(struct bddl *b);

#endif
