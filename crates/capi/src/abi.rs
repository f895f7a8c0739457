//! `abi.c`: what the compiled library expects of its callers, as declarations and assertions that a C compiler compares with
//! `hypergrove.h`. It is committed, so that a change of the ABI shows in review.

use crate::failure::Status;
use crate::pointers::StructLayout;
use crate::schemes::Format;
use crate::sets::NAMES;
use crate::texts::ROWS;
use crate::{engine, options};
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

/// The C type of a Rust type.
fn c_type(rust: &str) -> String {
    let inside = |outer: &str| rust.strip_prefix(outer).and_then(|rest| rest.strip_suffix('>'));
    if let Some(inner) = inside("In<") {
        return format!("{} const *", c_type(inner).trim_end());
    }
    if let Some(inner) = inside("OutHandle<") {
        return format!("{} **", c_type(inner));
    }
    if let Some(inner) = inside("Out<").or(inside("Handle<")) {
        return format!("{} *", c_type(inner));
    }
    if let Some(inner) = inside("Given<") {
        return format!("{} const *", c_type(inner));
    }
    let known = [
        ("u8", "uint8_t"),
        ("i32", "int32_t"),
        ("u32", "uint32_t"),
        ("i64", "int64_t"),
        ("u64", "uint64_t"),
        ("usize", "size_t"),
        ("c_char", "char"),
        ("c_void", "void"),
        ("Status", "hg_status"),
        ("Done", "hg_done"),
        ("User", "void *"),
        ("RowStatus", "uint8_t"),
        ("Engine", "hg_engine"),
        ("Memory", "hg_memory"),
        ("PrivateKey", "hg_private_key"),
        ("PublicKey", "hg_public_key"),
        ("Canceller", "hg_ticket"),
        ("EngineOptions", "hg_engine_options"),
        ("WorkOptions", "hg_work_options"),
        ("MessageOptions", "hg_message_options"),
        ("CacheOptions", "hg_cache_options"),
        ("CColumn", "hg_column"),
        ("SignBatch", "hg_sign_batch"),
        ("VerifyBatch", "hg_verify_batch"),
    ];
    let found = known.iter().find(|(name, _)| *name == rust);
    found.unwrap_or_else(|| panic!("{rust}: give it a C type")).1.into()
}

/// Declarations of the exported functions of a source.
fn functions(source: &str) -> Vec<String> {
    let of_function = |text: &str| {
        let (name, rest) = text.split_once('(').expect("arguments");
        let (arguments, rest) = rest.split_once(')').expect("their end");
        let result = rest.split_once('{').expect("a body").0.trim().strip_prefix("-> ").map_or("void".into(), c_type);
        let arguments = arguments.split(", ").flat_map(|part| part.split(",\n")).map(str::trim);
        let arguments = arguments.filter(|argument| !argument.is_empty());
        let arguments: Vec<String> = arguments
            .map(|argument| c_type(argument.split_once(": ").expect("a type").1.trim_end_matches(',')))
            .collect();
        let arguments = if arguments.is_empty() { "void".into() } else { arguments.join(", ") };
        format!("{result} {name}({arguments});")
    };
    source.split("#[unsafe(no_mangle)]\nextern \"C\" fn ").skip(1).map(of_function).collect()
}

fn layout<T: StructLayout>(out: &mut String) {
    writeln!(out, "HG_ASSERT(sizeof({}) == {});", T::NAME, T::SIZE).unwrap();
    for (member, at, size) in T::MEMBERS {
        writeln!(out, "HG_MEMBER({}, {member}, {at}, {size});", T::NAME).unwrap();
    }
}

fn constants<'a>(out: &mut String, all: impl IntoIterator<Item = (&'a str, i64)>) {
    for (name, value) in all {
        writeln!(out, "HG_ASSERT({name} == {value});").unwrap();
    }
}

/// The header's name of a set.
fn constant_of_set(name: &str) -> String {
    format!("HG_{}", name.replace('-', "_").to_uppercase())
}

