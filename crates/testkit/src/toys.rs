//! Toy sets: small enough that tests try every leaf, digit and changed byte. They have no security at all, so no product has them.

use hypergrove_fips205::{Family, Params, SetStatus};

macro_rules! toys {
    ($($konst:ident $name:literal $family:ident $n:literal $h:literal $d:literal $hp:literal $a:literal $k:literal $lg_w:literal $m:literal;)*) => {
        /// Every toy set.
        pub static TOYS: &[&Params] = &[$(&$konst,)*];
        $(
            #[doc = concat!("The set ", $name, ".")]
            pub static $konst: Params = Params {
                name: $name, family: Family::$family, n: $n, h: $h, d: $d, hp: $hp, a: $a, k: $k, lg_w: $lg_w, m: $m, status: SetStatus::Toy,
            };
            const _: () = $konst.check();
        )*
    };
}

toys! {
    //                              family  n   h  d  h'  a  k lg_w m
    TOY_SHA2_16  "toy-SHA2-16"      Sha2   16   4  2   2  3  4  4   4;
    TOY_SHAKE_24 "toy-SHAKE-24"     Shake  24   4  2   2  3  4  4   4;
    TOY_SHA2_32  "toy-SHA2-32-w4"   Sha2   32   3  1   3  4  3  2   3;
    TOY_SHA2_24  "toy-SHA2-24-w8"   Sha2   24   4  2   2  3  4  3   4;
}

/// The sets of the standard, of the draft, and the toys.
pub fn every_set() -> impl Iterator<Item = &'static Params> {
    hypergrove_fips205::known_sets().chain(TOYS.iter().copied())
}
