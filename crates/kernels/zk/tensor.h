// Poseidon for GPUs whose tensor cores multiply bytes (CUDA from compute capability 8.0 on): a state lies over four
// lanes, a quad, and a warp has 8 or 16 states. See docs/zkdilithium.md.
//
// Lane q of a quad has cells 9q … 9q + 8 of STATES states, one or two; cell 35 is the denominator d. A product with the
// matrix takes 27 bytes of each lane and gives three sums for each cell. Its rows and columns are permuted such that
// both are the lane's own cells.
#ifndef TENSOR_H
#define TENSOR_H
#include "zk/field.h"
#include "zk/tensor_constants.h"

#define OWN 9     // cells of a lane
#define WORDS 7   // words of a lane's bytes
#define TILES 14  // of eight columns: two sums a lane
#define LANES 0xffffffffu

// Read anew where it is needed, so that no register keeps it during permutations.
FN U32 own_lane() { return tid_again() & 31u; }

// The representative in [-Q/2, Q/2] of one in [-3Q/2, 3Q/2].
FN I32 centred(I32 x) {
  x = x > Q / 2 ? x - Q : x;
  return x < -(Q / 2) ? x + Q : x;
}

// y0 + 2^8·y1 + 2^16·y2 - Q/2 as an element below 0.56·Q: the sums contain Q/2, so that the quotient is rounded and not
// cut off. (A sum has at most 108 terms of 255·128, so that all numbers stay below 2^31. The quotient of a number below
// 108·255·Q/2 is wrong by up to 0.06 before it is cut off.)
FN I32 collect(I32 y0, I32 y1, I32 y2) {
  // Shifts by a funnel stay off the multipliers, which are the busiest.
  I32 high = I32(__funnelshift_l(0u, U32(y2), 8u)) + y1;
  I32 low = I32(__funnelshift_l(0u, U32(high), 8u)) + (y0 - Q / 2);
  return low - __mulhi(high + (y0 >> 8), RECIPROCAL) * Q;
}

// 7·a·b, not fully reduced: 7·2^20 is -1 modulo Q. A product of elements below x·Q and y·Q is below (7·x·y + 1)·Q.
FN I32 fold(I32 a, I32 b) {
  I64 x = product_int(a, b);
  return I32(U32(x) & 0xfffffu) * 7 - I32(__funnelshift_r(U32(x), U32(U64(x) >> 32), 20u));
}
// a·b/R + c. The compiler, which does not know that c is 0, leaves the difference to the adders.
FN I32 mul_add(I32 a, I32 b, I32 c) {
  I64 x = product_int(a, b);
  return I32(x >> 32) - __mulhi(I32(U32(x) * Q_INVERSE), Q) + c;
}

// Leaves become words of bytes: the products of all other leaves, plus Q. A leaf of 0 takes part as 1 and becomes 0,
// without a branch. All products contain the same powers of R and 7. `none` is 0.
FN void invert(const I32 (&v)[OWN], U32 (&words)[WORDS], I32 none) {
  I32 others[OWN], pairs[4];
  UNROLL for (int i = 0; i < 4; i++) {
    bool first = v[2 * i] == 0, second = v[2 * i + 1] == 0;
    I32 left = first ? 1 : v[2 * i], right = second ? 1 : v[2 * i + 1];
    pairs[i] = fold(left, right);
    others[2 * i] = first ? 0 : right;
    others[2 * i + 1] = second ? 0 : left;
  }
  I32 last = v[8] == 0 ? 1 : v[8];
  I32 low = mul_add(pairs[0], pairs[1], none), high = mul_add(pairs[2], pairs[3], none), eight = fold(low, high);
  others[8] = v[8] == 0 ? 0 : eight;
  I32 own = mul_add(eight, last, none), next = I32(__shfl_xor_sync(LANES, own, 1));
  I32 rest = mul_add(next, I32(__shfl_xor_sync(LANES, fold(own, next), 2)), none);
  // Going down: a node becomes the product of all leaves that are not below it.
  I32 top = fold(rest, last), of_low = mul_add(top, high, none), of_high = mul_add(top, low, none);
  I32 down[5] = {fold(of_low, pairs[1]), fold(of_low, pairs[0]), fold(of_high, pairs[3]), fold(of_high, pairs[2]),
                 rest};
  U32 u[OWN];
  UNROLL for (int i = 0; i < OWN; i++) u[i] = U32(mul_add(down[i / 2], others[i], i == 8 ? Q + (1 << 24) : Q));
  // Three bytes a cell. The fourth bytes have those of every fourth cell, and at last the factor 1 of Q/2.
  UNROLL for (int i = 0; i < 2; i++) {
    words[3 * i] = __byte_perm(u[4 * i], u[4 * i + 3], 0x4210);
    words[3 * i + 1] = __byte_perm(u[4 * i + 1], u[4 * i + 3], 0x5210);
    words[3 * i + 2] = __byte_perm(u[4 * i + 2], u[4 * i + 3], 0x6210);
  }
  words[6] = u[8];
}

