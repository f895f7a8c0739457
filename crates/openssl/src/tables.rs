//! The tables that OpenSSL reads: functions by their numbers, algorithms by their names, and parameters by their keys.

use crate::abi::entries::*;
use crate::abi::{Algorithm, Dispatch, Param, Table, parameters};
use crate::algorithms::{ALGORITHMS, COUNT};
use crate::codec::{CIPHER, Decoder, Encoder, FORMS, READ};
use crate::key::{Generation, Key, name};
use crate::numbers::function::{decoder, encoder, keymgmt, signature};
use crate::numbers::{kind, selection};
use crate::signature::{Context, name as of_signature};
use std::ffi::{CStr, c_int, c_void};
use std::ptr;

// Tables with an entry for each algorithm.

/// The functions of a type for each algorithm, or for each of some numbers.
macro_rules! each {
    ($type:ident) => {
        each!($type 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23)
    };
    ($type:ident $($i:literal)*) => { [$($type::<$i>::FUNCTIONS.as_ptr()),*] };
}

/// An entry for each algorithm with one set of functions.
const fn entries(functions: [*const Dispatch; COUNT]) -> Table<Algorithm, { COUNT + 1 }> {
    let mut all = [Algorithm::END; COUNT + 1];
    let mut i = 0;
    while i < COUNT {
        all[i] = entry(i, c"provider=hypergrove", functions[i]);
        i += 1;
    }
    Table(all)
}

const fn entry(i: usize, properties: &'static CStr, functions: *const Dispatch) -> Algorithm {
    let named = &ALGORITHMS[i];
    Algorithm {
        names: named.names.as_ptr(),
        properties: properties.as_ptr(),
        functions,
        description: named.description.as_ptr(),
    }
}

pub(crate) static KEYMGMT: Table<Algorithm, { COUNT + 1 }> = entries(each!(OfKey));
pub(crate) static SIGNATURE: Table<Algorithm, { COUNT + 1 }> = entries(each!(OfSignature));
pub(crate) static SIGNATURE_OF_MESSAGES: Table<Algorithm, { COUNT + 1 }> = entries(each!(OfMessages));

pub(crate) static ENCODERS: Table<Algorithm, { COUNT * FORMS.len() + 1 }> = Table({
    let functions: [*const Dispatch; FORMS.len()] = each!(OfEncoder 0 1 2 3 4 5 6);
    let mut all = [Algorithm::END; COUNT * FORMS.len() + 1];
    let mut i = 0;
    while i < COUNT * FORMS.len() {
        let (algorithm, form) = (i / FORMS.len(), i % FORMS.len());
        all[i] = entry(algorithm, FORMS[form].properties, functions[form]);
        i += 1;
    }
    all
});

pub(crate) static DECODERS: Table<Algorithm, { COUNT * READ.len() + 1 }> = Table({
    let functions = [each!(OfPrivateKeyDecoder), each!(OfPublicKeyDecoder)];
    let mut all = [Algorithm::END; COUNT * READ.len() + 1];
    let mut i = 0;
    while i < COUNT * READ.len() {
        let (algorithm, structure) = (i / READ.len(), i % READ.len());
        all[i] = entry(algorithm, READ[structure].1, functions[structure][algorithm]);
        i += 1;
    }
    all
});

// Keys.

struct OfKey<const I: usize>;

impl<const I: usize> OfKey<I> {
    const FUNCTIONS: &[Dispatch] = &[
        Dispatch::new(keymgmt::NEW, new::<I> as *const ()),
        Dispatch::new(keymgmt::FREE, free::<Key> as *const ()),
        Dispatch::new(keymgmt::DUP, duplicate as *const ()),
        Dispatch::new(keymgmt::HAS, has as *const ()),
        Dispatch::new(keymgmt::MATCH, matches as *const ()),
        Dispatch::new(keymgmt::VALIDATE, validate as *const ()),
        Dispatch::new(keymgmt::IMPORT, import as *const ()),
        Dispatch::new(keymgmt::IMPORT_TYPES, key_types as *const ()),
        Dispatch::new(keymgmt::EXPORT, export as *const ()),
        Dispatch::new(keymgmt::EXPORT_TYPES, key_types as *const ()),
        Dispatch::new(keymgmt::LOAD, load as *const ()),
        Dispatch::new(keymgmt::GET_PARAMS, key_get as *const ()),
        Dispatch::new(keymgmt::GETTABLE_PARAMS, key_gettable as *const ()),
        Dispatch::new(keymgmt::GEN_INIT, gen_init::<I> as *const ()),
        Dispatch::new(keymgmt::GEN_SET_PARAMS, gen_set as *const ()),
        Dispatch::new(keymgmt::GEN_SETTABLE_PARAMS, gen_settable as *const ()),
        Dispatch::new(keymgmt::GEN, generate as *const ()),
        Dispatch::new(keymgmt::GEN_CLEANUP, free::<Generation> as *const ()),
        Dispatch::END,
    ];
}

extern "C" fn key_types(selection: c_int) -> *const Param {
    static TABLE: Table<Param, 3> =
        Table([Param::unset(name::PRIVATE, kind::OCTETS), Param::unset(name::PUBLIC, kind::OCTETS), Param::END]);
    match selection & selection::KEYPAIR {
        0 => ptr::null(),
        _ => TABLE.0.as_ptr(),
    }
}

