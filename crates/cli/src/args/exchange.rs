//! What the verbs that read and write other tools' files take.

use std::path::PathBuf;

use clap::Args;
use thermocline_core::units::Nanos;
use thermocline_trace::import::{Fields, Format, Intervals};

/// What `import` takes.
#[derive(Debug, Args)]
pub struct Import {
    /// The file, or - for standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The folder for the recording; made where it does not exist, otherwise empty.
    #[arg(short = 'o', long = "out", value_name = "DIR")]
    pub folder: PathBuf,
    /// The format, where it is not to be recognised: lackey, perf, damon (perf script of damon's
    /// events), damo-json, damo-json-compressed, memtierd.
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub format: Option<Format>,
    /// Of a file that is damaged, cut or mixed import what comes before, instead of nothing.
    #[arg(long)]
    pub until_damage: bool,
    /// The fields of perf's samples, as they were given to `perf script -F`, if there are more than
    /// comm,pid,tid,time,period,event,addr and data_src.
    #[arg(long, value_name = "LIST")]
    pub fields: Option<Fields>,
    /// DAMON's sampling and aggregation intervals, as in 5ms,100ms, where the file does not name
    /// them: without them its counts are counts, and no shares of checks.
    #[arg(long, value_name = "SAMPLE,AGGREGATION", value_parser = intervals)]
    pub intervals: Option<Intervals>,
}

/// What `export` takes.
#[derive(Debug, Args)]
pub struct Export {
    /// The recording: a folder.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// What to write: lackey (loads and stores as text), or perfetto (a trace for
    /// ui.perfetto.dev).
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: ExportTo,
    /// The file.
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    pub file: PathBuf,
    /// With --to lackey: only this process; needed where there are several.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
}

/// What a recording is exported as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportTo {
    /// Valgrind's lackey.
    Lackey,
    /// Perfetto's TrackEvent messages.
    Perfetto,
}

/// A format by its name.
fn format(text: &str) -> Result<Format, String> {
    let names = Format::ALL.map(Format::name).join(", ");
    Format::named(text).ok_or_else(|| format!("formats are {names}"))
}

/// Two intervals, the shorter one first.
fn intervals(text: &str) -> Result<Intervals, String> {
    let time = |text: &str| {
        let parsed =
            humantime::parse_duration(text.trim()).map_err(|e| format!("\"{text}\" is no time: {e}"))?;
        u64::try_from(parsed.as_nanos()).map(Nanos).map_err(|_| format!("{text} is too long"))
    };
    let (sample, aggregation) = text.split_once(',').ok_or("give both, as in 5ms,100ms")?;
    let intervals = Intervals { sample: time(sample)?, aggregation: time(aggregation)? };
    match intervals.sample.0 > 0 && intervals.sample <= intervals.aggregation {
        true => Ok(intervals),
        false => Err("the sampling interval comes first, and is not longer than the other".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_two_times() {
        let wanted = Intervals { sample: Nanos::from_ms(5), aggregation: Nanos::from_ms(100) };
        assert_eq!(intervals("5ms,100ms"), Ok(wanted));
        for (text, word) in [
            ("5ms", "both"),
            ("100ms,5ms", "first"),
            ("0s,1s", "first"),
            ("5,100", "no time"),
            ("1ms,", "time"),
        ] {
            assert!(intervals(text).unwrap_err().contains(word), "{text}");
        }
    }

    #[test]
    fn formats_are_named_where_there_is_none_of_a_name() {
        assert_eq!(format("memtierd"), Ok(Format::Memtierd));
        assert!(format("pin").unwrap_err().contains("damo-json-compressed"));
    }
}
