use std::fs;
use std::os::unix::fs::PermissionsExt;

use impresario_seams::Tool;
use impresario_tools::{EditFile, ListDir, ReadFile, Search, WriteFile, all};
use serde_json::json;

use crate::desk::Desk;

#[test]
fn the_tools_come_in_a_fixed_order_with_the_same_schemas_each_time() {
    let names: Vec<_> = all().iter().map(|tool| tool.schema().name.clone()).collect();
    assert_eq!(names, ["read_file", "list_dir", "search", "write_file", "edit_file", "bash", "todo_write"]);
    for (one, other) in all().iter().zip(all()) {
        let bytes = |tool: &dyn Tool| serde_json::to_string(&*tool.schema()).unwrap();
        assert_eq!(bytes(&**one), bytes(&*other));
        assert_eq!(one.schema().parameters["additionalProperties"], json!(false));
    }
}

#[tokio::test]
async fn no_path_leads_out_whatever_the_tool() {
    let desk = Desk::new();
    desk.file("a/inside", "inside\n");
    desk.link("out", &desk.outside);
    desk.link("secret", desk.outside.join("secret"));
    desk.link("dangling", desk.outside.join("none"));
    desk.link("a/up", "../..");
    let absolute = desk.outside.join("secret").display().to_string();
    let escapes = [
        "../outside/secret",
        "a/../../outside/secret",
        "out/secret",
        "secret",
        "dangling",
        "a/up/outside/secret",
        &absolute,
        "out/../outside/secret",
        "/etc/passwd",
        "../outside/none",
    ];
    for path in escapes {
        for (tool, input) in [
            (&ReadFile as &dyn Tool, json!({"path": path})),
            (&ListDir, json!({"path": path})),
            (&Search, json!({"pattern": "secret", "paths": ["a", path]})),
            (&WriteFile, json!({"path": path, "content": "x"})),
            (&EditFile, json!({"path": path, "old": "secret", "new": "x"})),
        ] {
            let error = desk.error(tool, input).await;
            assert!(error.contains("leads out of the working folder"), "{path}: {error}");
        }
    }
    for path in ["out/new", "../new", "a/up/new", "out/deep/er/new"] {
        let error = desk.error(&WriteFile, json!({"path": path, "content": "x"})).await;
        assert!(error.contains("leads out of the working folder"), "{path}: {error}");
    }
    assert_eq!(fs::read_to_string(desk.outside.join("secret")).unwrap(), "secret\n");
    assert_eq!(fs::read_dir(&desk.outside).unwrap().count(), 1);
}

#[tokio::test]
async fn links_and_absolute_paths_that_stay_inside_work() {
    let desk = Desk::new();
    let file = desk.file("a/file", "one\n");
    desk.link("link", "a/file");
    assert_eq!(desk.text(&ReadFile, json!({"path": "link"})).await, "one\n");
    assert_eq!(desk.text(&ReadFile, json!({"path": file})).await, "one\n");
    assert_eq!(desk.text(&ReadFile, json!({"path": "./a/../a/file"})).await, "one\n");
    desk.text(&WriteFile, json!({"path": "link", "content": "two"})).await;
    assert_eq!(fs::read_to_string(file).unwrap(), "two");
    assert!(desk.dir.join("link").is_symlink());
}

#[tokio::test]
async fn reading_says_how_to_go_on() {
    let desk = Desk::new();
    desk.file("many", (1..=2_500).map(|line| format!("line {line}\n")).collect::<String>());
    let text = desk.text(&ReadFile, json!({"path": "many"})).await;
    assert!(text.starts_with("line 1\n") && text.contains("\nline 2000\n["));
    assert!(text.ends_with("[lines 1 to 2000 of 2500; go on with offset 2001]"), "{text}");
    let text = desk.text(&ReadFile, json!({"path": "many", "offset": 2_001})).await;
    assert!(text.starts_with("line 2001\n") && text.ends_with("line 2500\n"));
    let text = desk.text(&ReadFile, json!({"path": "many", "offset": 3, "limit": 1})).await;
    assert_eq!(text, "line 3\n[lines 3 to 3 of 2500; go on with offset 4]");
    let error = desk.error(&ReadFile, json!({"path": "many", "offset": 2_501})).await;
    assert!(error.contains("`offset`") && error.contains("2500 lines"), "{error}");
}

#[tokio::test]
async fn reading_is_bounded_in_bytes_too() {
    let desk = Desk::new();
    desk.file("wide", format!("short\n{}\nlast\n", "x".repeat(200_000)));
    let text = desk.text(&ReadFile, json!({"path": "wide"})).await;
    assert_eq!(text, "short\n[lines 1 to 1 of 3; go on with offset 2]");
    let text = desk.text(&ReadFile, json!({"path": "wide", "offset": 2})).await;
    assert!(text.contains("[line 2 has 200001 bytes") && text.ends_with("go on with offset 3]"));
    assert!(text.len() < 66_000);
}

