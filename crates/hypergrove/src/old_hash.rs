//! MD5 and SHA-1, which no signature here relies on: a diagnosis finds out with them that a program signed a message's digest.

use std::array;

/// The blocks of a message in words that `read` makes of four bytes. `bits` is the message's length in the same order of bytes.
fn blocks(message: &[u8], read: fn([u8; 4]) -> u32, bits: [u8; 8]) -> Vec<[u32; 16]> {
    let mut all = [message, &[0x80]].concat();
    all.resize((all.len() + bits.len()).next_multiple_of(64) - bits.len(), 0);
    all.extend(bits);
    let word = |block: &[u8], i: usize| read(array::from_fn(|byte| block[4 * i + byte]));
    all.chunks_exact(64).map(|block| array::from_fn(|i| word(block, i))).collect()
}

/// RFC 1321.
pub(crate) fn md5(message: &[u8]) -> Vec<u8> {
    const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let sines: [u32; 64] = array::from_fn(|i| ((i as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32);
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for words in blocks(message, u32::from_le_bytes, (8 * message.len() as u64).to_le_bytes()) {
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64 {
            let (mixed, at) = match i / 16 {
                0 => (b & c | !b & d, i),
                1 => (d & b | !d & c, 5 * i + 1),
                2 => (b ^ c ^ d, 3 * i + 5),
                _ => (c ^ (b | !d), 7 * i),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(sines[i]).wrapping_add(words[at % 16]);
            (a, b, c, d) = (d, b.wrapping_add(sum.rotate_left(TURNS[i / 16][i % 4])), b, c);
        }
        let added = [a, b, c, d];
        state = array::from_fn(|i| state[i].wrapping_add(added[i]));
    }
    state.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// FIPS 180-4.
pub(crate) fn sha1(message: &[u8]) -> Vec<u8> {
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in blocks(message, u32::from_be_bytes, (8 * message.len() as u64).to_be_bytes()) {
        let [mut a, mut b, mut c, mut d, mut e] = state;
        let mut words = block.to_vec();
        for i in 0..80 {
            if i >= 16 {
                words.push((words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16]).rotate_left(1));
            }
            let (mixed, constant) = match i / 20 {
                0 => (b & c | !b & d, 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6),
            };
            let sum =
                a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(words[i]);
            (a, b, c, d, e) = (sum, a, b.rotate_left(30), c, d);
        }
        let added = [a, b, c, d, e];
        state = array::from_fn(|i| state[i].wrapping_add(added[i]));
    }
    state.into_iter().flat_map(u32::to_be_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hexadecimal::to_hex;

    #[test]
    fn digests_are_those_of_openssl() {
        // Lengths around the ends of blocks, with the digests of all digests as `openssl dgst` computes them.
        let of_all = |hash: fn(&[u8]) -> Vec<u8>| {
            let all: Vec<u8> = (0..200).flat_map(|length| hash(&vec![b'a'; length])).collect();
            to_hex(&hash(&all))
        };
        assert_eq!(to_hex(&md5(b"abc")), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(to_hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(of_all(md5), "9370237cf2c013418ada10f8f1b5210b");
        assert_eq!(of_all(sha1), "8a18f04bac7c86cfcffa6a93e5cb21ae0159deac");
    }
}
