//! Names of folders: what a session's id and its working folder are called on disk.
//!
//! ASCII letters, digits, `_`, `.` and (in ids) `-` stay as they are; every other byte is `%` and two upper-case hex
//! digits, and so is a dot that a name begins with. In a working folder `/` is written `-`, and the first one is left
//! out: `/work/demo` is `--work-demo--`. A path that begins otherwise is marked `%-`, and sessions that work nowhere
//! are in `--%none--`. No two names are the same: what is too long for a file system keeps its beginning and has `~`
//! and the hash of the whole behind it, and `~` is never written otherwise.

use crate::artifact::content_name;

/// The most bytes of a name; the file systems in use take 255.
const BYTES_MAX: usize = 200;

/// How much of a name that is too long stays readable.
const BYTES_KEPT: usize = 120;

/// The folder of the sessions that work in `cwd`.
pub(super) fn project_folder(cwd: Option<&str>) -> String {
    let inner = match cwd {
        None => "%none".to_owned(),
        Some(cwd) => match cwd.strip_prefix('/') {
            Some(rest) => escape(rest, "/"),
            None => format!("%-{}", escape(cwd, "/")),
        },
    };
    format!("--{}--", bounded(inner))
}

/// Whether a folder may hold sessions.
pub(super) fn is_project_folder(name: &str) -> bool {
    name.len() >= 4 && name.starts_with("--") && name.ends_with("--")
}

/// The folder of a session in its project's folder; also the name of whatever belongs to one owner.
pub(super) fn session_folder(id: &str) -> String {
    bounded(escape(id, "-"))
}

/// `dash` is what is written `-`.
fn escape(text: &str, dash: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if dash.as_bytes() == [byte] => name.push('-'),
            b'.' if at > 0 => name.push('.'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

fn bounded(name: String) -> String {
    if name.len() <= BYTES_MAX {
        return name;
    }
    let hash = content_name(name.as_bytes());
    format!("{}~{hash}", name.chars().take(BYTES_KEPT).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn ordinary_names_stay_readable() {
        assert_eq!(project_folder(Some("/work/demo")), "--work-demo--");
        assert_eq!(project_folder(None), "--%none--");
        assert_eq!(session_folder("0197-ab.tree"), "0197-ab.tree");
        assert_eq!(session_folder("../x"), "%2E.%2Fx");
        assert_eq!(session_folder(".."), "%2E.");
    }

    #[test]
    fn no_two_names_are_the_same_and_none_is_too_long() {
        let long = "a".repeat(300);
        let (longer, umlauts) = (format!("{long}b"), "ü".repeat(100));
        let texts = [
            "", "/", "//", "a", "/a", "/a/b", "/a-b", "a/b", "a-b", "%none", "C:\\a", "/C:\\a", "~", "/.", "/..", "..",
            ".",
        ];
        let texts: Vec<&str> = texts.into_iter().chain([long.as_str(), &longer, &umlauts]).collect();
        let (mut folders, mut sessions) = (BTreeMap::new(), BTreeMap::new());
        folders.insert(project_folder(None), "none");
        for text in texts {
            let (folder, session) = (project_folder(Some(text)), session_folder(text));
            assert!(is_project_folder(&folder) && folder.len() <= 255 && session.len() <= 255, "{folder} {session}");
            assert!(!folder.contains('/') && !session.contains('/') && session != ".." && session != ".");
            assert_eq!(folders.insert(folder, text), None);
            assert_eq!(sessions.insert(session, text), None);
        }
    }
}
