//! A home under torture: commands are started as people start them, killed at a moment that the dice choose, and started
//! again, until there were enough kills; then everything comes to rest.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::archive::{self, Archive, listed, text, violations};
use crate::check::{self, Fate, Told};
use crate::dice::Dice;
use crate::figures::Figures;
use crate::kit::Place;

/// How long a command may take that is not killed.
const PATIENCE: Duration = Duration::from_secs(120);
/// The exit code of a store that another process has.
const STORE: i32 = 6;

/// Commands on one home.
pub(crate) struct World {
    pub(crate) place: Place,
    pub(crate) dice: Dice,
    pub(crate) told: Vec<Told>,
    pub(crate) figures: Figures,
    /// Which model is asked.
    model: Vec<String>,
    words: u64,
}

/// When a command is killed.
enum Moment {
    Never,
    /// So long after its start.
    Time(Duration),
    /// When it has printed so many lines.
    Lines(u64),
}

/// A running command; killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<Value>,
    seen: Vec<Value>,
}

impl Running {
    pub(crate) fn start(place: &Place, args: &[String]) -> Self {
        let mut command = place.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary starts");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let (sender, lines) = channel();
        // Ends with the pipe. A kill may cut the last line off.
        std::thread::spawn(move || {
            let whole = stdout.lines().map_while(Result::ok);
            whole.filter_map(|line| serde_json::from_str(&line).ok()).try_for_each(|line| sender.send(line))
        });
        Self { child, lines, seen: vec![] }
    }

