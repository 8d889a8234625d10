//! Server-sent events on bytes.

/// Cuts bytes into lines and lines into events, whatever the cuts of the transport.
#[derive(Debug, Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    data: Vec<String>,
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
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Said> {
        self.buffer.extend_from_slice(bytes);
        let mut said = vec![];
        let mut start = 0;
        // LF ends a line, with or without a CR before it; what follows the last LF waits.
        while let Some(end) = self.buffer[start..].iter().position(|&byte| byte == b'\n') {
            let line = self.buffer[start..start + end].to_vec();
            start += end + 1;
            said.extend(self.line(&line));
        }
        self.buffer.drain(..start);
        said
    }

    /// What an unfinished last line and a last event without its blank line say.
    pub(super) fn end(&mut self) -> Vec<Said> {
        let line = std::mem::take(&mut self.buffer);
        let mut said: Vec<Said> = if line.is_empty() { vec![] } else { self.line(&line).into_iter().collect() };
        said.extend(self.line(b""));
        said
    }

    fn line(&mut self, line: &[u8]) -> Option<Said> {
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned();
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
        let body = "\u{feff}data: a\r\n: ping\r\ndata: ü\r\n\r\nevent: x\ndata:b\n\nlast";
        let expected =
            [Said::Event(vec!["a".into(), "ü".into()]), Said::Event(vec!["b".into()]), Said::Stray("last".into())];
        for size in [1, 2, 3, 7, 1000] {
            let mut lines = Lines::default();
            let mut said: Vec<Said> = body.as_bytes().chunks(size).flat_map(|part| lines.push(part)).collect();
            said.extend(lines.end());
            assert_eq!(said, expected, "in pieces of {size}");
        }
    }
}
