//! zkDilithium's engine through its public interface.

use hypergrove::zkdilithium::{Engine, Message, Op, SignJob, SigningKey, SigningKeys, VerifyJob};
use hypergrove::{Error, ErrorKind};

#[test]
fn a_memory_budget_is_asked_and_cuts_batches() {
    let free = Engine::builder().threads(1).build().unwrap();
    let within = |bytes| Engine::builder().threads(1).memory_budget(bytes).build().unwrap();
    let (key, fixed) = (SigningKey::from_seed(&[7; 32]), free.bytes(Op::Sign, 0));
    let (signature, public) = (key.sign_message(Message::Bytes(b"m")), key.verifying_key());
    let job = SignJob { key: &key, message: Message::Bytes(b"m") };
    let check = VerifyJob { key: &public, message: Message::Bytes(b"m"), signature: signature.as_bytes() };
    let is_refused = |error: Error| error.kind() == ErrorKind::OutOfMemory;

    // Not even the lanes of a thread.
    let poor = within(fixed / 2);
    let mut keys = SigningKeys::new();
    assert!(poor.sign_batch(&[job]).is_err_and(is_refused));
    assert!(poor.verify_batch(&[check]).is_err_and(is_refused));
    assert!(poor.keygen_batch(&[[1; 32]]).is_err_and(is_refused));
    assert!(poor.keygen_into(&[[1; 32]], &mut keys).is_err_and(is_refused) && keys.is_empty());

    let tight = within(fixed + 100_000);
    for op in [Op::Keygen, Op::Sign] {
        let fit = tight.filling(op).unwrap();
        assert!((10..free.filling(op).unwrap()).contains(&fit), "{op:?}: {fit}");
        assert!(tight.bytes(op, fit) <= fixed + 100_000 && tight.bytes(op, fit + 1) > fixed + 100_000);
    }
    let fit = tight.filling(Op::Sign).unwrap();
    assert_eq!(tight.sign_batch(&vec![job; fit]).unwrap(), vec![signature.clone(); fit]);
    assert!(tight.sign_batch(&vec![job; fit + 1]).is_err_and(is_refused));
    assert!(tight.keygen_batch(&[[1; 32]; 100]).is_err_and(is_refused));
    assert_eq!(tight.verify_batch(&[check; 3]).unwrap(), [true; 3]);
}
