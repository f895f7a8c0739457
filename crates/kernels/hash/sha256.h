// SHA-256's compression (FIPS 180-4, 6.2.2), one block a thread.
#ifndef SHA256_H
#define SHA256_H

FN U32 rotr(U32 x, U32 s) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(x, x, s);
#else
  return (x >> s) | (x << (32u - s));
#endif
}
FN U32 sum0(U32 x) { return rotr(x, 2u) ^ rotr(x, 13u) ^ rotr(x, 22u); }
FN U32 sum1(U32 x) { return rotr(x, 6u) ^ rotr(x, 11u) ^ rotr(x, 25u); }
FN U32 sigma0(U32 x, U32 one) { return rotr(x, 7u) ^ rotr(x, 18u) ^ SHIFT(10, x, 3u); }
FN U32 sigma1(U32 x, U32 one) { return rotr(x, 17u) ^ rotr(x, 19u) ^ SHIFT(11, x, 10u); }
FN U32 choose(U32 x, U32 y, U32 z) { return (x & y) ^ (~x & z); }
FN U32 majority(U32 x, U32 y, U32 z) { return (x & y) ^ (x & z) ^ (y & z); }

// One round; the callers rotate the names of the working variables instead of their values.
#define ROUND(a, b, c, d, e, f, g, h, k, w) { \
  U32 t1 = ADD(5, ADD(6, ADD(4, h, ADD(3, w, k)), sum1(e)), choose(e, f, g)); \
  U32 t2 = ADD(7, sum0(a), majority(a, b, c)); \
  d = ADD(8, d, t1); h = ADD(9, t1, t2); }
#define EXPAND(i) w[(i) & 15] = ADD(0, ADD(1, sigma1(w[((i) + 14) & 15], one), w[((i) + 9) & 15]), ADD(2, sigma0(w[((i) + 1) & 15], one), w[(i) & 15]));

#define ROUNDS_0_4 \
  ROUND(a, b, c, d, e, f, g, h, 0x428a2f98u, w[0]) ROUND(h, a, b, c, d, e, f, g, 0x71374491u, w[1]) \
  ROUND(g, h, a, b, c, d, e, f, 0xb5c0fbcfu, w[2]) ROUND(f, g, h, a, b, c, d, e, 0xe9b5dba5u, w[3]) \
  ROUND(e, f, g, h, a, b, c, d, 0x3956c25bu, w[4])
#define ROUND_5(w5) ROUND(d, e, f, g, h, a, b, c, 0x59f111f1u, w5)
#define ROUNDS_6_15 \
  ROUND(c, d, e, f, g, h, a, b, 0x923f82a4u, w[6]) \
  ROUND(b, c, d, e, f, g, h, a, 0xab1c5ed5u, w[7]) ROUND(a, b, c, d, e, f, g, h, 0xd807aa98u, w[8]) \
  ROUND(h, a, b, c, d, e, f, g, 0x12835b01u, w[9]) ROUND(g, h, a, b, c, d, e, f, 0x243185beu, w[10]) \
  ROUND(f, g, h, a, b, c, d, e, 0x550c7dc3u, w[11]) ROUND(e, f, g, h, a, b, c, d, 0x72be5d74u, w[12]) \
  ROUND(d, e, f, g, h, a, b, c, 0x80deb1feu, w[13]) ROUND(c, d, e, f, g, h, a, b, 0x9bdc06a7u, w[14]) \
  ROUND(b, c, d, e, f, g, h, a, 0xc19bf174u, w[15])
