//! Sets of tools, with one bit for each tool of the catalogue.

/// Set of indices in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ToolSet {
    words: Vec<u64>,
}

impl ToolSet {
    pub(crate) fn empty(size: usize) -> Self {
        Self { words: vec![0; size.div_ceil(64)] }
    }

    pub(crate) fn full(size: usize) -> Self {
        let mut set = Self::empty(size);
        for at in 0..size {
            set.insert(at);
        }
        set
    }

    pub(crate) fn insert(&mut self, at: usize) {
        if let Some(word) = self.words.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    pub(crate) fn contains(&self, at: usize) -> bool {
        self.words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= !other;
        }
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(word, other)| word & other != 0)
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words).map(|(word, other)| word & other);
        Self { words: words.collect() }
    }

    /// Returns the difference of both sets.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.subtract(other);
        rest
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_behaves_as_a_set_of_numbers(
            a in proptest::collection::btree_set(0_usize..150, 0..40),
            b in proptest::collection::btree_set(0_usize..150, 0..40),
        ) {
            let set = |of: &BTreeSet<usize>| {
                let mut set = ToolSet::empty(150);
                of.iter().for_each(|at| set.insert(*at));
                set
            };
            let list = |set: &ToolSet| set.iter().collect::<BTreeSet<_>>();
            let mut both = set(&a);
            both.add(&set(&b));

            prop_assert_eq!(list(&both), &a | &b);
            prop_assert_eq!(list(&set(&a).and(&set(&b))), &a & &b);
            prop_assert_eq!(list(&set(&a).without(&set(&b))), &a - &b);
            prop_assert_eq!(set(&a).meets(&set(&b)), !a.is_disjoint(&b));
            prop_assert_eq!(set(&a).is_empty(), a.is_empty());
            prop_assert!((0..160).all(|at| set(&a).contains(at) == a.contains(&at)));
            prop_assert_eq!(ToolSet::full(150).iter().count(), 150);
        }
    }
}
