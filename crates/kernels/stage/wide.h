// T_l of a few rows by all threads of a block: the message schedules of all blocks of all rows do not depend on each
// other, only the rounds do. For single signatures, where one thread would hash ten blocks after another.
#ifndef WIDE_H
#define WIDE_H

#if FAMILY == 0
#if N == 16
// Rows at a time, message blocks at a time, words of one schedule.
#define WIDE_ROWS 8u
#define WIDE_GROUP 10u
#define WIDE_WORDS 64u
#define WIDE_BLOCKS(l) ((22u + (l) * U32(N) + 9u + 63u) / 64u)
#include "hash/k256.h"
#else
#define WIDE_ROWS 8u
#define WIDE_GROUP 5u
#define WIDE_WORDS 160u
#define WIDE_BLOCKS(l) ((22u + (l) * U32(N) + 17u + 127u) / 128u)
#endif
#define WIDE_BLOCK_WORDS (N == 16 ? 16 : 32)
// Odd, so that rows lie in different banks.
#define WIDE_STRIDE (WIDE_GROUP * WIDE_WORDS + 1u)
SHARED(schedules, WIDE_ROWS * WIDE_STRIDE)

// Word i of a row's message after the address, the padding's first word included.
FN U32 wide_word(U32Ptr p, U32 from, U32 node_step, U32 word_step, U32 words, U32 i) {
  if (i < words) return AT(p, from + i / U32(NW) * node_step + i % U32(NW) * word_step);
  return i == words ? 0x80000000u : 0u;
}
// The schedule of message block b goes to schedules[to..]. SHA-256's words have the round constants added.
FN void wide_expand(ARRIN(U32, adrs, 7), U32Ptr p, U32 from, U32 node_step, U32 word_step, U32 l, U32 b, U32 to, U32 one) {
  U32 x[WIDE_BLOCK_WORDS], head[16], words = l * U32(NW), first = b * U32(WIDE_BLOCK_WORDS);
  compressed(adrs, head);
  U32 before = b == 0u ? adrs[6] : wide_word(p, from, node_step, word_step, words, first - 6u);
  UNROLL for (int i = 0; i < WIDE_BLOCK_WORDS; i++) {
    if (i < 5 && b == 0u) { x[i] = head[i < 5 ? i : 0]; continue; }
    U32 m = wide_word(p, from, node_step, word_step, words, first + U32(i) - 5u);
    x[i] = (before << 16) | (m >> 16);
    before = m;
  }
  if (b + 1u == WIDE_BLOCKS(l)) x[WIDE_BLOCK_WORDS - 1] = (U32(4 * WIDE_BLOCK_WORDS) + 22u + l * U32(N)) * 8u;
#if N == 16
  UNROLL for (int i = 0; i < 16; i++) schedules[to + U32(i)] = x[i] + K256[i];
  ROLL for (U32 t = 16u; t < 64u; t += 16u) {
    UNROLL for (int i = 0; i < 16; i++) {
      x[i] += sigma1(x[(i + 14) & 15], one) + x[(i + 9) & 15] + sigma0(x[(i + 1) & 15], one);
      schedules[to + t + U32(i)] = x[i] + K256[t + U32(i)];
    }
  }
#else
  U64 w[16];
  UNROLL for (int i = 0; i < 16; i++) {
    w[i] = u64(x[2 * i], x[2 * i + 1]);
    U64 k = w[i] + u64(K512[2 * i], K512[2 * i + 1]);
    schedules[to + U32(2 * i)] = U32(k >> 32);
    schedules[to + U32(2 * i + 1)] = U32(k);
  }
  ROLL for (U32 t = 16u; t < 80u; t += 16u) {
    UNROLL for (int i = 0; i < 16; i++) {
      EXPAND512(i)
      U64 k = w[i] + u64(K512[2u * (t + U32(i))], K512[2u * (t + U32(i)) + 1u]);
      schedules[to + 2u * t + U32(2 * i)] = U32(k >> 32);
      schedules[to + 2u * t + U32(2 * i + 1)] = U32(k);
    }
  }
#endif
}

#if N == 16
#define WIDE_STATE U32
#define WIDE_LOAD(s, key) { UNROLL for (int i = 0; i < 8; i++) s[i] = AT(a.keys, key + 16u + U32(i)); }
#define WIDE_STORE(s, node) { UNROLL for (int i = 0; i < NW; i++) node[i] = s[i]; }
#define WIDE_ROUND(a, b, c, d, e, f, g, h, i) { \
  U32 t1 = h + sum1(e) + choose(e, f, g) + schedules[from + t + i], t2 = sum0(a) + majority(a, b, c); \
  d += t1; h = t1 + t2; }
