//! The tools that come with Impresario: files, search, shell, todo list.
//!
//! Each implements the seam [`Tool`] and knows nothing of actors. Paths stay inside the folder of the calling agent,
//! outputs are bounded and say what they left out, and what a call starts has ended when the call answers.

use std::sync::Arc;

use impresario_seams::Tool;

mod arguments;
mod blocking;
mod edit_file;
mod environment;
mod folder;
mod function;
mod list_dir;
mod output;
mod process;
mod read_file;
mod search;
mod shell;
mod smallest;
mod todo;
mod todo_guard;
mod walk;
mod worktrees;
mod write_file;

pub use edit_file::EditFile;
pub use function::FunctionTool;
pub use list_dir::ListDir;
pub use read_file::ReadFile;
pub use search::Search;
pub use shell::Bash;
pub use todo::TodoWrite;
pub use todo_guard::TodoGuard;
pub use worktrees::GitWorktrees;
pub use write_file::WriteFile;

/// Derives the schema of a tool's input.
pub use schemars;

/// Every tool, in the order in which models are told of them.
#[must_use]
pub fn all() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(ReadFile),
        Arc::new(ListDir),
        Arc::new(Search),
        Arc::new(WriteFile),
        Arc::new(EditFile),
        Arc::new(Bash),
        Arc::new(TodoWrite),
    ]
}
