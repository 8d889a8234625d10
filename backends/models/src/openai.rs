//! Any endpoint that speaks OpenAI's streaming chat completions: OpenAI, DeepSeek, llama.cpp, vLLM, Ollama.

mod deltas;
mod failure;
#[cfg(test)]
mod fixtures;
mod history;
mod request;
mod sse;

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use impresario_kernel::{Chunk, Failure};
use impresario_seams::{ChunkStream, Model, ModelRequest};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use tokio::time::Instant;

use crate::asker;
use deltas::{Broken, Decoder};

/// How long a connection may take to stand.
const CONNECT: Duration = Duration::from_secs(10);

/// How many times the idle time-out a server may send comments only: they say that it lives, not that it works.
const COMMENTS_ONLY: u32 = 10;

/// How long a server may take to end a body behind `[DONE]`: only a body read to its end leaves a connection that the
/// next request can use.
const GRACE: Duration = Duration::from_millis(200);

/// The longest body of a refusal that is read.
const REFUSAL_MAX: usize = 64 * 1024;

/// Which endpoint.
#[derive(Clone, Debug)]
pub struct OpenAiOptions {
    /// The name by which agents ask for it.
    pub provider: String,
    /// Up to and without `/chat/completions`: `https://api.openai.com/v1`.
    pub base_url: String,
    /// Sent as a bearer token; never shown.
    pub api_key: Option<String>,
    /// How long the stream may be silent. Comments of the server count as a sign of life, for ten times as long.
    pub idle_timeout: Duration,
}

/// A client of one endpoint.
#[derive(Clone, Debug)]
pub struct OpenAiModel {
    options: OpenAiOptions,
    client: Result<reqwest::Client, String>,
}

/// The HTTP client of an endpoint: no proxy stands before one on this machine.
///
/// # Errors
/// What the system says, for people.
pub fn client(base_url: &str) -> Result<reqwest::Client, String> {
    // Somebody else in the process may have chosen a provider already; any will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().connect_timeout(CONNECT);
    let client = if is_loopback(base_url) { client.no_proxy() } else { client };
    // A machine without certificates can still speak to a server that needs none.
    let client = if base_url.starts_with("http://") { client.tls_certs_only(std::iter::empty()) } else { client };
    client.build().map_err(|error| error.to_string())
}

impl OpenAiModel {
    /// A client; it connects when it is asked something.
    pub fn new(options: OpenAiOptions) -> Self {
        Self { client: client(&options.base_url), options }
    }

    async fn start(self, request: ModelRequest) -> Result<ChunkStream, Failure> {
        let client = self.client.clone().map_err(|error| Failure::new("TRANSPORT", error))?;
        let url = format!("{}/chat/completions", self.options.base_url.trim_end_matches('/'));
        let mut call = client.post(&url).header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream");
        if is_this_machine(&url) {
            for (name, value) in asker::headers(&request.scope, history::sources(&request.messages)) {
                call = call.header(name, value);
            }
        }
        if let Some(key) = &self.options.api_key {
            call = call.header(AUTHORIZATION, bearer(key)?);
        }
        let body = request::body(&request, &self.options.provider);
        let sent = tokio::time::timeout(self.options.idle_timeout, call.body(body).send()).await;
        let response = match sent {
            Err(_) => return Err(failure::silent(self.options.idle_timeout)),
            Ok(Err(error)) => return Err(failure::transport(&url, &error)),
            Ok(Ok(response)) => response,
        };
        if response.status().is_success() {
            return Ok(chunks(response, url, self.options.idle_timeout));
        }
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = refusal(response).await;
        Err(failure::of_status(status, &Headers(&headers), &body))
    }
}

impl Model for OpenAiModel {
    fn provider(&self) -> &str {
        &self.options.provider
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        self.clone().start(request).boxed()
    }
}

/// The key as a header that no log shows.
fn bearer(key: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim()))
        .map_err(|_| Failure::new("INVALID_CREDENTIAL", "the API key has characters that no key can have"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Headers by lower-case name.
struct Headers<'a>(&'a HeaderMap);

impl failure::Named for Headers<'_> {
    fn named(&self, name: &str) -> Option<String> {
        self.0.get(name)?.to_str().ok().map(str::to_owned)
    }
}

/// Whether an address cannot be another machine's, whatever names mean there.
fn is_this_machine(url: &str) -> bool {
    let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

fn is_loopback(url: &str) -> bool {
    let host = url.split("://").nth(1).unwrap_or(url);
    ["127.", "localhost", "[::1]"].iter().any(|loopback| host.starts_with(loopback))
}

/// The beginning of a body that says why not.
async fn refusal(response: reqwest::Response) -> String {
    let mut bytes = vec![];
    let mut body = response.bytes_stream();
    while let Some(Ok(part)) = body.next().await {
        bytes.extend_from_slice(&part);
        if bytes.len() >= REFUSAL_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A response in the making: bytes in, chunks out. Dropping it closes the connection.
fn chunks(response: reqwest::Response, url: String, idle: Duration) -> ChunkStream {
    let reading = Reading { response, decoder: Decoder::new(), url, idle, progress: Instant::now(), is_over: false };
    let batches = stream::unfold(reading, |mut reading| async move {
        if reading.is_over {
            return None;
        }
        let batch = reading.next().await;
        Some((stream::iter(batch), reading))
    });
    batches.flatten().boxed()
}

/// A body on its way through the decoder.
struct Reading {
    response: reqwest::Response,
    decoder: Decoder,
    url: String,
    idle: Duration,
    /// When the last event came.
    progress: Instant,
    is_over: bool,
}

impl Reading {
    /// What the next bytes say. Nothing follows what ends the answer.
    async fn next(&mut self) -> Vec<Result<Chunk, Failure>> {
        let events = self.decoder.events();
        let said = match tokio::time::timeout(self.idle, self.response.chunk()).await {
            Err(_) => Err((vec![], failure::silent(self.idle))),
            Ok(Ok(Some(bytes))) => self.decoder.push(&bytes),
            Ok(Ok(None)) => self.end(),
            // Usage and the end mark may be lost; the answer is not.
            Ok(Err(_)) if self.decoder.is_whole() => {
                self.decoder.drop_rest();
                self.end()
            }
            Ok(Err(error)) => Err((vec![], failure::broken(&self.url, &error))),
        };
        if self.decoder.events() > events {
            self.progress = Instant::now();
        }
        let mut batch = self.taken(said);
        if !self.is_over && self.decoder.is_done() {
            let _ = tokio::time::timeout(GRACE, async { while let Ok(Some(_)) = self.response.chunk().await {} }).await;
            let last = self.end();
            batch.extend(self.taken(last));
        } else if !self.is_over && self.progress.elapsed() > self.idle.saturating_mul(COMMENTS_ONLY) {
            self.is_over = true;
            batch.push(Err(failure::silent(self.progress.elapsed())));
        }
        batch
    }

    fn end(&mut self) -> Result<Vec<Chunk>, Broken> {
        self.is_over = true;
        self.decoder.end()
    }

    fn taken(&mut self, said: Result<Vec<Chunk>, Broken>) -> Vec<Result<Chunk, Failure>> {
        match said {
            Ok(chunks) => chunks.into_iter().map(Ok).collect(),
            Err((chunks, failure)) => {
                self.is_over = true;
                chunks.into_iter().map(Ok).chain([Err(failure)]).collect()
            }
        }
    }
}
