//! What the same requests take with no runtime: a client and nothing else.

use futures::StreamExt as _;
use futures::future::try_join_all;
use serde_json::json;

use crate::exit::Exit;
use crate::failed::Failed;
use crate::print;

/// How many bytes of text go with each request beside what it asks: about what an agent sends with its own.
const PADDING: usize = 2_048;

/// One request, n at once, one request: what a root and its children ask.
pub(crate) async fn floor(base_url: &str, n: u32, leaf: &str) -> Result<Exit, Failed> {
    let client = impresario::models::openai::client(base_url).map_err(Failed::usage)?;
    let url = format!("{base_url}/chat/completions");
    let ask = async |prompt: &str| -> Result<(), Failed> {
        let body = json!({
            "model": "bench",
            "stream": true,
            "messages": [
                {"role": "system", "content": "x".repeat(PADDING)},
                {"role": "user", "content": prompt},
            ],
        });
        let failed = |error: &dyn std::fmt::Display| Failed::usage(format!("{url}: {error}"));
        let answer = client.post(&url).json(&body).send().await.and_then(|answer| answer.error_for_status());
        let mut bytes = answer.map_err(|error| failed(&error))?.bytes_stream();
        while let Some(piece) = bytes.next().await {
            piece.map_err(|error| failed(&error))?;
        }
        Ok(())
    };
    ask(&format!("rounds {n} | {leaf}")).await?;
    try_join_all((0..n).map(|_| ask(leaf))).await?;
    ask("work").await?;
    print::answer("done\n")
}
