#define _GNU_SOURCE
#include "envserver/placement.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MAX 64

// Numbers of a list such as "0-3,8" into out (n of at most max); false if it is none.
static bool read_list(const char *text, int *out, int max, int *n)
{
    char *end;

    for (*n = 0; *text && *text != '\n'; text = *end == ',' ? end + 1 : end) {
        long first = strtol(text, &end, 10), last = first;

        if (end == text)
            return false;
        if (*end == '-') {
            text = end + 1;
            last = strtol(text, &end, 10);
            if (end == text)
                return false;
        }
        if ((*end != ',' && *end != '\0' && *end != '\n') || first < 0 || last < first ||
            last >= CPU_SETSIZE)
            return false;
        for (; first <= last && *n < max; first++)
            out[(*n)++] = (int)first;
    }
    return *n > 0;
}

static enum status choose(const char *affinity, int *cpus, int *n)
{
    cpu_set_t mask;
    int i;

    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return FAIL_SYS(ST_IO, errno, "cannot read the processors of this process");
    if (strcmp(affinity, "auto") == 0) {
        for (*n = 0, i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &mask))
                cpus[(*n)++] = i;
        return ST_OK;
    }
    if (!read_list(affinity, cpus, CPU_SETSIZE, n))
        return FAIL(ST_INVAL, "affinity '%s': expected none, auto or a list such as 0-3,8",
                    affinity);
    for (i = 0; i < *n; i++)
        if (!CPU_ISSET(cpus[i], &mask))
            return FAIL(ST_INVAL, "affinity '%s': processor %d is not one of this process",
                        affinity, cpus[i]);
    return ST_OK;
}

// Memory node of each processor, -1 where there is none to see.
static void read_nodes(const char *sys, int node_of[CPU_SETSIZE])
{
    int cpus[CPU_SETSIZE], i, k, n;
    char path[512], text[4096];
    FILE *f;

    for (i = 0; i < CPU_SETSIZE; i++)
        node_of[i] = -1;
    for (k = 0; k < NODES_MAX; k++) {
        snprintf(path, sizeof path, "%s/node%d/cpulist", sys, k);
        f = fopen(path, "r");
        if (!f)
            continue; // numbers may have gaps
        if (fgets(text, sizeof text, f) && read_list(text, cpus, CPU_SETSIZE, &n))
            for (i = 0; i < n; i++)
                node_of[cpus[i]] = k;
        fclose(f);
    }
}

enum status placement_make(struct placement *out, const char *affinity, int n_worker,
                           const char *sys)
{
    int cpus[CPU_SETSIZE], node_of[CPU_SETSIZE], rank[NODES_MAX], i, n;

    if (n_worker < 1 || n_worker > PLACEMENT_MAX)
        return FAIL(ST_INVAL, "%d workers are outside 1..%d", n_worker, PLACEMENT_MAX);
    memset(out, 0, sizeof *out);
    out->n_node = 1;
    for (i = 0; i < n_worker; i++)
        out->cpu[i] = -1;
    if (!affinity || !affinity[0] || strcmp(affinity, "none") == 0)
        return ST_OK;
    TRY(choose(affinity, cpus, &n));
    read_nodes(sys ? sys : "/sys/devices/system/node", node_of);
    memset(rank, -1, sizeof rank);
    out->n_node = 0;
    for (i = 0; i < n_worker; i++) {
        int node = node_of[cpus[i % n]];

        out->cpu[i] = cpus[i % n];
        node = node < 0 ? 0 : node;
        if (rank[node] < 0)
            rank[node] = out->n_node++;
        out->node[i] = rank[node];
    }
    return ST_OK;
}

enum status placement_pin(const struct placement *p, int i)
{
    cpu_set_t mask;

    if (p->cpu[i] < 0)
        return ST_OK;
    CPU_ZERO(&mask);
    CPU_SET(p->cpu[i], &mask);
    if (sched_setaffinity(0, sizeof mask, &mask) != 0)
        return FAIL_SYS(ST_IO, errno, "cannot pin worker %d to processor %d", i, p->cpu[i]);
    return ST_OK;
}
