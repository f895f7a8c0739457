// The hash functions of SLH-DSA with SHAKE256 (FIPS 205, 11.1). A word of a node is four bytes, the first the lowest.
#ifndef SHAKE_H
#define SHAKE_H
#include "hash/keccak.h"

FN U32 word_of(U32 raw) { return raw; }
FN U32 digits_of(U32 word) { return bswap(word); }
FN void key_states(U32Ptr keys, U32 at, U32 one) {}

// PK.seed and the address, with which everything begins; then zeros.
FN void shake_begin(U32Ptr keys, U32 at, ARRIN(U32, x, 7), ARR(U64, A, 25)) {
  UNROLL for (int i = 0; i < 25; i++) A[i] = u64(0u, 0u);
  UNROLL for (int i = 0; i < NW / 2; i++) A[i] = u64(AT(keys, at + U32(2 * i + 1)), AT(keys, at + U32(2 * i)));
  A[NW / 2] = u64(0u, bswap(x[0]));
  A[NW / 2 + 1] = u64(bswap(x[2]), bswap(x[1]));
  A[NW / 2 + 2] = u64(bswap(x[4]), bswap(x[3]));
  A[NW / 2 + 3] = u64(bswap(x[6]), bswap(x[5]));
}
FN void shake_end(ARR(U64, A, 25), ARR(U32, node, NW)) {
  A[16] ^= u64(0x80000000u, 0u);
  keccak_f(A);
  UNROLL for (int i = 0; i < NW / 2; i++) { node[2 * i] = U32(A[i]); node[2 * i + 1] = U32(A[i] >> 32); }
}

// F and PRF (FIPS 205, 11.1): `node` becomes its hash.
FN void thash_f(U32Ptr keys, U32 at, ARRIN(U32, adrs, 7), ARR(U32, node, NW), U32 one) {
  U64 A[25];
  shake_begin(keys, at, adrs, A);
  UNROLL for (int i = 0; i < NW / 2; i++) A[NW / 2 + 4 + i] = u64(node[2 * i + 1], node[2 * i]);
  A[NW + 4] = u64(0u, 0x1fu);
  shake_end(A, node);
}

// A key, whose PK.seed every hash loads anew: Keccak's state leaves no registers for it.
struct Seeded { U32Ptr keys; U32 at; };

FN Seeded seeded(U32Ptr keys, U32 at) {
  Seeded key;
  key.keys = keys;
  key.at = at;
  return key;
}
FN void seeded_f(Seeded key, ARRIN(U32, adrs, 7), ARR(U32, node, NW), U32 one) { thash_f(key.keys, key.at, adrs, node, one); }

// A WOTS+ chain being walked: its key and address.
struct Chain { U32Ptr keys; U32 at; U32 adrs[7]; };

FN Chain chain_at(U32Ptr keys, U32 at, ARRIN(U32, adrs, 7), U32 one) {
  Chain c;
  c.keys = keys;
  c.at = at;
  UNROLL for (int i = 0; i < 7; i++) c.adrs[i] = adrs[i];
  return c;
}
FN Chain seeded_chain(Seeded key, ARRIN(U32, adrs, 7), U32 one) { return chain_at(key.keys, key.at, adrs, one); }
// One step: F with hash address `step`.
FN void chain_step(Chain c, U32 step, ARR(U32, node, NW), U32 one) {
  c.adrs[6] = step;
  thash_f(c.keys, c.at, c.adrs, node, one);
}

// H: the left node becomes the hash of both.
FN void thash_h(U32Ptr keys, U32 at, ARRIN(U32, adrs, 7), ARR(U32, left, NW), ARRIN(U32, right, NW), U32 one) {
  U64 A[25];
  shake_begin(keys, at, adrs, A);
  UNROLL for (int i = 0; i < NW / 2; i++) {
    A[NW / 2 + 4 + i] = u64(left[2 * i + 1], left[2 * i]);
    A[NW + 4 + i] = u64(right[2 * i + 1], right[2 * i]);
  }
  // n = 32 puts the padding into lane 16, where the last bit of the rate is too.
  A[NW + NW / 2 + 4] = u64(0u, 0x1fu);
  shake_end(A, left);
}
FN void seeded_h(Seeded key, ARRIN(U32, adrs, 7), ARR(U32, left, NW), ARRIN(U32, right, NW), U32 one) {
  thash_h(key.keys, key.at, adrs, left, right, one);
}
// T_l over l nodes in memory: word j of node i at p[from + i·node_step + j·word_step].
FN void thash_tl(U32Ptr keys, U32 at, ARRIN(U32, adrs, 7), U32Ptr p, U32 from, U32 node_step, U32 word_step, U32 l, ARR(U32, out_, NW), U32 one) {
  U64 A[25];
  shake_begin(keys, at, adrs, A);
  // Lanes of the rate, and of the message: n is a multiple of 8, so that the padding begins a lane.
  U32 left = l * U32(NW / 2) + 1u, word = 0u, blocks = (U32(NW / 2 + 4) + left + 16u) / 17u;
  ROLL for (U32 b = 0u; b < blocks; b++) {
    UNROLL for (int i = 0; i < 17; i++) {
      if (i < NW / 2 + 4 && b == 0u) continue;
      if (left > 1u) {
        A[i] ^= u64(AT(p, from + word_step), AT(p, from));
        word += 2u;
        from += 2u * word_step;
        if (word == U32(NW)) { word = 0u; from += node_step - U32(NW) * word_step; }
      } else if (left == 1u) {
        A[i] ^= u64(0u, 0x1fu);
      }
      left = left > 0u ? left - 1u : 0u;
    }
    if (b + 1u == blocks) A[16] ^= u64(0x80000000u, 0u);
    keccak_f(A);
  }
  UNROLL for (int i = 0; i < NW / 2; i++) { out_[2 * i] = U32(A[i]); out_[2 * i + 1] = U32(A[i] >> 32); }
}
#endif
