//! The demonstration tells the truth about a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufRead;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::kit::Place;

/// A folder with everything that makes counting hard.
fn fill(dir: &Path) {
    let write = |path: &str, content: &[u8]| {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder");
        fs::write(path, content).expect("a file");
    };
    write("README.md", b"# A project\n\nTODO: say more\n");
    write("no newline at the end.txt", b"one\ntwo");
    write("empty", b"");
    write(".hidden", b"FIXME: hidden, but counted\n");
    write("src/main.rs", b"fn main() {}\n// TODO: everything\n// TODO(x): FIXME twice on a line\n");
    write("src/deep/er/mod.rs", &b"x\n".repeat(500));
    write("docs/a b/c:d.md", b"colons in names\nFIXME: here\n");
    write("data/blob.bin", &[0, 1, 2, b'\n', 0xff, b'T', b'O', b'D', b'O', b'\n']);
    write("data/latin1.txt", b"caf\xe9 TODO\n");
    write("many/lines.txt", &b"TODO: one of many\n".repeat(40));
    #[cfg(unix)]
    std::os::unix::fs::symlink("README.md", dir.join("link.md")).expect("a link");
}

fn shell(dir: &Path, command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).current_dir(dir).env("LC_ALL", "C").output();
    String::from_utf8(output.expect("a shell").stdout).expect("text").trim().to_owned()
}

fn figures(report: &str) -> BTreeMap<String, String> {
    let lines = report.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_report_says_what_find_wc_and_grep_say() {
    let place = Place::new();
    fill(place.dir());
    let said = place.ok(&["demo"]);
    let figures = figures(&said.out);
    let dir = place.dir();
    let expected = [
        ("files", shell(dir, "find . -type f | wc -l")),
        ("lines", shell(dir, "find . -type f -exec cat {} + | wc -l")),
        ("bytes", shell(dir, "find . -type f -exec cat {} + | wc -c")),
        ("todo_fixme", shell(dir, "grep -rnIE 'TODO|FIXME' . | wc -l")),
    ];
    for (key, value) in expected {
        assert_eq!(figures.get(key), Some(&value), "{key} in\n{}", said.out);
    }
    assert!(figures["check"].contains("sums agree"), "{}", said.out);
    for hit in ["  .hidden:1:FIXME: hidden, but counted", "  docs/a b/c:d.md:2:FIXME: here", "  many/lines.txt:1:TODO"]
    {
        assert!(said.out.contains(hit), "{hit} in\n{}", said.out);
    }
    assert!(said.out.contains("  and 26 more"), "{}", said.out);
    // The largest file by size is first.
    let largest = said.out.lines().skip_while(|line| *line != "largest files:").nth(1).unwrap_or_default();
    assert!(largest.contains("src/deep/er/mod.rs 1000 bytes 500 lines"), "{}", said.out);
    assert!(said.err.contains("root/src: started") && said.err.contains("root/check: completed"), "{}", said.err);
    place.verify();
    let last = said.err.lines().last().unwrap_or_default();
    let hint = last.strip_prefix("look again: impresario ").expect("the last line says how to look again");
    let args: Vec<&str> = hint.split(' ').collect();
    assert!(place.ok(&args).out.contains("check"), "{last}");
}

#[test]
fn any_folder_has_three_to_twelve_parts_and_one_fork() {
    for files in [0, 1, 30] {
        let place = Place::new();
        (0..files).for_each(|n| fs::write(place.dir().join(format!("f{n}")), "x\n").expect("a file"));
        let said = place.ok(&["demo", "--json"]);
        let events = said.events();
        let started = |context: &str| {
            events
                .iter()
                .filter(|event| {
                    event["type"] == "agent.started" && event["path"] != "root" && event["context"] == context
                })
                .count()
        };
        assert!((3..=12).contains(&started("fresh")), "{files} files: {} parts", started("fresh"));
        assert_eq!(started("fork"), 1);
        assert!(said.end()["text"].as_str().is_some_and(|text| text.contains(&format!("files: {files}\n"))));
    }
}

#[test]
fn a_reader_that_leaves_early_gets_whole_lines_and_no_noise() {
    let place = Place::new();
    fill(place.dir());
    let mut started = place.start(&["demo", "--json"]);
    let lines: Vec<String> = started.stdout().lines().take(5).map(|line| line.expect("a line")).collect();
    for (n, line) in lines.iter().enumerate() {
        let event: Value = serde_json::from_str(line).expect("each line is JSON");
        assert_eq!((event["v"].as_u64(), event["n"].as_u64()), (Some(1), Some(n as u64)));
    }
    let said = started.finish();
    assert!(said.code.is_some(), "it was killed by a signal");
    assert!(!said.err.contains("panicked") && !said.err.contains("Broken pipe"), "{}", said.err);
    place.verify();
}

#[test]
fn names_that_a_line_cannot_show_are_counted_all_the_same() {
    use std::os::unix::ffi::OsStrExt as _;
    let place = Place::new();
    for name in [&b"new\nline"[..], b"\xff\xfe not text", b"es\x1bcape", b"plain"] {
        let folder = place.dir().join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("a"), "TODO: one\ntwo\n").expect("a file");
    }
    fs::write(place.dir().join("b\nc"), "three\n").expect("a file");
    let said = place.ok(&["demo"]);
    let figures = figures(&said.out);
    let found = ["files", "lines", "todo_fixme"].map(|key| figures[key].as_str());
    assert_eq!(found, ["5", "9", "4"], "{}", said.out);
    assert!(!said.out.contains("NOT IN THESE FIGURES"), "{}", said.out);
}
