//! A model answers.

use std::sync::Arc;

use super::{Draft, Refused};
use crate::agent::Agent;
use crate::chunk::{Chunk, FinishReason};
use crate::event::{AssistantMessage, Event, Fact, RetryScheduled, RetryStarted, StreamedChunk};
use crate::id::{CallId, Millis, RunKey};
use crate::judge::{Point, Recovery};
use crate::message::{Block, Message, Role, Source};
use crate::outcome::{Failure, TurnEnd};
use crate::turn::{Open, Phase, Sampling};
use crate::wire::pack;

impl Agent {
    /// The running attempt, if it is `run`.
    fn sampling(&self, run: RunKey) -> Result<(&Open, &Sampling), Refused> {
        let open = self.turn.open().ok_or(Refused::Stale)?;
        match &open.phase {
            Phase::Sampling(sampling) if open.run_of(sampling.attempt) == run && open.judging.is_none() => {
                Ok((open, sampling))
            }
            Phase::Sampling(_) | Phase::Between | Phase::Backoff(_) | Phase::Calling(_) => Err(Refused::Stale),
        }
    }

    pub(super) fn decide_chunks(&self, run: RunKey, chunks: Vec<(Millis, Chunk)>) -> Result<Vec<Arc<Event>>, Refused> {
        self.sampling(run)?;
        let first = self.log.next_seq();
        let (turn, step) = (run.turn, run.step);
        let events = chunks.into_iter().zip(0u64..).map(|((time, chunk), n)| {
            Event::new(first.plus(n), time, Fact::Chunk(StreamedChunk { turn, step, chunk }))
        });
        Ok(pack(events).into_iter().map(Arc::new).collect())
    }

    pub(super) fn decide_model_settled(
        &self,
        run: RunKey,
        result: Result<(), Failure>,
        dice: u64,
        now: Millis,
    ) -> Result<Vec<Arc<Event>>, Refused> {
        let (_, sampling) = self.sampling(run)?;
        let in_band = sampling.assembler.failure().cloned();
        let mut draft = Draft::new(self, now);
        match (in_band, result) {
            (Some(failure), _) => draft.fail(run, failure, dice),
            (None, Err(failure)) => {
                let reason = FinishReason::Error { failure: failure.clone() };
                draft.finish_chunk(run, reason);
                draft.fail(run, failure, dice);
            }
            (None, Ok(())) => draft.answer(run),
        }
        Ok(draft.done())
    }

    pub(super) fn decide_unfunded(
        &self,
        run: RunKey,
        limit: String,
        max: u64,
        now: Millis,
    ) -> Result<Vec<Arc<Event>>, Refused> {
        self.sampling(run)?;
        let mut draft = Draft::new(self, now);
        draft.end_step();
        draft.end_turn(TurnEnd::Limit { limit, max });
        Ok(draft.done())
    }

    pub(super) fn decide_retry_due(&self, run: RunKey, now: Millis) -> Result<Vec<Arc<Event>>, Refused> {
        let open = self.turn.open().ok_or(Refused::Stale)?;
        let Phase::Backoff(backoff) = &open.phase else { return Err(Refused::Stale) };
        if open.run_of(backoff.retry) != run {
            return Err(Refused::Stale);
        }
        let started =
            RetryStarted { retry_id: backoff.retry_id.clone(), turn: run.turn, step: run.step, retry: backoff.retry };
        let mut draft = Draft::new(self, now);
        draft.say(Fact::RetryStarted(started));
        draft.ask(Point::Request);
        Ok(draft.done())
    }
}

impl Draft {
    /// Writes down why the attempt is over, when its stream did not say so itself.
    fn finish_chunk(&mut self, run: RunKey, reason: FinishReason) {
        let chunk = Chunk::Finish { reason, replay_state: None };
        self.say(Fact::Chunk(StreamedChunk { turn: run.turn, step: run.step, chunk }));
    }

