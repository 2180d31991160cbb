// devices.h - what can render and what can compute here: EGL devices and NVIDIA GPUs, asked through
// libraries that are opened at run time, so the program starts without them.
//
// Threads: one at a time.
#ifndef CLI_DEVICES_H
#define CLI_DEVICES_H

#include <stdbool.h>

#define DEVICES_MAX 16

struct device {
    char name[160];
    bool software; // EGL: rendered by the CPU
};

struct devices {
    int n;
    struct device device[DEVICES_MAX];
    char detail[256]; // what there is, or why there is nothing
    char advice[256]; // what to install; "" = nothing
};

// EGL devices, by eglQueryDevicesEXT.
void devices_egl(struct devices *out);

// NVIDIA GPUs, by the driver's libcuda.
void devices_gpu(struct devices *out);

#endif
