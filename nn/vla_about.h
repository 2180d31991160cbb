// vla_about.h - what a vision-language-action policy's weights mean: sizes, inputs, vocabulary. A
// part of struct weights (weights.h); travels with it in messages and files.
//
// Threads: read-only once made.
#ifndef NN_VLA_ABOUT_H
#define NN_VLA_ABOUT_H

#include "nn/vla_config.h"
#include "nn/vla_input.h"

struct h5file;

struct vla_about {
    struct vla_config model;
    struct vla_input input;
    char kwargs[2048];   // the task's keyword arguments that give its pictures; "" = not known
    char *vocabulary;    // as tokenizer.h has it; owned
    size_t n_vocabulary; // bytes, 0 = tokens are bytes
};

// `n` bytes of vocabulary are copied.
NODISCARD enum status vla_about_create(struct vla_about **out, const struct vla_config *model,
                                       const struct vla_input *input, const char *vocabulary,
                                       size_t n);
NODISCARD enum status vla_about_copy(struct vla_about **out, const struct vla_about *from);
void vla_about_destroy(struct vla_about *a); // NULL is fine
bool vla_about_equal(const struct vla_about *a, const struct vla_about *b);

// Parameters of the model; ST_NOMEM.
NODISCARD enum status vla_about_params(const struct vla_about *a, int64_t *n_param);

// Bytes for the wire. The reader checks all of them.
size_t vla_about_blob_bytes(const struct vla_about *a);
void vla_about_blob_write(const struct vla_about *a, uint8_t *out);
NODISCARD enum status vla_about_blob_read(struct vla_about **out, const uint8_t *blob, size_t n);

// Attributes and arrays of a file.
NODISCARD enum status vla_about_put(const struct vla_about *a, struct h5file *f);
NODISCARD enum status vla_about_get(struct vla_about **out, struct h5file *f);
// The parameters, one array a piece of the model's table, at "model/NAME".
NODISCARD enum status vla_about_put_params(const struct vla_about *a, const float *params,
                                           struct h5file *f);
NODISCARD enum status vla_about_get_params(const struct vla_about *a, float *params,
                                           struct h5file *f);

// The same parameters as a safetensors file, and from one: names without "model/". float32; `bf16`:
// in 16 bits.
NODISCARD enum status vla_about_export(const struct vla_about *a, const float *params, bool bf16,
                                       const char *path);
NODISCARD enum status vla_about_import(const struct vla_about *a, float *params, const char *path);

#endif
