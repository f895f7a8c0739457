//! The initial states of SHA-2 (FIPS 180-4, 5.3): the one table of them, for code that compresses blocks itself, in vectors or on GPUs.

/// SHA-512's.
pub const IV512: [u64; 8] = [
    0x6a09e667f3bcc908,
    0xbb67ae8584caa73b,
    0x3c6ef372fe94f82b,
    0xa54ff53a5f1d36f1,
    0x510e527fade682d1,
    0x9b05688c2b3e6c1f,
    0x1f83d9abfb41bd6b,
    0x5be0cd19137e2179,
];

/// SHA-256's: the upper halves.
pub const IV256: [u32; 8] = {
    let (mut iv, mut i) = ([0; 8], 0);
    while i < 8 {
        iv[i] = (IV512[i] >> 32) as u32;
        i += 1;
    }
    iv
};
