//! Which model answers: from the flags, else from the keys in the environment.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::args::ModelArgs;
use crate::failed::Failed;
use crate::home;

/// Providers whose addresses are known.
const KNOWN: [(&str, &str, &str); 3] = [
    ("deepseek", "https://api.deepseek.com/v1", "deepseek-chat"),
    ("openai", "https://api.openai.com/v1", "gpt-4o-mini"),
    ("ollama", "http://127.0.0.1:11434/v1", ""),
];

/// Who was chosen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    /// The part of `provider:model` before the colon.
    pub(crate) provider: String,
    /// The part behind it.
    pub(crate) model: String,
    /// How it is reached.
    pub(crate) route: Route,
}

/// How a model is reached.
#[derive(Clone, PartialEq)]
pub(crate) enum Route {
    /// In this process.
    Scripted(Script),
    /// From a recording.
    Replay(Source),
    /// Over HTTP.
    Http {
        /// Up to and with `/v1`.
        base_url: String,
        /// The key, if one is known.
        key: Option<String>,
        /// The variable that a key is looked for in.
        key_name: String,
    },
}

impl std::fmt::Debug for Route {
    /// Never shows the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Scripted(script) => f.debug_tuple("Scripted").field(script).finish(),
            Self::Replay(source) => f.debug_tuple("Replay").field(source).finish(),
            Self::Http { base_url, key_name, .. } => f.debug_tuple("Http").field(base_url).field(key_name).finish(),
        }
    }
}

/// What a scripted model says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Script {
    /// The rules that come with it.
    Builtin,
    /// The demo.
    Demo,
    /// A file.
    File(PathBuf),
}

impl Script {
    /// `builtin`, `demo`, or the name of a file.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "builtin" => Self::Builtin,
            "demo" => Self::Demo,
            file => Self::File(file.into()),
        }
    }
}

/// What a replay answers from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// A folder that `--record` has written, or that session logs are in, or one such log.
    Path(PathBuf),
    /// A stored root: as everywhere a full id, a prefix, or `@last`.
    Session(String),
}

impl Source {
    /// `session/ID` is a stored session, everything else a path: `./session/x` is a folder of that name.
    fn named(name: &str) -> Self {
        match name.strip_prefix("session/") {
            Some(id) => Self::Session(id.to_owned()),
            None => Self::Path(name.into()),
        }
    }
}

impl Choice {
    /// The scripted demo.
    pub(crate) fn demo() -> Self {
        Self { provider: "scripted".into(), model: "demo".into(), route: Route::Scripted(Script::Demo) }
    }

