//! What a pod asks for by annotations: the keys of a scope.

use thermocline_core::config::Scope;

use super::{Pod, quantity};

/// What the names of the annotations begin with.
pub const PREFIX: &str = "thermocline.dev/";

/// An annotation: its name without [`PREFIX`], its values in words, and what it does to the scope;
/// false if it has another value.
struct Row {
    name: &'static str,
    values: &'static str,
    set: fn(&mut Scope, &str) -> bool,
}

const TRUTH: &str = "\"true\" or \"false\"";
const QUANTITY: &str = "an amount of memory such as \"512Mi\", \"2Gi\", \"3G\" or bytes";

/// Every annotation. One that is missing leaves the scope's default.
const ROWS: [Row; 7] = [
    Row {
        name: "manage",
        values: TRUTH,
        set: |scope, value| truth(value, |manage| scope.exclude |= !manage),
    },
    Row {
        name: "exclude",
        values: TRUTH,
        set: |scope, value| truth(value, |exclude| scope.exclude |= exclude),
    },
    Row {
        name: "top-tier-floor",
        values: QUANTITY,
        set: |scope, value| {
            quantity::mib_up(value).is_some_and(|mib| {
                scope.top_tier_floor_mib = mib;
                true
            })
        },
    },
    Row {
        name: "top-tier-cap",
        values: QUANTITY,
        set: |scope, value| {
            scope.top_tier_cap_mib = quantity::mib_down(value);
            scope.top_tier_cap_mib.is_some()
        },
    },
    Row {
        name: "top-tier-share",
        values: QUANTITY,
        set: |scope, value| {
            quantity::mib_up(value).is_some_and(|mib| {
                scope.top_tier_share_mib = mib;
                true
            })
        },
    },
    Row {
        name: "never-slow",
        values: TRUTH,
        set: |scope, value| truth(value, |never| scope.never_slow = never),
    },
    Row {
        name: "rate-share-percent",
        values: "a whole number from \"1\" to \"100\"",
        set: |scope, value| {
            let percent = value.parse().ok().filter(|percent| (1..=100).contains(percent));
            percent.is_some_and(|percent| {
                scope.rate_share_percent = percent;
                true
            })
        },
    },
];

/// The names of all annotations, without [`PREFIX`].
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

fn truth(value: &str, mut set: impl FnMut(bool)) -> bool {
    match value {
        "true" => set(true),
        "false" => set(false),
        _ => return false,
    }
    true
}

/// What a pod asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// To be a scope. It has the pod's name, and no cgroup yet.
    Scope(Box<Scope>),
    /// To be left alone. What it asks for besides is in the sentence, if it asks for something.
    LeftAlone(Option<String>),
    /// Something that cannot be: the sentence says why it counts for nothing.
    Nothing(String),
}

/// What the pod's annotations ask for.
pub fn asked(pod: &Pod) -> Asked {
    let mut scope = Scope { name: pod.name.clone(), ..Scope::default() };
    let mut wrong = Vec::new();
    for (name, value) in &pod.annotations {
        let Some(row) = ROWS.iter().find(|row| row.name == name) else {
            let known: Vec<&str> = names().collect();
            wrong.push(format!("there is no {PREFIX}{name}, there are {}", known.join(", ")));
            continue;
        };
        if !(row.set)(&mut scope, value) {
            wrong.push(format!("{PREFIX}{name} is {value:?}, not {}", row.values));
            // Whoever wanted to be left alone, however it is spelled, is.
            scope.exclude |= name == "exclude";
        }
    }
    let cap_mib = scope.top_tier_cap_mib;
    if cap_mib.is_some_and(|cap_mib| scope.top_tier_floor_mib > cap_mib) && wrong.is_empty() {
        wrong.push(format!(
            "its floor of {} MiB is above its cap of {} MiB",
            scope.top_tier_floor_mib,
            cap_mib.unwrap_or_default()
        ));
    }
    let contradicts = pod.annotations.get("manage").is_some_and(|value| value == "true");
    if scope.exclude && (scope.is_limited() || contradicts) {
        wrong.push("it is to be left alone and asks for something besides".to_owned());
    }
    let told = |then: &str| format!("pod {} {then}: {}", pod.name, wrong.join("; "));
    match (scope.exclude, wrong.is_empty()) {
        (false, true) => Asked::Scope(Box::new(scope)),
        (true, true) => Asked::LeftAlone(None),
        (true, false) => Asked::LeftAlone(Some(told("is left alone and nothing else"))),
        (false, false) => Asked::Nothing(told("is treated as one without annotations")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(annotations: &[(&str, &str)]) -> Asked {
        let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        asked(&Pod { name: "db/redis-0".to_owned(), annotations, ..Pod::default() })
    }

    fn scope(annotations: &[(&str, &str)]) -> Scope {
        match ask(annotations) {
            Asked::Scope(scope) => *scope,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn annotations_are_the_keys_of_a_scope() {
        let name = "db/redis-0".to_owned();
        assert_eq!(scope(&[("manage", "true")]), Scope { name: name.clone(), ..Scope::default() });
        let asked = [
            ("top-tier-floor", "1Gi"),
            ("top-tier-share", "1.5Gi"),
            ("top-tier-cap", "2G"),
            ("never-slow", "true"),
            ("rate-share-percent", "50"),
        ];
        let expected = Scope {
            name,
            top_tier_floor_mib: 1024,
            top_tier_share_mib: 1536,
            top_tier_cap_mib: Some(1907),
            never_slow: true,
            rate_share_percent: 50,
            ..Scope::default()
        };
        assert_eq!(scope(&asked), expected);
        assert_eq!(scope(&[("exclude", "false"), ("top-tier-cap", "0")]).top_tier_cap_mib, Some(0));
    }

    #[test]
    fn who_wants_to_be_left_alone_is() {
        for alone in [[("exclude", "true")], [("manage", "false")]] {
            assert_eq!(ask(&alone), Asked::LeftAlone(None));
        }
        for (annotations, why) in [
            ([("exclude", "yes"), ("top-tier-cap", "1Gi")], "exclude is \"yes\", not \"true\" or \"false\""),
            ([("exclude", "true"), ("top-tier-floor", "1Gi")], "asks for something besides"),
            ([("exclude", "true"), ("manage", "true")], "asks for something besides"),
            ([("exclude", "true"), ("top-tier-flor", "1Gi")], "there is no thermocline.dev/top-tier-flor"),
        ] {
            match ask(&annotations) {
                Asked::LeftAlone(Some(told)) => assert!(told.contains(why), "{told}"),
                other => panic!("{annotations:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_is_said_and_counts_for_nothing() {
        for (annotations, why) in [
            (
                vec![("top-tier-floor", "2Gi"), ("top-tier-cap", "1Gi")],
                "floor of 2048 MiB is above its cap of 1024 MiB",
            ),
            (vec![("top-tier-floor", "lots")], "top-tier-floor is \"lots\", not an amount"),
            (vec![("rate-share-percent", "0")], "not a whole number"),
            (vec![("mange", "true")], "there is no thermocline.dev/mange, there are manage, exclude"),
        ] {
            match ask(&annotations) {
                Asked::Nothing(told) => {
                    assert!(
                        told.starts_with("pod db/redis-0 is treated as one without") && told.contains(why),
                        "{told}"
                    );
                }
                other => panic!("{annotations:?}: {other:?}"),
            }
        }
    }
}
