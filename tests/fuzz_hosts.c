// fuzz_hosts.c [COUNT] - lists of addresses with fixed-seed damage: what is accepted is within its
// limits and expands to itself.
#include "common/wire/hosts.h"

#include "common/base/rng.h"
#include "common/base/thread.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct hosts out, again;

static void must(int fine, const char *what, const char *list)
{
    if (!fine) {
        fprintf(stderr, "fuzz_hosts: %s: '%s'\n", what, list);
        abort();
    }
}

static int try_list(const char *list)
{
    if (hosts_expand(&out, list) != ST_OK)
        return 0;
    must(out.n >= 1 && out.n <= HOSTS_MAX, "count", list);
    for (int i = 0; i < out.n; i++) {
        must(strlen(out.url[i]) < HOSTS_URL_MAX && strstr(out.url[i], "://"), "address", list);
        must(hosts_expand(&again, out.url[i]) == ST_OK && again.n == 1 &&
                 strcmp(again.url[0], out.url[i]) == 0,
             "an address does not expand to itself", list);
    }
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char list[INPUT_MAX + 1];

    if (size > INPUT_MAX)
        return 0;
    memcpy(list, data, size);
    list[size] = '\0';
    (void)try_list(list);
    return 0;
}

#ifndef SIMSTREAM_LIBFUZZER

int main(int argc, char **argv)
{
    static const char *const seeds[] = {"tcp://node[01-04,7]:5555", "gpu[09-11,7]",
                                        "tls+tcp://r[1-2]n[8-9]:1,ipc:///run/a.sock",
                                        "tcp://[::1]:7,10.0.0.1:55", "a,b,c[1-200]"};
    static const char odd[] = "[]-,:/0123456789ab";
    long count = argc > 1 ? strtol(argv[1], NULL, 10) : 200000, accepted = 0;
    struct rng r = rng_make(21, RNG_TEST, 0, 0, 0);
    char list[INPUT_MAX];

    for (long i = 0; i < count; i++) {
        size_t n;

        snprintf(list, sizeof list, "%s", seeds[i % 5]);
        for (uint32_t k = 1 + rng_below(&r, 4); k > 0; k--) {
            n = strlen(list);
            if (rng_below(&r, 4) == 0 && n > 1)
                list[rng_below(&r, (uint32_t)n)] = '\0';
            else if (n > 0)
                list[rng_below(&r, (uint32_t)n)] = odd[rng_below(&r, sizeof odd - 1)];
        }
        accepted += try_list(list);
    }
    printf("%ld of %ld lists accepted\n", accepted, count);
    must(accepted > count / 100 && accepted < count * 3 / 4, "all or nothing is accepted", "");
    return 0;
}

#endif
