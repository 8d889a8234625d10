//! A folder to work in, with another one beside it that nothing may reach.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use impresario_kernel::Access;
use impresario_seams::{Tool, ToolContext, ToolError, ToolOutput};
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) struct Desk {
    _kept: TempDir,
    pub(crate) dir: PathBuf,
    pub(crate) outside: PathBuf,
    pub(crate) cancel: CancellationToken,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let kept = tempfile::tempdir().unwrap();
        let base = kept.path().canonicalize().unwrap();
        let (dir, outside) = (base.join("desk"), base.join("outside"));
        fs::create_dir(&dir).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "secret\n").unwrap();
        Self { _kept: kept, dir, outside, cancel: CancellationToken::new() }
    }

    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let file = self.dir.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, content).unwrap();
        file
    }

    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.dir.join(path)).unwrap();
    }

    pub(crate) fn context(&self) -> ToolContext {
        ToolContext {
            agent: "agent".into(),
            call: "call".into(),
            dir: self.dir.clone(),
            access: Access::Full,
            cancel: self.cancel.clone(),
        }
    }

    pub(crate) async fn run(&self, tool: &dyn Tool, input: Value) -> Result<ToolOutput, ToolError> {
        tool.run(input, self.context()).await
    }

    pub(crate) async fn text(&self, tool: &dyn Tool, input: Value) -> String {
        text(&self.run(tool, input).await.unwrap())
    }

    pub(crate) async fn error(&self, tool: &dyn Tool, input: Value) -> String {
        self.run(tool, input).await.unwrap_err().message
    }

    /// What a real command prints in the folder.
    pub(crate) fn real(&self, command: &str) -> String {
        let mut shell = Command::new("bash");
        let output = shell.arg("-c").arg(command).current_dir(&self.dir).env("LC_ALL", "C.UTF-8").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

pub(crate) fn text(output: &ToolOutput) -> String {
    output.content.iter().filter_map(|block| block.as_text()).collect()
}
