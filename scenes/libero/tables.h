// tables.h - what BDDL files refer to: object categories and problem classes, read from text files,
// so that more of either (LIBERO-plus, LIBERO-PRO, own objects) is a file and no code.
//
// One record a line, words separated by blanks, `#` starts a comment. FILE is relative to the
// data's assets folder. A record replaces an earlier one of the same name.
//
//   category NAME FILE [rotate=AXIS:LOW:HIGH]...            (at most three)
//            [open=OP:Q] [open_init=LOW:HIGH] and the same with close, turnon, turnoff
//                                                            OP is lt, le, gt or ge
//   problem NAME arena=FILE workspace=TYPE token=TEXT offset=X,Y,Z fixture_z=Z
//           robot=mounted|ground base=X,Y,Z zone_body=BODY zone_z=Z zone_offset=0|1 shrink=0|1
//           [floor=FILE] [wall=FILE] [table=A,B,C] [camera=NAME:X,Y,Z:W,X,Y,Z]...
//
// Threads: any; a struct tables belongs to its maker.
#ifndef SCENES_LIBERO_TABLES_H
#define SCENES_LIBERO_TABLES_H

#include "common/base/status.h"

#include <stdbool.h>

#define TABLES_NAME_MAX   96
#define TABLES_FILE_MAX   192
#define TABLES_CAMERA_MAX 6

// The states of a joint that predicates ask for.
enum joint_state { JOINT_OPEN, JOINT_CLOSE, JOINT_TURNON, JOINT_TURNOFF, N_JOINT_STATE };

struct joint_rule {
    bool has, has_init;
    bool less, strict; // q < value, q <= value, q > value, q >= value
    double value;
    double init[2]; // joint position at a reset: uniform in low..high
};

struct category {
    char name[TABLES_NAME_MAX], file[TABLES_FILE_MAX];
    int n_rotate;
    int axis[3];         // 0, 1, 2 = x, y, z; applied in this order
    double rotate[3][2]; // low, high in rad
    struct joint_rule rules[N_JOINT_STATE];
};

struct arena_camera {
    char name[TABLES_NAME_MAX];
    double pos[3], quat[4];
};

struct problem_class {
    char name[TABLES_NAME_MAX], arena[TABLES_FILE_MAX];
    char workspace[TABLES_NAME_MAX]; // the fixture type that is the arena's own table or floor
    char token[TABLES_NAME_MAX]; // region keys with this text in them are zones of the workspace
    char zone_body[TABLES_NAME_MAX];                    // body that the zones' sites go to
    char floor[TABLES_FILE_MAX], wall[TABLES_FILE_MAX]; // textures; "" = as in the arena's file
    double offset[3];                                   // of the workspace's surface
    double fixture_z, zone_z;
    double base[3];   // of the robot
    bool mounted;     // on a pedestal, or on the ground
    bool zone_offset; // zones are moved by `offset`
    bool shrink;      // placement keeps an object's radius away from the region's border
    bool sets_table;  // the table's size and place are set by the program, with this friction:
    double friction[3];
    int n_camera;
    struct arena_camera cameras[TABLES_CAMERA_MAX];
};

struct tables {
    struct category *categories;
    struct problem_class *problems;
    int n_category, n_problem;
};

// Add the records of a text, which is cut into words in place. Errors name `what`, line and word.
NODISCARD enum status tables_parse(struct tables *t, char *text, const char *what);

// Add the records of a file.
NODISCARD enum status tables_load(struct tables *t, const char *path);
// A struct of zeroes is fine.
void tables_fini(struct tables *t);

const struct category *tables_category(const struct tables *t, const char *name); // NULL if none
// The class of this name; else the one with the longest name that `name` begins with, before an
// underscore: LIBERO-plus derives classes by a suffix that changes nothing but how a scene looks.
// `*exact` says which. NULL if there is none.
const struct problem_class *tables_problem(const struct tables *t, const char *name, bool *exact);

#endif
