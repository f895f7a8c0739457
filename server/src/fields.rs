//! Reads bodies and settings strictly: a field that the server does not know is refused, because without it the text would mean something else.

use crate::auth::seconds;
use crate::error::Error;
use hypergrove::quote;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::fmt;
use std::marker::PhantomData;

/// Fields of Vault's that this server does not have, values that they may have besides null, false, zero and nothing, and why they may have no other.
pub(crate) type Foreign<'a> = (&'static [&'static str], &'a [&'a str], &'static str);

/// Reads an object of JSON.
pub(crate) fn read<T: DeserializeOwned>(json: &[u8], foreign: &[Foreign]) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let read = Object(foreign, PhantomData).deserialize(&mut reader);
    read.and_then(|object| reader.end().map(|()| object)).map_err(|why| quote::message(&why.to_string()))
}

/// Reads a body. An empty one is an object without fields.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8], foreign: &[Foreign]) -> Result<T, Error> {
    let refused = |why| Error::bad(format!("the body is not the JSON object that this path takes: {why}"));
    read(if body.is_empty() { b"{}" } else { body }, foreign).map_err(refused)
}

/// The fields of a path with a name, which some clients send in the body too.
pub(crate) fn named<'a>(foreign: &[Foreign<'a>], name: &'a [&'a str]) -> Vec<Foreign<'a>> {
    [foreign, &[(&["name"], name, "it is not the name in the path; leave it out")]].concat()
}

/// The body of a path that takes no fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoFields {}

/// Reads an object, and no list in its place, which serde would take for a struct too.
pub(crate) struct Object<'a, T>(pub(crate) &'a [Foreign<'a>], pub(crate) PhantomData<T>);

/// Reads a section of the settings, and no list in its place.
pub(crate) fn section<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Object(&[], PhantomData).deserialize(deserializer)
}

/// Reads a section that may be missing.
pub(crate) fn some_section<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    section(deserializer).map(Some)
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Object<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(Own(self.0, map)))
    }
}

/// The fields of an object that are this server's own.
struct Own<'a, A>(&'a [Foreign<'a>], A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Own<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        if self.0.is_empty() {
            return self.1.next_key_seed(seed);
        }
        while let Some(name) = self.1.next_key::<String>()? {
            let Some((_, others, why)) = self.0.iter().find(|(fields, ..)| fields.contains(&&*name)) else {
                return seed.deserialize(name.into_deserializer()).map(Some);
            };
            if !says_nothing(self.1.next_value::<Box<RawValue>>()?.get(), others) {
                return Err(A::Error::custom(format!("{name}: {why}")));
            }
        }
        Ok(None)
    }
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.1.next_value_seed(seed)
    }
}

/// Whether a value of a field of Vault's is its default, which says what this server does anyway.
fn says_nothing(json: &str, others: &[&str]) -> bool {
    // A long value is not read into memory, where it takes more room.
    match serde_json::from_str(json.get(..1024).unwrap_or(json)).unwrap_or(json!("a long value")) {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(value) => !value || others.contains(&"true"),
        Value::String(text) => text == "false" || others.contains(&&*text) || seconds(&json!(text)) == Some(0),
        Value::Number(number) => number.as_f64() == Some(0.0),
    }
}
