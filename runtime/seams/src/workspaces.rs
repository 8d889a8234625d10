//! Folders of their own for agents that must not disturb each other.

use std::path::PathBuf;

use futures::future::BoxFuture;

/// Makes copies of folders, and says what became of them. An error is for people and models.
pub trait Workspaces: Send + Sync + 'static {
    /// Makes one for an agent that would work in `dir`. The same name again is the same workspace.
    fn open(&self, dir: PathBuf, name: String) -> BoxFuture<'static, Result<Workspace, String>>;

    /// What was changed in the workspace at `root`, in a few lines; `None` if nothing was.
    fn changes(&self, root: PathBuf) -> BoxFuture<'static, Result<Option<String>, String>>;

    /// Takes the workspace at `root` away, if nothing was changed in it.
    fn close(&self, root: PathBuf) -> BoxFuture<'static, Result<(), String>>;
}

/// A copy of a folder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Workspace {
    /// All of it: what the other calls are given.
    pub root: PathBuf,
    /// What stands there for the folder that was asked for.
    pub dir: PathBuf,
}
