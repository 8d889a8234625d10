//! A model as an OpenAI-compatible streaming server: real adapters can be tried against scripted answers.

mod wire;

use std::fs::File;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, stream};
use impresario_kernel::{Chunk, Failure};
use impresario_seams::{ChunkStream, Model};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::asker;

/// The longest request that is read.
const REQUEST_MAX: usize = 256 * 1024 * 1024;

/// Serves `model` until `shutdown` is done: `POST /v1/chat/completions`, `GET /v1/models`, `GET /stats`. Answers that
/// are under way then are broken off. What is asked is added to `record`, if there is one: each request body as it came,
/// a line each.
///
/// # Errors
/// What the listener says.
pub async fn serve(
    listener: TcpListener,
    model: Arc<dyn Model>,
    record: Option<File>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (close, closing) = watch::channel(());
    let server = Server {
        model,
        stats: Arc::new(Stats::default()),
        record: record.map(|file| Arc::new(Mutex::new(file))),
        closing,
    };
    let app = Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/v1/models", get(models))
        .route("/stats", get(stats))
        .layer(DefaultBodyLimit::max(REQUEST_MAX))
        .with_state(server);
    // The sender goes with the end of this future, and with it go the streams that are open.
    let shutdown = shutdown.map(move |()| drop(close));
    axum::serve(listener, app).with_graceful_shutdown(shutdown).await
}

#[derive(Clone)]
struct Server {
    model: Arc<dyn Model>,
    stats: Arc<Stats>,
    record: Option<Arc<Mutex<File>>>,
    /// Its sender is dropped when the server ends.
    closing: watch::Receiver<()>,
}

impl Server {
    fn record(&self, body: &[u8]) {
        let Some(file) = &self.record else { return };
        let line = [body, b"\n"].concat();
        if let Err(error) = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line) {
            tracing::warn!(%error, "a request could not be recorded");
        }
    }

    /// Waits until the server ends.
    fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closing = self.closing.clone();
        async move { while closing.changed().await.is_ok() {} }
    }
}

#[derive(Debug, Default)]
struct Stats {
    requests: AtomicU64,
    open: AtomicU64,
    aborted: AtomicU64,
    completed: AtomicU64,
    peak: AtomicU64,
}

/// What `GET /stats` answers.
#[derive(Serialize)]
struct Counted {
    requests: u64,
    open_streams: u64,
    aborted_streams: u64,
    completed_streams: u64,
    peak_concurrency: u64,
}

async fn stats(State(server): State<Server>) -> Json<Counted> {
    let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    let stats = &server.stats;
    Json(Counted {
        requests: count(&stats.requests),
        open_streams: count(&stats.open),
        aborted_streams: count(&stats.aborted),
        completed_streams: count(&stats.completed),
        peak_concurrency: count(&stats.peak),
    })
}

async fn models(State(server): State<Server>) -> Json<Value> {
    let provider = server.model.provider();
    Json(json!({"object": "list", "data": [{"id": provider, "object": "model", "owned_by": "impresario"}]}))
}

async fn complete(State(server): State<Server>, headers: HeaderMap, body: Bytes) -> Response {
    let open = OpenRequest::new(Arc::clone(&server.stats));
    server.record(&body);
    let (request, streams) = match wire::request(&body, asker::scope(&headers), &asker::asides(&headers)) {
        Ok(request) => request,
        Err(error) => {
            let message = format!("the request does not read: {error}");
            return open.close_with(failed(&Failure { status: Some(400), ..Failure::new("BAD_REQUEST", message) }));
        }
    };
    let model = request.header.config.model.clone();
    let answer = async {
        match server.model.stream(request).await {
            Ok(chunks) if streams => events(chunks.take_until(server.closed()).boxed(), &model, open),
            Ok(chunks) => whole(chunks, &model, open).await,
            Err(failure) if streams && Broken::of(&failure).is_some() => {
                events(stream::iter([Err(failure)]).boxed(), &model, open)
            }
            Err(failure) => open.close_with(failed(&failure)),
        }
    };
    tokio::select! {
        response = answer => response,
        () = server.closed() => failed(&Failure::new("SERVER", "the server is going down")),
    }
}

/// A request that is being answered; counts itself out when it is dropped.
struct OpenRequest {
    stats: Arc<Stats>,
    is_complete: AtomicBool,
}

impl OpenRequest {
    fn new(stats: Arc<Stats>) -> Self {
        stats.requests.fetch_add(1, Ordering::SeqCst);
        let open = stats.open.fetch_add(1, Ordering::SeqCst) + 1;
        stats.peak.fetch_max(open, Ordering::SeqCst);
        Self { stats, is_complete: AtomicBool::new(false) }
    }