#define SIXTEEN(WORD, k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13, k14, k15) \
  WORD(16) ROUND(a, b, c, d, e, f, g, h, k0, w[0]) WORD(17) ROUND(h, a, b, c, d, e, f, g, k1, w[1]) \
  WORD(18) ROUND(g, h, a, b, c, d, e, f, k2, w[2]) WORD(19) ROUND(f, g, h, a, b, c, d, e, k3, w[3]) \
  WORD(20) ROUND(e, f, g, h, a, b, c, d, k4, w[4]) WORD(21) ROUND(d, e, f, g, h, a, b, c, k5, w[5]) \
  WORD(22) ROUND(c, d, e, f, g, h, a, b, k6, w[6]) WORD(23) ROUND(b, c, d, e, f, g, h, a, k7, w[7]) \
  WORD(24) ROUND(a, b, c, d, e, f, g, h, k8, w[8]) WORD(25) ROUND(h, a, b, c, d, e, f, g, k9, w[9]) \
  WORD(26) ROUND(g, h, a, b, c, d, e, f, k10, w[10]) WORD(27) ROUND(f, g, h, a, b, c, d, e, k11, w[11]) \
  WORD(28) ROUND(e, f, g, h, a, b, c, d, k12, w[12]) WORD(29) ROUND(d, e, f, g, h, a, b, c, k13, w[13]) \
  WORD(30) ROUND(c, d, e, f, g, h, a, b, k14, w[14]) WORD(31) ROUND(b, c, d, e, f, g, h, a, k15, w[15])
// FIRST and SECOND make W16 to W31 and W32 to W47: EXPAND, or what knows more of them.
#define ROUNDS_16_63(FIRST, SECOND) \
  SIXTEEN(FIRST, 0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau, \
          0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u) \
  SIXTEEN(SECOND, 0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u, \
          0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u) \
  SIXTEEN(EXPAND, 0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u, \
          0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u)

// The working variables after rounds 0 to 4, which see only w[0..5], and round 5 as if w[5] were zero: it is added to two of them.
FN void sha256_begin(ARR(U32, s, 8), ARRIN(U32, w, 16), U32 one) {
  U32 a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
  ROUNDS_0_4
  ROUND_5(0u)
  s[0] = a; s[1] = b; s[2] = c; s[3] = d; s[4] = e; s[5] = f; s[6] = g; s[7] = h;
}

// What the schedules of all steps along a chain have in common, because words 0 to 4 are its address, words 10 to 14 are zero if n = 16, and
// word 15 is the length.
struct ChainSchedule {
  U32 sums[4];  // W[i] + sigma0(W[i + 1]), which W[i + 16] is a sum of. Of n = 16, sums[1] and sums[3] are W17 and W19.
  U32 w4;
#if N == 16
  U32 sigma0_w17, sigma0_w19, sigma1_w19;
#endif
};

FN ChainSchedule chain_schedule(ARRIN(U32, w, 16), U32 one) {
  ChainSchedule c;
  UNROLL for (int i = 0; i < 4; i++) c.sums[i] = w[i] + sigma0(w[i + 1], one);
  c.w4 = w[4];
#if N == 16
  c.sums[1] += sigma1(w[15], one);
  c.sums[3] += sigma1(c.sums[1], one);
  c.sigma0_w17 = sigma0(c.sums[1], one);
  c.sigma0_w19 = sigma0(c.sums[3], one);
  c.sigma1_w19 = sigma1(c.sums[3], one);
#endif
  return c;
}

#define EXPAND_BEGUN(i) w[(i) & 15] = ADD(0, ADD(1, sigma1(w[((i) + 14) & 15], one), w[((i) + 9) & 15]), w[(i) & 15]);
#if N == 16
#define EXPAND_FIRST(i) \
  if ((i) == 17 || (i) == 19) {} \
  else if ((i) < 20) { EXPAND_BEGUN(i) } \
  else if ((i) == 21) w[5] = ADD(0, schedule.sigma1_w19, ADD(2, sigma0(w[6], one), w[5])); \
  else { EXPAND(i) }
#define EXPAND_SECOND(i) \
  if ((i) == 16) w[0] = ADD(0, ADD(1, sigma1(w[14], one), w[9]), ADD(2, schedule.sigma0_w17, w[0])); \
  else if ((i) == 18) w[2] = ADD(0, ADD(1, sigma1(w[0], one), w[11]), ADD(2, schedule.sigma0_w19, w[2])); \
  else { EXPAND(i) }
#else
#define EXPAND_FIRST(i) if ((i) < 20) { EXPAND_BEGUN(i) } else { EXPAND(i) }
#define EXPAND_SECOND(i) EXPAND(i)
#endif

