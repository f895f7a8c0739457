//! The OpenSSL provider: how it is installed, and OpenSSL's programs with it.

use crate::disk;
use crate::process::{self, answers};
use crate::step::{Extent, Step, Stop, ensure};
use crate::toolchain::Toolchain;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const CRATE: &str = "hypergrove-openssl";
const FOLDER: &str = "crates/openssl";
/// The module below a prefix. OpenSSL looks for it by this name.
const MODULE: &str = "lib/ossl-modules/hypergrove.so";

/// The provider's part of `cargo xtask install`, and what CI tests.
pub(crate) fn install(prefix: &Path) -> Result<(), String> {
    place(&prefix.join(MODULE), &Toolchain::of_machine())
}

/// For the Debian package: OpenSSL's modules are in the folder of the architecture.
pub(crate) fn install_where_debian_looks(usr: &Path, toolchain: &Toolchain) -> Result<(), String> {
    let folder = format!("lib/{}-linux-gnu/ossl-modules", toolchain.architecture);
    place(&usr.join(folder).join("hypergrove.so"), toolchain)
}

fn place(module: &Path, toolchain: &Toolchain) -> Result<(), String> {
    let made = toolchain.build(&["-p", CRATE], &CRATE.replace('-', "_"))?;
    let built = made.iter().find(|file| file.extension().is_some_and(|it| it == "so"));
    disk::make(module.parent().unwrap_or(module))?;
    disk::copy(built.ok_or_else(|| format!("Cargo names no module of {CRATE}"))?, module)?;
    println!("{}: docs/openssl.md says how OpenSSL finds it", module.display());
    Ok(())
}

/// An OpenSSL with its headers and libraries.
struct OpenSsl {
    /// Its release, for messages.
    name: String,
    /// The folder that it is installed in; None: the system's.
    prefix: Option<PathBuf>,
}

/// OpenSSL's own implementation is there from this release on.
const FIRST_WITH_OWN: (u32, u32) = (3, 5);

impl OpenSsl {
    fn new(prefix: Option<PathBuf>) -> Result<OpenSsl, String> {
        let mut openssl = OpenSsl { name: String::new(), prefix };
        let version = process::text(openssl.program(&["version"]))?;
        openssl.name = version.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        Ok(openssl)
    }

    fn has_own(&self) -> bool {
        let mut numbers = self.name.split([' ', '.']).filter_map(|number| number.parse().ok());
        numbers.next().zip(numbers.next()).is_some_and(|version| version >= FIRST_WITH_OWN)
    }

    /// Those who can use keys of this set here. OpenSSL itself has no keys of HashSLH-DSA.
    fn providers(&self, set: &str) -> impl Iterator<Item = Who> {
        let own = (self.has_own() && !set.contains("WITH")).then_some(Who::OpenSsl);
        [Who::Hypergrove].into_iter().chain(own)
    }

    fn program(&self, words: &[&str]) -> Command {
        let program = self.prefix.as_ref().map_or("openssl".into(), |prefix| prefix.join("bin/openssl"));
        process::limited(5, &program.to_string_lossy(), words)
    }

    /// Compiles a C program of the tests with its headers, and with these flags.
    fn compile(&self, source: &str, flags: &[&str], folder: &Path) -> Result<PathBuf, String> {
        let made = folder.join(source.replace('.', "-"));
        let mut command = Command::new("cc");
        command
            .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"])
            .args(flags);
        if let Some(prefix) = &self.prefix {
            command.arg("-I").arg(prefix.join("include")).arg("-L").arg(prefix.join("lib"));
        }
        command
            .arg(Path::new(FOLDER).join("tests").join(source))
            .args(["-lcrypto", "-ldl", "-pthread", "-o"])
            .arg(&made);
        process::run(command)?;
        Ok(made)
    }
}

/// Runs a program of the tests. If it fails, its output is in the error.
fn run(minutes: u32, program: &Path, words: &[&str]) -> Result<String, String> {
    process::text(process::limited(minutes, &program.to_string_lossy(), words))
}