#[tokio::test]
async fn what_is_not_text_is_refused_or_said() {
    let desk = Desk::new();
    desk.file("binary", b"a\0b");
    desk.file("latin", b"caf\xe9\n");
    desk.file("empty", "");
    desk.real("mkfifo pipe");
    assert!(desk.error(&ReadFile, json!({"path": "binary"})).await.contains("binary"));
    assert!(desk.error(&ReadFile, json!({"path": "pipe"})).await.contains("not a regular file"));
    assert!(desk.error(&ReadFile, json!({"path": "."})).await.contains("list_dir"));
    assert!(desk.error(&ReadFile, json!({"path": "none"})).await.contains("none does not exist"));
    assert!(desk.text(&ReadFile, json!({"path": "latin"})).await.contains("not UTF-8"));
    assert_eq!(desk.text(&ReadFile, json!({"path": "empty"})).await, "[the file is empty]");
}

#[tokio::test]
async fn wrong_arguments_are_named() {
    let desk = Desk::new();
    for (input, name) in [
        (json!({}), "`path` is missing"),
        (json!({"path": 1}), "`path` must be a string"),
        (json!({"path": "a", "offset": 0}), "`offset`"),
        (json!({"path": "a", "offset": "x"}), "`offset`"),
        (json!({"path": "a", "what": 1}), "`what`"),
        (json!([]), "object"),
    ] {
        let error = desk.run(&ReadFile, input).await.unwrap_err();
        assert!(error.message.contains(name), "{}", error.message);
        assert_eq!(error.info.unwrap().code, "INVALID_ARGS");
    }
}

#[tokio::test]
async fn writing_makes_folders_and_says_what_it_replaced() {
    let desk = Desk::new();
    let new = desk.text(&WriteFile, json!({"path": "x/y/z", "content": "one"})).await;
    assert_eq!(new, "wrote 3 bytes to x/y/z, a new file");
    fs::set_permissions(desk.dir.join("x/y/z"), fs::Permissions::from_mode(0o751)).unwrap();
    let old = desk.text(&WriteFile, json!({"path": "x/y/z", "content": "two!"})).await;
    assert_eq!(old, "wrote 4 bytes to x/y/z, replacing what was there");
    assert_eq!(fs::metadata(desk.dir.join("x/y/z")).unwrap().permissions().mode() & 0o777, 0o751);
    assert_eq!(fs::read_dir(desk.dir.join("x/y")).unwrap().count(), 1);
    assert!(desk.error(&WriteFile, json!({"path": "x/y", "content": ""})).await.contains("folder"));
    assert!(desk.error(&WriteFile, json!({"path": "x/y/z/w", "content": ""})).await.contains("not a folder"));
    assert!(desk.error(&WriteFile, json!({"path": "n/../z", "content": ""})).await.contains("`..`"));
}

#[tokio::test]
async fn an_edit_must_match_exactly_once_or_be_told_to_replace_all() {
    let desk = Desk::new();
    let file = desk.file("f", "let a = 1;\n  let b = 1;\nlet a = 1;\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o750)).unwrap();
    let error = desk.error(&EditFile, json!({"path": "f", "old": "let a = 1;", "new": "x"})).await;
    assert!(
        error.contains("matches 2 times") && error.contains("lines 1, 3") && error.contains("replace_all"),
        "{error}"
    );
    let error = desk.error(&EditFile, json!({"path": "f", "old": "    let b = 1;\n", "new": "x"})).await;
    assert!(error.contains("matches 0 times") && error.contains("line 2"), "{error}");
    assert!(desk.error(&EditFile, json!({"path": "f", "old": "", "new": "x"})).await.contains("`old` is empty"));
    assert!(desk.error(&EditFile, json!({"path": "f", "old": "x", "new": "x"})).await.contains("the same"));
    let said = desk.text(&EditFile, json!({"path": "f", "old": "b = 1", "new": "b = 2"})).await;
    assert_eq!(said, "replaced 1 match in f (line 2)");
    let said = desk.text(&EditFile, json!({"path": "f", "old": "let a", "new": "let c", "replace_all": true})).await;
    assert_eq!(said, "replaced 2 matches in f (lines 1, 3)");
    assert_eq!(fs::read_to_string(&file).unwrap(), "let c = 1;\n  let b = 2;\nlet c = 1;\n");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o750);
}

#[tokio::test]
async fn an_edit_keeps_line_breaks_and_foreign_bytes() {
    let desk = Desk::new();
    let file = desk.file("f", b"one\r\ntwo\r\n\xe9\r\n");
    desk.text(&EditFile, json!({"path": "f", "old": "one\ntwo\n", "new": "1\n2\n3\n"})).await;
    assert_eq!(fs::read(file).unwrap(), b"1\r\n2\r\n3\r\n\xe9\r\n");
}
