//! Jobs that are queued and answered by a callback.

use crate::failure::{Failure, Status, call, judge, value};
use crate::messages::{check_signature, sign_job, verify_job};
use crate::options::MessageOptions;
use crate::pointers::{Done, Given, Handle, In, OutHandle, User};
use crate::schemes::{PrivateKey, PublicKey, of_scheme};
use hypergrove::{Canceller, Engine, Ticket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Who gets the result, and until when.
struct Answer {
    done: extern "C" fn(User, Status, Given<u8>, usize),
    user: User,
    /// 0: whenever the result is there.
    milliseconds: u32,
}

impl Answer {
    fn new(done: Done, user: User, milliseconds: u32) -> Result<Answer, Failure> {
        let done = done.ok_or_else(|| Failure::bad_input("done: NULL; give a function that gets the result".into()))?;
        Ok(Answer { done, user, milliseconds })
    }
}

/// Has C called when the ticket has its result.
fn answer<T: Send + 'static>(
    ticket: Ticket<T>,
    answer: Answer,
    mut handle: OutHandle<Canceller>,
    read: impl FnOnce(&T) -> (bool, &[u8]) + Send + 'static,
) -> Result<(), Failure> {
    let Answer { done, user, milliseconds } = answer;
    if let Some(place) = handle.clear_if_there("ticket")? {
        place.fill(ticket.canceller());
    }
    let ticket = match milliseconds {
        0 => ticket,
        _ => ticket.deadline(Instant::now() + Duration::from_millis(milliseconds.into())),
    };
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
    Ok(())
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
    milliseconds: u32,
    mut ticket: OutHandle<Canceller>,
) -> Status {
    call(|| {
        let (engine, key, options) = (engine.get("engine")?, key.get("key")?, options.versioned("options")?);
        let (message, to) = (message.slice(message_length, "message")?, Answer::new(done, user, milliseconds)?);
        ticket.clear_if_there("ticket")?;
        of_scheme!(key, key => {
            let queued = engine.submit(sign_job(key, &options, message)?).map_err(|refused| refused.why)?;
            answer(queued, to, ticket, |signature| (true, signature.as_ref()))
        })
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
    milliseconds: u32,
    mut ticket: OutHandle<Canceller>,
) -> Status {
    call(|| {
        let (engine, key, options) = (engine.get("engine")?, key.get("key")?, options.versioned("options")?);
        let message = message.slice(message_length, "message")?;
        let signature = signature.slice(signature_length, "signature")?;
        check_signature(key.set(), signature_length)?;
        let to = Answer::new(done, user, milliseconds)?;
        ticket.clear_if_there("ticket")?;
        let queued = of_scheme!(key, key => {
            engine.submit(verify_job(key, &options, message, signature)?).map_err(|refused| refused.why)?
        });
        answer(queued, to, ticket, |is_valid| (*is_valid, &[]))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_ticket_cancel(ticket: In<Canceller>) -> Status {
    call(|| {
        ticket.get("ticket")?.cancel();
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_ticket_free(ticket: Handle<Canceller>) {
    value((), || ticket.free());
}

#[unsafe(no_mangle)]
extern "C" fn hg_engine_wait_for_room(engine: In<Engine>) -> Status {
    call(|| Ok(engine.get("engine")?.ready().wait()?))
}

#[unsafe(no_mangle)]
extern "C" fn hg_engine_drain(engine: In<Engine>, milliseconds: u32) -> Status {
    call(|| {
        let until = Instant::now() + Duration::from_millis(milliseconds.into());
        Ok(engine.get("engine")?.drain(until)?)
    })
}
