//! `hypergrove completions` and `hypergrove man`: what a shell and man(1) know of the tool.

use crate::args::{Cli, Completions, Man};
use crate::files::{Access, MAKE_IT, Replace, Target, is_directory};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::{PathDisplay, Printer, grouped};
use std::fs;
use std::io::{self, Write};

const TOOL: &str = "hypergrove";
/// Where `docs/` is, which help and pages name.
const DOCUMENTS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/tree/main/docs");

/// Examples: the command by its name in the tool, its arguments, and the effect.
const EXAMPLES: &[(&str, &str, &str)] = &[
    ("keygen", "release", "Make a pair of keys: release.key and release.pub."),
    ("keygen", "release --encrypt", "Encrypt the private key with a passphrase."),
    ("keygen", "--set SLH-DSA-SHA2-128f -o key.pem --pubout pub.pem", "Choose the set, and the name of each file."),
    ("pubkey", "key.pem -o pub.pem", "Write the public key of a private key."),
    ("passwd", "release.key", "Change the passphrase of a private key, or encrypt the key."),
    ("passwd", "release.key --remove", "Write the private key without a passphrase."),
    ("sign", "--key key.pem release.tar.gz", "Write release.tar.gz.sig."),
    ("sign", "--key key.pem --manifest dist -o release.sums", "Make one signature for all files below dist."),
    ("sign", "--key key.pem --prehash SHA2-256 disk.img", "Sign a file of any size, which is read in chunks."),
    ("verify", "--key pub.pem release.tar.gz", "Verify release.tar.gz.sig."),
    ("verify", "--key pub.pem --manifest release.sums --root dist", "Verify a manifest, and every file in it."),
    ("verify", "--certificate leaf.pem --issuer ca.pem", "Verify that an issuer signed a certificate."),
    ("inspect", "key.pem", "Show the parts of a key, except its secrets."),
    ("devices", "", "List what can compute, and why there is no GPU."),
    ("explain", "--set SLH-DSA-SHA2-128f --op sign --batch 1000", "Show how 1,000 signatures would be computed."),
    ("bench", "--quick", "Measure one set in a few seconds."),
    ("bench", "--set SLH-DSA-SHA2-128f --json", "Measure a set; print records, which `report` draws."),
    ("hash", "release.tar.gz", "Print a sum as sha256sum does."),
    ("hash", "--check SHA256SUMS", "Check listed files."),
    ("tune", "--set SLH-DSA-SHA2-128f --budget 60s", "Find this machine's fastest policies in a minute."),
    ("report", "before after -o change.html", "Draw two runs, and compare the second with the first."),
    ("acvp", "prompt.json -o expectedResults.json", "Answer the test cases of a prompt."),
    ("kat", "cases.json", "Compute the known answers of a file."),
    ("quickstart", "src", "Sign and verify the files of a folder, and write nothing."),
    ("ledger", "show key", "Show how many signatures a key may still make."),
    ("ledger-init", "key --set SLH-DSA-SHA2-128-24", "Begin to count the signatures of a key."),
    ("ledger-show", "key --set SLH-DSA-SHA2-128-24", "Show what is left."),
    ("ledger-lease", "key --set SLH-DSA-SHA2-128-24 --count 1000 -o other.ledger", "Give 1,000 numbers away."),
    ("completions", "bash", "Print a script for ~/.local/share/bash-completion/completions/hypergrove."),
    ("man", "~/.local/share/man/man1", "Write the pages to where man(1) finds them."),
];

/// The words after the tool's name: `ledger init` and its arguments for `ledger-init`.
fn typed(command: &str, arguments: &str) -> String {
    format!("{} {arguments}", command.replace('-', " ")).trim_end().into()
}

/// The exit codes of a command, and their meanings.
fn exit_status(command: &str) -> Vec<(&'static str, &'static str)> {
    let invalid = match command {
        "" => Some(
            "`verify`: a signature is not valid, or a sum is wrong. `hash`: a file cannot be read, or a sum is wrong.",
        ),
        "verify" => Some(
            "A signature is not valid, a file has another sum than its manifest, or the manifest does not list it.",
        ),
        "hash" => Some("A file cannot be read, or a sum is wrong."),
        _ => None,
    };
    let error = match command {
        "hash" => "Wrong usage, or another error.",
        _ => "An error: for example wrong usage, or a file that cannot be read or written.",
    };
    [("0", "Success.")].into_iter().chain(invalid.map(|text| ("1", text))).chain([("2", error)]).collect()
}

pub(crate) fn completions(args: &Completions, printer: &Printer) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::definition(), TOOL, &mut script);
    printer.bytes(&script)?;
    Ok(Exit::Good)
}