    /// `provider:model`
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.provider, self.model)
    }

    /// The flags that choose it again.
    pub(crate) fn flags(&self) -> String {
        let model = format!("-m {}", home::quoted(Path::new(&self.name())));
        match &self.route {
            // What stands before an @ may be a secret.
            Route::Http { base_url, .. } if !self.is_at_its_known_address(base_url) && !base_url.contains('@') => {
                format!("{model} --base-url {}", home::quoted(Path::new(base_url)))
            }
            Route::Http { .. } | Route::Scripted(_) | Route::Replay(_) => model,
        }
    }

    fn is_at_its_known_address(&self, base_url: &str) -> bool {
        KNOWN.iter().any(|(provider, url, _)| *provider == self.provider && *url == base_url)
    }

    /// Whether calls cost nothing.
    pub(crate) fn is_scripted(&self) -> bool {
        matches!(self.route, Route::Scripted(_) | Route::Replay(_))
    }

    /// What `args` and the environment say; `env` reads a variable.
    pub(crate) fn of(args: &ModelArgs, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failed> {
        let env = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let base_url = args.base_url.clone().filter(|url| !url.trim().is_empty());
        let name = match args.model.as_deref().filter(|name| !name.trim().is_empty()) {
            Some(name) => name.to_owned(),
            None if env("DEEPSEEK_API_KEY").is_some() => "deepseek:deepseek-chat".into(),
            None if env("OPENAI_API_KEY").is_some() || env("OPENAI_BASE_URL").is_some() || base_url.is_some() => {
                "openai:gpt-4o-mini".into()
            }
            None => return Err(nobody()),
        };
        let (provider, model) =
            name.split_once(':').filter(|(provider, model)| !provider.is_empty() && !model.is_empty()).ok_or_else(
                || Failed::usage(format!("`{name}` is no model: write provider:name, as in deepseek:deepseek-chat")),
            )?;
        if provider == "scripted" {
            return Ok(Self {
                provider: provider.into(),
                model: model.into(),
                route: Route::Scripted(Script::named(model)),
            });
        }
        if provider == "replay" {
            let route = Route::Replay(Source::named(model));
            return Ok(Self { provider: provider.into(), model: model.into(), route });
        }
        let key_name = format!("{}_API_KEY", provider.to_uppercase().replace('-', "_"));
        let known = KNOWN.iter().find(|(known, ..)| *known == provider);
        let own_url = base_url.or_else(|| (provider == "openai").then(|| env("OPENAI_BASE_URL")).flatten());
        let key = env(&key_name);
        if key.is_none() && own_url.is_none() && matches!(provider, "deepseek" | "openai") {
            return Err(Failed::usage(format!(
                "{provider} needs a key: set {key_name}, or give --base-url to go elsewhere"
            )));
        }
        let base_url = own_url.or_else(|| known.map(|(_, url, _)| (*url).to_owned())).ok_or_else(|| {
            let names = KNOWN.map(|(name, ..)| name).join(", ");
            Failed::usage(format!(
                "no address for the provider `{provider}`: give --base-url; known are {names}, scripted, replay"
            ))
        })?;
        let base_url = checked(&base_url)?;
        Ok(Self { provider: provider.into(), model: model.into(), route: Route::Http { base_url, key, key_name } })
    }
}

fn nobody() -> Failed {
    Failed::usage(
        "no model is configured\n\
         set DEEPSEEK_API_KEY or OPENAI_API_KEY (OPENAI_BASE_URL is honoured),\n\
         or name one with --model provider:name or IMPRESARIO_MODEL, and its address with --base-url,\n\
         or look around without any: impresario demo",
    )
}

fn checked(url: &str) -> Result<String, Failed> {
    let trimmed = url.trim().trim_end_matches('/');
    let rest = trimmed.strip_prefix("http://").or_else(|| trimmed.strip_prefix("https://"));
    match rest {
        Some(host) if !host.is_empty() => Ok(trimmed.to_owned()),
        _ => Err(Failed::usage(format!("`{url}` is no address: it begins with http:// or https://"))),
    }
}

