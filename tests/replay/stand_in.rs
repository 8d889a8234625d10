//! Tools of another program: each answers a call with what was recorded for it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use impresario_kernel::{Access, Block, CallId, Fact, Overlap, ToolSchema};
use impresario_seams::{Tool, ToolContext, ToolError, ToolOutput};
use serde_json::{Value, json};

use crate::recorded::Recorded;

/// What was answered to each call: the blocks, and whether it failed.
type Results = HashMap<CallId, (Vec<Block>, bool)>;

struct StandIn {
    schema: Arc<ToolSchema>,
    results: Arc<Results>,
}

impl Tool for StandIn {
    fn schema(&self) -> Arc<ToolSchema> {
        Arc::clone(&self.schema)
    }

    fn overlap(&self) -> Overlap {
        Overlap::Exclusive
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, _input: Value, ctx: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let result = self.results.get(&ctx.call).cloned();
        async move {
            match result {
                Some((content, false)) => Ok(ToolOutput { content, ..ToolOutput::default() }),
                Some((content, true)) => Err(ToolError::new(impresario_kernel::message::joined_text(&content))),
                None => Err(ToolError::new(format!("nothing is recorded of {}", ctx.call))),
            }
        }
        .boxed()
    }
}

/// One for each tool that was called, apart from those that start subagents.
pub(crate) fn tools(recorded: &Recorded) -> Vec<Arc<dyn Tool>> {
    let mut names = BTreeSet::new();
    let mut results = Results::new();
    for event in recorded.events() {
        match &event.fact {
            Fact::ToolCalled(called) => drop(names.insert(called.name.to_string())),
            Fact::ToolResult(result) => results.extend(result.message.content.iter().filter_map(|block| match block {
                Block::ToolResult { tool_call_id, content, is_error } => {
                    Some((tool_call_id.clone(), (content.clone(), *is_error)))
                }
                _ => None,
            })),
            _ => {}
        }
    }
    let results = Arc::new(results);
    let foreign = names.into_iter().filter(|name| !["subagent", "subagent_fork"].contains(&name.as_str()));
    let stand_in = |name| {
        let schema = ToolSchema { name, description: "as recorded".into(), parameters: json!({"type": "object"}) };
        Arc::new(StandIn { schema: Arc::new(schema), results: Arc::clone(&results) }) as Arc<dyn Tool>
    };
    foreign.map(stand_in).collect()
}
