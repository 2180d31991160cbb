// limits.h - what this machine and process allow: processors, memory, open files, shared memory.
#ifndef CLI_LIMITS_H
#define CLI_LIMITS_H

#include "common/base/status.h"

struct limits {
    int cpus, cpus_online; // usable by this process; in the machine
    double files;          // open files, INFINITY = no limit
    double files_open;     // of them in use now
    double shm_mib;        // of /dev/shm, NAN = not there
    double shm_free_mib;
    double memory_mib, free_mib; // of the machine, or of the control group if that is less
};

// What cannot be found out is NAN.
void limits_measure(struct limits *l);

// Raise this process's own limit of open files to `n`, as far as the system lets it.
void limits_raise_files(double n);

// Memory that a world of a task takes once it has been stepped, measured on a few of them; a pool
// that shares worlds between its envs takes less.
NODISCARD enum status limits_env_mib(const char *task, const char *kwargs, double *mib);

#endif
