//! How a section of the configuration is declared: every field once, with unit, default, range and
//! source.
//!
//! The parser, the range checks, the book's table, the JSON Schema and `thermocline config` all
//! come from these declarations.

use std::ops::RangeInclusive;

use serde::Serialize;
use serde_json::{Value, json};

/// What the book and the error messages say of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// The key within its section.
    pub name: &'static str,
    /// Unit of the value, empty where it has none.
    pub unit: &'static str,
    /// The default as it would be written in TOML.
    pub default: String,
    /// The allowed range in words.
    pub range: String,
    /// The allowed range as JSON Schema.
    pub schema: Value,
    /// Whether a running daemon takes another value; else it is to be started again for it.
    pub reloads: bool,
    /// Where the default comes from.
    pub source: &'static str,
    /// What the key means.
    pub doc: String,
}

/// A value outside its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Dotted key from the root, as in `rule.latency.hot_threshold_ms`.
    pub key: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// A range that a value is checked against.
pub trait Allowed<T> {
    /// Whether `value` may be used.
    fn allows(&self, value: &T) -> bool;
    /// The range in words.
    fn words(&self) -> String;
    /// The range as JSON Schema, of a value that is set.
    fn schema(&self) -> Value;
}

impl<T: PartialOrd + std::fmt::Display + Serialize> Allowed<T> for RangeInclusive<T> {
    fn allows(&self, value: &T) -> bool {
        self.contains(value)
    }

    fn words(&self) -> String {
        format!("{} to {}", self.start(), self.end())
    }

    fn schema(&self) -> Value {
        json!({ "type": "integer", "minimum": self.start(), "maximum": self.end() })
    }
}

/// A range for a key that may be unset.
#[derive(Clone, Debug)]
pub struct OrUnset<T>(pub RangeInclusive<T>);

impl<T: PartialOrd + std::fmt::Display + Serialize> Allowed<Option<T>> for OrUnset<T> {
    fn allows(&self, value: &Option<T>) -> bool {
        value.as_ref().is_none_or(|v| self.0.contains(v))
    }

    fn words(&self) -> String {
        format!("{}, or unset", self.0.words())
    }

    fn schema(&self) -> Value {
        self.0.schema()
    }
}

/// A power of two within a range.
#[derive(Clone, Debug)]
pub struct PowerOfTwo(pub RangeInclusive<u32>);

impl Allowed<u32> for PowerOfTwo {
    fn allows(&self, value: &u32) -> bool {
        value.is_power_of_two() && self.0.contains(value)
    }

    fn words(&self) -> String {
        format!("a power of two from {}", self.0.words())
    }

    fn schema(&self) -> Value {
        let powers = (0..u32::BITS).map(|bit| 1u32 << bit).filter(|power| self.0.contains(power));
        json!({ "enum": powers.collect::<Vec<_>>() })
    }
}

/// Every value of the type is allowed; the text names each: names in quotes, `true`, `false`.
#[derive(Clone, Copy, Debug)]
pub struct Any(pub &'static str);

impl<T> Allowed<T> for Any {
    fn allows(&self, _value: &T) -> bool {
        true
    }

    fn words(&self) -> String {
        self.0.to_owned()
    }

    fn schema(&self) -> Value {
        let words = || self.0.split([' ', ',']);
        let truths = [true, false].into_iter().filter(|truth| words().any(|word| word == truth.to_string()));
        let names = self.0.split('"').skip(1).step_by(2);
        json!({ "enum": truths.map(Value::from).chain(names.map(Value::from)).collect::<Vec<_>>() })
    }
}

/// Any text.
#[derive(Clone, Copy, Debug)]
pub struct Text(pub &'static str);

impl<T> Allowed<T> for Text {
    fn allows(&self, _value: &T) -> bool {
        true
    }

    fn words(&self) -> String {
        self.0.to_owned()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string" })
    }
}

/// Any list of numbers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers(pub &'static str);

impl Allowed<Vec<u32>> for Numbers {
    fn allows(&self, _value: &Vec<u32>) -> bool {
        true
    }

    fn words(&self) -> String {
        self.0.to_owned()
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": u32::MAX } })
    }
}

impl Allowed<Vec<u16>> for Numbers {
    fn allows(&self, _value: &Vec<u16>) -> bool {
        true
    }

    fn words(&self) -> String {
        self.0.to_owned()
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": u16::MAX } })
    }
}

impl Allowed<Vec<Vec<u16>>> for Numbers {
    fn allows(&self, _value: &Vec<Vec<u16>>) -> bool {
        true
    }

    fn words(&self) -> String {
        self.0.to_owned()
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "items": Allowed::<Vec<u16>>::schema(self) })
    }
}