/// Who signs and verifies in OpenSSL's programs.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Hypergrove,
    /// OpenSSL's default provider alone.
    OpenSsl,
}

/// OpenSSL's programs with a configuration, in a folder.
struct Programs<'a> {
    openssl: &'a OpenSsl,
    who: Who,
    config: PathBuf,
    folder: PathBuf,
}

impl<'a> Programs<'a> {
    fn new(openssl: &'a OpenSsl, who: Who, module: &Path, folder: &Path) -> Result<Programs<'a>, String> {
        let config = folder.join(format!("{}-{}.cnf", openssl.name.replace(' ', "-"), who.name()));
        let (provider, section) = match who {
            Who::OpenSsl => (String::new(), String::new()),
            Who::Hypergrove => (
                "hypergrove = hypergrove_provider\n".into(),
                format!("[hypergrove_provider]\nmodule = {}\nactivate = yes\ntls = yes\n", module.display()),
            ),
        };
        let text = format!(
            "openssl_conf = start\n[start]\nproviders = providers\nalg_section = algorithms\n\
             [providers]\ndefault = default_provider\n{provider}[default_provider]\nactivate = yes\n{section}\
             [algorithms]\ndefault_properties = {}\n{AUTHORITY}",
            if who == Who::Hypergrove { "?provider=hypergrove" } else { "" },
        );
        disk::write(&config, text)?;
        Ok(Programs { openssl, who, config, folder: folder.into() })
    }

    fn command(&self, line: &str) -> Command {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = self.openssl.program(&words);
        command.env("OPENSSL_CONF", &self.config).current_dir(&self.folder);
        command
    }

    /// `openssl LINE`, whose words have no blanks: what it prints.
    fn openssl(&self, line: &str) -> Result<String, String> {
        process::text(self.command(line)).map_err(|why| format!("{}: {why}", self.describe()))
    }

    /// `openssl LINE` fails, and says this.
    fn refuses(&self, line: &str, says: &str) -> Result<(), String> {
        match process::text(self.command(line)) {
            Err(why) if why.contains(says) => Ok(()),
            Err(why) => Err(format!("{}: `openssl {line}` does not say {says:?}:\n{why}", self.describe())),
            Ok(_) => Err(format!("{}: `openssl {line}` passes, and should say {says:?}", self.describe())),
        }
    }

    fn describe(&self) -> String {
        format!("{} with {}", self.openssl.name, self.who.name())
    }
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Hypergrove => "hypergrove",
            Who::OpenSsl => "its own provider",
        }
    }
}

/// The authority of `openssl ca`, in the folder that the program runs in.
const AUTHORITY: &str = include_str!("../../crates/openssl/tests/authority.cnf");

/// A set for every length of hash and both families, and one with a hash function.
const SETS: [&str; 3] = ["SLH-DSA-SHA2-128f", "SLH-DSA-SHAKE-192f", "SLH-DSA-SHA2-128f-WITH-SHA256"];

/// Keys, a signature, an authority with a request, a certificate and a list of revoked ones; and a signed message, where OpenSSL can do so.
fn make(by: &Programs<'_>, set: &str) -> Result<(), String> {
    disk::write(by.folder.join("message"), "Dear reader")?;
    disk::write(by.folder.join("index.txt"), "")?;
    disk::write(by.folder.join("serial"), "01")?;
    for line in [
        &*format!("genpkey -algorithm {set} -out key.pem"),
        "pkey -in key.pem -pubout -out public.pem",
        "pkey -in key.pem -outform DER -out key.der",
        "pkey -in key.pem -aes-256-cbc -passout pass:secret -out encrypted.pem",
        "pkeyutl -sign -rawin -in message -inkey key.pem -pkeyopt deterministic:1 -pkeyopt message-encoding:1 -out signature",
        &format!("genpkey -algorithm {set} -out ca.key"),
        "req -x509 -new -key ca.key -subj /CN=authority -days 30 -out ca.pem",
        "req -new -key key.pem -subj /CN=reader -out request.pem",
        "ca -batch -in request.pem -out leaf.pem -notext",
        "ca -gencrl -out list.pem",
    ] {
        by.openssl(line)?;
    }
    Ok(())
}

