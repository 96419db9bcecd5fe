//! Scenarios and machines, by name or from files.
//!
//! A file that a scenario names is looked for beside the scenario's own.

use std::path::Path;

use thermocline_linux::regular;
use thermocline_sim::machine::{self, Doctor, MachineSpec};
use thermocline_sim::scenario::{PRESETS, Setup};
use thermocline_sim::spec::{self, SPEC_BYTES_MAX, SpecError};
use thermocline_sim::workload::Recorded;

use crate::foreign;
use crate::workload::{self, Recordings};

/// Builds a scenario, given by name, by file or by a recording's folder, with the changes. If
/// `machine`, a name or a file, is given, the scenario runs on it.
///
/// # Errors
/// There is no such scenario or machine, or it cannot be simulated.
pub fn setup(name: &str, machine: Option<&str>, changes: &[String]) -> Result<Setup, SpecError> {
    let path = Path::new(name);
    let recordings = Recordings::default();
    let recorded = is_recording(name);
    let text = if recorded { recordings.scenario(path)? } else { scenario_text(name, path)? };
    if machine.is_some() {
        overridden(changes, "machine", "--machine")?;
    }
    let (place, folder) = match is_file(name) || recorded {
        true => (name.to_owned(), path.parent().unwrap_or(Path::new(""))),
        false => (format!("scenario {name}"), Path::new("")),
    };
    let machines = |named: &str| match machine {
        Some(machine) => self::machine(machine, Path::new("")),
        None if recorded && named == workload::MACHINE => recordings.machine(path),
        None => self::machine(named, folder),
    };
    let heat = |pattern: &Recorded| {
        // The scenario of a recording names that as it was named here.
        let folder = if recorded { Path::new("") } else { folder };
        recordings.heat(&folder.join(&pattern.trace), pattern.process)
    };
    ours(&place, &text, Setup::parse_with(&place, &text, &machines, &heat, changes))
}

/// Refuses a change of a key that an option has decided.
///
/// # Errors
/// It is changed.
pub fn overridden(changes: &[String], key: &str, option: &str) -> Result<(), SpecError> {
    if keys(changes).contains(&key) {
        let message = format!("has no effect beside {option}");
        return Err(SpecError::new(key, message, "leave one of the two out"));
    }
    Ok(())
}

/// The keys of changes.
pub fn keys(changes: &[String]) -> Vec<&str> {
    changes
        .iter()
        .map(|change| change.split_once('=').map_or(change.as_str(), |(key, _)| key).trim())
        .collect()
}

/// Returns `read`. If that is an error and the text is another program's file, the error names the
/// program.
///
/// # Errors
/// `read` is an error.
pub fn ours<T>(place: &str, text: &str, read: Result<T, SpecError>) -> Result<T, SpecError> {
    let error = |error| match foreign::named(text) {
        Some(what) => {
            let remedy = "`thermocline sim --list` names scenarios and machines; of another program's settings, \
                          `thermocline config check FILE` says what comes nearest";
            SpecError::new(place, format!("is {what}"), remedy)
        }
        None => error,
    };
    read.map_err(error)
}

/// The TOML of a scenario. If `name` is a file name, that of the file at `path`.
///
/// # Errors
/// There is no such scenario.
pub fn scenario_text(name: &str, path: &Path) -> Result<String, SpecError> {
    if is_file(name) { read(path) } else { Ok(Setup::text(name)?.to_owned()) }
}

/// Whether this is a recording, not a scenario's name or file. A folder with a preset's name is one
/// if it is given as `./NAME`.
fn is_recording(name: &str) -> bool {
    let preset = PRESETS.iter().any(|(preset, _)| *preset == name);
    !is_file(name) && !preset && (name.contains('/') || Path::new(name).is_dir())
}

/// Whether this is a scenario's file, not its name.
pub fn is_file(name: &str) -> bool {
    name.ends_with(".toml")
}

/// Whether this is a machine's file, not its name.
pub fn is_machine_file(name: &str) -> bool {
    name.ends_with(".toml") || name.ends_with(".json")
}

