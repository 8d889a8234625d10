//! Whole trees under everything that a seed can think of: the real actors on one thread and a paused clock, with a
//! seeded order of messages, a store that fails, people who interfere, actors and processes that die.
//!
//! `cargo sim` runs 2,000 seeds, `SEEDS=200000 cargo sim` as many as one likes, `SEED=n cargo sim` one alone.

mod check;
#[path = "../../runtime/kernel/tests/kit/dice.rs"]
mod dice;
mod seams;
mod spawning;
mod world;

/// How many seeds there are when nobody says otherwise.
const SEEDS: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Runs `seeds` on every core; a failure names its seed.
fn every(seeds: u64, command: &str, run: impl Fn(u64) + Sync) {
    // What tools and actors do because the seed says so need not be told.
    let next = std::sync::atomic::AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let failed = std::sync::Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds || failed.lock().unwrap().is_some() {
                        return;
                    }
                    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed)));
                    if ran.is_err() {
                        failed.lock().unwrap().get_or_insert(seed);
                    }
                }
            });
        }
    });
    if let Some(seed) = failed.into_inner().unwrap() {
        panic!("seed {seed} fails; run it alone with SEED={seed} {command}");
    }
}

#[test]
fn trees_keep_every_promise_whatever_happens() {
    match number("SEED") {
        Some(seed) => drop(world::run(seed)),
        None => every(number("SEEDS").unwrap_or(SEEDS), "cargo sim trees", |seed| drop(world::run(seed))),
    }
}

/// Promise P6: a seed gives the same logs, byte by byte.
#[test]
fn the_same_seed_gives_the_same_logs() {
    for seed in 0..20 {
        let (first, second) = (world::run(seed), world::run(seed));
        assert!(first.len() > 1_000, "seed {seed} does nothing");
        let differs = first.lines().zip(second.lines()).position(|(one, other)| one != other);
        assert!(first == second, "seed {seed}: line {differs:?} differs");
    }
}
