// weights.h - one published version of a policy: parameters and normalisers, immutable and counted.
//
// The observation normaliser (mean, variance) and the value scale are part of the weights, so that
// rollout, learner and evaluation see the same policy. As a blob they travel in WEIGHTS messages;
// as HDF5 they are `policy.h5`.
//
// Two kinds of policy have the same weights struct: perceptrons (model.h), and
// vision-language-action models (vla.h), of which `vla` tells everything; their `shape` says no
// more than the numbers that come in (the robot's state, vla_input.h) and go out (a chunk of
// actions).
//
// Ownership: weights_hold/weights_drop count references; whoever makes one holds one.
// Threads: hold and drop from any thread; HDF5 calls from one thread at a time (locked inside).
#ifndef NN_WEIGHTS_H
#define NN_WEIGHTS_H

#include "common/base/status.h"
#include "nn/model.h"
#include "nn/vla_about.h"

#include <stdatomic.h>

struct weights {
    atomic_int refs;
    uint64_t version;
    struct model_shape shape;
    struct vla_about *vla; // NULL: perceptrons; owned
    int64_t n_param;
    float *params;    // (n_param)
    double *obs_mean; // (n_obs)
    double *obs_var;  // (n_obs)
    double obs_count; // observations behind mean and variance
    double ret_mean;  // returns are predicted as ret_mean + ret_std * value network
    double ret_std;
    char task[64];     // task that it was trained on
    char picture[64];  // name of the picture that the encoder sees; "" without vision
    char config[4096]; // the trainer's resolved options as JSON
};

// Zero parameters, unit normalisers, one reference.
NODISCARD enum status weights_create(struct weights **out, const struct model_shape *shape);
// Of a vision-language-action model; `about` is copied.
NODISCARD enum status weights_create_vla(struct weights **out, const struct vla_about *about);
NODISCARD enum status weights_copy(struct weights **out, const struct weights *from);
struct weights *weights_hold(struct weights *w);
void weights_drop(struct weights *w); // NULL is fine

// Are they of the same model, so that the parameters mean the same?
bool weights_same_model(const struct weights *a, const struct weights *b);

// Bytes for the wire; the decoder checks every length and that all numbers are finite.
size_t weights_blob_bytes(const struct weights *w);
void weights_blob_write(const struct weights *w, uint8_t *out);
NODISCARD enum status weights_blob_read(struct weights **out, const uint8_t *blob, size_t n);

// HDF5: one dataset a piece, attributes for the rest. Written beside the file and renamed, so a
// reader sees the old or the new one. Errors name the file and the dataset.
NODISCARD enum status weights_save(const struct weights *w, const char *path);
NODISCARD enum status weights_load(struct weights **out, const char *path);

// The same as part of a larger file that the caller has open (see h5file.h).
struct h5file;
NODISCARD enum status weights_put(const struct weights *w, struct h5file *f);
NODISCARD enum status weights_get(struct weights **out, struct h5file *f);

#endif
