//! The oracle as a backend against the oracle itself, and the choice of policies by the times of programs.

use hypergrove_engine::nodes::CachedNodes;
use hypergrove_engine::programs::{Programs, typed};
use hypergrove_engine::scheme::Group;
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::{
    Backend, Batch, Choice, Device, Error, Key, Knowledge, Places, Policy, PolicySource, Program, Reference,
    SlhDsaProgram, Timing,
};
use hypergrove_fips205::plan::{Op, Plan, Slot, cache_bytes};
use hypergrove_fips205::reference::{implied_by, pk_root, sign_at, xmss_node};
use hypergrove_fips205::{Adrs, AdrsType, Params, Position};
use hypergrove_testkit::toys::{TOY_SHA2_16, TOYS};
use std::sync::Arc;

fn toys() -> impl Iterator<Item = &'static Params> {
    TOYS.iter().copied()
}

const SK_SEED: [u8; 32] = [0x5a; 32];
const PK_SEED: [u8; 32] = [0xc3; 32];

fn position(p: &Params, of: u8) -> Position {
    let digest: Vec<u8> = (0..p.m).map(|i| of.wrapping_mul(91).wrapping_add(i as u8 * 57)).collect();
    Position::split(p, &digest)
}

fn run(backend: &dyn Backend, plan: &Plan, batch: &Batch<'_>) -> Result<(Vec<u8>, Box<dyn Program>), Error> {
    let device = &backend.devices()?[0];
    let mut program = backend.slh_dsa_on(device)?.prepare(device, plan, batch.len(), &Policy::default())?;
    let mut out = vec![0; batch.len() * plan.out_bytes()];
    program.run_batch(batch, &mut out).map(|_| (out, program))
}

fn key(p: &Params) -> Key<'static> {
    Key::of_seeds(&PK_SEED[..p.n], &SK_SEED[..p.n])
}

fn signing<'a>(keys: &'a [Key<'a>], positions: &'a [Position]) -> Batch<'a> {
    static FIRST: [u32; 8] = [0; 8];
    Batch { keys, key_of: &FIRST[..positions.len()], positions, signatures: &[] }
}

#[test]
fn the_reference_program_is_the_reference() {
    for p in toys() {
        let (keys, positions) = ([key(p)], [1, 2, 3].map(|i| position(p, i)));
        let alone = Batch { keys: &keys, key_of: &[0], positions: &[], signatures: &[] };
        let (root, _) = run(&Reference, &Plan::new(p, Op::Keygen), &alone).unwrap();
        assert_eq!(root, pk_root(p, &SK_SEED[..p.n], &PK_SEED[..p.n]));

        let (signatures, mut signer) = run(&Reference, &Plan::new(p, Op::Sign), &signing(&keys, &positions)).unwrap();
        let signatures: Vec<&[u8]> = signatures.chunks(p.sig_bytes()).collect();
        for (signature, position) in signatures.iter().zip(&positions) {
            assert_eq!(signature[p.n..], sign_at(p, position, &SK_SEED[..p.n], &PK_SEED[..p.n]));
        }

        let keys = [Key { sk_seed: &[], ..key(p) }];
        let batch = Batch { keys: &keys, key_of: &[0, 0, 0], positions: &positions, signatures: &signatures };
        let (roots, mut verifier) = run(&Reference, &Plan::new(p, Op::Verify), &batch).unwrap();
        assert_eq!(roots, root.repeat(3));
        for slot in [Slot::ForsRoots, Slot::ForsPk, Slot::XmssRoots] {
            assert_eq!(signer.read(slot).unwrap(), verifier.read(slot).unwrap());
        }
        let fors = implied_by(p, &positions[1], signatures[1], &PK_SEED[..p.n]).fors_pk;
        assert_eq!(signer.read(Slot::ForsPk).unwrap().unwrap()[p.n..2 * p.n], fors);
    }
}

