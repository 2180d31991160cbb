// fields.h - every field of a RESET, STEP and BATCH row by name: what a server declares in WELCOME,
// so that a client in any language can find a number without this project's headers.
//
// The table follows from the spec, k_max and the autoreset mode. A reader computes it again and
// refuses a server whose rows lie otherwise, naming the first field that differs.
#ifndef COMMON_WIRE_FIELDS_H
#define COMMON_WIRE_FIELDS_H

#include "common/wire/spec.h"

#define FIELD_NAME_MAX 96
#define FIELDS_MAX     96

enum field_type { FIELD_U32 = 1, FIELD_U64, FIELD_F32, FIELD_F64, FIELD_U8, FIELD_I32 };

struct field {
    char name[FIELD_NAME_MAX]; // "batch.obs", "step.action", "batch.info.x_position"
    uint32_t type;             // enum field_type
    uint32_t offset;           // bytes from the start of the row
    uint32_t shape[2];         // (rows, columns) of numbers, C order; a scalar is (1, 1),
                               // a picture (height, width * numbers of a pixel)
};

struct fields {
    int n;
    struct field field[FIELDS_MAX];
};

// `spec` has been checked.
void fields_make(struct fields *out, const struct spec *spec, int k_max, enum autoreset autoreset);

NODISCARD enum status fields_write(struct msg *m, const struct fields *f);
// ST_PROTO unless the table is `want`.
NODISCARD enum status fields_check(struct reader *r, const struct fields *want);

#endif
