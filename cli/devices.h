// devices.h - what can render and what can compute here: EGL devices and NVIDIA GPUs, asked through
// libraries that are opened at run time, so the program starts without them. Every EGL device is
// asked for an OpenGL context, since a listed device may have no working driver.
//
// Threads: one at a time.
#ifndef CLI_DEVICES_H
#define CLI_DEVICES_H

#include <stdbool.h>

#define DEVICES_MAX 16

struct device {
    char name[160];
    char renderer[256]; // EGL: what draws there, by its driver, or why nothing does
    bool software;      // EGL: rendered by the CPU
    bool works;         // EGL: an OpenGL context starts
    int cuda;           // EGL: CUDA ordinal, -1 = none
};

struct devices {
    int n, usable; // in the list; that work
    struct device device[DEVICES_MAX];
    char detail[256]; // what there is, or why there is nothing
    char advice[256]; // what to install; "" = nothing
};

// EGL devices in the order of their numbers (--egl-device, or egl_device in a configuration).
void devices_egl(struct devices *out);

// NVIDIA GPUs, by the driver's libcuda.
void devices_gpu(struct devices *out);

#endif
