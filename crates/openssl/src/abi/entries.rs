//! The functions that OpenSSL calls. Each turns its pointers into references, and does its work in safe code.

use super::core::{Core, CoreBio, Passphrase, PassphraseCallback};
use super::params::{Given, Put, Value, answer, table};
use super::types::Param;
use crate::algorithms::ALGORITHMS;
use crate::codec::{Decoder, Encoder, FORMS, READ};
use crate::failure::{Failure, Reason};
use crate::key::{Generation, Key};
use crate::numbers::{kind, selection};
use crate::provider::Provider;
use crate::signature::Context;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::{ptr, slice};

/// OSSL_CALLBACK.
pub(crate) type Callback = unsafe extern "C" fn(*const Param, *mut c_void) -> c_int;

/// A key's address, as OpenSSL hands it from a decoder to [`load`].
pub(crate) type Reference = *mut Key;

/// A value that OpenSSL has by its address.
type Object<T> = *mut T;

pub(super) fn give<T>(value: T) -> Object<T> {
    Box::into_raw(Box::new(value))
}

/// Drops an object of any kind. Signatures in progress have a share of their own of their key, and a provider's engine lives on for the next provider.
///
/// # Safety
/// `object` is null or what [`give`] returned, and nobody uses it afterwards.
pub(crate) unsafe extern "C" fn free<T>(object: Object<T>) {
    if !object.is_null() {
        // A value whose drop panics is lost, which is all that can be done.
        // SAFETY: see above.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(object) })));
    }
}

/// # Safety
/// `data` is null or leads to `length` bytes that stay as they are during `'a`.
unsafe fn bytes<'a>(data: *const c_uchar, length: usize) -> &'a [u8] {
    match data.is_null() || length == 0 {
        true => &[],
        // SAFETY: see above.
        false => unsafe { slice::from_raw_parts(data, length) },
    }
}

/// # Safety
/// `text` is null or a string of C that stays as it is during `'a`.
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    match text.is_null() {
        true => "",
        // SAFETY: see above.
        false => unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("?"),
    }
}

/// Runs `work`. An error, or a panic, goes into OpenSSL's queue, and the result is `otherwise`.
fn guarded<T>(core: &Core, otherwise: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(Reason::Internal, "a fault of hypergrove; please report it with what you did"),
    };
    // A sentence that cannot be handed over is no reason to fail otherwise.
    let _ = catch_unwind(AssertUnwindSafe(|| core.raise(&failure)));
    otherwise
}

/// Runs `work` for a function that returns 1 if all is well: see [`guarded`].
pub(super) fn checked(core: &Core, work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    guarded(core, 0, || work().map(|()| 1))
}

/// A new value of the provider for OpenSSL; null if it cannot be made.
///
/// # Safety
/// `context` is null or the provider's context.
unsafe fn made<T>(context: ProviderContext, make: impl FnOnce(&Arc<Provider>) -> Result<T, Failure>) -> Object<T> {
    // SAFETY: see above.
    let Some(provider) = (unsafe { context.as_ref() }) else { return ptr::null_mut() };
    guarded(&provider.core, ptr::null_mut(), || Ok(give(make(provider)?)))
}

fn null(what: &str) -> Failure {
    Failure::new(Reason::Internal, format!("the caller gives no {what}"))
}

/// The value behind an address that OpenSSL keeps.
macro_rules! lent {
    ($object:expr) => {{
        // SAFETY: OpenSSL hands over an address that a function of this file gave it and that it has not freed, or null.
        let Some(object) = (unsafe { $object.as_ref() }) else { return Default::default() };
        object
    }};
}

/// As [`lent`], for a value that one thread uses at a time.
macro_rules! lent_mut {
    ($object:expr) => {{
        // SAFETY: as in `lent`; OpenSSL's contexts belong to one thread at a time.
        let Some(object) = (unsafe { $object.as_mut() }) else { return 0 };
        object
    }};
}

/// `provctx`: the provider's context.
pub(super) type ProviderContext = *mut Arc<Provider>;

// The provider.

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("one NUL, at the end"),
};

