//! `sessions import`: sessions of dsh become sessions of this store.

use std::path::PathBuf;
use std::sync::Arc;

use futures::TryStreamExt as _;
use impresario::kernel::event::{Context, Fact, TreeChild};
use impresario::kernel::tree::{Ask, Tree, TreeLimits};
use impresario::kernel::{Agent, AgentId, AgentPath, Event, Millis, RequestHeader, Seq, SessionHeader, Spec};
use impresario::seams::{Batch, Commit, Head, Lease, NewSession, Store, StoreError, TurnState};
use impresario::stores::jsonl::{Diagnostic, find_dsh, inspect_dsh, read_dsh};
use serde_json::json;

use super::show;
use super::transcript::Transcript;
use crate::args::{Common, ImportArgs, ToolDetail};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::home::{self, Home};
use crate::print::{Paint, Stream};
use crate::{backend, figures, print};

/// Stores every session that is found. One that cannot be stored is said and keeps no other from it.
pub(crate) async fn import(common: &Common, args: &ImportArgs) -> Result<Exit, Failed> {
    let files = files(common, args)?;
    if args.read_only {
        return look(common, &files);
    }
    let store = backend::store(&Home::of(common)?)?;
    let lease = if common.take_over { store.take_over().await? } else { store.lease().await? };
    let mut importer = Importer { store, lease, new: 0, known: 0, refused: 0 };
    for (file, session) in in_order(files) {
        let shown = home::quoted(&file);
        match importer.take(session).await {
            Ok(Some(warning)) => print::say(&format!("{shown}: {warning}")),
            Ok(None) => {}
            // The store itself fails: it would for the others too.
            Err(Refused::Store(error)) => return Err(error.into()),
            Err(Refused::Session(why)) => {
                importer.refused += 1;
                print::say(&format!("{shown}: not stored: {why}"));
            }
        }
    }
    let Importer { new, known, refused, .. } = importer;
    if !common.quiet {
        let stored = figures::plural(new, "session");
        print::say(&format!("{stored} stored, {known} were there already, {refused} not stored"));
    }
    Ok(match (refused, new + known) {
        (0, _) => Exit::Completed,
        (_, 0) => Exit::Failed,
        _ => Exit::Partial,
    })
}

/// Shows what can be read of these files, and says what cannot. The store is not looked at.
fn look(common: &Common, files: &[PathBuf]) -> Result<Exit, Failed> {
    let (mut text, mut whole, mut broken) = (String::new(), 0, 0);
    for file in files {
        let shown = home::quoted(file);
        let (header, events, found) = match inspect_dsh(file) {
            Ok(session) => session,
            Err(error) => {
                broken += 1;
                print::say(&format!("{shown}: {error}"));
                continue;
            }
        };
        let lost = found.iter().filter(|found| found.kind.loses_events()).count();
        whole += usize::from(lost == 0);
        let told = Transcript::of(&events, header.seed_length.unwrap_or(0));
        if common.json {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            let mut object = json!({ "file": file.display().to_string(), "id": header.id.as_str(), "found": found });
            object["events"] = events.last().map_or(0, |last| last.next_seq().0).into();
            object["entries"] = show::entries(&told);
            text.push_str(&format!("{object}\n"));
        } else {
            found.iter().for_each(|found| print::say(&format!("{shown}: {found}")));
            let paint = Paint::of(common.color, Stream::Out);
            text.push_str(&format!("{}\n", paint.bold(&format!("session {}  {shown}", header.id))));
            text.push_str(&show::conversation(&told, ToolDetail::Brief, paint));
            text.push('\n');
        }
    }
    print::answer(&text)?;
    Ok(match (whole, broken) {
        (whole, _) if whole == files.len() => Exit::Completed,
        (_, broken) if broken == files.len() => Exit::Failed,
        _ => Exit::Partial,
    })
}

fn files(common: &Common, args: &ImportArgs) -> Result<Vec<PathBuf>, Failed> {
    let folder = home::work_dir(common)?;
    let mut files = vec![];
    for path in args.paths.iter().map(|path| folder.join(path)) {
        let shown = home::quoted(&path);
        let found = match std::fs::metadata(&path) {
            Ok(it) if it.is_file() => vec![path],
            Ok(_) => find_dsh(&path),
            Err(error) => return Err(Failed::usage(format!("{shown}: {error}"))),
        };
        if found.is_empty() {
            return Err(Failed::usage(format!("{shown}: there is no session.jsonl or session.jsonl.zstd in it")));
        }
        files.extend(found);
    }
    Ok(files)
}

type Session = Result<(SessionHeader, Vec<Arc<Event>>, Vec<Diagnostic>), StoreError>;

/// Parents before children.
fn in_order(files: Vec<PathBuf>) -> Vec<(PathBuf, Session)> {
    let mut sessions: Vec<(PathBuf, Session)> = files.into_iter().map(|file| (file.clone(), read_dsh(file))).collect();
    sessions.sort_by_key(|(_, session)| {
        session.as_ref().ok().map(|(header, ..)| (header.delegation_depth.unwrap_or(0), header.created_at))
    });
    sessions
}

/// Why a session is not stored.
enum Refused {
    Session(String),
    Store(StoreError),
}

struct Importer {
    store: Arc<dyn Store>,
    lease: Lease,
    new: usize,
    known: usize,
    refused: usize,
}

