//! The rules of the house that a compiler does not check: arrows between crates, sizes, words, promises of the README.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Which of our crates each of our crates may depend on; `tests` and `examples` may join all of them.
const ARROWS: [(&str, &[&str]); 8] = [
    ("impresario-kernel", &[]),
    ("impresario-seams", &["impresario-kernel"]),
    ("impresario-actors", &["impresario-kernel", "impresario-seams"]),
    ("impresario-models", &["impresario-kernel", "impresario-seams"]),
    ("impresario-stores", &["impresario-kernel", "impresario-seams"]),
    ("impresario-tools", &["impresario-kernel", "impresario-seams"]),
    (
        "impresario",
        &[
            "impresario-actors",
            "impresario-kernel",
            "impresario-models",
            "impresario-seams",
            "impresario-stores",
            "impresario-tools",
        ],
    ),
    ("impresario-cli", &["impresario", "impresario-kernel", "impresario-models", "impresario-seams"]),
];

/// All that the pure crate may use.
const KERNEL_USES: [&str; 4] = ["imbl", "serde", "serde_json", "thiserror"];

/// The most lines of code of a file, comments and blank lines apart.
const LINES_MAX: usize = 800;

/// Files that look for such words in the work of others.
const MAY_NAME_WORDS: [&str; 3] = ["backends/models/src/scripted/demo.rs", "tests/e2e/demo.rs", "tests/tests/tidy.rs"];

fn house() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the folder of the tests is in the house").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The manifest of each member, by the name of its crate.
fn manifests() -> BTreeMap<String, Table> {
    let root: Table = read(&house().join("Cargo.toml")).parse().expect("the root manifest is TOML");
    let members = root["workspace"]["members"].as_array().expect("there are members");
    let manifest = |member: &Value| {
        let path = house().join(member.as_str().expect("a member is a path")).join("Cargo.toml");
        let table: Table = read(&path).parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (table["package"]["name"].as_str().expect("a crate has a name").to_owned(), table)
    };
    members.iter().map(manifest).collect()
}

fn names(manifest: &Table, section: &str) -> BTreeSet<String> {
    manifest.get(section).and_then(Value::as_table).map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

/// All Rust sources below some folders of the house, with their paths in it.
fn sources(folders: &[&str]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| house().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry of a folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let shown = path.strip_prefix(house()).expect("it is in the house").display().to_string();
                files.push((shown.replace('\\', "/"), read(&path)));
            }
        }
    }
    assert!(!files.is_empty(), "no sources were found");
    files
}

#[test]
fn crates_depend_only_where_the_arrows_point() {
    let manifests = manifests();
    for (name, manifest) in &manifests {
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| known == name) else {
            assert!(["impresario-tests", "impresario-examples"].contains(&name.as_str()), "{name} has no arrows yet");
            continue;
        };
        for used in names(manifest, "dependencies").iter().filter(|used| used.starts_with("impresario")) {
            assert!(allowed.contains(&used.as_str()), "{name} must not depend on {used}");
        }
    }
    assert!(ARROWS.iter().all(|(name, _)| manifests.contains_key(*name)), "an arrow names a crate that is gone");
}

#[test]
fn backends_do_not_see_each_other_even_in_their_tests() {
    let manifests = manifests();
    for backend in ["impresario-models", "impresario-stores", "impresario-tools"] {
        for used in names(&manifests[backend], "dev-dependencies").iter().filter(|used| used.starts_with("impresario"))
        {
            assert!(
                ["impresario-kernel", "impresario-seams"].contains(&used.as_str()),
                "the tests of {backend} must not use {used}"
            );
        }
    }
}

#[test]
fn only_the_actors_name_ractor() {
    for (name, manifest) in manifests() {
        let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
        let uses = sections.iter().any(|section| names(&manifest, section).contains("ractor"));
        assert!(!uses || name == "impresario-actors", "{name} must not use ractor");
    }
    for (path, text) in sources(&["runtime", "backends", "examples", "tests"]) {
        let names_it = text.contains("ractor::") && path != "tests/tests/tidy.rs";
        assert!(!names_it || path.starts_with("runtime/actors/"), "{path} names ractor");
    }
}

