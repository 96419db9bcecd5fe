//! A line of `perf script`.

use thermocline_core::units::Nanos;

use super::super::fields::{COMMAND, Fields};
use super::super::quantity::seconds;

/// A sample as its line has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The process, where perf knows it.
    pub pid: Option<u32>,
    /// When, by perf's clock.
    pub time: Nanos,
    /// How much the event counted for it.
    pub period: Option<u32>,
    /// The event.
    pub event: &'a str,
    /// The address accessed.
    pub address: u64,
    /// Whether it was a store, where the sample says so.
    pub store: Option<bool>,
    /// Its weight: how long it took, in cycles.
    pub weight: Option<u32>,
    /// The physical address.
    pub physical: Option<u64>,
}

/// Reads a line. The error says what is wrong and what to do.
pub fn sample<'a>(text: &'a str, fields: Option<&Fields>) -> Result<Sample<'a>, String> {
    let (pid, time, rest) = head(text)?;
    let (first, more) = token(rest);
    let decimal = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    let (period, rest) = match decimal {
        true => (Some(first.parse().map_err(|_| format!("the period {first} is too large"))?), more),
        false => (None, rest),
    };
    let (event, rest) = token(rest);
    let event = event.strip_suffix(':').filter(|event| !event.is_empty());
    let event = event.ok_or_else(|| format!("an event is missing; print samples with {COMMAND}"))?;
    let (address, rest) = token(rest);
    let address = hexadecimal(address).ok_or_else(|| {
        format!("an address is missing; record with perf record -d, and print samples with {COMMAND}")
    })?;
    let tail = tail(rest, fields)?;
    Ok(Sample { pid, time, period, event, address, ..tail })
}

/// Process, time, and what follows it.
fn head(text: &str) -> Result<(Option<u32>, Nanos, &str), String> {
    // Names of programs may have blanks, and slashes.
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = token(rest);
        rest = after;
        let Some(pid) = process(word) else { continue };
        let (word, after_cpu) = token(after);
        let cpu = word.starts_with('[') && word.ends_with(']');
        let (time, after) = if cpu { token(after_cpu) } else { (word, after_cpu) };
        if let Some(time) = time.strip_suffix(':').and_then(seconds) {
            return Ok((pid, time, after));
        }
    }
    let thread_only = || {
        let (mut rest, mut before) = (text, "");
        while !rest.is_empty() {
            let (word, after) = token(rest);
            if word.strip_suffix(':').and_then(seconds).is_some() {
                return before.parse::<u32>().is_ok() || before.starts_with('[');
            }
            (before, rest) = (word, after);
        }
        false
    };
    Err(match thread_only() {
        true => format!("it names a thread and no process; print samples with {COMMAND}"),
        false => format!("it is no sample; print samples with {COMMAND}"),
    })
}

/// The process of `PID/TID`.
fn process(word: &str) -> Option<Option<u32>> {
    let (pid, tid) = word.split_once('/')?;
    let number = |text: &str| match text {
        "-1" => Some(None),
        _ if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok().map(Some),
        _ => None,
    };
    number(tid)?;
    number(pid)
}

/// What stands after the address; the rest of the sample is to be filled in.
fn tail(rest: &str, fields: Option<&Fields>) -> Result<Sample<'static>, String> {
    let mut sample = Sample {
        pid: None,
        time: Nanos(0),
        period: None,
        event: "",
        address: 0,
        store: None,
        weight: None,
        physical: None,
    };
    let described = rest.contains("|OP ");
    let after = if described {
        let (store, after) = data_src(rest)?;
        sample.store = store;
        after
    } else {
        rest
    };
    let Some(fields) = fields else {
        return match after.trim().is_empty() {
            true => Ok(sample),
            false => Err(format!(
                "what \"{}\" is after the address is not known; say which fields were printed with --fields, \
                 as they were given to perf script -F",
                after.trim()
            )),
        };
    };
    if described != fields.data_src {
        let what = if described { "has data_src" } else { "has no data_src" };
        return Err(format!("it {what}, unlike --fields; say there which fields were printed"));
    }
    let mut words: Vec<&str> = after.split_ascii_whitespace().collect();
    let missing =
        |name| format!("the field {name} is missing at the end; say with --fields what was printed");
    if fields.phys_addr {
        let physical = words.pop().and_then(hexadecimal);
        sample.physical = Some(physical.ok_or_else(|| missing("phys_addr"))?);
    }
    if fields.weight {
        let weight = (!words.is_empty()).then(|| words.remove(0)).and_then(|word| word.parse().ok());
        sample.weight = Some(weight.ok_or_else(|| missing("weight"))?);
    }
    match fields.other || words.is_empty() {
        true => Ok(sample),
        false => Err(format!(
            "what \"{}\" is after the address is not among --fields; say there which fields were printed",
            words.join(" ")
        )),
    }
}