impl Importer {
    /// Stores one session; what is odd about it.
    async fn take(&mut self, session: Session) -> Result<Option<String>, Refused> {
        let (header, events, found) = session.map_err(|error| Refused::Session(error.to_string()))?;
        if let Some(lost) = found.iter().find(|found| found.kind.loses_events()) {
            return Err(Refused::Session(format!("{lost}; what is behind it would tell another story")));
        }
        header.check().map_err(|error| Refused::Session(error.to_string()))?;
        let id = header.id.clone();
        let head = head(&events).map_err(|why| Refused::Session(format!("it breaks a rule: {why}")))?;
        let was_there = self.store.info(id.clone()).await.map_err(Refused::Store)?;
        let (create, tree) = match &was_there {
            Some(info) if info.new.header != header => {
                return Err(Refused::Session(format!("the store has another session {id}")));
            }
            Some(info) => (info.new.clone(), None),
            None => self.place(header, &events).await?,
        };
        if was_there.is_some_and(|info| events.last().is_none_or(|last| last.next_seq() <= info.len)) {
            self.known += 1;
            return Ok(None);
        }
        let batch = Batch { session: id, create: Some(Arc::new(create)), events, head };
        let commit =
            Commit { lease: Some(self.lease), batches: tree.into_iter().chain([batch]).collect(), ..Commit::default() };
        match self.store.commit(commit).await {
            Ok(()) => self.new += 1,
            Err(error @ (StoreError::Diverged { .. } | StoreError::Damaged { .. })) => {
                return Err(Refused::Session(error.to_string()));
            }
            Err(error) => return Err(Refused::Store(error)),
        }
        Ok(found.first().map(|odd| format!("stored, but {odd}")))
    }

    /// Where a session stands: below its parent, if that is here; and what the log of the tree then says.
    async fn place(
        &mut self,
        header: SessionHeader,
        events: &[Arc<Event>],
    ) -> Result<(NewSession, Option<Batch>), Refused> {
        let label = label(events);
        let above = match &header.parent_session {
            Some(parent) => self.store.info(parent.clone()).await.map_err(Refused::Store)?.map(|info| info.new.root),
            None => None,
        };
        if let (Some(root), Some(parent)) = (above, &header.parent_session) {
            let (tree, next) = self.tree(&root).await?;
            let ask = Ask {
                child: header.id.clone(),
                parent: parent.clone(),
                label: label.clone(),
                context: Context::Fresh,
                background: false,
                call: None,
                may_spawn: u32::MAX,
                prompt: None,
            };
            let all = TreeLimits { depth: u32::MAX, descendants: u32::MAX, same_prompt: u32::MAX };
            if let Ok(reserved) = tree.reserve(ask, all) {
                let (path, label) = (reserved.path.clone(), reserved.label.clone());
                let published = TreeChild { child: header.id.clone() };
                let create = (next == Seq(0)).then(|| tree_log(&root, header.created_at));
                let facts = [Fact::TreeReserved(reserved), Fact::TreePublished(published)];
                let events =
                    facts.into_iter().zip(next.0..).map(|(fact, at)| Event::new(Seq(at), header.created_at, fact));
                let events = events.map(Arc::new).collect();
                let batch = Batch { session: root.tree_log(), create, events, head: Head::default() };
                return Ok((NewSession { header, root, path, label, fork: None }, Some(batch)));
            }
        }
        // Whose child it is, nobody here knows.
        let (root, label) = (header.id.clone(), label.unwrap_or_else(|| "root".into()));
        Ok((NewSession { header, root, path: AgentPath::root(), label, fork: None }, None))
    }

    /// The tree of a root as it is stored, and where its log goes on.
    async fn tree(&self, root: &AgentId) -> Result<(Tree, Seq), Refused> {
        let (mut tree, mut next) = (Tree::new(root.clone()), Seq(0));
        if self.store.info(root.tree_log()).await.map_err(Refused::Store)?.is_some() {
            let mut events = self.store.read(root.tree_log(), Seq(0));
            while let Some(event) = events.try_next().await.map_err(Refused::Store)? {
                tree.apply(&event.fact, event.time);
                next = event.next_seq();
            }
        }
        Ok((tree, next))
    }
}

fn tree_log(root: &AgentId, created_at: Millis) -> Arc<NewSession> {
    let header = SessionHeader::new(root.tree_log(), created_at);
    Arc::new(NewSession { header, root: root.clone(), path: AgentPath::root(), label: "tree".into(), fork: None })
}

/// What `ls` says of it.
fn head(events: &[Arc<Event>]) -> Result<Head, String> {
    let spec = Arc::new(Spec::new(RequestHeader::new("any", "any")));
    let agent = Agent::fold(spec, events).map_err(|broken| broken.to_string())?;
    let first = events.iter().find_map(|event| match &event.fact {
        Fact::UserMessage(message) if message.source.kind == "user" => Some(message.text()),
        _ => None,
    });
    Ok(Head {
        state: if agent.turn().is_idle() { TurnState::Idle } else { TurnState::Open },
        turns: agent.own_turns(),
        outcome: agent.outcome().map(|outcome| outcome.kind),
        spent: agent.spent(),
        title: print::one_line(&first.unwrap_or_default(), 80),
        undelivered: None,
    })
}

/// What a subagent was for.
fn label(events: &[Arc<Event>]) -> Option<String> {
    events.iter().rev().find_map(|event| match &event.fact {
        Fact::SubagentDescribed(descriptor) => descriptor.label.clone(),
        _ => None,
    })
}
