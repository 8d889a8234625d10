//! The deltas of a stream as chunks. Text goes on at once; calls are put together and go on whole, at the end.

use impresario_kernel::{Chunk, Failure, FinishReason, Usage};
use serde_json::Value;

use super::failure;
use super::sse::{Lines, Said};

/// The most bytes that wait for the end of an event, or for the end of a body that is no stream.
const WAITING_MAX: usize = 64 * 1024 * 1024;

/// Chunks that were complete before something failed, and what failed.
pub(super) type Broken = (Vec<Chunk>, Failure);

/// Bytes of a response in, chunks out.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    lines: Lines,
    /// Lines that are no events: the body may be one JSON document.
    stray: String,
    calls: Vec<Slot>,
    usage: Option<Usage>,
    finish: Option<String>,
    is_done: bool,
    /// How many events there were.
    events: u64,
    has_content: bool,
    /// Which of the two names of reasoning this stream uses.
    reasoning_key: Option<&'static str>,
}

/// A call in the making.
#[derive(Debug, Default)]
struct Slot {
    key: Option<String>,
    id: Option<String>,
    name: String,
    arguments: String,
}

/// The block indexes: reasoning, text, and then the calls.
const REASONING: u32 = 0;
const TEXT: u32 = 1;
const CALLS: u32 = 2;

