//! The readable oracle: one function for each algorithm of FIPS 205, recursive, literal and slow.
//!
//! Everything fast is tested against this module, so it follows the standard's text and shares nothing with the plans
//! but the addresses and the message digest. Arguments have the standard's names and order, after the parameter set.
//! Byte strings must have the lengths that the standard gives them.

use crate::adrs::{Adrs, AdrsType};
use crate::digest::{MAX_CONTEXT, MPrime, MessageError, PreHash, h_msg, prf_msg};
use crate::geometry::Position;
use crate::keys::{Signature, SigningKey, VerifyingKey};
use crate::params::{Family, Params};
use alloc::vec;
use alloc::vec::Vec;
use digest::{Digest, ExtendableOutput, Update, XofReader};
use sha2::{Sha256, Sha512};
use shake::Shake256;
use zeroize::{Zeroize, Zeroizing};

/// gen_len₂: digits of the WOTS+ checksum.
///
/// FIPS 205, Algorithm 1.
pub fn gen_len2(n: usize, lg_w: usize) -> usize {
    let w = 1 << lg_w;
    let len1 = (8 * n).div_ceil(lg_w);
    let max_checksum = len1 * (w - 1);
    let mut len2 = 1;
    let mut capacity = w;
    while capacity <= max_checksum {
        len2 += 1;
        capacity *= w;
    }
    len2
}

/// toInt: a big-endian integer of at most 8 bytes.
///
/// FIPS 205, Algorithm 2.
pub fn to_int(x: &[u8]) -> u64 {
    let mut total = 0;
    for byte in x {
        total = 256 * total + u64::from(*byte);
    }
    total
}

/// toByte: the lowest `n` bytes of an integer, big-endian.
///
/// FIPS 205, Algorithm 3.
pub fn to_byte(x: u64, n: usize) -> Vec<u8> {
    let mut s = vec![0; n];
    let mut total = x;
    for i in 0..n {
        s[n - 1 - i] = (total % 256) as u8;
        total >>= 8;
    }
    s
}

/// base_2^b: the first `out_len` digits of `b` bits.
///
/// FIPS 205, Algorithm 4.
pub fn base_2b(x: &[u8], b: usize, out_len: usize) -> Vec<u32> {
    let (mut next, mut bits, mut total) = (0, 0, 0u64);
    let mut baseb = Vec::with_capacity(out_len);
    for _ in 0..out_len {
        while bits < b {
            total = (total << 8) + u64::from(x[next]);
            next += 1;
            bits += 8;
        }
        bits -= b;
        baseb.push((total >> bits) as u32);
        total %= 1 << bits;
    }
    baseb
}

/// F and PRF, n bytes of input: SHA-256 or SHAKE256 (FIPS 205, 11.1 and 11.2).
fn short_hash(p: &Params, pk_seed: &[u8], adrs: Adrs, m: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut out = match p.family {
        Family::Shake => shake256(pk_seed, adrs, m),
        Family::Sha2 => {
            let hash = Sha256::new().chain_update(pk_seed).chain_update(&[0; 64][p.n..]);
            Zeroizing::new(hash.chain_update(adrs.compressed()).chain_update(m).finalize().to_vec())
        }
    };
    out[p.n..].zeroize();
    out.truncate(p.n);
    out
}

/// PRF (FIPS 205, 11.1 and 11.2).
pub fn prf(p: &Params, pk_seed: &[u8], sk_seed: &[u8], adrs: Adrs) -> Zeroizing<Vec<u8>> {
    short_hash(p, pk_seed, adrs, sk_seed)
}

/// F (FIPS 205, 11.1 and 11.2).
fn f(p: &Params, pk_seed: &[u8], adrs: Adrs, m1: &[u8]) -> Zeroizing<Vec<u8>> {
    short_hash(p, pk_seed, adrs, m1)
}

