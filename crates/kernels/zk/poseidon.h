// Poseidon over Z_Q: 35 cells, 21 full rounds of x -> 1/x and of the matrix 1/(i + j + 1), one state a thread.
//
// No round inverts anything: a state is 35 numerators over one denominator d (docs/zkdilithium.md), which the product
// tree of a round makes anew.
#ifndef POSEIDON_H
#define POSEIDON_H
#include "zk/field.h"
#include "zk/poseidon_constants.h"

#define LEAVES 36

// y[at …] + H·(x0, x1, x2), 3 × 3: y[at + i] += h[i]·x0 + h[i + 1]·x1 + h[i + 2]·x2.
FN void hankel_3(int h, Factor x0, Factor x1, Factor x2, ARR(Wide, y, 9), int at) {
  UNROLL for (int i = 0; i < 3; i++) {
    Wide sum = add_product(y[at + i], MATRIX[h + i], x0);
    sum = add_product(sum, MATRIX[h + i + 1], x1);
    y[at + i] = add_product(sum, MATRIX[h + i + 2], x2);
  }
}

// H·x, 9 × 9, by six products of thirds.
FN void hankel_9(int h, ARRIN(Factor, x, 9), ARR(Wide, y, 9)) {
  Wide p[9];
  UNROLL for (int i = 0; i < 9; i++) p[i] = Wide(0);
  hankel_3(h, x[0] + x[3], x[1] + x[4], x[2] + x[5], p, 0);
  hankel_3(h + 5, x[0] + x[6], x[1] + x[7], x[2] + x[8], p, 3);
  hankel_3(h + 10, x[3] + x[6], x[4] + x[7], x[5] + x[8], p, 6);
  UNROLL for (int i = 0; i < 3; i++) {
    y[i] = p[i] + p[3 + i];
    y[3 + i] = p[i] + p[6 + i];
    y[6 + i] = p[3 + i] + p[6 + i];
  }
  hankel_3(h + 15, x[0], x[1], x[2], y, 0);
  hankel_3(h + 20, x[3], x[4], x[5], y, 3);
  hankel_3(h + 25, x[6], x[7], x[8], y, 6);
}

// A part of the code that is done once, for `one` is 1: the compiler, which cannot see that, keeps apart what is before
// and behind it. As one piece it would move so much ahead that registers did not suffice.
#define ONCE(one) ROLL for (U32 turn = 0u; turn < one; turn++)
#if FP64
  #define ONCE_FP64(one) ONCE(one)
#else
  #define ONCE_FP64(one)
#endif

// M·x: halves of halves, each by three products for four.
FN void matrix(ARRIN(Factor, x, LEAVES), ARR(Wide, n, CELLS), U32 one) {
  Factor part[9];
  Wide both[9], low[9], high[9], y[9];
  UNROLL for (int i = 0; i < 9; i++) {
    low[i] = Wide(0);
    high[i] = Wide(0);
  }
  UNROLL for (int i = 0; i < CELLS; i++) n[i] = Wide(0);
  ONCE_FP64(one) {
    UNROLL for (int i = 0; i < 9; i++) part[i] = (x[i] + x[18 + i]) + (x[9 + i] + x[27 + i]);
    hankel_9(0, part, both);
    UNROLL for (int i = 0; i < 9; i++) part[i] = x[i] + x[18 + i];
    hankel_9(30, part, low);
    UNROLL for (int i = 0; i < 9; i++) part[i] = x[9 + i] + x[27 + i];
    hankel_9(60, part, high);
    UNROLL for (int i = 0; i < 9; i++) {
      low[i] += both[i];
      high[i] += both[i];
    }
  }
  UNROLL for (int half = 0; half < 2; half++) {
    ONCE(one) {
      UNROLL for (int i = 0; i < 9; i++) part[i] = x[18 * half + i] + x[18 * half + 9 + i];
      hankel_9(90 + 90 * half, part, both);
      UNROLL for (int i = 0; i < 9; i++) part[i] = x[18 * half + i];
      hankel_9(120 + 90 * half, part, y);
      UNROLL for (int i = 0; i < 9; i++) n[18 * half + i] = low[i] + (both[i] + y[i]);
      UNROLL for (int i = 0; i < 9; i++) part[i] = x[18 * half + 9 + i];
      hankel_9(150 + 90 * half, part, y);
      UNROLL for (int i = 0; i < 9; i++) {
        if (18 * half + 9 + i < CELLS) n[18 * half + 9 + i] = high[i] + (both[i] + y[i]);
      }
    }
  }
}

FN void permute(ARR(Wide, n, CELLS), INOUT(I32, d), U32 one) {
  // Node i is the product of nodes 2i and 2i + 1; the leaves are v = n + constant·d, and d. Going down, a node becomes
  // the product of all leaves that are not below it. A leaf of 0 takes part as another number, and is 0 again in the
  // end.
  I32 tree[2 * LEAVES];
  Factor x[LEAVES];
  ROLL for (U32 round = 0u; round < 21u; round++) {
    Factor by = factor(d);
    UNROLL for (int i = 0; i < CELLS; i++) {
      I32 v = reduce(add_product(n[i], ROUND_CONSTANTS[U32(CELLS) * round + U32(i)], by));
      tree[LEAVES + i] = v == 0 ? ONE_FOR_ZERO : v;
    }
    tree[2 * LEAVES - 1] = d;
    UNROLL for (int i = LEAVES - 1; i > 3; i--) tree[i] = mul_int(tree[2 * i], tree[2 * i + 1]);
    tree[2] = mul_int(tree[6], tree[7]);
    tree[3] = mul_int(tree[4], tree[5]);
    UNROLL for (int i = 2; i < LEAVES; i++) {
      I32 left = tree[2 * i], right = tree[2 * i + 1];
      tree[2 * i] = mul_int(tree[i], right);
      tree[2 * i + 1] = mul_int(tree[i], left);
      if (2 * i >= LEAVES) {
        if (left == ONE_FOR_ZERO) tree[2 * i] = 0;
        if (2 * i + 2 < 2 * LEAVES && right == ONE_FOR_ZERO) tree[2 * i + 1] = 0;
      }
    }
    UNROLL for (int i = 0; i < CELLS; i++) x[i] = factor(tree[LEAVES + i]);
    x[CELLS] = Factor(0);
    d = tree[2 * LEAVES - 1];
    matrix(x, n, one);
  }
}
#endif
