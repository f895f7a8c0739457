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

// Four words to p at i, a multiple of 16 bytes: streams that threads write side by side lie far apart, and a word at a
// time would take as many of the cache's cycles as four.
#if defined(__CUDA_ARCH__)
  #define PUT_QUAD(p, i, x, y, z, w) *(uint4*)((p) + (i)) = make_uint4(x, y, z, w)
#else
  #define PUT_QUAD(p, i, x, y, z, w) { \
    AT(p, i) = x; AT(p, (i) + 1u) = y; AT(p, (i) + 2u) = z; AT(p, (i) + 3u) = w; }
#endif

// Two lanes, in the same way.
#define PUT_LANES(p, i, x, y) PUT_QUAD(p, i, U32(x), U32((x) >> 32), U32(y), U32((y) >> 32))

// Word i of what was squeezed.
FN U32 squeezed(ARRIN(U64, A, 25), int i) { return i % 2 == 0 ? U32(A[i / 2]) : U32(A[i / 2] >> 32); }
#endif
