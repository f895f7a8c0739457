// The hash functions of SLH-DSA with SHA-2 (FIPS 205, 11.2). A word of a node is four bytes, the first the highest.
#ifndef SHA2_H
#define SHA2_H
#include "hash/sha256.h"
#if N > 16
#include "hash/sha512.h"
#endif

// A node's word from the word that its bytes are in memory, and back.
FN U32 word_of(U32 raw) { return bswap(raw); }
// A message word of WOTS+, its first byte the highest.
FN U32 digits_of(U32 word) { return word; }

// ADRSc but for its last two bytes, which are the low half of x[6] (FIPS 205, 11.2).
// Addresses are seven words: layer, tree (high, low), type, and the type's own three.
FN void compressed(ARRIN(U32, x, 7), ARR(U32, w, 16)) {
  w[0] = (x[0] << 24) | (x[1] >> 8);
  w[1] = (x[1] << 24) | (x[2] >> 8);
  w[2] = (x[2] << 24) | (x[3] << 16) | (x[4] >> 16);
  w[3] = (x[4] << 16) | (x[5] >> 16);
  w[4] = (x[5] << 16) | (x[6] >> 16);
}

// A key's states after the block of PK.seed: what `keys` starts with and every hash goes on from.
FN void key_states(U32Ptr keys, U32 at, U32 one) {
  U32 s[8], w[16];
  UNROLL for (int i = 0; i < 16; i++) w[i] = 0u;
  UNROLL for (int i = 0; i < NW; i++) w[i] = AT(keys, at + U32(i));
  sha256_iv(s);
  sha256_compress(s, w, one);
  UNROLL for (int i = 0; i < 8; i++) AT(keys, at + 16u + U32(i)) = s[i];
#if N > 16
  U64 v[8], x[16];
  UNROLL for (int i = 0; i < 16; i++) x[i] = u64(0u, 0u);
  UNROLL for (int i = 0; i < NW / 2; i++) x[i] = u64(AT(keys, at + U32(2 * i)), AT(keys, at + U32(2 * i + 1)));
  sha512_iv(v);
  sha512_compress(v, x);
  UNROLL for (int i = 0; i < 8; i++) {
    AT(keys, at + 24u + U32(2 * i)) = U32(v[i] >> 32);
    AT(keys, at + 25u + U32(2 * i)) = U32(v[i]);
  }
#endif
}

// The next of T_l's `left` − 1 words in memory, then the word that begins the padding, then zeros. `word` counts within
// a node.
#define NEXT_WORD(m) \
  U32 m = 0u; \
  if (left > 1u) { \
    m = AT(p, from); \
    word++; \
    from += word_step; \
    if (word == U32(NW)) { word = 0u; from += node_step - U32(NW) * word_step; } \
  } else if (left == 1u) { \
    m = 0x80000000u; \
  } \
  left = left > 0u ? left - 1u : 0u;

#define BITS_OF_F U32((64 + 22 + N) * 8)
// The block of F and PRF after ADRSc: n bytes, the padding, the length.
FN void short_block(U32 half, ARRIN(U32, node, NW), ARR(U32, w, 16)) {
  w[5] = (half << 16) | (node[0] >> 16);
  UNROLL for (int i = 1; i < NW; i++) w[5 + i] = funnel(node[i - 1], node[i], 16u);
  w[5 + NW] = (node[NW - 1] << 16) | 0x8000u;
  UNROLL for (int i = 6 + NW; i < 15; i++) w[i] = 0u;
  w[15] = BITS_OF_F;
}

#if N > 16
FN void load512(U32Ptr keys, U32 at, ARR(U64, s, 8)) {
  UNROLL for (int i = 0; i < 8; i++) s[i] = u64(AT(keys, at + 24u + U32(2 * i)), AT(keys, at + 25u + U32(2 * i)));
}
#endif

// What every hash of a key goes on from: the states after PK.seed.
struct Seeded {
  U32 s[8];
#if N > 16
  U64 v[8];
#endif
};

FN Seeded seeded(U32Ptr keys, U32 at) {
  Seeded key;
  UNROLL for (int i = 0; i < 8; i++) key.s[i] = AT(keys, at + 16u + U32(i));
#if N > 16
  load512(keys, at, key.v);
#endif
  return key;
}

// F and PRF (FIPS 205, 11.2.1 and 11.2.2): `node` becomes its hash.
FN void seeded_f(Seeded key, ARRIN(U32, adrs, 7), ARR(U32, node, NW), U32 one) {
  U32 w[16];
  compressed(adrs, w);
  short_block(adrs[6], node, w);
  sha256_compress(key.s, w, one);
  UNROLL for (int i = 0; i < NW; i++) node[i] = key.s[i];
}
FN void thash_f(U32Ptr keys, U32 at, ARRIN(U32, adrs, 7), ARR(U32, node, NW), U32 one) {
  seeded_f(seeded(keys, at), adrs, node, one);
}

// A WOTS+ chain being walked: what its steps have in common, and the state after the rounds that see only the address.
struct Chain { ChainSchedule schedule; U32 begun[8]; U32 state[NW]; };