/// H, and T_l for any l: like F in category 1, with SHA-512 for SHA-256 above (FIPS 205, 11.1 and 11.2).
fn t(p: &Params, pk_seed: &[u8], adrs: Adrs, m: &[u8]) -> Vec<u8> {
    let mut out = match p.family {
        Family::Shake => shake256(pk_seed, adrs, m).to_vec(),
        Family::Sha2 if p.n == 16 => return short_hash(p, pk_seed, adrs, m).to_vec(),
        Family::Sha2 => {
            let hash = Sha512::new().chain_update(pk_seed).chain_update(&[0; 128][p.n..]);
            hash.chain_update(adrs.compressed()).chain_update(m).finalize().to_vec()
        }
    };
    out.truncate(p.n);
    out
}

/// H (FIPS 205, 11.1 and 11.2).
fn h(p: &Params, pk_seed: &[u8], adrs: Adrs, left: &[u8], right: &[u8]) -> Vec<u8> {
    t(p, pk_seed, adrs, &[left, right].concat())
}

fn shake256(pk_seed: &[u8], adrs: Adrs, m: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(vec![0; 32]);
    Shake256::default().chain(pk_seed).chain(adrs.bytes()).chain(m).finalize_xof().read(&mut out);
    out
}

/// setTypeAndClear.
fn set_type_and_clear(adrs: Adrs, kind: AdrsType) -> Adrs {
    let [layer, t0, t1, t2, ..] = adrs.0;
    Adrs([layer, t0, t1, t2, kind as u32, 0, 0, 0])
}

/// setTypeAndClear, then the key pair's address again.
fn set_type_keeping_key_pair(adrs: Adrs, kind: AdrsType) -> Adrs {
    set_type_and_clear(adrs, kind).key_pair(adrs.0[5])
}

/// chain: `s` steps of a WOTS+ chain, from step `i` on.
///
/// FIPS 205, Algorithm 5.
pub fn wots_chain(p: &Params, x: &[u8], i: usize, s: usize, pk_seed: &[u8], adrs: Adrs) -> Zeroizing<Vec<u8>> {
    let mut tmp = Zeroizing::new(x.to_vec());
    for j in i..i + s {
        tmp = f(p, pk_seed, adrs.hash(j as u32), &tmp);
    }
    tmp
}

/// wots_pkGen; `adrs` names the layer, the tree and the key pair.
///
/// FIPS 205, Algorithm 6.
pub fn wots_pk_gen(p: &Params, sk_seed: &[u8], pk_seed: &[u8], adrs: Adrs) -> Vec<u8> {
    let sk_adrs = set_type_keeping_key_pair(adrs, AdrsType::WotsPrf);
    let mut tmp = Vec::with_capacity(p.len() * p.n);
    for i in 0..p.len() as u32 {
        let sk = prf(p, pk_seed, sk_seed, sk_adrs.chain(i));
        tmp.extend_from_slice(&wots_chain(p, &sk, 0, p.w() - 1, pk_seed, adrs.chain(i)));
    }
    t(p, pk_seed, set_type_keeping_key_pair(adrs, AdrsType::WotsPk), &tmp)
}

/// The digits of `m` and of its checksum (Algorithms 7 and 8, lines 1–7).
fn wots_digits(p: &Params, m: &[u8]) -> Vec<u32> {
    let len2 = gen_len2(p.n, p.lg_w);
    let mut csum = 0;
    let mut msg = base_2b(m, p.lg_w, p.len1());
    for digit in &msg {
        csum += p.w() as u64 - 1 - u64::from(*digit);
    }
    csum <<= (8 - (len2 * p.lg_w) % 8) % 8;
    msg.extend(base_2b(&to_byte(csum, (len2 * p.lg_w).div_ceil(8)), p.lg_w, len2));
    msg
}

/// wots_sign.
///
/// FIPS 205, Algorithm 7.
pub fn wots_sign(p: &Params, m: &[u8], sk_seed: &[u8], pk_seed: &[u8], adrs: Adrs) -> Vec<u8> {
    let sk_adrs = set_type_keeping_key_pair(adrs, AdrsType::WotsPrf);
    let mut sig = Vec::with_capacity(p.len() * p.n);
    for (i, digit) in wots_digits(p, m).into_iter().enumerate() {
        let sk = prf(p, pk_seed, sk_seed, sk_adrs.chain(i as u32));
        sig.extend_from_slice(&wots_chain(p, &sk, 0, digit as usize, pk_seed, adrs.chain(i as u32)));
    }
    sig
}

