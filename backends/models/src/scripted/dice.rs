//! Chance without a state: what is drawn follows from a seed, from who asks and from what for, so that the order in
//! which agents ask changes nothing.

use impresario_seams::ModelScope;

/// A sequence of draws for one purpose of one attempt.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// The draws of `seed` for `purpose` in the attempt that `scope` names: path, turn, step and attempt, and not the
    /// agent's id, which is another one in each run.
    pub(super) fn of(seed: u64, scope: &ModelScope, purpose: &str) -> Self {
        let numbers = [scope.turn, scope.step, scope.attempt];
        let parts = [&seed.to_le_bytes()[..], scope.path.as_str().as_bytes(), &[0], purpose.as_bytes(), &[0]];
        let bytes = parts.into_iter().flatten().copied().chain(numbers.into_iter().flat_map(u32::to_le_bytes));
        // FNV-1a; what it mixes badly the draws mix well.
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)))
    }

    /// SplitMix64.
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to 1, and never 1.
    pub(super) fn unit(&mut self) -> f64 {
        // 53 bits are all that the number holds.
        #[allow(clippy::cast_precision_loss)]
        let bits = (self.roll() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }

    /// From a normal distribution around 0 with a deviation of 1.
    pub(super) fn normal(&mut self) -> f64 {
        let (one, other) = (1.0 - self.unit(), self.unit());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    }
}

#[cfg(test)]
mod tests {
    use impresario_kernel::AgentPath;

    use super::*;

    fn scope(path: &str, attempt: u32) -> ModelScope {
        ModelScope { agent: path.into(), path: AgentPath::new(path), turn: 1, step: 1, attempt }
    }

    #[test]
    fn draws_differ_by_seed_agent_attempt_and_purpose_and_by_nothing_else() {
        let draw = |seed, path, attempt, purpose| Dice::of(seed, &scope(path, attempt), purpose).unit();
        let first = draw(1, "root/a", 0, "latency");
        let other_run = ModelScope { agent: "another".into(), ..scope("root/a", 0) };
        assert!((Dice::of(1, &other_run, "latency").unit() - first).abs() < f64::EPSILON);
        let others =
            [draw(2, "root/a", 0, "latency"), draw(1, "root/b", 0, "latency"), draw(1, "root/a", 1, "latency")];
        assert!(others.iter().all(|other| (other - first).abs() > f64::EPSILON), "{first} {others:?}");
        assert!((draw(1, "root/a", 0, "failure") - first).abs() > f64::EPSILON);
    }

    #[test]
    fn units_fill_their_range_evenly_and_normals_are_normal() {
        let draws = |draw: fn(&mut Dice) -> f64| -> Vec<f64> {
            (0..10_000).map(|n| draw(&mut Dice::of(7, &scope(&format!("root/a{n}"), 0), "test"))).collect()
        };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / 10_000.0;
        let units = draws(Dice::unit);
        assert!(units.iter().all(|unit| (0.0..1.0).contains(unit)) && (mean(&units) - 0.5).abs() < 0.02);
        let normals = draws(Dice::normal);
        let within = normals.iter().filter(|normal| normal.abs() < 1.0).count();
        assert!(mean(&normals).abs() < 0.05 && (6_600..7_100).contains(&within), "{} {within}", mean(&normals));
    }
}
