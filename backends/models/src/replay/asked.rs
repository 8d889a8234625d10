//! What a request contains, so that it can be told from another one.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use impresario_kernel::event::Tools;
use impresario_kernel::{Block, Message, RequestHeader, Role};
use serde_json::json;

use crate::aside;

/// How much is shown on either side of the first byte that differs.
const BEFORE: usize = 24;
const BEHIND: usize = 40;

/// How long an id of an agent is.
const ID: usize = 32;
/// How long an id of another program is: the same with four dashes.
const DASHED: usize = 36;

/// What of a request counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Sight {
    /// System text, tools, settings and messages.
    #[default]
    Whole,
    /// The same as far as it comes over HTTP: without thoughts, settings, and whether a call failed.
    Served,
    /// What people and the model said, and which calls it asked for: all that two programs with other tools, other
    /// frames and other words for results have in common.
    Spoken,
}

/// A request, part by part: a word for what the part is, a space, and its text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Asked(pub(super) Vec<Arc<str>>);

impl Asked {
    /// Provider and model are left out, since a replay has others, and so is what the runtime says about itself (folder,
    /// limits), message ids and call ids.
    pub(super) fn of<'a>(
        sight: Sight,
        header: &RequestHeader,
        messages: impl IntoIterator<Item = &'a Arc<Message>>,
    ) -> Self {
        let mut parts = vec![];
        if sight != Sight::Spoken {
            frame(header, &mut parts);
        }
        for message in messages.into_iter().filter(|message| counts(sight, message)) {
            for block in &message.content {
                said(sight, message.role, block, &mut parts);
            }
        }
        Self(parts)
    }

    /// What a model said, in the same form.
    pub(super) fn of_blocks(blocks: &[Block]) -> Self {
        let mut parts = vec![];
        blocks.iter().for_each(|block| said(Sight::Whole, Role::Assistant, block, &mut parts));
        Self(parts)
    }

    /// The same with the ids of agents numbered in the order in which they come: another run has other ids.
    pub(super) fn numbered(&self, sight: Sight) -> Numbered {
        let mut ids: Vec<Arc<str>> = vec![];
        let parts = self.0.iter().filter_map(|part| seen(sight, part)).map(|part| {
            replaced(part, sight, |id| {
                let known = ids.iter().position(|other| &**other == id);
                let number = known.unwrap_or(ids.len());
                if known.is_none() {
                    ids.push(id.into());
                }
                Some(format!("agent#{number}"))
            })
        });
        let parts: Vec<String> = parts.collect();
        let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
        // FNV-1a: it finds what is the same; whether it is the same is looked at.
        let digest =
            bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Numbered { parts, ids, digest }
    }
}

/// A request whose ids are numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Numbered {
    parts: Vec<String>,
    /// The ids by their numbers.
    pub(super) ids: Vec<Arc<str>>,
    /// Equal requests have equal ones.
    pub(super) digest: u64,
}

impl Numbered {
    pub(super) fn is(&self, other: &Self) -> bool {
        self.digest == other.digest && self.parts == other.parts
    }

    /// Where the first byte is that differs from what was `recorded`; the two do differ.
    pub(super) fn difference<'a>(&'a self, recorded: &'a Self) -> Difference<'a> {
        let same = self.parts.iter().zip(&recorded.parts).take_while(|(one, other)| one == other).count();
        let part = |parts: &'a [String]| parts.get(same).map(String::as_str);
        let (asked, recorded_part) = (part(&self.parts), part(&recorded.parts));
        let (one, other) = (asked.unwrap_or_default().as_bytes(), recorded_part.unwrap_or_default().as_bytes());
        let byte = one.iter().zip(other).take_while(|(one, other)| one == other).count();
        let before: usize = self.parts[..same].iter().map(|part| part.len() + 1).sum();
        Difference { total: before + byte, part: same, byte, recorded: recorded_part, asked }
    }
}