/// CMS, where OpenSSL takes algorithms that it does not know: its releases before 3.5 do not.
const MAKE_MESSAGE: &str =
    "cms -sign -binary -md sha512 -in message -signer leaf.pem -inkey key.pem -outform PEM -out message.cms";
const CHECK_MESSAGE: &str =
    "cms -verify -binary -inform PEM -in message.cms -content message -CAfile ca.pem -purpose any -out checked";

/// Everything that [`make`] makes is right.
fn check_made(by: &Programs<'_>, set: &str) -> Result<(), String> {
    for line in [
        "pkey -in key.der -inform DER -check -noout",
        "pkey -in encrypted.pem -passin pass:secret -pubout -out again.pem",
        "pkeyutl -verify -rawin -in message -pubin -inkey public.pem -sigfile signature",
        "req -in request.pem -verify -noout",
        "verify -CAfile ca.pem leaf.pem",
        "verify -CAfile ca.pem -CRLfile list.pem -crl_check leaf.pem",
        "crl -in list.pem -CAfile ca.pem -noout",
    ] {
        by.openssl(line)?;
    }
    let read = |file: &str| disk::read(by.folder.join(file));
    ensure!(read("public.pem")? == read("again.pem")?, "{}: the decrypted key has another public key", by.describe());
    let shown = by.openssl("x509 -in leaf.pem -noout -text")?;
    let named = shown.matches(&format!("Algorithm: {set}\n")).count();
    ensure!(named == 3, "{}: a certificate of {set} is shown as\n{shown}", by.describe());
    Ok(())
}

/// Runs `client` with the address of a server of TLS 1.3, whose certificate SLH-DSA signed. The server ends after so many connections.
fn with_server<T>(
    server: &Programs<'_>,
    connections: usize,
    client: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, String> {
    let failed = |why: &dyn std::fmt::Display| format!("TLS: {}: {why}", server.describe());
    let mut command = server.command(&format!(
        "s_server -accept 127.0.0.1:0 -naccept {connections} -www -cert leaf.pem -key key.pem -tls1_3"
    ));
    // The server ends when its input does.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = command.spawn().map_err(|error| failed(&error))?;
    let mut lines = BufReader::new(running.stdout.take().expect("it is piped")).lines();
    let address = lines.by_ref().map_while(Result::ok).find_map(|line| line.strip_prefix("ACCEPT ").map(String::from));
    let result = match &address {
        Some(address) => client(address),
        None => Err(failed(&"the server does not say where it listens")),
    };
    let _ = running.kill();
    running.wait().map_err(|error| failed(&error))?;
    result
}

/// A client of TLS 1.3 accepts the server's certificate and handshake. One of both may be another OpenSSL.
fn check_tls(server: &Programs<'_>, client: &Programs<'_>) -> Result<(), String> {
    with_server(server, 1, |address| {
        client.openssl(&format!("s_client -connect {address} -tls1_3 -CAfile ca.pem -verify_return_error -brief"))
    })
    .map(drop)
}

/// Debian's own programs, whatever else is installed.
const CLIENTS: [&str; 2] = ["/usr/bin/curl", "/usr/bin/python3"];

/// Debian's own curl and Python are clients, with the libraries of this OpenSSL instead of Debian's, which has no signature schemes of providers.
fn check_clients(server: &Programs<'_>) -> Result<(), String> {
    let libraries = shared_libraries(server.openssl, &server.folder)?;
    let in_folder = |file: &str| server.folder.join(file).to_string_lossy().into_owned();
    let (authority, script) = (in_folder("ca.pem"), format!("{FOLDER}/tests/client.py"));
    let ask = |program: &str, words: &[&str], config: &Path| {
        let mut command = process::limited(1, program, words);
        command.env("LD_LIBRARY_PATH", &libraries).env("OPENSSL_CONF", config);
        process::text(command)
    };
    let [curl_program, python] = CLIENTS;
    with_server(server, 3, |address| {
        let curl = ["--silent", "--show-error", "--include", "--cacert", &authority];
        let here = format!("reader:443:{address}");
        let curl = [&curl[..], &["--connect-to", &here, "https://reader/"]].concat();
        let page = ask(curl_program, &curl, &server.config)?;
        let answer = ask(python, &[&script, &authority, address], &server.config)?;
        if !page.starts_with("HTTP/1.0 200 ok") || !answer.contains("TLSv1.3 b'HTTP/1.0 200 ok'") {
            return Err(format!("curl got {page:?}, and Python {answer:?}"));
        }
        // The provider is what makes the difference.
        match ask(curl_program, &curl, Path::new("/dev/null")) {
            Err(why) if why.contains("handshake failure") => Ok(()),
            other => Err(format!("without the provider, curl should fail in the handshake, and gives {other:?}")),
        }
    })
}

/// Makes shared libraries of OpenSSL's static ones, since the source that we build lacks what its own shared ones need; the folder. Programs
/// that are linked with OpenSSL 3 ask for functions of one version alone.
fn shared_libraries(openssl: &OpenSsl, folder: &Path) -> Result<PathBuf, String> {
    let versions = folder.join("versions");
    disk::write(&versions, "OPENSSL_3.0.0 { global: *; };\n")?;
    let installed = openssl.prefix.as_ref().ok_or("the system's OpenSSL has shared libraries")?.join("lib");
    let made = |name: &str| folder.join(format!("{name}.so.3"));
    for (name, needs) in [("libcrypto", vec!["-ldl".into()]), ("libssl", vec![made("libcrypto").into_os_string()])] {
        let mut command = Command::new("cc");
        command.arg("-shared").arg("-o").arg(made(name)).arg(format!("-Wl,-soname,{name}.so.3"));
        command.arg(format!("-Wl,--version-script={}", versions.display()));
        command.arg("-Wl,--whole-archive").arg(installed.join(format!("{name}.a"))).arg("-Wl,--no-whole-archive");
        command.args(needs).arg("-pthread");
        process::run(command)?;
    }
    folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))
}

