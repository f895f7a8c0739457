// For threads that are lanes of a CPU's vectors (docs/vulkan.md). What a thread holds is cheap there; each load and store
// by an address is a loop over lanes; and what follows a test at a loop's beginning is gone through once more with all
// lanes off, so that loops end at their ends.
#ifndef SOLO_H
#define SOLO_H

// WOTS+ chains of a leaf, and steps of a chain: lg_w is 4.
#define SOLO_LEN (2u * U32(N) + 3u)
#define SOLO_STEPS 15u

// All of a.total threads' worth of work; the first is every thread's own.
#define SOLO_BEGIN(t) U32 t = GID; if (t < a.total) { ROLL for (; ; ) {
#define SOLO_END(t) t += GRID; if (t >= a.total) break; } }

// Two words at once, from p at i: at a multiple of 8 bytes.
#if defined(VULKAN)
  layout(buffer_reference, scalar, buffer_reference_align = 8) buffer PairPtr { uint64_t v; };
  #define PAIR(p, i, w, j) { \
    U64 pair = PairPtr(uint64_t(p) + 4ul * uint64_t(i)).v; \
    w[j] = U32(pair); w[(j) + 1] = U32(pair >> 32); }
#else
  #define PAIR(p, i, w, j) { w[j] = AT(p, i); w[(j) + 1] = AT(p, (i) + 1u); }
#endif
#define LOAD_NODE(p, i, node) UNROLL for (int j = 0; j < NW; j += 2) PAIR(p, (i) + U32(j), node, j)

// F, H and T_l's compression.
#if FAMILY == 0 && N == 16
// With the rounds written out: a constant that a loop loads by its counter is gathered lane by lane.
FN void solo_f(Seeded key, ARRIN(U32, adrs, 7), ARR(U32, node, NW), U32 one) {
  U32 w[16];
  compressed(adrs, w);
  short_block(adrs[6], node, w);
  sha256_unrolled(key.s, w, one);
  UNROLL for (int i = 0; i < NW; i++) node[i] = key.s[i];
}
FN void solo_h(Seeded key, ARRIN(U32, adrs, 7), ARR(U32, left, NW), ARRIN(U32, right, NW), U32 one) {
  U32 w[16];
  compressed(adrs, w);
  short_block(adrs[6], left, w);
  w[5 + NW] = funnel(left[NW - 1], right[0], 16u);
  UNROLL for (int i = 1; i < NW; i++) w[5 + NW + i] = funnel(right[i - 1], right[i], 16u);
  w[5 + 2 * NW] = (right[NW - 1] << 16) | 0x8000u;
  w[15] = U32((64 + 22 + 2 * N) * 8);
  sha256_unrolled(key.s, w, one);
  UNROLL for (int i = 0; i < NW; i++) left[i] = key.s[i];
}
#else
  #define solo_f seeded_f
  #define solo_h seeded_h
#endif

// What T_l hashes of a leaf, padded: TL_HEAD words (of SHA-2 half a word after its place), the ends of its chains, the
// padding; TL_BLOCK words are absorbed at a time.
#define TL_ENDS (SOLO_LEN * U32(NW))
#if FAMILY == 0
  #define TL_HEAD 6u
  #define TL_BLOCK (N == 16 ? 16 : 32)
  #define TL_BITS ((U32(4 * TL_BLOCK) + 22u + 4u * TL_ENDS) * 8u)
  #define TL_BLOCKS ((22u + 4u * TL_ENDS + (N == 16 ? 9u : 17u) + U32(4 * TL_BLOCK) - 1u) / U32(4 * TL_BLOCK))
  #define TL_WORDS (TL_BLOCKS * U32(TL_BLOCK) + 1u)
#else
  #define TL_HEAD U32(NW + 8)
  #define TL_BLOCK 34
  #define TL_BLOCKS ((TL_HEAD + TL_ENDS + 2u + U32(TL_BLOCK) - 1u) / U32(TL_BLOCK))
  #define TL_WORDS (TL_BLOCKS * U32(TL_BLOCK))
#endif
// One a thread, and no argument: drivers copy arrays that are arguments, word by word and lane by lane.
#if defined(VULKAN)
  U32 message[TL_WORDS];
