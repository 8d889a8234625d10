//! `{{prompt}}` and `{{result 0}}`, which stand for what a request contains.

use serde_json::Value;

use super::super::view::Answered;

/// The first placeholder of a text that nothing stands for.
pub(super) fn unknown(text: &str) -> Option<String> {
    Pieces(text).find_map(|piece| piece.unknown())
}

/// A text in pieces: what stands as it is, and placeholders.
struct Pieces<'a>(&'a str);

enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let text = self.0;
        if let Some((placeholder, behind)) = text.strip_prefix("{{").and_then(|inner| inner.split_once("}}")) {
            self.0 = behind;
            return Some(Piece::Placeholder(placeholder.trim()));
        }
        let next = text.char_indices().skip(1).map(|(at, _)| at).find(|&at| text[at..].starts_with("{{"));
        let (piece, behind) = text.split_at(next.unwrap_or(text.len()));
        self.0 = behind;
        (!piece.is_empty()).then_some(Piece::Text(piece))
    }
}

impl Piece<'_> {
    /// The placeholder, if nothing stands for it. JSON has double braces of its own: only words are placeholders.
    fn unknown(&self) -> Option<String> {
        let Self::Placeholder(placeholder) = self else { return None };
        let is_word = placeholder.chars().all(|char| char.is_alphanumeric() || matches!(char, ' ' | '_' | '-'));
        let is_known = *placeholder == "prompt" || result_number(placeholder).is_some();
        (is_word && !is_known).then(|| (*placeholder).to_owned())
    }
}

fn result_number(placeholder: &str) -> Option<usize> {
    placeholder.strip_prefix("result ")?.trim().parse().ok()
}

/// A text with its placeholders filled in, once: what fills them in is left as it is.
pub(super) fn filled(text: &str, prompt: &str, answered: &[Answered<'_>]) -> String {
    let fill = |piece| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Placeholder("prompt") => prompt.to_owned(),
        Piece::Placeholder(other) => match result_number(other) {
            Some(number) => answered.get(number).map_or_else(String::new, |answered| answered.text.clone()),
            None => format!("{{{{{other}}}}}"),
        },
    };
    Pieces(text).map(fill).collect()
}

/// JSON with the placeholders in its texts filled in.
pub(super) fn filled_in(value: &Value, prompt: &str, answered: &[Answered<'_>]) -> Value {
    match value {
        Value::String(text) => filled(text, prompt, answered).into(),
        Value::Array(items) => items.iter().map(|item| filled_in(item, prompt, answered)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), filled_in(value, prompt, answered))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_once_and_unknown_ones_are_refused() {
        let answered = [Answered { tool: "ls", arguments: "{}", text: "{{prompt}}".into(), is_error: false }];
        assert_eq!(filled("{{prompt}}: {{result 0}}{{ result 7 }}.", "p", &answered), "p: {{prompt}}.");
        let given = serde_json::json!({"a": ["{{result 0}}", {"b": "{{prompt}}"}], "n": 1});
        let expected = serde_json::json!({"a": ["{{prompt}}", {"b": "p"}], "n": 1});
        assert_eq!(filled_in(&given, "p", &answered), expected);
    }
}
