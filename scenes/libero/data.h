// data.h - where a task's files are: LIBERO's from the user, our own suite's beside the program.
//
// Threads: any.
#ifndef SCENES_LIBERO_DATA_H
#define SCENES_LIBERO_DATA_H

#include "common/base/status.h"

#include <limits.h>

// Folders of a data root.
struct data_dirs {
    char root[PATH_MAX]; // bddl_files/SUITE and init_files/SUITE lie in it
    char assets[PATH_MAX];
    char robot[PATH_MAX];  // robots, mounts, grippers as robosuite has them
    char tables[PATH_MAX]; // the suite's tables file
};

// Of the suite `tabletop`.
NODISCARD enum status data_find_own(struct data_dirs *out);

// Of LIBERO: `dir` if not empty, else $LIBERO_DIR, else what `make libero-data` fetched. The robot
// is ROOT/robosuite-VERSION, else $ROBOSUITE_DIR (robosuite's models/assets). ST_MISSING says in
// one line how to get the files.
NODISCARD enum status data_find_libero(struct data_dirs *out, const char *dir,
                                       const char *robosuite_version);

#endif
