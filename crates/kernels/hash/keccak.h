// Keccak-f[1600] (FIPS 202, 3.3), one state a thread. Rounds are rolled, unless a policy has them unrolled.
#ifndef KECCAK_H
#define KECCAK_H

// High and low word of each round's constant.
CONST_U32(KECCAK_RC, 48)
  0x00000000u, 0x00000001u, 0x00000000u, 0x00008082u, 0x80000000u, 0x0000808au, 0x80000000u, 0x80008000u,
  0x00000000u, 0x0000808bu, 0x00000000u, 0x80000001u, 0x80000000u, 0x80008081u, 0x80000000u, 0x00008009u,
  0x00000000u, 0x0000008au, 0x00000000u, 0x00000088u, 0x00000000u, 0x80008009u, 0x00000000u, 0x8000000au,
  0x00000000u, 0x8000808bu, 0x80000000u, 0x0000008bu, 0x80000000u, 0x00008089u, 0x80000000u, 0x00008003u,
  0x80000000u, 0x00008002u, 0x80000000u, 0x00000080u, 0x00000000u, 0x0000800au, 0x80000000u, 0x8000000au,
  0x80000000u, 0x80008081u, 0x80000000u, 0x00008080u, 0x00000000u, 0x80000001u, 0x80000000u, 0x80008008u
CONST_END

// On a GPU a rotation is one funnel shift a word, and an exclusive-or of three is one instruction a word. A compiler that may choose
// computes c ^ rotl64(c', 1) once for the five lanes of a column instead, which is one instruction more in all. Where lanes are known to be
// zero, it should choose.
#if defined(__CUDA_ARCH__)
FN U32 xor3_word(U32 x, U32 y, U32 z) {
  U32 all;
  asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(all) : "r"(x), "r"(y), "r"(z));
  return all;
}
FN U64 xor3(U64 x, U64 y, U64 z) { return u64(xor3_word(U32(x >> 32), U32(y >> 32), U32(z >> 32)), xor3_word(U32(x), U32(y), U32(z))); }
#else
FN U64 xor3(U64 x, U64 y, U64 z) { return x ^ y ^ z; }
#endif
FN U64 xor3_chosen(U64 x, U64 y, U64 z) { return x ^ y ^ z; }
#define KECCAK_ROUND(XOR3, r) { \
  U64 c0 = XOR3(XOR3(A[0], A[5], A[10]), A[15], A[20]); U64 c1 = XOR3(XOR3(A[1], A[6], A[11]), A[16], A[21]); \
  U64 c2 = XOR3(XOR3(A[2], A[7], A[12]), A[17], A[22]); U64 c3 = XOR3(XOR3(A[3], A[8], A[13]), A[18], A[23]); \
  U64 c4 = XOR3(XOR3(A[4], A[9], A[14]), A[19], A[24]); \
  U64 r0 = rotl64(c1, 1u), r1 = rotl64(c2, 1u), r2 = rotl64(c3, 1u), r3 = rotl64(c4, 1u), r4 = rotl64(c0, 1u); \
  U64 b[25]; \
  b[0] = XOR3(A[0], c4, r0); b[10] = rotl64(XOR3(A[1], c0, r1), 1u); b[20] = rotl64(XOR3(A[2], c1, r2), 62u); \
  b[5] = rotl64(XOR3(A[3], c2, r3), 28u); b[15] = rotl64(XOR3(A[4], c3, r4), 27u); b[16] = rotl64(XOR3(A[5], c4, r0), 36u); \
  b[1] = rotl64(XOR3(A[6], c0, r1), 44u); b[11] = rotl64(XOR3(A[7], c1, r2), 6u); b[21] = rotl64(XOR3(A[8], c2, r3), 55u); \
  b[6] = rotl64(XOR3(A[9], c3, r4), 20u); b[7] = rotl64(XOR3(A[10], c4, r0), 3u); b[17] = rotl64(XOR3(A[11], c0, r1), 10u); \
  b[2] = rotl64(XOR3(A[12], c1, r2), 43u); b[12] = rotl64(XOR3(A[13], c2, r3), 25u); b[22] = rotl64(XOR3(A[14], c3, r4), 39u); \
  b[23] = rotl64(XOR3(A[15], c4, r0), 41u); b[8] = rotl64(XOR3(A[16], c0, r1), 45u); b[18] = rotl64(XOR3(A[17], c1, r2), 15u); \
  b[3] = rotl64(XOR3(A[18], c2, r3), 21u); b[13] = rotl64(XOR3(A[19], c3, r4), 8u); b[14] = rotl64(XOR3(A[20], c4, r0), 18u); \
  b[24] = rotl64(XOR3(A[21], c0, r1), 2u); b[9] = rotl64(XOR3(A[22], c1, r2), 61u); b[19] = rotl64(XOR3(A[23], c2, r3), 56u); \
  b[4] = rotl64(XOR3(A[24], c3, r4), 14u); \
  A[0] = b[0] ^ (~b[1] & b[2]); A[1] = b[1] ^ (~b[2] & b[3]); A[2] = b[2] ^ (~b[3] & b[4]); A[3] = b[3] ^ (~b[4] & b[0]); A[4] = b[4] ^ (~b[0] & b[1]); \
  A[5] = b[5] ^ (~b[6] & b[7]); A[6] = b[6] ^ (~b[7] & b[8]); A[7] = b[7] ^ (~b[8] & b[9]); A[8] = b[8] ^ (~b[9] & b[5]); A[9] = b[9] ^ (~b[5] & b[6]); \
  A[10] = b[10] ^ (~b[11] & b[12]); A[11] = b[11] ^ (~b[12] & b[13]); A[12] = b[12] ^ (~b[13] & b[14]); A[13] = b[13] ^ (~b[14] & b[10]); A[14] = b[14] ^ (~b[10] & b[11]); \
  A[15] = b[15] ^ (~b[16] & b[17]); A[16] = b[16] ^ (~b[17] & b[18]); A[17] = b[17] ^ (~b[18] & b[19]); A[18] = b[18] ^ (~b[19] & b[15]); A[19] = b[19] ^ (~b[15] & b[16]); \
  A[20] = b[20] ^ (~b[21] & b[22]); A[21] = b[21] ^ (~b[22] & b[23]); A[22] = b[22] ^ (~b[23] & b[24]); A[23] = b[23] ^ (~b[24] & b[20]); A[24] = b[24] ^ (~b[20] & b[21]); \
  A[0] ^= u64(KECCAK_RC[2u * (r)], KECCAK_RC[2u * (r) + 1u]); }

FN void keccak_f(ARR(U64, A, 25)) {
#if defined(VULKAN)
  ROLL_64 for (U32 r = 0u; r < 24u; r++) KECCAK_ROUND(xor3, r)
#else
  // Outside of the loop, so that the first round leaves out what zero lanes add, and the last one the lanes that nobody reads.
  KECCAK_ROUND(xor3_chosen, 0u)
  ROLL_64 for (U32 r = 1u; r < 23u; r++) KECCAK_ROUND(xor3, r)
  KECCAK_ROUND(xor3, 23u)
#endif
}
#endif