    /// Reads until `is_enough` or the deadline or the end; whether it was enough.
    pub(crate) fn read(&mut self, deadline: Duration, mut is_enough: impl FnMut(&[Value]) -> bool) -> bool {
        let began = Instant::now();
        while !is_enough(&self.seen) {
            match self.lines.recv_timeout(deadline.saturating_sub(began.elapsed())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("a pid is small"));
        // It may have ended by itself; until it is waited for the pid is its own.
        nix::sys::signal::kill(pid, signal).expect("the process is ours");
    }

    /// `kill -9`, and all that it had printed.
    pub(crate) fn murder(mut self) -> (ExitStatus, Vec<Value>) {
        self.signal(nix::sys::signal::Signal::SIGKILL);
        self.end()
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> (ExitStatus, Vec<Value>) {
        let has_ended = |seen: &[Value]| seen.last().is_some_and(|line| line["type"] == "run.ended");
        assert!(self.read(PATIENCE, has_ended), "it does not end: {:#?}", self.seen.last());
        self.end()
    }

    fn end(&mut self) -> (ExitStatus, Vec<Value>) {
        let status = self.child.wait().expect("the child can be waited for");
        let mut seen = std::mem::take(&mut self.seen);
        seen.extend(self.lines.iter());
        (status, seen)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that tells somebody something.
struct Command {
    args: Vec<String>,
    text: String,
    /// Who is told; nobody yet for a root that is to be made.
    whom: Option<String>,
}

impl World {
    pub(crate) fn new(seed: u64, name: &str, model: &[&str]) -> Self {
        let model = model.iter().map(|word| (*word).to_owned()).collect();
        let (told, figures) = (vec![], Figures::default());
        Self { place: Place::new(), dice: Dice::of(seed, name), told, figures, model, words: 0 }
    }

    /// Kills so often, then lets everything come to rest and looks at it.
    pub(crate) fn torture(&mut self, kills: u64) {
        while self.figures.kills < kills {
            let command = self.choose();
            let running = self.start(&command);
            self.disturb(running, &command);
            self.figures.violations.extend(violations(&self.place));
            if self.dice.one_in(4) {
                self.look_around();
            }
        }
        self.rest();
    }

    /// Something to do: work, load, a word.
    fn work(&mut self) -> String {
        self.words += 1;
        let word = format!("k{}", self.words);
        let n = 2 + self.dice.below(7);
        match self.dice.below(8) {
            0..=3 => format!("journey {word}"),
            4 => format!("errand {word}"),
            5 => format!("[[FANOUT n={n} tool=subagent latency=4]] {word}"),
            6 => format!("[[FANOUT n={n} tool=subagent background=true context=fork latency=6]] {word}"),
            _ => format!("[[SAY latency=2 {word}]]"),
        }
    }

    /// One of the ways in which a person starts something or goes on with it.
    fn choose(&mut self) -> Command {
        let sessions = listed(&self.place);
        let roots: Vec<&Value> = sessions.iter().filter(|session| session["parent"].is_null()).collect();
        let text = self.work();
        if roots.is_empty() || self.dice.one_in(9) {
            return self.command(&["run", &text], &text, None);
        }
        let root = id(roots[self.dice.below(roots.len() as u64) as usize]);
        let any = id(&sessions[self.dice.below(sessions.len() as u64) as usize]);
        match self.dice.below(8) {
            0 | 1 => self.command(&["run", "--continue", &text], &text, Some(id(roots[0]))),
            2 | 3 => self.command(&["run", "--resume", &root, &text], &text, Some(root.clone())),
            4 => self.command(&["run", "--resume", &any, "--fork", &text], &text, None),
            5 | 6 => self.command(&["send", &any, &text], &text, Some(any.clone())),
            _ => self.command(&["steer", &any, &text], &text, Some(any.clone())),
        }
    }

    fn command(&mut self, args: &[&str], text: &str, whom: Option<String>) -> Command {
        let jobs = ["1", "2", "4", "64"][self.dice.below(4) as usize];
        let rest = ["-j", jobs, "--json", "--access", "full", "--max-agents", "100000"];
        let args = args.iter().chain(&rest).map(|word| (*word).to_owned());
        Command { args: args.chain(self.model.iter().cloned()).collect(), text: text.to_owned(), whom }
    }

    fn start(&mut self, command: &Command) -> Running {
        self.figures.restarts += 1;
        Running::start(&self.place, &command.args)
    }

    /// From now on this model is asked.
    pub(crate) fn uses(&mut self, model: &str) {
        self.model = vec!["-m".into(), model.to_owned()];
    }

    /// Kills it at some moment, or lets it end.
    fn disturb(&mut self, mut running: Running, command: &Command) {
        if self.dice.one_in(8) {
            self.meet(&mut running, command);
        }
        let moment = match self.dice.below(12) {
            0 => Moment::Never,
            1..=5 => Moment::Lines(1 + self.dice.below(60)),
            _ => Moment::Time(Duration::from_micros(self.dice.below(150_000))),
        };
        let (status, seen) = match moment {
            Moment::Never => running.finish(),
            Moment::Lines(lines) => {
                running.read(PATIENCE, |seen| seen.len() as u64 >= lines);
                self.kill(running)
            }
            Moment::Time(time) => {
                running.read(time, |_| false);
                self.kill(running)
            }
        };
        self.note(command, status, &seen);
    }

    /// Now and then in the middle of a planned end.
    fn kill(&mut self, mut running: Running) -> (ExitStatus, Vec<Value>) {
        if self.dice.one_in(8) {
            running.signal(nix::sys::signal::Signal::SIGINT);
            running.read(Duration::from_micros(self.dice.below(30_000)), |_| false);
        }
        running.murder()
    }

    /// Somebody else writes to an agent of a store that is in use, and somebody reads it.
    fn meet(&mut self, running: &mut Running, first: &Command) {
        let has_begun = |seen: &[Value]| seen.iter().any(|line| line["type"] == "turn.started");
        if !running.read(PATIENCE, has_begun) {
            return;
        }
        self.figures.violations.extend(violations(&self.place));
        let whom = first.whom.clone().unwrap_or_else(|| "@last".into());
        let text = self.work();
        let second = self.command(&["send", &whom, &text], &text, Some(whom.clone()));
        let (status, seen) = Running::start(&self.place, &second.args).finish();
        self.note(&second, status, &seen);
    }

    /// Remembers what became of what a command told.
    fn note(&mut self, command: &Command, status: ExitStatus, seen: &[Value]) {
        let is_killed = status.signal() == Some(9);
        self.figures.kills += u64::from(is_killed);
        self.figures.ended += u64::from(!is_killed);
        let is_whom = |line: &Value| match &command.whom {
            Some(whom) => line["agent"] == whom.as_str(),
            None => line["parent"].is_null(),
        };
        // A model is asked and a tool is started only behind what is durable; before this command nobody was woken.
        let follows = |line: &Value| ["message", "tool.started", "tool.ended"].iter().any(|kind| line["type"] == *kind);
        let is_taken = seen.iter().any(|line| follows(line) && is_whom(line));
        let fate = match status.code() {
            Some(0) => Fate::Acknowledged,
            Some(STORE) => Fate::Refused,
            _ if is_taken => Fate::Acknowledged,
            _ => Fate::Unknown,
        };
        // Who was stopped says so; nothing else that was started here may fail.
        if !matches!(status.code(), None | Some(0 | STORE | 130)) {
            let end = seen.last().cloned().unwrap_or_default();
            self.figures.violations.push(format!("{:?} ended with {status}: {end}", command.args));
        }
        self.told.push(Told { text: command.text.clone(), fate });
    }

    /// What people do who wonder: nothing of it changes anything, and nothing of it hangs.
    fn look_around(&mut self) {
        let sessions = listed(&self.place);
        let Some(some) = sessions.get(self.dice.below(sessions.len().max(1) as u64) as usize) else { return };
        let waited = self.place.run(&["wait", &id(some)]);
        let code = if text(&some["state"]) == "completed" { 0 } else { 1 };
        if waited.code != Some(code) {
            self.figures.violations.push(format!("wait for {some} ended with {waited:?}"));
        }
    }

    /// Tells every root a word without a kill, twice: the second time nothing may happen but that, apart from the mark of
    /// a new life in a log that has got mail at the first.
    pub(crate) fn rest(&mut self) {
        self.come_to_rest();
        let before = archive::lengths(&self.place);
        self.come_to_rest();
        self.figures.violations.extend(violations(&self.place));
        let after = Archive::read(&self.place);
        for session in after.sessions.values().filter(|session| session.parent.is_some()) {
            let more = &session.events[before.get(&session.id).copied().unwrap_or(0)..];
            let mut kinds = more.iter().map(|event| text(&event["type"])).filter(|kind| kind != "session/end-seed");
            if let Some(kind) = kinds.next() {
                let what = format!("{} {} goes on at rest with {kind}", session.root, session.path);
                self.figures.violations.push(what);
            }
        }
        self.look_at(&after);
    }

    fn come_to_rest(&mut self) {
        let sessions = listed(&self.place);
        for root in sessions.iter().filter(|session| session["parent"].is_null()) {
            self.words += 1;
            let text = format!("[[SAY rest k{}]]", self.words);
            let command = self.command(&["run", "--resume", &id(root), &text], &text, Some(id(root)));
            let (status, seen) = self.start(&command).finish();
            self.note(&command, status, &seen);
        }
    }

    /// All rules for a store at rest.
    pub(crate) fn look_at(&mut self, archive: &Archive) {
        let counter = std::fs::read_to_string(self.place.dir().join("counter")).unwrap_or_default();
        check::whole(archive, &self.told, &counter, &mut self.figures);
    }
}

fn id(session: &Value) -> String {
    text(&session["id"])
}
