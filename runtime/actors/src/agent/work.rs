//! Making what runs match what is wanted.

use std::sync::Arc;
use std::time::Duration;

use imbl::OrdSet;
use imbl::ordset::DiffItem;
use impresario_kernel::{CallKey, CallReport, Failure, Input, Millis, RunKey, Seq, Want};
use impresario_seams::{ModelRequest, ModelScope, Workspace};
use ractor::ActorRef;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::{AgentMessage, AgentState, SlotState, Task};
use crate::delegation::{self, FINAL_OUTPUT, Manage, OutputArgs, SUBAGENT, SubagentArgs, WAIT_AGENTS, WaitArgs};
use crate::output::OutputSchema;
use crate::pipeline::{self, PipelineCall};
use crate::profile::Chosen;
use crate::providers;
use crate::sampling::{ChunkBuffer, sample};
use crate::supervisor::{Spawn, SupervisorMessage, Wait, WaitResult};

impl AgentState {
    /// Ends what is no longer wanted, starts what is wanted and may start, and keeps or returns the slot. Starting
    /// something may decide something, so this goes on until nothing new was decided.
    ///
    /// Wants follow from the log: while it has not grown and nothing waits to start, there is nothing to do.
    pub(super) fn reconcile(&mut self, myself: &ActorRef<AgentMessage>) {
        while self.reconciled != Some(self.agent.log().next_seq()) || !self.gates.is_empty() {
            let before = self.agent.log().next_seq();
            self.reconcile_once(myself);
            self.reconciled = Some(before);
            if self.agent.log().next_seq() == before {
                break;
            }
        }
        self.settle_slot();
    }

    fn reconcile_once(&mut self, myself: &ActorRef<AgentMessage>) {
        let wanted = self.agent.wants();
        let before = std::mem::replace(&mut self.wanted, wanted.clone());
        let next = self.agent.log().next_seq();
        // What did not change is shared by both sets and is not looked at.
        for change in before.diff(&wanted) {
            match change {
                DiffItem::Add(want) => {
                    self.gates.insert(*want, next);
                    if *want == Want::Slot && self.agent.outcome().is_some() {
                        self.follow(super::Effect::BeginsAgain);
                    }
                }
                DiffItem::Remove(want) => self.end(*want, &wanted),
            }
        }
        let open: Vec<(Want, Seq)> = self.gates.iter().map(|(want, gate)| (*want, *gate)).collect();
        for (want, gate) in open {
            // To stop something needs nobody's leave.
            if let Want::Stop(call) = want {
                self.gates.remove(&want);
                self.stop(call);
                self.tasks.insert(want, Task::Delegated);
            } else if self.durable >= gate && !self.is_halted() && self.has_slot_for(want) && self.is_paid(want) {
                self.gates.remove(&want);
                let task = self.start(myself, want);
                self.tasks.insert(want, task);
            }
        }
    }

    /// Ends what is no longer wanted. A call that is being stopped still runs: it is ended with its stop.
    fn end(&mut self, want: Want, wanted: &OrdSet<Want>) {
        self.gates.remove(&want);
        self.drop_payment(want);
        match want {
            Want::Run(call) if wanted.contains(&Want::Stop(call)) => return,
            Want::Stop(call) => drop(self.tasks.remove(&Want::Run(call))),
            Want::Sample(run) => drop(self.buffers.remove(&run)),
            Want::Run(_) | Want::Slot | Want::Judge(_) | Want::Retry(..) => {}
        }
        self.tasks.remove(&want);
    }

    /// Whether `want` may start now as far as slots go; asks for one otherwise.
    fn has_slot_for(&mut self, want: Want) -> bool {
        let needs_slot = match want {
            Want::Slot | Want::Sample(_) => true,
            Want::Run(call) => self.agent.call(call).is_some_and(|call| !delegation::is_delegation(&call.name)),
            Want::Judge(_) | Want::Retry(..) | Want::Stop(_) => false,
        };
        if !needs_slot || self.slot == SlotState::Held {
            return true;
        }
        if self.slot == SlotState::None {
            self.slot = SlotState::Asked;
            self.ask_slot();
        }
        false
    }

