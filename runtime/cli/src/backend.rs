//! The backends by name: the only place that knows which stores, models and tools there are.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use impresario::models::openai::{OpenAiModel, OpenAiOptions};
use impresario::models::scripted::ScriptedModel;
use impresario::seams::{Hook, Model, Store, Tool};
use impresario::stores::sqlite::Migrated;
use impresario::stores::{MemoryStore, SqliteStore};
use impresario::tools::GitWorktrees;
use impresario::{Runtime, RuntimeBuilder};

use crate::args::Common;
use crate::failed::Failed;
use crate::home::Home;
use crate::print;
use crate::provider::{Choice, Route, Script};
use crate::replay;

/// How long a stream may be silent.
const IDLE: Duration = Duration::from_secs(120);

/// The store of `home`, for writing.
pub(crate) fn store(home: &Home) -> Result<Arc<dyn Store>, Failed> {
    Ok(Arc::new(file(home)?))
}

/// The file of the store of `home`, for writing.
pub(crate) fn file(home: &Home) -> Result<SqliteStore, Failed> {
    home.create()?;
    let store = SqliteStore::open(home.store())?;
    if let Some(Migrated { from, to, copy }) = store.migrated() {
        let copy = crate::home::quoted(copy);
        print::say(&format!("the store was of version {from} and is of version {to} now; as it was it is in {copy}"));
    }
    Ok(store)
}

/// What a runtime on `store` is made of, with nothing else yet.
pub(crate) fn builder(common: &Common, store: Arc<dyn Store>) -> RuntimeBuilder {
    let builder = Runtime::builder(store);
    if common.take_over { builder.take_over() } else { builder }
}

/// A store that ends with the process.
pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// The store of `home`, for reading, also while another process writes; `None` if there is none yet.
pub(crate) fn stored(home: &Home) -> Result<Option<Arc<dyn Store>>, Failed> {
    let path = home.store();
    match std::fs::metadata(&path) {
        // Nothing was written yet.
        Ok(file) if file.is_file() && file.len() == 0 => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let home = home.dir().display();
            return Err(Failed::usage(format!("cannot read the home folder {home}: {error}; give another --home")));
        }
        Ok(_) => {}
    }
    Ok(Some(Arc::new(SqliteStore::open_read_only(path)?)))
}

/// The process that holds the store of `home` now, if one does.
pub(crate) fn holder(home: &Home) -> Option<u32> {
    SqliteStore::holder(home.store())
}

/// The size of a store in bytes, and what is wrong with its file; nothing when all is well.
pub(crate) fn examine(path: &Path) -> Result<(u64, Vec<String>), Failed> {
    let store = SqliteStore::open_read_only(path)?;
    Ok((store.size_bytes(), store.integrity()?))
}

/// Every tool.
pub(crate) fn tools() -> Vec<Arc<dyn Tool>> {
    impresario::tools::all()
}

/// Worktrees for agents that ask for one, in `home`.
pub(crate) fn worktrees(home: &Home) -> GitWorktrees {
    GitWorktrees::new(home.dir().join("worktrees"))
}

/// The hooks of every run.
pub(crate) fn hooks() -> Vec<Arc<dyn Hook>> {
    vec![Arc::new(impresario::tools::TodoGuard)]
}

/// The model that was chosen; of a replay also the same under the names that its calls may ask for.
pub(crate) async fn models(common: &Common, choice: &Choice) -> Result<Vec<Arc<dyn Model>>, Failed> {
    match &choice.route {
        Route::Scripted(script) => Ok(vec![Arc::new(scripted(script)?)]),
        Route::Replay(source) => replay::models(common, source).await,
        Route::Http { base_url, key, .. } => Ok(vec![Arc::new(OpenAiModel::new(OpenAiOptions {
            provider: choice.provider.clone(),
            base_url: base_url.clone(),
            api_key: key.clone(),
            idle_timeout: IDLE,
        }))]),
    }
}

/// A scripted model.
pub(crate) fn scripted(script: &Script) -> Result<ScriptedModel, Failed> {
    match script {
        Script::Builtin => Ok(ScriptedModel::builtin()),
        Script::Demo => Ok(ScriptedModel::demo()),
        Script::File(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failed::usage(format!("script {}: {error}", path.display())))?;
            ScriptedModel::from_toml(&text).map_err(|error| Failed::usage(format!("{}: {error}", path.display())))
        }
    }
}

/// Serves `model` until `ended`.
pub(crate) async fn serve(
    listener: tokio::net::TcpListener,
    model: Arc<dyn Model>,
    record: Option<std::fs::File>,
    ended: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    impresario::models::serve::serve(listener, model, record, ended).await
}