// The rest of round 5 and rounds 6 to 63 of a step along a chain, without the final addition. Words 5 to 15 are given; all are used up.
FN void sha256_finish(ARR(U32, s, 8), ARR(U32, w, 16), ChainSchedule schedule, U32 one) {
  U32 a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
  UNROLL for (int i = 0; i < 4; i++) w[i] = schedule.sums[i];
  w[4] = schedule.w4;
  c = ADD(9, c, w[5]);
  g = ADD(8, g, w[5]);
  ROUNDS_6_15
  ROUNDS_16_63(EXPAND_FIRST, EXPAND_SECOND)
  s[0] = a; s[1] = b; s[2] = c; s[3] = d; s[4] = e; s[5] = f; s[6] = g; s[7] = h;
}
// The whole compression, with its rounds written out. `w` is used up.
FN void sha256_unrolled(ARR(U32, s, 8), ARR(U32, w, 16), U32 one) {
  U32 a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
  ROUNDS_0_4
  ROUND_5(w[5])
  ROUNDS_6_15
  ROUNDS_16_63(EXPAND, EXPAND)
  s[0] += a; s[1] += b; s[2] += c; s[3] += d; s[4] += e; s[5] += f; s[6] += g; s[7] += h;
}
// The whole compression, in the form that drivers compile best. `w` is used up.
FN void sha256_compress(ARR(U32, s, 8), ARR(U32, w, 16), U32 one) {
#if defined(VULKAN)
  U32 a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
  // In a loop: a pipeline is made in a third of the time (docs/vulkan.md). Chains are walked by sha256_finish.
  // Its test is at its end: after one at the beginning, a CPU's lanes go through it once more with all of them off.
  for (U32 t = 0u; ; ) {
    if (t != 0u) {
      EXPAND(16) EXPAND(17) EXPAND(18) EXPAND(19) EXPAND(20) EXPAND(21) EXPAND(22) EXPAND(23)
      EXPAND(24) EXPAND(25) EXPAND(26) EXPAND(27) EXPAND(28) EXPAND(29) EXPAND(30) EXPAND(31)
    }
    ROUND(a, b, c, d, e, f, g, h, K256[t], w[0]) ROUND(h, a, b, c, d, e, f, g, K256[t + 1u], w[1])
    ROUND(g, h, a, b, c, d, e, f, K256[t + 2u], w[2]) ROUND(f, g, h, a, b, c, d, e, K256[t + 3u], w[3])
    ROUND(e, f, g, h, a, b, c, d, K256[t + 4u], w[4]) ROUND(d, e, f, g, h, a, b, c, K256[t + 5u], w[5])
    ROUND(c, d, e, f, g, h, a, b, K256[t + 6u], w[6]) ROUND(b, c, d, e, f, g, h, a, K256[t + 7u], w[7])
    ROUND(a, b, c, d, e, f, g, h, K256[t + 8u], w[8]) ROUND(h, a, b, c, d, e, f, g, K256[t + 9u], w[9])
    ROUND(g, h, a, b, c, d, e, f, K256[t + 10u], w[10]) ROUND(f, g, h, a, b, c, d, e, K256[t + 11u], w[11])
    ROUND(e, f, g, h, a, b, c, d, K256[t + 12u], w[12]) ROUND(d, e, f, g, h, a, b, c, K256[t + 13u], w[13])
    ROUND(c, d, e, f, g, h, a, b, K256[t + 14u], w[14]) ROUND(b, c, d, e, f, g, h, a, K256[t + 15u], w[15])
    t += 16u;
    if (t == 64u) break;
  }
  s[0] += a; s[1] += b; s[2] += c; s[3] += d; s[4] += e; s[5] += f; s[6] += g; s[7] += h;
#else
  sha256_unrolled(s, w, one);
#endif
}
FN void sha256_iv(ARR(U32, s, 8)) {
  s[0] = 0x6a09e667u; s[1] = 0xbb67ae85u; s[2] = 0x3c6ef372u; s[3] = 0xa54ff53au;
  s[4] = 0x510e527fu; s[5] = 0x9b05688cu; s[6] = 0x1f83d9abu; s[7] = 0x5be0cd19u;
}
#endif