    fn ask_slot(&mut self) {
        self.asks += 1;
        let (agent, resuming, ask) = (self.id.clone(), self.agent.turn().open().is_some(), self.asks);
        self.shared.supervisor.cast(SupervisorMessage::AskSlot { agent, resuming, ask });
    }

    /// Asks a new supervisor again for all that the one before it was asked for, and tells it then how things stand.
    pub(super) fn announce(&mut self, myself: &ActorRef<AgentMessage>) {
        let tasks: Vec<Want> = self.tasks.keys().copied().collect();
        let is_delegated = |state: &Self, key: CallKey| {
            let is_ours = state.judging.contains(&key) || state.opening.contains_key(&key);
            let call = state.agent.call(key).filter(|_| !is_ours);
            call.is_some_and(|call| delegation::is_delegation(&call.name))
        };
        for want in &tasks {
            if let Want::Run(key) = *want
                && is_delegated(self, key)
            {
                self.delegate(myself, key, true);
            }
        }
        for want in tasks {
            if let Want::Stop(call) = want
                && is_delegated(self, call)
            {
                self.shared.supervisor.cast(SupervisorMessage::StopCall { parent: self.id.clone(), call });
            }
        }
        if self.slot == SlotState::Asked {
            self.ask_slot();
        }
        let in_flight = self.reserve_again();
        self.follow(super::Effect::Announced(self.agent.outcome().cloned(), in_flight));
    }

    /// Gives the slot back while all that the turn does is wait for others, and when it is over.
    fn settle_slot(&mut self) {
        let needs = (self.agent.is_running() || self.agent.wants_turn()) && !self.waits_for_funds();
        if !needs && self.slot != SlotState::None {
            self.slot = SlotState::None;
            self.shared.supervisor.cast(SupervisorMessage::ReturnSlot { agent: self.id.clone() });
        }
    }

    fn start(&mut self, myself: &ActorRef<AgentMessage>, want: Want) -> Task {
        match want {
            Want::Slot => {
                self.input(Input::SlotGranted);
                Task::Delegated
            }
            Want::Judge(asked) => self.start_judge(myself, asked),
            Want::Sample(run) => self.start_sample(myself, run),
            Want::Retry(run, at) => self.start_retry(myself, run, at),
            Want::Run(call) => self.start_call(myself, call),
            Want::Stop(_) => Task::Delegated,
        }
    }

    fn start_sample(&mut self, myself: &ActorRef<AgentMessage>, run: RunKey) -> Task {
        let buffer = Arc::new(ChunkBuffer::default());
        self.buffers.insert(run, Arc::clone(&buffer));
        let header = self.agent.header().unwrap_or(&self.agent.spec().header);
        let provider = &header.config.provider;
        let place = (self.profile.birth.root.clone(), self.profile.birth.path.clone());
        if let Some(subagents) = self.shared.subagents.get(provider) {
            let answer = providers::run(subagents, self.profile.turn_of(&self.id, &self.agent, run.turn));
            return own(sample(Arc::clone(&self.shared), place, answer, run, buffer, myself.clone()));
        }
        let Some(model) = self.shared.models.get(provider).cloned() else {
            let known = self.shared.models.keys().cloned().collect::<Vec<_>>().join(", ");
            let message = format!("a hook asked for the provider {provider:?}; this runtime has {known}");
            let result = Err(Failure::new("NO_ADAPTER", message));
            let _ = myself.cast(AgentMessage::ModelEnded { run, result });
            return Task::Delegated;
        };
        let scope = ModelScope {
            agent: self.id.clone(),
            path: self.profile.birth.path.clone(),
            turn: run.turn,
            step: run.step,
            attempt: run.attempt,
        };
        let request = ModelRequest { header: Arc::clone(header), messages: self.agent.messages(), scope };
        let answer = async move { model.stream(request).await };
        own(sample(Arc::clone(&self.shared), place, answer, run, buffer, myself.clone()))
    }

