//! The tasks of a batch: one a line.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::failed::Failed;

/// One task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Task {
    /// Unique in its file: what the line says, or its hash.
    pub(crate) id: String,
    pub(crate) prompt: String,
    /// `provider:model`, if not that of the command line.
    pub(crate) model: Option<String>,
    /// Its folder, if not that of the command line.
    pub(crate) dir: Option<PathBuf>,
    /// Its tools, if not those of the command line.
    pub(crate) tools: Option<Vec<String>>,
    /// The JSON Schema that its output must fit.
    pub(crate) output_schema: Option<Value>,
    /// The session whose conversation it begins with, as its line names it.
    pub(crate) fork: Option<String>,
    /// Of all that it asks for: the same hash is the same task.
    pub(crate) hash: String,
}

/// A line of JSON.
#[derive(Debug, Default, Deserialize)]
struct Line {
    id: Option<Value>,
    prompt: Option<String>,
    model: Option<String>,
    dir: Option<PathBuf>,
    tools: Option<Vec<String>>,
    output_schema: Option<Value>,
    context: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// The tasks of `file`, in order: JSON lines, or, where its name ends in `.txt`, a prompt a line. `template` makes the
/// prompts out of the fields of the lines.
pub(crate) fn read(file: &Path, template: Option<&str>) -> Result<Vec<Task>, Failed> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| Failed::usage(format!("tasks {shown}: {error}")))?;
    let is_text = file.extension().is_some_and(|end| end == "txt");
    parse(&text, is_text, template).map_err(|(line, why)| Failed::usage(format!("tasks {shown}, line {line}: {why}")))
}

/// # Errors
/// The number of the line, and what is wrong with it.
fn parse(text: &str, is_text: bool, template: Option<&str>) -> Result<Vec<Task>, (usize, String)> {
    let mut tasks = Vec::new();
    let mut lines = HashMap::new();
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        // A mark that some editors put at the head of a file.
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() {
            continue;
        }
        let task = if is_text { text_task(line, template) } else { json_task(line, template) };
        let task = task.map_err(|why| (at, why))?;
        if let Some(first) = lines.insert(task.id.clone(), at) {
            let id = &task.id;
            return Err((at, format!("the id {id:?} is that of line {first}; give each task an id of its own")));
        }
        tasks.push(task);
    }
    if tasks.is_empty() {
        return Err((1, "there are no tasks".into()));
    }
    Ok(tasks)
}

fn text_task(line: &str, template: Option<&str>) -> Result<Task, String> {
    let fields = Map::from_iter([("prompt".to_owned(), Value::from(line))]);
    let prompt = template.map_or(Ok(line.to_owned()), |template| filled(template, &fields))?;
    Ok(task(None, prompt, Line::default()))
}

fn json_task(text: &str, template: Option<&str>) -> Result<Task, String> {
    let fields: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("not a JSON object ({error})"))?;
    let line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let prompt = match (template, line.prompt.clone()) {
        (Some(template), _) => filled(template, &fields)?,
        (None, Some(prompt)) => {
            if let Some(unknown) = line.rest.keys().next() {
                let known = "id, prompt, model, dir, tools, output_schema, context";
                return Err(format!("there is no field {unknown:?} ({known}; others go with --template)"));
            }
            prompt
        }
        (None, None) => return Err("it has no `prompt`, and there is no --template".into()),
    };
    if prompt.trim().is_empty() {
        return Err("its prompt is empty".into());
    }
    let id = match line.id.clone() {
        None => None,
        Some(Value::String(id)) if !id.is_empty() => Some(id),
        Some(Value::Number(id)) => Some(id.to_string()),
        Some(other) => return Err(format!("its id is {other}; an id is a text or a number")),
    };
    if let Some(context) = line.context.as_deref().filter(|context| forked(context).is_none() && *context != "fresh") {
        return Err(format!("its context is {context:?}; it is \"fresh\" or \"fork:ID\", with the id of a session"));
    }
    Ok(task(id, prompt, line))
}

/// The session that a context names.
fn forked(context: &str) -> Option<&str> {
    context.strip_prefix("fork:").filter(|id| !id.is_empty())
}

