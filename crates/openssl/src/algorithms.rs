//! The algorithms of this provider: a key and a signature for each parameter set, pure and with a hash function (RFC 9909).

use hypergrove::*;
use std::ffi::CStr;

/// An algorithm as OpenSSL knows it.
pub(crate) struct Named {
    /// All names and the object identifier, with colons between them, as OpenSSL's own provider lists them.
    pub(crate) names: &'static CStr,
    /// The long name, which errors and printed keys have.
    pub(crate) long: &'static CStr,
    pub(crate) short: &'static CStr,
    pub(crate) oid: &'static CStr,
    pub(crate) description: &'static CStr,
    /// AlgorithmIdentifier in DER, without parameters.
    pub(crate) identifier: [u8; 13],
    pub(crate) set: &'static Params,
    /// Whether keys are those of HashSLH-DSA.
    pub(crate) is_hash: bool,
    /// SignatureScheme of TLS 1.3 in draft-reddy-tls-slhdsa-02, if it has one.
    pub(crate) code_point: Option<u16>,
}

const fn text(bytes: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(bytes.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("one NUL, at the end"),
    }
}

macro_rules! algorithms {
    ($($set:ident $long:literal $short:literal $arc:literal $is_hash:literal $code_point:expr;)*) => {
        /// All of them. Their number here is what `abi` knows them by.
        pub(crate) static ALGORITHMS: [Named; COUNT] = [$(Named {
            names: text(concat!($long, ":", $short, ":2.16.840.1.101.3.4.3.", $arc, "\0")),
            long: text(concat!($long, "\0")),
            short: text(concat!($short, "\0")),
            oid: text(concat!("2.16.840.1.101.3.4.3.", $arc, "\0")),
            description: text(concat!("hypergrove ", $long, "\0")),
            identifier: [0x30, 11, 6, 9, 0x60, 0x86, 0x48, 1, 101, 3, 4, 3, $arc],
            set: &$set,
            is_hash: $is_hash,
            code_point: $code_point,
        },)*];
    };
}

/// How many there are.
pub(crate) const COUNT: usize = 24;

