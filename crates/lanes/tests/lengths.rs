//! Arguments that do not fit each other are refused. In release arithmetic wraps: a length that wraps to a small one must
//! not pass for it, or loads and stores leave their slices.

use hypergrove_fips205::Family;
use hypergrove_lanes::{
    AdrsWords, Constants, Isa, KeyState, Keys, Lattice, Rows, Shake, Steps, Trace, TweakableHash, Width, block_hash,
    lattice, tweakable_hash,
};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::thread::current;

thread_local! {
    static PROVOKED: Cell<bool> = const { Cell::new(false) };
}

/// Panics that are provoked print nothing: there are thousands. Without optimisation they happen on threads of the library's
/// own, which have no name.
fn refused(what: &str, call: impl FnOnce()) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            if !PROVOKED.get() && current().name().is_some() {
                hook(panic);
            }
        }));
    });
    PROVOKED.set(true);
    let done = catch_unwind(AssertUnwindSafe(call));
    PROVOKED.set(false);
    assert!(done.is_err(), "{what} was taken");
}

fn every_hash(test: impl Fn(&str, &dyn TweakableHash)) {
    for isa in Isa::available() {
        for (family, n) in [(Family::Sha2, 16), (Family::Sha2, 24), (Family::Sha2, 32), (Family::Shake, 16)] {
            let hash = tweakable_hash(isa, family, n).expect("available");
            test(&format!("{}, {family:?}, n = {n}", isa.name()), &*hash);
        }
    }
}

fn every_lattice(test: impl Fn(&str, &dyn Lattice)) {
    let constants =
        Constants { zeta: 3_483_618, round_constants: &[1; 735], matrix: &[2; 270], antidiagonals: &[3; 69] };
    for isa in Isa::available() {
        for width in [Width::Narrow, Width::Wide] {
            test(isa.name(), &*lattice(isa, width, &constants).expect("available"));
        }
    }
}

fn key(n: usize) -> KeyState {
    KeyState::new(&vec![1; n], &vec![2; n])
}

/// Numbers of rows whose bytes, as they wrap, are few. With the first of them seven rows end within the first page.
const WRAPPING: [usize; 3] = [0x06db_6db6_db6d_b700, (1 << 61) + 3, (1 << 63) + 2];

#[test]
fn rows_whose_bytes_wrap_are_refused() {
    every_hash(|name, hash| {
        let (n, jobs) = (hash.n(), 14usize);
        let key = key(n);
        for l in WRAPPING {
            let nodes = vec![3; jobs.wrapping_mul(l).wrapping_mul(n)];
            let mut out = vec![0; jobs * n];
            refused(&format!("{name}: l = {l:#x}"), || {
                hash.t_l(Keys::One(&key), &vec![[0; 8]; jobs], l, &nodes, &mut out);
            });
        }
    });
}

#[test]
fn streams_whose_bytes_wrap_are_refused() {
    every_lattice(|name, lattice| {
        for (shake, blocks) in [
            (Shake::Shake256, 0x15f5_f5f5_f5f5_f600),
            (Shake::Shake256, (1 << 61) + 2),
            (Shake::Shake128, (1 << 61) + 2),
        ] {
            let (jobs, input_bytes) = (6usize, 34);
            let inputs = vec![4; jobs * input_bytes];
            let mut outputs = vec![0; jobs.wrapping_mul(blocks).wrapping_mul(shake.rate())];
            refused(&format!("{name}: {shake:?}, {blocks:#x} blocks"), || {
                lattice.shake(shake, &inputs, input_bytes, &mut outputs, blocks);
            });
        }
    });
    refused("rows that wrap", || drop(Rows::new(1 << 63, 2)));
}

#[test]
fn slices_of_other_lengths_are_refused() {
    const W: usize = 4;
    every_hash(|name, hash| {
        let (n, jobs) = (hash.n(), 5);
        let keys = [key(n), key(n)];
        let adrs: Vec<AdrsWords> = vec![[0; 8]; jobs];
        let mut out = vec![0; jobs * n];
        for of in [&[0; 4][..], &[0; 6], &[]] {
            let keys = Keys::Of { keys: &keys, of };
            let say = |what| format!("{name}: {what} for {jobs} jobs with {} keys", of.len());
            refused(&say("prf"), || hash.prf(keys, &adrs, &mut out));
            refused(&say("f"), || hash.f(keys, &adrs, &mut out));
            refused(&say("t_l"), || hash.t_l(keys, &adrs, 3, &vec![0; jobs * 3 * n], &mut out));
        }
        let mut chain = |what: &str, w: usize, steps: Steps<'_>, kept: Option<(&[u32], usize)>| {
            let (chains, bytes) = kept.unwrap_or_default();
            let mut values = vec![0; bytes];
            let trace = kept.map(|_| Trace { chains, out: &mut values });
            refused(&format!("{name}: {what}"), || {
                hash.chain(Keys::One(&keys[0]), &adrs, w, steps, &mut out, trace);
            });
        };
        chain("a digit too few", W, Steps::From(&[0; 4]), None);
        chain("a digit too many", W, Steps::To(&[0; 6]), None);
        chain("a digit of w", W, Steps::To(&[4; 5]), None);
        chain("a digit of w, of which no step is taken", W, Steps::From(&[4; 5]), None);
        chain("more values than a digit counts", 257, Steps::All, None);
        chain("no values", 0, Steps::To(&[0; 5]), None);
        let all = jobs * W * n;
        chain("a chain's number too few", W, Steps::All, Some((&[0; 4], all)));
        chain("a chain's number too many", W, Steps::All, Some((&[Trace::NONE; 6], all)));
        chain("a chain that there is no room for", W, Steps::All, Some((&[0, 1, 2, 3, 5], all)));
        chain("a chain whose end there is no room for", W, Steps::All, Some((&[0, 1, 2, 3, 4], all - 1)));
    });
}

#[test]
fn rates_of_keccak() {
    for isa in Isa::available() {
        let hash = block_hash(isa).expect("available");
        for rate in [0, 4, 137, 208, usize::MAX - 7] {
            refused(&format!("{}, a rate of {rate}", isa.name()), || hash.keccak(&mut [0; 25], rate, &[0; 208]));
        }
        // The bytes after the last whole block are left.
        let (mut with, mut without) = ([0; 25], [0; 25]);
        hash.keccak(&mut with, 200, &[1; 399]);
        hash.keccak(&mut without, 200, &[1; 200]);
        assert_eq!(with, without);
    }
}
