//! The session log: envelopes, the surface, headers, packing. Numbers are those of the testable behaviours of the
//! reference.

use std::sync::Arc;

use impresario_kernel::surface::{Surface, SurfaceError};
use impresario_kernel::wire::{WireError, decode, encode_row, encode_wire, pack};
use impresario_kernel::{
    Agent, Chunk, Event, Fact, HeaderError, Message, Millis, Role, Seq, SeqRanges, SessionHeader, Source, Spec,
    SurfaceOp,
};

fn said(seq: u64) -> Event {
    Event::new(Seq(seq), Millis(0), Fact::UserMessage(Arc::new(Message::user(format!("m{seq}"), seq.to_string()))))
}

fn replacing(seq: u64, start: u64, end: u64, sources: &[u64]) -> Event {
    let mut ranges = SeqRanges::empty();
    assert!(sources.iter().all(|&source| ranges.push(source, source)));
    let surface = Some(SurfaceOp::Replace { start: Seq(start), end: Seq(end) });
    Event { surface, sources: Some(ranges), ..said(seq) }
}

/// The surface [0, 3, 5, 8].
fn surface() -> Surface {
    let mut surface = Surface::default();
    [0, 3, 5, 8].into_iter().for_each(|seq| surface.apply(&said(seq)).unwrap());
    surface
}

fn texts(surface: &Surface) -> Vec<String> {
    surface.messages().map(|message| message.text()).collect()
}

fn read(line: &str) -> Result<Event, WireError> {
    decode(line, Seq(7), Millis(0))
}

fn delta(seq: u64, time: u64, text: &str) -> Event {
    let chunk = Chunk::TextDelta { index: 0, text: text.into() };
    let streamed = serde_json::json!({"turn": 1, "step": 1, "chunk": chunk});
    let line = serde_json::json!({"type": "assistant/chunk", "seq": seq, "time": time, "data": streamed});
    read(&line.to_string()).unwrap()
}

#[test]
fn b001_places_are_contiguous_from_0() {
    let spec = Arc::new(Spec::new(impresario_kernel::RequestHeader::new("p", "m")));
    let mut agent = Agent::new(spec);
    agent.apply(&Arc::new(said(1))).expect_err("the first is 0");
    agent.apply(&Arc::new(said(0))).unwrap();
    agent.apply(&Arc::new(said(0))).expect_err("0 was taken");
    agent.apply(&Arc::new(said(1))).unwrap();
    assert_eq!(agent.log().next_seq(), Seq(2));
}

