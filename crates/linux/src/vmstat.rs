//! `/proc/vmstat`: the kernel's counters by name.

use std::collections::BTreeMap;

use crate::root::{KernelFileError, Root, read_optional};

/// A reading of the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vmstat {
    counters: BTreeMap<String, u64>,
}

impl Vmstat {
    /// Reads the counters of the machine at `root`.
    ///
    /// # Errors
    /// The file is absent or cannot be read.
    pub fn read(root: &Root) -> Result<Vmstat, KernelFileError> {
        let path = root.proc.join("vmstat");
        match read_optional(&path)? {
            Some(text) => Ok(Vmstat::parse(&text)),
            None => Err(KernelFileError::not_supported("vmstat", &path, "mount procfs")),
        }
    }

    /// The counters of `text`; lines that are not `name number` are skipped.
    pub fn parse(text: &str) -> Vmstat {
        let counter = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        };
        Vmstat { counters: text.lines().filter_map(counter).collect() }
    }

    /// A counter; `None` if this kernel does not have it.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }

    /// The increase of a counter since `earlier`; `None` if this kernel does not have it. A
    /// decrease, as of a gauge, counts as 0.
    pub fn since(&self, earlier: &Vmstat, name: &str) -> Option<u64> {
        Some(self.get(name)?.saturating_sub(earlier.get(name)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let before = Vmstat::parse("nr_free_pages 100\nnuma_hint_faults 5\n");
        let after = Vmstat::parse("nr_free_pages 90\nnuma_hint_faults 25\nbroken\nalso broken\n");
        assert_eq!(after.get("numa_hint_faults"), Some(25));
        assert_eq!(after.get("broken"), None);
        assert_eq!(after.since(&before, "numa_hint_faults"), Some(20));
        assert_eq!(after.since(&before, "nr_free_pages"), Some(0));
        assert_eq!(after.since(&before, "pgpromote_success"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,80}") {
            let _ = Vmstat::parse(&text);
        }
    }
}
