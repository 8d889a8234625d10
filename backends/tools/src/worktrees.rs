//! Workspaces that are git worktrees.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use futures::FutureExt;
use futures::future::BoxFuture;
use impresario_seams::{Workspace, Workspaces};
use tokio::process::Command;

/// So many lines of changes are told.
const LINES_MAX: usize = 40;

/// The file beside a worktree that says which commit it began with.
const BEGAN: &str = "began";

/// Gives agents worktrees of the repository that their folder is in, below one folder: `NAME/tree`, detached, at the
/// commit that is checked out. What is not committed there is not in them. A worktree in which something was changed
/// stays.
#[derive(Clone, Debug)]
pub struct GitWorktrees {
    under: PathBuf,
}

impl GitWorktrees {
    /// Worktrees below `under`, which need not be there yet.
    pub fn new(under: impl Into<PathBuf>) -> Self {
        Self { under: under.into() }
    }
}

impl Workspaces for GitWorktrees {
    fn open(&self, dir: PathBuf, name: String) -> BoxFuture<'static, Result<Workspace, String>> {
        let root = self.under.join(name);
        async move {
            let top = git(&dir, &["rev-parse", "--show-toplevel"]).await;
            let top = top
                .map_err(|why| format!("a worktree takes a git repository, and {} is in none: {why}", dir.display()))?;
            let top = PathBuf::from(top.trim());
            let inside = dir.strip_prefix(&top).unwrap_or(Path::new("")).to_owned();
            let tree = root.join("tree");
            if !tree.exists() {
                let commit = git(&dir, &["rev-parse", "--verify", "HEAD"]).await;
                let commit = commit.map_err(|why| format!("the repository has no commit to begin with: {why}"))?;
                let created =
                    std::fs::create_dir_all(&root).and_then(|()| std::fs::write(root.join(BEGAN), commit.trim()));
                created.map_err(|error| format!("{}: {error}", root.display()))?;
                let path = tree.display().to_string();
                git(&dir, &["worktree", "add", "--detach", &path, commit.trim()]).await?;
            }
            let dir = if inside.as_os_str().is_empty() { tree } else { tree.join(inside) };
            Ok(Workspace { root, dir })
        }
        .boxed()
    }

    fn changes(&self, root: PathBuf) -> BoxFuture<'static, Result<Option<String>, String>> {
        async move { changes(&root).await }.boxed()
    }

    fn close(&self, root: PathBuf) -> BoxFuture<'static, Result<(), String>> {
        async move {
            if changes(&root).await?.is_some() {
                return Ok(());
            }
            let tree = root.join("tree");
            let git_dir = git(&tree, &["rev-parse", "--path-format=absolute", "--git-common-dir"]).await?;
            let path = tree.display().to_string();
            git(Path::new(git_dir.trim()), &["worktree", "remove", &path]).await?;
            std::fs::remove_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))
        }
        .boxed()
    }
}

async fn changes(root: &Path) -> Result<Option<String>, String> {
    let tree = root.join("tree");
    let began = std::fs::read_to_string(root.join(BEGAN)).map_err(|error| format!("{}: {error}", root.display()))?;
    let status = git(&tree, &["status", "--porcelain"]).await?;
    let commits = git(&tree, &["log", "--oneline", &format!("{}..HEAD", began.trim())]).await?;
    let lines: Vec<&str> = commits.lines().chain(status.lines()).collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let mut told = lines.iter().take(LINES_MAX).map(|line| format!("{line}\n")).collect::<String>();
    if lines.len() > LINES_MAX {
        told.push_str(&format!("… {} more\n", lines.len() - LINES_MAX));
    }
    Ok(Some(told))
}

/// What git prints; what it complains about otherwise.
async fn git(dir: &Path, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new("git");
    // What a hook or an outer git has set must not point elsewhere.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    let output = command.arg("-C").arg(dir).args(args).stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.map_err(|error| format!("git could not be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let git = async |args: &[&str]| git(folder.path(), args).await.unwrap();
        git(&["init", "--quiet"]).await;
        std::fs::create_dir(folder.path().join("src")).unwrap();
        std::fs::write(folder.path().join("src/a"), "one").unwrap();
        git(&["add", "."]).await;
        let who = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
        git(&[&who[..], &["commit", "--quiet", "-m", "first"]].concat()).await;
        folder
    }

    #[tokio::test]
    async fn a_worktree_is_there_until_it_is_closed_unchanged() {
        let (repository, under) = (repository().await, tempfile::tempdir().unwrap());
        let worktrees = GitWorktrees::new(under.path().join("deep"));
        let dir = repository.path().canonicalize().unwrap().join("src");
        let open = |name: &str| worktrees.open(dir.clone(), name.into());
        let (one, two) = (open("one").await.unwrap(), open("two").await.unwrap());
        assert_eq!(std::fs::read_to_string(one.dir.join("a")).unwrap(), "one");
        assert_eq!(open("one").await.unwrap(), one, "the same name is the same workspace");
        assert_eq!(worktrees.changes(one.root.clone()).await, Ok(None));
        std::fs::write(two.dir.join("a"), "two").unwrap();
        std::fs::write(two.dir.join("b"), "new").unwrap();
        let changes = worktrees.changes(two.root.clone()).await.unwrap().unwrap();
        assert_eq!(changes, " M src/a\n?? src/b\n");
        assert_eq!(std::fs::read_to_string(dir.join("a")).unwrap(), "one", "the others see nothing of it");
        for workspace in [&one, &two] {
            worktrees.close(workspace.root.clone()).await.unwrap();
        }
        assert_eq!((one.root.exists(), two.dir.join("b").exists()), (false, true));
        // What was committed is a change, too.
        let three = open("three").await.unwrap();
        std::fs::write(three.dir.join("a"), "three").unwrap();
        let who = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
        git(&three.dir, &[&who[..], &["commit", "--quiet", "-am", "mine"]].concat()).await.unwrap();
        assert!(worktrees.changes(three.root.clone()).await.unwrap().unwrap().ends_with(" mine\n"));
    }

    #[tokio::test]
    async fn a_folder_in_no_repository_has_no_worktree() {
        let (folder, under) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let why = GitWorktrees::new(under.path()).open(folder.path().to_owned(), "one".into()).await.unwrap_err();
        assert!(why.contains("takes a git repository"), "{why}");
    }
}
