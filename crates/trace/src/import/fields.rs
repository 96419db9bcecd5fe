//! The fields of a line that `perf script` prints: which they are does not show in the line.

use std::str::FromStr;

/// The fields that `perf script -F` was given, as far as they can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// What the sample says of the access.
    pub data_src: bool,
    /// How long it took.
    pub weight: bool,
    /// Its physical address.
    pub phys_addr: bool,
    /// What stands between and is not read: instruction pointer, symbols.
    pub other: bool,
}

/// Fields that every line must have.
const NEEDED: [&str; 5] = ["pid", "tid", "time", "event", "addr"];
/// Fields that change nothing about how the rest is read.
const WITHOUT_EFFECT: [&str; 3] = ["comm", "cpu", "period"];
/// Fields that stand between and are not read.
const OTHER: [&str; 4] = ["ip", "sym", "symoff", "dso"];

/// The command that prints what needs no telling.
pub const COMMAND: &str = "perf script -F comm,pid,tid,time,period,event,addr";

impl FromStr for Fields {
    type Err = String;

    fn from_str(text: &str) -> Result<Fields, String> {
        let mut fields = Fields::default();
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        for name in &names {
            match *name {
                "data_src" => fields.data_src = true,
                "weight" => fields.weight = true,
                "phys_addr" => fields.phys_addr = true,
                name if OTHER.contains(&name) => fields.other = true,
                name if NEEDED.contains(&name) || WITHOUT_EFFECT.contains(&name) => {}
                name => {
                    return Err(format!(
                        "the field {name} is not one that can be read; leave it out of perf script -F: {}",
                        [&NEEDED[..], &WITHOUT_EFFECT, &["data_src", "weight", "phys_addr"], &OTHER]
                            .concat()
                            .join(", ")
                    ));
                }
            }
        }
        if let Some(missing) = NEEDED.into_iter().find(|needed| !names.contains(needed)) {
            return Err(format!(
                "without the field {missing} a sample is no evidence; print it too: {COMMAND}"
            ));
        }
        // perf prints symbols and objects after the address too, where they would be taken for it.
        if fields.weight && fields.other && !fields.data_src {
            return Err("where weight stands cannot be told; print data_src too, or leave ip, sym, symoff \
                        and dso out"
                .to_owned());
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_perf() {
        let of = |text: &str| text.parse::<Fields>();
        assert_eq!(of("comm,pid,tid,time,period,event,addr"), Ok(Fields::default()));
        let all = of("pid,tid,time,event,addr,data_src,weight,ip,sym,dso,phys_addr").unwrap();
        assert_eq!(all, Fields { data_src: true, weight: true, phys_addr: true, other: true });
        for (text, word) in [
            ("pid,tid,time,event", "addr"),
            ("tid,time,event,addr", "pid"),
            ("pid,tid,time,event,addr,brstack", "brstack"),
            ("pid,tid,time,event,addr,weight,sym", "data_src"),
        ] {
            assert!(of(text).unwrap_err().contains(word), "{text}");
        }
    }
}