/// An authority issues so many certificates in one call.
fn check_authority(by: &Programs<'_>, count: usize) -> Result<(), String> {
    let requests = vec!["request.pem"; count].join(" ");
    by.openssl(&format!("ca -batch -notext -infiles {requests}"))?;
    // The first one is the leaf that `make` made.
    let listed = disk::read(by.folder.join("index.txt"))?.lines().count();
    let by = by.describe();
    ensure!(listed > count, "{by}: the authority lists {listed} certificates, and {count} more were asked for");
    Ok(())
}

/// Damaged and unsuitable input: OpenSSL's queue says what is wrong.
fn check_bad_input(by: &Programs<'_>) -> Result<(), String> {
    let mut key = std::fs::read(by.folder.join("key.der")).map_err(|error| error.to_string())?;
    key.truncate(key.len() - 1);
    disk::write(by.folder.join("short.der"), &key)?;
    by.refuses("pkey -in short.der -inform DER -noout", "Could not")?;
    by.refuses("pkey -in encrypted.pem -passin pass:wrong -noout", "Could not")?;
    // Newer releases of the command refuse a digest themselves.
    let says = if by.openssl.has_own() { "not supported with SLH-DSA" } else { "takes no digest" };
    by.refuses("pkeyutl -sign -rawin -digest sha256 -in message -inkey key.pem -out none", says)?;
    // Without -rawin, the command of older releases signs a digest. Newer ones have -rawin for these keys without being asked.
    if !by.openssl.has_own() {
        by.refuses("pkeyutl -sign -in message -inkey key.pem -out none", "hashes the message before it is signed")?;
    }
    by.refuses("pkey -in key.pem -aes-128-cbc -passout pass:secret -out none", "aes-256-cbc alone")?;
    let config = disk::read(&by.config)?;
    disk::write(by.folder.join("wrong.cnf"), config.replace("tls = yes", "threads = many"))?;
    let by = Programs { config: by.folder.join("wrong.cnf"), folder: by.folder.clone(), ..*by };
    by.refuses(
        "pkeyutl -sign -rawin -in message -inkey key.pem -out none",
        "threads = 'many'; write a number of 1 or more",
    )?;
    let listed = by.openssl("list -providers -verbose")?;
    let is_named = listed.contains("threads = 'many'") && listed.contains("inactive");
    ensure!(is_named, "{}: a wrong configuration is listed as\n{listed}", by.describe());
    Ok(())
}

