//! What a process has taken of the machine.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

/// The time on processors that this process has had so far.
pub(crate) fn cpu() -> Option<Duration> {
    cpu_of(UsageWho::RUSAGE_SELF)
}

/// That of the children that have ended.
pub(crate) fn cpu_of_children() -> Option<Duration> {
    cpu_of(UsageWho::RUSAGE_CHILDREN)
}

fn cpu_of(who: UsageWho) -> Option<Duration> {
    let usage = getrusage(who).ok()?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    u64::try_from(micros).ok().map(Duration::from_micros)
}

/// The most memory that any child has had that has ended, in bytes.
pub(crate) fn peak_of_children() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    // Kilobytes, but on macOS.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1_024 };
    u64::try_from(usage.max_rss()).ok().map(|size| size * unit)
}

/// Forgets how much memory this process has had at most; whether the system can do that.
pub(crate) fn forget_peak() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// How much memory this process has had at most since then, in bytes.
pub(crate) fn peak() -> Option<u64> {
    status("VmHWM:")
}

/// How much memory it has now, in bytes.
pub(crate) fn resident() -> Option<u64> {
    status("VmRSS:")
}

fn status(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1_024)
}
