//! The kernel's list format for CPUs and nodes, as in `0-3,8` (Linux lib/bitmap.c,
//! bitmap_parselist).

/// The largest number a list may name; beyond any CPU or node number that Linux can be built for.
const NUMBER_MAX: u32 = 1 << 16;

/// The numbers of a list, ascending and unique; `None` if the text is not a list. An empty text is
/// an empty list.
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= NUMBER_MAX {
            return None;
        }
        numbers.extend(first..=last);
        if numbers.len() > NUMBER_MAX as usize {
            return None;
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// Numbers in the kernel's list format; `numbers` are ascending and unique.
pub fn format_list(numbers: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = numbers;
    while let Some(&first) = rest.first() {
        let run = rest.iter().zip(first..).take_while(|(have, want)| *have == want).count();
        let last = rest[run - 1];
        parts.push(if run == 1 { first.to_string() } else { format!("{first}-{last}") });
        rest = &rest[run..];
    }
    parts.join(",")
}

/// `node 2` or `nodes 1-2`; the numbers are ascending and unique.
pub(crate) fn nodes_text(nodes: &[u32]) -> String {
    format!("{} {}", if nodes.len() == 1 { "node" } else { "nodes" }, format_list(nodes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_what_the_kernel_prints() {
        assert_eq!(parse_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list("\n"), Some(vec![]));
        assert_eq!(parse_list("7"), Some(vec![7]));
        for bad in ["a", "3-1", "1-", "-1", "0-99999999", "1 2"] {
            assert_eq!(parse_list(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,80}") {
            let _ = parse_list(&text);
        }

        #[test]
        fn formatting_is_undone_by_parsing(set in prop::collection::btree_set(0u32..300, 0..40)) {
            let numbers: Vec<u32> = set.into_iter().collect();
            prop_assert_eq!(parse_list(&format_list(&numbers)), Some(numbers));
        }
    }
}
