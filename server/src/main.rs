//! The command `hypergrove-server`.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use hypergrove::quote::{Quote, is_key_for_path};
use hypergrove::{EncryptedSigningKey, KeyError, SigningKey};
use hypergrove_server::audit::{self, Entry, Keys, Verified};
use hypergrove_server::config::Config;
use hypergrove_server::error::Error;
use hypergrove_server::files::{Readers, make_folder, read_trusted};
use hypergrove_server::keys::{Key, check_new, set_of};
use hypergrove_server::seal::{Source, random, read_passphrase, read_secret};
use hypergrove_server::serve::{listen, serve};
use hypergrove_server::state::{Server, existing_database, sealed_master};
use hypergrove_server::storage::{Sqlite, private_file};
use hypergrove_server::system::rotate_audit;
use hypergrove_server::{log, telemetry, threads, unsealing};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{ErrorKind, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use zeroize::Zeroizing;

/// A signing service: SLH-DSA (FIPS 205) over HTTP, in the shape of Vault's transit engine.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts a server to try things out: on this machine alone, with a key, unsealed by a file next to its database
    ///
    /// The first start prints a root token on standard output.
    Dev {
        /// The folder of the database, which is made if it is not there
        #[arg(long, default_value = "hypergrove-server-dev")]
        data: PathBuf,
        /// The address to listen on, which must be one of this machine
        #[arg(long, default_value = "127.0.0.1:8200")]
        listen: SocketAddr,
    },
    /// Makes the database of a deployment, and prints a root token
    Init(Deployment),
    /// Starts the server of a deployment
    Run {
        /// The settings
        #[arg(long)]
        config: PathBuf,
    },
    /// Unseals the server, which runs on this machine, through its local socket; for the server's user and root alone
    Unseal(Deployment),
    /// Prints a new root token; the server must be stopped
    RootToken(Deployment),
    /// Imports a private key, PKCS#8 in PEM or DER, as a new key or the next version of one; the server must be stopped
    Import {
        #[command(flatten)]
        deployment: Deployment,
        /// The name of the key
        name: String,
        /// The file of the private key, which may be encrypted
        file: PathBuf,
        /// A file with the passphrase of the private key, instead of a question on the terminal
        #[arg(long)]
        key_passphrase_file: Option<PathBuf>,
    },
    /// Works with the audit log
    Audit {
        #[command(subcommand)]
        command: AuditCommand,
    },
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Checks every line of the log, and that none is missing; the server may run
    Verify {
        #[command(flatten)]
        deployment: Deployment,
        /// An earlier file, which `audit rotate` has ended, instead of the log
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// Ends the log's file, and goes on in another one; a server that runs does it for SIGHUP
    Rotate(Deployment),
    /// Goes on without lines that are lost: the log says so for ever; the server must be stopped
    AcceptLoss {
        #[command(flatten)]
        deployment: Deployment,
        /// Why the lines are lost
        #[arg(long)]
        reason: String,
    },
}

#[derive(clap::Args)]
struct Deployment {
    /// The settings
    #[arg(long, required_unless_present = "dev", conflicts_with = "dev")]
    config: Option<PathBuf>,
    /// The folder of a server that was started by `dev`, instead of settings
    #[arg(long, value_name = "FOLDER")]
    dev: Option<PathBuf>,
    /// A file with the passphrase that unseals the server, instead of a question on the terminal
    #[arg(long)]
    passphrase_file: Option<PathBuf>,
}

impl Deployment {
    fn config(&self) -> Result<Config, Error> {
        match (&self.config, &self.dev) {
            (Some(path), _) => Config::read(path),
            (None, folder) => Ok(dev_config(folder.clone().unwrap_or_default())),
        }
    }

    /// The secret that unseals.
    fn secret(&self, config: &Config, is_new: bool) -> Result<Zeroizing<Vec<u8>>, Error> {
        if let Some(secret) = config.seal.secret()? {
            return Ok(secret);
        }
        match &self.passphrase_file {
            Some(path) => read_secret(path, Readers::Warned),
            None => {
                let ask = |question| ask(question, "--passphrase-file");
                let passphrase = ask("Passphrase that unseals the server: ")?;
                match is_new && ask("The same again: ")? != passphrase {
                    true => Err(Error::bad("the two passphrases differ")),
                    false => Ok(passphrase),
                }
            }
        }
    }
}

/// Asks on the terminal. `option` is for those who have none.
fn ask(question: &str, option: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
    let answer = ask_line(question, option)?;
    if answer.is_empty() { Err(Error::bad("the passphrase is empty")) } else { Ok(answer) }
}

/// Asks for a passphrase, which may be empty.
fn ask_line(question: &str, option: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
    let failed = |why| {
        Error::internal(format!("the terminal gave no passphrase ({why}); give it in a file, with {option} FILE"))
    };
    Ok(Zeroizing::new(rpassword::prompt_password(question).map_err(failed)?.into_bytes()))
}

/// The secret that `dev` makes.
fn unseal_key(folder: &Path) -> PathBuf {
    folder.join("unseal.key")
}

fn dev_config(folder: PathBuf) -> Config {
    Config { seal: Source::File { path: unseal_key(&folder) }, ..Config::of_folder(folder) }
}

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| refuse(error));
    log::start();
    std::panic::set_hook(Box::new(|panic| log::say(panic)));
    let filter = tracing_subscriber::EnvFilter::try_from_env("HYPERGROVE_SERVER_LOG");
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| log::Log)
        .log_internal_errors(false)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // Secrets of a process that crashes stay out of files.
    let nothing = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(why) = setrlimit(Resource::Core, nothing) {
        tracing::warn!("core dumps could not be disabled: {why}");
    }
    // Linux gives a program of `core_pattern` a dump whatever the limit is, but none of a process that is not dumpable. No other process of this
    // user reads the memory of such a process either.
    #[cfg(target_os = "linux")]
    if let Err(why) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        tracing::warn!("other processes of this user may read the server's memory: {why}");
    }
    let code = match threads::runtime().and_then(|runtime| runtime.block_on(run(arguments.command))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log::say(format_args!("error: {why}{}", advice()));
            ExitCode::FAILURE
        }
    };
    log::drain();
    code
}