/// wots_pkFromSig.
///
/// FIPS 205, Algorithm 8.
pub fn wots_pk_from_sig(p: &Params, sig: &[u8], m: &[u8], pk_seed: &[u8], adrs: Adrs) -> Vec<u8> {
    let mut tmp = Vec::with_capacity(p.len() * p.n);
    for (i, digit) in wots_digits(p, m).into_iter().enumerate() {
        let part = &sig[i * p.n..(i + 1) * p.n];
        let steps = p.w() - 1 - digit as usize;
        tmp.extend_from_slice(&wots_chain(p, part, digit as usize, steps, pk_seed, adrs.chain(i as u32)));
    }
    t(p, pk_seed, set_type_keeping_key_pair(adrs, AdrsType::WotsPk), &tmp)
}

/// xmss_node: node `i` at height `z`; `adrs` names the layer and the tree.
///
/// FIPS 205, Algorithm 9.
pub fn xmss_node(p: &Params, sk_seed: &[u8], i: u32, z: u32, pk_seed: &[u8], adrs: Adrs) -> Vec<u8> {
    if z == 0 {
        return wots_pk_gen(p, sk_seed, pk_seed, set_type_and_clear(adrs, AdrsType::WotsHash).key_pair(i));
    }
    let left = xmss_node(p, sk_seed, 2 * i, z - 1, pk_seed, adrs);
    let right = xmss_node(p, sk_seed, 2 * i + 1, z - 1, pk_seed, adrs);
    h(p, pk_seed, set_type_and_clear(adrs, AdrsType::Tree).node(z, i), &left, &right)
}

/// xmss_sign: the WOTS+ signature by leaf `idx`, and its authentication path.
///
/// FIPS 205, Algorithm 10.
pub fn xmss_sign(p: &Params, m: &[u8], sk_seed: &[u8], idx: u32, pk_seed: &[u8], adrs: Adrs) -> Vec<u8> {
    let leaf = set_type_and_clear(adrs, AdrsType::WotsHash).key_pair(idx);
    let mut sig = wots_sign(p, m, sk_seed, pk_seed, leaf);
    for j in 0..p.hp as u32 {
        let k = (idx >> j) ^ 1;
        sig.extend(xmss_node(p, sk_seed, k, j, pk_seed, adrs));
    }
    sig
}

/// xmss_pkFromSig.
///
/// FIPS 205, Algorithm 11.
pub fn xmss_pk_from_sig(p: &Params, idx: u32, sig: &[u8], m: &[u8], pk_seed: &[u8], adrs: Adrs) -> Vec<u8> {
    let leaf = set_type_and_clear(adrs, AdrsType::WotsHash).key_pair(idx);
    let (sig, auth) = sig.split_at(p.len() * p.n);
    let mut node = wots_pk_from_sig(p, sig, m, pk_seed, leaf);
    let adrs = set_type_and_clear(adrs, AdrsType::Tree);
    climb(p, &mut node, idx, auth, pk_seed, adrs);
    node
}

/// Climbs from a node to the root over its authentication path (Algorithm 11, lines 6–15, and 17, lines 8–18).
fn climb(p: &Params, node: &mut Vec<u8>, index: u32, auth: &[u8], pk_seed: &[u8], adrs: Adrs) {
    let mut index = index;
    for (k, sibling) in auth.chunks(p.n).enumerate() {
        let right = index & 1 == 1;
        index >>= 1;
        let adrs = adrs.node(k as u32 + 1, index);
        *node = if right { h(p, pk_seed, adrs, sibling, node) } else { h(p, pk_seed, adrs, node, sibling) };
    }
}

