//! The negative corpus of SLH-DSA: `vectors/slh-dsa/negative`, whose README describes it.
//!
//! Keys and signatures are made from a seed by the reference. All else, what is altered and why, is made of these alone, so
//! that most of the corpus is checked in a moment and whole only in `ci full`.

use crate::disk;
use crate::step::{Extent, Step};
use hypergrove_vectors::negative::encoded::{KEYS, keys};
use hypergrove_vectors::negative::make::{Group, SIGNATURES, groups, signatures};
use serde_json::Value;

/// `cargo xtask negative`.
pub(crate) fn write() -> Result<(), String> {
    for (path, text) in [(SIGNATURES, signatures(&groups())), (KEYS, keys())] {
        disk::write(path, text)?;
        println!("wrote {path}");
    }
    Ok(())
}

/// CI's step: the files are what this makes. Keys and signatures are taken from the file unless all is asked for; valid cases
/// prove them in the tests.
pub(crate) fn check(extent: Extent) -> Step {
    let text = disk::read(SIGNATURES)?;
    let groups = match extent {
        Extent::Full => groups(),
        Extent::Usual => {
            let file: Value = serde_json::from_str(&text).map_err(|why| format!("{SIGNATURES}: {why}"))?;
            let groups = file["testGroups"].as_array().and_then(|all| all.iter().map(Group::read).collect());
            groups.ok_or_else(|| format!("{SIGNATURES} is damaged: make it again by `cargo xtask negative`"))?
        }
    };
    for (path, old, new) in [(SIGNATURES, text, signatures(&groups)), (KEYS, disk::read(KEYS)?, keys())] {
        compare(path, &old, &new)?;
    }
    let how = if extent == Extent::Full { "keys and signatures made again" } else { "keys and signatures as they are" };
    Ok(how.into())
}

fn compare(path: &str, old: &str, new: &str) -> Result<(), String> {
    if old == new {
        return Ok(());
    }
    let same = old.lines().zip(new.lines()).take_while(|(old, new)| old == new).count();
    Err(format!("{path}:{} is not what `cargo xtask negative` makes: run it", same + 1))
}

#[cfg(test)]
mod test {
    use super::*;

    /// Of the smallest group: a case that is changed, left out or added is found, and so is a key.
    #[test]
    fn what_is_altered_is_found() {
        let text = disk::read(disk::workspace().join(SIGNATURES)).expect("the corpus");
        let file: Value = serde_json::from_str(&text).expect("JSON");
        let read = |group: &Value| signatures(&[Group::read(group).expect("a group")]);
        let group = &file["testGroups"][0];
        let right = read(group);
        assert_eq!(compare("a", &right, &right), Ok(()));
        for (from, to) in
            [("\"result\":\"invalid\"", "\"result\":\"valid\""), ("[\"xor\",0,1]", "[\"xor\",1,1]"), ("\n{", "\n\n{")]
        {
            let wrong = right.replacen(from, to, 1);
            let why = compare("a", &wrong, &right).expect_err("it is altered");
            assert!(wrong != right && why.starts_with("a:"), "{why}");
        }
        let mut other = group.clone();
        other["key"] = group["otherKey"].clone();
        assert!(compare("a", &right, &read(&other)).is_err());
    }
}
