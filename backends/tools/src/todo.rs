//! The tool `todo_write`: the list of what an agent means to do, written whole each time.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use futures::future::{self, BoxFuture, FutureExt};
use impresario_kernel::{Access, TodoItem, TodoStatus, TodoWritten, ToolSchema};
use impresario_seams::{Overlap, Tool, ToolContext, ToolError, ToolOutput};
use serde_json::{Value, json};

use crate::arguments::{Arguments, missing, schema};

static SCHEMA: LazyLock<Arc<ToolSchema>> = LazyLock::new(|| {
    schema(
        "todo_write",
        "Writes your todo list, whole: it replaces the one before. Use it for work of several steps, keep it true as \
         you go on, with at most one item in progress, and finish or explain what is open before you end.",
        json!({
            "type": "object",
            "properties": {
                "todos": {
                    "type": "array",
                    "description": "The whole list.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "content": {"type": "string", "description": "What is to do; no two items alike."},
                            "status": {"type": "string", "enum": ["pending", "in_progress", "completed"], "description": "How far it is."},
                        },
                        "required": ["content", "status"],
                        "additionalProperties": false,
                    },
                },
            },
            "required": ["todos"],
            "additionalProperties": false,
        }),
    )
});

/// Writes the todo list of the calling agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct TodoWrite;

impl Tool for TodoWrite {
    fn schema(&self) -> Arc<ToolSchema> {
        SCHEMA.clone()
    }

    fn overlap(&self) -> Overlap {
        Overlap::Exclusive
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, input: Value, _ctx: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        future::ready(write(input)).boxed()
    }
}

fn write(input: Value) -> Result<ToolOutput, ToolError> {
    let mut arguments = Arguments::parse(input)?;
    let items = arguments.list("todos")?;
    arguments.finish()?;
    let todos = items.into_iter().enumerate().map(|(at, item)| parse(at, item)).collect::<Result<Vec<_>, _>>()?;
    let mut contents = HashSet::new();
    if let Some(at) = todos.iter().position(|item| !contents.insert(item.content.as_str())) {
        return Err(ToolError::invalid(format!("`todos[{at}].content` is the same as of an item before it")));
    }
    let count = |status| todos.iter().filter(|item| item.status == status).count();
    let (completed, in_progress) = (count(TodoStatus::Completed), count(TodoStatus::InProgress));
    let pending = count(TodoStatus::Pending);
    if in_progress > 1 {
        return Err(ToolError::invalid(format!(
            "`todos` has {in_progress} items in progress; work on one at a time and set the others to pending"
        )));
    }
    let items = todos.len();
    let text = format!("{items} items: {completed} completed, {in_progress} in progress, {pending} pending");
    Ok(ToolOutput { todos: Some(TodoWritten { todos }), ..ToolOutput::text(text) })
}

fn parse(at: usize, item: Value) -> Result<TodoItem, ToolError> {
    let Value::Object(mut fields) = item else {
        return Err(ToolError::invalid(format!("`todos[{at}]` must be an object with content and status")));
    };
    let (content_name, status_name) = (format!("todos[{at}].content"), format!("todos[{at}].status"));
    let content = match fields.remove("content") {
        None => return Err(missing(&content_name)),
        Some(Value::String(content)) if !content.trim().is_empty() => content.trim().to_owned(),
        Some(_) => return Err(ToolError::invalid(format!("`{content_name}` must be a text that is not empty"))),
    };
    let status = match fields.remove("status") {
        None => return Err(missing(&status_name)),
        Some(status) => match status.as_str() {
            Some("pending") => TodoStatus::Pending,
            Some("in_progress") => TodoStatus::InProgress,
            Some("completed") => TodoStatus::Completed,
            _ => {
                let known = "pending, in_progress or completed";
                return Err(ToolError::invalid(format!("`{status_name}` must be {known}, not {status}")));
            }
        },
    };
    match fields.keys().next() {
        None => Ok(TodoItem { content, status }),
        Some(name) => Err(ToolError::invalid(format!("`todos[{at}].{name}` is not a field of an item; leave it out"))),
    }
}
