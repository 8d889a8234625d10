//! Any endpoint that speaks OpenAI's streaming chat completions: OpenAI, DeepSeek, llama.cpp, vLLM, Ollama.

mod deltas;
mod failure;
#[cfg(test)]
mod fixtures;
mod request;
mod sse;

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use impresario_kernel::{Chunk, Failure};
use impresario_seams::{ChunkStream, Model, ModelRequest};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};

use deltas::Decoder;

/// How long a connection may take to stand.
const CONNECT: Duration = Duration::from_secs(10);

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
    /// How long the stream may be silent; comments of the server count as a sign of life.
    pub idle_timeout: Duration,
}

/// A client of one endpoint.
#[derive(Clone, Debug)]
pub struct OpenAiModel {
    options: OpenAiOptions,
    client: Result<reqwest::Client, String>,
}

impl OpenAiModel {
    /// A client; it connects when it is asked something.
    pub fn new(options: OpenAiOptions) -> Self {
        // Somebody else in the process may have chosen a provider already; any will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().connect_timeout(CONNECT);
        let client = if is_loopback(&options.base_url) { client.no_proxy() } else { client };
        Self { client: client.build().map_err(|error| error.to_string()), options }
    }

    async fn start(self, request: ModelRequest) -> Result<ChunkStream, Failure> {
        let client = self.client.clone().map_err(|error| Failure::new("TRANSPORT", error))?;
        let url = format!("{}/chat/completions", self.options.base_url.trim_end_matches('/'));
        let mut call = client.post(&url).header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream");
        if let Some(key) = &self.options.api_key {
            call = call.bearer_auth(key);
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

/// Headers by lower-case name.
struct Headers<'a>(&'a HeaderMap);

impl failure::Named for Headers<'_> {
    fn named(&self, name: &str) -> Option<String> {
        self.0.get(name)?.to_str().ok().map(str::to_owned)
    }
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
    let state = (response.bytes_stream().boxed(), Some(Decoder::new()));
    let batches = stream::unfold(state, move |(mut body, decoder)| {
        let url = url.clone();
        async move {
            let mut decoder = decoder?;
            let batch: Vec<Result<Chunk, Failure>>;
            let next = match tokio::time::timeout(idle, body.next()).await {
                Err(_) => {
                    batch = vec![Err(failure::silent(idle))];
                    None
                }
                Ok(Some(Ok(bytes))) => match decoder.push(&bytes) {
                    Ok(chunks) => {
                        batch = chunks.into_iter().map(Ok).collect();
                        Some(decoder)
                    }
                    Err((chunks, failure)) => {
                        batch = chunks.into_iter().map(Ok).chain([Err(failure)]).collect();
                        None
                    }
                },
                Ok(Some(Err(error))) => {
                    batch = vec![Err(failure::broken(&url, &error))];
                    None
                }
                Ok(None) => {
                    batch = match decoder.end() {
                        Ok(chunks) => chunks.into_iter().map(Ok).collect(),
                        Err((chunks, failure)) => chunks.into_iter().map(Ok).chain([Err(failure)]).collect(),
                    };
                    None
                }
            };
            Some((stream::iter(batch), (body, next)))
        }
    });
    batches.flatten().boxed()
}
