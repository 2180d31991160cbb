// libero.h - a LIBERO task: parameters, what is shared by its worlds, and what one world keeps.
//
// Physics and numbers are those of LIBERO on robosuite 1.4 (OffScreenRenderEnv without its
// pictures): 20 Hz control, 25 physics steps of 2 ms an action, one forward evaluation each.
//
// An episode is (seed, stream, episode): NumPy's generator is seeded with seed + stream, and the
// episode starts with the (episode + 1)-th reset after that, as in an evaluator that calls
// env.seed(seed) once and then reset() and set_init_state() for every episode.
//
// Threads: a struct libero is read-only once made; a struct libero_world belongs to one thread at a
// time.
#ifndef SCENES_LIBERO_LIBERO_H
#define SCENES_LIBERO_LIBERO_H

#include "scenes/libero/expert.h"
#include "scenes/libero/init_states.h"
#include "scenes/libero/osc.h"
#include "scenes/libero/reset.h"
#include "scenes/scene.h"

#define LIBERO_ACTION   7
#define LIBERO_SUBSTEPS 25

enum libero_compat { COMPAT_LIBERO, COMPAT_CLEAN };
enum libero_start_from { START_FILE, START_RANDOM };
enum libero_control { CONTROL_DELTA, CONTROL_ABSOLUTE };
enum libero_gripper { GRIPPER_DIRECT, GRIPPER_OPENVLA };
enum libero_observation { OBSERVATION_ROBOSUITE, OBSERVATION_POLICY, OBSERVATION_JOINTS };

struct libero_params {
    struct scene_common common; // max_episode_steps < 0: the suite's
    char data_dir[OPT_STR_MAX], variant[OPT_STR_MAX];
    char bddl_file[OPT_STR_MAX], init_file[OPT_STR_MAX], tables_file[OPT_STR_MAX];
    int preset, robosuite, compat, init_states, control, gripper, observation;
    int64_t init_state; // row; -1 = by the episode's number
    int64_t settle_steps;
    double settle_gripper;                     // seventh number of the settling action
    double arm_noise;                          // rad, standard deviation of the initial arm posture
    bool terminate_on_success, visual, expert; // visual: also with cameras
    bool sim_state; // the observation has sim_state and fixture_pose, for recording
};

// Episodes of a seed and stream with compat=libero, where a reset costs more the more there were
// before; higher numbers end in an error.
#define LIBERO_EPISODES 100000

// Shared by all worlds of a scene; scene->data.
struct libero {
    struct bddl bddl;
    struct tables tables;
    const struct problem_class *problem;
    struct binding binding;
    struct goal goal;
    struct reset_plan plan;
    struct init_states init;
    struct osc_ids osc;
    int hand_body; // robot0_right_hand
    int n_burner;  // sites that show whether a stove is on
    int burner_site[ITEMS_MAX];
    struct predicate burner_on[ITEMS_MAX];
    struct hand hand; // for the expert
    char bddl_path[OPT_STR_MAX], init_path[OPT_STR_MAX];
    // With sim_state only: the composed MJCF with pictures, in which @k@ stands for number k of
    // fixture_pose; owned. And where the observation has sim_state.
    char *model_text;
    int state_at;
};

// One world; its scratch.
struct libero_world {
    mjModel view; // of the scene's model, with these arrays of its own:
    double *body_pos, *body_quat;
    float *site_rgba;
    struct osc osc;
    struct expert expert;
    struct reset_cursor cursor;
    struct reset_places places;
    double *obs;       // (n_obs) as sampled
    double *seen_qpos; // (nq) what pictures of that instant show; NULL = they are not asked for
    float *seen_rgba;  // (nsite, 4) and the colours of the sites then
    int n_forced;      // observations that were asked for outside of steps since the reset
    int init_row;      // row of the init file, -1 = none
    int64_t clipped;   // action numbers beyond [-1, 1] in this episode
    bool success;      // at the end of the last step
};

// The scene's hooks and its driver; all suites share them.
extern const struct opt libero_kwargs[];
extern const struct scene_preset libero_presets[];
extern const struct scene_driver libero_driver;
enum status libero_compile(struct scene *scene);
enum status libero_setup(struct scene *scene);
void libero_release(struct scene *scene);

// One env step of `w` with double precision actions, as the driver does it. action is (7).
// Returns LIBERO's done: the goal holds.
bool libero_step(struct world *w, const double *action);

// Arm and gripper (9 numbers) as a reset with this placement has them, into qpos.
void libero_start_arm(const struct scene *scene, const struct reset_places *p, double *qpos);

// In rows.c: the world's view of the model is that of w->scene, with fixtures where their files
// have them and sites hidden as robosuite's reset leaves them (their alpha is negated).
void libero_base_view(struct world *w);

// Of the driver: what is kept of a world besides d's state.
size_t libero_kept_bytes(const struct scene *scene);
void libero_save(const struct world *w, void *kept);
void libero_load(struct world *w, const void *kept);
enum status libero_check(const struct scene *scene, const void *kept);

// LIBERO's set_init_state: row is (1 + nq + nv): time, qpos, qvel.
void libero_set_state(struct world *w, const double *row);

#endif
