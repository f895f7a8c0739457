// T_l of rows that are too few to fill a device: then the time is that of a thread's own instructions. With SHA-512 and
// PAIRED a row has two threads: one computes sixteen words of the message schedule, while the other runs the rounds of the
// sixteen words before.
#ifndef PAIRED_H
#define PAIRED_H

#if FAMILY == 0 && N > 16
// Rows of a block, at most: a warp for each part of the work.
#define PAIRS 32u
#define PAIRED_ROWS ((a.flags & PAIRED) == 0u ? THREADS : THREADS / 2u < PAIRS ? THREADS / 2u : PAIRS)
// High and low half of sixteen words of each row, with the rounds' constants added; twice.
#define PAIRED_WORDS (32u * PAIRS)
SHARED(paired, 2 * 32 * 32)

#define PAIRED_ROUND(a, b, c, d, e, f, g, h, i) \
  ROUND512_OF(a, b, c, d, e, f, g, h, u64(paired[at + U32(2 * (i)) * PAIRS], paired[at + U32(2 * (i) + 1) * PAIRS]))

// As `thash_tl`, for row TID % rows of the block. Every thread of the block comes here; the first `rows` of them get nodes.
FN void paired_tl(U32Ptr keys, U32 key, ARRIN(U32, adrs, 7), U32Ptr p, U32 from, U32 node_step, U32 word_step, U32 l, U32 rows, ARR(U32, out_, NW), U32 one) {
  if (rows == THREADS) {
    thash_tl(keys, key, adrs, p, from, node_step, word_step, l, out_, one);
    return;
  }
  U64 s[8], v[8], w[16];
  load512(keys, key, s);
  U32 bytes = 22u + l * U32(N), steps = (bytes + 17u + 127u) / 128u * 5u, row = TID % rows;
  U32 left = l * U32(NW) + 1u, word = 0u, before = adrs[6], part = 0u, part_before = 4u;
  bool runs_rounds = TID < rows, expands = TID >= rows && TID < 2u * rows;
  ROLL for (U32 step = 0u; step <= steps; step++) {
    if (expands && step < steps) {
      if (part == 0u) {
        U32 x[32], head[16];
        compressed(adrs, head);
        UNROLL for (int i = 0; i < 32; i++) {
          if (i < 5 && step == 0u) { x[i] = head[i < 5 ? i : 0]; continue; }
          NEXT_WORD(m)
          x[i] = (before << 16) | (m >> 16);
          before = m;
        }
        if (step + 5u == steps) x[31] = (128u + bytes) * 8u;
        UNROLL for (int i = 0; i < 16; i++) w[i] = u64(x[2 * i], x[2 * i + 1]);
      } else {
        EXPAND512(0) EXPAND512(1) EXPAND512(2) EXPAND512(3) EXPAND512(4) EXPAND512(5) EXPAND512(6) EXPAND512(7)
        EXPAND512(8) EXPAND512(9) EXPAND512(10) EXPAND512(11) EXPAND512(12) EXPAND512(13) EXPAND512(14) EXPAND512(15)
      }
      U32 to = (step & 1u) * PAIRED_WORDS + row;
      UNROLL for (int i = 0; i < 16; i++) {
        U64 k = w[i] + u64(K512[32u * part + U32(2 * i)], K512[32u * part + U32(2 * i + 1)]);
        paired[to + U32(2 * i) * PAIRS] = U32(k >> 32);
        paired[to + U32(2 * i + 1) * PAIRS] = U32(k);
      }
    }
    if (runs_rounds && step > 0u) {
      if (part_before == 0u) { UNROLL for (int i = 0; i < 8; i++) v[i] = s[i]; }
      U32 at = ((step + 1u) & 1u) * PAIRED_WORDS + row;
      SIXTEEN512(PAIRED_ROUND, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7])
      if (part_before == 4u) { UNROLL for (int i = 0; i < 8; i++) s[i] += v[i]; }
    }
    part_before = part;
    part = part == 4u ? 0u : part + 1u;
    BARRIER();
  }
  store512(s, out_);
}
#else
// A thread a row.
#define PAIRED_ROWS THREADS
FN void paired_tl(U32Ptr keys, U32 key, ARRIN(U32, adrs, 7), U32Ptr p, U32 from, U32 node_step, U32 word_step, U32 l, U32 rows, ARR(U32, out_, NW), U32 one) {
  thash_tl(keys, key, adrs, p, from, node_step, word_step, l, out_, one);
}
#endif
#endif
