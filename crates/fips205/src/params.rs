//! The parameter sets (FIPS 205, Table 2): one row a set, every size derived from it.

use crate::quote::Quote;
use core::fmt;
use core::str::FromStr;

macro_rules! families {
    ($($(#[$doc:meta])* $variant:ident $name:literal;)*) => {
        /// The hash family a set is built on.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        pub enum Family { $($(#[$doc])* $variant,)* }

        impl Family {
            /// All families, in order.
            pub const ALL: &[Family] = &[$(Family::$variant,)*];
            /// The standard's name of the family, as it is in names of sets.
            pub const fn name(self) -> &'static str {
                match self { $(Family::$variant => $name,)* }
            }
        }
    };
}

families! {
    /// SHA-256, and SHA-512 in categories 3 and 5 (FIPS 205, 11.2).
    Sha2 "SHA2";
    /// SHAKE256 (FIPS 205, 11.1).
    Shake "SHAKE";
}

/// Who has published a set, and what it is good for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SetStatus {
    /// A set of FIPS 205.
    Standard {
        /// Last arc of the set's OID below 2.16.840.1.101.3.4.3 (RFC 9909).
        oid_arc: u8,
    },
    /// A set of a draft. It has no OID yet.
    Draft {
        /// Signatures that a key may make.
        signatures: u64,
    },
    /// A set for tests, without any security.
    Toy,
}

/// One parameter set, in FIPS 205's symbols. All sizes are in bytes, all heights in levels.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct Params {
    /// The standard's name of the set, for example `SLH-DSA-SHA2-128s`.
    pub name: &'static str,
    /// The hash family: SHA2 or SHAKE.
    pub family: Family,
    /// Security parameter: bytes of a hash value.
    pub n: usize,
    /// Height of the hypertree.
    pub h: usize,
    /// Layers of the hypertree.
    pub d: usize,
    /// h′ = h / d: height of one XMSS tree.
    pub hp: usize,
    /// Height of one FORS tree.
    pub a: usize,
    /// Number of FORS trees.
    pub k: usize,
    /// log₂ of the Winternitz parameter.
    pub lg_w: usize,
    /// Bytes of the message digest.
    pub m: usize,
    /// The standard, a draft, or neither.
    pub status: SetStatus,
}

