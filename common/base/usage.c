#include "common/base/usage.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

double usage_resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long pages = -1;

    if (!f)
        return NAN;
    if (fscanf(f, "%*s %ld", &pages) != 1)
        pages = -1;
    fclose(f);
    return pages < 0 ? NAN : (double)pages * (double)sysconf(_SC_PAGESIZE);
}

double usage_cpu_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

double usage_open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    if (!dir)
        return NAN;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 3; // ".", ".." and the folder itself
}