/// A value that can be shown as it would be written in TOML.
pub trait Shown {
    /// The TOML text.
    fn shown(&self) -> String;
}

impl<T: Serialize> Shown for T {
    fn shown(&self) -> String {
        toml_text(self)
    }
}

/// Renders scalars, lists and unit variants as TOML; anything else as its type's emptiness.
fn toml_text<T: Serialize>(value: &T) -> String {
    match serde_json::to_string(value) {
        Ok(text) if text == "null" => "unset".to_owned(),
        Ok(text) => text,
        Err(_) => String::new(),
    }
}

/// A section declared by [`section!`](crate::section).
pub trait Section {
    /// All fields in order of declaration.
    fn fields() -> Vec<Field>;
    /// Appends this section, under its dotted name `path`, and those inside it, each with its
    /// fields, in order of declaration. One without fields of its own is left out.
    fn sections(path: &str, out: &mut Vec<(String, Vec<Field>)>);
    /// Appends the fields that are out of range; `path` is the section's dotted key.
    fn check(&self, path: &str, out: &mut Vec<Violation>);
}

/// A section that may stand several times.
impl<S: Section> Section for Vec<S> {
    fn fields() -> Vec<Field> {
        S::fields()
    }

    fn sections(path: &str, out: &mut Vec<(String, Vec<Field>)>) {
        S::sections(path, out);
    }

    fn check(&self, path: &str, out: &mut Vec<Violation>) {
        for (i, section) in self.iter().enumerate() {
            section.check(&format!("{path}[{i}]"), out);
        }
    }
}

/// The dotted key of `key` in the section `path`; the root's is empty.
pub fn dotted(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Declares a section: a struct with serde, defaults, range checks and documentation from one
/// place. Sections inside it follow in `sections { "key" field: Type; }`: their checks are part of
/// its own, and they are listed after it.
///
/// A running daemon takes another value of a key, unless the declaration ends in `restart`.
#[macro_export]
macro_rules! section {
    (@reloads) => { true };
    (@reloads restart) => { false };
    ($(#[$meta:meta])* $name:ident {
        $( $(#[doc = $doc:literal])+ $field:ident: $ty:ty = $default:expr, $unit:literal, $range:expr, $source:literal $(, $restart:ident)?; )*
    } $( sections {
        $( $(#[doc = $sub_doc:literal])+ $key:literal $sub:ident: $sub_ty:ty; )*
    } )?) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $field: $ty, )*
            $( $( $(#[doc = $sub_doc])+ #[serde(rename = $key)] pub $sub: $sub_ty, )* )?
        }

        impl Default for $name {
            fn default() -> Self {
                $name {
                    $( $field: $default, )*
                    $( $( $sub: <$sub_ty>::default(), )* )?
                }
            }
        }

        impl $crate::config::schema::Section for $name {
            fn fields() -> Vec<$crate::config::schema::Field> {
                vec![ $( {
                    let default: $ty = $default;
                    $crate::config::schema::Field {
                        name: stringify!($field),
                        unit: $unit,
                        default: $crate::config::schema::Shown::shown(&default),
                        range: $crate::config::schema::Allowed::<$ty>::words(&$range),
                        schema: $crate::config::schema::Allowed::<$ty>::schema(&$range),
                        reloads: $crate::section!(@reloads $($restart)?),
                        source: $source,
                        doc: [ $( $doc ),+ ].iter().map(|l| l.trim()).collect::<Vec<_>>().join(" "),
                    }
                } ),* ]
            }

            fn sections(
                path: &str,
                out: &mut Vec<(String, Vec<$crate::config::schema::Field>)>,
            ) {
                let fields = Self::fields();
                if !fields.is_empty() {
                    out.push((path.to_owned(), fields));
                }
                $( $(
                    let inside = $crate::config::schema::dotted(path, $key);
                    <$sub_ty as $crate::config::schema::Section>::sections(&inside, out);
                )* )?
            }

            fn check(&self, path: &str, out: &mut Vec<$crate::config::schema::Violation>) {
                use $crate::config::schema::dotted;
                $(
                    if !$crate::config::schema::Allowed::<$ty>::allows(&$range, &self.$field) {
                        out.push($crate::config::schema::Violation {
                            key: dotted(path, stringify!($field)),
                            message: format!(
                                "{} is not allowed; {} is {}{}{}",
                                $crate::config::schema::Shown::shown(&self.$field),
                                stringify!($field),
                                $crate::config::schema::Allowed::<$ty>::words(&$range),
                                if $unit.is_empty() { "" } else { " " },
                                $unit,
                            ),
                        });
                    }
                )*
                $( $(
                    $crate::config::schema::Section::check(&self.$sub, &dotted(path, $key), out);
                )* )?
                let _ = (path, out);
            }
        }
    };
}
