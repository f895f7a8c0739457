// The number-theoretic transform of Z_Q[X]/(X^256 + 1) in the block's memory, two layers a pass: value i is
// a(ZETA^(2·brv(i) + 1)), brv reversing 8 bits. No polynomial's values decide where anything is read.
#ifndef NTT_H
#define NTT_H
#include "zk/field.h"
#include "zk/zetas.h"

// Polynomials of a block. A place is left out after each 16, so that the lanes of a warp meet different banks.
#define ROWS 9
#define ROW 272u
SHARED(ring, ROWS * 272)
#define PLACE(row, i) ((row) * ROW + (i) + ((i) >> 4))

// What a block leaves in its memory, the next may read.
FN void clear_ring() {
  BARRIER();
  ROLL for (U32 i = TID; i < ROWS * ROW; i += THREADS) ring[i] = 0u;
}
FN I32 at_ring(U32 place) { return I32(ring[place]); }

// Rows first … first + count - 1, each |coefficient| < 280·Q, which grows by 8·Q/2 and a little.
FN void ntt(U32 first, U32 count) {
  ROLL for (U32 log = 8u; log > 0u; log -= 2u) {
    U32 shift = log - 2u, h = 1u << shift;
    BARRIER();
    ROLL for (U32 t = TID; t < 64u * count; t += THREADS) {
      U32 row = first + (t >> 6), block = (t & 63u) >> shift, k = (64u >> shift) + block;
      U32 i = (block << log) + (t & (h - 1u));
      U32 p0 = PLACE(row, i), p1 = PLACE(row, i + h), p2 = PLACE(row, i + 2u * h), p3 = PLACE(row, i + 3u * h);
      I32 a0 = at_ring(p0), a1 = at_ring(p1);
      I32 t0 = mul_int(ZETAS[k], at_ring(p2)), t1 = mul_int(ZETAS[k], at_ring(p3));
      I32 b1 = mul_int(ZETAS[2u * k], a1 + t1), b3 = mul_int(ZETAS[2u * k + 1u], a1 - t1);
      ring[p0] = U32(a0 + t0 + b1);
      ring[p1] = U32(a0 + t0 - b1);
      ring[p2] = U32(a0 - t0 + b3);
      ring[p3] = U32(a0 - t0 - b3);
    }
  }
  BARRIER();
}

// The polynomials of values that `mul_int` or `reduce_int` gave, and so R times too small: the result is not. Sums of
// all 256 values stay below 2^31; |coefficient| < 0.63·Q.
FN void intt(U32 first, U32 count) {
  ROLL for (U32 log = 2u; log <= 8u; log += 2u) {
    U32 shift = log - 2u, h = 1u << shift;
    BARRIER();
    ROLL for (U32 t = TID; t < 64u * count; t += THREADS) {
      U32 row = first + (t >> 6), block = (t & 63u) >> shift, k = (64u >> shift) + block;
      U32 i = (block << log) + (t & (h - 1u));
      U32 p0 = PLACE(row, i), p1 = PLACE(row, i + h), p2 = PLACE(row, i + 2u * h), p3 = PLACE(row, i + 3u * h);
      I32 a0 = at_ring(p0), a1 = at_ring(p1), a2 = at_ring(p2), a3 = at_ring(p3);
      I32 b0 = a0 + a1, b1 = mul_int(INVERSE_ZETAS[2u * k], a0 - a1);
      I32 b2 = a2 + a3, b3 = mul_int(INVERSE_ZETAS[2u * k + 1u], a2 - a3);
      a0 = b0 + b2;
      a1 = b1 + b3;
      if (log == 8u) {
        a0 = mul_int(SCALE, a0);
        a1 = mul_int(SCALE, a1);
      }
      ring[p0] = U32(a0);
      ring[p1] = U32(a1);
      ring[p2] = U32(mul_int(INVERSE_ZETAS[k], b0 - b2));
      ring[p3] = U32(mul_int(INVERSE_ZETAS[k], b1 - b3));
    }
  }
  BARRIER();
}
#endif