    fn start_retry(&self, myself: &ActorRef<AgentMessage>, run: RunKey, at: Millis) -> Task {
        let wait = Duration::from_millis(at.0.saturating_sub(self.shared.chance.now().0));
        let myself = myself.clone();
        own(async move {
            tokio::time::sleep(wait).await;
            // The actor may be gone.
            let _ = myself.cast(AgentMessage::RetryDue { run });
        })
    }

    fn start_call(&mut self, myself: &ActorRef<AgentMessage>, key: CallKey) -> Task {
        let Some(call) = self.pipeline_call(key) else { return Task::Delegated };
        if self.agent.output().is_some() {
            let message = "not run: the final output is given, and the turn ends with it";
            let report = CallReport::failed("ToolDeniedError", "OUTPUT_GIVEN", message);
            let _ = myself.cast(AgentMessage::CallEnded { call: key, report });
            return Task::Delegated;
        }
        let is_delegation = delegation::is_delegation(&call.name);
        if is_delegation && self.profile.call_hooks.is_empty() {
            self.delegate(myself, key, false);
            return Task::Delegated;
        }
        self.cancels.insert(key, call.cancel.clone());
        let (shared, myself) = (Arc::clone(&self.shared), myself.clone());
        if is_delegation {
            // Judged like any other call; the runtime itself performs it.
            self.judging.insert(key);
            return own(pipeline::judge(call, myself));
        }
        own(pipeline::perform(shared, call, myself))
    }

    /// What the pipeline needs to know of a call of the open step.
    pub(super) fn pipeline_call(&self, key: CallKey) -> Option<PipelineCall> {
        let call = self.agent.call(key)?.clone();
        Some(PipelineCall {
            key,
            id: call.id,
            name: call.name,
            arguments: call.arguments,
            agent: self.id.clone(),
            root: self.profile.birth.root.clone(),
            path: self.profile.birth.path.clone(),
            authority: self.profile.birth.authority.clone(),
            dir: self.profile.dir.clone(),
            cancel: self.cancels.get(&key).cloned().unwrap_or_default(),
            approver: self.profile.approver.clone(),
            hooks: Arc::clone(&self.profile.call_hooks),
        })
    }

    /// Hooks have let a call for other agents pass, or there are none.
    pub(super) fn call_judged(&mut self, myself: &ActorRef<AgentMessage>, key: CallKey) {
        if self.judging.remove(&key) {
            self.delegate(myself, key, false);
        }
    }

    /// Asks others to perform a call, perhaps not for the first time.
    fn delegate(&mut self, myself: &ActorRef<AgentMessage>, key: CallKey, is_again: bool) {
        let Some(call) = self.agent.call(key).cloned() else { return };
        let started = match &*call.name {
            SUBAGENT => self.start_subagent(myself, key, &call.id, &call.arguments, is_again),
            WAIT_AGENTS => self.start_wait(key, &call.arguments),
            FINAL_OUTPUT => self.give_output(myself, key, &call.arguments),
            name => self.start_manage(key, name, &call.arguments),
        };
        if let Err(report) = started {
            let _ = myself.cast(AgentMessage::CallEnded { call: key, report: *report });
        }
    }

    fn may_use(&self, tool: &str) -> Result<(), Box<CallReport>> {
        if self.profile.birth.authority.tools.iter().any(|name| name == tool) {
            return Ok(());
        }
        let message = format!("you were not granted {tool}; do the work yourself");
        Err(Box::new(CallReport::failed("ToolDeniedError", "SPAWN_NOT_GRANTED", &message)))
    }

