#include "envserver/rays_share.h"

#include <pthread.h>
#include <string.h>

#define N_BUCKET 256

static struct {
    pthread_mutex_t mtx;
    struct shared_item *bucket[N_BUCKET]; // guarded by mtx
    int n;
} all = {.mtx = PTHREAD_MUTEX_INITIALIZER};

// Multiply and fold, eight bytes at a time.
static uint64_t hash_bytes(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t h = n * 0x9e3779b97f4a7c15u, w;

    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&w, p, 8);
        h = (h ^ w) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    w = 0;
    memcpy(&w, p, n);
    h = (h ^ w) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 29;
}

static struct shared_item *find(const struct shared_item *like)
{
    struct shared_item *e = all.bucket[like->hash % N_BUCKET];

    for (; e; e = e->next)
        if (e->kind == like->kind && e->hash == like->hash && e->key_bytes == like->key_bytes &&
            memcmp(e->key, like->key, e->key_bytes) == 0)
            return e;
    return NULL;
}

enum status rays_share(struct shared_item **out, struct shared_item *item)
{
    struct shared_item *old;
    enum status st = ST_OK;

    item->hash = hash_bytes(item->key, item->key_bytes);
    pthread_mutex_lock(&all.mtx);
    old = find(item);
    if (!old) {
        st = item->kind->build(item);
        if (st == ST_OK) {
            item->next = all.bucket[item->hash % N_BUCKET];
            all.bucket[item->hash % N_BUCKET] = item;
            all.n++;
        }
    }
    if (st == ST_OK) {
        *out = old ? old : item;
        (*out)->refs++;
    }
    pthread_mutex_unlock(&all.mtx);
    if (old || st != ST_OK)
        item->kind->destroy(item);
    return st;
}

void rays_unshare(struct shared_item *item)
{
    struct shared_item **at;
    bool last;

    if (!item)
        return;
    pthread_mutex_lock(&all.mtx);
    last = --item->refs == 0;
    if (last) {
        for (at = &all.bucket[item->hash % N_BUCKET]; *at != item; at = &(*at)->next)
            continue;
        *at = item->next;
        all.n--;
    }
    pthread_mutex_unlock(&all.mtx);
    if (last)
        item->kind->destroy(item);
}

int rays_shared_items(void)
{
    int n;

    pthread_mutex_lock(&all.mtx);
    n = all.n;
    pthread_mutex_unlock(&all.mtx);
    return n;
}
