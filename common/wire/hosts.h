// hosts.h - lists of addresses as people and Slurm write them, expanded to one address each.
//
//   tcp://node[01-04,7]:5555          five addresses
//   tcp://a:5555,ipc:///run/b.sock    two
//   10.0.0.1:5555                     tcp://10.0.0.1:5555
//   node[01-04]                       tcp://node01:7447 and so on, as $SLURM_JOB_NODELIST has it
//
// A bracket holds numbers and ranges; leading zeros of a range's first number set the width. One
// that holds a colon is an IPv6 address and stays as it is. Spaces around an address do not count.
#ifndef COMMON_WIRE_HOSTS_H
#define COMMON_WIRE_HOSTS_H

#include "common/base/status.h"

#define HOSTS_MAX          256
#define HOSTS_URL_MAX      256
#define HOSTS_DEFAULT_PORT 7447

struct hosts {
    int n;
    char url[HOSTS_MAX][HOSTS_URL_MAX];
};

// ST_INVAL names what is wrong: an empty address, a range that runs backwards, more than HOSTS_MAX
// addresses, one that stands twice.
NODISCARD enum status hosts_expand(struct hosts *out, const char *list);

#endif
