// SHAKE of short inputs, a stream a thread (FIPS 202, 6.2).
#ifndef ZK_SHAKE_H
#define ZK_SHAKE_H
#include "hash/keccak.h"

#define RATE_128 21
#define RATE_256 17

FN void shake_clear(ARR(U64, A, 25)) {
  UNROLL for (int i = 0; i < 25; i++) A[i] = u64(0u, 0u);
}
FN U64 lane_at(U32Ptr p, U32 at) { return u64(AT(p, at + 1u), AT(p, at)); }
// The end of an input that fills whole lanes and two bytes more, those of `tail`.
FN U64 ended(U32 tail) { return u64(0u, 0x1f0000u | tail); }
#define LAST_BIT u64(0x80000000u, 0u)

// Word i of what was squeezed.
FN U32 squeezed(ARRIN(U64, A, 25), int i) { return i % 2 == 0 ? U32(A[i / 2]) : U32(A[i / 2] >> 32); }
#endif