FN Chain seeded_chain(Seeded key, ARRIN(U32, adrs, 7), U32 one) {
  Chain c;
  U32 w[16];
  compressed(adrs, w);
  w[15] = BITS_OF_F;
  c.schedule = chain_schedule(w, one);
  UNROLL for (int i = 0; i < 8; i++) c.begun[i] = key.s[i];
  UNROLL for (int i = 0; i < NW; i++) c.state[i] = key.s[i];
  sha256_begin(c.begun, w, one);
  return c;
}
FN Chain chain_at(U32Ptr keys, U32 at, ARRIN(U32, adrs, 7), U32 one) { return seeded_chain(seeded(keys, at), adrs, one); }
// One step: F with hash address `step`, below 2^16.
FN void chain_step(Chain c, U32 step, ARR(U32, node, NW), U32 one) {
  U32 s[8], w[16];
  short_block(step, node, w);
  UNROLL for (int i = 0; i < 8; i++) s[i] = c.begun[i];
  sha256_finish(s, w, c.schedule, one);
  UNROLL for (int i = 0; i < NW; i++) node[i] = s[i] + c.state[i];
}

#if N == 16
// H: the left node becomes the hash of both.
FN void seeded_h(Seeded key, ARRIN(U32, adrs, 7), ARR(U32, left, NW), ARRIN(U32, right, NW), U32 one) {
  U32 w[16];
  compressed(adrs, w);
  w[5] = (adrs[6] << 16) | (left[0] >> 16);
  UNROLL for (int i = 1; i < NW; i++) w[5 + i] = funnel(left[i - 1], left[i], 16u);
  w[5 + NW] = funnel(left[NW - 1], right[0], 16u);
  UNROLL for (int i = 1; i < NW; i++) w[5 + NW + i] = funnel(right[i - 1], right[i], 16u);
  w[5 + 2 * NW] = (right[NW - 1] << 16) | 0x8000u;
  w[14] = 0u;
  w[15] = U32((64 + 22 + 2 * N) * 8);
  sha256_compress(key.s, w, one);
  UNROLL for (int i = 0; i < NW; i++) left[i] = key.s[i];
}
// T_l over l nodes in memory: word j of node i at p[from + i·node_step + j·word_step].
FN void thash_tl(U32Ptr keys, U32 at, ARRIN(U32, adrs, 7), U32Ptr p, U32 from, U32 node_step, U32 word_step, U32 l, ARR(U32, out_, NW), U32 one) {
  U32 s[8], w[16];
  UNROLL for (int i = 0; i < 8; i++) s[i] = AT(keys, at + 16u + U32(i));
  U32 bytes = 22u + l * U32(N), blocks = (bytes + 9u + 63u) / 64u, left = l * U32(NW) + 1u, word = 0u, before = adrs[6];
  ROLL for (U32 b = 0u; b < blocks; b++) {
    UNROLL for (int i = 0; i < 16; i++) {
      if (i < 5 && b == 0u) continue;
      NEXT_WORD(m)
      w[i] = (before << 16) | (m >> 16);
      before = m;
    }
    if (b == 0u) compressed(adrs, w);
    if (b + 1u == blocks) w[15] = (64u + bytes) * 8u;
    sha256_compress(s, w, one);
  }
  UNROLL for (int i = 0; i < NW; i++) out_[i] = s[i];
}
#else
FN void store512(ARRIN(U64, s, 8), ARR(U32, node, NW)) {
  UNROLL for (int i = 0; i < NW / 2; i++) { node[2 * i] = U32(s[i] >> 32); node[2 * i + 1] = U32(s[i]); }
}
FN void seeded_h(Seeded key, ARRIN(U32, adrs, 7), ARR(U32, left, NW), ARRIN(U32, right, NW), U32 one) {
  U32 x[32], head[16];
  U64 w[16];
  compressed(adrs, head);
  UNROLL for (int i = 0; i < 5; i++) x[i] = head[i];
  x[5] = (adrs[6] << 16) | (left[0] >> 16);
  UNROLL for (int i = 1; i < NW; i++) x[5 + i] = funnel(left[i - 1], left[i], 16u);
  x[5 + NW] = funnel(left[NW - 1], right[0], 16u);
  UNROLL for (int i = 1; i < NW; i++) x[5 + NW + i] = funnel(right[i - 1], right[i], 16u);
  x[5 + 2 * NW] = (right[NW - 1] << 16) | 0x8000u;
  UNROLL for (int i = 6 + 2 * NW; i < 31; i++) x[i] = 0u;
  x[31] = U32((128 + 22 + 2 * N) * 8);
  UNROLL for (int i = 0; i < 16; i++) w[i] = u64(x[2 * i], x[2 * i + 1]);
  sha512_compress(key.v, w);
  store512(key.v, left);
}
FN void thash_tl(U32Ptr keys, U32 at, ARRIN(U32, adrs, 7), U32Ptr p, U32 from, U32 node_step, U32 word_step, U32 l, ARR(U32, out_, NW), U32 one) {
  U32 x[32], head[16];
  U64 s[8], w[16];
  compressed(adrs, head);
  load512(keys, at, s);
  U32 bytes = 22u + l * U32(N), blocks = (bytes + 17u + 127u) / 128u, left = l * U32(NW) + 1u, word = 0u, before = adrs[6];
  ROLL for (U32 b = 0u; b < blocks; b++) {
    UNROLL for (int i = 0; i < 32; i++) {
      if (i < 5 && b == 0u) { x[i] = head[i < 5 ? i : 0]; continue; }
      NEXT_WORD(m)
      x[i] = (before << 16) | (m >> 16);
      before = m;
    }
    if (b + 1u == blocks) x[31] = (128u + bytes) * 8u;
    UNROLL for (int i = 0; i < 16; i++) w[i] = u64(x[2 * i], x[2 * i + 1]);
    sha512_compress(s, w);
  }
  store512(s, out_);
}
#endif
FN void thash_h(U32Ptr keys, U32 at, ARRIN(U32, adrs, 7), ARR(U32, left, NW), ARRIN(U32, right, NW), U32 one) {
  seeded_h(seeded(keys, at), adrs, left, right, one);
}
#endif
