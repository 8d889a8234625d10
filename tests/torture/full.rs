//! A file system that is full: agents stall, what is there is whole, and when there is room everything arrives. Where no
//! small file system can be mounted these tests say SKIPPED and pass.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::archive::violations;
use crate::check::{Fate, Told};
use crate::kills::script;
use crate::world::{Running, World};

/// How long a state is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many children there are; what they write fits no small disk.
const CHILDREN: usize = 40;

/// A file system of its own in memory; gone when it is dropped.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    /// One of so many kilobytes, if this machine lets us.
    fn mount(at: &'a Path, kilobytes: u64) -> Option<Self> {
        std::fs::create_dir_all(at).expect("a folder");
        let size = format!("size={kilobytes}k,mode=700");
        mount(&["-t", "tmpfs", "-o", &size, "tmpfs"], at).then_some(Self(at))
    }

    fn make_room(&self) {
        assert!(mount(&["-o", "remount,size=256m"], self.0), "what was mounted can be made larger");
    }
}

fn mount(args: &[&str], at: &Path) -> bool {
    let status = Command::new("mount").args(args).arg(at).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // A test that failed may have left somebody in it.
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// The work of all tests and a piece that has many children.
fn large_script(world: &World) -> String {
    let child = |n| {
        let background = n % 2 == 0;
        format!(
            r#"{{ name = "subagent", arguments = {{ prompt = "errand {{{{prompt}}}} {n}", background = {background} }} }},"#
        )
    };
    let children: String = (0..CHILDREN).map(child).collect();
    let rules = format!(
        "\n[[rule]]\ncontains = \"expedition\"\nstep = 1\ncalls = [{children}]\n\n\
         [[rule]]\ncontains = \"expedition\"\nstep = 2\ncalls = [{{ name = \"wait_agents\", arguments = {{}} }}]\n"
    );
    let path = world.place.dir().join("script.toml");
    std::fs::write(&path, std::fs::read_to_string(script()).expect("a script") + &rules).expect("a script");
    path.display().to_string()
}

fn start(world: &World, script: &str, words: &[&str]) -> Running {
    let model = format!("scripted:{script}");
    let rest = ["--json", "--access", "full", "-m", &model];
    Running::start(&world.place, &words.iter().chain(&rest).map(|word| (*word).to_owned()).collect::<Vec<_>>())
}

fn is_stalled(seen: &[Value]) -> bool {
    seen.iter().any(|line| line["type"] == "stalled")
}

/// Runs `test` in a home on a disk of some size that is too small.
fn on_a_small_disk(name: &str, test: impl FnOnce(&mut World, &Disk<'_>, &str)) {
    let seed = crate::seed();
    let mut world = World::new(seed, name, &[]);
    let kilobytes = 400 + world.dice.below(1_000);
    let home = world.place.home();
    let Some(disk) = Disk::mount(&home, kilobytes) else {
        println!("SKIPPED {name}: no file system can be mounted here");
        return;
    };
    println!("SEED={seed} {name}, {kilobytes} KiB");
    let script = large_script(&world);
    world.uses(&format!("scripted:{script}"));
    test(&mut world, &disk, &script);
    world.rest();
    println!("SEED={seed} {name}\n{}", world.figures);
    world.figures.are_clean(seed);
}

#[test]
fn a_full_disk_stalls_its_agents_and_with_room_the_same_process_goes_on() {
    on_a_small_disk("full, then room", |world, disk, script| {
        let mut running = start(world, script, &["run", "expedition one"]);
        assert!(running.read(PATIENCE, is_stalled), "it stalls");
        assert_eq!(violations(&world.place), Vec::<String>::new(), "what is there is whole");
        disk.make_room();
        let (status, seen) = running.finish();
        assert_eq!(status.code(), Some(0), "{:?}", seen.last());
        let completed = seen.iter().filter(|line| line["type"] == "agent.ended" && line["outcome"] == "completed");
        assert_eq!(completed.count(), CHILDREN + 1, "everybody arrives");
        world.told.push(Told { text: "expedition one".into(), fate: Fate::Acknowledged });
        let lines = std::fs::read_to_string(world.place.dir().join("counter")).expect("they left something");
        assert_eq!(lines.lines().count(), CHILDREN * 2, "nobody did anything twice");
    });
}

#[test]
fn who_is_killed_on_a_full_disk_and_again_on_it_is_whole_when_there_is_room() {
    on_a_small_disk("full, killed", |world, disk, script| {
        let mut running = start(world, script, &["run", "expedition two"]);
        assert!(running.read(PATIENCE, is_stalled), "it stalls");
        let (_, seen) = running.murder();
        world.figures.kills += 1;
        let has_asked = seen.iter().any(|line| line["type"] == "message" && line["parent"].is_null());
        let fate = if has_asked { Fate::Acknowledged } else { Fate::Unknown };
        world.told.push(Told { text: "expedition two".into(), fate });
        assert_eq!(violations(&world.place), Vec::<String>::new(), "what is there is whole");
        let mut again = start(world, script, &["run", "--continue", "expedition three"]);
        let is_over = |seen: &[Value]| is_stalled(seen) || seen.last().is_some_and(|line| line["type"] == "run.ended");
        assert!(again.read(PATIENCE, is_over), "it stalls or says that it cannot");
        again.murder();
        world.figures.kills += 1;
        world.told.push(Told { text: "expedition three".into(), fate: Fate::Unknown });
        assert_eq!(violations(&world.place), Vec::<String>::new(), "what is there is whole");
        disk.make_room();
    });
}
