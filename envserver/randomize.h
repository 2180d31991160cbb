// randomize.h - models that differ per env: fields of mjModel by their names, with a range, a
// distribution and a schedule for domain randomisation, or set while the envs run.
//
// The plan is a JSON array, one object an entry:
//
//   [{"field": "geom_friction", "element": "floor", "component": 0, "op": "scale",
//     "range": [0.5, 1.5], "distribution": "uniform", "ramp": [0, 1000]},
//    {"field": "body_mass", "also": "body_inertia", "op": "scale", "range": [0.8, 1.2]},
//    {"field": "gravity", "component": 2, "op": "add", "range": [-0.5, 0.5]}]
//
//   field         a field of the table in randomize.c, such as geom_friction, body_mass, gravity
//   element       name or number of the body, geom, camera, ...; of dof_ fields of the joint
//                 (default: every element)
//   component     of an element, from 0 (default: all)
//   op            set (the number itself), scale (times the model's) or add (default scale)
//   range         lowest and highest number (default [1, 1]: the field may be set, is not drawn)
//   distribution  uniform, log-uniform, or normal (the range is +- 2 standard deviations, what
//                 lies outside is put onto its ends)
//   shared        one number for all elements and components of the entry (default false)
//   also          a second field of as many elements that is multiplied (...) by the same number as
//                 its element of the first; every component of it
//   ramp          episodes [a, b]: up to a nothing varies, from b on the whole range (default: at
//                 once)
//
// Numbers are drawn at the start of every episode, as a function of (seed, stream, episode, entry),
// so that results do not depend on which env or worker runs the episode. Quaternions are made unit.
// Entries apply one after the other.
//
// Each env has a shallow copy of the model that shares all arrays but those named here and, if one
// of these is a field that others are computed from (masses, inertias, frames, gears ...), those
// that mj_setConst writes: mj_setConst then runs at the start of every episode. Fields from which
// the compiler has made what cannot be made again (sizes and places of geoms, meshes) are refused.
//
// Threads: a plan is read-only once made; a variant belongs to its env. A variant may lie in memory
// that processes share.
#ifndef ENVSERVER_RANDOMIZE_H
#define ENVSERVER_RANDOMIZE_H

#include "envserver/sim.h"

struct randomize;
struct variant;

#define RANDOMIZE_TEXT_MAX 16384 // bytes of a plan, with the 0 at its end

// ST_INVAL names entry, field and element, and what was expected. The scene is borrowed.
NODISCARD enum status randomize_create(struct randomize **out, const struct scene *scene,
                                       const char *json);
// NULL is fine.
void randomize_destroy(struct randomize *r);

// The plan as it was given.
const char *randomize_text(const struct randomize *r);

// Bytes of the variant of one env, a multiple of 64.
size_t randomize_variant_bytes(const struct randomize *r);

// The model as it was compiled, in `mem` (randomize_variant_bytes, zeroed, aligned to 64).
struct variant *variant_make(const struct randomize *r, void *mem);

// As variant_make left it: what was set or drawn is forgotten.
void variant_reset(struct variant *v);

// Let the sim step this variant. If fields were set since, what depends on them is computed now.
enum row_error variant_enter(struct variant *v, struct sim *sim);

// Draw for an episode that begins; the sim has entered the variant and is reset afterwards.
enum row_error variant_draw(struct variant *v, struct sim *sim, const struct scene_start *start);

// How many numbers one element (`element`: name or number, "" = all elements) of a field has that
// the plan names. ST_INVAL names what was expected.
NODISCARD enum status randomize_field_size(const struct randomize *r, const char *field,
                                           const char *element, int *n);

// Set all components of such an element, finite numbers; the following episodes vary from there.
void variant_set(struct variant *v, const char *field, const char *element, const double *x);

// The numbers in force.
void variant_get(const struct variant *v, const char *field, const char *element, double *x);

// A number that variants share if their plans are the same.
uint64_t variant_plan_id(const struct variant *v);

// All that varies, for snapshots of the env: variant_saved_bytes, a multiple of 8.
size_t variant_saved_bytes(const struct variant *v);
void variant_save(const struct variant *v, void *out);
void variant_load(struct variant *v, const void *in);
// Can bytes that come from outside be loaded? ST_PROTO names the field.
NODISCARD enum status variant_check(const struct variant *v, const void *in);

#endif
