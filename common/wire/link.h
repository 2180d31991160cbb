// link.h - connections that carry whole messages: tcp://host:port, tls+tcp://host:port, ipc://path,
// inproc://name.
//
// All but inproc run over nng streams with a 20-byte header a message: magic "SSTM", version u16,
// type u16, length u32, CRC-32C of the body u32, CRC-32C of the 16 bytes before u32. A header that
// does not fit, a length above the limit or a wrong sum ends the connection with ST_PROTO before
// anything is allocated for it. inproc hands the message itself over, without a copy.
//
// Ownership: a successful send takes the message; on failure the caller still owns it. A received
// message belongs to the caller.
//
// Threads: one thread may send and another receive at the same time; more of either need a lock of
// their own. link_close may be called from any thread and wakes both; link_destroy comes last.
//
// Back-pressure: send blocks while the peer does not read; nothing is dropped.
//
// Messages sent before a close still arrive. Over tcp that needs the closing side to have read what
// came in, since the system resets a connection with unread bytes. Time limits of streams are
// rounded up to a millisecond.
#ifndef COMMON_WIRE_LINK_H
#define COMMON_WIRE_LINK_H

#include "common/base/thread.h"
#include "common/wire/msg.h"

#define LINK_VERSION 1
#define LINK_URL_MAX 256

struct link;
struct listener;

// Certificates of a tls+tcp address; files are PEM. TLS 1.2 or newer, by nng's mbed TLS.
struct link_tls {
    const char *cert_file;   // listener: its certificate and private key
    const char *ca_file;     // dialer: the authorities that it trusts
    const char *server_name; // dialer: name in the certificate, NULL = the address's host
};

// Is the address one that other machines cannot reach: ipc, inproc, or tcp on 127.x, ::1,
// localhost?
bool link_is_local(const char *url);

// Listen on `url`; port 0 picks a free one. Messages longer than `max_bytes` end a connection.
// ST_IO names the address and what is wrong with it (in use, no permission). An ipc path that no
// process listens on any more is taken over.
NODISCARD enum status listener_open(struct listener **out, const char *url, size_t max_bytes);
// The same for tls+tcp; `tls` may be NULL for the other schemes. ST_MISSING if nng lacks TLS.
NODISCARD enum status listener_open_tls(struct listener **out, const char *url, size_t max_bytes,
                                        const struct link_tls *tls);

// The address with the real port; valid while the listener lives.
const char *listener_url(const struct listener *l);

// The next connection. ST_TIMEOUT (ST_AGAIN if wait_ns is 0), or ST_CLOSED after listener_close.
// ST_IO: one could not be taken (too many open files, for example); the listener goes on.
NODISCARD enum status listener_accept(struct listener *l, struct link **out, int64_t wait_ns);

// Stop accepting and wake the accepting thread; any thread. Removes the ipc path.
void listener_close(struct listener *l);

// NULL is fine.
void listener_destroy(struct listener *l);

// Connect, retrying until `wait_ns` has passed (0 = try once). ST_IO names the address; ST_INVAL
// for an address that cannot be understood.
NODISCARD enum status link_dial(struct link **out, const char *url, size_t max_bytes,
                                int64_t wait_ns);
NODISCARD enum status link_dial_tls(struct link **out, const char *url, size_t max_bytes,
                                    int64_t wait_ns, const struct link_tls *tls);

// From the next message on, accept at most so many bytes; by the receiving thread.
void link_set_max(struct link *k, size_t max_bytes);

// ST_CLOSED when the peer or this side has closed.
NODISCARD enum status link_send(struct link *k, struct msg *m);

// ST_TIMEOUT (ST_AGAIN if wait_ns is 0): nothing came, nothing is lost. ST_CLOSED: the peer is
// gone. ST_PROTO: the peer sent something that is not a message; the connection is closed.
NODISCARD enum status link_recv(struct link *k, struct msg **out, int64_t wait_ns);

// The same for a peer that has to say something soon: ST_TIMEOUT after so many seconds of silence.
// They are counted one by one, because a machine that stands still hears nothing either, and that
// is one of them, however long.
NODISCARD enum status link_recv_soon(struct link *k, struct msg **out, int seconds);

void link_close(struct link *k);

// NULL is fine.
void link_destroy(struct link *k);

// Header of a stream message, apart from the sockets so that it can be tested and fuzzed.
#define LINK_HEADER_BYTES 20
struct link_header {
    uint16_t type;
    uint32_t len, crc;
};
void link_header_encode(uint8_t out[LINK_HEADER_BYTES], const struct msg *m);
NODISCARD enum status link_header_decode(const uint8_t in[LINK_HEADER_BYTES], size_t max_bytes,
                                         struct link_header *out);
// ST_PROTO if the body does not match the header's sum.
NODISCARD enum status link_body_check(const struct link_header *h, const uint8_t *body);

#endif
