//! The environment of commands: what the runtime has, without what looks like a secret, and set so that nothing waits
//! for a person.

use std::ffi::{OsStr, OsString};

/// Words of a name that make its value a secret. Names end with them, or are one.
const SECRET: [&str; 15] = [
    "APIKEY",
    "AUTH",
    "CREDENTIAL",
    "CREDENTIALS",
    "KEY",
    "KEYS",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PASSWORDS",
    "PAT",
    "SECRET",
    "SECRETS",
    "TOKEN",
    "TOKENS",
];

/// Editors fail and pagers print instead of waiting at a terminal that nobody looks at.
const QUIET: [(&str, &str); 9] = [
    ("EDITOR", "false"),
    ("GIT_EDITOR", "false"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("MANPAGER", "cat"),
    ("PAGER", "cat"),
    ("SUDO_ASKPASS", "false"),
    ("TERM", "dumb"),
    ("VISUAL", "false"),
];

/// The variables of a command.
pub(crate) fn for_commands() -> impl Iterator<Item = (OsString, OsString)> {
    let kept = std::env::vars_os().filter(|(name, _)| !is_secret(name));
    kept.chain(QUIET.into_iter().map(|(name, value)| (name.into(), value.into())))
}

/// Whether a variable of this name looks like a secret.
fn is_secret(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    let mut words = name.split(['_', '-', '.']);
    let last = words.next_back().unwrap_or_default();
    SECRET.contains(&last)
        || ["APIKEY", "PASSWORD", "SECRET", "TOKEN"].iter().any(|ending| last.ends_with(ending))
        || words.any(|word| matches!(word, "APIKEY" | "PASSWORD" | "SECRET" | "TOKEN"))
        || name.contains("API_KEY")
        || name.contains("ACCESS_KEY")
        || name.contains("PRIVATE_KEY")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_like_keys_are_secret_and_others_are_not() {
        for name in [
            "OPENAI_API_KEY",
            "API_KEY_2",
            "gh_token",
            "AWS_SECRET_ACCESS_KEY",
            "DB_PASSWORD",
            "MY_SECRET",
            "GITHUBTOKEN",
        ] {
            assert!(is_secret(name.as_ref()), "{name}");
        }
        for name in ["PATH", "HOME", "KEYBOARD", "LANG", "CARGO_HOME", "PWD", "MONKEY", "TOKENIZERS_PARALLELISM"] {
            assert!(!is_secret(name.as_ref()), "{name}");
        }
    }
}