fn no_signals(why: std::io::Error) -> Error {
    Error::internal(format!("signals: {why}"))
}

/// Ends with the help that was asked for, or with clap's error without the words that were typed: one of them may be a private key.
fn refuse(mut error: clap::Error) -> ! {
    use clap::error::{ContextKind as Kind, ContextValue as Value, ErrorKind};
    if error.exit_code() == 0 {
        error.exit();
    }
    let mut unknown = vec![Kind::InvalidValue, Kind::InvalidSubcommand, Kind::TrailingArg];
    // Of other errors, this is the name of the argument whose value is wrong.
    unknown.extend((error.kind() == ErrorKind::UnknownArgument).then_some(Kind::InvalidArg));
    for kind in unknown {
        if let Some(Value::String(text)) = error.get(kind) {
            let shown = Quote::new(text).bare();
            error.insert(kind, Value::String(shown));
            // Tips repeat the word.
            error.remove(Kind::Suggested);
        }
    }
    eprint!("{}{}", error.render(), advice());
    std::process::exit(error.exit_code())
}

/// Who else may have read a private key that stands in the arguments, and where it belongs; empty where there is none.
fn advice() -> &'static str {
    match std::env::args_os().skip(1).any(is_key_for_path) {
        true => {
            "\nan argument looks like a private key, and other users of this machine may see arguments; put the key into a file that you alone may \
             read, and name it: hypergrove-server import … NAME FILE; a key in the variable KEY is read by `import … NAME <(printenv KEY)`\n"
        }
        false => "",
    }
}

