#include "cli/eval_record.h"

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "scenes/libero/libero.h"

#include <ctype.h>
#include <string.h>

// robosuite's OSC_POSE as LIBERO has it; control_delta follows.
static const char controller[] =
    "\"type\": \"OSC_POSE\", \"input_max\": 1, \"input_min\": -1, "
    "\"output_max\": [0.05, 0.05, 0.05, 0.5, 0.5, 0.5], "
    "\"output_min\": [-0.05, -0.05, -0.05, -0.5, -0.5, -0.5], "
    "\"kp\": 150, \"damping_ratio\": 1, \"impedance_mode\": \"fixed\", \"kp_limits\": [0, 300], "
    "\"damping_ratio_limits\": [0, 10], \"position_limits\": null, \"orientation_limits\": null, "
    "\"uncouple_pos_ori\": true, \"interpolation\": null, \"ramp_ratio\": 0.2, "
    "\"control_delta\": ";

// The class's name as LIBERO spells it: libero_floor_manipulation -> Libero_Floor_Manipulation.
static char *class_name(const char *problem)
{
    char *name = mem_strdup(problem), *p;

    for (p = name; p && *p; p++)
        if (p == name || p[-1] == '_')
            *p = (char)toupper((unsigned char)*p);
    return name;
}

// The part of the file's path that does not depend on the machine.
static const char *bddl_name(const char *path)
{
    const char *part = strstr(path, "bddl_files/"), *slash = strrchr(path, '/');

    return part ? part : slash ? slash + 1 : path;
}

// The colour pictures' cameras and their size; LIBERO's own where there are none.
static void put_cameras(struct json *j, const struct spec *spec)
{
    uint32_t width = 128, height = 128;
    bool depth = false;
    int i, n = 0;

    json_open(j, "camera_names", '[');
    for (i = 0; i < spec->n_picture; i++) {
        const struct spec_picture *p = &spec->pictures[i];

        depth = depth || p->plane == SPEC_DEPTH;
        if (p->plane != SPEC_RGB)
            continue;
        json_str(j, NULL, p->camera);
        width = p->width;
        height = p->height;
        n++;
    }
    if (n == 0) {
        json_str(j, NULL, "robot0_eye_in_hand");
        json_str(j, NULL, "agentview");
    }
    json_close(j, ']');
    json_bool(j, "camera_depths", depth);
    json_int(j, "camera_heights", height);
    json_int(j, "camera_widths", width);
}

static void put_env_kwargs(struct json *j, const struct eval_record *r, const struct spec *spec,
                           bool delta)
{
    char control[sizeof controller + 16];

    snprintf(control, sizeof control, "{%s%s}", controller, delta ? "true" : "false");
    json_open(j, "env_kwargs", '{');
    json_str(j, "bddl_file_name", r->about.bddl_name);
    json_raw(j, "robots", "[\"Panda\"]");
    json_raw(j, "controller_configs", control);
    json_int(j, "control_freq", 20);
    json_bool(j, "has_renderer", false);
    json_bool(j, "has_offscreen_renderer", true);
    json_bool(j, "ignore_done", true);
    json_bool(j, "use_camera_obs", true);
    put_cameras(j, spec);
    json_bool(j, "reward_shaping", true);
    json_close(j, '}');
}

static enum status take_text(struct json *j, char **out)
{
    const char *text = json_text(j);

    *out = text ? mem_strdup(text) : NULL;
    json_fini(j);
    return *out ? ST_OK : ST_NOMEM;
}

static enum status write_env_args(struct eval_record *r, const struct libero *l,
                                  const struct spec *spec, bool delta)
{
    struct json j;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_int(&j, "type", 1); // robosuite
    json_str(&j, "env_name", r->env_name);
    json_str(&j, "problem_name", l->bddl.problem);
    json_str(&j, "bddl_file", r->about.bddl_name);
    put_env_kwargs(&j, r, spec, delta);
    json_close(&j, '}');
    return take_text(&j, &r->env_args);
}

static enum status write_problem_info(struct eval_record *r, const struct libero *l)
{
    struct json j;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "problem_name", l->bddl.problem);
    json_str(&j, "domain_name", "robosuite");
    json_str(&j, "language_instruction", l->bddl.language);
    json_close(&j, '}');
    return take_text(&j, &r->problem_info);
}

enum status eval_record_init(struct eval_record *out, const struct scene *scene,
                             const struct spec *spec, enum record_align align, bool failures)
{
    const struct libero_params *p = scene->params;
    const struct libero *l = scene->data;
    size_t n;

    memset(out, 0, sizeof *out);
    if (scene->driver != &libero_driver || !l->model_text)
        return FAIL(ST_INVAL, "--record: %s cannot be recorded: LIBERO's tasks and tabletop can",
                    scene->name);
    out->env_name = class_name(l->bddl.problem);
    if (!out->env_name)
        return ST_NOMEM;
    TRY(file_read(l->bddl_path, &out->bddl_text, &n));
    out->about.bddl_name = bddl_name(l->bddl_path);
    TRY(write_env_args(out, l, spec, p->control == CONTROL_DELTA));
    TRY(write_problem_info(out, l));
    out->about.align = align;
    out->about.failures = failures;
    out->about.env_name = out->env_name;
    out->about.env_args = out->env_args;
    out->about.problem_info = out->problem_info;
    out->about.bddl_text = out->bddl_text;
    out->about.model = l->model_text;
    return ST_OK;
}

void eval_record_fini(struct eval_record *r)
{
    mem_free(r->env_name);
    mem_free(r->bddl_text);
    mem_free(r->env_args);
    mem_free(r->problem_info);
    memset(r, 0, sizeof *r);
}
