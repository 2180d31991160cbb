// egl_context.h - the OpenGL context of a thread: made for the first user in that thread, bound
// there for its whole life, freed with the last. No surface; pictures are drawn into framebuffers.
//
// Displays stay initialised until the process ends; one per device, shared by all threads.
//
// Threads: a context belongs to the thread that got it, and so do its users.
#ifndef ENVSERVER_EGL_CONTEXT_H
#define ENVSERVER_EGL_CONTEXT_H

#include "envserver/egl_api.h"

// Which device. -1 and -1: the first that works, hardware before software. A CUDA ordinal asks for
// a GPU: a renderer that runs on the CPU is then an error, and so it is where the device itself
// does not say that it is software.
struct egl_choice {
    int egl_device;  // index in egl_devices, -1 = not chosen this way
    int cuda_device; // CUDA ordinal, -1 = not chosen this way
};

// What a device is, by its driver.
struct egl_about {
    int device;         // index in egl_devices, -1 = Mesa's surfaceless platform
    bool software;      // it renders on the CPU
    char renderer[128]; // GL_RENDERER
    char version[64];   // GL_VERSION
};

struct egl_context {
    const struct egl_calls *egl;
    const struct gl_calls *gl;
    struct egl_choice choice;
    egl_handle display, handle;
    struct egl_about about;
    bool lost; // a call did not come back in time: no further GL call from this thread
    int users;
};

// The context of this thread for `choice`. ST_INVAL: the thread has one for another choice;
// ST_MISSING: no such device, or no working driver, with the list of devices; ST_TIMEOUT: the
// context was lost.
NODISCARD enum status egl_context_get(struct egl_context **out, const struct egl_choice *choice);
void egl_context_put(struct egl_context *context);

// Does a context for `choice` start? Asked in a thread of its own, which may hang: ST_TIMEOUT after
// `watchdog_ns` (0 = wait for ever), and the thread stays behind. Otherwise as egl_context_get.
NODISCARD enum status egl_probe(struct egl_about *out, const struct egl_choice *choice,
                                int64_t watchdog_ns);

#endif
