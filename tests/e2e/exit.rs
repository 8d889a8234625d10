//! The table of exit codes, from outside.

use nix::sys::signal::Signal;

use crate::kit::{Mock, Place, Said};

#[test]
fn without_a_provider_the_error_names_the_variables_and_the_demo() {
    let said = Place::new().run(&["run", "hello"]);
    assert_eq!(said.code, Some(2));
    for name in ["DEEPSEEK_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "impresario demo"] {
        assert!(said.err.contains(name), "{name} in {}", said.err);
    }
    assert_eq!(said.out, "");
}

#[test]
fn usage_errors_and_unknown_sessions_exit_2() {
    let place = Place::new();
    place.ok(&["run", "[[SAY x]]", "-m", "scripted:builtin"]);
    for args in [
        &["frobnicate"][..],
        &["run", "--no-such-flag", "x"],
        &["run"],
        &["sessions", "tree", "nope"],
        &["sessions", "show", "@last:nobody"],
        &["run", "--resume", "nope", "x", "-m", "scripted:builtin"],
        &["run", "x", "-m", "nocolon"],
        &["run", "x", "-m", "scripted:builtin", "--tools", "no_such_tool"],
        &["run", "x", "-m", "scripted:builtin", "-C", "no/such/folder"],
    ] {
        let said = place.run(args);
        assert_eq!(said.code, Some(2), "{args:?}: {said:#?}");
        assert!(said.err.len() > 10, "{args:?} says nothing");
    }
    let unknown = place.run(&["sessions", "tree", "nope"]);
    let id = place.ok(&["sessions", "ls", "--json"]).events()[0]["id"].as_str().unwrap_or_default().to_owned();
    assert!(!id.is_empty() && unknown.err.contains(&id), "candidates are named: {}", unknown.err);
}

#[test]
fn outcomes_have_codes_of_their_own() {
    let place = Place::new();
    let scripted = |args: &[&str]| place.run(&[&["run", "-m", "scripted:builtin"], args].concat()).code;
    assert_eq!(scripted(&["[[SAY done]]"]), Some(0));
    assert_eq!(scripted(&["[[LEAF 1 error]]"]), Some(1));
    assert_eq!(scripted(&["[[TOOL list_dir {}]]", "--max-turns", "1"]), Some(3));
    assert_eq!(scripted(&["[[SAY late latency=60000]]", "--timeout", "1s"]), Some(124));
}

#[test]
fn a_server_that_is_not_there_exits_5_and_is_named() {
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let base_url = format!("http://{address}/v1");
    let said = place.run(&["run", "hello", "--base-url", &base_url, "-m", "openai:any"]);
    assert_eq!(said.code, Some(5), "{said:#?}");
    assert!(said.err.contains(&base_url) && said.err.contains("retry"), "{}", said.err);
    place.verify();
}

#[test]
fn a_store_that_another_process_holds_exits_6_and_names_it() {
    let place = Place::new();
    let mut holder = place.start(&["run", "[[SAY x latency=60000]]", "-m", "scripted:builtin"]);
    holder.wait_for("started", 1);
    let said = place.run(&["run", "[[SAY y]]", "-m", "scripted:builtin"]);
    assert_eq!(said.code, Some(6), "{said:#?}");
    assert!(said.err.contains("process"), "{}", said.err);
    // Reading works meanwhile.
    place.verify();
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.finish().code, Some(143));
}

#[test]
fn a_file_that_is_no_store_exits_6_and_is_left_alone() {
    let place = Place::new();
    std::fs::create_dir_all(place.home()).expect("a folder");
    let file = place.home().join("store.sqlite");
    let text = "not a database, and long enough that nobody could take it for one. ".repeat(4);
    std::fs::write(&file, &text).expect("a file");
    assert_eq!(place.run(&["run", "[[SAY y]]", "-m", "scripted:builtin"]).code, Some(6));
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), text);
}

#[test]
fn help_shows_the_table_and_the_first_line_says_what_is_in_force() {
    let place = Place::new();
    let help = place.ok(&["--help"]).out;
    for code in ["124", "130", "143"] {
        assert!(help.contains(code), "{code} in {help}");
    }
    let said = place.ok(&["run", "[[SAY hi]]", "-m", "scripted:builtin"]);
    assert_eq!(said.out, "hi\n");
    let first = said.err.lines().next().unwrap_or_default();
    for part in ["model scripted:builtin", "access read", "depth 3", "agents 200", "running 64", "no spending limit"] {
        assert!(first.contains(part), "{part} in {first}");
    }
}