    fn start_subagent(
        &mut self,
        myself: &ActorRef<AgentMessage>,
        key: CallKey,
        id: &impresario_kernel::CallId,
        arguments: &str,
        is_again: bool,
    ) -> Result<(), Box<CallReport>> {
        self.may_use(SUBAGENT)?;
        let (args, _) = self.child_args(arguments)?;
        if self.opens_workspace(myself, key, &args, is_again)? {
            return Ok(());
        }
        self.ask_for_child(key, id, arguments, None, is_again)
    }

    /// What a child is to be, if that makes sense.
    fn child_args(&self, arguments: &str) -> Result<(SubagentArgs, Chosen), Box<CallReport>> {
        let args: SubagentArgs = delegation::parse(SUBAGENT, arguments)?;
        if let Err(wrong) = args.check() {
            let report = CallReport::failed("ToolArgsError", "INVALID_ARGS", &format!("{SUBAGENT}: {wrong}"));
            return Err(Box::new(report));
        }
        self.check_tools(args.tools.as_deref().unwrap_or_default())?;
        if let Err(error) = self.profile.check_price(&self.shared, args.budget().as_ref()) {
            let message = format!("subagent: {error}; leave `cost_usd` out");
            return Err(Box::new(CallReport::failed("ToolArgsError", "INVALID_ARGS", &message)));
        }
        let output = args.output_schema.clone().map(OutputSchema::json).transpose();
        let output = output
            .map_err(|error| CallReport::failed("ToolArgsError", "INVALID_ARGS", &format!("subagent: {error}")))?;
        let route = providers::route(&self.shared, &args, &self.profile.route())?;
        Ok((args, Chosen { output, route, workspace: None }))
    }

    /// Asks the supervisor for a child.
    pub(super) fn ask_for_child(
        &mut self,
        key: CallKey,
        id: &impresario_kernel::CallId,
        arguments: &str,
        workspace: Option<Workspace>,
        is_again: bool,
    ) -> Result<(), Box<CallReport>> {
        let (args, chosen) = self.child_args(arguments)?;
        let chosen = Chosen { workspace, ..chosen };
        let (parent, call, call_id) = (self.id.clone(), key, id.clone());
        // A fork costs the same whatever the length of the log: the child shares it.
        let prefix = self.agent.clone();
        let profile = Arc::clone(&self.profile);
        let spawn = Spawn { parent, call, call_id, args, chosen, profile, prefix, is_again };
        self.shared.supervisor.cast(SupervisorMessage::Spawn(Box::new(spawn)));
        Ok(())
    }

    /// A child has at most the tools of its parent.
    fn check_tools(&self, wanted: &[String]) -> Result<(), Box<CallReport>> {
        let own = &self.profile.birth.authority.tools;
        let Some(lacking) = wanted.iter().find(|name| !own.contains(name)) else { return Ok(()) };
        let message = format!("subagent: you have no tool {lacking:?} to give; yours are: {}", own.join(", "));
        Err(Box::new(CallReport::failed("ToolArgsError", "INVALID_ARGS", &message)))
    }

    /// The turn comes out with what the call says, if that fits.
    fn give_output(
        &mut self,
        myself: &ActorRef<AgentMessage>,
        key: CallKey,
        arguments: &str,
    ) -> Result<(), Box<CallReport>> {
        let Some(schema) = &self.profile.output else {
            let message = "no final output is asked of you; just answer";
            return Err(Box::new(CallReport::failed("ToolDeniedError", "NO_OUTPUT_ASKED", message)));
        };
        let OutputArgs { result } = delegation::parse(FINAL_OUTPUT, arguments)?;
        if let Some(violations) = schema.violations(&result) {
            let message = format!("{FINAL_OUTPUT}: `result` does not fit: {violations}");
            return Err(Box::new(CallReport::failed("ToolArgsError", "INVALID_ARGS", &message)));
        }
        let content = vec![impresario_kernel::Block::text("recorded")];
        let report = CallReport { content, output: Some(result.into()), ..CallReport::default() };
        let hooked = if self.profile.call_hooks.is_empty() { None } else { self.pipeline_call(key) };
        let Some(call) = hooked else {
            let _ = myself.cast(AgentMessage::CallEnded { call: key, report });
            return Ok(());
        };
        let myself = myself.clone();
        let review = own(async move {
            let report = pipeline::reviewed(call, report).await;
            // The actor may be gone.
            let _ = myself.cast(AgentMessage::CallEnded { call: key, report });
        });
        self.reviews.insert(key, review);
        Ok(())
    }

