// SHA-512's compression (FIPS 180-4, 6.4.2), one block a thread. Rounds are rolled by sixteen, unless a policy has
// them unrolled.
#ifndef SHA512_H
#define SHA512_H

// High and low word of each round's constant.
CONST_U32(K512, 160)
  0x428a2f98u, 0xd728ae22u, 0x71374491u, 0x23ef65cdu, 0xb5c0fbcfu, 0xec4d3b2fu, 0xe9b5dba5u, 0x8189dbbcu,
  0x3956c25bu, 0xf348b538u, 0x59f111f1u, 0xb605d019u, 0x923f82a4u, 0xaf194f9bu, 0xab1c5ed5u, 0xda6d8118u,
  0xd807aa98u, 0xa3030242u, 0x12835b01u, 0x45706fbeu, 0x243185beu, 0x4ee4b28cu, 0x550c7dc3u, 0xd5ffb4e2u,
  0x72be5d74u, 0xf27b896fu, 0x80deb1feu, 0x3b1696b1u, 0x9bdc06a7u, 0x25c71235u, 0xc19bf174u, 0xcf692694u,
  0xe49b69c1u, 0x9ef14ad2u, 0xefbe4786u, 0x384f25e3u, 0x0fc19dc6u, 0x8b8cd5b5u, 0x240ca1ccu, 0x77ac9c65u,
  0x2de92c6fu, 0x592b0275u, 0x4a7484aau, 0x6ea6e483u, 0x5cb0a9dcu, 0xbd41fbd4u, 0x76f988dau, 0x831153b5u,
  0x983e5152u, 0xee66dfabu, 0xa831c66du, 0x2db43210u, 0xb00327c8u, 0x98fb213fu, 0xbf597fc7u, 0xbeef0ee4u,
  0xc6e00bf3u, 0x3da88fc2u, 0xd5a79147u, 0x930aa725u, 0x06ca6351u, 0xe003826fu, 0x14292967u, 0x0a0e6e70u,
  0x27b70a85u, 0x46d22ffcu, 0x2e1b2138u, 0x5c26c926u, 0x4d2c6dfcu, 0x5ac42aedu, 0x53380d13u, 0x9d95b3dfu,
  0x650a7354u, 0x8baf63deu, 0x766a0abbu, 0x3c77b2a8u, 0x81c2c92eu, 0x47edaee6u, 0x92722c85u, 0x1482353bu,
  0xa2bfe8a1u, 0x4cf10364u, 0xa81a664bu, 0xbc423001u, 0xc24b8b70u, 0xd0f89791u, 0xc76c51a3u, 0x0654be30u,
  0xd192e819u, 0xd6ef5218u, 0xd6990624u, 0x5565a910u, 0xf40e3585u, 0x5771202au, 0x106aa070u, 0x32bbd1b8u,
  0x19a4c116u, 0xb8d2d0c8u, 0x1e376c08u, 0x5141ab53u, 0x2748774cu, 0xdf8eeb99u, 0x34b0bcb5u, 0xe19b48a8u,
  0x391c0cb3u, 0xc5c95a63u, 0x4ed8aa4au, 0xe3418acbu, 0x5b9cca4fu, 0x7763e373u, 0x682e6ff3u, 0xd6b2b8a3u,
  0x748f82eeu, 0x5defb2fcu, 0x78a5636fu, 0x43172f60u, 0x84c87814u, 0xa1f0ab72u, 0x8cc70208u, 0x1a6439ecu,
  0x90befffau, 0x23631e28u, 0xa4506cebu, 0xde82bde9u, 0xbef9a3f7u, 0xb2c67915u, 0xc67178f2u, 0xe372532bu,
  0xca273eceu, 0xea26619cu, 0xd186b8c7u, 0x21c0c207u, 0xeada7dd6u, 0xcde0eb1eu, 0xf57d4f7fu, 0xee6ed178u,
  0x06f067aau, 0x72176fbau, 0x0a637dc5u, 0xa2c898a6u, 0x113f9804u, 0xbef90daeu, 0x1b710b35u, 0x131c471bu,
  0x28db77f5u, 0x23047d84u, 0x32caab7bu, 0x40c72493u, 0x3c9ebe0au, 0x15c9bebcu, 0x431d67c4u, 0x9c100d4cu,
  0x4cc5d4beu, 0xcb3e42b6u, 0x597f299cu, 0xfc657e2au, 0x5fcb6fabu, 0x3ad6faecu, 0x6c44198cu, 0x4a475817u
