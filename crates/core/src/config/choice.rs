//! Choosing a rule by name, with what it cannot do without.

use crate::config::{Config, RecordLayout, RuleName};

/// A section of `[rule]`: a rule, or a wrapper around the rule that is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleChoice {
    /// A rule.
    Rule(RuleName),
    /// The configured rule, with what follows a promoted page (S2).
    Speculative,
    /// The configured rule, and pages of the top tier follow their threads (S1's first half).
    Balance,
}

impl RuleChoice {
    /// Every rule, then the wrappers.
    pub fn all() -> impl Iterator<Item = RuleChoice> {
        let wrappers = [RuleChoice::Speculative, RuleChoice::Balance];
        RuleName::ALL.into_iter().map(RuleChoice::Rule).chain(wrappers)
    }

    /// The name of its section below `[rule]`.
    pub const fn text(self) -> &'static str {
        match self {
            RuleChoice::Rule(rule) => rule.text(),
            RuleChoice::Speculative => "speculative",
            RuleChoice::Balance => "balance",
        }
    }
}

impl Config {
    /// Lets this rule decide. The source that it cannot do without is switched on, and sources of
    /// which it makes nothing are switched off; all else stays as it is configured.
    pub fn choose(&mut self, choice: RuleChoice) {
        match choice {
            RuleChoice::Rule(rule) => self.rule.name = rule,
            RuleChoice::Speculative => self.rule.speculative.enabled = true,
            RuleChoice::Balance => {
                self.rule.balance.enabled = true;
                self.engine.record = RecordLayout::Word;
                self.kernel.numa_balancing = self.kernel.numa_balancing.map(|mode| mode & !1);
            }
        }
        self.source.suit(self.rule.name, self.rule.balance.enabled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_the_sections_of_the_rules_and_each_is_sound() {
        let mut names: Vec<String> = Config::sections()
            .into_iter()
            .filter_map(|(name, _)| name.strip_prefix("rule.").map(str::to_owned))
            .collect();
        let mut texts: Vec<&str> = RuleChoice::all().map(RuleChoice::text).collect();
        names.sort();
        texts.sort_unstable();
        assert_eq!(names, texts);
        for choice in RuleChoice::all() {
            let mut config = Config::default();
            (config.source.damon.enabled, config.source.chmu.enabled) = (true, true);
            config.choose(choice);
            assert_eq!(config.check(), Ok(()), "{}", choice.text());
        }
    }
}