    /// The attempt failed.
    fn fail(&mut self, run: RunKey, failure: Failure, dice: u64) {
        if !self.ask(Point::RequestError) {
            self.recover(run, failure, &Recovery::Policy, dice);
        }
    }

    /// Once more, or the end of the turn.
    pub(super) fn recover(&mut self, run: RunKey, failure: Failure, recovery: &Recovery, dice: u64) {
        let retry = run.attempt + 1;
        let policy = self.agent.spec.retry;
        let delay = match recovery {
            Recovery::Policy if failure.is_retryable() => policy.delay(retry, failure.provider_retry_after_ms, dice),
            Recovery::Retry { delay_ms, .. } => policy.delay(retry, None, dice).map(|delay| delay_ms.unwrap_or(delay)),
            Recovery::Policy | Recovery::GiveUp { .. } => None,
        };
        let Some(delay_ms) = delay else {
            self.end_step();
            self.end_turn(TurnEnd::Error { step: Some(run.step), error: failure });
            return;
        };
        let provider = self.agent.spec.header.config.provider.clone();
        self.say(Fact::RetryScheduled(RetryScheduled {
            retry_id: format!("retry-{}-{}", run.turn, run.step),
            turn: run.turn,
            step: run.step,
            policy_key: provider.clone(),
            provider,
            mode: "normal".into(),
            retry,
            max_retries: Some(policy.max_retries),
            delay_ms,
            failure,
        }));
    }

    /// The answer is whole.
    fn answer(&mut self, run: RunKey) {
        let Some(Phase::Sampling(sampling)) = self.agent.turn.open().map(|open| open.phase.clone()) else { return };
        let cut = matches!(sampling.assembler.finish(), Some(FinishReason::MaxTokens));
        let blocks = if cut {
            sampling.assembler.blocks_without_calls()
        } else {
            self.unique_calls(sampling.assembler.blocks(), run)
        };
        let calls = blocks.iter().filter(|block| matches!(block, Block::ToolCall { .. })).count();
        let calls_max = self.agent.spec.limits.answer_calls;
        if calls > calls_max {
            let message = format!("the answer asks for {calls} calls; one answer may ask for {calls_max}");
            return self.recover(run, Failure::new("TOO_MANY_CALLS", message), &Recovery::Policy, 0);
        }
        self.assistant_message(run, blocks, false);
        if calls > 0 {
            self.advance_calls();
            return;
        }
        self.end_step();
        self.conclude();
    }

    /// Writes the answer of the running attempt.
    pub(super) fn assistant_message(&mut self, run: RunKey, content: Vec<Block>, interrupted: bool) {
        let Some(Phase::Sampling(sampling)) = self.agent.turn.open().map(|open| &open.phase) else { return };
        let (usage, sources) = (sampling.assembler.usage(), sampling.sources.clone());
        let replay_state = sampling.assembler.replay_state().cloned();
        let config = &self.agent.header.as_ref().unwrap_or(&self.agent.spec.header).config;
        let mut source = Source::model(&config.provider, &config.model);
        if let Some(state) = replay_state {
            source = source.with("replayState", state);
        }
        let id = format!("msg-{}-{}-{}", run.turn, run.step, run.attempt).into();
        let message = Arc::new(Message { id, role: Role::Assistant, content, source });
        let (turn, step) = (run.turn, run.step);
        self.say_from(Fact::AssistantMessage(AssistantMessage { turn, step, message, usage, interrupted }), sources);
    }

    /// Providers reuse call ids; within a session they must not repeat.
    fn unique_calls(&self, blocks: Vec<Block>, run: RunKey) -> Vec<Block> {
        let mut used = self.agent.call_ids.clone();
        let mut index = 0;
        let unique = |block| match block {
            Block::ToolCall { id, name, arguments } => {
                let mut id: CallId = id;
                while used.contains(&id) {
                    id = format!("{id}#{}.{}.{index}", run.turn, run.step).into();
                }
                used.insert(id.clone());
                index += 1;
                Block::ToolCall { id, name, arguments }
            }
            other => other,
        };
        blocks.into_iter().map(unique).collect()
    }
}