pub(crate) unsafe extern "C" fn provider_get(context: ProviderContext, params: *mut Param) -> c_int {
    let provider = lent!(context);
    checked(&provider.core, || {
        let known = |key: &CStr, put: Put<'_>| match key.to_bytes() {
            b"name" => put(Value::Text(c"hypergrove")),
            b"version" => put(Value::Text(VERSION)),
            b"buildinfo" => put(Value::Text(provider.info())),
            b"status" => put(Value::Number(provider.usable().is_ok().into())),
            _ => Ok(()),
        };
        // SAFETY: OpenSSL's parameters.
        unsafe { answer(params, known) }
    })
}

/// TLS 1.3 as a number.
const TLS_1_3: u64 = 0x0304;
/// The number of no version of a protocol.
const NEVER: i32 = -1;

pub(crate) unsafe extern "C" fn capabilities(
    context: ProviderContext,
    capability: *const c_char,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> c_int {
    let provider = lent!(context);
    // SAFETY: a string of C.
    let is_tls = unsafe { text(capability) }.eq_ignore_ascii_case("TLS-SIGALG");
    let (true, true, Some(callback)) = (is_tls, provider.offers_tls, callback) else { return 1 };
    guarded(&provider.core, 0, || {
        for named in &ALGORITHMS {
            let Some(code_point) = named.code_point else { continue };
            let values = [
                (c"tls-sigalg-iana-name", Value::Text(named.long)),
                (c"tls-sigalg-name", Value::Text(named.long)),
                (c"tls-sigalg-oid", Value::Text(named.oid)),
                (c"tls-sigalg-code-point", Value::Number(code_point.into())),
                (c"tls-sigalg-sec-bits", Value::Number(8 * named.set.n as u64)),
                (c"tls-min-tls", Value::Number(TLS_1_3)),
                (c"tls-max-tls", Value::Number(0)),
            ];
            let mut params = table(&values);
            // DTLS has no signatures of this kind.
            let never = |key: &'static CStr| Param {
                data: ptr::from_ref(&NEVER).cast_mut().cast(),
                size: size_of::<i32>(),
                ..Param::unset(key, kind::INTEGER)
            };
            params.splice(values.len().., [never(c"tls-min-dtls"), never(c"tls-max-dtls"), Param::END]);
            // SAFETY: the table ends as expected.
            if unsafe { callback(params.as_ptr(), argument) } != 1 {
                return Ok(0);
            }
        }
        Ok(1)
    })
}

/// Whether the private and the public part are selected.
fn selected(selection: c_int) -> (bool, bool) {
    (selection & selection::PRIVATE != 0, selection & selection::PUBLIC != 0)
}

pub(crate) unsafe extern "C" fn new<const I: usize>(context: ProviderContext) -> Object<Key> {
    // SAFETY: the provider's context.
    unsafe { made(context, |provider| Ok(Key::empty(provider.clone(), &ALGORITHMS[I]))) }
}

pub(crate) unsafe extern "C" fn duplicate(key: *const Key, selection: c_int) -> Object<Key> {
    // SAFETY: a key.
    let Some(key) = (unsafe { key.as_ref() }) else { return ptr::null_mut() };
    guarded(&key.provider.core, ptr::null_mut(), || Ok(give(key.copy(selected(selection).0))))
}

pub(crate) unsafe extern "C" fn has(key: *const Key, selection: c_int) -> c_int {
    let key = lent!(key);
    let (private, public) = selected(selection);
    guarded(&key.provider.core, 0, || Ok(key.has(private, public).into()))
}

pub(crate) unsafe extern "C" fn matches(key: *const Key, other: *const Key, selection: c_int) -> c_int {
    let (key, other) = (lent!(key), lent!(other));
    let (private, public) = selected(selection);
    guarded(&key.provider.core, 0, || Ok(key.matches(other, private, public).into()))
}

pub(crate) unsafe extern "C" fn validate(key: *const Key, selection: c_int, _: c_int) -> c_int {
    let key = lent!(key);
    let (private, public) = selected(selection);
    guarded(&key.provider.core, 0, || Ok(key.validate(private, public)?.into()))
}

