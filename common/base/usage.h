// usage.h - what this process uses of the machine, as the kernel counts it.
//
// Threads: any.
#ifndef COMMON_BASE_USAGE_H
#define COMMON_BASE_USAGE_H

// Resident memory in bytes; NaN if the kernel does not say.
double usage_resident_bytes(void);

// Seconds of processor time that all threads of the process have used.
double usage_cpu_s(void);

// Open file descriptors; NaN if the kernel does not say.
double usage_open_files(void);

#endif