pub(crate) fn man(args: &Man, printer: &Printer) -> Result<Exit, Failure> {
    if !args.directory.exists() {
        let failed = |error| Failure::io("make", PathDisplay(&args.directory), &error);
        fs::create_dir_all(&args.directory).map_err(failed)?;
    }
    is_directory(&args.directory, "write to", MAKE_IT)?;
    let pages = pages();
    for (name, page) in &pages {
        Target::File(args.directory.join(name)).write(page, Access::Public, Replace::ANYTHING, printer)?;
    }
    let count = grouped(pages.len() as u64);
    printer.note(format_args!("wrote {count} manual pages to {}", PathDisplay(&args.directory)));
    Ok(Exit::Good)
}

/// The names and texts of all pages: one of the tool, of each command, and of each command of a command.
fn pages() -> Vec<(String, Vec<u8>)> {
    // Help is no command with a page.
    fn without_help(command: clap::Command) -> clap::Command {
        command.disable_help_subcommand(true).mut_subcommands(without_help)
    }
    let mut tool = without_help(Cli::definition());
    // Gives commands their names within the tool: `hypergrove-sign`.
    tool.build();
    let mut to_come = vec![tool];
    let mut pages = Vec::new();
    while let Some(command) = to_come.pop() {
        to_come.extend(command.get_subcommands().cloned());
        let man = clap_mangen::Man::new(command.clone());
        let mut page = Vec::new();
        draw(&man, &command, &mut page).expect("memory takes all that is written");
        pages.push((man.get_filename(), page));
    }
    pages
}

/// The command's name without the tool's: empty for the tool, `ledger-init`.
fn name_in_tool(command: &clap::Command) -> &str {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    name.strip_prefix(TOOL).unwrap_or(name).trim_start_matches('-')
}

fn draw(man: &clap_mangen::Man, command: &clap::Command, page: &mut Vec<u8>) -> io::Result<()> {
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(page)?;
    }
    let name = name_in_tool(command);
    writeln!(page, ".SH \"EXIT STATUS\"")?;
    for (code, meaning) in exit_status(name) {
        writeln!(page, ".TP\n.B {code}\n{}", roff(meaning))?;
    }
    writeln!(page, ".SH EXAMPLES")?;
    // The tool's page has the first example of some commands.
    let (commands, most) =
        if name.is_empty() { (&["keygen", "sign", "verify"][..], 1) } else { (&[name][..], usize::MAX) };
    let examples = |of| EXAMPLES.iter().filter(move |(command, ..)| command == of).take(most);
    for (command, arguments, effect) in commands.iter().flat_map(examples) {
        let example = roff(&typed(command, arguments));
        writeln!(page, ".PP\n{}\n.PP\n.RS 4\n.nf\n{TOOL} {example}\n.fi\n.RE", roff(effect))?;
    }
    writeln!(page, ".SH \"SEE ALSO\"")?;
    if !name.is_empty() {
        writeln!(page, ".BR {TOOL} (1)\n.PP")?;
    }
    writeln!(page, "The documents in docs/ are at {}", roff(DOCUMENTS))?;
    if name.is_empty() {
        man.render_version_section(page)?;
    }
    Ok(())
}

/// Text as roff has it.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_examples_that_the_tool_takes() {
        let pages = pages();
        for (file, page) in &pages {
            let page = String::from_utf8(page.clone()).unwrap();
            let examples = page.split(".SH EXAMPLES").nth(1).unwrap().split(".SH").next().unwrap();
            assert!(examples.contains(".nf\nhypergrove "), "{file} has no example");
            assert!(page.contains(".SH \"EXIT STATUS\"\n.TP\n.B 0\n"), "{file}");
            assert_eq!(
                page.contains(".B 1\n"),
                ["hypergrove.1", "hypergrove-verify.1", "hypergrove-hash.1"].contains(&&file[..]),
                "{file}"
            );
            // A page that another one names is there.
            let plain = page.replace("\\-", "-");
            for name in plain.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '(' || c == ')')) {
                if let Some(named) = name.strip_suffix("(1)").filter(|named| named.starts_with(TOOL)) {
                    assert!(pages.iter().any(|(file, _)| *file == format!("{named}.1")), "{file} names {name}");
                }
            }
        }
        for (command, arguments, _) in EXAMPLES {
            assert!(pages.iter().any(|(file, _)| *file == format!("{TOOL}-{command}.1")), "{command}");
            let example = typed(command, arguments);
            let taken = crate::typed([TOOL].into_iter().chain(example.split(' '))).map(drop);
            assert!(taken.is_ok(), "{example}: {}", taken.unwrap_err());
        }
    }
}
