//! The real binary from outside: what it prints, how it exits, what it leaves in the world.

mod agents;
mod batch;
mod bench;
mod budgets;
mod crash;
mod demo;
mod exit;
mod fan_out;
mod import;
mod json;
mod keep;
mod kit;
mod outputs;
mod replay;
mod scripts;
mod todo;
mod worktrees;
