//! A command and all that it started: one process group, which ends with its owner.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep_until};

use crate::environment;
use crate::output::Output;

/// From TERM to KILL.
const GRACE: Duration = Duration::from_secs(3);
/// From KILL to giving up: a process that hangs in the kernel cannot be ended by anyone.
const KILL_WAIT: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The group. Dropping it kills what is left of it.
pub(crate) struct Group {
    leader: Child,
    id: Pid,
    /// How the leader ended, once it was waited for.
    ended: Option<ExitStatus>,
    /// Nothing is left; the number may belong to strangers by now and gets no more signals.
    gone: bool,
    /// Ends the group when this process is killed and can do nothing itself.
    watchdog: Option<Child>,
}

impl Group {
    /// Starts a shell command as the leader of a new group, in a new session where the machine can do that, so that
    /// nothing in it can wait at the terminal of the runtime.
    pub(crate) fn spawn(command: &str, dir: &Path) -> io::Result<(Self, Output)> {
        let (reader, writer) = io::pipe()?;
        let shell = program("bash").unwrap_or_else(|| PathBuf::from("/bin/sh"));
        let mut start = match program("setsid") {
            // Not a group leader yet, so that setsid need not fork and the process stays the same.
            Some(setsid) => {
                let mut start = Command::new(setsid);
                start.arg(shell);
                start
            }
            None => {
                let mut start = Command::new(shell);
                start.process_group(0);
                start
            }
        };
        start
            .arg("-c")
            .arg(command)
            .current_dir(dir)
            .env_clear()
            .envs(environment::for_commands())
            .env("PWD", dir)
            .stdin(Stdio::null())
            .stdout(Stdio::from(writer.try_clone()?))
            .stderr(Stdio::from(writer))
            .kill_on_drop(true);
        let leader = start.spawn()?;
        // The command holds the writing ends, and the pipe closes only when they are gone.
        drop(start);
        let id = leader.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("the process has no number"))?;
        let group = Self { leader, id, ended: None, gone: false, watchdog: watchdog(id) };
        let output = Output::new(pipe::Receiver::from_owned_fd(reader.into())?);
        Ok((group, output))
    }

    /// Waits for the end of the leader. Loses nothing when it is dropped half way.
    pub(crate) async fn leader(&mut self) -> io::Result<ExitStatus> {
        let status = self.leader.wait().await?;
        self.ended = Some(status);
        // Asked at once, while the number can hardly have been given to anyone else.
        self.left();
        Ok(status)
    }

    /// How many processes of the group run besides a leader that has ended.
    pub(crate) fn left(&mut self) -> usize {
        if self.gone {
            return 0;
        }
        let left = running(self.id);
        self.gone = left == 0 && self.ended.is_some();
        if self.gone {
            self.dismiss_watchdog();
        }
        left
    }

    /// Ends the watchdog before its pipe closes, so that it never signals a number that belongs to nobody, or to
    /// strangers.
    fn dismiss_watchdog(&mut self) {
        if let Some(mut watchdog) = self.watchdog.take() {
            // One that has ended already is as good.
            let _ = watchdog.start_kill();
        }
    }

    /// Ends the whole group: TERM, then KILL for what does not go. Returns when nothing is left, the leader reaped.
    pub(crate) async fn stop(&mut self, output: &mut Output) {
        self.signal(Signal::SIGTERM);
        // What is stopped cannot end.
        self.signal(Signal::SIGCONT);
        if self.ends_within(GRACE, output).await {
            return;
        }
        self.signal(Signal::SIGKILL);
        if !self.ends_within(KILL_WAIT, output).await {
            tracing::warn!(group = self.id.as_raw(), "processes are left after KILL");
        }
    }

    async fn ends_within(&mut self, longest: Duration, output: &mut Output) -> bool {
        let end = Instant::now() + longest;
        // What blocks at a full pipe cannot end either, so that reading goes on meanwhile.
        loop {
            let now = Instant::now();
            tokio::select! {
                biased;
                _ = self.leader.wait(), if self.ended.is_none() => {}
                () = sleep_until(now + LOOK_AGAIN) => {}
                () = output.read() => {}
            }
            // Reaping is also how the status becomes known.
            if self.ended.is_none() {
                self.ended = self.leader.try_wait().ok().flatten();
            }
            if self.ended.is_some() && self.left() == 0 {
                return true;
            }
            if now >= end {
                return false;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if self.gone {
            return;
        }
        // An error means that nobody is there: before the leader has its group, which then is the only process.
        if killpg(self.id, signal).is_err() && self.ended.is_none() {
            let _ = kill(self.id, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.left() > 0 || self.ended.is_none() {
            self.signal(Signal::SIGKILL);
        }
        self.dismiss_watchdog();
    }
}

/// A process that waits at a pipe whose other end only this process holds, and kills the group when it closes. Nothing
/// that this process does itself can help when it is killed; a command without a watchdog runs all the same.
fn watchdog(group: Pid) -> Option<Child> {
    Command::new("/bin/sh")
        .args(["-c", r#"read _; kill -s KILL -- "-$0""#])
        .arg(group.to_string())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Signals from a terminal are for the runtime, which ends what it started.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .inspect_err(|error| tracing::warn!(%error, "a command runs without a watchdog"))
        .ok()
}

/// How many processes of the group run. Those that have ended and wait to be reaped by others do not count.
fn running(group: Pid) -> usize {
    if killpg(group, None).is_err() {
        return 0;
    }
    let Ok(processes) = std::fs::read_dir("/proc") else { return 1 };
    let mut known = false;
    let running = processes.flatten().filter(|process| {
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // `pid (name) state parent group …`, where the name may hold anything.
        let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let state = fields.next();
        known |= state.is_some();
        let is_member = fields.nth(1).and_then(|id| id.parse().ok()) == Some(group.as_raw());
        is_member && !matches!(state, Some("Z" | "X"))
    });
    let running = running.count();
    if known { running } else { 1 }
}

/// Where a program is, as a shell would find it.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_absolute() && file.is_file())
}
