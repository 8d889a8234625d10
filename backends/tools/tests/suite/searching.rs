use impresario_tools::Search;
use serde_json::json;

use crate::desk::Desk;

fn tree() -> Desk {
    let desk = Desk::new();
    desk.file("a.rs", "fn main() {\n    let x = 1;\n}\n");
    desk.file("b/.hidden/c.txt", "let it be\nLET\n\nno end let");
    desk.file("b/crlf.txt", "let\r\nother\r\n");
    desk.file("b-c/d.rs", "let d;\n");
    desk.file("binary", b"let\0let\n");
    desk.link("link", "a.rs");
    desk.link("folder", "b");
    desk
}

#[tokio::test]
async fn matches_agree_with_grep() {
    let desk = tree();
    for pattern in ["let", "^let", "l[aeiou]t.*;$", "(main|other)", "^$", "x{1}", "\\bit\\b", "nothing here", ".", "é"]
    {
        let text = desk.text(&Search, json!({"pattern": pattern})).await;
        let found = desk.real(&format!("grep -rnIE '{pattern}' . | sed 's#^\\./##' | tr -d '\\r'"));
        let mut found: Vec<_> = found.lines().collect();
        let key = |line: &str| {
            let mut parts = line.splitn(3, ':');
            (parts.next().unwrap().to_owned(), parts.next().unwrap().parse::<u64>().unwrap())
        };
        found.sort_by_key(|line| key(line));
        let files: std::collections::HashSet<_> = found.iter().map(|line| key(line).0).collect();
        let total = format!("total: {} matching lines in {} files", found.len(), files.len());
        found.push(&total);
        assert_eq!(text.lines().collect::<Vec<_>>(), found, "{pattern}");
    }
}

#[tokio::test]
async fn a_cut_search_shows_the_first_matches_and_counts_all() {
    let desk = Desk::new();
    for file in ["c", "a", "b"] {
        desk.file(file, "hit\n".repeat(300));
    }
    let text = desk.text(&Search, json!({"pattern": "hit", "max_matches": 301})).await;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines[0], lines[300]), ("a:1:hit", "b:1:hit"));
    assert!(lines[301].starts_with("[cut: the first 301 of 900"), "{}", lines[301]);
    assert_eq!(lines[302], "total: 900 matching lines in 3 files");
}

#[tokio::test]
async fn globs_depth_and_case_narrow_and_widen() {
    let desk = tree();
    let total = async |input| desk.text(&Search, input).await.lines().last().unwrap().to_owned();
    assert_eq!(total(json!({"pattern": "let", "glob": "*.rs"})).await, "total: 2 matching lines in 2 files");
    assert_eq!(total(json!({"pattern": "let", "glob": "!*.rs"})).await, "total: 3 matching lines in 2 files");
    assert_eq!(total(json!({"pattern": "let", "glob": "b/**/*.txt"})).await, "total: 3 matching lines in 2 files");
    assert_eq!(total(json!({"pattern": "let", "glob": "./b/*.txt"})).await, "total: 1 matching lines in 1 files");
    assert_eq!(total(json!({"pattern": "let", "recursive": false})).await, "total: 1 matching lines in 1 files");
    assert_eq!(
        total(json!({"pattern": "let", "path": "b", "case_insensitive": true})).await,
        "total: 4 matching lines in 2 files"
    );
    assert_eq!(total(json!({"pattern": "let", "paths": ["a.rs", "b-c"]})).await, "total: 2 matching lines in 2 files");
}

#[tokio::test]
async fn long_lines_are_cut_between_characters() {
    let desk = Desk::new();
    desk.file("f", format!("x{}\n", "é".repeat(200)));
    let text = desk.text(&Search, json!({"pattern": "x"})).await;
    assert_eq!(text.lines().next().unwrap(), format!("f:1:x{}…", "é".repeat(149)));
}

#[tokio::test]
async fn a_pattern_or_glob_that_is_none_is_named() {
    let desk = Desk::new();
    assert!(desk.error(&Search, json!({"pattern": "("})).await.contains("`pattern`"));
    assert!(desk.error(&Search, json!({"pattern": "a", "glob": "["})).await.contains("`glob`"));
}
