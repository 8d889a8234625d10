//! Figures of several runs: the one in the middle, and how far they lie apart.

use serde_json::{Value, json};

/// The same figure of several runs, sorted; never empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spread(Vec<f64>);

impl Spread {
    /// `None` when there is none.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Self(values))
    }

    pub(crate) fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        if self.0.len() % 2 == 1 { self.0[middle] } else { (self.0[middle - 1] + self.0[middle]) / 2.0 }
    }

    pub(crate) fn least(&self) -> f64 {
        self.0[0]
    }

    pub(crate) fn most(&self) -> f64 {
        self.0[self.0.len() - 1]
    }

    pub(crate) fn values(&self) -> &[f64] {
        &self.0
    }

    pub(crate) fn json(&self) -> Value {
        json!({"median": self.median(), "min": self.least(), "max": self.most(), "values": self.0})
    }
}

/// The value that `share` of these sorted values are at most; 0 when there are none.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).or(sorted.last()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle_or_between_the_two_that_are() {
        let of = |values: &[f64]| Spread::of(values.to_vec()).unwrap();
        assert_eq!((of(&[3.0, 1.0, 2.0]).median(), of(&[4.0, 1.0]).median()), (2.0, 2.5));
        assert_eq!((of(&[3.0, 1.0]).least(), of(&[3.0, 1.0]).most()), (1.0, 3.0));
        assert_eq!(Spread::of(vec![f64::NAN]), None);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (percentile(&hundred, 0.5), percentile(&hundred, 0.99), percentile(&[7.0], 0.99)),
            (50.0, 99.0, 7.0)
        );
    }
}