macro_rules! sets {
    ($(#[$doc:meta])* $list:ident: $($konst:ident $name:literal $family:ident $n:literal $h:literal $d:literal $hp:literal $a:literal $k:literal $lg_w:literal $m:literal $status:expr;)*) => {
        $(#[$doc])*
        pub static $list: &[&Params] = &[$(&$konst,)*];
        $(
            #[doc = concat!("The set ", $name, ".")]
            pub static $konst: Params = Params {
                name: $name, family: Family::$family, n: $n, h: $h, d: $d, hp: $hp, a: $a, k: $k, lg_w: $lg_w, m: $m, status: $status,
            };
            const _: () = $konst.check();
        )*
    };
}

/// A set of FIPS 205 with this last arc of its OID.
const fn oid(oid_arc: u8) -> SetStatus {
    SetStatus::Standard { oid_arc }
}

/// A draft's set whose keys make at most 2^log signatures.
const fn draft(log: u32) -> SetStatus {
    SetStatus::Draft { signatures: 1 << log }
}

sets! {
    /// The twelve sets of the standard, in the order of FIPS 205, Table 2.
    PARAMETER_SETS:
    //                                          family  n   h   d  h'   a   k lg_w m  status
    SLH_DSA_SHA2_128S  "SLH-DSA-SHA2-128s"      Sha2   16  63  7   9  12  14  4  30  oid(20);
    SLH_DSA_SHAKE_128S "SLH-DSA-SHAKE-128s"     Shake  16  63  7   9  12  14  4  30  oid(26);
    SLH_DSA_SHA2_128F  "SLH-DSA-SHA2-128f"      Sha2   16  66 22   3   6  33  4  34  oid(21);
    SLH_DSA_SHAKE_128F "SLH-DSA-SHAKE-128f"     Shake  16  66 22   3   6  33  4  34  oid(27);
    SLH_DSA_SHA2_192S  "SLH-DSA-SHA2-192s"      Sha2   24  63  7   9  14  17  4  39  oid(22);
    SLH_DSA_SHAKE_192S "SLH-DSA-SHAKE-192s"     Shake  24  63  7   9  14  17  4  39  oid(28);
    SLH_DSA_SHA2_192F  "SLH-DSA-SHA2-192f"      Sha2   24  66 22   3   8  33  4  42  oid(23);
    SLH_DSA_SHAKE_192F "SLH-DSA-SHAKE-192f"     Shake  24  66 22   3   8  33  4  42  oid(29);
    SLH_DSA_SHA2_256S  "SLH-DSA-SHA2-256s"      Sha2   32  64  8   8  14  22  4  47  oid(24);
    SLH_DSA_SHAKE_256S "SLH-DSA-SHAKE-256s"     Shake  32  64  8   8  14  22  4  47  oid(30);
    SLH_DSA_SHA2_256F  "SLH-DSA-SHA2-256f"      Sha2   32  68 17   4   9  35  4  49  oid(25);
    SLH_DSA_SHAKE_256F "SLH-DSA-SHAKE-256f"     Shake  32  68 17   4   9  35  4  49  oid(31);
}

sets! {
    /// The sets of draft SP 800-230, which was not final in August 2026: at most 2^24 signatures a key, one tree, lg_w ≠ 4. Only who names
    /// such a set gets it.
    DRAFT_SETS:
    //                                          family  n   h   d  h'   a   k lg_w m  status
    SLH_DSA_SHA2_128_24  "SLH-DSA-SHA2-128-24"  Sha2   16  22  1  22  24   6  2  21   draft(24);
    SLH_DSA_SHAKE_128_24 "SLH-DSA-SHAKE-128-24" Shake  16  22  1  22  24   6  2  21   draft(24);
    SLH_DSA_SHA2_192_24  "SLH-DSA-SHA2-192-24"  Sha2   24  21  1  21  25   9  3  32   draft(24);
    SLH_DSA_SHAKE_192_24 "SLH-DSA-SHAKE-192-24" Shake  24  21  1  21  25   9  3  32   draft(24);
    SLH_DSA_SHA2_256_24  "SLH-DSA-SHA2-256-24"  Sha2   32  21  1  21  25  12  2  41   draft(24);
    SLH_DSA_SHAKE_256_24 "SLH-DSA-SHAKE-256-24" Shake  32  21  1  21  25  12  2  41   draft(24);
}

/// Every set that has a name: those of the standard, then those of the draft.
pub fn known_sets() -> impl Iterator<Item = &'static Params> + Clone {
    PARAMETER_SETS.iter().chain(DRAFT_SETS).copied()
}

/// FORS trees that a set has, at most.
pub(crate) const MAX_K: usize = 35;
/// Bytes of a message digest, at most.
pub(crate) const MAX_M: usize = 49;

impl Params {
    /// Panics if the fields do not fit each other. Each table of sets is checked when it is compiled.
    #[doc(hidden)]
    pub const fn check(&self) {
        let p = self;
        assert!(p.h == p.d * p.hp, "h = d·h′");
        assert!(p.n == 16 || p.n == 24 || p.n == 32, "n");
        assert!(p.m == (p.k * p.a).div_ceil(8) + (p.h - p.hp).div_ceil(8) + p.hp.div_ceil(8), "m (FIPS 205, 9.2)");
        assert!(p.k <= MAX_K && p.m <= MAX_M, "indices and digests fit their arrays");
        assert!(p.h - p.hp <= 64 && p.hp <= 32 && p.a <= 32, "indices fit their integers");
        assert!(
            p.lg_w >= 1 && p.lg_w <= 8 && (8 * p.n).is_multiple_of(p.lg_w),
            "a WOTS+ digit fits a byte, and digits fit n bytes"
        );
    }
    /// Last arc of the set's OID below 2.16.840.1.101.3.4.3, if the set has one.
    pub const fn oid_arc(&self) -> Option<u8> {
        match self.status {
            SetStatus::Standard { oid_arc } => Some(oid_arc),
            SetStatus::Draft { .. } | SetStatus::Toy => None,
        }
    }
    /// How many signatures a key may make, if the set has a limit.
    pub const fn signature_limit(&self) -> Option<u64> {
        match self.status {
            SetStatus::Draft { signatures } => Some(signatures),
            SetStatus::Standard { .. } | SetStatus::Toy => None,
        }
    }
    /// Whether the set is one for tests, without any security.
    pub const fn is_toy(&self) -> bool {
        matches!(self.status, SetStatus::Toy)
    }
    /// w = 2^lg_w: values of a WOTS+ digit.
    pub const fn w(&self) -> usize {
        1 << self.lg_w
    }
    /// len₁ = ⌈8n / lg_w⌉: WOTS+ digits of the message (FIPS 205, equation 5.2).
    pub const fn len1(&self) -> usize {
        (8 * self.n).div_ceil(self.lg_w)
    }
    /// len₂: WOTS+ digits of the checksum (FIPS 205, Algorithm 1).
    pub const fn len2(&self) -> usize {
        (self.len1() * (self.w() - 1)).ilog2() as usize / self.lg_w + 1
    }
    /// len = len₁ + len₂: chains of a WOTS+ key.
    #[allow(clippy::len_without_is_empty)] // the standard's name, not a collection's length
    pub const fn len(&self) -> usize {
        self.len1() + self.len2()
    }
    /// Bytes of a public key.
    pub const fn pk_bytes(&self) -> usize {
        2 * self.n
    }
    /// Bytes of a private key.
    pub const fn sk_bytes(&self) -> usize {
        4 * self.n
    }
    /// Bytes of SIG_FORS.
    pub const fn fors_bytes(&self) -> usize {
        self.k * (1 + self.a) * self.n
    }
    /// Bytes of one layer's SIG_XMSS.
    pub const fn xmss_bytes(&self) -> usize {
        (self.len() + self.hp) * self.n
    }
    /// Bytes of a signature: R ‖ SIG_FORS ‖ SIG_HT.
    pub const fn sig_bytes(&self) -> usize {
        self.n + self.fors_bytes() + self.d * self.xmss_bytes()
    }
    /// Another name of [`sig_bytes`](Params::sig_bytes).
    pub const fn signature_bytes(&self) -> usize {
        self.sig_bytes()
    }
    /// NIST security category: 1, 3 or 5.
    pub const fn category(&self) -> u8 {
        match self.n {
            16 => 1,
            24 => 3,
            _ => 5,
        }
    }
}

impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The set of this name, in upper or lower case, with hyphens or underscores, with or without `SLH-DSA-` before it.
///
/// ```
/// use hypergrove_fips205::{Params, SLH_DSA_SHA2_128F};
///
/// let p: &Params = "sha2-128f".parse()?;
/// assert_eq!(p, &SLH_DSA_SHA2_128F);
/// # Ok::<(), hypergrove_fips205::UnknownSet>(())
/// ```
impl FromStr for &'static Params {
    type Err = UnknownSet;

    fn from_str(name: &str) -> Result<&'static Params, UnknownSet> {
        let given = without_prefix(name);
        let known = known_sets().find(|p| is_name(without_prefix(p.name), given));
        let names = || PARAMETER_SETS.iter().flat_map(|p| [p.name, without_prefix(p.name)]);
        known.ok_or_else(|| UnknownSet { name: Quote::name(name, names()) })
    }
}