/// The tree and leaf of the layer above (Algorithm 12, lines 7–9, and 13, lines 6–8).
fn parent(p: &Params, idx_tree: u64) -> (u64, u32) {
    let idx_leaf = (idx_tree % (1 << p.hp)) as u32;
    (idx_tree >> p.hp, idx_leaf)
}

/// ht_sign.
///
/// FIPS 205, Algorithm 12.
pub fn ht_sign(p: &Params, m: &[u8], sk_seed: &[u8], pk_seed: &[u8], idx_tree: u64, idx_leaf: u32) -> Vec<u8> {
    let (mut idx_tree, mut idx_leaf) = (idx_tree, idx_leaf);
    let mut sig_ht = Vec::with_capacity(p.d * p.xmss_bytes());
    let mut root = m.to_vec();
    for j in 0..p.d {
        if j > 0 {
            (idx_tree, idx_leaf) = parent(p, idx_tree);
        }
        let adrs = Adrs::new(j as u32, idx_tree, AdrsType::WotsHash);
        let sig = xmss_sign(p, &root, sk_seed, idx_leaf, pk_seed, adrs);
        if j < p.d - 1 {
            root = xmss_pk_from_sig(p, idx_leaf, &sig, &root, pk_seed, adrs);
        }
        sig_ht.extend(sig);
    }
    sig_ht
}

/// The roots of the trees on the path, layer by layer; the last is the candidate for PK.root (Algorithm 13, lines 1–12).
fn ht_roots(p: &Params, m: &[u8], sig_ht: &[u8], pk_seed: &[u8], idx_tree: u64, idx_leaf: u32) -> Vec<u8> {
    let (mut idx_tree, mut idx_leaf) = (idx_tree, idx_leaf);
    let mut node = m.to_vec();
    let mut roots = Vec::with_capacity(p.d * p.n);
    for (j, sig) in sig_ht.chunks(p.xmss_bytes()).enumerate() {
        if j > 0 {
            (idx_tree, idx_leaf) = parent(p, idx_tree);
        }
        let adrs = Adrs::new(j as u32, idx_tree, AdrsType::WotsHash);
        node = xmss_pk_from_sig(p, idx_leaf, sig, &node, pk_seed, adrs);
        roots.extend_from_slice(&node);
    }
    roots
}

/// ht_verify.
///
/// FIPS 205, Algorithm 13.
pub fn ht_verify(
    p: &Params,
    m: &[u8],
    sig_ht: &[u8],
    pk_seed: &[u8],
    idx_tree: u64,
    idx_leaf: u32,
    pk_root: &[u8],
) -> bool {
    ht_roots(p, m, sig_ht, pk_seed, idx_tree, idx_leaf).ends_with(pk_root)
}

/// fors_skGen: the secret of leaf `idx`, counted over all the trees; `adrs` names the tree of layer 0 and the key pair.
///
/// FIPS 205, Algorithm 14.
pub fn fors_sk_gen(p: &Params, sk_seed: &[u8], pk_seed: &[u8], adrs: Adrs, idx: u32) -> Zeroizing<Vec<u8>> {
    let sk_adrs = set_type_keeping_key_pair(adrs, AdrsType::ForsPrf).node(0, idx);
    prf(p, pk_seed, sk_seed, sk_adrs)
}

/// fors_node: node `i` at height `z`, counted over all the trees.
///
/// FIPS 205, Algorithm 15.
pub fn fors_node(p: &Params, sk_seed: &[u8], i: u32, z: u32, pk_seed: &[u8], adrs: Adrs) -> Vec<u8> {
    if z == 0 {
        let sk = fors_sk_gen(p, sk_seed, pk_seed, adrs, i);
        return f(p, pk_seed, adrs.node(0, i), &sk).to_vec();
    }
    let left = fors_node(p, sk_seed, 2 * i, z - 1, pk_seed, adrs);
    let right = fors_node(p, sk_seed, 2 * i + 1, z - 1, pk_seed, adrs);
    h(p, pk_seed, adrs.node(z, i), &left, &right)
}

