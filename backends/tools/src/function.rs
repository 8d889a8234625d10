//! A tool from a closure: its schema comes from the type of its input.

use std::marker::PhantomData;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use impresario_kernel::{Access, ToolSchema};
use impresario_seams::{Overlap, Tool, ToolContext, ToolError, ToolOutput};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A tool from a closure. Exclusive and for every agent that may read, unless it says otherwise.
///
/// ```
/// use impresario_seams::{Tool, ToolError, ToolOutput};
/// use impresario_tools::FunctionTool;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add {
///     /// The first number.
///     a: i64,
///     /// The second number.
///     b: i64,
/// }
///
/// let add = FunctionTool::new("add", "Adds two numbers.", |input: Add, _ctx| async move {
///     let sum = input.a.checked_add(input.b).ok_or_else(|| ToolError::new("the sum is too large"))?;
///     Ok(ToolOutput::text(sum.to_string()))
/// })
/// .parallel();
/// assert_eq!(add.schema().parameters["required"], serde_json::json!(["a", "b"]));
/// ```
pub struct FunctionTool<I, F> {
    schema: Arc<ToolSchema>,
    overlap: Overlap,
    access: Access,
    run: F,
    input: PhantomData<fn(I)>,
}

impl<I, F, R> FunctionTool<I, F>
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(I, ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    /// A tool that is called `name` and runs `run`. `description` is what the model is told.
    pub fn new(name: &str, description: &str, run: F) -> Self {
        let parameters = schemars::schema_for!(I).to_value();
        let schema = ToolSchema { name: name.into(), description: description.into(), parameters };
        let (overlap, access) = (Overlap::Exclusive, Access::Read);
        Self { schema: Arc::new(schema), overlap, access, run, input: PhantomData }
    }

    /// Its calls may run beside others of the same answer.
    #[must_use]
    pub fn parallel(mut self) -> Self {
        self.overlap = Overlap::Parallel;
        self
    }

    /// Only agents with this access are offered it.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }
}

impl<I, F> std::fmt::Debug for FunctionTool<I, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionTool").field("name", &self.schema.name).finish_non_exhaustive()
    }
}

impl<I, F, R> Tool for FunctionTool<I, F>
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(I, ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    fn schema(&self) -> Arc<ToolSchema> {
        Arc::clone(&self.schema)
    }

    fn overlap(&self) -> Overlap {
        self.overlap
    }

    fn access(&self) -> Access {
        self.access
    }

    fn run(&self, input: Value, ctx: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        match serde_json::from_value(input) {
            Ok(input) => (self.run)(input, ctx).boxed(),
            Err(error) => {
                let error = ToolError::invalid(format!("{}: {error}", self.schema.name));
                async move { Err(error) }.boxed()
            }
        }
    }
}
