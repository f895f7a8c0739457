//! Bytes in hexadecimal, as test files have them.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// Bytes that are read from digits of either case, and written in small letters, or in capitals.
#[derive(Clone, Debug, Default)]
pub struct Hex<const CAPITALS: bool>(pub Vec<u8>);

impl<'de, const CAPITALS: bool> Deserialize<'de> for Hex<CAPITALS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hex<CAPITALS>, D::Error> {
        let digits = Cow::<'_, str>::deserialize(deserializer)?;
        hex::decode(&*digits).map(Hex).map_err(D::Error::custom)
    }
}

impl<const CAPITALS: bool> Serialize for Hex<CAPITALS> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let encode = if CAPITALS { hex::encode_upper } else { hex::encode };
        serializer.serialize_str(&encode(&self.0))
    }
}

/// Bytes, for fields that are plain bytes.
pub(crate) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    Hex::<false>::deserialize(from).map(|Hex(bytes)| bytes)
}