FN void wide_rounds(ARR(U32, s, 8), U32 from) {
  U32 a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
  ROLL for (U32 t = 0u; t < 64u; t += 16u) {
#else
#define WIDE_STATE U64
#define WIDE_LOAD(s, key) load512(a.keys, key, s);
#define WIDE_STORE(s, node) store512(s, node);
#define WIDE_ROUND(a, b, c, d, e, f, g, h, i) \
  ROUND512_OF(a, b, c, d, e, f, g, h, u64(schedules[from + 2u * (t + i)], schedules[from + 2u * (t + i) + 1u]))
FN void wide_rounds(ARR(U64, s, 8), U32 from) {
  U64 a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
  ROLL for (U32 t = 0u; t < 80u; t += 16u) {
#endif
    WIDE_ROUND(a, b, c, d, e, f, g, h, 0u) WIDE_ROUND(h, a, b, c, d, e, f, g, 1u) WIDE_ROUND(g, h, a, b, c, d, e, f, 2u)
    WIDE_ROUND(f, g, h, a, b, c, d, e, 3u) WIDE_ROUND(e, f, g, h, a, b, c, d, 4u) WIDE_ROUND(d, e, f, g, h, a, b, c, 5u)
    WIDE_ROUND(c, d, e, f, g, h, a, b, 6u) WIDE_ROUND(b, c, d, e, f, g, h, a, 7u) WIDE_ROUND(a, b, c, d, e, f, g, h, 8u)
    WIDE_ROUND(h, a, b, c, d, e, f, g, 9u) WIDE_ROUND(g, h, a, b, c, d, e, f, 10u) WIDE_ROUND(f, g, h, a, b, c, d, e, 11u)
    WIDE_ROUND(e, f, g, h, a, b, c, d, 12u) WIDE_ROUND(d, e, f, g, h, a, b, c, 13u) WIDE_ROUND(c, d, e, f, g, h, a, b, 14u)
    WIDE_ROUND(b, c, d, e, f, g, h, a, 15u)
  }
  s[0] += a; s[1] += b; s[2] += c; s[3] += d; s[4] += e; s[5] += f; s[6] += g; s[7] += h;
}

// ROW(i, key, adrs, from) sets a row's key, address, and where its first word lies; TAKE(i, node) gets its hash. Rows
// are dealt to the threads' lanes, a thread each for the rounds; every thread of the block comes here.
#define WIDE(rows, l, p, node_step, word_step, ROW, TAKE) \
  ROLL for (U32 row0 = 0u; row0 < (rows); row0 += WIDE_ROWS) { \
    U32 have = (rows) - row0 < WIDE_ROWS ? (rows) - row0 : WIDE_ROWS, blocks = WIDE_BLOCKS(l); \
    WIDE_STATE s[8]; \
    if (TID < have) { \
      U32 key_w, from_w, adrs_w[7]; \
      ROW(row0 + TID, key_w, adrs_w, from_w) \
      WIDE_LOAD(s, key_w) \
    } \
    ROLL for (U32 group = 0u; group < blocks; group += WIDE_GROUP) { \
      U32 now = blocks - group < WIDE_GROUP ? blocks - group : WIDE_GROUP; \
      ROLL for (U32 i = TID; i < have * now; i += THREADS) { \
        U32 key_w, from_w, adrs_w[7], row = i / now, b = i - row * now; \
        ROW(row0 + row, key_w, adrs_w, from_w) \
        wide_expand(adrs_w, p, from_w, node_step, word_step, l, group + b, row * WIDE_STRIDE + b * WIDE_WORDS, a.one); \
      } \
      BARRIER(); \
      if (TID < have) { ROLL for (U32 b = 0u; b < now; b++) wide_rounds(s, TID * WIDE_STRIDE + b * WIDE_WORDS); } \
      BARRIER(); \
    } \
    if (TID < have) { U32 node[NW]; WIDE_STORE(s, node) TAKE(row0 + TID, node) } \
  }
#else
// A sponge has no schedule: a thread a row.
#define WIDE_ROWS 8u
#define WIDE(rows, l, p, node_step, word_step, ROW, TAKE) \
  ROLL for (U32 row = TID; row < (rows); row += THREADS) { \
    U32 key_w, from_w, node[NW], adrs_w[7]; \
    ROW(row, key_w, adrs_w, from_w) \
    thash_tl(a.keys, key_w, adrs_w, p, from_w, node_step, word_step, l, node, a.one); \
    TAKE(row, node) \
  }
#endif
#endif
