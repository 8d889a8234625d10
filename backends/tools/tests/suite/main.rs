//! The tools in real folders, with real links, real processes, and the real `find`, `wc` and `grep` beside them.

mod desk;
mod files;
mod listing;
mod searching;
mod shell;
mod todo;