async fn run(command: Command) -> Result<(), Error> {
    // SIGXFSZ: a file that may not grow is then an error of a write, and does not end the process.
    let _too_large = signal(SignalKind::from_raw(25)).map_err(no_signals)?;
    match command {
        Command::Dev { data, listen } => dev(data, listen).await,
        Command::Run { config } => {
            let server = Server::start(Config::read(&config)?)?;
            match server.config.seal.secret()? {
                Some(secret) => server.unseal(secret).await?,
                None => tracing::info!(
                    "the server is sealed; unseal it with `hypergrove-server unseal` or POST /v1/sys/unseal"
                ),
            }
            serve_until_stopped(server, true).await
        }
        Command::Init(deployment) => {
            let config = deployment.config()?;
            print_token(&Server::init(&config, &deployment.secret(&config, true)?)?)
        }
        Command::Unseal(deployment) => {
            let config = deployment.config()?;
            unsealing::unseal(&config, &deployment.secret(&config, false)?).await?;
            tracing::info!("the server is unsealed");
            Ok(())
        }
        Command::RootToken(deployment) => {
            let server = unsealed(&deployment).await?;
            let entry = Entry { operation: "root-token", ..Entry::default() };
            begin(&server, &entry).await?;
            let token = server.change(Server::new_root_token).await?;
            note(&server, entry).await?;
            print_token(&token)
        }
        Command::Import { deployment, name, file, key_passphrase_file } => {
            check_new(&name)?;
            let key = read_key(&file, key_passphrase_file.as_deref())?;
            import(unsealed(&deployment).await?, name, key).await
        }
        Command::Audit { command: AuditCommand::Verify { deployment, file } } => {
            let config = deployment.config()?;
            let storage = Sqlite::open(&existing_database(&config)?)?;
            let sealed =
                sealed_master(&storage)?.ok_or_else(|| Error::bad("there is no database; make one with `init`"))?;
            let keys = Keys::new(&sealed.open(&deployment.secret(&config, false)?)?);
            let Verified { lines, after, last, hash, losses } = match file {
                Some(file) => audit::verify(&file, &keys, None)?,
                None => audit::verify_log(&config.audit_log(), &keys, &storage)?,
            };
            for loss in losses {
                print(&loss.to_string())?;
            }
            print(&format!(
                "{lines} lines: none was edited or removed ({after} of them were written after the last signed head)"
            ))?;
            print(&format!("line {last} is the last one; its SHA-256 is {hash}"))
        }
        Command::Audit { command: AuditCommand::Rotate(deployment) } => {
            let server = unsealed(&deployment).await?;
            let old = rotate_audit(&server).await?;
            server.seal().await?;
            print(&old.unwrap_or_default().display().to_string())
        }
        Command::Audit { command: AuditCommand::AcceptLoss { deployment, reason } } => {
            let config = deployment.config()?;
            let path = config.audit_log();
            let secret = deployment.secret(&config, false)?;
            let server = Server::start(config)?;
            let master = server.master(&secret)?;
            print(&audit::accept_loss(&path, &master, &server.storage, &reason)?.to_string())
        }
    }
}

/// The server of a deployment, unsealed, for a command that works while no server runs.
async fn unsealed(deployment: &Deployment) -> Result<Arc<Server>, Error> {
    let config = deployment.config()?;
    let secret = deployment.secret(&config, false)?;
    let server = Server::start(config)?;
    server.unseal(secret).await?;
    Ok(server)
}

/// Writes into the audit log that a command begins.
async fn begin(server: &Server, entry: &Entry) -> Result<(), Error> {
    server.opened().await?.audit.append(&Entry { begun: true, ..entry.clone() }).await
}

/// Writes a command into the audit log, and seals.
async fn note(server: &Server, entry: Entry) -> Result<(), Error> {
    server.opened().await?.audit.append(&Entry { status: 200, ..entry }).await?;
    server.seal().await
}

fn write_out(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

/// Prints a result on standard output. A reader that has gone wants no more of it.
fn print(text: &str) -> Result<(), Error> {
    match write_out(text) {
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|why| Error::internal(format!("standard output: {why}; it was to be: {text}"))),
    }
}

/// The token alone is on standard output, so that a script can take it from there.
fn print_token(token: &str) -> Result<(), Error> {
    log::say("The root token, which is printed this once; it may do everything:");
    log::drain();
    write_out(token).map_err(|why| {
        Error::internal(format!("standard output: {why}; the root token is lost, and `root-token` makes another one"))
    })
}

async fn dev(data: PathBuf, listen: SocketAddr) -> Result<(), Error> {
    if !listen.ip().is_loopback() {
        return Err(Error::bad(format!("--listen {listen}: `dev` listens on this machine alone; `run` is for others")));
    }
    let config = Config { listen, ..dev_config(data) };
    config.check()?;
    if !config.database().exists() {
        write_secret(&config)?;
        let secret = read_secret(&unseal_key(&config.data), Readers::Group)?;
        let token = Server::init(&config, &secret)?;
        let server = Server::start(config.clone())?;
        server.unseal(secret).await?;
        if let Some(set) = set_of("slh-dsa-sha2-128s") {
            let signing = server.engine.generate(set)?;
            put_version(&server, "dev".into(), signing, false).await?;
        }
        note(&server, Entry { operation: "dev", path: "transit/keys/dev".into(), ..Entry::default() }).await?;
        print_token(&token)?;
    }
    let server = Server::start(config)?;
    server.unseal(read_secret(&unseal_key(&server.config.data), Readers::Group)?).await?;
    serve_until_stopped(server, false).await
}