#[test]
fn the_kernel_is_pure() {
    let used = names(&manifests()["impresario-kernel"], "dependencies");
    let foreign: Vec<_> = used.iter().filter(|name| !KERNEL_USES.contains(&name.as_str())).collect();
    assert!(foreign.is_empty(), "the kernel must not use {foreign:?}");
    for (path, text) in sources(&["runtime/kernel/src"]) {
        for impure in ["SystemTime", "Instant::now", "std::fs", "std::net", "std::env", "std::thread", "tokio"] {
            let used = text.lines().find(|line| line.contains(impure) && !line.trim_start().starts_with("//"));
            assert!(used.is_none(), "{path} uses {impure}: {used:?}");
        }
    }
}

#[test]
fn every_crate_takes_the_lints_of_the_house() {
    for (name, manifest) in manifests() {
        let inherited = manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(Value::as_bool);
        assert_eq!(inherited, Some(true), "{name} has lints of its own");
    }
}

#[test]
fn nothing_is_left_for_later() {
    for (path, text) in sources(&["runtime", "backends", "examples", "tests"]) {
        if MAY_NAME_WORDS.contains(&path.as_str()) {
            continue;
        }
        for word in ["todo!", "unimplemented!", "dbg!", "FIXME", "#[ignore"] {
            let place = text.lines().position(|line| line.contains(word));
            assert!(place.is_none(), "{path}:{} says {word}", place.unwrap_or_default() + 1);
        }
    }
}

#[test]
fn no_file_outgrows_its_reader() {
    for (path, text) in sources(&["runtime", "backends"]) {
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        let lines = text.lines().filter(is_code).count();
        assert!(lines <= LINES_MAX, "{path} has {lines} lines of code; give a part of it a file of its own");
    }
}

#[test]
fn the_commands_of_the_readme_are_the_ones_that_are_run() {
    let readme = read(&house().join("README.md"));
    for command in ["cargo run --release -- demo", "cargo test --workspace"] {
        assert!(readme.lines().any(|line| line.trim() == command), "README has no line `{command}`");
    }
    let run = house().join(".ci/run");
    assert!(read(&run).contains("cargo test --workspace"), "the checks do not run the tests that README names");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(&run).expect("the checks are there").permissions().mode();
        assert!(mode & 0o111 != 0, "the checks cannot be run");
    }
}

#[test]
fn the_behaviours_with_a_number_are_as_many_as_the_architecture_says() {
    let number = |word: &str| {
        let digits = word.strip_prefix('b').filter(|digits| digits.len() == 3)?;
        digits.parse::<u32>().ok()
    };
    let mut numbers = BTreeSet::new();
    for (_, text) in sources(&["runtime", "backends", "tests"]) {
        for name in text.split("fn ").skip(1) {
            // A test may carry several.
            numbers.extend(name.split('_').map_while(number));
        }
    }
    let text = read(&house().join("runtime/ARCHITECTURE.md"));
    let said = format!("{} of the numbered testable behaviours", numbers.len());
    assert!(text.contains(&said), "ARCHITECTURE.md does not say: {said}");
}

#[test]
fn the_readme_shows_every_exit_code() {
    let readme = read(&house().join("README.md"));
    let table = read(&house().join("runtime/cli/src/exit.rs"));
    let code = |line: &str| {
        let (_, code) = line.trim().strip_prefix("Self::")?.split_once(" => ")?;
        code.trim_end_matches(',').parse::<u8>().ok()
    };
    let codes: BTreeSet<u8> = table.lines().filter_map(code).collect();
    assert!(codes.len() >= 10, "the exit codes were not found: {codes:?}");
    for code in codes {
        assert!(readme.contains(&format!("| {code} |")), "README does not explain the exit code {code}");
    }
}
