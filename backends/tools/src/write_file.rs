//! The tool `write_file`: a whole file, new or replaced.

use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use impresario_kernel::{Access, ToolSchema};
use impresario_seams::{Overlap, Tool, ToolContext, ToolError, ToolOutput};
use serde_json::{Value, json};

use crate::arguments::{Arguments, schema};
use crate::blocking::{blocking, go_on};
use crate::folder::Folder;

static SCHEMA: LazyLock<Arc<ToolSchema>> = LazyLock::new(|| {
    schema(
        "write_file",
        "Writes a whole file in the working folder: makes a new one, with the folders that it needs, or replaces the \
         old one. To change a part of a file, use edit_file.",
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, relative to the working folder."},
                "content": {"type": "string", "description": "All of what is to be in it."},
            },
            "required": ["path", "content"],
            "additionalProperties": false,
        }),
    )
});

/// Writes a whole file.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteFile;

impl Tool for WriteFile {
    fn schema(&self) -> Arc<ToolSchema> {
        SCHEMA.clone()
    }

    fn overlap(&self) -> Overlap {
        Overlap::Exclusive
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, input: Value, ctx: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let mut arguments = Arguments::parse(input)?;
            let path = arguments.string("path")?;
            let content = arguments.string("content")?;
            arguments.finish()?;
            blocking(&ctx.cancel, move |stop| {
                let folder = Folder::new(&ctx.dir);
                let place = folder.locate("path", &path)?;
                go_on(stop)?;
                let replaced = folder.write(&place, content.as_bytes())?;
                let (bytes, shown) = (content.len(), &place.shown);
                Ok(ToolOutput::text(match replaced {
                    true => format!("wrote {bytes} bytes to {shown}, replacing what was there"),
                    false => format!("wrote {bytes} bytes to {shown}, a new file"),
                }))
            })
            .await
        })
    }
}
