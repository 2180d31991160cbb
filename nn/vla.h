// vla.h - a vision-language-action policy: forward and backward of ragged batches without padding.
//
// A batch is n_seq independent sequences. Each has any number of pictures, an instruction of any
// length, and one state; what comes out is the chunk of action means and a value. Rows of different
// sequences never see each other. Pictures are tokens first, then the instruction, then the state;
// positions count these.
//
// A workspace holds all memory of forward and backward, made once for a budget of sequences,
// pictures and text tokens; vla_work_bytes tells its size beforehand. With `checkpoint` only what
// enters each layer is kept, the rest is computed again on the way back: same results to the bit.
//
// What a sequence gives does not depend on the others in the batch, to the bit; nor does it whether
// the batch is padded. Every gradient is one sum over the sequences in their order, so that it is
// the same to the bit however a row of sequences is cut into batches.
//
// Ownership: the parameters are the caller's and must stay while the net is used. Threads: a net
// may be read by many threads, each with its own workspace and gradient.
#ifndef NN_VLA_H
#define NN_VLA_H

#include "common/base/status.h"
#include "nn/ops.h"
#include "nn/vla_config.h"

#ifdef REAL_IS_DOUBLE
#define vla_net_init     vla_net_init_f64
#define vla_net_fini     vla_net_fini_f64
#define vla_work_bytes   vla_work_bytes_f64
#define vla_work_create  vla_work_create_f64
#define vla_work_destroy vla_work_destroy_f64
#define vla_forward      vla_forward_f64
#define vla_backward     vla_backward_f64
#define vla_again        vla_again_f64
#endif

struct vla_net {
    struct vla_config c;
    struct vla_table t;
    const struct nn_backend *op;
    const real *params; // (t.n_param) borrowed; may be changed between calls, or replaced
};

struct vla_batch {
    int n_seq;
    const int *cu_image;         // (n_seq + 1) pictures before each sequence, from 0
    const uint8_t *const *image; // (cu_image[n_seq]) each (c.image, c.image, 3)
    const int *camera;           // (cu_image[n_seq]) 0..c.cameras-1
    const int *cu_text;          // (n_seq + 1) tokens before each sequence, from 0
    const int *text;             // (cu_text[n_seq]) 0..c.vocab-1
    const real *state;           // (n_seq, c.state)
    // of a flow: actions between noise and clean, (n_seq, chunk, action), and how far, (n_seq) of
    // 1 (noise) to 0
    const real *noisy;
    const double *time;
};

// What a workspace has room for, and how it works.
struct vla_room {
    int seqs, images, texts; // of a whole batch
    bool backward;           // vla_backward will be called
    bool checkpoint;         // keep less, compute twice
    bool padded; // as many pictures and tokens for each sequence as the longest has: for
                 // comparison; seqs times the most of any one must fit into the room
};

struct vla_work;

// `params` (n_param) may be NULL until the first forward pass.
NODISCARD enum status vla_net_init(struct vla_net *net, const struct vla_config *c,
                                   const real *params);
void vla_net_fini(struct vla_net *net);

// Bytes that a workspace takes: its peak, known before it is made.
int64_t vla_work_bytes(const struct vla_config *c, const struct vla_room *room);
NODISCARD enum status vla_work_create(struct vla_work **out, const struct vla_net *net,
                                      const struct vla_room *room);
void vla_work_destroy(struct vla_work *w); // NULL is fine

// mean (n_seq, chunk, action) - of a flow the velocity - and value (n_seq), NULL if not wanted.
// ST_INVAL names what is out of range or does not fit into the room.
NODISCARD enum status vla_forward(const struct vla_net *net, struct vla_work *w,
                                  const struct vla_batch *batch, real *mean, real *value);

// Of a flow, after vla_forward in a workspace without `backward`: the velocity (n_seq, chunk,
// action) at other noisy actions and times of the same batch, all else equal. Costs the suffix
// alone; same bits as a whole pass.
void vla_again(const struct vla_net *net, struct vla_work *w, const struct vla_batch *batch,
               real *velocity);

// After vla_forward of the same batch and parameters: grad (n_param) += the gradient. d_mean and
// d_value are the loss's by mean and value, either may be NULL (zero). That of log_std is the
// caller's to add, at t.log_std.
void vla_backward(const struct vla_net *net, struct vla_work *w, const struct vla_batch *batch,
                  const real *d_mean, const real *d_value, real *grad);

#endif
