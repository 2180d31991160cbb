// tokenizer.h - text to token numbers and back: bytes, or byte pairs from a vocabulary file.
//
// Without a vocabulary a token is a byte, 0..255. A vocabulary adds merges (Gage 1994; as byte
// pairs: Sennrich et al. 2016, Radford et al. 2019): token 256 + i is what merge i joins. To
// encode, the pair of neighbours whose merge comes first in the file is joined, the leftmost of
// equals first, until no pair is left. So every text can be encoded, and decoding gives it back.
//
// The file is ASCII text, a line each:
//
//     simstream-bpe 1 words        or: simstream-bpe 1 plain
//     # a comment
//     t h
//     th e
//     \20 the
//
// A merge is two tokens that are known by then, a blank between. A byte that is not 33..126, and
// the backslash and '#', are written as a backslash and two hexadecimal digits. "words": the text
// is cut before every blank (byte 32) that follows another character, and no merge crosses a cut.
//
// Ownership: the object is the caller's. Threads: read-only once made. Errors of a file name it and
// the line.
#ifndef NN_TOKENIZER_H
#define NN_TOKENIZER_H

#include "common/base/status.h"

#include <stdint.h>

#define TOKENIZER_BYTES  256
#define TOKENIZER_MERGES (1 << 20) // at most

struct tokenizer;

// Of the file at `path`; bytes alone if it is "".
NODISCARD enum status tokenizer_load(struct tokenizer **out, const char *path);
// Of a vocabulary in memory (n bytes, 0 = bytes alone); `what` names it in errors.
NODISCARD enum status tokenizer_parse(struct tokenizer **out, const char *text, size_t n,
                                      const char *what);
void tokenizer_destroy(struct tokenizer *t); // NULL is fine

// Numbers of tokens: all are below this.
int tokenizer_size(const struct tokenizer *t);

// The text it was made of, for files that bring their vocabulary along; *n bytes, 0 = bytes alone.
const char *tokenizer_text(const struct tokenizer *t, size_t *n);

// Encode n bytes; *n_id of `ids` are filled. ST_INVAL if there are more than `cap`.
NODISCARD enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                                       int32_t *ids, int cap, int *n_id);

// The bytes of a token, *n of them (at least 1); NULL if there is no such token.
const char *tokenizer_token(const struct tokenizer *t, int32_t id, size_t *n);

#endif
