// servers.h - the envs of several env servers as those of one, for a caller that asks each env for
// one thing at a time and wants every request answered.
//
// Envs are numbered 0..n-1 through all servers. When a server dies, each of its envs that was asked
// for something answers with an error (ROW_ERROR_SERVER); what is asked of it afterwards is held
// until the server is back, and then begins the env's next episode (a held reset the one that it
// asked for). servers_give_up turns what is held into errors instead.
//
// Threads: one sends (servers_reset, servers_step) and asks (servers_read, servers_write), one
// receives (servers_recv, servers_give_up).
#ifndef CAPI_SERVERS_H
#define CAPI_SERVERS_H

#include "rollout/intake.h"

struct servers;

// cfg.hello as for envclient_open; learner_url, rejoin and stop are not looked at. ST_INVAL if the
// servers' tasks or rows differ.
NODISCARD enum status servers_open(struct servers **out, const struct intake_config *cfg);
void servers_close(struct servers *s); // NULL is fine

const struct spec *servers_spec(const struct servers *s); // n_env is that of all
const struct row_layout *servers_layout(const struct servers *s);
int servers_autoreset(const struct servers *s);
int servers_b_max(const struct servers *s);            // the largest of them
const uint32_t *servers_envs(const struct servers *s); // (n_env) 0, 1, ...

// As port_reset and port_step: rows with our numbers, no env twice or while it is asked.
NODISCARD enum status servers_reset(struct servers *s, const struct reset_row *rows, int n);
NODISCARD enum status servers_step(struct servers *s, const uint8_t *rows, int n);

// The next batch, as envclient_recv; the rows' env is our number.
NODISCARD enum status servers_recv(struct servers *s, struct msg **m,
                                   const struct batch_head **head, const uint8_t **rows,
                                   int64_t wait_ns);

// States and fields of n envs (our numbers) through all servers; they have nothing asked, and each
// server is asked about its own. ST_CLOSED names the server if one of them is lost.
//
// servers_read: the states, or with a `field` and an `element` its numbers, as envclient_save and
// envclient_get give them, in the order of `env`; free *m with msg_free. servers_write: the
// contents stand at every `stride` bytes, `bytes` of each. A server checks all of its part before
// it takes any; what another server has taken by then stays.
NODISCARD enum status servers_read(struct servers *s, const uint32_t *env, int n, const char *field,
                                   const char *element, struct msg **m, struct state_rows *out);
NODISCARD enum status servers_write(struct servers *s, const uint32_t *env, int n,
                                    const char *field, const char *element, const void *content,
                                    size_t stride, size_t bytes);

// Answer with errors what lost servers hold; the rows come with the next servers_recv.
void servers_give_up(struct servers *s);

#endif