CONST_END

FN U64 rotr64(U64 x, U32 s) { return rotl64(x, 64u - s); }

// A round for a word of the schedule and the round's constant, added.
#define ROUND512_OF(a, b, c, d, e, f, g, h, kw) { \
  U64 t1 = h + (rotr64(e, 14u) ^ rotr64(e, 18u) ^ rotr64(e, 41u)) + ((e & f) ^ (~e & g)) + kw; \
  U64 t2 = (rotr64(a, 28u) ^ rotr64(a, 34u) ^ rotr64(a, 39u)) + ((a & b) ^ (a & c) ^ (b & c)); \
  d += t1; h = t1 + t2; }
#define ROUND512(a, b, c, d, e, f, g, h, i) \
  ROUND512_OF(a, b, c, d, e, f, g, h, u64(K512[2u * (r + i)], K512[2u * (r + i) + 1u]) + w[i])
// Sixteen rounds, each by ROUND with the names of its variables and its number.
#define SIXTEEN512(ROUND, a, b, c, d, e, f, g, h) \
  ROUND(a, b, c, d, e, f, g, h, 0) ROUND(h, a, b, c, d, e, f, g, 1) ROUND(g, h, a, b, c, d, e, f, 2) ROUND(f, g, h, a, b, c, d, e, 3) \
  ROUND(e, f, g, h, a, b, c, d, 4) ROUND(d, e, f, g, h, a, b, c, 5) ROUND(c, d, e, f, g, h, a, b, 6) ROUND(b, c, d, e, f, g, h, a, 7) \
  ROUND(a, b, c, d, e, f, g, h, 8) ROUND(h, a, b, c, d, e, f, g, 9) ROUND(g, h, a, b, c, d, e, f, 10) ROUND(f, g, h, a, b, c, d, e, 11) \
  ROUND(e, f, g, h, a, b, c, d, 12) ROUND(d, e, f, g, h, a, b, c, 13) ROUND(c, d, e, f, g, h, a, b, 14) ROUND(b, c, d, e, f, g, h, a, 15)
#define EXPAND512(i) w[i] += (rotr64(w[(i + 14) & 15], 19u) ^ rotr64(w[(i + 14) & 15], 61u) ^ (w[(i + 14) & 15] >> 6)) \
  + w[(i + 9) & 15] + (rotr64(w[(i + 1) & 15], 1u) ^ rotr64(w[(i + 1) & 15], 8u) ^ (w[(i + 1) & 15] >> 7));

// `w` is used up.
FN void sha512_compress(ARR(U64, s, 8), ARR(U64, w, 16)) {
  U64 a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
  ROLL_64 for (U32 r = 0u; r < 80u; r += 16u) {
    if (r != 0u) {
      EXPAND512(0) EXPAND512(1) EXPAND512(2) EXPAND512(3) EXPAND512(4) EXPAND512(5) EXPAND512(6) EXPAND512(7)
      EXPAND512(8) EXPAND512(9) EXPAND512(10) EXPAND512(11) EXPAND512(12) EXPAND512(13) EXPAND512(14) EXPAND512(15)
    }
    SIXTEEN512(ROUND512, a, b, c, d, e, f, g, h)
  }
  s[0] += a; s[1] += b; s[2] += c; s[3] += d; s[4] += e; s[5] += f; s[6] += g; s[7] += h;
}
FN void sha512_iv(ARR(U64, s, 8)) {
  s[0] = u64(0x6a09e667u, 0xf3bcc908u); s[1] = u64(0xbb67ae85u, 0x84caa73bu);
  s[2] = u64(0x3c6ef372u, 0xfe94f82bu); s[3] = u64(0xa54ff53au, 0x5f1d36f1u);
  s[4] = u64(0x510e527fu, 0xade682d1u); s[5] = u64(0x9b05688cu, 0x2b3e6c1fu);
  s[6] = u64(0x1f83d9abu, 0xfb41bd6bu); s[7] = u64(0x5be0cd19u, 0x137e2179u);
}
#endif
