//! Labels: sets of names that a counter is split by, closed so that no input can add to them.

use serde::ser::{Serialize, SerializeMap, Serializer};

/// A closed set of label values.
pub trait Label: Copy + 'static {
    /// Every value, in order of its index.
    const ALL: &'static [Self];

    /// The spelling in status, metrics and the book.
    fn name(self) -> &'static str;

    /// Its place in [`Label::ALL`].
    fn index(self) -> usize;

    /// The value that is spelled so.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.name() == name)
    }
}

/// Implements [`Label`] for an enum.
macro_rules! labels {
    ($ty:ident { $( $variant:ident = $name:literal, )* }) => {
        impl $crate::label::Label for $ty {
            const ALL: &'static [$ty] = &[ $( $ty::$variant ),* ];

            fn name(self) -> &'static str {
                match self {
                    $( $ty::$variant => $name, )*
                }
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

pub(crate) use labels;

/// A counter split by a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By<L: Label> {
    counts: Vec<u64>,
    label: std::marker::PhantomData<L>,
}

impl<L: Label> Default for By<L> {
    fn default() -> By<L> {
        By { counts: vec![0; L::ALL.len()], label: std::marker::PhantomData }
    }
}

impl<L: Label> By<L> {
    /// Adds `n` to the count of `label`.
    pub fn add(&mut self, label: L, n: u64) {
        self.counts[label.index()] += n;
    }

    /// The count of `label`.
    pub fn get(&self, label: L) -> u64 {
        self.counts[label.index()]
    }

    /// The sum over all labels.
    pub fn sum(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Every label with its count.
    pub fn iter(&self) -> impl Iterator<Item = (L, u64)> + '_ {
        L::ALL.iter().copied().zip(self.counts.iter().copied())
    }
}

impl<L: Label> Serialize for By<L> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.counts.len()))?;
        for (label, count) in self.iter() {
            map.serialize_entry(label.name(), &count)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Source;
    use crate::candidate::Reason;
    use crate::moves::{Direction, Outcome};

    fn agrees<L: Label + Serialize + std::fmt::Debug>() {
        for (i, label) in L::ALL.iter().enumerate() {
            assert_eq!(label.index(), i, "{label:?}");
            assert_eq!(serde_json::to_value(label).unwrap(), label.name());
        }
    }

    #[test]
    fn labels_are_spelled_as_they_serialise_and_indexed_as_they_are_listed() {
        agrees::<Source>();
        agrees::<Outcome>();
        agrees::<Direction>();
        agrees::<Reason>();
    }
}
