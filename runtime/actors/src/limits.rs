//! The bounds of a runtime.

use std::time::Duration;

use impresario_kernel::RestartPolicy;

/// Over a limit means to wait or to be refused, never to run away. The defaults are those of the command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limits {
    /// How deep a tree may grow; the root is at depth 0.
    pub depth_max: u32,
    /// How many descendants a root may have in all.
    pub descendants_max: u32,
    /// How many agents above a child may have been given the very prompt that it is given; one more is a loop, and the child
    /// is refused.
    pub same_prompt_max: u32,
    /// How many turns of a tree may run at once. A turn that only waits for other agents does not count.
    pub running_max: usize,
    /// How many steps (model calls and the tools they ask for) a turn may take.
    pub steps_max: u32,
    /// How many tool calls of one agent may run at once. Calls that only wait for other agents do not count.
    pub parallel_calls_max: usize,
    /// How many tool calls one answer of a model may ask for; an answer that asks for more fails.
    pub answer_calls_max: usize,
    /// The most bytes of a child's text that its parent is shown at once; more than sixteen at once share what sixteen may
    /// show.
    pub result_bytes_max: usize,
    /// How many tokens (input and output) an agent may spend in one turn; `None` is no limit.
    pub tokens_max: Option<u64>,
    /// How many tool calls an agent may make in one turn; `None` is no limit.
    pub calls_max: Option<u64>,
    /// How long a turn may take, in milliseconds, looked at between its steps; `None` is no limit.
    pub wall_ms_max: Option<u64>,
    /// How often an agent whose actor panics is started again, if its [`crate::AgentSpec::restarts`] says nothing else, and
    /// a supervisor that does. With its last restart spent it has crashed for good.
    pub restarts: RestartPolicy,
    /// How long one message may be, in bytes.
    pub message_bytes_max: usize,
    /// How long an agent that has nothing to do stays in memory. Then it goes to the store and keeps its address: whatever is
    /// wanted of it brings it back. `None` is for ever.
    pub idle_after: Option<Duration>,
    /// How many agents stay in memory; above that those go to the store that have rested longest. Agents with something to
    /// do always stay. `None` is all.
    pub resident_max: Option<usize>,
    /// By how many events a log grows before what it makes of the agent is written down, so that it need not be read from
    /// the beginning; a long one by an eighth of itself. `None` is never.
    pub checkpoint_after: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth_max: 3,
            descendants_max: 200,
            same_prompt_max: 1,
            running_max: 16,
            steps_max: 100,
            parallel_calls_max: 10,
            answer_calls_max: 16_384,
            result_bytes_max: 16 * 1024,
            tokens_max: None,
            calls_max: None,
            wall_ms_max: None,
            restarts: RestartPolicy::default(),
            message_bytes_max: 16 * 1024 * 1024,
            idle_after: Some(Duration::from_secs(300)),
            resident_max: None,
            checkpoint_after: Some(4_096),
        }
    }
}
