//! Every primitive against its own vectors, so that a wrong one is found where it is.

use hypergrove_testkit::zkdilithium::{constants, primitives};
use hypergrove_zkdilithium::Fe;
use hypergrove_zkdilithium::digest::{Message, com, state_after_tr};
use hypergrove_zkdilithium::ntt::{ZETAS, intt, ntt};
use hypergrove_zkdilithium::pack::*;
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::poseidon::{ANTIDIAGONALS, ROUND_CONSTANTS, Sponge, permute, round};
use hypergrove_zkdilithium::ring::{RingElement, decompose};
use hypergrove_zkdilithium::sample::{ball, expand_a, expand_s, expand_y};
use hypergrove_zkdilithium::trace::Trace;
use serde_json::Value;
use sha2::{Digest, Sha256};

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().expect("a string")).expect("hexadecimal digits")
}

/// Elements given as integers or as packed bytes.
fn fes(value: &Value) -> Vec<Fe> {
    match value {
        Value::Array(list) => list.iter().map(|x| Fe::new(x.as_u64().expect("an element") as u32)).collect(),
        packed => unpack_fes(&bytes(packed)).collect(),
    }
}

fn array<const COUNT: usize>(value: &Value) -> [Fe; COUNT] {
    fes(value).try_into().expect("so many elements")
}

fn element(value: &Value) -> RingElement {
    RingElement(array(value))
}

fn centred(value: &Value) -> Vec<i32> {
    value.as_array().expect("a list").iter().map(|x| x.as_i64().expect("an integer") as i32).collect()
}

fn list(value: &Value) -> &[Value] {
    let list = value.as_array().expect("a list");
    assert!(!list.is_empty());
    list
}

fn packed(elements: &[Fe]) -> Vec<u8> {
    let mut out = vec![0; 3 * elements.len()];
    pack_fes(elements, &mut out);
    out
}

#[test]
fn constants_are_generated_right() {
    let given = constants();
    assert_eq!(given["Q"], Q);
    assert_eq!(given["zeta"], ZETA);
    assert_eq!(given["gamma2"], GAMMA2);
    let flat = ROUND_CONSTANTS.concat();
    assert_eq!(flat, fes(&given["poseidon_round_constants"]));
    assert_eq!(ANTIDIAGONALS[..], fes(&given["poseidon_mds_antidiagonal"]));
    assert_eq!(ZETAS[1..], fes(&given["zetas"])[..255]);
    // The hash that the scheme's description publishes.
    let hash = hex::encode(Sha256::digest(packed(&flat)));
    assert_eq!(hash, "2f2b4eacc55091008252d8686c9bc8e1cdcdda681a78c2c2b6b64a66a836d4d1");
    assert_eq!(hex::encode(Sha256::digest(packed(&ANTIDIAGONALS))), given["sha256_mds_antidiagonal_packed3"]);
}

#[test]
fn field() {
    let given = primitives();
    for case in list(&given["field_inv"]) {
        let [x, inverse] = array(case);
        assert_eq!(x.inv(), inverse);
    }
    for case in list(&given["field_mul"]) {
        let [a, b, product] = array(case);
        assert_eq!(a * b, product);
    }
    for case in list(&given["decompose"]) {
        let [r, r0, r1] = centred(case)[..] else { panic!("three integers") };
        assert_eq!(decompose(Fe::new(r as u32)), (r0, r1 as u32), "{r}");
    }
}

/// The definition, coefficient by coefficient.
#[test]
fn decompose_of_everything() {
    for r in 0..Q as i32 {
        let mut r0 = r % 131072;
        if r0 > 65536 {
            r0 -= 131072;
        }
        let expected = if r - r0 == Q as i32 - 1 { (r0 - 1, 0) } else { (r0, ((r - r0) / 131072) as u32) };
        assert_eq!(decompose(Fe::new(r as u32)), expected, "{r}");
    }
}

#[test]
fn transforms() {
    let given = primitives();
    for case in list(&given["ntt"]) {
        let a = element(&case["input"]);
        assert_eq!(ntt(&a).0[..], fes(&case["ntt"]));
        assert_eq!(intt(&hypergrove_zkdilithium::ring::NttElement(a.0)).0[..], fes(&case["invntt"]));
        assert!(intt(&ntt(&a)) == a);
    }
    for case in list(&given["poly_mul"]) {
        let (a, b) = (element(&case["a"]), element(&case["b"]));
        assert!(intt(&ntt(&a).times(&ntt(&b))) == element(&case["product_mod_x256p1"]));
    }
}

#[test]
fn poseidon() {
    let given = primitives();
    let mut trace = Trace::default();
    for case in list(&given["poseidon_perm"]) {
        let mut state = array(&case["input"]);
        permute(&mut state, &mut trace);
        assert_eq!(state[..], fes(&case["output"]), "{}", case["name"]);
    }
    assert!(trace.zero_inputs >= 35, "{} zeros entered an S-box", trace.zero_inputs);
    let states = list(&given["poseidon_round_trace"]["state_before_and_after_each_round"]);
    let mut state = array(&states[0]);
    for (constants, after) in ROUND_CONSTANTS.iter().zip(&states[1..]) {
        round(&mut state, constants, &mut trace);
        assert_eq!(state[..], fes(after));
    }
    for case in list(&given["poseidon_sponge"]) {
        let mut sponge = Sponge::new([Fe::ZERO; T], &mut trace);
        sponge.absorb(fes(&case["absorb"]));
        let out: [Fe; 30] = sponge.squeeze();
        assert_eq!(out[..case["n_squeeze"].as_u64().expect("a number") as usize], fes(&case["output"]));
    }
}

