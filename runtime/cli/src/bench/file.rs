//! A scenario of one's own, from a file.

use std::path::Path;

use impresario::models::scripted::ScriptedModel;
use serde::Deserialize;

use super::scenario::{Scenario, Work};
use crate::failed::Failed;
use crate::home;

/// What the file says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// [default: the name of the file]
    name: Option<String>,
    /// What the root is told; `{n}` stands for the number of the run.
    prompt: String,
    /// A script for the model, as in `mock-model --help`, beside this file [default: the model of the other scenarios].
    script: Option<std::path::PathBuf>,
}

/// Reads it. What it says is kept for as long as the program runs.
pub(crate) fn read(path: &Path) -> Result<Scenario, Failed> {
    let shown = home::quoted(path);
    let wrong = |error: &dyn std::fmt::Display| Failed::usage(format!("{shown}: {error}"));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let written: Written = toml::from_str(&text).map_err(|error| wrong(&error.to_string().trim_end()))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let model = written.script.map(|script| {
        let script = path.parent().unwrap_or(Path::new("")).join(script);
        let shown = home::quoted(&script);
        let text = std::fs::read_to_string(&script).map_err(|error| Failed::usage(format!("{shown}: {error}")))?;
        ScriptedModel::from_toml(&text).map_err(|error| Failed::usage(format!("{shown}: {error}")))
    });
    Ok(Scenario {
        name: Box::leak(written.name.unwrap_or(stem).into_boxed_str()),
        about: "a scenario of a file",
        work: Work::Told(Box::leak(written.prompt.into_boxed_str())),
        model: model.transpose()?.map(|model| &*Box::leak(Box::new(model))),
    })
}