#if TENSOR == 1
FN void load_operands() {}
FN bool any_more(bool more) { return __any_sync(LANES, more) != 0; }
FN void multiply_32(I32 (&sums)[4], U32 a0, U32 a1, U32 a2, U32 a3, U32 b0, U32 b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
FN void multiply_16(I32 (&sums)[4], U32 a0, U32 a1, U32 b0) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a0), "r"(a1), "r"(b0));
}
FN U32 of_quad(const uint4& quad, int i) { return i == 0 ? quad.x : i == 1 ? quad.y : i == 2 ? quad.z : quad.w; }

// The leaves of a round from the words of the one before: the matrix, and constant·d.
FN void multiply(const U32 (&x)[WORDS], const U32 (&y)[WORDS], I32 (&v)[STATES][OWN], U32 round, U32 none) {
  U32 lane = own_lane();
  const uint4 *front = FRONT + lane, *middle = MIDDLE + lane, *end = END + 128u * round + lane;
  // `none`, which is 0, depends on the round: the compiler would keep all these words in registers, and spill others.
  front += none;
  middle += none;
  uint4 middles, ends;
  // Two cells in three tiles.
  UNROLL for (int part = 0; part < 5; part++) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    // Otherwise the compiler loads so many operands ahead that it spills others.
    __syncwarp();
#endif
    I32 sums[3][4];
    UNROLL for (int i = 0; i < 3; i++) {
      const int tile = 3 * part + i;
      if (tile >= TILES) continue;
      uint4 fronts = __ldg(front + 32 * tile);
      if (tile % 2 == 0) middles = __ldg(middle + 16 * tile);
      if (tile % 4 == 0) ends = __ldg(end + 8 * tile);
      UNROLL for (int j = 0; j < 4; j++) sums[i][j] = 0;
      multiply_32(sums[i], x[0], y[0], x[1], y[1], fronts.x, fronts.y);
      multiply_32(sums[i], x[2], y[2], x[3], y[3], fronts.z, fronts.w);
      multiply_32(sums[i], x[4], y[4], x[5], y[5], of_quad(middles, tile % 2 * 2), of_quad(middles, tile % 2 * 2 + 1));
      multiply_16(sums[i], x[6], y[6], of_quad(ends, tile % 4));
    }
    UNROLL for (U32 s = 0u; s < STATES; s++) {
      v[s][2 * part] = collect(sums[0][2u * s], sums[0][2u * s + 1u], sums[1][2 * s]);
      if (part < 4) v[s][2 * part + 1] = collect(sums[1][2 * s + 1], sums[2][2 * s], sums[2][2 * s + 1]);
    }
  }
}
#else
FN bool any_more(bool more) { return __syncthreads_or(more) != 0; }
#define FOUR(x, i) "+r"(x[i]), "+r"(x[i + 1]), "+r"(x[i + 2]), "+r"(x[i + 3])
#define EIGHT(x, i) FOUR(x, i), FOUR(x, i + 4)
#define SEVEN(how, x) how(x[0]), how(x[1]), how(x[2]), how(x[3]), how(x[4]), how(x[5]), how(x[6])
#define PRODUCT(shape, sums, words, matrix, adds) \
  "wgmma.mma_async.sync.aligned." shape ".s32.u8.s8 {" sums "}, {" words "}, " matrix ", " adds ";\n"

// The memory of a block of threads: the operands of three steps, then the fourth's for each round. A step has 32 rows
// and 112 columns of bytes, in blocks of 16 rows and 8 columns.
#define STEP_BYTES 3584u
extern __shared__ __align__(128) U32 operands[];