/// fors_sign.
///
/// FIPS 205, Algorithm 16.
pub fn fors_sign(p: &Params, md: &[u8], sk_seed: &[u8], pk_seed: &[u8], adrs: Adrs) -> Vec<u8> {
    let mut sig_fors = Vec::with_capacity(p.fors_bytes());
    for (i, index) in base_2b(md, p.a, p.k).into_iter().enumerate() {
        let i = i as u32;
        sig_fors.extend_from_slice(&fors_sk_gen(p, sk_seed, pk_seed, adrs, (i << p.a) + index));
        for j in 0..p.a as u32 {
            let s = (index >> j) ^ 1;
            sig_fors.extend(fors_node(p, sk_seed, (i << (p.a as u32 - j)) + s, j, pk_seed, adrs));
        }
    }
    sig_fors
}

/// The roots of the FORS trees (Algorithm 17, lines 1–20).
fn fors_roots(p: &Params, sig_fors: &[u8], md: &[u8], pk_seed: &[u8], adrs: Adrs) -> Vec<u8> {
    let mut roots = Vec::with_capacity(p.k * p.n);
    for (i, index) in base_2b(md, p.a, p.k).into_iter().enumerate() {
        let (sk, auth) = sig_fors[i * p.fors_tree_bytes()..(i + 1) * p.fors_tree_bytes()].split_at(p.n);
        let leaf = ((i as u32) << p.a) + index;
        let mut node = f(p, pk_seed, adrs.node(0, leaf), sk).to_vec();
        climb(p, &mut node, leaf, auth, pk_seed, adrs);
        roots.extend(node);
    }
    roots
}

/// fors_pkFromSig.
///
/// FIPS 205, Algorithm 17.
pub fn fors_pk_from_sig(p: &Params, sig_fors: &[u8], md: &[u8], pk_seed: &[u8], adrs: Adrs) -> Vec<u8> {
    let roots = fors_roots(p, sig_fors, md, pk_seed, adrs);
    t(p, pk_seed, set_type_keeping_key_pair(adrs, AdrsType::ForsRoots), &roots)
}

/// PK.root: the root of the top layer's tree (Algorithm 18, lines 1–3).
pub fn pk_root(p: &Params, sk_seed: &[u8], pk_seed: &[u8]) -> Vec<u8> {
    let adrs = Adrs::new(p.d as u32 - 1, 0, AdrsType::WotsHash);
    xmss_node(p, sk_seed, 0, p.hp as u32, pk_seed, adrs)
}

/// slh_keygen_internal.
///
/// FIPS 205, Algorithm 18.
pub fn slh_keygen_internal(p: &'static Params, sk_seed: &[u8], sk_prf: &[u8], pk_seed: &[u8]) -> SigningKey {
    let root = pk_root(p, sk_seed, pk_seed);
    SigningKey::from_parts(p, sk_seed, sk_prf, pk_seed, &root).expect("the seeds have n bytes")
}

/// md, idx_tree and idx_leaf out of the digest (Algorithm 19, lines 6–10, and 20, lines 9–13).
fn split_digest<'a>(p: &Params, digest: &'a [u8]) -> (&'a [u8], u64, u32) {
    let (md, rest) = digest.split_at((p.k * p.a).div_ceil(8));
    let (tree, leaf) = rest.split_at((p.h - p.h / p.d).div_ceil(8));
    let modulus = |bits: usize| 1u128 << bits;
    let idx_tree = u128::from(to_int(tree)) % modulus(p.h - p.h / p.d);
    let idx_leaf = u128::from(to_int(leaf)) % modulus(p.h / p.d);
    (md, idx_tree as u64, idx_leaf as u32)
}

/// The address of the FORS key pair (Algorithm 19, lines 11–13, and 20, lines 14–16).
fn fors_adrs(idx_tree: u64, idx_leaf: u32) -> Adrs {
    Adrs::new(0, idx_tree, AdrsType::ForsTree).key_pair(idx_leaf)
}

