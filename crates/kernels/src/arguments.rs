//! The arguments of single kernels, by the names that their own files have for them. Each is a structure without defaults, so
//! that the compiler asks for every argument that the kernel reads, and no launch brings another kernel's.

mod slh_dsa;
mod zkdilithium;

pub use slh_dsa::*;
pub use zkdilithium::*;

use crate::{Args, Kernel};

/// The arguments of one kernel, but for its threads' worth of work.
pub trait Arguments {
    /// The kernel.
    const KERNEL: Kernel;
    /// The structure that all kernels get; `total` is their threads' worth of work.
    fn args(self, total: u32) -> Args;
}

/// Puts a value where [`Args`] has it.
macro_rules! put {
    ($args:ident, $value:expr, group) => {
        $value.put(&mut $args)
    };
    ($args:ident, $value:expr, groups) => {
        $value.into_iter().for_each(|group| group.put(&mut $args))
    };
    ($args:ident, $value:expr, flags: $bit:ident) => {
        $args.flags |= flag($value, crate::flags::$bit)
    };
    ($args:ident, $value:expr, $slot:ident) => {
        $args.$slot = $value
    };
    ($args:ident, $value:expr, $slot:ident + $again:ident) => {
        ($args.$slot, $args.$again) = ($value, $value)
    };
}

/// `name => slot`: where the argument is in [`Args`]; `name => flags: BIT` is a flag, `name => group` has several arguments, and so does
/// `name => groups` if its `Option` has a value; `flags of it`: other flags that the kernel gets.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident for $kernel:ident $(, flags of $it:ident: $flags:expr)? => {
        $($(#[$field_doc:meta])* $field:ident: $kind:ty => $slot:ident $(+ $again:ident)? $(: $bit:ident)?,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind,)* }

        impl $crate::arguments::Arguments for $name {
            const KERNEL: $crate::Kernel = $crate::Kernel::$kernel;
            fn args(self, total: u32) -> $crate::Args {
                let mut args = $crate::Args { total, one: 1, ..$crate::Args::default() };
                $($crate::arguments::put!(args, self.$field, $slot $(+ $again)? $(: $bit)?);)*
                $(let $it = self; args.flags |= $flags;)?
                args
            }
        }
    )*};
}
use {arguments, put};

fn flag(is_set: bool, flag: u32) -> u32 {
    if is_set { flag } else { 0 }
}

arguments! {
    /// SHA-256 of messages that have the same length and lie one after the other. A thread a message.
    HashRows for Sha256, flags of it: flag(it.bytes.is_multiple_of(16), crate::flags::QUADS) => {
        /// The messages.
        messages: u64 => sigs,
        /// Bytes of each: a multiple of 4.
        bytes: u32 => count,
        /// The digests.
        digests: u64 => outs,
    }
    /// SHA-256 of messages that lie where a table says, each at a multiple of 16 bytes. A thread a message.
    HashSpans for Sha256, flags of _it: crate::flags::SPANS | crate::flags::QUADS => {
        /// The messages.
        messages: u64 => sigs,
        /// Of each message where it begins, in 16 bytes, its bytes, and the number of its digest.
        table: u64 => jobs,
        /// The digests.
        digests: u64 => outs,
    }
}
