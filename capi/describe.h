// describe.h - a task and the layout of its rows as JSON, for programs that cannot read C structs.
//
//   {"task", "engine", "instruction", "n_obs", "n_act", "act_low": [], "act_high": [],
//    "max_episode_steps", "dt_s", "has_success", "autoreset", "n_env", "b_max", "env": [ids],
//    "stride", "row": [{"name", "offset", "dtype", "shape": []}, ...],
//    "info": [{"name", "on_reset"}, ...],
//    "pictures": [{"name", "camera", "plane", "width", "height", "orientation"}, ...]}
//
// `row` lists the parts of a row with NumPy's names of types ("<f8"). The parts of the info vector
// are called info.NAME and final_info.NAME, pictures picture.NAME and final_picture.NAME.
#ifndef CAPI_DESCRIBE_H
#define CAPI_DESCRIBE_H

#include "common/base/json.h"
#include "common/wire/spec.h"

// What a client asked for, as resolved.
struct describe_settings {
    int autoreset; // enum autoreset
    int n_env, b_max;
    const uint32_t *env; // (n_env)
};

// Appends the object to `j`; a failed allocation shows in json_text.
void describe(struct json *j, const struct spec *spec, const struct row_layout *layout,
              const struct describe_settings *settings);

#endif
