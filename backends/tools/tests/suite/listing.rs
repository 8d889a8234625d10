use impresario_tools::ListDir;
use serde_json::json;

use crate::desk::Desk;

fn tree() -> Desk {
    let desk = Desk::new();
    desk.file("b.txt", "1\n2\nno end");
    desk.file(".hidden", "h\n");
    desk.file("src/deep/er/x.rs", "x\n".repeat(70_000));
    desk.file("src/a-b.rs", "y\n");
    desk.file("src/binary", b"\0\n\0\n");
    desk.file("src-2/empty", "");
    desk.link("link", "src");
    desk.link("out", "/etc");
    desk
}

#[tokio::test]
async fn counts_agree_with_find_and_wc() {
    let desk = tree();
    let text = desk.text(&ListDir, json!({"recursive": true, "count_lines": true})).await;
    let sums = desk.real("find . -type f -print0 | xargs -0 cat | wc -lc");
    let mut sums = sums.split_whitespace();
    let (lines, bytes) = (sums.next().unwrap(), sums.next().unwrap());
    let files = desk.real("find . -type f | wc -l");
    let folders = desk.real("find . -mindepth 1 -type d | wc -l");
    let total = format!("total: {} files, {lines} lines, {bytes} bytes, {} folders", files.trim(), folders.trim());
    assert_eq!(text.lines().last().unwrap(), total);
    let listed: Vec<_> = text.lines().filter(|line| line.contains(" lines  ")).collect();
    let found = desk.real(
        "find . -type f -printf '%P\\n' | LC_ALL=C sort | while read f; do echo \"$f  $(wc -l <$f) lines  $(wc -c <$f) bytes\"; done",
    );
    assert_eq!(listed, found.lines().collect::<Vec<_>>());
    assert!(text.contains("\nlargest: src/deep/er/x.rs 140000 bytes 70000 lines\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("largest: ")).count(), 5);
}

#[tokio::test]
async fn a_plain_list_shows_what_is_directly_there_in_order() {
    let desk = tree();
    let text = desk.text(&ListDir, json!({})).await;
    assert_eq!(
        text,
        ".hidden  2 bytes\nb.txt  10 bytes\nlink -> src\nout -> /etc\nsrc/\nsrc-2/\ntotal: 2 files, 12 bytes, 2 folders"
    );
    let text = desk.text(&ListDir, json!({"path": "src-2"})).await;
    assert_eq!(text, "src-2/empty  0 bytes\ntotal: 1 files, 0 bytes, 0 folders");
}

#[tokio::test]
async fn a_cut_list_says_so_and_its_totals_are_of_all() {
    let desk = tree();
    let whole = desk.text(&ListDir, json!({"recursive": true, "count_lines": true})).await;
    let output = desk.run(&ListDir, json!({"recursive": true, "count_lines": true, "max_entries": 2})).await.unwrap();
    let text = crate::desk::text(&output);
    assert_eq!(text.lines().last(), whole.lines().last());
    assert!(text.contains("[cut: the first 2 of 12 entries are shown"), "{text}");
    assert_eq!(output.meta.unwrap()["entries"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn what_git_ignores_is_left_out_with_and_without_a_repository() {
    let desk = Desk::new();
    desk.file(".gitignore", "*.log\n/target/\n");
    desk.file("sub/.gitignore", "!keep.log\nlocal\n");
    for path in ["a.log", "target/x", "sub/keep.log", "sub/local", "sub/file", ".git/config", "sub/target/y"] {
        desk.file(path, "1\n");
    }
    let wanted = ".gitignore\nsub/.gitignore\nsub/file\nsub/keep.log\nsub/target/y\n";
    let listed = desk.text(&ListDir, json!({"recursive": true, "count_lines": true})).await;
    let files: String =
        listed.lines().filter_map(|line| line.split_once("  ")).map(|(path, _)| format!("{path}\n")).collect();
    assert_eq!(files, wanted);
    let below = desk.text(&ListDir, json!({"path": "sub", "recursive": true})).await;
    assert!(below.contains("sub/keep.log") && !below.contains("local"), "{below}");
    let named = desk.text(&ListDir, json!({"paths": ["a.log", "target"]})).await;
    assert!(named.contains("a.log") && named.contains("target/x"), "{named}");
}

#[tokio::test]
async fn paths_that_meet_are_counted_once() {
    let desk = tree();
    let one = desk.text(&ListDir, json!({"path": "src", "recursive": true})).await;
    let many = desk.text(&ListDir, json!({"paths": ["src", "src/deep", "src/a-b.rs", "src"], "recursive": true})).await;
    assert_eq!(one, many);
    let error = desk.error(&ListDir, json!({"path": "src", "paths": ["src"]})).await;
    assert!(error.contains("`paths`"), "{error}");
}

#[tokio::test]
async fn names_with_line_breaks_stay_on_one_line_and_pipes_are_not_opened() {
    let desk = Desk::new();
    desk.file("a\nb", "");
    desk.real("mkfifo pipe");
    let text = desk.text(&ListDir, json!({"count_lines": true})).await;
    assert!(text.starts_with("a\\nb  0 lines  0 bytes\npipe  (special file)\n"), "{text}");
}

#[tokio::test]
async fn a_cancelled_list_is_aborted() {
    let desk = tree();
    desk.cancel.cancel();
    assert_eq!(desk.run(&ListDir, json!({})).await.unwrap_err().info.unwrap().code, "ABORTED");
}
