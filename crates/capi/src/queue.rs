//! Jobs that are queued and answered by a callback.

use crate::engine::Engine;
use crate::failure::{Failure, Status, call, judge};
use crate::keys::{PrivateKey, PublicKey};
use crate::messages::{MessageOptions, check_signature};
use crate::pointers::{Done, Given, In, User};
use hypergrove::{SignJob, Ticket, VerifyJob, zkdilithium as zk};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The function that gets the result.
fn given(done: Done) -> Result<extern "C" fn(User, Status, Given<u8>, usize), Failure> {
    done.ok_or_else(|| Failure::bad_input("done: NULL; give a function that gets the result".into()))
}

/// Has C called when the ticket has its result.
fn answer<T: Send + 'static>(
    ticket: Ticket<T>,
    done: extern "C" fn(User, Status, Given<u8>, usize),
    user: User,
    read: impl FnOnce(&T) -> (bool, &[u8]) + Send + 'static,
) {
    ticket.on_done(move |result| {
        let judged = catch_unwind(AssertUnwindSafe(|| match &result {
            Ok(result) => Ok(read(result)),
            Err(why) => Err(Failure::from(why.clone())),
        }));
        let bytes = if let Ok(Ok((_, bytes))) = &judged { *bytes } else { &[] };
        let status = judge(judged.map(|judged| judged.map(|(is_good, _)| is_good)));
        let result = if bytes.is_empty() { Given::NULL } else { Given::bytes(bytes) };
        done(user, status, result, bytes.len());
    });
}

#[unsafe(no_mangle)]
extern "C" fn hg_sign_queued(
    engine: In<Engine>,
    key: In<PrivateKey>,
    options: In<MessageOptions>,
    message: In<u8>,
    message_length: usize,
    done: Done,
    user: User,
) -> Status {
    call(|| {
        let (engine, key, options) = (engine.get("engine")?, key.get("key")?, options.versioned("options")?);
        let (message, done) = (message.slice(message_length, "message")?, given(done)?);
        match key {
            PrivateKey::SlhDsa(key) => {
                let job = SignJob::new(key.clone(), message).mode(options.mode()?).randomizer(options.randomizer()?);
                let ticket = engine.slh_dsa.submit(job).map_err(|refused| refused.why)?;
                answer(ticket, done, user, |signature| (true, signature.as_bytes()));
            }
            PrivateKey::ZkDilithium(key) => {
                options.check_none()?;
                let job = zk::SignJob::new(key.clone(), message);
                let ticket = engine.zkdilithium.submit(job).map_err(|refused| refused.why)?;
                answer(ticket, done, user, |signature| (true, signature.as_bytes()));
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_verify_queued(
    engine: In<Engine>,
    key: In<PublicKey>,
    options: In<MessageOptions>,
    message: In<u8>,
    message_length: usize,
    signature: In<u8>,
    signature_length: usize,
    done: Done,
    user: User,
) -> Status {
    call(|| {
        let (engine, key, options) = (engine.get("engine")?, key.get("key")?, options.versioned("options")?);
        let message = message.slice(message_length, "message")?;
        let signature = signature.slice(signature_length, "signature")?;
        check_signature(key.set(), signature_length)?;
        let done = given(done)?;
        match key {
            PublicKey::SlhDsa(key) => {
                let job = VerifyJob::new(key.clone(), message, signature).mode(options.mode()?);
                let ticket = engine.slh_dsa.submit(job).map_err(|refused| refused.why)?;
                answer(ticket, done, user, |is_valid| (*is_valid, &[]));
            }
            PublicKey::ZkDilithium(key) => {
                options.check_none()?;
                let job = zk::VerifyJob::new(key.clone(), message, signature);
                let ticket = engine.zkdilithium.submit(job).map_err(|refused| refused.why)?;
                answer(ticket, done, user, |is_valid| (*is_valid, &[]));
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_engine_wait_for_room(engine: In<Engine>) -> Status {
    call(|| Ok(engine.get("engine")?.slh_dsa.ready().wait()?))
}

#[unsafe(no_mangle)]
extern "C" fn hg_engine_drain(engine: In<Engine>, milliseconds: u32) -> Status {
    call(|| {
        let until = Instant::now() + Duration::from_millis(milliseconds.into());
        Ok(engine.get("engine")?.slh_dsa.drain(until)?)
    })
}
