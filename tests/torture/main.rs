//! Crash torture: the real binary on a busy tree, `kill -9` at random moments, and what is there afterwards, read from
//! outside.
//!
//! `SEED=n` repeats a seed (the moments are those of the clock, so a seed repeats what is done and not each race),
//! `KILLS=n` sets how often there is a kill: `KILLS=200 cargo test -p impresario-cli --test torture -- --nocapture`.

// The figures are for people to read.
#![allow(clippy::print_stdout)]

mod archive;
mod check;
#[path = "../../runtime/kernel/tests/kit/dice.rs"]
mod dice;
mod figures;
mod full;
mod kills;
#[path = "../e2e/kit.rs"]
#[expect(dead_code, reason = "the other suite uses all of it")]
mod kit;
mod tools;
mod torn;
mod wal;
mod world;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// The seed that was asked for, or one like no other.
fn seed() -> u64 {
    let now = || std::time::UNIX_EPOCH.elapsed().expect("the clock is past its beginning").as_micros();
    number("SEED").unwrap_or_else(|| u64::try_from(now()).expect("microseconds fit") % 1_000_000_000)
}

/// How often there is a kill; `few` if nobody says so.
fn kills(few: u64) -> u64 {
    number("KILLS").unwrap_or(few)
}
