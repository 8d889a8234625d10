//! Which session an id means: full, a unique prefix, `@last`, or `ROOT:path`.

use std::path::Path;
use std::sync::Arc;

use impresario::kernel::{AgentId, AgentPath};
use impresario::seams::{SessionFilter, SessionInfo, Store};

use crate::failed::Failed;
use crate::print;

/// The shortest prefix that is looked up.
const PREFIX_MIN: usize = 4;
/// How many candidates an error names.
const CANDIDATES: usize = 5;

/// What was written.
#[derive(Debug, Eq, PartialEq)]
enum Wanted<'a> {
    Last,
    Id(&'a str),
    Below(&'a str, AgentPath),
}

fn parse(text: &str) -> Wanted<'_> {
    if let Some((root, path)) = text.split_once(':') {
        let path = path.trim_matches('/');
        let below = match path.strip_prefix("root").map(|rest| rest.trim_start_matches('/')) {
            Some("") => AgentPath::root(),
            Some(_) if path.starts_with("root/") => AgentPath::new(path),
            _ if path.is_empty() => AgentPath::root(),
            _ => AgentPath::root().child(path),
        };
        return Wanted::Below(root, below);
    }
    if text == "@last" { Wanted::Last } else { Wanted::Id(text) }
}

/// The session that `text` means; `dir` is the folder of `@last`.
pub(crate) async fn session(store: &Arc<dyn Store>, text: &str, dir: &Path) -> Result<SessionInfo, Failed> {
    match parse(text) {
        Wanted::Last => last(store, dir).await,
        Wanted::Id(id) => by_id(store, id).await,
        Wanted::Below(root, path) => {
            let root = match root {
                "@last" => last(store, dir).await?,
                id => by_id(store, id).await?,
            };
            below(store, &root, &path).await
        }
    }
}

/// The same, for what only roots can do.
pub(crate) async fn root(store: &Arc<dyn Store>, text: &str, dir: &Path) -> Result<SessionInfo, Failed> {
    let found = session(store, text, dir).await?;
    if found.new.root == *found.id() {
        return Ok(found);
    }
    Err(Failed::usage(format!(
        "{} is a child ({}); go on with its root {}",
        found.id(),
        found.new.path,
        found.new.root
    )))
}

async fn last(store: &Arc<dyn Store>, dir: &Path) -> Result<SessionInfo, Failed> {
    let filter = SessionFilter {
        roots_only: true,
        dir: Some(dir.display().to_string()),
        limit: Some(1),
        ..SessionFilter::default()
    };
    let found = store.list(filter).await?.into_iter().next();
    found.ok_or_else(|| unknown(format!("no session of the folder {}; see `impresario sessions ls`", dir.display())))
}

async fn by_id(store: &Arc<dyn Store>, text: &str) -> Result<SessionInfo, Failed> {
    let shown = print::one_line(text, 80);
    let plausible = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if !plausible {
        return Err(unknown(format!("`{shown}` is no id: write a full id, a prefix of it, @last, or ROOT:path")));
    }
    if let Some(found) = store.info(AgentId::new(text)).await? {
        return Ok(found);
    }
    if text.len() < PREFIX_MIN {
        return Err(unknown(format!("`{shown}` is too short: a prefix has at least {PREFIX_MIN} characters")));
    }
    let filter =
        SessionFilter { id_prefix: Some(text.into()), limit: Some(CANDIDATES + 1), ..SessionFilter::default() };
    let mut found = store.list(filter).await?;
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let filter = SessionFilter { roots_only: true, limit: Some(CANDIDATES), ..SessionFilter::default() };
            let recent = store.list(filter).await?;
            let hint =
                if recent.is_empty() { "; nothing is stored here".into() } else { named("the newest are", &recent) };
            Err(unknown(format!("no session `{shown}`{hint}")))
        }
        _ => Err(unknown(format!("`{shown}` is ambiguous{}", named("it may be", &found)))),
    }
}

async fn below(store: &Arc<dyn Store>, root: &SessionInfo, path: &AgentPath) -> Result<SessionInfo, Failed> {
    let filter = SessionFilter { root: Some(root.new.root.clone()), ..SessionFilter::default() };
    let mut all = store.list(filter).await?;
    if let Some(at) = all.iter().position(|session| session.new.path == *path) {
        return Ok(all.swap_remove(at));
    }
    all.truncate(CANDIDATES);
    let paths: Vec<&str> = all.iter().map(|session| session.new.path.as_str()).collect();
    Err(unknown(format!(
        "no agent {} below {}; there are {}",
        print::one_line(path.as_str(), 80),
        root.id(),
        paths.join(", ")
    )))
}

fn named(intro: &str, sessions: &[SessionInfo]) -> String {
    let mut text = format!("; {intro}:");
    for session in sessions.iter().take(CANDIDATES) {
        text.push_str(&format!(
            "\n  {}  {}  {}",
            session.id(),
            session.new.path,
            print::first_line(&session.head.title, 50)
        ));
    }
    if sessions.len() > CANDIDATES {
        text.push_str("\n  …");
    }
    text
}

fn unknown(text: String) -> Failed {
    Failed { code: "UNKNOWN_ID", ..Failed::usage(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_may_be_followed_by_a_path() {
        assert_eq!(parse("@last"), Wanted::Last);
        assert_eq!(parse("0193ab"), Wanted::Id("0193ab"));
        assert_eq!(parse("@last:audit-3"), Wanted::Below("@last", AgentPath::new("root/audit-3")));
        assert_eq!(parse("0193ab:root/audit/a1"), Wanted::Below("0193ab", AgentPath::new("root/audit/a1")));
        assert_eq!(parse("0193ab:rooted"), Wanted::Below("0193ab", AgentPath::new("root/rooted")));
        assert_eq!(parse("0193ab:"), Wanted::Below("0193ab", AgentPath::root()));
    }
}
