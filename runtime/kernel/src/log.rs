//! A log in memory: an append-only sequence whose prefix can be shared.
//!
//! Built on a persistent vector: cloning it and cutting it cost O(log n) and share everything, so a fork is free
//! whatever the length of its parent. One record may stand for many places (a run of chunks).

use std::sync::Arc;

use imbl::Vector;

use crate::chunk::ChunkRun;
use crate::event::{Event, Fact};
use crate::id::{Millis, Seq};

/// The events of one session, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    records: Vector<Arc<Event>>,
    next: Seq,
}

/// An event that does not continue a log.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("event {found} does not continue a log of {expected} events")]
pub struct OutOfOrder {
    /// Where the log ends.
    pub expected: Seq,
    /// Where the event says it is.
    pub found: Seq,
}

impl Log {
    /// One of `next` events, of which only the last is at hand.
    pub(crate) fn behind(next: Seq, last: Option<Arc<Event>>) -> Self {
        Self { records: last.into_iter().collect(), next }
    }

    /// Where the events begin that are at hand: 0, unless it was read from a checkpoint.
    pub fn begins_at(&self) -> Seq {
        self.records.front().map_or(self.next, |event| event.seq)
    }

    /// Where the next event goes: the number of events.
    pub fn next_seq(&self) -> Seq {
        self.next
    }

    /// Whether there was never one.
    pub fn is_empty(&self) -> bool {
        self.next == Seq(0)
    }

    /// Adds the next event.
    pub fn push(&mut self, event: Arc<Event>) -> Result<(), OutOfOrder> {
        if event.seq != self.next {
            return Err(OutOfOrder { expected: self.next, found: event.seq });
        }
        self.next = event.next_seq();
        self.records.push_back(event);
        Ok(())
    }

    /// The records, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        self.records.iter()
    }

    /// The record that covers `seq`, if it is at hand.
    pub fn get(&self, seq: Seq) -> Option<&Arc<Event>> {
        if seq >= self.next || seq < self.begins_at() {
            return None;
        }
        self.records.get(self.record_of(seq))
    }

    /// The last record.
    pub fn last(&self) -> Option<&Arc<Event>> {
        self.records.last()
    }

    /// When the last event was accepted.
    pub fn last_time(&self) -> Millis {
        self.last().map_or(Millis(0), |event| event.time)
    }

    /// The first `until` events, shared, as far as they are at hand. A run that straddles the cut is cut.
    #[must_use]
    pub fn prefix(&self, until: Seq) -> Self {
        if until >= self.next {
            return self.clone();
        }
        let at = self.record_of(until);
        let mut records = self.records.clone();
        let straddles = records.get(at).is_some_and(|event| event.seq < until);
        records.truncate(at + usize::from(straddles));
        if straddles && let Some(last) = records.pop_back() {
            records.push_back(Arc::new(cut_before(&last, until)));
        }
        Self { records, next: until }
    }

    /// The index of the record that covers `seq`, which must be below `next`.
    fn record_of(&self, seq: Seq) -> usize {
        self.records.binary_search_by_key(&seq, |event| event.seq).unwrap_or_else(|behind| behind.saturating_sub(1))
    }
}

/// The part of `event` before `until`. Only a run of chunks takes more than one place.
pub fn cut_before(event: &Event, until: Seq) -> Event {
    let Fact::Chunks(run) = &event.fact else { return event.clone() };
    let keep = usize::try_from(until.0.saturating_sub(event.seq.0)).unwrap_or(usize::MAX).min(run.deltas.len());
    let run = ChunkRun {
        deltas: run.deltas[..keep].to_vec(),
        gaps: run.gaps.iter().take(keep.saturating_sub(1)).copied().collect(),
        ..run.clone()
    };
    Event { fact: Fact::Chunks(run), ..event.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::RunKind;
    use crate::event::{SeedEnded, StepMark};

    fn run(seq: u64, deltas: &[&str]) -> Arc<Event> {
        let deltas: Vec<String> = deltas.iter().map(|&delta| delta.into()).collect();
        let gaps = vec![1; deltas.len() - 1];
        let run = ChunkRun { turn: 1, step: 1, index: 0, kind: RunKind::Text, deltas, gaps };
        Arc::new(Event::new(Seq(seq), Millis(0), Fact::Chunks(run)))
    }

    fn mark(seq: u64) -> Arc<Event> {
        Arc::new(Event::new(Seq(seq), Millis(0), Fact::StepEnded(StepMark { turn: 1, step: 1 })))
    }

    #[test]
    fn a_record_is_found_by_any_place_that_it_covers() {
        let mut log = Log::default();
        for event in [mark(0), run(1, &["a", "b", "c"]), mark(4)] {
            log.push(event).unwrap();
        }
        assert_eq!(log.next_seq(), Seq(5));
        assert_eq!(log.get(Seq(3)).unwrap().seq, Seq(1));
        assert_eq!(log.get(Seq(4)).unwrap().seq, Seq(4));
        assert_eq!(log.get(Seq(5)), None);
    }

    #[test]
    fn a_prefix_cuts_the_run_that_straddles_its_end() {
        let mut log = Log::default();
        for event in [mark(0), run(1, &["a", "b", "c"]), mark(4)] {
            log.push(event).unwrap();
        }
        let prefix = log.prefix(Seq(3));
        assert_eq!(prefix.next_seq(), Seq(3));
        let Fact::Chunks(cut) = &prefix.last().unwrap().fact else { panic!("the run is gone") };
        assert_eq!((cut.deltas.len(), cut.gaps.len()), (2, 1));
        assert_eq!(log.prefix(Seq(4)).last(), log.get(Seq(1)));
        assert!(log.prefix(Seq(0)).is_empty());
    }

    #[test]
    fn a_gap_is_refused() {
        let mut log = Log::default();
        let event = Arc::new(Event::new(Seq(1), Millis(0), Fact::SeedEnded(SeedEnded {})));
        assert_eq!(log.push(event), Err(OutOfOrder { expected: Seq(0), found: Seq(1) }));
    }
}
