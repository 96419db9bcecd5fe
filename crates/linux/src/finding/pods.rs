//! Pods of Kubernetes that are not scopes as they ask to be.

use super::{Finding, Ground, Kind};

/// Pods that are named in a finding; the others are counted.
const NAMED: usize = 3;

/// What is wrong with the file of pods, if something is, and which pods are left out, each in a
/// sentence.
pub fn pods(unreadable: Option<&str>, left_out: &[String]) -> Vec<Finding> {
    let unreadable = unreadable.map(|why| {
        Finding::new(Kind::PodsUnreadable, why.to_owned()).fix(
            Ground::OURS,
            "look at the log of what writes the file; it must write another file beside it and rename that",
        )
    });
    let mut named: Vec<&str> = left_out.iter().take(NAMED).map(String::as_str).collect();
    let more = format!("and {} more", left_out.len().saturating_sub(NAMED));
    if left_out.len() > NAMED {
        named.push(&more);
    }
    let left_out = (!named.is_empty()).then(|| {
        Finding::new(Kind::PodsLeftOut, named.join("; "))
            .fix(Ground::OURS, "correct the annotations; those of a running pod may be changed")
    });
    unreadable.into_iter().chain(left_out).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_named_and_the_others_counted() {
        assert!(pods(None, &[]).is_empty());
        let left_out: Vec<String> = (0..5).map(|n| format!("pod {n}")).collect();
        let found = pods(Some("no"), &left_out);
        assert_eq!(found[0].cause, "no");
        assert_eq!(found[1].cause, "pod 0; pod 1; pod 2; and 2 more");
        assert!(pods(None, &left_out[..3])[0].cause.ends_with("pod 2"));
    }
}