/// Nothing is exported but the function that OpenSSL calls, and no libcrypto is linked.
fn check_module(module: &Path) -> Result<(), String> {
    let name = module.display();
    let list = process::text(Command::new("nm").args(["-D", "--defined-only"]).arg(module))?;
    if list.lines().count() != 1 || !list.trim_end().ends_with(" T OSSL_provider_init") {
        return Err(format!("{name} exports other than OSSL_provider_init alone:\n{list}"));
    }
    let list = process::text(Command::new("readelf").arg("--dynamic").arg(module))?;
    if list.contains("libcrypto") || list.contains("libssl") || !list.contains("NODELETE") {
        return Err(format!("{name} needs OpenSSL's libraries, or may be unloaded:\n{list}"));
    }
    Ok(())
}

/// CI's step: OpenSSL 3.0 of Debian 12, and in full also 3.6 and 4.0, each with the provider, and with its own where it has one.
pub(crate) fn check(extent: Extent) -> Step {
    if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
        return Err(Stop::Skipped("OpenSSL modules are tested on Linux of 64 bits alone".into()));
    }
    let headers = || Path::new("/usr/include/openssl/core_dispatch.h").exists();
    let tools = || ["cc", "nm", "readelf"].iter().all(|tool| answers(tool, &["--version"]));
    let there = || headers() && tools() && answers("openssl", &["version"]);
    process::ensure_packages(&["gcc", "libc6-dev", "binutils", "openssl", "libssl-dev"], there)
        .map_err(Stop::Skipped)?;
    let prefix = process::target().join("openssl");
    install(&prefix)?;
    let module = prefix.join(MODULE);
    check_module(&module)?;
    let mut all = vec![OpenSsl::new(None)?];
    if extent == Extent::Full {
        for (crate_version, release) in RELEASES {
            all.push(built(crate_version, release)?);
        }
    }
    for openssl in &all {
        check_one(openssl, &module, &prefix, extent)?;
    }
    check_between(&all, &module, &prefix, extent)?;
    let names: Vec<&str> = all.iter().map(|openssl| &*openssl.name).collect();
    Ok(format!("programs and EVP with {}", names.join(", ")))
}

/// The programs of the tests, with one OpenSSL.
fn check_one(openssl: &OpenSsl, module: &Path, prefix: &Path, extent: Extent) -> Result<(), String> {
    let folder = prefix.join(openssl.name.replace(' ', "-"));
    disk::make_anew(&folder)?;
    openssl.compile("abi.c", &[], &folder)?;
    let modules = module.parent().unwrap_or(prefix).to_string_lossy().into_owned();
    let vectors = disk::workspace().join("vectors/slh-dsa/acvp").to_string_lossy().into_owned();
    // AddressSanitizer sees what the module frees twice or never, too.
    let sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let evp = openssl.compile("evp.c", &sanitizers, &folder)?;
    run(5, &evp, &[&modules])?;
    // OpenSSL reads its configuration while the provider is loaded, and loads it a second time.
    let mut configured = process::limited(5, &evp.to_string_lossy(), &[&modules, "load", "3"]);
    configured.env("OPENSSL_CONF", Programs::new(openssl, Who::Hypergrove, module, &folder)?.config);
    process::text(configured)?;
    let acvp = openssl.compile("acvp.c", &[], &folder)?;
    let step = if extent == Extent::Full { "1" } else { "40" };
    run(20, &acvp, &[&modules, &vectors, step])?;
    if extent == Extent::Full {
        let evp = openssl.compile("evp.c", &[], &folder)?;
        run(30, &evp, &[&modules, "threads", "100000"])?;
        run(10, &evp, &[&modules, "load", "1000"])?;
        process::ensure_packages(&["valgrind"], || answers("valgrind", &["--version"]))?;
        // The engine's threads live on: their memory is possibly lost to Valgrind.
        let known = "--suppressions=crates/capi/tests/valgrind.supp";
        let words = [
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
            "--show-leak-kinds=definite",
            known,
            &evp.to_string_lossy(),
            &modules,
            "load",
            "2",
        ];
        process::text(process::limited(20, "valgrind", &words))?;
    }
    Ok(())
}