impl Decoder {
    /// At the beginning of a response.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Takes some bytes in.
    ///
    /// # Errors
    /// What the stream says failed, behind the chunks before it.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Chunk>, Broken> {
        let said = self.lines.push(bytes);
        let chunks = self.take(said)?;
        if self.lines.waiting() + self.stray.len() > WAITING_MAX {
            return Err((chunks, Failure::new("MALFORMED_RESPONSE", "the answer has an event without an end")));
        }
        Ok(chunks)
    }

    /// Whether the server said that nothing comes any more; it may keep the connection open all the same.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether the answer is whole, so that a connection that breaks now takes nothing from it.
    pub(super) fn is_whole(&self) -> bool {
        self.is_done || self.finish.is_some()
    }

    /// How many events there were: comments keep a connection alive, but they are no progress.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Forgets an event that was cut off.
    pub(super) fn drop_rest(&mut self) {
        self.lines = Lines::default();
    }

    /// The response is over.
    ///
    /// # Errors
    /// `STREAM_CLOSED` when it broke off, `EMPTY_RESPONSE` when it said nothing.
    pub(super) fn end(&mut self) -> Result<Vec<Chunk>, Broken> {
        let said = self.lines.end();
        let mut chunks = self.take(said)?;
        if self.events == 0 && !self.stray.trim().is_empty() {
            match parsed(&self.stray) {
                Ok(document) => self.document(&document, &mut chunks).map_err(|failure| (chunks.clone(), failure))?,
                Err(_) => {
                    let failure = Failure::new("MALFORMED_RESPONSE", "the answer is neither a stream nor JSON");
                    return Err((chunks, failure));
                }
            }
        }
        match self.conclude() {
            Ok(last) => {
                chunks.extend(last);
                Ok(chunks)
            }
            Err(failure) => Err((chunks, failure)),
        }
    }

    fn take(&mut self, said: Vec<Said>) -> Result<Vec<Chunk>, Broken> {
        let mut chunks = vec![];
        for said in said {
            let taken = match said {
                _ if self.is_done => Ok(()),
                Said::Stray(line) => {
                    self.stray.push_str(&line);
                    self.stray.push('\n');
                    Ok(())
                }
                Said::Event(data) => self.event(&data, &mut chunks),
            };
            if let Err(failure) = taken {
                return Err((chunks, failure));
            }
        }
        Ok(chunks)
    }

    fn event(&mut self, data: &[String], chunks: &mut Vec<Chunk>) -> Result<(), Failure> {
        self.events += 1;
        let payload = data.join("\n");
        if payload.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        match parsed(&payload) {
            Ok(value) => self.value(&value, chunks),
            // Some servers put a document on each data line of one event.
            Err(error) => {
                let lines: Result<Vec<Value>, _> = data.iter().map(|line| parsed(line)).collect();
                match lines {
                    Ok(values) if data.len() > 1 => values.iter().try_for_each(|value| self.value(value, chunks)),
                    Ok(_) | Err(_) => {
                        let message = format!("an event of the stream is not JSON: {error}");
                        Err(Failure::new("MALFORMED_RESPONSE", message))
                    }
                }
            }
        }
    }

    fn value(&mut self, value: &Value, chunks: &mut Vec<Chunk>) -> Result<(), Failure> {
        if let Some(failure) = failure::in_band(value) {
            return Err(failure);
        }
        self.usage = usage(&value["usage"]).or(self.usage);
        let choices = value["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(choice) = choices.iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0) else {
            return Ok(());
        };
        self.usage = usage(&choice["usage"]).or(self.usage);
        self.delta(&choice["delta"], chunks);
        self.finish_with(&choice["finish_reason"]);
        Ok(())
    }

    fn finish_with(&mut self, reason: &Value) {
        if let Some(reason) = reason.as_str().filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason.to_lowercase());
        }
    }

    fn delta(&mut self, delta: &Value, chunks: &mut Vec<Chunk>) {
        for key in ["reasoning_content", "reasoning"] {
            let Some(text) = delta[key].as_str().filter(|text| !text.is_empty()) else { continue };
            if *self.reasoning_key.get_or_insert(key) == key {
                self.has_content = true;
                chunks.push(Chunk::ReasoningDelta { index: REASONING, text: text.into() });
            }
        }
        self.content(&delta["content"], chunks);
        if let Some(text) = delta["refusal"].as_str() {
            self.say(text, chunks);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call);
        }
        if delta["function_call"].is_object() {
            self.call(&serde_json::json!({"index": "function_call", "function": delta["function_call"]}));
        }
    }

    /// A text, or a list of parts.
    fn content(&mut self, content: &Value, chunks: &mut Vec<Chunk>) {
        match content {
            Value::String(text) => self.say(text, chunks),
            Value::Array(parts) => {
                for part in parts {
                    match part["type"].as_str() {
                        Some("thinking") => self.think(&part["thinking"], chunks),
                        _ => self.say(part["text"].as_str().unwrap_or_default(), chunks),
                    }
                }
            }
            _ => {}
        }
    }

    fn think(&mut self, thinking: &Value, chunks: &mut Vec<Chunk>) {
        let parts = thinking.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(thinking));
        for part in parts {
            let text = part.as_str().or(part["text"].as_str()).unwrap_or_default();
            if !text.is_empty() {
                self.has_content = true;
                chunks.push(Chunk::ReasoningDelta { index: REASONING, text: text.into() });
            }
        }
    }

    fn say(&mut self, text: &str, chunks: &mut Vec<Chunk>) {
        if !text.is_empty() {
            self.has_content = true;
            chunks.push(Chunk::TextDelta { index: TEXT, text: text.into() });
        }
    }

    /// Puts a piece of a call where it belongs: by index, else by id, else to the call that is open.
    fn call(&mut self, piece: &Value) {
        let given = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let key = match &piece["index"] {
            Value::Number(index) => Some(index.to_string()),
            Value::String(index) if !index.is_empty() => Some(index.clone()),
            _ => None,
        };
        let id = given(&piece["id"]);
        let name = given(&piece["function"]["name"]);
        let arguments = match &piece["function"]["arguments"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let starts_anew = name.is_some() && !arguments.trim().is_empty();
        let at = self.slot(key.as_ref(), id.as_ref(), starts_anew);
        let slot = &mut self.calls[at];
        if slot.id.is_none() {
            slot.id = id;
        }
        // A name may come in pieces before the arguments, or whole behind them; a repeated name is no piece.
        let is_open = slot.name.is_empty() || slot.arguments.is_empty();
        if let Some(name) = name.filter(|name| is_open && *name != slot.name) {
            slot.name.push_str(&name);
        }
        // Some servers repeat the whole document at the end.
        let is_repeat = is_document(&slot.arguments) && slot.arguments == arguments;
        if !is_repeat {
            slot.arguments.push_str(&arguments);
        }
    }

    /// The call that a piece belongs to. A piece that `starts_anew`, with a name and arguments but without an id, is
    /// another call when the one in its place is complete.
    fn slot(&mut self, key: Option<&String>, id: Option<&String>, starts_anew: bool) -> usize {
        let last = |calls: &[Slot], fits: &dyn Fn(&Slot) -> bool| calls.iter().rposition(fits);
        let found = match (key, id) {
            (Some(key), _) => last(&self.calls, &|slot| slot.key.as_ref() == Some(key)),
            (None, Some(id)) => last(&self.calls, &|slot| slot.id.as_ref() == Some(id)),
            (None, None) => self.calls.len().checked_sub(1),
        };
        let is_other = |slot: &Slot| match (&slot.id, id) {
            (Some(known), Some(id)) => known != id,
            (_, None) => starts_anew && !slot.name.is_empty() && is_document(&slot.arguments),
            (None, Some(_)) => false,
        };
        match found {
            Some(at) if !is_other(&self.calls[at]) => at,
            _ => {
                self.calls.push(Slot { key: key.cloned(), ..Slot::default() });
                self.calls.len() - 1
            }
        }
    }

    /// A whole answer of a server that does not stream.
    fn document(&mut self, document: &Value, chunks: &mut Vec<Chunk>) -> Result<(), Failure> {
        if let Some(failure) = failure::in_band(document) {
            return Err(failure);
        }
        let choice = &document["choices"][0];
        if !choice["message"].is_object() {
            return Err(failure::of_document(document));
        }
        self.usage = usage(&document["usage"]);
        self.delta(&choice["message"], chunks);
        self.finish_with(&choice["finish_reason"]);
        self.is_done = true;
        Ok(())
    }

    /// The last chunks: calls, usage and why it is over.
    fn conclude(&mut self) -> Result<Vec<Chunk>, Failure> {
        if self.finish.is_none() && !self.is_done {
            let nothing = !self.has_content && self.calls.is_empty();
            return Err(match nothing {
                true => Failure::new("EMPTY_RESPONSE", "the stream ended without an answer"),
                false => Failure::new("STREAM_CLOSED", "the stream broke off in the middle of the answer"),
            });
        }
        if self.finish.as_deref() == Some("insufficient_system_resource") {
            return Err(Failure::new("SERVER", "the provider is overloaded and broke the answer off"));
        }
        let is_cut = matches!(self.finish.as_deref(), Some("length" | "max_tokens" | "model_length"));
        let is_filtered = self.finish.as_deref() == Some("content_filter");
        let calls = std::mem::take(&mut self.calls);
        let all = calls.len();
        let mut calls: Vec<Slot> = calls.into_iter().filter(|call| !call.name.is_empty()).collect();
        if calls.is_empty() && all > 0 && !is_cut {
            return Err(Failure::new("MALFORMED_RESPONSE", "the answer asks for a call without a name"));
        }
        if is_cut || is_filtered {
            calls.clear();
        }
        let mut chunks: Vec<Chunk> = vec![];
        let has_calls = !calls.is_empty();
        if !has_calls && !self.has_content && !is_cut && !is_filtered {
            return Err(Failure::new("EMPTY_RESPONSE", "the answer is empty"));
        }
        for (index, call) in (CALLS..).zip(calls) {
            let id = call.id.unwrap_or_else(|| format!("call-{index}")).into();
            let arguments_delta = if call.arguments.trim().is_empty() { "{}".into() } else { call.arguments };
            chunks.push(Chunk::ToolCallDelta { index, id, name: Some(call.name.into()), arguments_delta });
        }
        chunks.extend(self.usage.map(|usage| Chunk::Usage { usage }));
        let reason = match (is_cut, is_filtered, has_calls) {
            (true, ..) => FinishReason::MaxTokens,
            (_, true, _) => FinishReason::Other(serde_json::json!({"kind": "content-filter"})),
            (_, _, true) => FinishReason::ToolCalls,
            (_, _, false) => FinishReason::Stop,
        };
        chunks.push(Chunk::Finish { reason, replay_state: None });
        Ok(chunks)
    }
}