    fn complete(&self) {
        self.is_complete.store(true, Ordering::SeqCst);
    }

    fn close_with(self, response: Response) -> Response {
        self.complete();
        response
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.stats.open.fetch_sub(1, Ordering::SeqCst);
        let complete = self.is_complete.load(Ordering::SeqCst);
        let counter = if complete { &self.stats.completed } else { &self.stats.aborted };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

/// Chunks as server-sent events. Only a stream that came to its own end says so, and what an adapter would say of a broken
/// connection or a broken event becomes one.
fn events(chunks: ChunkStream, model: &str, open: OpenRequest) -> Response {
    let mut encoder = wire::Encoder::new(model);
    let pieces = chunks.flat_map(move |chunk| {
        let mut pieces: Vec<Piece> = match &chunk {
            Ok(chunk) => encoder.encode(chunk).into_iter().map(|value| Piece::event(&value)).collect(),
            Err(failure) => vec![match Broken::of(failure) {
                Some(Broken::Connection) => Piece::Reset,
                Some(Broken::Event) => Piece::Text("data: {\"choices\": [{\"delta\": \n\n".into()),
                None => Piece::event(&wire::error(failure)),
            }],
        };
        if let Ok(Chunk::Finish { .. }) = chunk {
            pieces.push(Piece::Text("data: [DONE]\n\n".into()));
        }
        let last = matches!(chunk, Err(_) | Ok(Chunk::Finish { .. })).then(|| pieces.len().saturating_sub(1));
        stream::iter(pieces.into_iter().enumerate().map(move |(at, piece)| Part { piece, is_last: Some(at) == last }))
    });
    let body = Counting { parts: pieces.boxed(), open, is_flushed: false };
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

/// A failure that has no words on the wire: it is seen there.
enum Broken {
    Connection,
    Event,
}

impl Broken {
    fn of(failure: &Failure) -> Option<Self> {
        match failure.code.as_str() {
            "STREAM_CLOSED" => Some(Self::Connection),
            "MALFORMED_RESPONSE" => Some(Self::Event),
            _ => None,
        }
    }
}

/// Something that is sent.
enum Piece {
    Text(String),
    /// The connection is closed in the middle of the body.
    Reset,
}

impl Piece {
    fn event(value: &Value) -> Self {
        Self::Text(format!("data: {value}\n\n"))
    }
}

/// A piece, and whether the answer is over with it.
struct Part {
    piece: Piece,
    is_last: bool,
}

/// A body that knows whether it was sent to its end.
struct Counting {
    parts: BoxStream<'static, Part>,
    open: OpenRequest,
    /// Whether the connection is to be closed, and what came before is on its way.
    is_flushed: bool,
}

impl Stream for Counting {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_flushed {
            return Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())));
        }
        let part = self.parts.poll_next_unpin(context);
        if matches!(&part, Poll::Ready(Some(part)) if part.is_last) {
            self.open.complete();
        }
        match part {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some(Part { piece: Piece::Text(text), .. })) => Poll::Ready(Some(Ok(Bytes::from(text)))),
            // The server sends what it has while it waits, and throws it away when the body fails.
            Poll::Ready(Some(Part { piece: Piece::Reset, .. })) => {
                self.is_flushed = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

/// The whole answer at once, for clients that do not stream.
async fn whole(mut chunks: ChunkStream, model: &str, open: OpenRequest) -> Response {
    let mut assembler = impresario_kernel::assembler::Assembler::default();
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(chunk) => {
                assembler.push(&chunk);
                if matches!(chunk, Chunk::Finish { .. }) {
                    break;
                }
            }
            Err(failure) => return open.close_with(failed(&failure)),
        }
    }
    open.close_with(Json(wire::completion(model, &assembler)).into_response())
}

fn failed(failure: &Failure) -> Response {
    let of_code = match failure.code.as_str() {
        "RATE_LIMIT" => StatusCode::TOO_MANY_REQUESTS,
        "AUTH" => StatusCode::UNAUTHORIZED,
        "QUOTA" => StatusCode::PAYMENT_REQUIRED,
        "UNKNOWN_MODEL" => StatusCode::NOT_FOUND,
        "TIMEOUT" => StatusCode::REQUEST_TIMEOUT,
        "SERVER" | "TRANSPORT" | "STREAM_CLOSED" => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    };
    let status = failure.status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(of_code);
    let mut response = (status, Json(wire::error(failure))).into_response();
    if let Some(wait) = failure.provider_retry_after_ms {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.div_ceil(1000)));
        response.headers_mut().insert("retry-after-ms", HeaderValue::from(wait));
    }
    response
}
