// The number-theoretic transform of Z_Q[X]/(X^256 + 1) in the block's memory, three layers a pass: value i is
// a(ZETA^(2·brv(i) + 1)), brv reversing 8 bits. No polynomial's values decide where anything is read.
#ifndef NTT_H
#define NTT_H
#include "zk/field.h"
#include "zk/zetas.h"

// Polynomials of a block. A place is left out after each 8, so that the lanes of a warp meet different banks.
#define ROWS 9
#define ROW 288u
SHARED(ring, ROWS * 288)
#define PLACE(row, i) ((row) * ROW + (i) + ((i) >> 3))

// What a block leaves in its memory, the next may read.
FN void clear_ring() {
  BARRIER();
  ROLL for (U32 i = TID; i < ROWS * ROW; i += THREADS) ring[i] = 0u;
}
FN I32 at_ring(U32 place) { return I32(ring[place]); }

// Between passes over polynomials that have 32 threads each: a warp, unless blocks have no whole warps.
FN void polynomial_barrier() {
#if defined(__CUDA_ARCH__)
  if ((THREADS & 31u) == 0u) {
    __syncwarp();
    return;
  }
#endif
  BARRIER();
}

FN void forward(INOUT(I32, x), INOUT(I32, y), I32 zeta) {
  I32 t = mul_int(zeta, y);
  y = x - t;
  x = x + t;
}
FN void backward(INOUT(I32, x), INOUT(I32, y), I32 zeta) {
  I32 t = x - y;
  x = x + y;
  y = mul_int(zeta, t);
}
// Eight values of a polynomial, `step` apart: 32, 4 or 1, where those before the first leave no carry for the places left out.
#define AFTER(place, m, step) ((place) + (m) * (step) + ((m) * (step) >> 3))
FN void take(ARR(I32, x, 8), U32 place, U32 step) {
  UNROLL for (U32 m = 0u; m < 8u; m++) x[m] = at_ring(AFTER(place, m, step));
}
FN void put(ARRIN(I32, x, 8), U32 place, U32 step) {
  UNROLL for (U32 m = 0u; m < 8u; m++) ring[AFTER(place, m, step)] = U32(x[m]);
}

// Three layers of eight values; k is the number of the first layer's root.
FN void forward_3(ARR(I32, x, 8), U32 k) {
  UNROLL for (U32 m = 0u; m < 4u; m++) forward(x[m], x[m + 4u], ZETAS[k]);
  UNROLL for (U32 m = 0u; m < 4u; m++) {
    U32 a = (m & 1u) + 4u * (m >> 1);
    forward(x[a], x[a + 2u], ZETAS[2u * k + (m >> 1)]);
  }
  UNROLL for (U32 m = 0u; m < 4u; m++) forward(x[2u * m], x[2u * m + 1u], ZETAS[4u * k + m]);
}
FN void backward_3(ARR(I32, x, 8), U32 k) {
  UNROLL for (U32 m = 0u; m < 4u; m++) backward(x[2u * m], x[2u * m + 1u], INVERSE_ZETAS[4u * k + m]);
  UNROLL for (U32 m = 0u; m < 4u; m++) {
    U32 a = (m & 1u) + 4u * (m >> 1);
    backward(x[a], x[a + 2u], INVERSE_ZETAS[2u * k + (m >> 1)]);
  }
  UNROLL for (U32 m = 0u; m < 4u; m++) backward(x[m], x[m + 4u], INVERSE_ZETAS[k]);
}
// Two layers of four values each.
FN void forward_2(ARR(I32, x, 8), U32 k) {
  UNROLL for (U32 half = 0u; half < 2u; half++) {
    U32 a = 4u * half;
    forward(x[a], x[a + 2u], ZETAS[k + half]);
    forward(x[a + 1u], x[a + 3u], ZETAS[k + half]);
    forward(x[a], x[a + 1u], ZETAS[2u * (k + half)]);
    forward(x[a + 2u], x[a + 3u], ZETAS[2u * (k + half) + 1u]);
  }
}
FN void backward_2(ARR(I32, x, 8), U32 k) {
  UNROLL for (U32 half = 0u; half < 2u; half++) {
    U32 a = 4u * half;
    backward(x[a], x[a + 1u], INVERSE_ZETAS[2u * (k + half)]);
    backward(x[a + 2u], x[a + 3u], INVERSE_ZETAS[2u * (k + half) + 1u]);
    backward(x[a], x[a + 2u], INVERSE_ZETAS[k + half]);
    backward(x[a + 1u], x[a + 3u], INVERSE_ZETAS[k + half]);
  }
}

