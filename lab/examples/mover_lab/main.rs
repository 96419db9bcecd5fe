//! Checks the mover against real pages of real processes: `mover_lab PAGES [CHECK...]`, inside the
//! lab, as root.
//!
//! PAGES is the built `lab/workloads/pages.c`. Prints a line a check and exits with 1 if any
//! failed. It writes kernel settings and cgroups, so it refuses to run outside the lab.

mod checks;
mod holder;
mod machine;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use machine::Machine;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, pid, address] = arguments.as_slice()
        && mode == checks::AS_NOBODY
    {
        return checks::as_nobody(pid, address);
    }
    let Some((pages, wanted)) = arguments.split_first() else {
        eprintln!("usage: mover_lab PAGES [CHECK...]");
        return ExitCode::from(2);
    };
    let machine = match Machine::of_the_lab(PathBuf::from(pages)) {
        Ok(machine) => machine,
        Err(e) => {
            eprintln!("mover_lab: {e}");
            return ExitCode::from(2);
        }
    };
    let mut failed = 0;
    for (name, check) in checks::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|w| w == name) {
            continue;
        }
        let begin = Instant::now();
        match check(&machine) {
            Ok(said) => println!("ok {name}: {said} ({:.1} s)", begin.elapsed().as_secs_f64()),
            Err(e) => {
                failed += 1;
                println!("FAILED {name}: {e}");
            }
        }
    }
    ExitCode::from(u8::from(failed > 0))
}
