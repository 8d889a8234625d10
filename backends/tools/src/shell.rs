//! The tool `bash`: a shell command, run to its end with everything that it started.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::future::BoxFuture;
use impresario_kernel::{Access, ToolSchema};
use impresario_seams::{Overlap, Tool, ToolContext, ToolError, ToolOutput};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::arguments::{Arguments, schema};
use crate::output::Output;
use crate::process::Group;

const TIMEOUT_DEFAULT: u64 = 120_000;
const TIMEOUT_MAX: u64 = 600_000;
/// How long a pipe that others hold open is read after the command has ended.
const DRAIN: Duration = Duration::from_secs(2);

static SCHEMA: LazyLock<Arc<ToolSchema>> = LazyLock::new(|| {
    schema(
        "bash",
        "Runs a shell command in the working folder and waits for its end. Gives what it printed (stdout and stderr \
         together, the last 64,000 bytes) and the exit code when that is not 0. Nothing is kept between calls, there \
         is no input and no terminal, and processes left in the background are ended with the command.",
        json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command, for bash -c."},
                "timeout_ms": {"type": "integer", "minimum": 1, "maximum": TIMEOUT_MAX, "description": "After how many milliseconds it is stopped. Default 120000."},
            },
            "required": ["command"],
            "additionalProperties": false,
        }),
    )
});

/// Runs shell commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bash;

impl Tool for Bash {
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
        Box::pin(async move { Call::parse(input)?.run(&ctx).await })
    }
}

struct Call {
    command: String,
    timeout_ms: u64,
}

/// Why the waiting was over.
enum Stopped {
    Ended(ExitStatus),
    TimedOut,
    Cancelled,
}

impl Call {
    fn parse(input: Value) -> Result<Self, ToolError> {
        let mut arguments = Arguments::parse(input)?;
        let command = arguments.string("command")?;
        let timeout_ms = arguments.optional_count("timeout_ms")?.unwrap_or(TIMEOUT_DEFAULT).min(TIMEOUT_MAX);
        arguments.finish()?;
        if command.trim().is_empty() {
            return Err(ToolError::invalid("`command` is empty"));
        }
        if command.contains('\0') {
            return Err(ToolError::invalid("`command` has a zero byte in it"));
        }
        Ok(Self { command, timeout_ms })
    }

    async fn run(self, ctx: &ToolContext) -> Result<ToolOutput, ToolError> {
        if ctx.cancel.is_cancelled() {
            return Err(ToolError::aborted());
        }
        let failed = |cause: io::Error| ToolError::new(format!("cannot run the command: {cause}"));
        let (mut group, mut output) = Group::spawn(&self.command, &ctx.dir).map_err(failed)?;
        let timeout = Duration::from_millis(self.timeout_ms);
        match wait(&mut group, &mut output, timeout, &ctx.cancel).await.map_err(failed)? {
            Stopped::Ended(status) => self.end(status, group, output, &ctx.cancel).await,
            Stopped::TimedOut => {
                group.stop(&mut output).await;
                output.drain_rest().await;
                Err(self.timed_out(&output))
            }
            Stopped::Cancelled => {
                group.stop(&mut output).await;
                Err(ToolError::aborted())
            }
        }
    }

    /// The command has ended; what it left behind may still run and hold the pipe.
    async fn end(
        &self,
        status: ExitStatus,
        mut group: Group,
        mut output: Output,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput, ToolError> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = output.drain(DRAIN) => {}
        }
        let left = group.left();
        if left > 0 {
            group.stop(&mut output).await;
        }
        if cancel.is_cancelled() {
            return Err(ToolError::aborted());
        }
        output.drain_rest().await;
        let mut text = output.text();
        let mut notes = Vec::new();
        if let Some(code) = status.code().filter(|code| *code != 0) {
            notes.push(format!("exit code: {code}"));
        }
        if let Some(number) = status.signal() {
            let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
            notes.push(format!("killed by signal {number} ({name})"));
        }
        if left > 0 {
            notes.push(format!("[{left} processes left in the background were stopped]"));
        } else if !output.is_closed() {
            notes.push("[a process in a session of its own still holds the output; it was not waited for]".into());
        }
        if output.total() == 0 {
            notes.insert(0, "(no output)".into());
        } else if !notes.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&notes.join("\n"));
        let meta = json!({
            "exit_code": status.code(),
            "signal": status.signal(),
            "bytes": output.total(),
            "stopped": left,
        });
        Ok(ToolOutput { meta: Some(meta), ..ToolOutput::text(text) })
    }

    fn timed_out(&self, output: &Output) -> ToolError {
        let told = match output.total() {
            0 => "(no output)".into(),
            _ => output.text(),
        };
        let ms = self.timeout_ms;
        ToolError::coded(
            "TimeoutError",
            "TIMEOUT",
            format!(
                "the command did not end within {ms} ms and was stopped with all that it started; give a larger \
                 timeout_ms (at most {TIMEOUT_MAX}) or a shorter command. Its output so far:\n{told}"
            ),
        )
    }
}

/// Reads along until the command has ended or is to be stopped.
async fn wait(
    group: &mut Group,
    output: &mut Output,
    timeout: Duration,
    cancel: &CancellationToken,
) -> io::Result<Stopped> {
    let deadline = tokio::time::sleep(timeout);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(Stopped::Cancelled),
            status = group.leader() => return status.map(Stopped::Ended),
            () = &mut deadline => return Ok(Stopped::TimedOut),
            () = output.read() => {}
        }
    }
}
