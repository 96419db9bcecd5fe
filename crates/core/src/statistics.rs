//! Declares statistics. Each is declared once, with unit, kind and meaning; `status`, its text, the
//! book and the metrics derive from the declaration.

use serde::Serialize;

use crate::label::{By, Label};
use crate::units::Nanos;

/// Whether a figure counts up or is a current value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It only grows from the start on.
    Counter,
    /// It is a current value.
    Gauge,
}

impl Kind {
    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// The description of a statistic, used wherever it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Statistic {
    /// Its name in `status` and in the code.
    pub name: &'static str,
    /// Its name as a metric.
    pub metric: String,
    /// The unit; empty for a flag.
    pub unit: &'static str,
    /// Whether it is a counter or a gauge.
    pub kind: Kind,
    /// The full description.
    pub description: String,
    /// The label that splits it, if any.
    pub label: Option<&'static str>,
    /// It is 0 if all is well.
    pub trouble: bool,
}

/// How many of this unit make one of the metric's unit. Metrics have times in seconds.
pub fn divisor(unit: &str) -> u64 {
    match unit {
        "ns" => 1_000_000_000,
        "us" => 1_000_000,
        "ms" => 1000,
        _ => 1,
    }
}

/// The name of a metric. It uses base units, as Prometheus recommends: `wait_ms` becomes
/// `wait_seconds`. A counter's name ends in `_total`.
pub fn metric_name(prefix: &str, name: &str, unit: &str, kind: Kind) -> String {
    let stem = match divisor(unit) {
        1 => name.to_owned(),
        _ => format!("{}_seconds", name.strip_suffix(&format!("_{unit}")).unwrap_or(name)),
    };
    let total = if kind == Kind::Counter { "_total" } else { "" };
    format!("thermocline_{prefix}{stem}{total}")
}

/// One value of a statistic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// The statistic's name.
    pub name: &'static str,
    /// The label's value, if the statistic is split by a label.
    pub label: Option<&'static str>,
    /// The value.
    pub value: u64,
}

/// A value of a statistic, or one value for each value of its label.
pub trait Figure {
    /// Appends the values under `name`; appends nothing if they are not known.
    fn samples(&self, name: &'static str, out: &mut Vec<Sample>);
}

macro_rules! figures {
    ($( $ty:ty: $value:expr; )*) => {
        $( impl Figure for $ty {
            fn samples(&self, name: &'static str, out: &mut Vec<Sample>) {
                let value: fn(&$ty) -> u64 = $value;
                out.push(Sample { name, label: None, value: value(self) });
            }
        } )*
    };
}

figures! {
    u64: |n| *n;
    u32: |n| u64::from(*n);
    usize: |n| *n as u64;
    bool: |so| u64::from(*so);
    Nanos: |time| time.0;
}

impl<F: Figure> Figure for Option<F> {
    fn samples(&self, name: &'static str, out: &mut Vec<Sample>) {
        self.iter().for_each(|figure| figure.samples(name, out));
    }
}

impl<L: Label> Figure for By<L> {
    fn samples(&self, name: &'static str, out: &mut Vec<Sample>) {
        out.extend(self.iter().map(|(label, value)| Sample { name, label: Some(label.name()), value }));
    }
}

/// Statistics declared by [`statistics!`](macro@crate::statistics).
pub trait Declared {
    /// The descriptions, in order of declaration.
    fn statistics() -> Vec<Statistic>
    where
        Self: Sized;

    /// The values, in order of declaration.
    fn samples(&self) -> Vec<Sample>;
}

/// Declares statistics: a struct that serialises, and [`Declared`] for it. Each statistic has its
/// description, name, type, unit and kind, then `trouble` if it is 0 whenever all is well. The text
/// after the struct's name is the prefix of the metrics' names. Fields after `beside` are not
/// statistics, or are declared elsewhere.
#[macro_export]
macro_rules! statistics {
    ($(#[$meta:meta])* $name:ident $prefix:literal {
        $( $(#[doc = $doc:literal])+ $field:ident: $ty:ty, $unit:literal, $kind:ident $($trouble:ident)?; )*
    } $( beside {
        $( $(#[doc = $beside_doc:literal])+ $beside:ident: $beside_ty:ty; )*
    } )?) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $field: $ty, )*
            $( $( $(#[doc = $beside_doc])+ pub $beside: $beside_ty, )* )?
        }

        impl $crate::statistics::Declared for $name {
            fn statistics() -> Vec<$crate::statistics::Statistic> {
                use $crate::statistics::{Kind, Statistic};
                vec![ $( {
                    let name = stringify!($field);
                    Statistic {
                        name,
                        metric: $crate::statistics::metric_name(
                            concat!($prefix, "_"),
                            name,
                            $unit,
                            Kind::$kind,
                        ),
                        unit: $unit,
                        kind: Kind::$kind,
                        description: [ $( $doc ),+ ].map(str::trim).join(" "),
                        label: None,
                        trouble: $crate::is_trouble!($($trouble)?),
                    }
                } ),* ]
            }

            fn samples(&self) -> Vec<$crate::statistics::Sample> {
                let mut out = Vec::new();
                $( $crate::statistics::Figure::samples(&self.$field, stringify!($field), &mut out); )*
                out
            }
        }
    };
}

/// Whether the mark `trouble` is present; for [`statistics!`](crate::statistics).
#[doc(hidden)]
#[macro_export]
macro_rules! is_trouble {
    () => {
        false
    };
    (trouble) => {
        true
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    statistics! {
        /// Of a well.
        Well "well" {
            /// Buckets that were
            /// drawn.
            drawn: u64, "buckets", Counter;
            /// Buckets that fell back.
            fallen: u32, "buckets", Counter trouble;
            /// How long the last one took.
            last_ns: Option<Nanos>, "ns", Gauge;
            /// It is dry.
            dry: bool, "", Gauge trouble;
        }
        beside {
            /// Whose it is.
            owner: &'static str;
        }
    }

    #[test]
    fn a_declaration_gives_struct_description_and_values() {
        let well = Well { drawn: 7, dry: true, owner: "village", ..Well::default() };
        let json = serde_json::to_value(&well).unwrap();
        assert_eq!(
            (&json["drawn"], &json["owner"], &json["last_ns"]),
            (&7.into(), &"village".into(), &serde_json::Value::Null)
        );
        let all = Well::statistics();
        let names: Vec<&str> = all.iter().map(|s| s.name).collect();
        assert_eq!(names, ["drawn", "fallen", "last_ns", "dry"]);
        assert_eq!(all[0].description, "Buckets that were drawn.");
        assert_eq!(
            (all[0].metric.as_str(), all[2].metric.as_str()),
            ("thermocline_well_drawn_total", "thermocline_well_last_seconds")
        );
        assert_eq!(all.iter().map(|s| s.trouble).collect::<Vec<_>>(), [false, true, false, true]);
        let values: Vec<(&str, u64)> = well.samples().iter().map(|s| (s.name, s.value)).collect();
        assert_eq!(values, [("drawn", 7), ("fallen", 0), ("dry", 1)], "what is not known has no value");
    }
}
