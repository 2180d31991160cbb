// init_states.h - LIBERO's init-state files (`.pruned_init`): a matrix of doubles, one row a start.
//
// The file is what torch.save makes of a NumPy array: a ZIP archive with one stored member
// NAME/data.pkl, a protocol-2 pickle that holds shape, dtype and the raw bytes as latin-1 text in
// UTF-8. The reader walks the pickle's opcodes and executes none. NumPy archives (.npz with one
// array), as LIBERO-PRO's package has them, are read too. The home of zlib.
//
// Threads: any.
#ifndef SCENES_LIBERO_INIT_STATES_H
#define SCENES_LIBERO_INIT_STATES_H

#include "common/base/status.h"

#include <stddef.h>

struct init_states {
    double *rows; // (n_row, n_col): time, qpos, qvel
    int n_row, n_col;
};

// `what` names the bytes in errors: ST_INVAL. A one-dimensional array is one row.
NODISCARD enum status init_states_parse(struct init_states *out, const void *bytes, size_t size,
                                        const char *what);

NODISCARD enum status init_states_load(struct init_states *out, const char *path);

// Write a file that torch.load and this reader open.
NODISCARD enum status init_states_save(const struct init_states *s, const char *path);

// A struct of zeroes is fine.
void init_states_fini(struct init_states *s);

#endif
