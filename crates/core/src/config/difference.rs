//! What differs between two configurations, key by key.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use crate::config::schema::Field;
use crate::config::{Config, Scope};

/// A key that two configurations have different values for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Dotted key; of a scope by its name, where it has one, or its number.
    pub key: String,
    /// The value before; null where it was unset.
    pub before: Value,
    /// The value after; null where it is unset.
    pub after: Value,
    /// Unit of both.
    pub unit: &'static str,
    /// Whether a running daemon takes the other value; else it is to be started again for it.
    pub reloads: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: &Value| match value {
            Value::Null => "unset".to_owned(),
            value => value.to_string(),
        };
        write!(f, "{}: {} -> {}", self.key, value(&self.before), value(&self.after))?;
        if self.after.is_number() && !self.unit.is_empty() { write!(f, " {}", self.unit) } else { Ok(()) }
    }
}

/// What is to be changed in `before` to come to `after`, in order of declaration.
pub fn differences(before: &Config, after: &Config) -> Vec<Difference> {
    let (before_tree, after_tree) = (json!(before), json!(after));
    let mut out = Vec::new();
    for (section, fields) in Config::sections() {
        if section == "scope" {
            scopes(&before.scope, &after.scope, &fields, &mut out);
        } else {
            let of = |tree: &Value| at(tree, &section).clone();
            compare(&section, &fields, &of(&before_tree), &of(&after_tree), &mut out);
        }
    }
    out
}

/// Differences, a line each.
pub fn difference_text(found: &[Difference]) -> String {
    if found.is_empty() {
        return "nothing differs\n".to_owned();
    }
    let line = |difference: &Difference| {
        let restart = if difference.reloads { "" } else { "   (needs a restart)" };
        format!("{difference}{restart}\n")
    };
    found.iter().map(line).collect()
}

/// The value of a dotted key in a configuration as JSON; null where it is unset.
pub fn at<'a>(tree: &'a Value, key: &str) -> &'a Value {
    key.split('.').fold(tree, |value, part| &value[part])
}

fn compare(section: &str, fields: &[Field], before: &Value, after: &Value, out: &mut Vec<Difference>) {
    let differ = fields.iter().filter(|f| before[f.name] != after[f.name]);
    out.extend(differ.map(|f| Difference {
        key: format!("{section}.{}", f.name),
        before: before[f.name].clone(),
        after: after[f.name].clone(),
        unit: f.unit,
        reloads: f.reloads,
    }));
}

/// Scopes are the same where their names are, or, without names, their numbers. One that is only on
/// one side is compared with the defaults.
fn scopes(before: &[Scope], after: &[Scope], fields: &[Field], out: &mut Vec<Difference>) {
    let (before_labels, after_labels) = (labels(before), labels(after));
    let common = |labels: &[String], others: &[String]| {
        labels.iter().filter(|label| others.contains(label)).cloned().collect::<Vec<_>>()
    };
    if common(&before_labels, &after_labels) != common(&after_labels, &before_labels)
        || before_labels.len() != after_labels.len()
        || before_labels.iter().any(|label| !after_labels.contains(label))
    {
        let (before, after) = (json!(before_labels), json!(after_labels));
        out.push(Difference { key: "scope".to_owned(), before, after, unit: "", reloads: true });
    }
    let default = json!(Scope::default());
    let mut seen = BTreeSet::new();
    for label in before_labels.iter().chain(&after_labels).filter(|label| seen.insert(label.as_str())) {
        let of = |scopes: &[Scope], labels: &[String]| {
            let place = labels.iter().position(|l| l == label);
            place.map_or(default.clone(), |place| json!(scopes[place]))
        };
        let (before, after) = (of(before, &before_labels), of(after, &after_labels));
        compare(&format!("scope.{label}"), fields, &before, &after, out);
    }
}

/// What the scopes are called.
pub fn labels(scopes: &[Scope]) -> Vec<String> {
    let label = |(place, scope): (usize, &Scope)| match scope.name.as_str() {
        "" => place.to_string(),
        name => name.to_owned(),
    };
    scopes.iter().enumerate().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RuleName;

    fn keys(before: &Config, after: &Config) -> Vec<String> {
        differences(before, after).into_iter().map(|d| d.key).collect()
    }

    #[test]
    fn every_key_that_differs_is_told_and_no_other() {
        let before = Config::default();
        assert!(differences(&before, &before).is_empty());
        let mut after = before.clone();
        after.admission.rate_limit_mbps = 512;
        after.kernel.scan_delay_ms = Some(7);
        let found = differences(&before, &after);
        let told: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            ["admission.rate_limit_mbps: 256 -> 512 MB/s", "kernel.scan_delay_ms: unset -> 7 ms"]
        );
        assert_eq!(found.iter().map(|d| d.reloads).collect::<Vec<_>>(), [true, false]);
        after.rule.name = RuleName::Latency;
        assert_eq!(keys(&before, &after)[0], "rule.name");
    }

    #[test]
    fn scopes_are_compared_by_their_names() {
        let named = |name: &str| Scope { name: name.to_owned(), pids: vec![1], ..Scope::default() };
        let with = |scope: Vec<Scope>| Config { scope, ..Config::default() };
        let before = with(vec![named("a"), named("b")]);
        let other = Scope { rate_share_percent: 50, ..named("b") };
        assert_eq!(keys(&before, &with(vec![named("a"), other.clone()])), ["scope.b.rate_share_percent"]);
        assert_eq!(
            keys(&before, &with(vec![other, named("a")])),
            ["scope", "scope.b.rate_share_percent"],
            "their order tells whose a process is"
        );
        let fewer = keys(&before, &with(vec![named("a")]));
        assert_eq!(fewer, ["scope", "scope.b.name", "scope.b.pids"]);
        let anonymous = |pid| Scope { pids: vec![pid], ..Scope::default() };
        assert_eq!(keys(&with(vec![anonymous(1)]), &with(vec![anonymous(2)])), ["scope.0.pids"]);
    }
}