pub(crate) unsafe extern "C" fn import(key: Object<Key>, selection: c_int, params: *const Param) -> c_int {
    let key = lent!(key);
    // SAFETY: OpenSSL's parameters.
    checked(&key.provider.core, || key.import(unsafe { Given::new(params) }, selected(selection).0))
}

pub(crate) unsafe extern "C" fn export(
    key: Object<Key>,
    selection: c_int,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> c_int {
    let key = lent!(key);
    guarded(&key.provider.core, 0, || {
        let (private, public) = selected(selection);
        if !private && !public {
            return Ok(0);
        }
        hand_over(key, private, public, callback, argument)
    })
}

fn hand_over(
    key: &Key,
    private: bool,
    public: bool,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> Result<c_int, Failure> {
    let callback = callback.ok_or_else(|| null("callback"))?;
    // SAFETY: the table ends as expected, and the callback copies what it keeps.
    let take = |parts: &[(&CStr, Value<'_>)]| unsafe { callback(table(parts).as_ptr(), argument) == 1 };
    Ok(key.export(private, public, take)?.into())
}

pub(crate) unsafe extern "C" fn load(reference: *mut Reference, size: usize) -> Object<Key> {
    if size != size_of::<Reference>() || reference.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the address of a reference of this provider, since OpenSSL gives it to the provider that made it. Its key has a new owner now.
    unsafe { reference.replace(ptr::null_mut()) }
}

pub(crate) unsafe extern "C" fn key_get(key: Object<Key>, params: *mut Param) -> c_int {
    let key = lent!(key);
    // SAFETY: OpenSSL's parameters.
    checked(&key.provider.core, || unsafe { answer(params, |name, put| key.answer(name, put)) })
}

pub(crate) unsafe extern "C" fn gen_init<const I: usize>(
    context: ProviderContext,
    _: c_int,
    params: *const Param,
) -> Object<Generation> {
    let make = |provider: &Arc<Provider>| {
        let mut generation = Generation::new(provider.clone(), &ALGORITHMS[I]);
        // SAFETY: OpenSSL's parameters.
        generation.set(unsafe { Given::new(params) })?;
        Ok(generation)
    };
    // SAFETY: the provider's context.
    unsafe { made(context, make) }
}

pub(crate) unsafe extern "C" fn gen_set(generation: Object<Generation>, params: *const Param) -> c_int {
    let generation = lent_mut!(generation);
    let core = generation.provider.core;
    // SAFETY: OpenSSL's parameters.
    checked(&core, || generation.set(unsafe { Given::new(params) }))
}

pub(crate) unsafe extern "C" fn generate(
    generation: Object<Generation>,
    _: Option<Callback>,
    _: *mut c_void,
) -> Object<Key> {
    // SAFETY: what `gen_init` gave.
    let Some(generation) = (unsafe { generation.as_ref() }) else { return ptr::null_mut() };
    guarded(&generation.provider.core, ptr::null_mut(), || Ok(give(generation.generate()?)))
}

// Signatures.

pub(crate) unsafe extern "C" fn new_context<const I: usize>(
    context: ProviderContext,
    _: *const c_char,
) -> Object<Context> {
    // SAFETY: the provider's context.
    unsafe { made(context, |provider| Ok(Context::new(provider.clone(), &ALGORITHMS[I]))) }
}

pub(crate) unsafe extern "C" fn duplicate_context(context: Object<Context>) -> Object<Context> {
    // SAFETY: what `new_context` gave.
    let Some(context) = (unsafe { context.as_ref() }) else { return ptr::null_mut() };
    guarded(context.core(), ptr::null_mut(), || Ok(give(context.clone())))
}

pub(crate) unsafe extern "C" fn begin(context: Object<Context>, key: *const Key, params: *const Param) -> c_int {
    // SAFETY: no digest.
    unsafe { begin_with_digest(context, ptr::null(), key, params) }
}

/// For EVP_PKEY_sign_init of OpenSSL before 3.4, whose callers have hashed the message: EVP_SignFinal, pkeyutl without -rawin.
pub(crate) unsafe extern "C" fn begin_digest(context: Object<Context>, _: *const Key, _: *const Param) -> c_int {
    let context = lent_mut!(context);
    checked(context.core(), || Err(context.takes_no_digest()))
}

pub(crate) unsafe extern "C" fn begin_with_digest(
    context: Object<Context>,
    digest: *const c_char,
    key: *const Key,
    params: *const Param,
) -> c_int {
    let context = lent_mut!(context);
    let core = *context.core();
    // SAFETY: a key or null, a string of C or null, and OpenSSL's parameters.
    checked(&core, || unsafe { context.begin(key.as_ref(), text(digest), Given::new(params)) })
}

/// Hands a signature over, or its length if there is no memory for it.
///
/// # Safety
/// `to` is null or has `room` bytes, and `length` has room for a number.
unsafe fn put_signature(
    context: &Context,
    to: *mut c_uchar,
    length: *mut usize,
    room: usize,
    sign: impl FnOnce(&Context) -> Result<Vec<u8>, Failure>,
) -> c_int {
    checked(context.core(), || {
        // SAFETY: see above.
        let length = unsafe { length.as_mut() }.ok_or_else(|| null("room for the signature's length"))?;
        let needed = context.signature_bytes();
        if !to.is_null() {
            if room < needed {
                let what = format!("the memory for the signature has {room} bytes; give it {needed}");
                return Err(Failure::new(Reason::Buffer, what));
            }
            let signature = sign(context)?;
            // SAFETY: the room has been checked.
            unsafe { ptr::copy_nonoverlapping(signature.as_ptr(), to, needed.min(signature.len())) };
        }
        *length = needed;
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn sign(
    context: Object<Context>,
    to: *mut c_uchar,
    length: *mut usize,
    room: usize,
    message: *const c_uchar,
    message_length: usize,
) -> c_int {
    let context = lent!(context);
    // SAFETY: the caller's memory.
    unsafe { put_signature(context, to, length, room, |context| context.sign(bytes(message, message_length))) }
}

pub(crate) unsafe extern "C" fn sign_parts(
    context: Object<Context>,
    to: *mut c_uchar,
    length: *mut usize,
    room: usize,
) -> c_int {
    let context = lent!(context);
    // SAFETY: the caller's memory.
    unsafe { put_signature(context, to, length, room, Context::sign_parts) }
}

pub(crate) unsafe extern "C" fn update(context: Object<Context>, part: *const c_uchar, length: usize) -> c_int {
    let context = lent_mut!(context);
    let core = *context.core();
    // SAFETY: the caller's memory.
    checked(&core, || context.update(unsafe { bytes(part, length) }))
}

pub(crate) unsafe extern "C" fn verify(
    context: Object<Context>,
    signature: *const c_uchar,
    length: usize,
    message: *const c_uchar,
    message_length: usize,
) -> c_int {
    let context = lent!(context);
    guarded(context.core(), 0, || {
        // SAFETY: the caller's memory.
        let (signature, message) = unsafe { (bytes(signature, length), bytes(message, message_length)) };
        Ok(context.verify(message, signature)?.into())
    })
}

pub(crate) unsafe extern "C" fn verify_parts(
    context: Object<Context>,
    signature: *const c_uchar,
    length: usize,
) -> c_int {
    let context = lent!(context);
    // SAFETY: the caller's memory.
    guarded(context.core(), 0, || Ok(context.verify_parts(Some(unsafe { bytes(signature, length) }))?.into()))
}

pub(crate) unsafe extern "C" fn verify_set(context: Object<Context>) -> c_int {
    let context = lent!(context);
    guarded(context.core(), 0, || Ok(context.verify_parts(None)?.into()))
}

pub(crate) unsafe extern "C" fn context_set(context: Object<Context>, params: *const Param) -> c_int {
    let context = lent_mut!(context);
    let core = *context.core();
    // SAFETY: OpenSSL's parameters.
    checked(&core, || context.set(unsafe { Given::new(params) }))
}

pub(crate) unsafe extern "C" fn context_get(context: Object<Context>, params: *mut Param) -> c_int {
    let context = lent!(context);
    // SAFETY: OpenSSL's parameters.
    checked(context.core(), || unsafe { answer(params, |key, put| context.answer(key).map_or(Ok(()), put)) })
}

// Encoders.

pub(crate) unsafe extern "C" fn new_encoder<const F: usize>(context: ProviderContext) -> Object<Encoder> {
    // SAFETY: the provider's context.
    unsafe { made(context, |provider| Ok(Encoder::new(provider.clone(), &FORMS[F]))) }
}

pub(crate) unsafe extern "C" fn encoder_set(encoder: Object<Encoder>, params: *const Param) -> c_int {
    let encoder = lent_mut!(encoder);
    let core = encoder.provider.core;
    // SAFETY: OpenSSL's parameters.
    checked(&core, || encoder.set(unsafe { Given::new(params) }))
}

pub(crate) extern "C" fn encodes<const F: usize>(_: ProviderContext, selection: c_int) -> c_int {
    let (private, public) = selected(selection);
    FORMS[F].structure.has(private, public).into()
}

pub(crate) unsafe extern "C" fn encode(
    encoder: Object<Encoder>,
    to: CoreBio,
    key: *const Key,
    parts: *const Param,
    selection: c_int,
    callback: Option<PassphraseCallback>,
    argument: *mut c_void,
) -> c_int {
    let encoder = lent!(encoder);
    let core = encoder.provider.core;
    checked(&core, || {
        // SAFETY: a key, or null where the key is another provider's.
        let key = unsafe { key.as_ref() }.filter(|_| parts.is_null()).ok_or_else(|| null("key of this provider"))?;
        // SAFETY: the BIO is open during the call.
        let mut to = unsafe { core.bio(to) };
        encoder.encode(key, selected(selection).0, &mut to, &Passphrase { callback, argument })
    })
}

// Decoders.

pub(crate) unsafe extern "C" fn new_decoder<const I: usize, const S: usize>(
    context: ProviderContext,
) -> Object<Decoder> {
    // SAFETY: the provider's context.
    unsafe { made(context, |provider| Ok(Decoder::new(provider.clone(), &ALGORITHMS[I], READ[S].0))) }
}

pub(crate) extern "C" fn decodes<const S: usize>(_: ProviderContext, selection: c_int) -> c_int {
    let (private, public) = selected(selection);
    READ[S].0.has(private, public).into()
}

/// OSSL_OBJECT_PKEY.
const OBJECT_KEY: u64 = 2;

pub(crate) unsafe extern "C" fn decode(
    decoder: Object<Decoder>,
    from: CoreBio,
    _: c_int,
    callback: Option<Callback>,
    argument: *mut c_void,
    _: Option<PassphraseCallback>,
    _: *mut c_void,
) -> c_int {
    let decoder = lent!(decoder);
    let core = decoder.provider.core;
    guarded(&core, 0, || {
        // SAFETY: the BIO is open during the call.
        let mut from = unsafe { core.bio(from) };
        // Other decoders may know an input that is no key of this algorithm.
        let Some(key) = decoder.decode(&mut from)? else { return Ok(1) };
        let callback = callback.ok_or_else(|| null("callback"))?;
        let mut reference: Reference = give(key);
        let address = &raw mut reference;
        let found = [
            (c"type", Value::Number(OBJECT_KEY)),
            (c"data-type", Value::Text(decoder.named().long)),
            (c"reference", Value::Writable(address.cast(), size_of::<Reference>())),
        ];
        // SAFETY: the table ends as expected. Whoever takes the key sets the reference to null: see `load`.
        let answer = unsafe { callback(table(&found).as_ptr(), argument) };
        // SAFETY: nobody took it if it is not null.
        unsafe { free(address.read()) };
        Ok(answer)
    })
}

pub(crate) unsafe extern "C" fn export_object(
    decoder: Object<Decoder>,
    reference: *const Reference,
    size: usize,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> c_int {
    let decoder = lent!(decoder);
    guarded(&decoder.provider.core, 0, || {
        // SAFETY: the address of a reference of this provider, whose key is still there.
        let key = unsafe { reference.as_ref().and_then(|key| key.as_ref()) };
        let key = key.filter(|_| size == size_of::<Reference>()).ok_or_else(|| null("key of this provider"))?;
        let is_private = key.some_material()?.private.is_some();
        hand_over(key, is_private, true, callback, argument)
    })
}
