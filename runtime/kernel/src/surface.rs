//! The surface: what of a log the model sees, in order.

use std::sync::Arc;

use imbl::Vector;

use crate::event::{Event, Fact, SurfaceOp};
use crate::id::Seq;
use crate::message::Message;

/// An ordered projection of a log. Replacing nodes changes what is seen, never the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surface {
    nodes: Vector<Node>,
}

#[derive(Clone, Debug, PartialEq)]
struct Node {
    seq: Seq,
    /// None for an answer without content: it holds usage, the model does not see it.
    message: Option<Arc<Message>>,
}

/// A surface operation that breaks a rule.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SurfaceError {
    /// The range names a node that is not there.
    #[error("event {at}: replaces {missing}, which is not on the surface")]
    NotThere {
        /// The replacing event.
        at: Seq,
        /// The missing node.
        missing: Seq,
    },
    /// The range runs backwards.
    #[error("event {at}: replaces a range that ends before it starts")]
    Backwards {
        /// The replacing event.
        at: Seq,
    },
    /// The sources do not name what is replaced.
    #[error("event {at}: its sources do not name {missing}, which it replaces")]
    SourceMissing {
        /// The replacing event.
        at: Seq,
        /// The shadowed node.
        missing: Seq,
    },
}

impl Surface {
    /// Folds one event in; events that the model does not see change nothing. On an error nothing changed.
    pub fn apply(&mut self, event: &Event) -> Result<(), SurfaceError> {
        let Some(op) = event.surface else { return Ok(()) };
        let node = Node { seq: event.seq, message: event.fact.message().cloned() };
        match op {
            SurfaceOp::Append => self.nodes.push_back(node),
            SurfaceOp::Replace { start, end } => self.replace(event, node, (start, end))?,
        }
        Ok(())
    }

    fn replace(&mut self, event: &Event, node: Node, (start, end): (Seq, Seq)) -> Result<(), SurfaceError> {
        let at = event.seq;
        let find =
            |seq| self.nodes.iter().position(|node| node.seq == seq).ok_or(SurfaceError::NotThere { at, missing: seq });
        let (first, last) = (find(start)?, find(end)?);
        if first > last {
            return Err(SurfaceError::Backwards { at });
        }
        for shadowed in self.nodes.iter().skip(first).take(last - first + 1) {
            if !event.sources.as_ref().is_some_and(|sources| sources.contains(shadowed.seq)) {
                return Err(SurfaceError::SourceMissing { at, missing: shadowed.seq });
            }
        }
        let behind = self.nodes.split_off(last + 1);
        self.nodes.truncate(first);
        self.nodes.push_back(node);
        self.nodes.append(behind);
        Ok(())
    }

    /// One of these nodes.
    pub(crate) fn of(nodes: Vec<(Seq, Option<Arc<Message>>)>) -> Self {
        Self { nodes: nodes.into_iter().map(|(seq, message)| Node { seq, message }).collect() }
    }

    /// The nodes, in order: where each was made, and what the model sees of it.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (Seq, Option<Arc<Message>>)> {
        self.nodes.iter().map(|node| (node.seq, node.message.clone()))
    }

    /// What the model sees.
    pub fn messages(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.nodes.iter().filter_map(|node| node.message.as_ref())
    }

    /// The nodes, in order, from the first on, that were made before `until`.
    pub(crate) fn before(&self, until: Seq) -> Vec<Seq> {
        self.nodes.iter().map(|node| node.seq).take_while(|seq| *seq < until).collect()
    }

    /// Takes the nodes at and behind `until` off its tail: the surface as it was when the log had `until` events,
    /// as long as nothing behind was a replacement.
    pub(crate) fn truncate(&mut self, until: Seq) {
        while self.nodes.last().is_some_and(|node| node.seq >= until) {
            self.nodes.pop_back();
        }
    }
}

/// What the runtime says about itself in `fact`, if it does.
pub(crate) fn snapshot_text(fact: &Fact) -> Option<Arc<str>> {
    let Fact::UserMessage(message) = fact else { return None };
    let is_snapshot = message.source.kind == "plugin"
        && message.source.rest.get("form").and_then(|form| form.as_str()) == Some("snapshot");
    is_snapshot.then(|| message.text().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SeqRanges;
    use crate::id::Millis;

    fn said(seq: u64, text: &str) -> Event {
        Event::new(Seq(seq), Millis(0), Fact::UserMessage(Arc::new(Message::user(format!("m{seq}"), text))))
    }

    fn texts(surface: &Surface) -> Vec<String> {
        surface.messages().map(|message| message.text()).collect()
    }

    #[test]
    fn a_replacement_takes_the_place_of_its_range_and_must_name_it() {
        let mut surface = Surface::default();
        for seq in 0..4 {
            surface.apply(&said(seq, &seq.to_string())).unwrap();
        }
        let mut summary = said(9, "summary");
        summary.surface = Some(SurfaceOp::Replace { start: Seq(1), end: Seq(2) });
        let before = surface.clone();
        assert_eq!(surface.apply(&summary), Err(SurfaceError::SourceMissing { at: Seq(9), missing: Seq(1) }));
        assert_eq!(surface, before);
        summary.sources = Some(SeqRanges::span(Seq(1), Seq(3)));
        surface.apply(&summary).unwrap();
        assert_eq!(texts(&surface), ["0", "summary", "3"]);
        assert_eq!(surface.apply(&summary), Err(SurfaceError::NotThere { at: Seq(9), missing: Seq(1) }));
    }
}
