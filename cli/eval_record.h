// eval_record.h - what a recording says of its task (evaluation/record.h), taken from the compiled
// scene: only LIBERO's tasks and `tabletop` can be recorded so far.
#ifndef CLI_EVAL_RECORD_H
#define CLI_EVAL_RECORD_H

#include "evaluation/record.h"

struct scene;

struct eval_record {
    struct record_about about; // its strings are below, or the scene's
    char *bddl_text, *env_args, *problem_info, *env_name;
};

// The scene must have been made with the keyword sim_state and outlive `out`. ST_INVAL for other
// tasks. Free with eval_record_fini whether it went well or not; a struct of zeroes is fine.
NODISCARD enum status eval_record_init(struct eval_record *out, const struct scene *scene,
                                       const struct spec *spec, enum record_align align,
                                       bool failures);
void eval_record_fini(struct eval_record *r);

#endif