FN void load_operands() {
  for (U32 i = TID; i < (3u + ROUNDS) * STEP_BYTES / 4u; i += THREADS) {
    U32 step = 4u * i / STEP_BYTES, tile = i % (STEP_BYTES / 4u) >> 6, lane = i & 31u;
    U32 word = 2u * min(step, 3u) + (i >> 5 & 1u);
    const U32 *front = (const U32*)FRONT, *middle = (const U32*)MIDDLE, *end = (const U32*)END;
    operands[i] = word < 4u ? front[4u * (32u * tile + lane) + word]
                : word < 6u ? middle[4u * (32u * (tile >> 1) + lane) + 2u * (tile & 1u) + word - 4u]
                : word == 6u ? end[4u * (128u * (step - 3u) + 32u * (tile >> 2) + lane) + (tile & 3u)]
                             : 0u;
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  BARRIER();
}

// How four warps find the operands of a step: blocks of 128 bytes lie 128 bytes apart by rows and 256 by columns.
FN U64 operands_at(U32 byte) {
  U64 at = U64(__cvta_generic_to_shared(operands)) + byte;
  return (at >> 4 & 0x3fffu) | U64(128 >> 4) << 16 | U64(256 >> 4) << 32;
}

// The products of 64 states and six tiles, or eight. Nobody may touch sums and words before they were awaited.
#define SUMS_24 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23"
FN void start(I32 (&sums)[24], const U32 (&x)[WORDS], const U32 (&y)[WORDS], U64 first, U64 last) {
  asm volatile(
      "wgmma.fence.sync.aligned;\n"
      "{ .reg .pred p, n; setp.ne.b32 p, 1, 0; setp.ne.b32 n, 0, 0;\n"
      PRODUCT("m64n48k32", SUMS_24, "%24,%31,%25,%32", "%38", "n")
      PRODUCT("m64n48k32", SUMS_24, "%26,%33,%27,%34", "%39", "p")
      PRODUCT("m64n48k32", SUMS_24, "%28,%35,%29,%36", "%40", "p")
      PRODUCT("m64n48k32", SUMS_24, "%30,%37,%30,%37", "%41", "p")
      "}\nwgmma.commit_group.sync.aligned;\n"
      : EIGHT(sums, 0), EIGHT(sums, 8), EIGHT(sums, 16)
      : SEVEN("r", x), SEVEN("r", y), "l"(first), "l"(first + STEP_BYTES / 16u), "l"(first + STEP_BYTES / 8u),
        "l"(last));
}
template <int LEFT> FN void await(I32 (&sums)[24], U32 (&x)[WORDS], U32 (&y)[WORDS]) {
  asm volatile("wgmma.wait_group.sync.aligned %38;"
               : EIGHT(sums, 0), EIGHT(sums, 8), EIGHT(sums, 16), SEVEN("+r", x), SEVEN("+r", y)
               : "n"(LEFT)
               : "memory");
}
#define SUMS_32 SUMS_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
FN void start(I32 (&sums)[32], const U32 (&x)[WORDS], const U32 (&y)[WORDS], U64 first, U64 last) {
  asm volatile(
      "wgmma.fence.sync.aligned;\n"
      "{ .reg .pred p, n; setp.ne.b32 p, 1, 0; setp.ne.b32 n, 0, 0;\n"
      PRODUCT("m64n64k32", SUMS_32, "%32,%39,%33,%40", "%46", "n")
      PRODUCT("m64n64k32", SUMS_32, "%34,%41,%35,%42", "%47", "p")
      PRODUCT("m64n64k32", SUMS_32, "%36,%43,%37,%44", "%48", "p")
      PRODUCT("m64n64k32", SUMS_32, "%38,%45,%38,%45", "%49", "p")
      "}\nwgmma.commit_group.sync.aligned;\n"
      : EIGHT(sums, 0), EIGHT(sums, 8), EIGHT(sums, 16), EIGHT(sums, 24)
      : SEVEN("r", x), SEVEN("r", y), "l"(first), "l"(first + STEP_BYTES / 16u), "l"(first + STEP_BYTES / 8u),
        "l"(last));
}
template <int LEFT> FN void await(I32 (&sums)[32], U32 (&x)[WORDS], U32 (&y)[WORDS]) {
  asm volatile("wgmma.wait_group.sync.aligned %46;"
               : EIGHT(sums, 0), EIGHT(sums, 8), EIGHT(sums, 16), EIGHT(sums, 24), SEVEN("+r", x), SEVEN("+r", y)
               : "n"(LEFT)
               : "memory");
}
template <int FIRST_CELL, int COUNT, int SUMS> FN void collect_all(const I32 (&sums)[SUMS], I32 (&v)[STATES][OWN]) {
  UNROLL for (U32 s = 0u; s < STATES; s++) {
    UNROLL for (int i = 0; i < COUNT; i++) {
      I32 y[3];
      UNROLL for (int j = 0; j < 3; j++) y[j] = sums[(3 * i + j) / 2 * 4 + 2 * s + (3 * i + j) % 2];
      v[s][FIRST_CELL + i] = collect(y[0], y[1], y[2]);
    }
  }
}

FN void multiply(U32 (&x)[WORDS], U32 (&y)[WORDS], I32 (&v)[STATES][OWN], U32 round, U32 none) {
  U64 first = operands_at(0u), last = operands_at((3u + round) * STEP_BYTES);
  I32 low[24], high[32];
  start(low, x, y, first, last);
  start(high, x, y, first + 6u * 256u / 16u, last + 6u * 256u / 16u);
  await<1>(low, x, y);
  collect_all<0, 4>(low, v);
  await<0>(high, x, y);
  collect_all<4, 5>(high, v);
}
#endif

// Leaves of a permutation's first round become those of the next one's.
FN void permute(I32 (&v)[STATES][OWN], U32 one) {
  ROLL for (U32 round = 1u; round <= ROUNDS; round++) {
    U32 words[2][WORDS];
    UNROLL for (U32 s = 0u; s < STATES; s++) invert(v[s], words[s], I32(one) - 1);
#if STATES == 1
    // Nobody reads what becomes of the second state: its words may be anything.
    UNROLL for (int i = 0; i < WORDS; i++) asm volatile("" : "=r"(words[1][i]));
#endif
    multiply(words[0], words[1], v, round < ROUNDS ? round : 0u, round * (one - 1u));
  }
}
#endif
