//! The write-ahead log of sqlite as far as a torn tail is concerned: a header of 32 bytes, then frames of 24 bytes and a
//! page. A frame that names a size of the database ends a commit; frames of another salt are left over from before.

use std::path::Path;
use std::time::SystemTime;

const HEADER: usize = 32;
const FRAME: usize = 24;
/// How far the commits of the present round go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Extent {
    /// Changes when the log begins again at its front; then all that was in it is in the database file.
    pub(crate) salt: [u8; 8],
    /// The end of the last commit.
    pub(crate) end: usize,
    /// Up to here the database file may have it as well. A frame is flushed before it is copied there, so a tail that was
    /// torn by a crash begins behind this.
    pub(crate) copied: usize,
    /// When the database file was written to.
    written: SystemTime,
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl Extent {
    /// Of the store in a home whose process is dead; none where there is no log. What the shared memory says of copied
    /// frames is forgotten when a process opens the store anew, so `before` says how things stood the last time.
    pub(crate) fn of(home: &Path, before: Option<&Self>) -> Option<Self> {
        let log = std::fs::read(home.join("store.sqlite-wal")).ok().filter(|log| log.len() > HEADER)?;
        let salt = |at: usize| -> [u8; 8] { log[at..at + 8].try_into().expect("eight bytes") };
        let size = FRAME + number(&log, 8) as usize;
        let (mut at, mut end) = (HEADER, HEADER);
        while at + size <= log.len() && salt(at + 8) == salt(16) {
            at += size;
            if number(&log, at - size + 4) != 0 {
                end = at;
            }
        }
        let written = std::fs::metadata(home.join("store.sqlite")).and_then(|file| file.modified()).expect("a store");
        let copied = match before {
            Some(before) if before.written == written && before.salt == salt(16) => before.copied,
            Some(before) if before.written == written => 0,
            Some(_) | None => end,
        };
        Some(Self { salt: salt(16), end, copied, written })
    }
}