/// Where two requests part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Difference<'a> {
    /// The byte, counted over all parts, each with a byte behind it.
    pub(super) total: usize,
    /// Which part, from 0.
    part: usize,
    /// The byte in that part.
    byte: usize,
    /// The part as it was recorded; none if the recorded request ends before it.
    recorded: Option<&'a str>,
    /// The part as it is asked.
    asked: Option<&'a str>,
}

impl fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "they differ from byte {} on (part {})", self.total, self.part + 1)?;
        for (who, part) in [("recorded", self.recorded), ("asked", self.asked)] {
            match part {
                Some(part) => write!(f, ", {who} {}", around(part, self.byte))?,
                None => write!(f, ", {who} nothing more")?,
            }
        }
        Ok(())
    }
}

/// The kind of a part and some of its text on both sides of `byte`.
fn around(part: &str, byte: usize) -> String {
    let (kind, text) = part.split_once(' ').unwrap_or((part, ""));
    let byte = byte.saturating_sub(kind.len() + 1);
    let is_cut = |at: &usize| text.is_char_boundary(*at);
    let from = (0..=byte.saturating_sub(BEFORE)).rev().find(is_cut).unwrap_or(0);
    let to = (byte.saturating_add(BEHIND)..text.len()).find(is_cut).unwrap_or(text.len());
    let dots = |is: bool| if is { "…" } else { "" };
    format!("in {kind} {}{:?}{}", dots(from > 0), &text[from..to], dots(to < text.len()))
}

fn frame(header: &RequestHeader, parts: &mut Vec<Arc<str>>) {
    parts.extend(header.system.as_ref().map(|system| format!("system {system}").into()));
    match &header.tools {
        Some(Tools::Schemas(schemas)) => {
            parts.extend(schemas.iter().map(|schema| format!("tool {}", json!(schema)).into()));
        }
        Some(Tools::Other(other)) => parts.push(format!("tools {other}").into()),
        None => {}
    }
    let mut settings = header.config.rest.clone();
    settings.extend(header.config.max_tokens.map(|max| ("maxTokens".to_owned(), max.into())));
    if !settings.is_empty() {
        parts.push(format!("settings {}", json!(settings)).into());
    }
}

/// A part, as far as it counts.
fn seen(sight: Sight, part: &str) -> Option<&str> {
    let is = |kind: &str| part.split(' ').next() == Some(kind);
    match sight {
        Sight::Whole | Sight::Spoken => Some(part),
        Sight::Served if is("reasoning") || is("settings") => None,
        Sight::Served if part == "failed" => Some("result"),
        Sight::Served => Some(part),
    }
}

fn counts(sight: Sight, message: &Message) -> bool {
    match (aside::name(&message.source), sight) {
        (Some("snapshot"), _) | (Some(_), Sight::Spoken) => false,
        (Some(_), Sight::Whole | Sight::Served) | (None, _) => true,
    }
}

fn said(sight: Sight, role: Role, block: &Block, parts: &mut Vec<Arc<str>>) {
    let who = match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    match block {
        Block::Text { text } if text.is_empty() => {}
        Block::Text { text } => parts.push(format!("{who} {text}").into()),
        Block::Reasoning { text } => parts.push(format!("reasoning {text}").into()),
        Block::ToolCall { name, arguments, .. } => parts.push(format!("call {name} {arguments}").into()),
        Block::ToolResult { content, is_error, .. } if sight != Sight::Spoken => {
            parts.push(if *is_error { "failed".into() } else { "result".into() });
            for block in content {
                said(sight, role, block, parts);
            }
        }
        Block::ToolResult { .. } => {}
        Block::Other(other) => parts.push(format!("other {other}").into()),
    }
}

/// A text with its ids in place of others; those stay that `other` knows none for.
pub(super) fn replaced(text: &str, sight: Sight, mut other: impl FnMut(&str) -> Option<String>) -> String {
    let (mut whole, mut done) = (String::with_capacity(text.len()), 0);
    for range in ids(text, sight) {
        if let Some(other) = other(&text[range.clone()]) {
            whole.push_str(&text[done..range.start]);
            whole.push_str(&other);
            done = range.end;
        }
    }
    whole.push_str(&text[done..]);
    whole
}

