// model_arrays.h - a compiled model as a list of arrays.
//
// Threads: any; a model is only read.
#ifndef SCENES_MODEL_ARRAYS_H
#define SCENES_MODEL_ARRAYS_H

#include <mujoco/mujoco.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_ARRAYS_MAX 1024

struct model_array {
    const char *name, *type;
    size_t offset; // of the pointer in mjModel
    size_t bytes;  // of all
    int rows, cols;
};

// Every array of mjModel, by the engine's own list; how many.
int model_arrays(const mjModel *m, struct model_array out[MODEL_ARRAYS_MAX]);

// The array's numbers.
const void *model_data(const mjModel *m, const struct model_array *a);

// A number that models share if they are the same but for the pixels of their textures.
uint32_t model_signature(const mjModel *m);

#endif