#else
  static thread_local U32 message[TL_WORDS];
#endif
// What is the same for every leaf.
#define TL_PAD { \
  U32 pad = FAMILY == 0 ? 0x80000000u : 0x1fu; \
  ROLL for (U32 i = TL_HEAD + TL_ENDS; ; ) { \
    message[i] = pad; \
    pad = 0u; \
    i++; \
    if (i == TL_WORDS) break; \
  } }

#if FAMILY == 0
#define TL_ADDRESS(seed, adrs) { \
  U32 head[16]; \
  compressed(adrs, head); \
  message[0] = head[0] >> 16; \
  UNROLL for (int i = 1; i < 5; i++) message[i] = (head[i - 1] << 16) | (head[i] >> 16); \
  message[5] = (head[4] << 16) | (adrs[6] & 0xffffu); }
// T_l; the key is used up.
FN void solo_tl(Seeded key, ARR(U32, node, NW), U32 one) {
  ROLL for (U32 b = 0u; ; ) {
    U32 x[TL_BLOCK], before = message[b * U32(TL_BLOCK)];
    UNROLL for (int i = 0; i < TL_BLOCK; i++) {
      U32 m = message[b * U32(TL_BLOCK) + U32(i + 1)];
      x[i] = (before << 16) | (m >> 16);
      before = m;
    }
    b++;
    if (b == TL_BLOCKS) x[TL_BLOCK - 1] = TL_BITS;
#if N == 16
    sha256_unrolled(key.s, x, one);
#else
    U64 w[16];
    UNROLL for (int i = 0; i < 16; i++) w[i] = u64(x[2 * i], x[2 * i + 1]);
    sha512_compress(key.v, w);
#endif
    if (b == TL_BLOCKS) break;
  }
#if N == 16
  UNROLL for (int i = 0; i < NW; i++) node[i] = key.s[i];
#else
  store512(key.v, node);
#endif
}
#else
#define TL_ADDRESS(seed, adrs) { \
  UNROLL for (int i = 0; i < NW; i++) message[i] = AT(seed.keys, seed.at + U32(i)); \
  message[NW] = bswap(adrs[0]); \
  message[NW + 1] = 0u; \
  UNROLL for (int i = 1; i < 7; i++) message[NW + 1 + i] = bswap(adrs[i]); }
FN void solo_tl(Seeded key, ARR(U32, node, NW), U32 one) {
  U64 A[25];
  UNROLL for (int i = 0; i < 25; i++) A[i] = u64(0u, 0u);
  ROLL for (U32 b = 0u; ; ) {
    UNROLL for (int i = 0; i < 17; i++) A[i] ^= u64(message[b * 34u + U32(2 * i + 1)], message[b * 34u + U32(2 * i)]);
    b++;
    if (b == TL_BLOCKS) A[16] ^= u64(0x80000000u, 0u);
    keccak_f(A);
    if (b == TL_BLOCKS) break;
  }
  UNROLL for (int i = 0; i < NW / 2; i++) { node[2 * i] = U32(A[i]); node[2 * i + 1] = U32(A[i] >> 32); }
}
#endif

// From a leaf to its root by the path at sigs[in_sig..], as climb_path; H is seeded_h or solo_h.
#define SOLO_CLIMB(H, seed, adrs, sigs, in_sig, leaf, height, node, one) \
  ROLL for (U32 z = 0u; ; ) { \
    U32 left[NW], right[NW]; \
    bool is_right = (((leaf) >> z) & 1u) != 0u; \
    LOAD_NODE(sigs, (in_sig) + z * U32(NW), right) \
    UNROLL for (int j = 0; j < NW; j++) { \
      U32 sibling = word_of(right[j]); \
      left[j] = is_right ? sibling : node[j]; \
      right[j] = is_right ? node[j] : sibling; \
    } \
    z++; \
    adrs[5] = z; adrs[6] >>= 1; \
    H(seed, adrs, left, right, one); \
    UNROLL for (int j = 0; j < NW; j++) node[j] = left[j]; \
    if (z == (height)) break; \
  }
#endif