/// Where the ids of agents are in a text: ours are 32 hexadecimal digits of which the first, since they begin with the
/// time, is 0; those of other programs have dashes.
fn ids(text: &str, sight: Sight) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at;
            let is_of_id = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
            let length = bytes[start..].iter().take_while(|byte| is_of_id(byte)).count();
            at += length.max(1);
            if is_id(&bytes[start..start + length], sight) {
                return Some(start..start + length);
            }
        }
        None
    })
}

fn is_id(word: &[u8], sight: Sight) -> bool {
    let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    match word.len() {
        ID => word[0] == b'0' && word.iter().all(is_hex),
        DASHED if sight == Sight::Spoken => {
            let is_dash = |at: usize| [8, 13, 18, 23].contains(&at);
            word.iter().enumerate().all(|(at, byte)| if is_dash(at) { *byte == b'-' } else { is_hex(byte) })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "01a22fcf8c90736099b1bd146992f8ec";
    const OTHER: &str = "01a22fcf8c9173609aaaaaaaaaaaaaaa";

    fn asked(parts: &[&str]) -> Asked {
        Asked(parts.iter().map(|&part| part.into()).collect())
    }

    fn numbered(parts: &[&str]) -> Numbered {
        asked(parts).numbered(Sight::Whole)
    }

    #[test]
    fn ids_of_agents_are_told_apart_and_not_compared() {
        let of =
            |one: &str, other: &str| numbered(&[&format!("user [a · agent {one}]"), &format!("user {other}+{one}")]);
        assert!(of(ONE, OTHER).is(&of(OTHER, ONE)));
        assert!(!of(ONE, OTHER).is(&of(ONE, ONE)));
        assert_eq!(of(ONE, OTHER).ids, [ONE.into(), OTHER.into()] as [Arc<str>; 2]);
        let sum = "d41d8cd98f00b204e9800998ecf8427e";
        assert!(numbered(&[sum]).ids.is_empty() && numbered(&[&format!("x{ONE}")]).ids.is_empty());
        let dashed = "33333333-3333-4333-8333-333333333333";
        assert_eq!((asked(&[dashed]).numbered(Sight::Spoken).ids.len(), numbered(&[dashed]).ids.len()), (1, 0));
    }

    #[test]
    fn the_first_byte_that_differs_is_shown_with_both_sides() {
        let of = |file: &str| {
            let text = format!("user Look at {file}.txt, and be quick about what you find there, please");
            numbered(&["system be brief", &text])
        };
        assert_eq!(
            of("b").difference(&of("ä")).to_string(),
            "they differ from byte 29 on (part 2), recorded in user \"Look at ä.txt, and be quick about what you find\"…, \
             asked in user \"Look at b.txt, and be quick about what you find \"…"
        );
        let late = |file: &str| of(&format!("{}{file}", "a".repeat(30)));
        let difference = late("b").difference(&late("ä")).to_string();
        assert!(difference.contains("asked in user …\"aaaaaaaaaaaaaaaaaaaaaaaab.txt, and"), "{difference}");
        assert_eq!(
            numbered(&["system be brief"]).difference(&of("ä")).to_string(),
            "they differ from byte 16 on (part 2), recorded in user \"Look at ä.txt, and be quick about what \"…, \
             asked nothing more"
        );
    }

    #[test]
    fn every_byte_may_be_the_one_that_differs() {
        let text = "user a ☃ and öther things";
        for (at, _) in text.char_indices() {
            let other = format!("{}X{}", &text[..at], &text[at..]);
            let (one, other) = (numbered(&[text]), numbered(&[&other]));
            assert!(other.difference(&one).total <= at + 1 && !other.difference(&one).to_string().is_empty());
        }
    }
}
