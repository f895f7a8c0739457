// What an attempt at a signature and its verification share.
#ifndef ATTEMPT_H
#define ATTEMPT_H
#include "zk/vector.h"

SHARED(draws, 45)
SHARED(bad, 1)  // not 0 if a test failed

// Decompose of r in [0, Q): where h is 56 it wraps, all bits of the first.
FN I32 high(I32 r) { return (r + (GAMMA2 - 1)) >> 17; }
FN I32 wraps(I32 h) { return (55 - h) >> 31; }
// 1 if |x| >= bound.
FN U32 exceeds(I32 x, I32 bound) {
  I32 sign = x >> 31;
  return U32(bound - 1 - ((x ^ sign) - sign)) >> 31;
}

// Ball, from what it draws: a row becomes c. `bad` where there is none.
FN void challenge(U32Ptr p, U32 at, U32 row) {
  BARRIER();
  ROLL for (U32 t = TID; t < DEGREE; t += THREADS) ring[PLACE(row, t)] = 0u;
  ROLL for (U32 t = TID; t < 45u; t += THREADS) {
    // Eight places among the first 217, 218, … and a byte of signs.
    U32 group = t / 9u, b = t - 9u * group, of = b < 8u ? 217u + 8u * group + b : 256u;
    U32 cell = AT(p, at + t), quotient = cell / of;
    draws[t] = cell - quotient * of;
    // Of the last quotient there are too few.
    if (quotient == U32(Q) / of) SHARED_ADD(bad[0], 1u);
  }
  BARRIER();
  if (TID == 0u) {
    ROLL for (U32 i = 0u; i < 40u; i++) {
      U32 group = i >> 3, place = PLACE(row, draws[9u * group + (i & 7u)]);
      ring[PLACE(row, 216u + i)] = ring[place];
      ring[place] = ((draws[9u * group + 8u] >> (i & 7u)) & 1u) != 0u ? 0xffffffffu : 1u;
    }
  }
  BARRIER();
}
#endif
