//! What the runtime says by itself: it stands among the messages of the user and is no prompt.

use impresario_kernel::Source;

/// The kinds of asides as they are named in headers: what the runtime says about itself, what hooks say, and that a
/// subagent has come to an end.
pub(crate) const NAMES: [&str; 3] = ["snapshot", "plugin", "subagent-settled"];

/// Which of [`NAMES`] a message of this source is, if it is no prompt.
pub(crate) fn name(source: &Source) -> Option<&'static str> {
    let form = source.rest.get("form").and_then(|form| form.as_str());
    match (source.kind.as_str(), form) {
        ("plugin", Some("snapshot")) => Some(NAMES[0]),
        ("plugin", _) => Some(NAMES[1]),
        ("subagent-settled", _) => Some(NAMES[2]),
        _ => None,
    }
}

/// A source that has this name.
#[cfg(feature = "serve")]
pub(crate) fn named(name: &str) -> Option<Source> {
    match NAMES.iter().position(|known| *known == name)? {
        0 => Some(Source::plugin("", "snapshot")),
        _ => Some(Source::of(name)),
    }
}