parameters! {
    fn key_gettable(_: *const c_void) {
        Param::integer(name::BITS),
        Param::integer(name::SECURITY_BITS),
        Param::integer(name::SECURITY_CATEGORY),
        Param::integer(name::MAX_SIZE),
        Param::unset(name::MANDATORY_DIGEST, kind::UTF8),
        Param::unset(name::PUBLIC, kind::OCTETS),
        Param::unset(name::PRIVATE, kind::OCTETS),
    }
    fn gen_settable(_: *const c_void, _: *const c_void) {
        Param::unset(name::SEED, kind::OCTETS),
    }
}

// Signatures.

/// For releases of OpenSSL without functions for messages, where SIGN and VERIFY need the first two functions. Programs that call these give a
/// digest, and get an error.
struct OfSignature<const I: usize>;
/// For newer releases, which say themselves that no digest is signed.
struct OfMessages<const I: usize>;

impl<const I: usize> OfMessages<I> {
    const FUNCTIONS: &[Dispatch] = OfSignature::<I>::FUNCTIONS.split_at(2).1;
}

impl<const I: usize> OfSignature<I> {
    const FUNCTIONS: &[Dispatch] = &[
        Dispatch::new(signature::SIGN_INIT, begin_digest as *const ()),
        Dispatch::new(signature::VERIFY_INIT, begin_digest as *const ()),
        Dispatch::new(signature::NEWCTX, new_context::<I> as *const ()),
        Dispatch::new(signature::FREECTX, free::<Context> as *const ()),
        Dispatch::new(signature::DUPCTX, duplicate_context as *const ()),
        Dispatch::new(signature::SIGN, sign as *const ()),
        Dispatch::new(signature::VERIFY, verify as *const ()),
        Dispatch::new(signature::DIGEST_SIGN_INIT, begin_with_digest as *const ()),
        Dispatch::new(signature::DIGEST_SIGN_UPDATE, update as *const ()),
        Dispatch::new(signature::DIGEST_SIGN_FINAL, sign_parts as *const ()),
        Dispatch::new(signature::DIGEST_SIGN, sign as *const ()),
        Dispatch::new(signature::DIGEST_VERIFY_INIT, begin_with_digest as *const ()),
        Dispatch::new(signature::DIGEST_VERIFY_UPDATE, update as *const ()),
        Dispatch::new(signature::DIGEST_VERIFY_FINAL, verify_parts as *const ()),
        Dispatch::new(signature::DIGEST_VERIFY, verify as *const ()),
        Dispatch::new(signature::SIGN_MESSAGE_INIT, begin as *const ()),
        Dispatch::new(signature::SIGN_MESSAGE_UPDATE, update as *const ()),
        Dispatch::new(signature::SIGN_MESSAGE_FINAL, sign_parts as *const ()),
        Dispatch::new(signature::VERIFY_MESSAGE_INIT, begin as *const ()),
        Dispatch::new(signature::VERIFY_MESSAGE_UPDATE, update as *const ()),
        Dispatch::new(signature::VERIFY_MESSAGE_FINAL, verify_set as *const ()),
        Dispatch::new(signature::SET_CTX_PARAMS, context_set as *const ()),
        Dispatch::new(signature::SETTABLE_CTX_PARAMS, context_settable as *const ()),
        Dispatch::new(signature::GET_CTX_PARAMS, context_get as *const ()),
        Dispatch::new(signature::GETTABLE_CTX_PARAMS, context_gettable as *const ()),
        Dispatch::END,
    ];
}

parameters! {
    fn context_settable(_: *const c_void, _: *const c_void) {
        Param::integer(of_signature::DETERMINISTIC),
        Param::integer(of_signature::ENCODING),
        Param::unset(of_signature::CONTEXT, kind::OCTETS),
        Param::unset(of_signature::ENTROPY, kind::OCTETS),
        Param::unset(of_signature::SIGNATURE, kind::OCTETS),
    }
    fn context_gettable(_: *const c_void, _: *const c_void) {
        Param::unset(of_signature::ALGORITHM_ID, kind::OCTETS),
    }
}

// Encoders and decoders.

struct OfEncoder<const F: usize>;

impl<const F: usize> OfEncoder<F> {
    const FUNCTIONS: &[Dispatch] = &[
        Dispatch::new(encoder::NEWCTX, new_encoder::<F> as *const ()),
        Dispatch::new(encoder::FREECTX, free::<Encoder> as *const ()),
        Dispatch::new(encoder::SET_CTX_PARAMS, encoder_set as *const ()),
        Dispatch::new(encoder::SETTABLE_CTX_PARAMS, encoder_settable as *const ()),
        Dispatch::new(encoder::DOES_SELECTION, encodes::<F> as *const ()),
        Dispatch::new(encoder::ENCODE, encode as *const ()),
        Dispatch::END,
    ];
}

parameters! {
    fn encoder_settable(_: *const c_void) {
        Param::unset(CIPHER, kind::UTF8),
    }
}

struct OfPrivateKeyDecoder<const I: usize>;
struct OfPublicKeyDecoder<const I: usize>;

macro_rules! decoder_functions {
    ($type:ident $structure:literal) => {
        impl<const I: usize> $type<I> {
            const FUNCTIONS: &[Dispatch] = &[
                Dispatch::new(decoder::NEWCTX, new_decoder::<I, $structure> as *const ()),
                Dispatch::new(decoder::FREECTX, free::<Decoder> as *const ()),
                Dispatch::new(decoder::DOES_SELECTION, decodes::<$structure> as *const ()),
                Dispatch::new(decoder::DECODE, decode as *const ()),
                Dispatch::new(decoder::EXPORT_OBJECT, export_object as *const ()),
                Dispatch::END,
            ];
        }
    };
}

decoder_functions!(OfPrivateKeyDecoder 0);
decoder_functions!(OfPublicKeyDecoder 1);
