//! Sizes of what zkDilithium's kernels share, in words; `zk/layout.h` has them, and says what is inside.

use crate::headers::number_after;
use hypergrove_zkdilithium::params;

crate::headers::defined! { "zk/layout.h":
    /// An expanded key.
    KEY_SIZE: usize;
    /// Where tr lies in an expanded key.
    KEY_TR: usize;
    /// The seeds of a key pair: ρ, ρ′, `key`.
    SEED_SIZE: usize;
    /// A polynomial of s₁ or s₂ in key generation.
    SHORT_SIZE: usize;
    /// A job: its key, the first word of its message, its bytes or a kind of elements.
    JOB_SIZE: usize;
    /// Instead of a message's bytes: 24 elements, to be hashed.
    IS_BLOCK: u32;
    /// Instead of a message's bytes: μ itself.
    IS_MU: u32;
    /// The start of a job's attempts: μ, the state after μ, ρ″.
    START_SIZE: usize;
    /// An attempt: its job and κ.
    TRY_SIZE: usize;
    /// The results of an attempt: y, w, w₁, c̃, the draws and the signature.
    MADE_SIZE: usize;
    /// Where c̃ lies in the results of an attempt.
    MADE_C: usize;
    /// Where t lies in a private key.
    SK_T: usize;
    /// Where tr lies in a private key.
    SK_TR: usize;
    /// Where t lies in a public key.
    PK_T: usize;
}

/// Sizes that the scheme fixes are equal in the layout.
const _: () = {
    const fn words(define: &str) -> usize {
        number_after(FILE, define) as usize
    }
    assert!(4 * words("#define SK_SIZE ") == params::SK_BYTES);
    assert!(4 * words("#define PK_SIZE ") == params::PK_BYTES);
    assert!(4 * words("#define ETA_SIZE ") == params::ETA_BYTES);
    assert!(4 * words("#define T_SIZE ") == params::T_BYTES);
    assert!(4 * words("#define Y_SIZE ") == params::GAMMA1_BYTES);
    assert!(4 * words("#define SIG_Z ") == params::C_TILDE_BYTES);
    assert!(4 * words("#define SIG_SIZE ") == params::SIG_BYTES);
    assert!(words("#define MADE_SIZE ") >= words("#define MADE_SIG ") + words("#define SIG_SIZE "));
    assert!(words("#define MADE_SIZE ").is_multiple_of(4));
};

/// Bits of `Args::flags`.
pub mod flags {
    crate::headers::defined! { "zk/layout.h":
        /// Keys are public ones; signatures are judged, not made.
        OF_PUBLIC: u32;
        /// `zk_sponge`: 0 and tr, from the beginning.
        OF_TR: u32;
        /// The message, from the state after tr; then μ from the beginning.
        OF_MU: u32;
        /// w₁, from the state after μ.
        OF_COM: u32;
        /// Draws from c̃.
        OF_BALL: u32;
    }
}
