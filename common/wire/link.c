#include "common/wire/link.h"

#include "common/base/crc.h"
#include "common/wire/link_priv.h"

#include <string.h>
#include <sys/un.h>

_Static_assert(sizeof((struct listener *)0)->url == LINK_URL_MAX, "an address fits");

enum scheme { TCP, TLS, IPC, INPROC, SCHEMES };

// The port behind the last colon, -1 if it is not one.
static int port_of(const char *address)
{
    const char *colon = strrchr(address, ':'), *c;
    int port = 0;

    if (!colon || colon == address || colon[1] == '\0')
        return -1;
    for (c = colon + 1; *c; c++) {
        if (*c < '0' || *c > '9')
            return -1;
        port = port * 10 + (*c - '0');
        if (port > 65535)
            return -1;
    }
    return port;
}

static enum status check_tcp(const char *url, const char *address, bool dial)
{
    int port = port_of(address);

    if (port < 0)
        return FAIL(ST_INVAL, "address '%s': expected host:port, port 0 to 65535", url);
    if (dial && port == 0)
        return FAIL(ST_INVAL, "address '%s': port 0 is only for listening", url);
    return ST_OK;
}

static enum status check_ipc(const char *url, const char *path)
{
    size_t room = sizeof((struct sockaddr_un *)0)->sun_path;

    if (*path == '\0')
        return FAIL(ST_INVAL, "address '%s': expected ipc:// and the path of a socket", url);
    if (strlen(path) >= room)
        return FAIL(ST_INVAL, "address '%s': the path has %zu characters, at most %zu are possible",
                    url, strlen(path), room - 1);
    return ST_OK;
}

// Check an address and tell its scheme and what follows it.
static enum status parse(const char *url, bool dial, enum scheme *scheme, const char **rest)
{
    static const char *const prefix[] = {"tcp://", "tls+tcp://", "ipc://", "inproc://"};
    size_t i;

    if (strlen(url) >= LINK_URL_MAX)
        return FAIL(ST_INVAL, "an address of %zu characters, at most %d are possible", strlen(url),
                    LINK_URL_MAX - 1);
    for (i = 0; i < SCHEMES; i++) {
        if (strncmp(url, prefix[i], strlen(prefix[i])) == 0) {
            *scheme = (enum scheme)i;
            *rest = url + strlen(prefix[i]);
            if (i == TCP || i == TLS)
                return check_tcp(url, *rest, dial);
            if (i == IPC)
                return check_ipc(url, *rest);
            if (**rest == '\0')
                return FAIL(ST_INVAL, "address '%s': expected inproc:// and a name", url);
            return ST_OK;
        }
    }
    return FAIL(ST_INVAL,
                "address '%s': expected tcp://host:port, tls+tcp://host:port, ipc://path or "
                "inproc://name",
                url);
}

static enum status check_max(size_t max_bytes)
{
    if (max_bytes > MSG_BYTES_MAX)
        return FAIL(ST_INVAL, "messages of %zu bytes, at most %u are possible", max_bytes,
                    MSG_BYTES_MAX);
    return ST_OK;
}

bool link_is_local(const char *url)
{
    static const char *const local[] = {"127.", "localhost:", "[::1]:"};
    enum scheme scheme;
    const char *rest;
    size_t i;

    if (parse(url, false, &scheme, &rest) != ST_OK)
        return false;
    if (scheme == IPC || scheme == INPROC)
        return true;
    for (i = 0; i < sizeof local / sizeof local[0]; i++)
        if (strncmp(rest, local[i], strlen(local[i])) == 0)
            return i != 0 || rest[strspn(rest, "0123456789.")] == ':'; // not "127.example.org"
    return false;
}

// The file that a tls+tcp address cannot do without.
static enum status check_tls(const char *url, enum scheme scheme, const char *file,
                             const char *what)
{
    if (scheme == TLS && (!file || !*file))
        return FAIL(ST_INVAL, "address '%s' needs %s", url, what);
    return ST_OK;
}

enum status listener_open_tls(struct listener **out, const char *url, size_t max_bytes,
                              const struct link_tls *tls)
{
    enum scheme scheme;
    const char *rest;

    TRY(check_max(max_bytes));
    TRY(parse(url, false, &scheme, &rest));
    TRY(check_tls(url, scheme, tls ? tls->cert_file : NULL, "a certificate (--tls-cert)"));
    if (scheme == INPROC)
        return inproc_listen(out, url, max_bytes);
    return stream_listen(out, url, scheme == IPC ? rest : NULL, max_bytes,
                         scheme == TLS ? tls : NULL);
}

enum status listener_open(struct listener **out, const char *url, size_t max_bytes)
{
    return listener_open_tls(out, url, max_bytes, NULL);
}