/// SIG_FORS ‖ SIG_HT (Algorithm 19, lines 11–18).
fn sign_digest(p: &Params, md: &[u8], idx_tree: u64, idx_leaf: u32, sk_seed: &[u8], pk_seed: &[u8]) -> Vec<u8> {
    let adrs = fors_adrs(idx_tree, idx_leaf);
    let sig_fors = fors_sign(p, md, sk_seed, pk_seed, adrs);
    let pk_fors = fors_pk_from_sig(p, &sig_fors, md, pk_seed, adrs);
    let sig_ht = ht_sign(p, &pk_fors, sk_seed, pk_seed, idx_tree, idx_leaf);
    [sig_fors, sig_ht].concat()
}

/// slh_sign_internal; without `addrnd` the deterministic variant.
///
/// FIPS 205, Algorithm 19.
pub fn slh_sign_internal(m: &[u8], sk: &SigningKey, addrnd: Option<&[u8]>) -> Signature {
    let p = sk.params();
    let opt_rand = addrnd.unwrap_or(sk.pk_seed());
    let m = MPrime::internal(m);
    let (mut r, mut digest) = (vec![0; p.n], vec![0; p.m]);
    prf_msg(p, sk.sk_prf(), opt_rand, &m, &mut r);
    h_msg(p, &r, sk.pk_seed(), sk.pk_root(), &m, &mut digest);
    let (md, idx_tree, idx_leaf) = split_digest(p, &digest);
    let sig = [r, sign_digest(p, md, idx_tree, idx_leaf, sk.sk_seed(), sk.pk_seed())].concat();
    Signature::from_bytes(p, sig).expect("a signature has its length")
}

/// slh_verify_internal. A signature of the wrong length is invalid.
///
/// FIPS 205, Algorithm 20.
pub fn slh_verify_internal(m: &[u8], sig: &[u8], pk: &VerifyingKey) -> bool {
    let p = pk.params();
    if sig.len() != (1 + p.k * (1 + p.a) + p.h + p.d * p.len()) * p.n {
        return false;
    }
    let (r, rest) = sig.split_at(p.n);
    let (sig_fors, sig_ht) = rest.split_at(p.fors_bytes());
    let mut digest = vec![0; p.m];
    h_msg(p, r, pk.pk_seed(), pk.pk_root(), &MPrime::internal(m), &mut digest);
    let (md, idx_tree, idx_leaf) = split_digest(p, &digest);
    let pk_fors = fors_pk_from_sig(p, sig_fors, md, pk.pk_seed(), fors_adrs(idx_tree, idx_leaf));
    ht_verify(p, &pk_fors, sig_ht, pk.pk_seed(), idx_tree, idx_leaf, pk.pk_root())
}

/// slh_keygen; `random` fills its argument from an approved random bit generator, or fails.
///
/// FIPS 205, Algorithm 21.
pub fn slh_keygen<E>(p: &'static Params, mut random: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<SigningKey, E> {
    let mut seeds = Zeroizing::new(vec![0; 3 * p.n]);
    for seed in seeds.chunks_mut(p.n) {
        random(seed)?;
    }
    Ok(slh_keygen_internal(p, &seeds[..p.n], &seeds[p.n..2 * p.n], &seeds[2 * p.n..]))
}

/// M′ of the pure variant (Algorithm 22, line 8).
fn pure_m_prime(m: &[u8], ctx: &[u8]) -> Vec<u8> {
    [&to_byte(0, 1), &to_byte(ctx.len() as u64, 1), ctx, m].concat()
}

/// M′ of the pre-hash variant (Algorithm 23, line 24).
fn hash_m_prime(m: &[u8], ctx: &[u8], ph: PreHash) -> Vec<u8> {
    [&to_byte(1, 1), &to_byte(ctx.len() as u64, 1), ctx, ph.oid_der(), &ph.hash(&[m])].concat()
}

fn check_context(ctx: &[u8]) -> Result<(), MessageError> {
    if ctx.len() > MAX_CONTEXT { Err(MessageError::Context { got: ctx.len() }) } else { Ok(()) }
}