/// All of them check what each OpenSSL makes, by our provider and by its own.
fn check_between(all: &[OpenSsl], module: &Path, prefix: &Path, extent: Extent) -> Result<(), String> {
    for set in SETS {
        for (i, maker) in all.iter().enumerate() {
            for who in maker.providers(set) {
                let folder = prefix.join(format!("between-{set}-{i}-{}", who == Who::Hypergrove));
                disk::make_anew(&folder)?;
                let by = Programs::new(maker, who, module, &folder)?;
                make(&by, set)?;
                let has_message = maker.has_own() && !set.contains("WITH");
                if has_message {
                    by.openssl(MAKE_MESSAGE)?;
                }
                if who == Who::Hypergrove && set == SETS[0] {
                    check_bad_input(&by)?;
                    check_authority(&by, if extent == Extent::Full { 1000 } else { 10 })?;
                    if maker.has_own() && maker.name.starts_with("OpenSSL 3.") {
                        process::ensure_packages(&["curl", "python3"], || {
                            CLIENTS.iter().all(|it| answers(it, &["--version"]))
                        })?;
                        check_clients(&by)?;
                    }
                }
                for checker in all {
                    for who in checker.providers(set) {
                        let by = Programs::new(checker, who, module, &folder)?;
                        check_made(&by, set)?;
                        if has_message && checker.has_own() {
                            by.openssl(CHECK_MESSAGE)?;
                        }
                        // OpenSSL itself has no signature schemes for SLH-DSA, so both sides have the provider.
                        let maker = Programs::new(maker, Who::Hypergrove, module, &folder)?;
                        if who == Who::Hypergrove && has_message && checker.has_own() {
                            check_tls(&maker, &by)?;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Releases of the crate `openssl-src`, and the sources of OpenSSL that they carry.
const RELEASES: [(&str, &str); 2] = [("300.6.1", "3.6.3"), ("400.0.2", "4.0.3")];

/// An OpenSSL built from the source in a crate, which stays in the target folder.
fn built(crate_version: &str, release: &str) -> Result<OpenSsl, String> {
    let folder = process::target().join(format!("openssl-{release}"));
    let prefix = folder.join("installed");
    if prefix.join("bin/openssl").exists() {
        return OpenSsl::new(Some(prefix));
    }
    let source = folder.join("source");
    disk::make(source.join("src"))?;
    disk::write(source.join("src/lib.rs"), "")?;
    let manifest = format!(
        "[package]\nname = \"source\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [dependencies]\nopenssl-src = \"={crate_version}\"\n[workspace]\n"
    );
    disk::write(source.join("Cargo.toml"), manifest)?;
    process::fetch(|| {
        let mut vendor = process::cargo(&["vendor", "--quiet", "vendor"]);
        vendor.current_dir(&source);
        vendor
    })?;
    let build = folder.join("build");
    disk::make(&build)?;
    let configure = source.join("vendor/openssl-src/openssl/Configure");
    let mut command = Command::new(configure);
    // The crate leaves out what shared libraries, the legacy provider, tests and documents need.
    command.args(["no-shared", "no-legacy", "no-tests", "no-docs", "--libdir=lib"]);
    command.arg(format!("--prefix={}", prefix.display())).current_dir(&build);
    process::text(command)?;
    for words in [&["--jobs", "2"][..], &["install_sw"]] {
        process::text(process::limited(60, "make", &[&["--silent"], words].concat()).current_dir(&build))?;
    }
    OpenSsl::new(Some(prefix))
}