// A pass takes values 32, 4 and 1 apart. Thread t of the 32 of a row begins at these places.
FN U32 place_4(U32 row, U32 t) { return PLACE(row, ((t >> 2) << 5) + (t & 3u)); }
FN U32 place_1(U32 row, U32 t) { return PLACE(row, 8u * t); }

// The transforms of rows first … first + count - 1, each |coefficient| < 280·Q, which grows by 8·Q/2 and a little: all
// passes but the first.
FN void ntt_rest(U32 first, U32 count) {
  polynomial_barrier();
  ROLL for (U32 t = TID; t < 32u * count; t += THREADS) {
    U32 place = place_4(first + (t >> 5), t & 31u);
    I32 x[8];
    take(x, place, 4u);
    forward_3(x, 8u + ((t & 31u) >> 2));
    put(x, place, 4u);
  }
  polynomial_barrier();
  ROLL for (U32 t = TID; t < 32u * count; t += THREADS) {
    U32 place = place_1(first + (t >> 5), t & 31u);
    I32 x[8];
    take(x, place, 1u);
    forward_2(x, 64u + 2u * (t & 31u));
    put(x, place, 1u);
  }
  BARRIER();
}
FN void ntt(U32 first, U32 count) {
  BARRIER();
  ROLL for (U32 t = TID; t < 32u * count; t += THREADS) {
    U32 place = PLACE(first + (t >> 5), t & 31u);
    I32 x[8];
    take(x, place, 32u);
    forward_3(x, 1u);
    put(x, place, 32u);
  }
  ntt_rest(first, count);
}

// The polynomials of values that `mul_int` or `reduce_int` gave, and so R times too small: the result is not. Sums of
// all 256 values stay below 2^31; |coefficient| < 0.63·Q. The passes are functions, since some callers have values at
// hand for the first, or go on with those of the last.
FN void intt_first(U32 first, U32 count) {
  BARRIER();
  ROLL for (U32 t = TID; t < 32u * count; t += THREADS) {
    U32 place = place_1(first + (t >> 5), t & 31u);
    I32 x[8];
    take(x, place, 1u);
    backward_2(x, 64u + 2u * (t & 31u));
    put(x, place, 1u);
  }
}
FN void intt_second(U32 first, U32 count) {
  polynomial_barrier();
  ROLL for (U32 t = TID; t < 32u * count; t += THREADS) {
    U32 place = place_4(first + (t >> 5), t & 31u);
    I32 x[8];
    take(x, place, 4u);
    backward_3(x, 8u + ((t & 31u) >> 2));
    put(x, place, 4u);
  }
  polynomial_barrier();
}
// Coefficients t, t + 32, … of a row.
FN void intt_third(U32 row, U32 t, ARR(I32, x, 8)) {
  take(x, PLACE(row, t), 32u);
  backward_3(x, 1u);
  UNROLL for (U32 m = 0u; m < 4u; m++) x[m] = mul_int(SCALE, x[m]);
}
FN void intt(U32 first, U32 count) {
  intt_first(first, count);
  intt_second(first, count);
  ROLL for (U32 t = TID; t < 32u * count; t += THREADS) {
    I32 x[8];
    intt_third(first + (t >> 5), t & 31u, x);
    put(x, PLACE(first + (t >> 5), t & 31u), 32u);
  }
  BARRIER();
}
#endif