fn is_document(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// JSON in which halves of characters are let pass: servers that cut a text between two escapes send them.
fn parsed(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| serde_json::from_str(&mended(text)).map_err(|_| error))
}

/// Half of a pair of escapes becomes the replacement character.
fn mended(text: &str) -> String {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut mended = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(next) = text[at..].find('\\').map(|escape| at + escape) {
        mended.push_str(&text[at..next]);
        let length = match (unit(next), unit(next + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                mended.push_str("\\ufffd");
                at = next + 6;
                continue;
            }
            (Some(_), _) => 6,
            // A backslash and whatever it escapes.
            (None, _) => 1 + text[next + 1..].chars().next().map_or(0, char::len_utf8),
        };
        mended.push_str(&text[next..next + length]);
        at = next + length;
    }
    mended.push_str(&text[at..]);
    mended
}

/// Input without its cached part; `None` when the provider does not say.
fn usage(usage: &Value) -> Option<Usage> {
    let number = |value: &Value| value.as_u64();
    let (input, output) = (number(&usage["prompt_tokens"])?, number(&usage["completion_tokens"])?);
    let cached = number(&usage["prompt_tokens_details"]["cached_tokens"]).or(number(&usage["prompt_cache_hit_tokens"]));
    Some(Usage {
        input_tokens: input.saturating_sub(cached.unwrap_or(0)),
        output_tokens: output,
        cache_read_tokens: cached,
        cache_write_tokens: None,
        reasoning_tokens: number(&usage["completion_tokens_details"]["reasoning_tokens"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chunks of a whole body.
    fn decoded(body: &str) -> Result<Vec<Chunk>, Failure> {
        let mut decoder = Decoder::new();
        let mut chunks = decoder.push(body.as_bytes()).map_err(|(_, failure)| failure)?;
        chunks.extend(decoder.end().map_err(|(_, failure)| failure)?);
        Ok(chunks)
    }

    fn calls(chunks: &[Chunk]) -> Vec<String> {
        chunks
            .iter()
            .filter_map(|chunk| match chunk {
                Chunk::ToolCallDelta { name, arguments_delta, .. } => {
                    Some(format!("{} {arguments_delta}", name.as_deref().unwrap_or_default()))
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn halves_of_characters_are_replaced_and_whole_ones_stay() {
        assert_eq!(
            mended(r"\ud83d \n \ud83d\ude80 \\ud83d \u00e4 \ude80"),
            r"\ufffd \n \ud83d\ude80 \\ud83d \u00e4 \ufffd"
        );
        assert_eq!(mended(r"ü\"), r"ü\");
    }

    #[test]
    fn an_answer_that_stops_without_a_word_is_empty() {
        let body =
            "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        assert_eq!(decoded(body).unwrap_err().code, "EMPTY_RESPONSE");
    }

    #[test]
    fn a_name_that_is_said_again_with_every_piece_is_one_call() {
        let piece = |arguments: &str| {
            let function = serde_json::json!({"name": "f", "arguments": arguments});
            let call = serde_json::json!({"index": 0, "function": function});
            format!("data: {}\n\n", serde_json::json!({"choices": [{"delta": {"tool_calls": [call]}}]}))
        };
        let body = format!("{}{}{}data: [DONE]\n\n", piece("{\"a\""), piece(":1}"), piece(""));
        assert_eq!(calls(&decoded(&body).unwrap()), ["f {\"a\":1}"]);
    }
}
