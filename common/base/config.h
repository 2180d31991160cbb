// config.h - one table per program or task: names, types, ranges, defaults and help of its options.
//
// The table fills a plain struct from defaults, a JSON object and `--name=value` or `--name value`
// on a command line, in that order, and prints --help and the resolved values. Unknown names and
// values out of range are ST_INVAL with a text that names the option and what was expected.
//
// This is the home of cJSON. cJSON's parser writes a global, so calls that parse are serialised.
#ifndef COMMON_BASE_CONFIG_H
#define COMMON_BASE_CONFIG_H

#include "common/base/status.h"

#include <stdint.h>
#include <stdio.h>

#define OPT_STR_MAX 2048

enum opt_type {
    OPT_INT,   // int64_t in low..high
    OPT_REAL,  // double in low..high; "inf" and "-inf" where the range allows them
    OPT_BOOL,  // bool
    OPT_STR,   // char[OPT_STR_MAX]
    OPT_TIME,  // int64_t ns; text is a number with ns, us, ms or s; low..high in ns
    OPT_RANGE, // double[2], "low,high" or a JSON array of two numbers
    OPT_ENUM,  // int, index into the names of `choices` ("a|b|c")
};

struct opt {
    const char *name;
    enum opt_type type;
    size_t offset;
    double low, high;
    const char *def; // as one would type it; NULL = must be given
    const char *help;
    const char *choices; // OPT_ENUM only
};

// Tables end with an entry whose name is NULL.

// Set every field of `obj` to its default.
NODISCARD enum status opts_defaults(const struct opt *table, void *obj);

// Set one option from text.
NODISCARD enum status opts_set(const struct opt *table, void *obj, const char *name,
                               const char *text);

// ST_INVAL unless `text` is one JSON object; `what` names it.
NODISCARD enum status config_check_object(const char *text, const char *what);

// Apply a JSON object given as text; `what` names it in errors (a file name, "--kwargs").
// An empty string is an empty object.
NODISCARD enum status opts_json(const struct opt *table, void *obj, const char *text,
                                const char *what);

// Apply a command line. Booleans may stand alone (`--json`). A `--config FILE` is applied where it
// stands. Other words are moved to the front of argv, `*n_word` says how many.
NODISCARD enum status opts_argv(const struct opt *table, void *obj, int argc, char **argv,
                                int *n_word);

// After all sources: an error that names the first option without default that was not given.
NODISCARD enum status opts_check_required(const struct opt *table, const void *obj);

// One aligned line an option: name, default, meaning.
void opts_help(const struct opt *table, FILE *out);

// The resolved values as one JSON object into buf (always terminated); ST_INVAL if it is too small.
NODISCARD enum status opts_dump(const struct opt *table, const void *obj, char *buf, size_t size);

// A whole text as JSON, for those who need more than a table; NULL if it is none. The caller's
// (cJSON_Delete).
struct cJSON *config_parse(const char *text);

// Name of the chosen value of an OPT_ENUM, into a buffer of the thread; valid until the next call.
const char *opt_choice_name(const char *choices, int i);

#endif
