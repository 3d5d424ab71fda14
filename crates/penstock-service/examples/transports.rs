//! What moves bodies of 1 to 16 MB over loopback fastest: HTTP/1.1 and HTTP/2 as hyper speaks them, and our own reading of HTTP/1.1
//! straight into the memory where a batch stays. `cargo run -p penstock-service --release --example transports`

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use penstock_service::{Body, Client, ClientOptions, Lane, Line, MakeBodies, Options, Problem, Server};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

const ROUND_BYTES: usize = 1 << 30;
const ROUNDS: usize = 4;
/// Windows and frames as large as HTTP/2 lets them usefully be.
const WINDOW: u32 = 64 << 20;
const FRAME: u32 = (16 << 20) - 1;

/// What one contender does in a round.
type Work<'a> = Box<dyn Fn() + 'a>;

/// Always the same body, so that nothing but moving it is measured.
struct Same(Bytes);

impl MakeBodies for Same {
    fn first_from(&self, step: u64) -> u64 {
        step
    }

    fn check(&self, _: Lane, _: u64) -> Result<(), Problem> {
        Ok(())
    }

    fn wait(&self, _: u64, _: Duration) -> Result<bool, Problem> {
        Ok(true)
    }

    fn make(&self, _: Lane, _: u64) -> Result<Option<Body>, Problem> {
        Ok(Some(Body::hashed(vec![self.0.clone()])))
    }

    fn answer(&self, _: &str, _: &[(String, u64)]) -> Result<Vec<u8>, Problem> {
        Ok(Vec::new())
    }

    fn stop(&self) {}
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// A server as hyper makes it; where it listens.
fn plain_server(runtime: &Runtime, body: Bytes, second: bool) -> SocketAddr {
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let body = body.clone();
            let service = service_fn(move |_: Request<Incoming>| {
                let body = body.clone();
                async move { Ok::<_, Infallible>(Response::new(Full::new(body))) }
            });
            let io = TokioIo::new(stream);
            tokio::spawn(async move {
                if second {
                    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
                    builder.max_frame_size(FRAME).max_send_buf_size(FRAME as usize);
                    let _ = builder.serve_connection(io, service).await;
                } else {
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                }
            });
        }
    });
    address
}

/// Receives a body into memory that is used again.
async fn received(mut answer: Response<Incoming>, into: &mut Vec<u8>) {
    into.clear();
    while let Some(Ok(frame)) = answer.frame().await {
        if let Some(data) = frame.data_ref() {
            into.extend_from_slice(data);
        }
    }
}

async fn hyper_first(address: SocketAddr, count: usize, bytes: usize) {
    let io = TokioIo::new(TcpStream::connect(address).await.expect("a connection"));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.expect("a handshake");
    tokio::spawn(connection);
    let mut into = Vec::with_capacity(bytes);
    for _ in 0..count {
        let request = Request::get("/").header("host", "a").body(Empty::<Bytes>::new()).expect("a request");
        sender.ready().await.expect("a connection");
        received(sender.send_request(request).await.expect("an answer"), &mut into).await;
        assert_eq!(into.len(), bytes);
    }
}

async fn hyper_second(address: SocketAddr, count: usize, bytes: usize) {
    let io = TokioIo::new(TcpStream::connect(address).await.expect("a connection"));
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW).max_frame_size(FRAME);
    let (mut sender, connection) = builder.handshake(io).await.expect("a handshake");
    tokio::spawn(connection);
    let mut into = Vec::with_capacity(bytes);
    for _ in 0..count {
        let request = Request::get("http://a/").body(Empty::<Bytes>::new()).expect("a request");
        received(sender.send_request(request).await.expect("an answer"), &mut into).await;
        assert_eq!(into.len(), bytes);
    }
}

/// Our client against our server, over so many connections.
fn ours(server: &Server, connections: usize, count: usize, bytes: usize) {
    let address = server.address();
    let client = Arc::new(Client::new(ClientOptions {
        servers: vec![(address.ip().to_string(), address.port())],
        credentials: Vec::new(),
        tls: None,
        first: 0,
        connect_timeout: Duration::from_secs(3),
        silence_max: Duration::from_secs(30),
        limit: Duration::from_secs(30),
    }));
    let ask = |first: usize| {
        let mut line = Line::default();
        for step in (first..count).step_by(connections) {
            let path = format!("/v1/batch?lane=0&of=1&step={step}");
            let turn = |answer: penstock_service::Answer| Ok(answer.body.as_ref().len());
            assert_eq!(client.ask(&mut line, &path, &turn).expect("an answer"), bytes);
        }
    };
    std::thread::scope(|scope| {
        (0..connections).for_each(|first| {
            scope.spawn(move || ask(first));
        });
    });
}

#[allow(clippy::print_stdout)]
fn main() {
    for bytes in [1 << 20, 4 << 20, 16 << 20] {
        let count = ROUND_BYTES / bytes;
        let body = Bytes::from(vec![7_u8; bytes]);
        let (serving, asking) = (runtime(), runtime());
        let first = plain_server(&serving, body.clone(), false);
        let second = plain_server(&serving, body.clone(), true);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server =
            Server::start(listener, Arc::new(Same(body)), (Vec::new(), String::new()), Options::default());
        let server = server.expect("a server");
        let contenders: [(&str, Work<'_>); 4] = [
            ("hyper, HTTP/1.1", Box::new(|| asking.block_on(hyper_first(first, count, bytes)))),
            ("hyper, HTTP/2", Box::new(|| asking.block_on(hyper_second(second, count, bytes)))),
            ("ours, 1 connection", Box::new(|| ours(&server, 1, count, bytes))),
            ("ours, 2 connections", Box::new(|| ours(&server, 2, count, bytes))),
        ];
        let mut best = [f64::MAX; 4];
        for _ in 0..ROUNDS {
            for ((_, work), best) in contenders.iter().zip(&mut best) {
                let begun = Instant::now();
                work();
                *best = best.min(begun.elapsed().as_secs_f64());
            }
        }
        for ((name, _), took) in contenders.iter().zip(best) {
            println!("{:>2} MB  {name:<20} {:.2} GB/s", bytes >> 20, (count * bytes) as f64 / took / 1e9);
        }
    }
}