#[test]
fn b011_b012_only_messages_have_surface_fields_and_they_must() {
    let message = r#"{"id":"m","role":"user","source":{"kind":"user"},"content":[]}"#;
    let bare = format!(r#"{{"type":"user/message","seq":7,"time":1,"data":{message}}}"#);
    assert!(matches!(read(&bare), Err(WireError::Envelope { .. })), "{:?}", read(&bare));
    let op = r#"{"type":"turn/start","seq":7,"time":1,"data":{"turn":1},"surfaceOp":"append"}"#;
    assert!(matches!(read(op), Err(WireError::Envelope { .. })), "{:?}", read(op));
    let sources = r#"{"type":"turn/start","seq":7,"time":1,"data":{"turn":1},"sourceEventSeqs":[1]}"#;
    assert!(matches!(read(sources), Err(WireError::Envelope { .. })), "{:?}", read(sources));
}

#[test]
fn b013_sources_are_earlier_and_not_empty_and_each_is_named_once() {
    let message = r#"{"id":"m","role":"user","source":{"kind":"user"},"content":[]}"#;
    for sources in ["[]", "[9]", "[7]", "[3,3]"] {
        let line = format!(
            r#"{{"type":"user/message","seq":7,"time":1,"data":{message},"surfaceOp":"append","sourceEventSeqs":{sources}}}"#
        );
        read(&line).expect_err(sources);
    }
}

#[test]
fn b014_an_answer_may_cite_an_empty_stream() {
    let message = r#"{"id":"m","role":"assistant","source":{"kind":"model","provider":"p","model":"m"},"content":[]}"#;
    let data = format!(r#"{{"turn":1,"step":1,"message":{message}}}"#);
    let line = format!(
        r#"{{"type":"assistant/message","seq":7,"time":1,"data":{data},"surfaceOp":"append","sourceEventSeqs":[]}}"#
    );
    assert!(read(&line).unwrap().sources.unwrap().is_empty());
}

#[test]
fn b015_a_replacement_stands_where_its_range_stood() {
    let mut surface = surface();
    surface.apply(&replacing(9, 3, 5, &[3, 5])).unwrap();
    assert_eq!(texts(&surface), ["0", "9", "8"]);
}

#[test]
fn b016_b017_b018_a_replacement_that_breaks_a_rule_changes_nothing() {
    let mut surface = surface();
    let before = surface.clone();
    let (at, missing) = (Seq(9), Seq(5));
    assert_eq!(surface.apply(&replacing(9, 3, 5, &[3])), Err(SurfaceError::SourceMissing { at, missing }));
    assert_eq!(surface.apply(&replacing(9, 5, 3, &[3, 5])), Err(SurfaceError::Backwards { at }));
    let missing = Seq(4);
    assert_eq!(surface.apply(&replacing(9, 4, 5, &[4, 5])), Err(SurfaceError::NotThere { at, missing }));
    assert_eq!(surface, before);
}

#[test]
fn b020_an_answer_without_content_is_in_the_log_and_not_before_the_model() {
    let id = "a".into();
    let message = Message { id, role: Role::Assistant, content: vec![], source: Source::model("p", "m") };
    let answer = serde_json::json!({"turn": 1, "step": 1, "message": message});
    let fact = Fact::AssistantMessage(serde_json::from_value(answer).unwrap());
    let mut surface = Surface::default();
    surface.apply(&Event::new(Seq(0), Millis(0), fact)).unwrap();
    assert_eq!(surface.messages().count(), 0);
}

#[test]
fn b022_messages_that_were_derived_stay_as_they_are() {
    let mut surface = surface();
    let before = surface.clone();
    surface.apply(&said(9)).unwrap();
    assert_eq!((texts(&before).len(), texts(&surface).len()), (4, 5));
}

#[test]
fn b026_an_unknown_field_of_an_envelope_is_refused() {
    let line = r#"{"type":"turn/start","seq":7,"time":1,"data":{"turn":1},"colour":"red"}"#;
    assert!(read(line).unwrap_err().to_string().contains("not an event"));
}

#[test]
fn b035_a_header_that_breaks_a_rule_names_the_field() {
    let header = |change: fn(&mut SessionHeader)| {
        let mut header = SessionHeader::new("a".into(), Millis(0));
        change(&mut header);
        header.check()
    };
    assert_eq!(header(|_| {}), Ok(()));
    assert_eq!(header(|header| header.version = 1), Err(HeaderError::NewerVersion(1)));
    let relative = header(|header| header.cwd = Some("here".into())).unwrap_err();
    assert!(relative.to_string().contains("`cwd`"), "{relative}");
    let origin = header(|header| header.origin = Some("elsewhere".into())).unwrap_err();
    assert!(origin.to_string().contains("`origin`"), "{origin}");
    let line = r#"{"version":0,"id":"a","createdAt":0,"seedLength":-1}"#;
    serde_json::from_str::<SessionHeader>(line).expect_err("a negative length");
}

#[test]
fn b043_five_deltas_are_one_row_and_come_back_exactly() {
    // The clock steps back once.
    let events: Vec<Event> = [5, 9, 7, 7, 20].into_iter().zip(0..).map(|(time, seq)| delta(seq, time, "x")).collect();
    let lines: Vec<String> = events.iter().flat_map(|event| encode_wire(event).unwrap()).collect();
    let packed = pack(events);
    assert_eq!(packed.len(), 1);
    let row = encode_row(&packed[0]).unwrap();
    assert!(row.contains("text-chunks"), "{row}");
    assert_eq!(encode_wire(&read(&row).unwrap()).unwrap(), lines);
}

#[test]
fn b045_a_packed_row_that_does_not_add_up_is_refused() {
    let data = r#"{"turn":1,"step":1,"index":0,"dt":[1],"texts":["a","b","c"]}"#;
    let row = format!(r#"{{"type":"text-chunks","seq0":0,"time0":1,"data":{data}}}"#);
    assert!(matches!(read(&row), Err(WireError::Row { .. })), "{:?}", read(&row));
}

#[test]
fn an_unknown_type_is_refused_by_its_name_unless_it_may_be_skipped() {
    let unknown = r#"{"type":"who/knows","seq":7,"time":1,"data":{}}"#;
    let refused = read(unknown).unwrap_err().to_string();
    assert!(refused.contains("who/knows") && refused.contains("upgrade"), "{refused}");
    read(r#"{"type":"who/knows","seq":7,"time":1,"data":{},"ignorable":true}"#).unwrap();
}

#[test]
fn b007_a_key_with_a_strange_name_is_data_like_any_other() {
    let line = r#"{"type":"who/knows","seq":7,"time":1,"data":{"__proto__":{"a":1}},"ignorable":true}"#;
    let event = read(line).unwrap();
    assert!(encode_wire(&event).unwrap()[0].contains("__proto__"));
}

#[test]
fn b021_what_is_seen_behind_a_replacement_is_what_a_fold_from_nothing_sees() {
    let mut cached = surface();
    texts(&cached);
    let rest = [replacing(9, 3, 5, &[3, 5]), said(10), replacing(11, 8, 10, &[8, 10])];
    for event in &rest {
        cached.apply(event).unwrap();
        texts(&cached);
    }
    let mut scratch = Surface::default();
    [0, 3, 5, 8].into_iter().for_each(|seq| scratch.apply(&said(seq)).unwrap());
    rest.iter().for_each(|event| scratch.apply(event).unwrap());
    assert_eq!(texts(&cached), ["0", "9", "11"]);
    assert_eq!(cached, scratch);
}

#[test]
fn b023_a_log_with_a_gap_is_refused_by_the_place_of_the_gap() {
    let spec = Arc::new(Spec::new(impresario_kernel::RequestHeader::new("p", "m")));
    let log = [Arc::new(said(0)), Arc::new(said(1)), Arc::new(said(3))];
    let error = Agent::fold(spec, &log).expect_err("2 is missing").to_string();
    assert!(error.contains('3') && error.contains('2'), "{error}");
}

#[test]
fn a_value_that_is_nested_without_end_is_refused_and_overflows_nothing() {
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    let line = format!(r#"{{"type":"turn/start","seq":7,"time":1,"data":{{"turn":1,"rest":{open}{close}}}}}"#);
    let error = std::error::Error::source(&read(&line).unwrap_err()).expect("it says why").to_string();
    assert!(error.contains("recursion limit"), "{error}");
}
