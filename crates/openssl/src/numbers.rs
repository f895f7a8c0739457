//! OpenSSL's numbers (`openssl/core_dispatch.h`, `openssl/core.h`): a test compares them with the headers of an OpenSSL.

/// Kinds of parameters.
pub(crate) mod kind {
    pub(crate) const INTEGER: u32 = 1;
    pub(crate) const UNSIGNED: u32 = 2;
    pub(crate) const UTF8: u32 = 4;
    pub(crate) const OCTETS: u32 = 5;
    pub(crate) const UTF8_POINTER: u32 = 6;
}

/// Operations.
pub(crate) mod operation {
    pub(crate) const KEYMGMT: i32 = 10;
    pub(crate) const SIGNATURE: i32 = 12;
    pub(crate) const ENCODER: i32 = 20;
    pub(crate) const DECODER: i32 = 21;
}

/// Parts of a key.
pub(crate) mod selection {
    pub(crate) const PRIVATE: i32 = 1;
    pub(crate) const PUBLIC: i32 = 2;
    pub(crate) const KEYPAIR: i32 = PRIVATE | PUBLIC;
}

/// Numbers of functions, by the part of the interface that has them.
pub(crate) mod function {
    macro_rules! numbers {
        ($($part:ident { $($name:ident $number:literal)* })*) => {
            $(pub(crate) mod $part {
                $(pub(crate) const $name: i32 = $number;)*
            })*
            /// Every number with OpenSSL's name, for the comparison with a header.
            #[cfg(test)]
            pub(crate) const ALL: &[(&str, &str, i32)] =
                &[$($((stringify!($part), stringify!($name), $number),)*)*];
        };
    }
    numbers! {
        core {
            GET_PARAMS 2 NEW_ERROR 5 SET_ERROR_DEBUG 6 VSET_ERROR 7 OBJ_ADD_SIGID 11 OBJ_CREATE 12
        }
        bio { READ_EX 42 WRITE_EX 43 }
        provider {
            TEARDOWN 1024 GETTABLE_PARAMS 1025 GET_PARAMS 1026 QUERY_OPERATION 1027 GET_REASON_STRINGS 1029 GET_CAPABILITIES 1030
        }
        keymgmt {
            NEW 1 GEN_INIT 2 GEN_SET_PARAMS 4 GEN_SETTABLE_PARAMS 5 GEN 6 GEN_CLEANUP 7 LOAD 8 FREE 10 GET_PARAMS 11 GETTABLE_PARAMS 12
            HAS 21 VALIDATE 22 MATCH 23 IMPORT 40 IMPORT_TYPES 41 EXPORT 42 EXPORT_TYPES 43 DUP 44
        }
        signature {
            NEWCTX 1 SIGN_INIT 2 SIGN 3 VERIFY_INIT 4 VERIFY 5 DIGEST_SIGN_INIT 8 DIGEST_SIGN_UPDATE 9 DIGEST_SIGN_FINAL 10
            DIGEST_SIGN 11 DIGEST_VERIFY_INIT 12 DIGEST_VERIFY_UPDATE 13 DIGEST_VERIFY_FINAL 14 DIGEST_VERIFY 15 FREECTX 16 DUPCTX 17
            GET_CTX_PARAMS 18 GETTABLE_CTX_PARAMS 19 SET_CTX_PARAMS 20 SETTABLE_CTX_PARAMS 21
            SIGN_MESSAGE_INIT 27 SIGN_MESSAGE_UPDATE 28 SIGN_MESSAGE_FINAL 29
            VERIFY_MESSAGE_INIT 30 VERIFY_MESSAGE_UPDATE 31 VERIFY_MESSAGE_FINAL 32
        }
        encoder {
            NEWCTX 1 FREECTX 2 SET_CTX_PARAMS 5 SETTABLE_CTX_PARAMS 6 DOES_SELECTION 10 ENCODE 11
        }
        decoder { NEWCTX 1 FREECTX 2 DOES_SELECTION 10 DECODE 11 EXPORT_OBJECT 20 }
    }
}

#[cfg(test)]
mod tests {
    use super::function::ALL;
    use std::collections::HashMap;
    use std::path::PathBuf;
    use std::{env, fs};

    /// The numbers are those of the headers in `HYPERGROVE_OPENSSL_INCLUDE`, or else of the system's. An old header lacks some functions.
    #[test]
    fn numbers_are_those_of_a_header() {
        let folder = env::var_os("HYPERGROVE_OPENSSL_INCLUDE").map_or(PathBuf::from("/usr/include"), PathBuf::from);
        let header = folder.join("openssl/core_dispatch.h");
        let Ok(text) = fs::read_to_string(&header) else {
            return println!(
                "skipped: OpenSSL's numbers: there is no {}; install Debian's package libssl-dev",
                header.display()
            );
        };
        let defined: HashMap<&str, i32> = text
            .lines()
            .filter_map(|line| {
                let (name, number) = line.trim_start_matches(['#', ' ']).strip_prefix("define ")?.split_once(' ')?;
                Some((name, number.split_whitespace().next()?.parse().ok()?))
            })
            .collect();
        let mut found = 0;
        for (part, name, number) in ALL {
            let name = format!("OSSL_FUNC_{}_{name}", part.to_uppercase());
            if let Some(defined) = defined.get(&*name) {
                assert_eq!(defined, number, "{name}");
                found += 1;
            } else {
                assert!(name.contains("_MESSAGE_"), "{name} is in no header");
            }
        }
        assert!(found + 6 >= ALL.len(), "{found} of {}", ALL.len());
    }
}