fn made() -> String {
    let mut out = String::from(
        "/* The ABI of libhypergrove on 64-bit machines, as the Rust side has it: made by the test `abi` of the crate hypergrove-capi. A C\n   \
         compiler checks that hypergrove.h says the same. */\n\
         #include \"hypergrove.h\"\n\n\
         #ifdef __cplusplus\n#define HG_ASSERT(fact) static_assert(fact, #fact)\nextern \"C\" {\n\
         #else\n#define HG_ASSERT(fact) _Static_assert(fact, #fact)\n#endif\n\
         #define HG_MEMBER(type, member, offset, size) \\\n    \
         HG_ASSERT(offsetof(type, member) == offset && sizeof ((type *)0)->member == size)\n\n\
         typedef void (*hg_done)(void *, hg_status, uint8_t const *, size_t);\n\n",
    );
    let sources = [
        include_str!("texts.rs"),
        include_str!("sets.rs"),
        include_str!("engine.rs"),
        include_str!("keys.rs"),
        include_str!("messages.rs"),
        include_str!("queue.rs"),
        include_str!("rows.rs"),
        include_str!("memory.rs"),
    ];
    let mut all: Vec<String> = sources.into_iter().flat_map(functions).collect();
    all.sort_by_key(|declaration| name_of(declaration).to_string());
    out.push_str(&all.join("\n"));
    out.push_str("\n\n");
    layout::<crate::engine::EngineOptions>(&mut out);
    layout::<crate::engine::WorkOptions>(&mut out);
    layout::<crate::keys::CacheOptions>(&mut out);
    layout::<crate::options::MessageOptions>(&mut out);
    layout::<crate::rows::CColumn>(&mut out);
    layout::<crate::rows::SignBatch>(&mut out);
    layout::<crate::rows::VerifyBatch>(&mut out);
    out.push('\n');
    constants(&mut out, Status::ALL.map(|(status, name, _)| (name, status as i64)));
    constants(&mut out, ROWS.map(|(status, name, _)| (name, status as i64)));
    for (number, name) in NAMES.iter() {
        constants(&mut out, [(&*constant_of_set(name.to_str().unwrap()), (*number).into())]);
    }
    for hash in hypergrove::PreHash::ALL {
        let name = hash.name().replace("SHA2-512/", "SHA2-512-").replace('-', "_");
        constants(&mut out, [(&*format!("HG_{name}"), hash.oid_der()[10].into())]);
    }
    constants(&mut out, [("HG_PURE", options::PURE.into())]);
    constants(&mut out, Format::ALL.map(|(format, name)| (name, format as i64)));
    let flags = [
        ("HG_VERIFY_SIGNATURES", engine::VERIFY_SIGNATURES),
        ("HG_REDUNDANT", engine::REDUNDANT),
        ("HG_DETERMINISTIC", options::DETERMINISTIC),
        ("HG_MESSAGE_IS_DIGEST", options::MESSAGE_IS_DIGEST),
        ("HG_INTERNAL_INTERFACE", options::INTERNAL_INTERFACE),
    ];
    constants(&mut out, flags.map(|(name, flag)| (name, flag.into())));
    out.push_str("\n#ifdef __cplusplus\n}\n#endif\n");
    out
}

/// The function that a line declares.
fn name_of(declaration: &str) -> &str {
    declaration
        .split_once('(')
        .and_then(|(before, _)| before.split_once(" hg_").or(before.split_once("*hg_")))
        .map_or("", |it| it.1)
}

#[test]
fn abi_is_what_was_committed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (made, committed) = (made(), fs::read_to_string(folder.join("abi.c")).unwrap_or_default());
    if made != committed {
        fs::write(folder.join("abi.c.tmp"), made).unwrap();
        panic!(
            "the ABI changed. If that is meant: `mv crates/capi/abi.c.tmp crates/capi/abi.c`; if programs that were compiled before do not \
             work with it, also raise the soname (SONAME in xtask/src/capi.rs) and the version in hypergrove.map"
        );
    }
}

#[test]
fn the_header_has_the_release_and_every_function() {
    let header = include_str!("../include/hypergrove.h");
    assert!(header.contains(&format!("#define HG_VERSION \"{}\"", env!("CARGO_PKG_VERSION"))));
    let made = made();
    let declared = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '(');
        let mut names: Vec<String> = words
            .filter_map(|word| word.split_once('(').filter(|(name, _)| name.starts_with("hg_")))
            .map(|(name, _)| name.into())
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(declared(header), declared(&made));
}

/// The header's constants are all in the committed ABI: a number that programs were compiled with never changes unnoticed.
#[test]
fn every_constant_of_the_header_is_committed() {
    let of_line = |line: &'static str| -> Option<(&'static str, &'static str)> {
        let defined = line.strip_prefix("#define ").and_then(|rest| rest.split_once(' '));
        let (name, value) = defined.or_else(|| line.trim().split_once(" = "))?;
        let value = value.trim_end_matches([',', 'u']);
        let is_number = !value.is_empty() && value.chars().all(|c| c.is_ascii_digit());
        (name.starts_with("HG_") && is_number).then_some((name, value))
    };
    let constants: Vec<_> = include_str!("../include/hypergrove.h").lines().filter_map(of_line).collect();
    assert!(["HG_OK", "HG_REDUNDANT", "HG_PEM"].iter().all(|known| constants.iter().any(|(name, _)| name == known)));
    let made = made();
    let left_out: Vec<_> =
        constants.iter().filter(|(name, value)| !made.contains(&format!("HG_ASSERT({name} == {value});\n"))).collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}
