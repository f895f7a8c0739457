//! How OpenSSL begins with this provider: the function that it looks for in the module, and the table of the provider's own functions.

use super::core::{Core, Handle};
use super::entries::{ProviderContext, capabilities, checked, free, give, provider_get};
use super::types::{Algorithm, Dispatch, Item, Param, Table, parameters};
use crate::failure::Reason;
use crate::numbers::function::provider;
use crate::numbers::{kind, operation};
use crate::provider::Provider;
use crate::tables;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

/// The one name that the module exports: OpenSSL calls it when it loads the module.
///
/// # Safety
/// OpenSSL calls this as `OSSL_provider_init_fn` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn OSSL_provider_init(
    handle: Handle,
    functions: *const Dispatch,
    own: *mut *const Dispatch,
    context: *mut ProviderContext,
) -> c_int {
    // The standard library of this module is its own, so this hook concerns no other code. Panics are reported by `guarded`.
    std::panic::set_hook(Box::new(|_| {}));
    // SAFETY: the core's table of functions.
    let Some(core) = (unsafe { Core::new(handle, functions) }) else { return 0 };
    checked(&core, || {
        let provider = Arc::new(Provider::new(core)?);
        // SAFETY: the caller has room for both.
        unsafe {
            own.write(PROVIDER.0.as_ptr());
            context.write(give(provider));
        }
        Ok(())
    })
}

unsafe extern "C" fn query(context: ProviderContext, operation: c_int, no_store: *mut c_int) -> *const Algorithm {
    // SAFETY: the caller has room for a number.
    if let Some(no_store) = unsafe { no_store.as_mut() } {
        *no_store = 0;
    }
    match operation {
        operation::KEYMGMT => tables::KEYMGMT.0.as_ptr(),
        // SAFETY: the provider's context.
        operation::SIGNATURE => match unsafe { context.as_ref() }.is_some_and(|provider| provider.has_messages) {
            true => tables::SIGNATURE_OF_MESSAGES.0.as_ptr(),
            false => tables::SIGNATURE.0.as_ptr(),
        },
        operation::ENCODER => tables::ENCODERS.0.as_ptr(),
        operation::DECODER => tables::DECODERS.0.as_ptr(),
        _ => ptr::null(),
    }
}

static PROVIDER: Table<Dispatch, 7> = Table([
    Dispatch::new(provider::TEARDOWN, free::<Arc<Provider>> as *const ()),
    Dispatch::new(provider::GETTABLE_PARAMS, provider_gettable as *const ()),
    Dispatch::new(provider::GET_PARAMS, provider_get as *const ()),
    Dispatch::new(provider::QUERY_OPERATION, query as *const ()),
    Dispatch::new(provider::GET_REASON_STRINGS, reasons as *const ()),
    Dispatch::new(provider::GET_CAPABILITIES, capabilities as *const ()),
    Dispatch::END,
]);

parameters! {
    fn provider_gettable(_: *const c_void) {
        Param::unset(c"name", kind::UTF8_POINTER),
        Param::unset(c"version", kind::UTF8_POINTER),
        Param::unset(c"buildinfo", kind::UTF8_POINTER),
        Param::unset(c"status", kind::UNSIGNED),
    }
}

extern "C" fn reasons(_: *const c_void) -> *const Item {
    const COUNT: usize = Reason::ALL.len() + 1;
    static TABLE: Table<Item, COUNT> = Table({
        let mut table = [Item { id: 0, text: ptr::null() }; COUNT];
        let mut i = 0;
        while i < Reason::ALL.len() {
            table[i] = Item { id: Reason::ALL[i].0 as u32, text: Reason::ALL[i].1.as_ptr() };
            i += 1;
        }
        table
    });
    TABLE.0.as_ptr()
}
