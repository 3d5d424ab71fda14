//! Connections: accepted up to a limit, secured where asked for, each with its deadlines.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::Serving;
use super::paced::Paced;
use super::routes;
use crate::counts::add;

/// A request's head has at most so many bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Accepts until the server stops.
pub(super) async fn accept(listener: TcpListener, serving: Arc<Serving>) {
    let mut stopping = serving.stopping.clone();
    let acceptor = serving.options.tls.clone().map(TlsAcceptor::from);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => return,
        };
        let Ok((stream, peer)) = accepted else {
            // Out of descriptors, say; others may be closed meanwhile.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        if serving.counts.connections.load(Ordering::Acquire) >= serving.options.connections_max {
            add(&serving.counts.cut, 1);
            continue;
        }
        let counted = Counted::new(&serving);
        let acceptor = acceptor.clone();
        tokio::spawn(async move { connection(stream, peer, acceptor, &counted.0).await });
    }
}

/// Waits until the server stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A sender that is gone means the same.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// A connection, as long as it lives.
struct Counted(Arc<Serving>);

impl Counted {
    fn new(serving: &Arc<Serving>) -> Self {
        serving.counts.connections.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(serving))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counts.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    serving: &Arc<Serving>,
) {
    // Small answers should not wait for more; a socket that cannot be set works all the same.
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else { return talk(stream, peer, serving).await };
    match tokio::time::timeout(serving.options.head_timeout, acceptor.accept(stream)).await {
        Ok(Ok(secured)) => talk(secured, peer, serving).await,
        _ => add(&serving.counts.cut, 1),
    }
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: SocketAddr,
    serving: &Arc<Serving>,
) {
    let io = TokioIo::new(Paced::new(stream, serving.options.write_timeout));
    let service = service_fn(|request| {
        let serving = Arc::clone(serving);
        async move { Ok::<_, Infallible>(routes::respond(serving, peer, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(serving.options.head_timeout);
    builder.max_buf_size(HEAD_BYTES_MAX).half_close(false);
    let mut stopping = serving.stopping.clone();
    let mut connection = std::pin::pin!(builder.serve_connection(io, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if ended.is_err() {
        add(&serving.counts.cut, 1);
    }
}
