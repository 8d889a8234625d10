//! `mock-model`: the scripted model as an OpenAI-compatible server on loopback.

use std::path::Path;
use std::sync::Arc;

use impresario::seams::Model;

use crate::args::MockArgs;
use crate::backend;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::provider::Script;
use crate::signals::Signals;
use crate::{print, replay};

/// Serves until SIGINT or SIGTERM.
pub(crate) async fn mock_model(args: &MockArgs) -> Result<Exit, Failed> {
    let model = model(args)?;
    let record = args.record.as_ref().map(|path| {
        let file = std::fs::File::options().append(true).create(true).open(path);
        file.map_err(|error| Failed::io(format!("record into {}", path.display()), &error))
    });
    let record = record.transpose()?;
    let mut signals = Signals::new()?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", args.port))
        .await
        .map_err(|error| Failed::io(format!("listen on 127.0.0.1:{}", args.port), &error))?;
    let address = listener.local_addr().map_err(|error| Failed::io("listen", &error))?;
    print::answer(&format!("listening on http://{address}/v1\n"))?;
    let ended = async move {
        // Which of the two makes no difference: both are the wanted way to end it.
        let _ = signals.next().await;
    };
    backend::serve(listener, model, record, ended).await.map_err(|error| Failed::io("serve", &error))?;
    Ok(Exit::Completed)
}

/// The script, or what was recorded.
fn model(args: &MockArgs) -> Result<Arc<dyn Model>, Failed> {
    if let Some(folder) = args.script.strip_prefix("replay:") {
        return replay::served(Path::new(folder), args.latency, args.seed.unwrap_or_default());
    }
    // Who asks gives up by itself on an answer that stalls.
    let model = backend::scripted(&Script::named(&args.script))?.with_latency(args.latency).silent_for_ever();
    Ok(match args.seed {
        Some(seed) => Arc::new(model.with_seed(seed)),
        None => Arc::new(model),
    })
}
