//! Walks over folders: what is looked at, in the same way by listing and by searching.
//!
//! Hidden files are in; `.git` folders and what `.gitignore` files exclude (in the folder, above and below it, with or
//! without a repository) are out; links are met but not followed. What was named by the caller is always in.

use std::collections::HashSet;
use std::path::PathBuf;

use ignore::{DirEntry, Walk, WalkBuilder};
use impresario_seams::ToolError;
use tokio_util::sync::CancellationToken;

use crate::arguments::Arguments;
use crate::blocking::go_on;
use crate::folder::{Folder, Kind, Place};

/// Where to start: the arguments `path` and `paths`, of which one may be there.
pub(crate) struct Starts {
    given: Vec<(String, String)>,
}

impl Starts {
    /// Takes the arguments.
    pub(crate) fn parse(arguments: &mut Arguments) -> Result<Self, ToolError> {
        let given = match (arguments.optional_string("path")?, arguments.optional_strings("paths")?) {
            (Some(_), Some(_)) => return Err(ToolError::invalid("`paths` stands instead of `path`; give one of them")),
            (None, Some(paths)) if paths.is_empty() => {
                return Err(ToolError::invalid("`paths` is empty; name files or folders, or leave it out"));
            }
            (None, Some(paths)) => {
                paths.into_iter().enumerate().map(|(at, path)| (format!("paths[{at}]"), path)).collect()
            }
            (Some(path), None) => vec![("path".into(), path)],
            (None, None) => vec![("path".into(), ".".into())],
        };
        Ok(Self { given })
    }

    /// Where they lead.
    pub(crate) fn locate(&self, folder: &Folder) -> Result<Vec<Place>, ToolError> {
        self.given.iter().map(|(field, given)| folder.locate_existing(field, given)).collect()
    }
}

/// How deep to go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Depth {
    /// What is directly in a folder.
    Direct,
    /// Everything below.
    All,
}

/// Something that a walk came by.
pub(crate) struct Found {
    /// From the root of the machine.
    pub(crate) path: PathBuf,
    /// As models see it.
    pub(crate) shown: String,
    /// What it is.
    pub(crate) kind: Kind,
    /// Whether the caller named it, and not a folder above it.
    pub(crate) named: bool,
}

/// What a walk could not look at.
#[derive(Default)]
pub(crate) struct Unreadable {
    count: u64,
    first: Option<String>,
}

impl Unreadable {
    /// One more.
    pub(crate) fn add(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(what);
    }

    /// A line about it, if there is anything to say.
    pub(crate) fn line(&self) -> Option<String> {
        self.first.as_ref().map(|first| format!("unreadable: {} entries, the first: {first}", self.count))
    }
}

/// Visits each thing once, in no order.
pub(crate) fn walk(
    folder: &Folder,
    starts: Vec<Place>,
    depth: Depth,
    stop: &CancellationToken,
    unreadable: &mut Unreadable,
    mut visit: impl FnMut(Found, &mut Unreadable) -> Result<(), ToolError>,
) -> Result<(), ToolError> {
    // Only several starts can meet in the same place.
    let mut seen = (starts.len() > 1).then(HashSet::new);
    let mut is_new = |path: &PathBuf| seen.as_mut().is_none_or(|seen| seen.insert(path.clone()));
    for start in starts {
        if start.kind != Kind::Folder {
            if is_new(&start.absolute) {
                visit(Found { path: start.absolute, shown: start.shown, kind: start.kind, named: true }, unreadable)?;
            }
            continue;
        }
        for entry in entries(&start, depth) {
            go_on(stop)?;
            match entry {
                Ok(entry) if entry.depth() == 0 => {}
                Ok(entry) => {
                    let kind = entry.file_type().map_or(Kind::Special, Kind::from);
                    let path = entry.into_path();
                    if is_new(&path) {
                        visit(Found { shown: folder.shown(&path), path, kind, named: false }, unreadable)?;
                    }
                }
                Err(cause) => unreadable.add(|| crate::folder::escaped(&cause.to_string())),
            }
        }
    }
    Ok(())
}

fn entries(start: &Place, depth: Depth) -> Walk {
    WalkBuilder::new(&start.absolute)
        .hidden(false)
        .ignore(false)
        .git_global(false)
        .git_exclude(false)
        .git_ignore(true)
        .parents(true)
        .require_git(false)
        .follow_links(false)
        .max_depth((depth == Depth::Direct).then_some(1))
        .filter_entry(|entry| entry.depth() == 0 || !is_repository(entry))
        .build()
}

fn is_repository(entry: &DirEntry) -> bool {
    entry.file_name() == ".git" && entry.file_type().is_some_and(|kind| kind.is_dir())
}