/// Whether the access was a store, where that is known, and what follows the description:
/// `68100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A`.
fn data_src(rest: &str) -> Result<(Option<bool>, &str), String> {
    // The symbol of the address may stand before.
    let parts = rest.split_once("|OP ").and_then(|(before, after)| {
        let raw = before.split_ascii_whitespace().next_back()?;
        after.split_once('|').filter(|_| hexadecimal(raw).is_some())
    });
    let Some((operation, text)) = parts else {
        return Err("its data_src is none of perf's".to_owned());
    };
    let store = match operation.trim() {
        "LOAD" => Some(false),
        "STORE" => Some(true),
        _ => None,
    };
    let Some((_, last)) = text.rsplit_once('|') else {
        return Err("its data_src is cut".to_owned());
    };
    let mut rest = token(last).1;
    loop {
        let (word, after) = token(rest);
        match word {
            "No" | "Yes" | "N/A" | "Data" | "Addr" => rest = after,
            _ => return Ok((store, rest)),
        }
    }
}

/// The first word, and what follows it.
fn token(text: &str) -> (&str, &str) {
    let text = text.trim_ascii_start();
    text.split_at(text.find(|c: char| c.is_ascii_whitespace()).unwrap_or(text.len()))
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: &str = "true 10035/10035   324.919384:          1 page-faults:     55d9c48da1e0";
    const SOURCE: &str = "68100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A";

    fn plain(address: u64) -> Sample<'static> {
        Sample {
            pid: Some(10035),
            time: Nanos(324_919_384_000),
            period: Some(1),
            event: "page-faults",
            address,
            store: None,
            weight: None,
            physical: None,
        }
    }

    #[test]
    fn a_line_is_read_whatever_the_program_is_called() {
        for name in ["           ", "Web Content ", "a 1/2 b ", "kworker/0:1-ev ", "12 "] {
            assert_eq!(sample(&format!("{name}{FAULT}"), None), Ok(plain(0x55d9_c48d_a1e0)), "{name}");
        }
        let with_cpu = "x 10035/10036 [001] 324.919384: page-faults: 1000";
        assert_eq!(sample(with_cpu, None), Ok(Sample { period: None, ..plain(0x1000) }));
        let nobody = "x -1/-1 324.919384: 1 page-faults: 1000";
        assert_eq!(sample(nobody, None), Ok(Sample { pid: None, ..plain(0x1000) }));
    }

    #[test]
    fn fields_after_the_address_are_read_where_they_are_known() {
        let stores = SOURCE.replace("LOAD", "STORE");
        let (line, stored) = (format!("{FAULT} {SOURCE}    "), format!("{FAULT} {stores}"));
        assert_eq!(sample(&line, None).unwrap().store, Some(false));
        assert_eq!(sample(&stored, None).unwrap().store, Some(true));
        let all: Fields = "pid,tid,time,event,addr,data_src,weight,ip,sym,phys_addr".parse().unwrap();
        let line = format!("{FAULT} [heap] {SOURCE}      321     7f12ab main+0x5 (/bin/x)      1abc000");
        let found = sample(&line, Some(&all)).unwrap();
        assert_eq!((found.store, found.weight, found.physical), (Some(false), Some(321), Some(0x1ab_c000)));
        let physical: Fields = "pid,tid,time,event,addr,phys_addr".parse().unwrap();
        assert_eq!(sample(&format!("{FAULT}  0"), Some(&physical)).unwrap().physical, Some(0));
    }

    #[test]
    fn what_cannot_be_read_is_said_with_its_remedy() {
        let weight: Fields = "pid,tid,time,event,addr,weight".parse().unwrap();
        for (line, fields, word) in [
            ("true 10035   324.919384:          1 page-faults:  ffffffff8175336a", None, "no process"),
            ("hello, world", None, "no sample"),
            ("true 1/1 324.919384: 1 page-faults: [unknown]", None, "perf record -d"),
            ("true 1/1 324.919384: 1 page-faults:", None, "perf record -d"),
            ("true 1/1 324.919384: 99999999999 page-faults: 1000", None, "too large"),
            ("true 1/1 324.919384: 1 page-faults: 1000 2000", None, "--fields"),
            ("true 1/1 324.919384: 1 page-faults: 1000 |OP LOAD", None, "data_src"),
            ("true 1/1 324.919384: 1 page-faults: 1000", Some(&weight), "weight"),
            ("true 1/1 324.919384: 1 page-faults: 1000 5 6", Some(&weight), "--fields"),
        ] {
            let error = sample(line, fields).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