/// What `--set` asks for, by wire names; `max_output_tokens` apart.
pub(crate) fn settings(pairs: &[String]) -> Result<(Map<String, Value>, Option<u64>), Failed> {
    const NAMES: [(&str, &str); 5] = [
        ("temperature", "temperature"),
        ("top_p", "topP"),
        ("seed", "seed"),
        ("reasoning_effort", "reasoningEffort"),
        ("max_output_tokens", "maxTokens"),
    ];
    let mut settings = Map::new();
    for pair in pairs {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| Failed::usage(format!("--set {pair}: write name=value, as in temperature=0")))?;
        let (_, wire) = NAMES.iter().find(|(known, _)| *known == name.trim()).ok_or_else(|| {
            Failed::usage(format!("--set: no setting `{name}`; there are {}", NAMES.map(|(known, _)| known).join(", ")))
        })?;
        let value = value.trim();
        let value = match *wire {
            "reasoningEffort" => Value::from(value),
            _ => serde_json::from_str(value)
                .ok()
                .filter(Value::is_number)
                .ok_or_else(|| Failed::usage(format!("--set {name}: `{value}` is no number")))?,
        };
        settings.insert((*wire).into(), value);
    }
    let max_tokens = match settings.remove("maxTokens") {
        None => None,
        Some(value) => {
            Some(value.as_u64().ok_or_else(|| Failed::usage("--set max_output_tokens: write a whole number"))?)
        }
    };
    Ok((settings, max_tokens))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn choose(model: Option<&str>, base_url: Option<&str>, env: &[(&str, &str)]) -> Result<Choice, Failed> {
        let args = ModelArgs { model: model.map(Into::into), base_url: base_url.map(Into::into), settings: Vec::new() };
        Choice::of(&args, &|name| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into()))
    }

    #[test]
    fn keys_choose_the_provider_and_deepseek_comes_first() {
        let both = [("DEEPSEEK_API_KEY", "d"), ("OPENAI_API_KEY", "o")];
        assert_eq!(choose(None, None, &both).expect("a choice").name(), "deepseek:deepseek-chat");
        assert_eq!(choose(None, None, &both[1..]).expect("a choice").provider, "openai");
        let empty = [("DEEPSEEK_API_KEY", ""), ("OPENAI_API_KEY", "o")];
        assert_eq!(choose(None, None, &empty).expect("a choice").provider, "openai");
    }

    #[test]
    fn without_any_model_the_error_names_every_way_out() {
        let error = choose(None, None, &[]).expect_err("nobody");
        assert_eq!(error.exit, Exit::Usage);
        for way in
            ["DEEPSEEK_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "IMPRESARIO_MODEL", "--model", "--base-url"]
        {
            assert!(error.text.contains(way), "{way}");
        }
        assert!(error.text.contains("impresario demo"));
    }

    #[test]
    fn the_name_splits_at_the_first_colon() {
        let choice = choose(Some("ollama:qwen:7b"), None, &[]).expect("a choice");
        assert_eq!((choice.provider.as_str(), choice.model.as_str()), ("ollama", "qwen:7b"));
        assert!(choose(Some("deepseek-chat"), None, &[]).is_err());
        assert!(choose(Some(":x"), None, &[]).is_err());
    }

    #[test]
    fn a_replay_is_of_a_path_or_of_a_stored_session() {
        let source = |name: &str| match choose(Some(name), None, &[]).expect("a choice").route {
            Route::Replay(source) => source,
            other => panic!("no replay: {other:?}"),
        };
        assert_eq!(source("replay:session/@last"), Source::Session("@last".into()));
        assert_eq!(source("replay:./session/x"), Source::Path("./session/x".into()));
        assert_eq!(source("replay:c:\\kept"), Source::Path("c:\\kept".into()));
    }

    #[test]
    fn an_address_makes_the_key_optional() {
        assert!(choose(Some("openai:x"), None, &[]).is_err());
        let choice = choose(Some("openai:x"), Some("http://127.0.0.1:9/v1/"), &[]).expect("a choice");
        assert!(matches!(choice.route, Route::Http { base_url, key: None, .. } if base_url == "http://127.0.0.1:9/v1"));
        assert!(choose(Some("mine:x"), None, &[]).is_err());
        assert!(choose(Some("openai:x"), Some("127.0.0.1:9"), &[]).is_err());
    }

    #[test]
    fn a_key_is_never_shown() {
        let choice = choose(None, None, &[("OPENAI_API_KEY", "sk-secret")]).expect("a choice");
        assert!(!format!("{choice:?}").contains("sk-secret"));
    }

    #[test]
    fn settings_have_known_names_and_numbers() {
        let set = |pairs: &[&str]| settings(&pairs.iter().map(|pair| (*pair).to_owned()).collect::<Vec<_>>());
        let (map, max) = set(&["top_p=0.5", "max_output_tokens=7", "reasoning_effort=high"]).expect("settings");
        assert_eq!((map["topP"].clone(), map["reasoningEffort"].clone(), max), (0.5.into(), "high".into(), Some(7)));
        assert!(set(&["top_k=1"]).is_err());
        assert!(set(&["temperature=hot"]).is_err());
        assert!(set(&["temperature"]).is_err());
    }
}
