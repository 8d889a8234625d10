//! A home of its own for each test, the binary in it, and a mock server that ends with the test.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// How long a state is waited for before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Variables that choose a provider: none of the caller's may leak in.
const PROVIDERS: [&str; 5] =
    ["DEEPSEEK_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "IMPRESARIO_MODEL", "IMPRESARIO_LOG"];

/// Waits until there is something.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// A home and a folder to work in.
pub(crate) struct Place {
    home: TempDir,
    dir: TempDir,
}

/// What a finished command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = || tempfile::tempdir().expect("a temporary folder");
        Self { home: folder(), dir: folder() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.home.path().join("home")
    }

    /// The binary, in the folder, with the home and no provider.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: &[A]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_impresario"));
        command.args(args).current_dir(self.dir()).env("IMPRESARIO_HOME", self.home()).stdin(Stdio::null());
        for name in PROVIDERS {
            command.env_remove(name);
        }
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run<A: AsRef<OsStr> + Debug>(&self, args: &[A]) -> Said {
        Said::of(self.command(args).output().expect("the binary starts"))
    }

    /// Runs the binary and expects success.
    pub(crate) fn ok<A: AsRef<OsStr> + Debug>(&self, args: &[A]) -> Said {
        let said = self.run(args);
        assert_eq!(said.code, Some(0), "{args:?}: {said:#?}");
        said
    }

    /// Starts the binary with pipes.
    pub(crate) fn start<A: AsRef<OsStr>>(&self, args: &[A]) -> Started {
        let mut command = self.command(args);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        Started(child)
    }

    /// Every log of the home keeps every invariant.
    pub(crate) fn verify(&self) -> String {
        let verified = self.ok(&["sessions", "verify", "--all"]).out;
        assert!(verified.contains("0 violations"), "{verified}");
        verified
    }

    /// The lines of the tree of the last root, one an agent.
    pub(crate) fn tree(&self) -> Vec<String> {
        let tree = self.ok(&["sessions", "tree", "@last"]).out;
        let mut lines: Vec<String> = tree.lines().map(str::to_owned).collect();
        lines.pop();
        lines
    }
}

impl Said {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the binary writes UTF-8");
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Standard output as JSON lines.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect()
    }

    /// The one event that ends every stream.
    pub(crate) fn end(&self) -> Value {
        let end = self.events().pop().expect("a stream is never empty");
        assert_eq!(end["type"], "run.ended", "{end}");
        assert_eq!(end["exit_code"].as_i64().map(|code| code as i32), self.code, "{end}");
        end
    }
}

/// A running command; killed with the test.
pub(crate) struct Started(Child);

impl Started {
    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).expect("a pid is small"));
        nix::sys::signal::kill(pid, signal).expect("the process is ours");
    }

    pub(crate) fn stdout(&mut self) -> BufReader<std::process::ChildStdout> {
        BufReader::new(self.0.stdout.take().expect("stdout is a pipe"))
    }

    /// Reads standard error until `count` lines contain `mark`.
    pub(crate) fn wait_for(&mut self, mark: &str, count: usize) {
        let mut err = BufReader::new(self.0.stderr.take().expect("stderr is a pipe"));
        let (mut found, mut all) = (0, String::new());
        while found < count {
            let mut line = String::new();
            let read = err.read_line(&mut line).expect("stderr reads");
            assert!(read > 0, "it ended before {count} lines with {mark:?}:\n{all}");
            found += usize::from(line.contains(mark));
            all.push_str(&line);
        }
        self.0.stderr = Some(err.into_inner());
    }

    pub(crate) fn finish(mut self) -> Said {
        let read = |pipe: Option<&mut dyn Read>| {
            let mut text = String::new();
            if let Some(pipe) = pipe {
                pipe.read_to_string(&mut text).expect("the binary writes UTF-8");
            }
            text
        };
        let out = read(self.0.stdout.as_mut().map(|pipe| pipe as &mut dyn Read));
        let err = read(self.0.stderr.as_mut().map(|pipe| pipe as &mut dyn Read));
        let code = self.0.wait().expect("the child can be waited for").code();
        Said { code, out, err }
    }

    /// `kill -9`
    pub(crate) fn murder(mut self) {
        self.0.kill().expect("the process is ours");
        self.0.wait().expect("the child can be waited for");
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `impresario mock-model` on a port of its own.
pub(crate) struct Mock {
    _server: Started,
    address: String,
}

impl Mock {
    /// One that answers at once.
    pub(crate) fn start(place: &Place) -> Self {
        Self::serve(place, &["mock-model", "--latency", "0"])
    }

    /// One as it comes.
    pub(crate) fn start_plain(place: &Place) -> Self {
        Self::serve(place, &["mock-model"])
    }

    /// One that plays the script in a file, at once where that does not say otherwise.
    pub(crate) fn scripted(place: &Place, script: &Path) -> Self {
        Self::serve(place, &["mock-model", "--latency", "0", "--script", &script.display().to_string()])
    }

    /// One that answers at once and adds what it is asked to a file.
    pub(crate) fn recording(place: &Place, record: &Path) -> Self {
        Self::serve(place, &["mock-model", "--latency", "0", "--record", &record.display().to_string()])
    }

    fn serve(place: &Place, args: &[&str]) -> Self {
        let mut server = place.start(args);
        let mut line = String::new();
        server.stdout().read_line(&mut line).expect("it says where it listens");
        let address = line.trim().trim_start_matches("listening on http://").trim_end_matches("/v1").to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{line}");
        Self { _server: server, address }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn stats(&self) -> Value {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        let request = format!("GET /stats HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).expect("the server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the server answers");
        let body = answer.split("\r\n\r\n").nth(1).expect("an answer has a body");
        serde_json::from_str(body).expect("the figures are JSON")
    }

    /// Waits until the server's figures are as they should be.
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        loop {
            let stats = self.stats();
            if is_so(&stats) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {stats}");
            std::thread::yield_now();
        }
    }
}
