use impresario_kernel::TodoStatus;
use impresario_tools::TodoWrite;
use serde_json::json;

use crate::desk::{Desk, text};

#[tokio::test]
async fn a_list_is_written_whole_and_counted() {
    let desk = Desk::new();
    let todos = json!([
        {"content": " read ", "status": "completed"},
        {"content": "think", "status": "in_progress"},
        {"content": "write", "status": "pending"},
    ]);
    let output = desk.run(&TodoWrite, json!({"todos": todos})).await.unwrap();
    assert_eq!(text(&output), "3 items: 1 completed, 1 in progress, 1 pending");
    let written = output.todos.unwrap().todos;
    assert_eq!((written[0].content.as_str(), written[2].status), ("read", TodoStatus::Pending));
    let none = desk.run(&TodoWrite, json!({"todos": []})).await.unwrap();
    assert_eq!(text(&none), "0 items: 0 completed, 0 in progress, 0 pending");
}

#[tokio::test]
async fn lists_that_do_not_fit_are_refused_with_the_field() {
    let desk = Desk::new();
    for (todos, named) in [
        (json!("x"), "`todos` must be a list"),
        (json!(["x"]), "`todos[0]`"),
        (json!([{"content": " ", "status": "pending"}]), "`todos[0].content`"),
        (json!([{"content": "a"}]), "`todos[0].status` is missing"),
        (json!([{"content": "a", "status": "done"}]), "`todos[0].status` must be pending"),
        (json!([{"content": "a", "status": "pending", "id": 1}]), "`todos[0].id`"),
        (json!([{"content": "a", "status": "pending"}, {"content": "a ", "status": "pending"}]), "`todos[1].content`"),
        (
            json!([{"content": "a", "status": "in_progress"}, {"content": "b", "status": "in_progress"}]),
            "2 items in progress",
        ),
    ] {
        let error = desk.error(&TodoWrite, json!({"todos": todos})).await;
        assert!(error.contains(named), "{error}");
    }
}
