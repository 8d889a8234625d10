//! `doctor`: what is configured, reachable and writable, and the limits in force.

use std::time::Duration;

use impresario::Limits;
use serde_json::{Map, Value};
use tokio::net::TcpStream;

use crate::args::{Common, DoctorArgs};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::home::Home;
use crate::provider::{Choice, Route};
use crate::{backend, figures, print, run};

/// How long a provider may take to answer the door.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prints what was found. Nothing that is missing is an error: that is what the command is for.
pub(crate) async fn doctor(common: &Common, args: &DoctorArgs) -> Result<Exit, Failed> {
    let home = Home::of(common)?;
    let choice = Choice::of(&args.model, &|name| std::env::var(name).ok());
    let mut found = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    found.push(("home", home.dir().display().to_string()));
    found.push(("home writable", home.probe().map_or_else(|error| format!("no: {error}"), |()| "yes".into())));
    found.extend(store(&home));
    found.extend(model(&choice).await);
    let is_scripted = choice.as_ref().is_ok_and(Choice::is_scripted);
    found.extend(limits(&run::limits(&args.bounds, is_scripted)));
    let text = if common.json {
        let object: Map<String, Value> =
            found.into_iter().map(|(name, value)| (name.replace(' ', "_"), value.into())).collect();
        format!("{}\n", Value::Object(object))
    } else {
        found.iter().map(|(name, value)| format!("{name:<22}{value}\n")).collect()
    };
    print::answer(&text)
}

fn store(home: &Home) -> Vec<(&'static str, String)> {
    let path = home.store();
    let mut found = vec![("store", path.display().to_string())];
    if !path.exists() {
        found.push(("store state", "not made yet".into()));
        return found;
    }
    let held = backend::holder(home).map_or_else(|| "by nobody".into(), |pid| format!("by the process {pid}"));
    found.push(("store held", held));
    match backend::examine(&path) {
        Ok((size, wrong)) => {
            let integrity = if wrong.is_empty() { "ok".into() } else { print::one_line(&wrong.join("; "), 400) };
            found.extend([("store size", figures::bytes(size)), ("store integrity", integrity)]);
        }
        Err(failure) => found.push(("store state", failure.text)),
    }
    found
}

async fn model(choice: &Result<Choice, Failed>) -> Vec<(&'static str, String)> {
    let choice = match choice {
        Ok(choice) => choice,
        Err(failure) => return vec![("model", print::one_line(&failure.text, 400))],
    };
    let mut found = vec![("model", choice.name())];
    match &choice.route {
        Route::Scripted(_) => found.push(("provider", "in this process, no network".into())),
        Route::Replay(_) => found.push(("provider", "a recording, no network".into())),
        Route::Http { base_url, key, key_name } => {
            let key = if key.is_some() { format!("from {key_name}") } else { format!("none ({key_name} is not set)") };
            found.extend([("address", base_url.clone()), ("key", key), ("reachable", reachable(base_url).await)]);
        }
    }
    found
}

/// Whether anybody listens at the address. Whether the key works is seen with the first request.
async fn reachable(base_url: &str) -> String {
    let Some((host, port)) = host_and_port(base_url) else {
        return "no: the address names no host".into();
    };
    match tokio::time::timeout(PATIENCE, TcpStream::connect((host.as_str(), port))).await {
        Ok(Ok(_)) => format!("yes ({host}:{port} accepts connections)"),
        Ok(Err(error)) => format!("no: {error}"),
        Err(_) => format!("no: no answer within {} s", PATIENCE.as_secs()),
    }
}

fn host_and_port(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let default = if scheme == "https" { 443 } else { 80 };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, default),
    };
    let host = host.trim_matches(['[', ']']);
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

fn limits(limits: &Limits) -> Vec<(&'static str, String)> {
    let tokens = limits.tokens_max.map_or_else(|| "none".into(), |max| max.to_string());
    vec![
        ("limit depth", limits.depth_max.to_string()),
        ("limit agents", limits.descendants_max.to_string()),
        ("limit running", limits.running_max.to_string()),
        ("limit steps a turn", limits.steps_max.to_string()),
        ("limit parallel calls", limits.parallel_calls_max.to_string()),
        ("limit calls an answer", limits.answer_calls_max.to_string()),
        ("limit result bytes", limits.result_bytes_max.to_string()),
        ("limit tokens a turn", tokens),
        ("limit message bytes", limits.message_bytes_max.to_string()),
        ("limit idle", limits.idle_after.map_or_else(|| "none".into(), |idle| format!("{} s", idle.as_secs()))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_host_and_port() {
        assert_eq!(host_and_port("https://api.deepseek.com/v1"), Some(("api.deepseek.com".into(), 443)));
        assert_eq!(host_and_port("http://127.0.0.1:11434/v1"), Some(("127.0.0.1".into(), 11434)));
        assert_eq!(host_and_port("http://[::1]:80/v1"), Some(("::1".into(), 80)));
        assert_eq!(host_and_port("http://[::1]/v1"), Some(("::1".into(), 80)));
        assert_eq!(host_and_port("http://:80"), None);
        assert_eq!(host_and_port("nonsense"), None);
    }
}
