//! The smallest few of many: what an output shows of a long sorted list, without keeping the list.

use std::collections::BinaryHeap;

/// Keeps the `max` smallest of all that was offered.
pub(crate) struct Smallest<T> {
    max: usize,
    kept: BinaryHeap<T>,
}

impl<T: Ord> Smallest<T> {
    /// Empty.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, kept: BinaryHeap::new() }
    }

    /// Keeps it if it is among the smallest so far.
    pub(crate) fn offer(&mut self, item: T) {
        if self.kept.len() < self.max {
            self.kept.push(item);
        } else if let Some(mut largest) = self.kept.peek_mut()
            && item < *largest
        {
            *largest = item;
        }
    }

    /// What was kept, smallest first.
    pub(crate) fn into_sorted(self) -> Vec<T> {
        self.kept.into_sorted_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_smallest_are_kept_in_order() {
        let mut few = Smallest::new(3);
        [5, 1, 4, 9, 2, 3].into_iter().for_each(|number| few.offer(number));
        assert_eq!(few.into_sorted(), [1, 2, 3]);
    }
}
