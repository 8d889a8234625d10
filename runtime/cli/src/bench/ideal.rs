//! The ideal schedule: how long a tree takes when everything but the models takes no time.

use std::collections::BTreeMap;
use std::time::Duration;

use impresario::kernel::AgentPath;

use super::watch::Asked;

/// The least time in which these answers could have been given to each other in this order: the longest way from the first
/// request to the last answer through answers that depend on each other, and no less than all of them one after another in
/// as many rows as may run at once.
pub(crate) fn ideal(asked: &[Asked], at_once: usize) -> Duration {
    let mut agents: BTreeMap<&str, Vec<&Asked>> = BTreeMap::new();
    for asked in asked.iter().filter(|asked| asked.ended.is_some()) {
        agents.entry(asked.path.as_str()).or_default().push(asked);
    }
    let mut children: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for path in agents.keys() {
        if let Some((parent, _)) = path.rsplit_once('/') {
            children.entry(parent).or_default().push(path);
        }
    }
    // The deepest first, so that what is below somebody is known.
    let mut paths: Vec<&str> = agents.keys().copied().collect();
    paths.sort_by_key(|path| std::cmp::Reverse(path.matches('/').count()));
    let mut longest: BTreeMap<&str, Duration> = BTreeMap::new();
    for path in paths {
        let below = children.get(path).map(Vec::as_slice).unwrap_or_default();
        longest.insert(path, own(&agents, path, below, &longest));
    }
    let critical = longest.get(AgentPath::root().as_str()).copied().unwrap_or_default();
    let work: Duration = asked.iter().filter_map(took).sum();
    critical.max(work / u32::try_from(at_once.max(1)).unwrap_or(u32::MAX))
}

fn took(asked: &Asked) -> Option<Duration> {
    Some(asked.ended?.saturating_sub(asked.began))
}

/// An agent's own answers, and between two of them the longest of the children that began there.
fn own(
    agents: &BTreeMap<&str, Vec<&Asked>>,
    path: &str,
    below: &[&str],
    longest: &BTreeMap<&str, Duration>,
) -> Duration {
    let Some(answers) = agents.get(path) else { return Duration::ZERO };
    let mut sum: Duration = answers.iter().filter_map(|asked| took(asked)).sum();
    // A child belongs to the last answer that was there when it began.
    let mut waits = vec![Duration::ZERO; answers.len()];
    for child in below {
        let Some(first) = agents.get(child).and_then(|asked| asked.first()) else { continue };
        let after = answers.iter().rposition(|asked| asked.ended.is_some_and(|ended| ended <= first.began));
        if let (Some(wait), Some(took)) = (after.and_then(|at| waits.get_mut(at)), longest.get(child)) {
            *wait = (*wait).max(*took);
        }
    }
    // What began behind the last answer was waited for by nobody.
    waits.pop();
    sum += waits.iter().sum::<Duration>();
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, began: u64, ended: u64) -> Asked {
        let ended = Some(Duration::from_millis(ended));
        Asked { path: AgentPath::new(path), began: Duration::from_millis(began), ended }
    }

    #[test]
    fn children_count_once_where_they_are_side_by_side_and_nobody_waits_for_free() {
        let tree =
            [asked("root", 0, 100), asked("root/a", 110, 210), asked("root/b", 120, 320), asked("root", 350, 450)];
        assert_eq!(ideal(&tree, 16), Duration::from_millis(400));
        // Two rows cannot hold five hundred milliseconds in less than two hundred and fifty.
        assert_eq!(ideal(&tree, 1), Duration::from_millis(500));
        assert_eq!(ideal(&[], 1), Duration::ZERO);
    }

    #[test]
    fn a_chain_is_the_sum_of_its_answers() {
        let chain = [
            asked("root", 0, 10),
            asked("root/a", 11, 21),
            asked("root/a/b", 22, 32),
            asked("root/a", 33, 43),
            asked("root", 44, 54),
        ];
        assert_eq!(ideal(&chain, 16), Duration::from_millis(50));
    }
}