const char *listener_url(const struct listener *l)
{
    return l->url;
}

enum status listener_accept(struct listener *l, struct link **out, int64_t wait_ns)
{
    if (atomic_load(&l->closed))
        return FAIL(ST_CLOSED, "%s does not listen any more", l->url);
    return l->ops->accept(l, out, wait_ns);
}

void listener_close(struct listener *l)
{
    atomic_store(&l->closed, true);
    l->ops->close(l);
}

void listener_destroy(struct listener *l)
{
    if (!l)
        return;
    listener_close(l);
    l->ops->destroy(l);
}

enum status link_dial_tls(struct link **out, const char *url, size_t max_bytes, int64_t wait_ns,
                          const struct link_tls *tls)
{
    enum scheme scheme;
    const char *rest;

    TRY(check_max(max_bytes));
    TRY(parse(url, true, &scheme, &rest));
    TRY(check_tls(url, scheme, tls ? tls->ca_file : NULL,
                  "the file of the authorities to trust (--tls-ca)"));
    if (scheme == INPROC)
        return inproc_dial(out, url, max_bytes, wait_ns);
    return stream_dial(out, url, max_bytes, wait_ns, scheme == TLS ? tls : NULL);
}

enum status link_dial(struct link **out, const char *url, size_t max_bytes, int64_t wait_ns)
{
    return link_dial_tls(out, url, max_bytes, wait_ns, NULL);
}

void link_set_max(struct link *k, size_t max_bytes)
{
    k->ops->set_max(k, max_bytes);
}

static enum status check_open(struct link *k)
{
    if (atomic_load(&k->closed))
        return FAIL(ST_CLOSED, "this side has closed the connection");
    return ST_OK;
}

enum status link_send(struct link *k, struct msg *m)
{
    TRY(check_open(k));
    return k->ops->send(k, m);
}

enum status link_recv(struct link *k, struct msg **out, int64_t wait_ns)
{
    enum status st;

    TRY(check_open(k));
    st = k->ops->recv(k, out, wait_ns);
    if (st != ST_OK && st != ST_AGAIN && st != ST_TIMEOUT)
        link_close(k); // where the next message begins is not known any more
    return st;
}

enum status link_recv_soon(struct link *k, struct msg **out, int seconds)
{
    enum status st = ST_TIMEOUT;
    int i;

    for (i = 0; i < seconds && st == ST_TIMEOUT; i++)
        st = link_recv(k, out, NS_PER_S);
    return st;
}

void link_close(struct link *k)
{
    atomic_store(&k->closed, true);
    k->ops->close(k);
}

void link_destroy(struct link *k)
{
    if (!k)
        return;
    link_close(k);
    k->ops->destroy(k);
}

static const char magic[4] = {'S', 'S', 'T', 'M'};

static void put(uint8_t *to, uint32_t v, size_t n)
{
    memcpy(to, &v, n); // little-endian, as msg.c checks
}

static uint32_t get(const uint8_t *from, size_t n)
{
    uint32_t v = 0;

    memcpy(&v, from, n);
    return v;
}

void link_header_encode(uint8_t out[LINK_HEADER_BYTES], const struct msg *m)
{
    memcpy(out, magic, sizeof magic);
    put(out + 4, LINK_VERSION, 2);
    put(out + 6, m->type, 2);
    put(out + 8, (uint32_t)m->len, 4);
    put(out + 12, crc32c(0, m->data, m->len), 4);
    put(out + 16, crc32c(0, out, 16), 4);
}

enum status link_header_decode(const uint8_t in[LINK_HEADER_BYTES], size_t max_bytes,
                               struct link_header *out)
{
    struct link_header h;

    if (memcmp(in, magic, sizeof magic) != 0)
        return FAIL(ST_PROTO, "the peer does not speak this protocol");
    if (get(in + 4, 2) != LINK_VERSION)
        return FAIL(ST_PROTO, "the peer sends messages of version %u, expected %d", get(in + 4, 2),
                    LINK_VERSION);
    if (get(in + 16, 4) != crc32c(0, in, 16))
        return FAIL(ST_PROTO, "the head of a message is damaged: wrong checksum");
    h.type = (uint16_t)get(in + 6, 2);
    h.len = get(in + 8, 4);
    h.crc = get(in + 12, 4);
    if (h.len > max_bytes)
        return FAIL(ST_PROTO, "a message of %u bytes, at most %zu are accepted", h.len, max_bytes);
    *out = h;
    return ST_OK;
}

enum status link_body_check(const struct link_header *h, const uint8_t *body)
{
    if (crc32c(0, body, h->len) != h->crc)
        return FAIL(ST_PROTO, "a message of type %u is damaged: wrong checksum", h->type);
    return ST_OK;
}