/// The error of a name that no set has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownSet {
    name: Quote,
}

impl fmt::Display for UnknownSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no set {}; the sets are ", self.name)?;
        list(f, PARAMETER_SETS.iter().map(|p| p.name))
    }
}

impl core::error::Error for UnknownSet {}

/// Names, with commas between them.
pub(crate) fn list(f: &mut fmt::Formatter<'_>, names: impl Iterator<Item = &'static str>) -> fmt::Result {
    for (i, name) in names.enumerate() {
        write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
    }
    Ok(())
}

fn without_prefix(name: &str) -> &str {
    const PREFIX: &str = "SLH-DSA-";
    match name.split_at_checked(PREFIX.len()) {
        Some((prefix, rest)) if is_name(PREFIX, prefix) => rest,
        _ => name,
    }
}

/// Whether somebody who typed `given` meant the name: environment variables and identifiers have underscores for hyphens.
fn is_name(name: &str, given: &str) -> bool {
    let letter = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.bytes().map(letter).eq(given.bytes().map(letter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn sets_are_found_by_any_spelling_and_others_are_suggested() {
        for p in known_sets() {
            for name in [p.name, without_prefix(p.name)] {
                for name in [name.to_lowercase(), name.to_uppercase(), name.into()] {
                    assert_eq!(name.parse(), Ok(p), "{name}");
                    assert_eq!(name.replace('-', "_").parse(), Ok(p), "{name} with underscores");
                    assert_eq!(name.replacen('-', "_", 1).parse(), Ok(p), "{name} with an underscore");
                }
            }
        }
        for (wrong, shown) in [
            ("SLH-DSA-SHA2-128x", "'SLH-DSA-SHA2-128x' (did you mean 'SLH-DSA-SHA2-128s'?)"),
            ("SLH-DSA-SHAKE256s", "'SLH-DSA-SHAKE256s' (did you mean 'SLH-DSA-SHAKE-256s'?)"),
            ("shake-192-f", "'shake-192-f' (did you mean 'SHAKE-192f'?)"),
            ("128s", "'128s'"),
            ("SPHINCS", "'SPHINCS'"),
            ("", "''"),
            ("SLH-DSA-", "'…' (8 characters, not shown)"),
            ("SLH-DSAé", "'…' (8 characters, not shown)"),
        ] {
            let error = wrong.parse::<&Params>().unwrap_err().to_string();
            assert!(
                error.starts_with(&alloc::format!("there is no set {shown}; the sets are SLH-DSA-SHA2-128s, ")),
                "{error}"
            );
        }
        let long = "x\n".repeat(1_000_000).parse::<&Params>().unwrap_err().to_string();
        assert!(long.contains("'…' (2000000 characters, not shown)"), "{long}");
    }
}
