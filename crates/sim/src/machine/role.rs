//! How a scenario names a node: by its number, or by its role, which every machine has.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Machine, NodeIndex};

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has CPUs.
    Cpu,
    /// It has memory of the fastest tier.
    Top,
    /// It has memory of the slowest tier.
    Low,
}

const ROLES: [(Role, &str); 3] = [(Role::Cpu, "cpu"), (Role::Top, "top"), (Role::Low, "low")];
/// The valid names of a node, for messages.
pub(crate) const WORDS: &str = "a node's number, or \"cpu\", \"top\" or \"low\", the second such as \"top1\"";

/// A node as a scenario names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeName {
    /// The kernel's number.
    Number(u16),
    /// The node with this index (from 0) among those of a role. If a machine has fewer, the index
    /// wraps around.
    Role(Role, u16),
}

impl NodeName {
    /// The machine's node with this name; `None` if it has none with this number or role.
    pub fn on(self, machine: &Machine) -> Option<NodeIndex> {
        let (role, place) = match self {
            NodeName::Number(number) => return machine.index(number),
            NodeName::Role(role, place) => (role, usize::from(place)),
        };
        let low = machine.nodes.iter().filter(|n| n.pages > 0).map(|n| n.tier).max();
        let fits = |i: &usize| {
            let node = &machine.nodes[*i];
            let top = machine.is_top(*i as NodeIndex);
            match role {
                Role::Cpu => node.has_cpus,
                Role::Top => node.pages > 0 && top,
                Role::Low => node.pages > 0 && !top && Some(node.tier) == low,
            }
        };
        let of_role: Vec<usize> = (0..machine.nodes.len()).filter(fits).collect();
        of_role.get(place.checked_rem(of_role.len())?).map(|i| *i as NodeIndex)
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeName::Number(number) => write!(f, "{number}"),
            NodeName::Role(role, place) => {
                let name = ROLES.iter().find(|(r, _)| r == role).map_or("", |(_, name)| name);
                if *place == 0 { f.write_str(name) } else { write!(f, "{name}{place}") }
            }
        }
    }
}

impl FromStr for NodeName {
    type Err = ();

    fn from_str(text: &str) -> Result<NodeName, ()> {
        let role = |(role, name): &(Role, &str)| Some((*role, text.strip_prefix(name)?));
        let (role, place) = ROLES.iter().find_map(role).ok_or(())?;
        let whole = place.bytes().all(|digit| digit.is_ascii_digit());
        match place {
            "" => Ok(NodeName::Role(role, 0)),
            _ if whole => Ok(NodeName::Role(role, place.parse().map_err(|_| ())?)),
            _ => Err(()),
        }
    }
}

impl Serialize for NodeName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            NodeName::Number(number) => serializer.serialize_u16(*number),
            NodeName::Role(..) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for NodeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NodeName, D::Error> {
        struct Named;

        impl Visitor<'_> for Named {
            type Value = NodeName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(WORDS)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<NodeName, E> {
                let named = u16::try_from(number).map(NodeName::Number);
                named.map_err(|_| E::custom(format!("{number} is no node; give {WORDS}")))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<NodeName, E> {
                let named = u16::try_from(number).map(NodeName::Number);
                named.map_err(|_| E::custom(format!("{number} is no node; give {WORDS}")))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<NodeName, E> {
                text.parse().map_err(|()| E::custom(format!("{text:?} is no node; give {WORDS}")))
            }
        }

        deserializer.deserialize_any(Named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::preset;

    #[test]
    fn roles_are_had_by_every_machine_and_counted_round() {
        let on = |machine: &str, name: &str| {
            let machine = Machine::new(&preset(machine).unwrap()).unwrap();
            let node = name.parse::<NodeName>().unwrap().on(&machine).unwrap();
            machine.nodes[usize::from(node)].id.0
        };
        for (machine, name, number) in [
            ("bergamo-cxl", "cpu", 0),
            ("bergamo-cxl", "cpu1", 1),
            ("bergamo-cxl", "top1", 1),
            ("bergamo-cxl", "top2", 0),
            ("bergamo-cxl", "low", 2),
            ("bergamo-cxl", "low1", 2),
            ("lab", "cpu1", 0),
            ("lab", "top1", 0),
            ("3tier", "cpu", 0),
            ("3tier", "top", 1),
            ("3tier", "low", 2),
        ] {
            assert_eq!(on(machine, name), number, "{machine} {name}");
        }
    }

    #[test]
    fn a_machine_of_one_tier_has_no_low_node() {
        let mut spec = preset("bergamo-cxl").unwrap();
        spec.node.iter_mut().for_each(|node| node.tier = 0);
        let machine = Machine::new(&spec).unwrap();
        assert_eq!(NodeName::Role(Role::Low, 0).on(&machine), None);
        assert_eq!(NodeName::Number(7).on(&machine), None);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["cpu", "top", "low", "top1", "cpu12"] {
            assert_eq!(text.parse::<NodeName>().unwrap().to_string(), text);
        }
        for text in ["", "slow", "top-1", "top+1", "top1.5", "low65536", "Top"] {
            assert!(text.parse::<NodeName>().is_err(), "{text}");
        }
    }
}