    fn start_wait(&mut self, key: CallKey, arguments: &str) -> Result<(), Box<CallReport>> {
        self.may_use(WAIT_AGENTS)?;
        let args: WaitArgs = delegation::parse(WAIT_AGENTS, arguments)?;
        if let Err(wrong) = args.check() {
            let report = CallReport::failed("ToolArgsError", "INVALID_ARGS", &format!("{WAIT_AGENTS}: {wrong}"));
            return Err(Box::new(report));
        }
        let wait = Wait { parent: self.id.clone(), call: key, args, stopping: None };
        self.shared.supervisor.cast(SupervisorMessage::Wait(wait));
        Ok(())
    }

    fn start_manage(&mut self, call: CallKey, tool: &str, arguments: &str) -> Result<(), Box<CallReport>> {
        self.may_use(tool)?;
        let what = Manage::of(tool, arguments)?;
        self.shared.supervisor.cast(SupervisorMessage::Manage { parent: self.id.clone(), call, what });
        Ok(())
    }

    /// Asks a started call to end. Its real end is reported like any other.
    fn stop(&mut self, key: CallKey) {
        if let Some(cancel) = self.cancels.get(&key) {
            cancel.cancel();
        }
        let Some(call) = self.agent.call(key) else { return };
        if self.judging.remove(&key) || self.opening.remove(&key).is_some() || !self.tasks.contains_key(&Want::Run(key))
        {
            // Hooks still judged it, its workspace was not there, its `tool/call` was not durable yet, or it had no slot:
            // nothing was started.
            self.input(Input::CallSettled { call: key, report: pipeline::aborted() });
        } else if delegation::is_delegation(&call.name) {
            let (parent, call) = (self.id.clone(), key);
            self.shared.supervisor.cast(SupervisorMessage::StopCall { parent, call });
        }
    }

    /// A wait is over: what it lists is taken out of the inbox, so that nothing is told twice.
    pub(super) fn wait_ended(&mut self, call: CallKey, result: WaitResult) {
        let bytes_max = delegation::share(self.shared.limits.result_bytes_max, result.done.len());
        let mut claims = vec![];
        let mut done = vec![];
        for settled in &result.done {
            let notice = settled.notice(bytes_max);
            let waits = [impresario_kernel::Lane::NextStep, impresario_kernel::Lane::NextTurn]
                .iter()
                .any(|&lane| self.agent.inbox().lane(lane).iter().any(|message| message.id == notice.id));
            done.push(settled.entry(bytes_max, waits || !self.agent.has_accepted(&notice.id)));
            claims.push(notice);
        }
        let pending: Vec<_> = result.pending.iter().map(|(id, path)| json!({"agent": id, "path": path})).collect();
        let text = json!({"done": done, "pending": pending}).to_string();
        let content = vec![impresario_kernel::Block::text(text)];
        let report = CallReport { content, claims, ..CallReport::default() };
        if let Err(refused) = self.try_input(Input::CallSettled { call, report }) {
            tracing::debug!(agent = %self.id, %refused, "a wait ended behind its call");
            // The answers must not be lost: they come as messages.
            for settled in result.done {
                self.child_answered(None, settled, true);
            }
            return;
        }
        for settled in result.done {
            let turn = settled.outcome.turn;
            self.follow(super::Effect::Delivered { child: settled.child, turn });
        }
    }
}

pub(super) fn own(task: impl Future<Output = ()> + Send + 'static) -> Task {
    Task::Own { _handle: AbortOnDropHandle::new(tokio::spawn(task)) }
}