/// A random secret next to the database.
fn write_secret(config: &Config) -> Result<(), Error> {
    let Source::File { path } = &config.seal else { return Ok(()) };
    make_folder(&config.data)?;
    let write = || {
        let secret = Zeroizing::new(random::<32>().map_err(std::io::Error::other)?);
        let mut file = private_file().write(true).create_new(true).open(path)?;
        writeln!(file, "{}", *Zeroizing::new(hex::encode(*secret)))?;
        file.sync_all()
    };
    match write() {
        Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        result => result.map_err(|why| Error::at(path, why)),
    }
}

async fn serve_until_stopped(server: Arc<Server>, is_deployment: bool) -> Result<(), Error> {
    telemetry::start();
    let caught = |kind| signal(kind).map_err(no_signals);
    let (mut terminate, mut interrupt) = (caught(SignalKind::terminate())?, caught(SignalKind::interrupt())?);
    let mut hangup = caught(SignalKind::hangup())?;
    let listener = listen(&server).await?;
    tokio::spawn(threads::log_notices(server.clone()));
    serve(server.clone(), listener, async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => match is_deployment {
                    true => drop(tokio::spawn(rotate_for_signal(server.clone()))),
                    // The terminal was closed.
                    false => break,
                },
            }
        }
    })
    .await
}

async fn rotate_for_signal(server: Arc<Server>) {
    match rotate_audit(&server).await {
        Ok(Some(old)) => tracing::info!("the audit log goes on in another file; the old one is {}", Quote::path(old)),
        Ok(None) => tracing::info!("the audit log goes on in another file"),
        Err(why) => tracing::error!("SIGHUP: {why}"),
    }
}

fn read_key(file: &Path, passphrase: Option<&Path>) -> Result<SigningKey, Error> {
    let named = |why: &dyn std::fmt::Display| Error::bad(format!("{}: {why}", Quote::path(file)));
    let bytes = read_trusted(file, Readers::Warned)?;
    match SigningKey::read_pkcs8(&bytes) {
        Err(KeyError::Encrypted) => {}
        read => return read.map_err(|why| named(&why)),
    }
    let encrypted = EncryptedSigningKey::read(&bytes).map_err(|why| named(&why))?;
    let passphrase = match passphrase {
        Some(path) => read_passphrase(path, Readers::Warned)?,
        None => ask_line("Passphrase of the private key: ", "--key-passphrase-file")?,
    };
    SigningKey::decrypt(&encrypted, &passphrase).map_err(|why| named(&why))
}

/// Stores a key, or the next version of one. Returns its version.
async fn put_version(server: &Arc<Server>, name: String, signing: SigningKey, imported: bool) -> Result<u32, Error> {
    let open = server.opened().await?;
    let change = move |server: &Server| {
        let set = signing.params();
        let key = match open.key(&name) {
            None => Key::new(&name, set, None),
            Some(key) if key.set.name == set.name => Key::clone(&key),
            Some(key) => {
                return Err(Error::bad(format!("key {name} is of the set {}, the file of {}", key.set.name, set.name)));
            }
        };
        if key.versions().iter().any(|version| *version.signing == signing) {
            return Err(Error::bad(format!("key {name} has this private key already")));
        }
        let key = server.put_key(&open, key.with_version(signing, imported, &open.master)?)?;
        Ok(key.latest())
    };
    server.change(change).await
}

async fn import(server: Arc<Server>, name: String, signing: SigningKey) -> Result<(), Error> {
    // The parts of a key that somebody else made may not belong together. A check is rare, so the engine that compares does it.
    server.redundant.check(&signing)?;
    let fingerprint = signing.verifying_key().fingerprint();
    let path = format!("transit/keys/{name}");
    let entry = Entry { operation: "key-import", path, ..Entry::default() };
    begin(&server, &entry).await?;
    let version = put_version(&server, name.clone(), signing, true).await?;
    note(&server, Entry { version: Some(version), ..entry }).await?;
    log::say(format_args!("imported as version {version} of key {name}: {fingerprint}"));
    Ok(())
}
