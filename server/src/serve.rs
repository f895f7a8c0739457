//! Connections: TLS, bounds on their number and their slowness, and an orderly end.

use crate::api::handle;
use crate::config::Tls;
use crate::error::Error;
use crate::files::{Readers, read_trusted};
use crate::places::Place;
use crate::refused::Rare;
use crate::reserve::Reserve;
use crate::state::Server;
use crate::unsealing::Socket;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hypergrove::quote::{self, Quote};
use std::convert::Infallible;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Bytes of a request's line and headers.
const MAX_HEAD: usize = 64 << 10;

/// Time for the answers to requests that are cancelled when the server is stopped.
const ANSWERS: Duration = Duration::from_secs(5);

/// Why a PEM file was not read. The reader's own sentence has the bytes of a line, and where line breaks were lost, this line is the key.
fn of_pem(why: pem::Error) -> String {
    match why {
        pem::Error::MissingSectionEnd { .. } | pem::Error::IllegalSectionStart { .. } => {
            "this is damaged PEM: a block has no end, or line breaks were lost; compare the file with a copy".into()
        }
        why => quote::message(&why.to_string()),
    }
}

/// TLS 1.3 with these files.
pub fn tls(tls: &Tls) -> Result<TlsAcceptor, Error> {
    let failed = |path: &Path, why: &dyn Display| Error::bad(format!("[tls] {}: {why}", Quote::path(path)));
    let certificates = |path: &Path| {
        let read = CertificateDer::pem_slice_iter(&read_trusted(path, Readers::All)?).collect::<Result<Vec<_>, _>>();
        match read.map_err(|why| failed(path, &of_pem(why)))? {
            none if none.is_empty() => Err(failed(path, &"there is no certificate in this file")),
            all => Ok(all),
        }
    };
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(|why| failed(&tls.certificate, &why))?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|why| failed(path, &why))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|why| failed(path, &why))?)
        }
    };
    let key = PrivateKeyDer::from_pem_slice(&read_trusted(&tls.key, Readers::Warned)?);
    let key = key.map_err(|why| failed(&tls.key, &of_pem(why)))?;
    let config = builder.with_single_cert(certificates(&tls.certificate)?, key);
    Ok(TlsAcceptor::from(Arc::new(config.map_err(|why| failed(&tls.key, &why))?)))
}

/// Serves until `stop`. Then it takes no connection and no request any more, waits for those that were accepted, and seals the server.
pub async fn serve(server: Arc<Server>, listener: TcpListener, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let acceptor = server.config.tls.as_ref().map(tls).transpose()?;
    let graceful = GracefulShutdown::new();
    let local = match Socket::open(&server.config) {
        Ok(socket) => Some(tokio::spawn(socket.serve(server.clone()))),
        Err(why) => {
            tracing::warn!("there is no local way to unseal: {why}; the setting `socket` has its path");
            None
        }
    };
    let upkeep = tokio::spawn(upkeep(server.clone()));
    let address = listener.local_addr().map_err(|why| Error::internal(format!("the listening socket: {why}")))?;
    let scheme = if server.config.tls.is_some() { "https" } else { "http" };
    tracing::info!("listening on {scheme}://{address}");
    let mut stop = std::pin::pin!(stop);
    loop {
        // While a request is being answered on every connection, others wait in the system's queue.
        let accepted = async {
            let (stream, from) = listener.accept().await?;
            Ok::<_, std::io::Error>((stream, server.places.take(from.ip()).await))
        };
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = accepted => accepted,
        };
        let (stream, place) = match accepted {
            Ok((stream, Some(place))) => (stream, place),
            Ok((_, None)) => continue,
            Err(why) => {
                static FAILED: Rare = Rare::new();
                FAILED.warn(format_args!("a connection was not accepted: {why}"));
                // Of one connection, or there are no file descriptors left for a moment.
                server.places.give_one();
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let (server, acceptor, watcher) = (server.clone(), acceptor.clone(), graceful.watcher());
        let until = Instant::now() + Duration::from_secs(server.config.limits.first_byte_seconds);
        tokio::spawn(async move {
            if let Err(why) = stream.set_nodelay(true) {
                tracing::debug!("{why}");
            }
            let served = async {
                match acceptor {
                    None => connection(stream, server, watcher, place.clone(), until).await,
                    Some(acceptor) => match timeout_at(until, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => connection(stream, server, watcher, place.clone(), until).await,
                        Ok(Err(why)) => tracing::debug!("TLS: {why}"),
                        Err(_) => tracing::debug!("TLS: a client was too slow"),
                    },
                }
            };
            tokio::select! {
                () = served => {}
                () = place.given.notified() => tracing::debug!("a connection gave way to another one"),
            }
        });
    }
    drop(listener);
    tracing::info!("stopping: waiting for the requests that were accepted");
    server.places.give_all();
    local.iter().chain([&upkeep]).for_each(|task| task.abort());
    let time = Duration::from_secs(server.config.limits.stop_seconds);
    let mut ended = std::pin::pin!(graceful.shutdown());
    let is_over = tokio::time::timeout(time, &mut ended).await.is_ok();
    if !is_over {
        tracing::warn!("some requests did not end within {} seconds, and are cancelled", time.as_secs());
    }
    let sealed = server.seal().await;
    if !is_over {
        // The cancelled requests get their answers.
        drop(tokio::time::timeout(ANSWERS, ended).await);
    }
    sealed
}

/// Writes the lines for refused requests whose time has come, and keeps the reserve.
async fn upkeep(server: Arc<Server>) {
    static FAILED: Rare = Rare::new();
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let reserves = Reserve::all(&server.config);
        let kept = tokio::task::spawn_blocking(move || reserves.iter().try_for_each(Reserve::keep)).await;
        if let Ok(Err(why)) = kept {
            FAILED.warn(format_args!("no room on a disk can be kept in reserve: {why}"));
        }
        for _ in 0..10 {
            seconds.tick().await;
            if let Ok(open) = server.opened().await {
                server.refused.write(&open, false);
            }
        }
    }
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    server: Arc<Server>,
    watcher: hyper_util::server::graceful::Watcher,
    place: Arc<Place>,
    until: Instant,
) {
    let time = server.config.header_time();
    let mut stream = BufReader::new(stream);
    if !matches!(timeout_at(until, stream.fill_buf()).await, Ok(Ok(bytes)) if !bytes.is_empty()) {
        return tracing::debug!("a client sent nothing in time");
    }
    // A client that does not read its answer does not keep the connection.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(time));
    let stream = Box::pin(stream);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(time);
    // The buffer alone would not bound a head that comes at once. The second bound is that of a chunked body's trailers, too, which are skipped.
    builder.max_buf_size(MAX_HEAD).max_header_size(MAX_HEAD);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let server = server.clone();
        request.extensions_mut().insert(place.clone());
        async move { Ok::<_, Infallible>(handle(server, request.map(BodyExt::boxed_unsync)).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(why) = watcher.watch(connection).await {
        tracing::debug!("a connection ended: {why}");
    }
}

/// An address to listen on.
pub async fn listen(server: &Server) -> Result<TcpListener, Error> {
    let address = server.config.listen;
    let failed = |why: std::io::Error| Error::internal(format!("{address}: {why}; is another server there?"));
    TcpListener::bind(address).await.map_err(failed)
}
