//! `kill -9` at random moments, over and over, on one store.

use crate::kit::{Mock, Place};
use crate::world::World;

pub(crate) fn script() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/torture/script.toml")
}

fn torture(name: &str, model: &[&str], kills: u64) {
    let seed = crate::seed();
    println!("SEED={seed} {name}");
    let mut world = World::new(seed, name, model);
    world.torture(kills);
    println!("SEED={seed} {name}\n{}", world.figures);
    world.figures.are_clean(seed);
}

#[test]
fn whatever_the_moment_of_a_kill_nothing_is_lost_and_nothing_happens_twice() {
    torture("in process", &["-m", &format!("scripted:{}", script().display())], crate::kills(20));
}

#[test]
fn with_streams_in_flight_over_http_it_is_the_same() {
    let place = Place::new();
    let mock = Mock::scripted(&place, &script());
    torture("over HTTP", &["-m", "openai:any", "--base-url", &mock.base_url()], crate::kills(10));
    mock.wait("a dead process holds no stream", |stats| stats["open_streams"] == 0);
}