// The names are those that OpenSSL 3.5 has.
algorithms! {
    SLH_DSA_SHA2_128S "SLH-DSA-SHA2-128s" "id-slh-dsa-sha2-128s" 20 false Some(0x0911);
    SLH_DSA_SHA2_128F "SLH-DSA-SHA2-128f" "id-slh-dsa-sha2-128f" 21 false Some(0x0912);
    SLH_DSA_SHA2_192S "SLH-DSA-SHA2-192s" "id-slh-dsa-sha2-192s" 22 false Some(0x0913);
    SLH_DSA_SHA2_192F "SLH-DSA-SHA2-192f" "id-slh-dsa-sha2-192f" 23 false Some(0x0914);
    SLH_DSA_SHA2_256S "SLH-DSA-SHA2-256s" "id-slh-dsa-sha2-256s" 24 false Some(0x0915);
    SLH_DSA_SHA2_256F "SLH-DSA-SHA2-256f" "id-slh-dsa-sha2-256f" 25 false Some(0x0916);
    SLH_DSA_SHAKE_128S "SLH-DSA-SHAKE-128s" "id-slh-dsa-shake-128s" 26 false Some(0x0917);
    SLH_DSA_SHAKE_128F "SLH-DSA-SHAKE-128f" "id-slh-dsa-shake-128f" 27 false Some(0x0918);
    SLH_DSA_SHAKE_192S "SLH-DSA-SHAKE-192s" "id-slh-dsa-shake-192s" 28 false Some(0x0919);
    SLH_DSA_SHAKE_192F "SLH-DSA-SHAKE-192f" "id-slh-dsa-shake-192f" 29 false Some(0x091A);
    SLH_DSA_SHAKE_256S "SLH-DSA-SHAKE-256s" "id-slh-dsa-shake-256s" 30 false Some(0x091B);
    SLH_DSA_SHAKE_256F "SLH-DSA-SHAKE-256f" "id-slh-dsa-shake-256f" 31 false Some(0x091C);
    SLH_DSA_SHA2_128S "SLH-DSA-SHA2-128s-WITH-SHA256" "id-hash-slh-dsa-sha2-128s-with-sha256" 35 true None;
    SLH_DSA_SHA2_128F "SLH-DSA-SHA2-128f-WITH-SHA256" "id-hash-slh-dsa-sha2-128f-with-sha256" 36 true None;
    SLH_DSA_SHA2_192S "SLH-DSA-SHA2-192s-WITH-SHA512" "id-hash-slh-dsa-sha2-192s-with-sha512" 37 true None;
    SLH_DSA_SHA2_192F "SLH-DSA-SHA2-192f-WITH-SHA512" "id-hash-slh-dsa-sha2-192f-with-sha512" 38 true None;
    SLH_DSA_SHA2_256S "SLH-DSA-SHA2-256s-WITH-SHA512" "id-hash-slh-dsa-sha2-256s-with-sha512" 39 true None;
    SLH_DSA_SHA2_256F "SLH-DSA-SHA2-256f-WITH-SHA512" "id-hash-slh-dsa-sha2-256f-with-sha512" 40 true None;
    SLH_DSA_SHAKE_128S "SLH-DSA-SHAKE-128s-WITH-SHAKE128" "id-hash-slh-dsa-shake-128s-with-shake128" 41 true None;
    SLH_DSA_SHAKE_128F "SLH-DSA-SHAKE-128f-WITH-SHAKE128" "id-hash-slh-dsa-shake-128f-with-shake128" 42 true None;
    SLH_DSA_SHAKE_192S "SLH-DSA-SHAKE-192s-WITH-SHAKE256" "id-hash-slh-dsa-shake-192s-with-shake256" 43 true None;
    SLH_DSA_SHAKE_192F "SLH-DSA-SHAKE-192f-WITH-SHAKE256" "id-hash-slh-dsa-shake-192f-with-shake256" 44 true None;
    SLH_DSA_SHAKE_256S "SLH-DSA-SHAKE-256s-WITH-SHAKE256" "id-hash-slh-dsa-shake-256s-with-shake256" 45 true None;
    SLH_DSA_SHAKE_256F "SLH-DSA-SHAKE-256f-WITH-SHAKE256" "id-hash-slh-dsa-shake-256f-with-shake256" 46 true None;
}

impl Named {
    /// The long name as text.
    pub(crate) fn name(&self) -> &'static str {
        self.long.to_str().expect("ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove::pkcs8::EncodePublicKey;

    #[test]
    fn identifiers_are_those_of_keys_in_files() {
        let engine = Engine::builder().threads(1).build().unwrap();
        for named in &ALGORITHMS {
            let key = engine.generate(&SLH_DSA_SHA2_128F).unwrap().verifying_key();
            let bytes = [key.to_bytes(), vec![7; 64]].concat();
            let key = VerifyingKey::from_bytes(named.set, &bytes[..named.set.pk_bytes()]).unwrap();
            let key = if named.is_hash { key.into_hash_slh_dsa() } else { key };
            let der = key.to_public_key_der().unwrap();
            let named_there = &der.as_bytes()[2..][..named.identifier.len()];
            assert!(
                named_there == named.identifier || der.as_bytes()[3..].starts_with(&named.identifier),
                "{}",
                named.name()
            );
            assert!(named.name().starts_with(named.set.name), "{}", named.name());
            let hash =
                key.prehash().map(|hash| hash.to_string().replace("SHA2", "SHA").replace('-', "")).unwrap_or_default();
            assert!(
                named.name().replace('-', "").to_lowercase().ends_with(&hash.to_lowercase()),
                "{} {hash}",
                named.name()
            );
        }
    }
}
