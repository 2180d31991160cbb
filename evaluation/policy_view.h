// policy_view.h - what a remote policy sees of an observation: pictures turned and resized, numbers
// picked, as the policy's options say.
//
// Threads: a struct policy_view is read-only once made; every call brings its own scratch.
#ifndef EVALUATION_POLICY_VIEW_H
#define EVALUATION_POLICY_VIEW_H

#include "evaluation/policy_options.h"
#include "evaluation/tensor.h"

#define POLICY_ITEMS_MAX 32

struct spec;

struct policy_item {
    const char *key;
    bool picture;
    struct tensor value; // picture: uint8 (h, w, 3); else float32 or float64 (n)
};

// What one env shows to the policy.
struct policy_input {
    int n_item;
    struct policy_item items[POLICY_ITEMS_MAX]; // pictures first
    const char *prompt;                         // the instruction
    char session[96]; // of the episode: the same in all its requests, and in no other's
};

struct policy_view;

// What the policy's side has to know of the task.
struct policy_task {
    char name[64], prompt[256];
    int n_act;
    size_t obs_bytes, picture_bytes; // of a row
};

// `spec` is borrowed during the call. ST_INVAL: the options are wrong, or the task does not give
// what they name; every such thing is logged, and the text says the last.
NODISCARD enum status policy_view_create(struct policy_view **out, const struct spec *spec,
                                         const struct policy_options *options);
void policy_view_destroy(struct policy_view *v); // NULL is fine

size_t policy_view_scratch(const struct policy_view *v); // bytes

// From the numbers and the picture block of a row (NULL if there are no pictures) to in->items,
// which point into the scratch.
void policy_view_make(const struct policy_view *v, const double *obs, const uint8_t *pictures,
                      void *scratch, struct policy_input *in);

const struct policy_task *policy_view_task(const struct policy_view *v);

// A view without data, for checks: keys and shapes.
const struct policy_input *policy_view_shape(const struct policy_view *v);

#endif