#[test]
fn the_other_commands_answer() {
    let place = Place::new();
    let mock = Mock::start(&place);
    assert!(place.ok(&["doctor"]).out.contains("limit"));
    let args = ["doctor", "--base-url", &mock.base_url(), "-m", "openai:any"];
    let reached = place.run(&args);
    assert_eq!(reached.code, Some(0), "{reached:#?}");
    assert!(place.ok(&["completions", "bash"]).out.contains("impresario"));
    let schema: serde_json::Value =
        serde_json::from_str(&place.ok(&["schema", "events"]).out).expect("the schema is JSON");
    assert!(schema.is_object());
}

/// Whether a process with this command line is alive.
fn is_alive(command: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("there are processes").flatten();
    let line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
    processes.map(line).any(|line| String::from_utf8_lossy(&line).replace('\0', " ").trim() == command)
}

#[cfg(target_os = "linux")]
#[test]
fn a_second_interrupt_leaves_at_once_and_leaves_no_command_behind() {
    let place = Place::new();
    let nap = format!("sleep {}", 100_000 + std::process::id());
    // It ignores both signals, has a process in the background, and goes on when a sleep is killed.
    let command = format!("trap '' INT TERM; touch started; {nap} & while :; do {nap}; done");
    let prompt = format!("[[TOOL bash {{\"command\":\"{command}\"}}]]");
    let mut running = place.start(&["run", &prompt, "-m", "scripted:builtin", "--access", "full"]);
    while !place.dir().join("started").exists() || !is_alive(&nap) {
        std::thread::yield_now();
    }
    running.signal(Signal::SIGINT);
    running.wait_for("stopping", 1);
    running.signal(Signal::SIGINT);
    assert_eq!(running.finish().code, Some(130));
    while is_alive(&nap) {
        std::thread::yield_now();
    }
    place.verify();
}

#[test]
fn a_full_disk_behind_stdout_is_an_error() {
    let place = Place::new();
    for args in [&["[[SAY x]]"][..], &["[[SAY x]]", "--json"]] {
        let mut command = place.command(&[&["run", "-m", "scripted:builtin"], args].concat());
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device that is full");
        let said = Said::of(command.stdout(full).stderr(std::process::Stdio::piped()).output().expect("it starts"));
        assert_eq!(said.code, Some(1), "{args:?}: {said:#?}");
        assert!(said.err.contains("error: stdout: "), "{}", said.err);
    }
}

#[test]
fn an_empty_store_has_nothing_in_it_and_a_home_that_cannot_be_is_an_error() {
    let place = Place::new();
    std::fs::create_dir_all(place.home()).expect("a folder");
    std::fs::write(place.home().join("store.sqlite"), "").expect("a file");
    assert_eq!(place.ok(&["sessions", "ls"]).out, "");
    assert_eq!(place.ok(&["run", "[[SAY x]]", "-m", "scripted:builtin"]).out, "x\n");
    let said = place.run(&["sessions", "ls", "--home", "/dev/null/x"]);
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(said.err.contains("/dev/null/x"), "{}", said.err);
}

#[test]
fn a_fork_goes_on_in_a_copy_and_leaves_the_original_as_it_was() {
    let place = Place::new();
    let model = ["-m", "scripted:builtin"];
    place.ok(&[&["run", "[[SAY one]]"], &model[..]].concat());
    let listed = |place: &Place| place.ok(&["sessions", "ls"]).out.lines().count();
    let before = (place.ok(&["sessions", "show", "@last"]).out, listed(&place));
    assert_eq!(place.ok(&[&["run", "--continue", "--fork", "[[SAY two]]"], &model[..]].concat()).out, "two\n");
    assert_eq!(listed(&place), before.1 + 1);
    let copy = place.ok(&["sessions", "show", "@last"]).out;
    assert!(copy.contains("events inherited") && copy.contains("two"), "{copy}");
    let alone = place.run(&[&["run", "--fork", "x"], &model[..]].concat());
    assert_eq!(alone.code, Some(2), "{alone:#?}");
    assert!(alone.err.contains("--resume"), "{alone:#?}");
    place.verify();
    // The original has not grown: going on with it says nothing of the copy.
    let ids = place.ok(&["sessions", "ls"]).out;
    let original = ids.lines().last().and_then(|line| line.split_whitespace().next()).expect("a session").to_owned();
    assert_eq!(place.ok(&["sessions", "show", &original]).out, before.0);
}