#[test]
fn cached_nodes_are_where_they_belong_and_are_used() {
    for p in toys() {
        let (keys, positions) = ([key(p)], [4, 5].map(|i| position(p, i)));
        let (whole, _) = run(&Reference, &Plan::new(p, Op::Sign), &signing(&keys, &positions)).unwrap();
        for layers in 1..=p.d {
            let alone = Batch { keys: &keys, key_of: &[0], positions: &[], signatures: &[] };
            let (mut bytes, _) = run(&Reference, &Plan::cache(p, layers), &alone).unwrap();
            assert_eq!(Some(bytes.len()), cache_bytes(p, layers));
            let nodes = CachedNodes::new(p, layers, &bytes).unwrap();
            assert_eq!(nodes.root(p.d - 1, 0), pk_root(p, &SK_SEED[..p.n], &PK_SEED[..p.n]));
            for layer in nodes.layers() {
                let (tree, leaf) = positions[0].at_layer(p, layer);
                let adrs = Adrs::new(layer as u32, tree, AdrsType::WotsHash);
                for (z, node) in nodes.auth(layer, tree, leaf).enumerate() {
                    let index = (leaf >> z) ^ 1;
                    let grown = xmss_node(p, &SK_SEED[..p.n], index, z as u32, &PK_SEED[..p.n], adrs);
                    assert_eq!(node, grown, "{p}, layer {layer}, height {z}");
                }
            }
            let plan = Plan::new(p, Op::Sign).with_cached_layers(layers);
            let cached = [Key { cached_nodes: &bytes, ..key(p) }];
            let (signatures, mut program) = run(&Reference, &plan, &signing(&cached, &positions)).unwrap();
            assert_eq!(signatures, whole, "{p}, {layers} layers");
            assert_eq!(program.read(Slot::XmssRoots).unwrap().unwrap().len(), 2 * (p.d - layers) * p.n);

            bytes.fill(0);
            let wrong = [Key { cached_nodes: &bytes, ..key(p) }];
            assert_ne!(run(&Reference, &plan, &signing(&wrong, &positions)).unwrap().0, whole);
        }
    }
}

#[test]
fn bad_batches_are_refused() {
    let p = &TOY_SHA2_16;
    let (plan, positions) = (Plan::new(p, Op::Sign), [position(p, 1)]);
    let short = [Key { sk_seed: &SK_SEED[..15], ..key(p) }];
    let refused = run(&Reference, &plan, &signing(&short, &positions)).map(drop);
    assert_eq!(refused, Err(Error::Length { what: "SK.seed", want: 16, got: 15 }));
    let keys = [key(p)];
    let unknown = Batch { keys: &keys, key_of: &[1], positions: &positions, signatures: &[] };
    assert!(matches!(run(&Reference, &plan, &unknown).map(drop), Err(Error::Value { .. })));
}

/// Says of every plan that a job takes a nanosecond.
struct Hopeful;

impl Knowledge for Hopeful {
    fn choose(&self, _: &dyn Backend, _: &Device, _: &Plan, _: usize) -> Option<Choice> {
        let (policy, source) = (Policy::default(), PolicySource::Table);
        Some(Choice { policy, source, seconds: Some((1e-9, 0.0)), why: "a row".into() })
    }

    fn interpolate(&self, _: &[(usize, f64)], _: usize) -> Option<f64> {
        None
    }
}

#[test]
fn what_other_programs_take_of_a_device_is_not_blamed_on_a_policy() {
    let p = &TOY_SHA2_16;
    let device = Reference.devices().unwrap().remove(0);
    let programs = Programs::new(Arc::new(Reference), device, 0, Arc::new(Hopeful), Policy::default());
    let facts = |op| programs.facts(Group { kind: Kind::slh_dsa(p, op, 0), threads: 1 }).unwrap();
    let (keygen, sign) = (facts(Op::Keygen), facts(Op::Sign));
    let keys = [key(p)];
    let batch = Batch { keys: &keys, key_of: &[0], positions: &[], signatures: &[] };
    let run = |meanwhile: &dyn Fn()| {
        let mut lent = programs.lend(&keygen, 1, (u64::MAX, u64::MAX)).unwrap();
        meanwhile();
        let SlhDsaProgram(program) = typed(&mut *lent.program);
        program.run_batch(&batch, &mut vec![0; p.n]).unwrap();
        lent.give_back(Places::Usual, &Timing::default());
        let Choice { source, why, .. } = programs.choice(&keygen, 1);
        (source, why)
    };
    let signing =
        || programs.lend(&sign, 1, (u64::MAX, u64::MAX)).unwrap().give_back(Places::Usual, &Timing::default());
    for runs in 1..=5 {
        let why = format!("a row; runs that overlapped with other programs, not judged: {runs}");
        assert_eq!(run(&signing), (PolicySource::Table, why));
    }
    // One of its own group is how transfers hide; three runs show that the row is wrong.
    run(&|| drop(run(&|| ())));
    let (source, why) = run(&|| ());
    assert_eq!(source, PolicySource::Adjusted);
    assert!(why.starts_with("a row; measured ") && why.ends_with(" predicted 0.00 µs"), "{why}");
}
