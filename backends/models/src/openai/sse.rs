//! Server-sent events on bytes.

/// Cuts bytes into lines and lines into events, whatever the cuts of the transport.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of a line that has not ended.
    line: Vec<u8>,
    /// The data lines of an event that has not ended.
    data: Vec<String>,
    /// The last line ended with a CR, so that a LF next is still part of its end.
    is_behind_cr: bool,
}

/// Something that a stream says.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    /// The data lines of one event.
    Event(Vec<String>),
    /// A line that is no field of the grammar: the body may be something else.
    Stray(String),
}

impl Lines {
    /// Takes some bytes in. A line ends with LF, CR, or both.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Said> {
        let mut rest = bytes;
        if self.is_behind_cr && !rest.is_empty() {
            self.is_behind_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        let mut said = vec![];
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.line.extend_from_slice(&rest[..end]);
            let is_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if is_cr {
                self.is_behind_cr = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            let line = std::mem::take(&mut self.line);
            said.extend(self.read(&line));
        }
        self.line.extend_from_slice(rest);
        said
    }

    /// What an unfinished last line and a last event without its blank line say.
    pub(super) fn end(&mut self) -> Vec<Said> {
        let line = std::mem::take(&mut self.line);
        let mut said: Vec<Said> = if line.is_empty() { vec![] } else { self.read(&line).into_iter().collect() };
        said.extend(self.read(b""));
        said
    }

    /// How many bytes wait for the end of their line or event.
    pub(super) fn waiting(&self) -> usize {
        self.line.len() + self.data.iter().map(String::len).sum::<usize>()
    }

    fn read(&mut self, line: &[u8]) -> Option<Said> {
        // Only whole lines are decoded: a character cut by the transport is whole again here.
        let line = String::from_utf8_lossy(line);
        let line = line.trim_start_matches('\u{feff}');
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return (!data.is_empty()).then_some(Said::Event(data));
        }
        if line.starts_with(':') {
            return None;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => self.data.push(value.to_owned()),
            // llama.cpp says its errors in a field of that name.
            "error" => return Some(Said::Event(vec![format!("{{\"error\":{value}}}")])),
            "event" | "id" | "retry" => {}
            _ => return Some(Said::Stray(line.to_owned())),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_wherever_the_transport_cuts() {
        let body = "\u{feff}data: a\r\n: ping\r\ndata: ü\r\n\r\nevent: x\ndata:b\n\ndata: c\r\rlast";
        let expected = [
            Said::Event(vec!["a".into(), "ü".into()]),
            Said::Event(vec!["b".into()]),
            Said::Event(vec!["c".into()]),
            Said::Stray("last".into()),
        ];
        for size in [1, 2, 3, 7, 1000] {
            let mut lines = Lines::default();
            let mut said: Vec<Said> = body.as_bytes().chunks(size).flat_map(|part| lines.push(part)).collect();
            said.extend(lines.end());
            assert_eq!(said, expected, "in pieces of {size}");
        }
    }
}
