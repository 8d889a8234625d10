//! Tools from closures.

use impresario_seams::{Overlap, Tool, ToolContext, ToolError, ToolOutput};
use impresario_tools::FunctionTool;
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Greet {
    /// Whom.
    name: String,
}

fn context() -> ToolContext {
    ToolContext {
        agent: "a".into(),
        call: "c".into(),
        dir: std::env::temp_dir(),
        access: impresario_kernel::Access::Read,
        cancel: Default::default(),
    }
}

#[tokio::test]
async fn a_closure_is_a_tool_with_a_schema_and_checked_input() {
    let greet = FunctionTool::new("greet", "Greets.", |input: Greet, _| async move {
        match input.name.as_str() {
            "" => Err(ToolError::new("nobody to greet")),
            name => Ok(ToolOutput::text(format!("hello {name}"))),
        }
    })
    .parallel();
    let schema = greet.schema();
    assert_eq!((schema.name.as_str(), &schema.parameters["required"]), ("greet", &json!(["name"])));
    assert_eq!(schema.parameters["properties"]["name"]["description"], "Whom.");
    assert_eq!(greet.overlap(), Overlap::Parallel);
    let output = greet.run(json!({"name": "you"}), context()).await.unwrap();
    assert_eq!(output.content[0].as_text(), Some("hello you"));
    let refused = greet.run(json!({"nam": "you"}), context()).await.unwrap_err();
    assert_eq!(refused.info.unwrap().code, "INVALID_ARGS");
    assert!(refused.message.contains("name"), "{}", refused.message);
    assert_eq!(greet.run(json!({"name": ""}), context()).await.unwrap_err().message, "nobody to greet");
}