/// slh_sign; without `addrnd` (n random bytes) the deterministic variant.
///
/// FIPS 205, Algorithm 22.
pub fn slh_sign(m: &[u8], ctx: &[u8], sk: &SigningKey, addrnd: Option<&[u8]>) -> Result<Signature, MessageError> {
    check_context(ctx)?;
    Ok(slh_sign_internal(&pure_m_prime(m, ctx), sk, addrnd))
}

/// hash_slh_sign; without `addrnd` (n random bytes) the deterministic variant.
///
/// FIPS 205, Algorithm 23.
pub fn hash_slh_sign(
    m: &[u8],
    ctx: &[u8],
    ph: PreHash,
    sk: &SigningKey,
    addrnd: Option<&[u8]>,
) -> Result<Signature, MessageError> {
    check_context(ctx)?;
    Ok(slh_sign_internal(&hash_m_prime(m, ctx, ph), sk, addrnd))
}

/// slh_verify. A context that is too long makes every signature invalid.
///
/// FIPS 205, Algorithm 24.
pub fn slh_verify(m: &[u8], sig: &[u8], ctx: &[u8], pk: &VerifyingKey) -> bool {
    check_context(ctx).is_ok() && slh_verify_internal(&pure_m_prime(m, ctx), sig, pk)
}

/// hash_slh_verify. A context that is too long makes every signature invalid.
///
/// FIPS 205, Algorithm 25.
pub fn hash_slh_verify(m: &[u8], sig: &[u8], ctx: &[u8], ph: PreHash, pk: &VerifyingKey) -> bool {
    check_context(ctx).is_ok() && slh_verify_internal(&hash_m_prime(m, ctx, ph), sig, pk)
}

/// md with the indices of a position as its digits: what [`base_2b`] takes apart again.
fn md_of(p: &Params, position: &Position) -> Vec<u8> {
    let mut md = vec![0; (p.k * p.a).div_ceil(8)];
    for (i, index) in position.fors.iter().enumerate() {
        for j in (0..p.a).filter(|j| index >> (p.a - 1 - j) & 1 == 1) {
            let bit = i * p.a + j;
            md[bit / 8] |= 0x80 >> (bit % 8);
        }
    }
    md
}

/// SIG_FORS ‖ SIG_HT for a position: what [`Op::Sign`](crate::Op::Sign) computes.
///
/// FIPS 205, Algorithm 19, lines 11–18.
pub fn sign_at(p: &Params, position: &Position, sk_seed: &[u8], pk_seed: &[u8]) -> Vec<u8> {
    sign_digest(p, &md_of(p, position), position.idx_tree, position.idx_leaf, sk_seed, pk_seed)
}

/// The nodes that a whole signature implies at its position: [`Op::Verify`](crate::Op::Verify) computes them.
pub struct Implied {
    /// The roots of the FORS trees, k·n bytes.
    pub fors_roots: Vec<u8>,
    /// PK_FORS.
    pub fors_pk: Vec<u8>,
    /// The roots of the XMSS trees, layer by layer, d·n bytes; the last is the candidate for PK.root.
    pub xmss_roots: Vec<u8>,
}

/// Climbs from the revealed leaves of a whole signature to every root.
///
/// FIPS 205, Algorithm 20, lines 14–18.
pub fn implied_by(p: &Params, position: &Position, sig: &[u8], pk_seed: &[u8]) -> Implied {
    let adrs = fors_adrs(position.idx_tree, position.idx_leaf);
    let md = md_of(p, position);
    let fors_roots = fors_roots(p, &sig[p.fors_range()], &md, pk_seed, adrs);
    let fors_pk = fors_pk_from_sig(p, &sig[p.fors_range()], &md, pk_seed, adrs);
    let xmss_roots = ht_roots(p, &fors_pk, &sig[p.ht_range()], pk_seed, position.idx_tree, position.idx_leaf);
    Implied { fors_roots, fors_pk, xmss_roots }
}
