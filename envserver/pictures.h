// pictures.h - the camera pictures of observations: which ones a task's options ask for, and
// drawing them.
//
// The option `cameras` is a list, separated by commas:
//
//   VIEW[:WIDTHxHEIGHT][:ORIENTATION][:PLANES]
//
//   VIEW    as in render.h; or `default`: of a suite agentview and robot0_eye_in_hand, else
//           `track`; of Gymnasium's tasks also `gymnasium`: the free camera that Gymnasium 1.4
//           draws with, and `track` is the same where the model has no camera of that name
//   PLANES  rgb, depth and seg, joined by + (default rgb)
//
// A picture is called VIEW_image, VIEW_depth or VIEW_segmentation. What is missing is from the
// options image_size and image_orientation.
//
// Pictures show what Gymnasium's and LIBERO's show: the world as its last forward evaluation left
// it, which may be older than its joint angles; where a task samples its observations earlier than
// that, its driver's `pose`.
//
// Threads: a struct pictures is made and freed by one thread and shared by any number of painters;
// a painter is made, used and freed by one thread. Nothing is locked while a picture is drawn.
#ifndef ENVSERVER_PICTURES_H
#define ENVSERVER_PICTURES_H

#include "common/wire/spec.h"
#include "scenes/scene.h"

#include <stdint.h>

struct pictures;
struct painter;

// The pictures that the options of `scene` ask for; they are appended to `spec`. *out = NULL if
// there are none. ST_INVAL names the camera and those that there are. The scene is borrowed.
NODISCARD enum status pictures_create(struct pictures **out, const struct scene *scene,
                                      struct spec *spec);
void pictures_destroy(struct pictures *p); // NULL is fine; after its painters

size_t pictures_bytes(const struct pictures *p); // of all pictures of one observation

// Make what all painters of this process share; painter_create does it too, but then no other
// thread may be doing the same.
NODISCARD enum status pictures_prepare(struct pictures *p);

// Does what pictures_prepare makes live on in a forked process? Graphics drivers do not.
bool pictures_can_fork(const struct pictures *p);

NODISCARD enum status painter_create(struct painter **out, struct pictures *p);
void painter_destroy(struct painter *painter); // NULL is fine

// Draw world `w` into `out`: the pictures without those whose bit is set in `skip`, as
// spec_skip_pictures lays them out, padding zeroed. Numbers of the world do not change. After a
// failure (see render_frames) the bytes are undefined.
NODISCARD enum status painter_draw(struct painter *painter, const struct world *w, uint32_t skip,
                                   uint8_t *out);

#endif