fn task(id: Option<String>, prompt: String, line: Line) -> Task {
    let Line { model, dir, tools, output_schema, context, .. } = line;
    let fork = context.as_deref().and_then(forked).map(str::to_owned);
    // What was not there yet changes nothing where it is not asked for: stored batches depend on it.
    let hash = match (&output_schema, &fork) {
        (None, None) => hash(&json!([prompt, model, dir, tools])),
        (Some(schema), None) => hash(&json!([prompt, model, dir, tools, schema])),
        (schema, Some(fork)) => hash(&json!([prompt, model, dir, tools, schema, fork])),
    };
    Task { id: id.unwrap_or_else(|| hash.clone()), prompt, model, dir, tools, output_schema, fork, hash }
}

/// Name-based, so that it is the same in every version of this program.
pub(crate) fn hash(of: &Value) -> String {
    let uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, of.to_string().as_bytes());
    uuid.simple().to_string()[..16].to_owned()
}

/// Puts fields where the template names them: `Audit {{path}}`.
fn filled(template: &str, fields: &Map<String, Value>) -> Result<String, String> {
    let mut prompt = String::new();
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once("{{") {
        prompt.push_str(before);
        let (name, behind) = behind.split_once("}}").ok_or("the template has {{ without }}")?;
        match fields.get(name.trim()) {
            Some(Value::String(text)) => prompt.push_str(text),
            Some(value) => prompt.push_str(&value.to_string()),
            None => return Err(format!("it has no field {:?}, which the template names", name.trim())),
        }
        rest = behind;
    }
    prompt.push_str(rest);
    Ok(prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_tasks_with_ids_of_their_own_or_their_hash() {
        let text = "\u{feff}{\"id\": \"a\", \"prompt\": \"one\"}\n\n{\"prompt\": \"two\", \"model\": \"p:m\"}\n{\"id\": 3, \"prompt\": \"one\"}\n";
        let tasks = parse(text, false, None).expect("tasks");
        let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
        assert_eq!(ids, ["a", &tasks[1].hash, "3"]);
        assert_eq!(tasks[0].hash, tasks[2].hash, "the same task under another id");
        // From here on stored batches depend on it.
        assert_eq!(tasks[0].hash, "f2af8f6a6fb35fe0");
    }

    #[test]
    fn a_context_is_fresh_or_that_of_a_session() {
        let tasks =
            parse("{\"prompt\": \"a\"}\n{\"prompt\": \"a\", \"context\": \"fork:@last\"}", false, None).expect("tasks");
        assert_eq!(tasks.iter().map(|task| task.fork.as_deref()).collect::<Vec<_>>(), [None, Some("@last")]);
        assert_ne!(tasks[0].hash, tasks[1].hash);
        let fresh = parse("{\"prompt\": \"a\", \"context\": \"fresh\"}", false, None).expect("tasks");
        assert_eq!(fresh[0], tasks[0]);
    }

    #[test]
    fn a_template_is_filled_from_a_lines_fields() {
        let tasks =
            parse("{\"path\": \"src/a.rs\", \"n\": 2}", false, Some("Audit {{path}} {{ n }} times")).expect("tasks");
        assert_eq!(tasks[0].prompt, "Audit src/a.rs 2 times");
        let tasks = parse("one\ntwo", true, Some("Say {{prompt}}")).expect("tasks");
        assert_eq!(tasks[1].prompt, "Say two");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let wrong = |text: &str, template| parse(text, false, template).expect_err("it is wrong");
        assert_eq!(wrong("{\"prompt\": \"x\"}\n{\"prompt\": \"x\"}", None).0, 2);
        assert!(wrong("{\"prompt\": \"x\"}\nno", None).1.contains("not a JSON object"));
        assert!(wrong("{\"promt\": \"x\"}", None).1.contains("no `prompt`"));
        assert!(wrong("{\"prompt\": \"x\", \"colour\": 1}", None).1.contains("colour"));
        assert!(wrong("{\"prompt\": \"x\", \"context\": \"fork:\"}", None).1.contains("fork:ID"));
        assert!(wrong("{\"a\": 1}", Some("{{b}}")).1.contains("\"b\""));
        assert!(wrong("{\"a\": 1}", Some("{{b")).1.contains("without }}"));
        assert!(wrong("{\"prompt\": \" \"}", None).1.contains("empty"));
        assert!(wrong("", None).1.contains("no tasks"));
    }
}
