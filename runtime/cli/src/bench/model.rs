//! The model of the scenarios: it does what its prompt says, whoever asks and in whatever order.
//!
//! `work` is answered. `rounds 8,1 | REST` asks for eight subagents that are told REST, then for one, then answers.
//! `race 8 | REST` has eight in the background and waits for the first; `gather 8 | REST` waits for all. `forever` is answered
//! in an hour, `speak` with five hundred words.

use std::time::Duration;

use impresario::models::scripted::{Answer, Answered, Latency, ScriptedModel, View};
use serde_json::json;

use super::scenario::Scenario;

/// How long an answer takes that is never waited for.
const EVER: Duration = Duration::from_secs(3_600);

/// How many words a speech has.
const SPOKEN: usize = 500;

/// Who answers in a scenario, after `latency`.
pub(crate) fn model(scenario: Scenario, latency: &Latency, seed: u64) -> ScriptedModel {
    let model = scenario.model.cloned().unwrap_or_else(|| ScriptedModel::from_fn(answer));
    model.with_latency(*latency).with_seed(seed)
}

fn answer(view: &View<'_>) -> Answer {
    let (at, prompt) = view.prompt().unwrap_or_default();
    let answered = view.answered(at);
    let (head, rest) = prompt.split_once(" | ").unwrap_or((&prompt, ""));
    match head.split_once(' ') {
        Some(("rounds", counts)) => rounds(counts, rest, &answered),
        Some((mode @ ("race" | "gather"), count)) => background(mode, count.parse().unwrap_or(0), rest, &answered),
        _ if head == "speak" => Answer::text(speech()),
        // Somebody ends it.
        _ if head == "forever" => Answer { latency: Some(EVER), ..Answer::text("never") },
        _ => Answer::text("done"),
    }
}

/// Five hundred words, as different as those of a language.
pub(crate) fn speech() -> String {
    const WORDS: [&str; 16] = [
        "the", "agent", "reads", "a", "file", "and", "says", "what", "it", "found", "because", "somebody", "asked",
        "for", "every", "detail",
    ];
    (0..SPOKEN)
        .map(|n| format!("{}{} ", WORDS[n * 7 % 16], if n % 5 == 0 { n.to_string() } else { String::new() }))
        .collect()
}

fn rounds(counts: &str, rest: &str, answered: &[Answered<'_>]) -> Answer {
    let mut begun = 0;
    for count in counts.split(',').filter_map(|count| count.parse::<usize>().ok()) {
        begun += count;
        if answered.len() < begun {
            let calls = (begun - count..begun).map(|n| subagent(n, rest, false)).collect();
            return Answer::calls("", calls);
        }
    }
    Answer::text(format!("all {} done", answered.len()))
}

fn background(mode: &str, count: usize, rest: &str, answered: &[Answered<'_>]) -> Answer {
    if answered.is_empty() {
        return Answer::calls("", (0..count).map(|n| subagent(n, rest, true)).collect());
    }
    if answered.iter().any(|answered| answered.tool == "wait_agents") {
        return Answer::text("decided");
    }
    let wait =
        if mode == "race" { json!({"until": "first_success", "stop_rest": true}) } else { json!({"until": "all"}) };
    Answer::calls("", vec![("wait_agents".to_owned(), wait.to_string())])
}

/// How many subagents somebody has in all who is told this.
pub(crate) fn below(prompt: &str) -> u32 {
    let Some((head, rest)) = prompt.split_once(" | ") else { return 0 };
    let counts = head.split_once(' ').map_or("", |(_, counts)| counts);
    let own: u32 = counts.split(',').filter_map(|count| count.parse::<u32>().ok()).sum();
    own.saturating_mul(1_u32.saturating_add(below(rest)))
}

fn subagent(n: usize, prompt: &str, background: bool) -> (String, String) {
    let arguments =
        json!({"prompt": prompt, "label": format!("c{n}"), "background": background, "may_spawn": below(prompt)});
    ("subagent".to_owned(), arguments.to_string())
}

#[cfg(test)]
mod tests {
    use super::below;

    #[test]
    fn who_is_told_to_delegate_may_have_as_many_as_that_takes() {
        assert_eq!((below("work"), below("rounds 8,1 | work")), (0, 9));
        assert_eq!(below("rounds 3 | rounds 2 | work"), 3 * (1 + 2));
        assert_eq!(below("race 4 | work"), 4);
    }
}
