//! docs/json.schema.json, held against what the tool prints.

use serde_json::Value;
use std::fs;

/// A line is described by exactly one of the schema's kinds of lines, with the types of all its values. The schema allows
/// fields that it does not name, for later versions; here they are mistakes.
pub(crate) fn check(lines: &[Value]) {
    let schema = schema();
    for line in lines {
        let (kinds, whys) = fitting(&schema, line);
        assert!(kinds.len() == 1, "{line} is {kinds:?}: {whys:?}");
    }
}

fn schema() -> Value {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.schema.json");
    serde_json::from_str(&fs::read_to_string(page).unwrap()).unwrap()
}

/// The kinds of lines that describe a line, and why the others do not.
fn fitting<'a>(schema: &'a Value, line: &Value) -> (Vec<&'a str>, Vec<String>) {
    let (mut kinds, mut whys) = (Vec::new(), Vec::new());
    for kind in schema["anyOf"].as_array().unwrap() {
        let name = kind["$ref"].as_str().unwrap();
        match fits(schema, kind, line) {
            Ok(()) => kinds.push(name),
            Err(why) => whys.push(format!("{name}: {why}")),
        }
    }
    (kinds, whys)
}

/// Whether a schema describes a value. Of JSON Schema it knows the words that are used; any other is an error.
fn fits(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let number = |bound: &Value| bound.as_f64().unwrap();
    for (word, said) in schema.as_object().unwrap() {
        let holds = match word.as_str() {
            "description" | "format" | "required" => true,
            "$ref" => {
                let name = said.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                fits(root, &root["$defs"][name], value)?;
                true
            }
            "oneOf" => said.as_array().unwrap().iter().filter(|one| fits(root, one, value).is_ok()).count() == 1,
            "const" => said == value,
            "type" => match said {
                Value::Array(types) => types.iter().any(|one| is(one, value)),
                one => is(one, value),
            },
            "minimum" => value.as_f64().is_none_or(|value| value >= number(said)),
            "maximum" => value.as_f64().is_none_or(|value| value <= number(said)),
            "properties" => {
                let Some(fields) = value.as_object() else { return Err(format!("{value} has no fields")) };
                for (field, value) in fields {
                    let of = said.get(field).ok_or_else(|| format!("it has a field '{field}'"))?;
                    fits(root, of, value).map_err(|why| format!("{field}: {why}"))?;
                }
                let required = schema["required"].as_array().unwrap();
                if let Some(absent) = required.iter().find(|field| !fields.contains_key(field.as_str().unwrap())) {
                    return Err(format!("it has no field {absent}"));
                }
                true
            }
            word => panic!("the schema has the word '{word}': say here what it means"),
        };
        if !holds {
            return Err(format!("{value} is not {word} {said}"));
        }
    }
    Ok(())
}

fn is(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        name => panic!("the schema has the type '{name}': say here what it is"),
    }
}

/// The check itself finds mistakes: each of these lines has one.
#[test]
fn wrong_lines_are_found() {
    let schema = schema();
    let good = [
        r#"{"private_key": "k", "set": "s", "key": "f", "encrypted": false}"#,
        r#"{"table": "t", "set": "s", "keys": 3}"#,
        r#"{"file": "f", "verdict": "ok"}"#,
        r#"{"file": "f", "verdict": "failed", "signature": null}"#,
    ];
    for line in good {
        check(&[serde_json::from_str(line).unwrap()]);
    }
    for line in [
        r#"{"private_key": "k", "set": "s", "key": "f", "encrypted": "false"}"#,
        r#"{"private_key": 1, "set": "s", "key": "f", "encrypted": false}"#,
        r#"{"private_key": "k", "set": "s", "key": "f"}"#,
        r#"{"private_key": "k", "set": "s", "key": "f", "encrypted": false, "more": 1}"#,
        r#"{"table": "t", "set": "s", "keys": "3"}"#,
        r#"{"table": "t", "set": "s", "keys": -3}"#,
        r#"{"table": "t", "set": "s", "keys": 3.5}"#,
        r#"{"file": "f", "verdict": "fine"}"#,
        r#"{"file": "f", "verdict": "ok", "signature": 1}"#,
        r#"{"summary": {}, "exit": 0}"#,
        r#"{"summary": 0, "exit": 0}"#,
        r#"["file", "verdict"]"#,
        "1",
    ] {
        let (kinds, _) = fitting(&schema, &serde_json::from_str(line).unwrap());
        assert!(kinds.is_empty(), "{line} is {kinds:?}");
    }
    let summary = |exit: &str| {
        let counts = r#"{"ok":1,"signed":0,"kept":0,"failed":0,"extra":0,"error":0,"improper":0,"made":0}"#;
        serde_json::from_str(&format!(r#"{{"summary": {counts}, "exit": {exit}}}"#)).unwrap()
    };
    assert_eq!(fitting(&schema, &summary("2")).0, ["#/$defs/SummaryLine"]);
    for exit in ["256", "-1", "\"0\"", "null"] {
        assert!(fitting(&schema, &summary(exit)).0.is_empty(), "{exit}");
    }
}