/// The machine with that name, or in that file, whose path begins in `folder`.
///
/// # Errors
/// There is none, or the file does not describe one.
pub fn machine(name: &str, folder: &Path) -> Result<MachineSpec, SpecError> {
    if !is_machine_file(name) {
        return machine::preset(name);
    }
    let path = folder.join(name);
    let place = path.display().to_string();
    let text = read(&path)?;
    if name.ends_with(".toml") {
        return ours(&place, &text, spec::parse(&place, &text));
    }
    let doctor = serde_json::from_str(&text).map_err(|e| {
        let remedy = "give what `thermocline doctor --json` has printed";
        SpecError::new(&place, format!("is no report of the doctor: {e}"), remedy)
    });
    ours::<Doctor>(&place, &text, doctor)?.machine()
}

/// The text of a specification, unless it is too long for one.
///
/// # Errors
/// It cannot be read, or is too long.
pub fn read(path: &Path) -> Result<String, SpecError> {
    let place = path.display().to_string();
    let unread = |error: std::io::Error| {
        let remedy = "give the path of a file that is there and can be read";
        SpecError::new(&place, format!("cannot be read: {error}"), remedy)
    };
    let bytes = regular::read_at_most(path, SPEC_BYTES_MAX as u64).map_err(unread)?;
    if bytes.len() > SPEC_BYTES_MAX {
        let remedy = format!("stay below {SPEC_BYTES_MAX} bytes");
        return Err(SpecError::new(place, "is too long for a specification", remedy));
    }
    let text = String::from_utf8(bytes);
    text.map_err(|error| unread(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_programs_are_named_wherever_one_of_ours_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let memtierd = "policy:\n  name: age\n  config: |\n    intervalms: 1000\n";
        let damo = "{ \"kdamonds\": [] }";
        let etmem = "[project]\nname=db\n[task]\nname=t\n";
        for (text, what) in [(memtierd, "memtierd"), (damo, "damo"), (etmem, "etmem")] {
            for ending in ["toml", "json"] {
                let path = dir.path().join(format!("theirs.{ending}"));
                std::fs::write(&path, text).unwrap();
                let path = path.to_str().unwrap();
                let error = setup("hotcold", Some(path), &[]).unwrap_err().to_string();
                assert!(error.starts_with(path) && error.contains(what), "{error}");
            }
            let scenario = dir.path().join("theirs.toml");
            let error = setup(scenario.to_str().unwrap(), None, &[]).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("config check"), "{error}");
        }
    }

    const SCENARIO: &str = "name = \"mine\"\nsummary = \"\"\nmachine = \"server.toml\"\n[[process]]\n\
        name = \"p\"\nthreads = 1\nnode = \"cpu\"\nfootprint = \"8MiB\"\nplace = [{ node = \"low\" }]\n\
        pattern = { kind = \"uniform\", accesses = 1000 }\n";

    #[test]
    fn a_scenario_names_a_machine_beside_it_which_an_option_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let server = machine::PRESETS.iter().find(|(name, _)| *name == "cxl-2tier").unwrap().1;
        let server = server.replace("name = \"cxl-2tier\"", "name = \"server\"");
        std::fs::write(path("server.toml"), &server).unwrap();
        std::fs::write(path("other.toml"), server.replace("\"server\"", "\"other\"")).unwrap();
        std::fs::write(path("mine.toml"), SCENARIO).unwrap();
        let on = |machine: Option<&str>, changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(|c| (*c).to_owned()).collect();
            setup(&path("mine.toml"), machine, &changes)
                .map(|s| s.machine.spec.name)
                .map_err(|e| e.to_string())
        };
        assert_eq!(on(None, &[]).as_deref(), Ok("server"));
        assert_eq!(on(None, &["machine=other.toml"]).as_deref(), Ok("other"));
        assert_eq!(on(Some(&path("other.toml")), &[]).as_deref(), Ok("other"));
        assert_eq!(on(Some("lab"), &[]).as_deref(), Ok("lab"));
        let lost = on(None, &["machine=lost.toml"]).unwrap_err();
        assert!(lost.starts_with(&path("lost.toml")) && lost.contains("cannot be read"), "{lost}");
        let twice = on(Some("lab"), &["machine=other.toml"]).unwrap_err();
        assert!(twice.contains("no effect beside --machine"), "{twice}");
    }
}