#[test]
fn encodings() {
    let given = primitives();
    for case in list(&given["bytes_to_fes"]) {
        assert_eq!(bytes_to_fes(&bytes(&case["bytes"])).collect::<Vec<_>>(), fes(&case["fes"]));
    }
    let case = &given["unpack_fes"];
    assert_eq!(unpack_fes(&bytes(&case["bytes"])).collect::<Vec<_>>(), fes(&case["fes"]));
    let coefficients = |a: RingElement| a.0.map(Fe::centred).to_vec();
    for case in list(&given["pack_eta"]) {
        let mut out = [0; ETA_BYTES];
        let a = RingElement(std::array::from_fn(|i| Fe::from_centred(centred(&case["coeffs_centered"])[i])));
        pack_eta(&a, &mut out);
        assert_eq!(out[..], bytes(&case["bytes"]));
        assert!(unpack_eta(&out) == a);
    }
    let case = &given["unpack_eta_any_code"];
    assert_eq!(coefficients(unpack_eta(&bytes(&case["bytes"]))), centred(&case["coeffs_centered"]));
    for case in list(&given["unpack_gamma1"]) {
        let a = unpack_gamma1(&bytes(&case["bytes"]));
        let mut out = [0; GAMMA1_BYTES];
        pack_gamma1(&a, &mut out);
        assert_eq!(out[..], bytes(&case["bytes"]));
        assert_eq!(coefficients(a), centred(&case["coeffs_centered"]));
    }
}

#[test]
fn samplers() {
    let given = primitives();
    let case = &given["sample_matrix"];
    let a_hat = expand_a(&bytes(&case["rho"]));
    for (row, expected) in a_hat.iter().zip(list(&case["rows"])) {
        for (a, expected) in row.iter().zip(list(expected)) {
            assert_eq!(a.0[..], fes(expected));
        }
    }
    let case = &given["sample_secret"];
    let (s1, s2) = expand_s(&bytes(&case["rho_prime"]));
    for (s, expected) in [(s1, &case["s1_packed"]), (s2, &case["s2_packed"])] {
        let mut out = [0; 4 * ETA_BYTES];
        s.iter().zip(out.chunks_mut(ETA_BYTES)).for_each(|(s, out)| pack_eta(s, out));
        assert_eq!(out[..], bytes(expected));
    }
    // One polynomial each by its seed and 16-bit number, which the rows and columns of A and the index of s are.
    for case in list(&given["xof"]) {
        let (seed, nonce) = (bytes(&case["seed"]), case["nonce"].as_u64().expect("a number") as usize);
        if case["alg"] == "XOF128" {
            assert_eq!(expand_a(&seed)[nonce >> 8][nonce & 255].0[..], fes(&case["sample_uniform"]));
        } else {
            let (s1, s2) = expand_s(&seed);
            let all = [s1, s2].concat();
            assert_eq!(all[nonce].0.map(Fe::centred)[..], centred(&case["sample_eta_centered"]));
        }
    }
    for case in list(&given["sample_y"]) {
        let y = expand_y(&bytes(&case["seed"]), case["nonce"].as_u64().expect("a number") as u16);
        let mut out = vec![0; 4 * GAMMA1_BYTES];
        y.iter().zip(out.chunks_mut(GAMMA1_BYTES)).for_each(|(y, out)| pack_gamma1(y, out));
        assert_eq!(out, bytes(&case["y_packed18"]));
    }
}

#[test]
fn challenges() {
    let given = primitives();
    let mut trace = Trace::default();
    let mut refused = 0;
    for case in list(&given["sample_in_ball"]) {
        let c = ball(&array(&case["ctilde"]), &mut trace);
        assert_eq!(c.is_some(), case["accepted"].as_bool().expect("a verdict"));
        match c {
            Some(c) => {
                let mut expected = [0; N];
                for pair in list(&case["nonzero"]) {
                    let [position, sign] = centred(pair)[..] else { panic!("a position and a sign") };
                    expected[position as usize] = sign;
                }
                assert_eq!(c.0.map(Fe::centred), expected);
            }
            None => refused += 1,
        }
    }
    assert_eq!(refused, 6);
    for case in list(&given["mu"]) {
        let tr: [u8; 32] = bytes(&case["tr"]).try_into().expect("32 bytes");
        let state = state_after_tr(&tr, &mut trace);
        assert_eq!(state[..], fes(&case["state_after_tr"]));
        let msg = bytes(&case["msg"]);
        let mu = Message::Bytes(&msg).mu(&state, &mut trace);
        assert_eq!(mu[..], fes(&case["mu"]));
        if (1..=48).contains(&msg.len()) {
            let mut block = [Fe::ZERO; MUSIZE];
            block.iter_mut().zip(bytes_to_fes(&msg)).for_each(|(cell, element)| *cell = element);
            assert_eq!(Message::Block(&block).mu(&state, &mut trace), mu);
        }
    }
    for case in list(&given["challenge_hash"]) {
        let w1: Vec<[u32; N]> = list(&case["w1"])
            .iter()
            .map(|row| {
                let row = bytes(row);
                std::array::from_fn(|i| u32::from(row[i]))
            })
            .collect();
        let w1 = w1.try_into().expect("four rows");
        assert_eq!(com(&array(&case["mu"]), &w1, &mut trace)[..], fes(&case["ctilde"]));
    }
}
