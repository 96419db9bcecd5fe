//! The book's examples for Slurm and Kubernetes, run as a scheduler runs them: once for each index,
//! with the variables that it sets.

// Helpers of tests, which clippy takes for other code.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/sweeps.md");
/// Tasks, in the place of the examples' 64.
const TASKS: usize = 3;
const GRID: &str = "\
scenarios = [\"chunks-small\"]
managers = [\"none\", \"numab2\"]
seeds = 6
mode = \"exact\"
[parameters]
process.0.footprint = [\"64MiB\"]
process.0.pattern.chunk = [\"4MiB\"]
process.0.pattern.accesses_per_page = [400]
";

/// The code of the first block of that kind behind a heading.
fn block(heading: &str, kind: &str) -> String {
    let text = fs::read_to_string(CHAPTER).unwrap();
    let behind = text.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let block = behind.split(&format!("```{kind}\n")).nth(1).unwrap();
    block.split("```").next().unwrap().to_owned()
}

/// A folder with a grid, in which examples run.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("dram.toml"), GRID).unwrap();
        Place { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Code of an example with the shared folder here, and for fewer tasks.
    fn here(&self, code: &str, shared: &str) -> String {
        let here = self.folder.path().to_str().unwrap();
        code.replace(shared, here).replace("/64", &format!("/{TASKS}"))
    }

    /// A command that finds the grid and `thermocline`.
    fn command(&self, arguments: &[String]) -> Command {
        let of_program = Path::new(env!("CARGO_BIN_EXE_thermocline")).parent().unwrap();
        let path = format!("{}:{}", of_program.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(&arguments[0]);
        command.args(&arguments[1..]).current_dir(self.folder.path()).env("PATH", path);
        command.stdout(Stdio::null());
        command
    }

    /// Runs every task; one is killed in the middle and begun again.
    fn run(&self, task: &dyn Fn(usize) -> Command) {
        let mut killed = task(1).spawn().unwrap();
        let (journal, begun) = (self.path(&format!("dram/part-2-of-{TASKS}.journal")), Instant::now());
        while fs::read_to_string(&journal).unwrap_or_default().lines().count() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does nothing");
            assert!(killed.try_wait().unwrap().is_none(), "it was done before it was killed");
            std::thread::sleep(Duration::from_millis(1));
        }
        killed.kill().unwrap();
        killed.wait().unwrap();
        for index in [2, 1, 0] {
            assert!(task(index).status().unwrap().success(), "task {index}");
        }
    }

    /// The bytes of a local sweep.
    fn local(&self) -> Vec<u8> {
        let arguments = ["thermocline", "sweep", "dram.toml", "--out", "local"].map(str::to_owned);
        assert!(self.command(&arguments).status().unwrap().success());
        fs::read(self.path("local/part-1-of-1.parquet")).unwrap()
    }
}

#[test]
fn the_array_of_slurm_makes_the_bytes_of_a_local_sweep() {
    let place = Place::new();
    let script = block("Slurm", "sh");
    assert!(script.starts_with("#!/bin/sh\n#SBATCH ") && script.contains("--array=1-64\n"));
    fs::write(place.path("job.sh"), place.here(&script, "/shared")).unwrap();
    let arguments = ["sh", "job.sh"].map(str::to_owned);
    place.run(&|index| {
        let mut command = place.command(&arguments);
        command.env("SLURM_ARRAY_TASK_ID", (index + 1).to_string()).env("SLURM_CPUS_PER_TASK", "1");
        command
    });
    let text = fs::read_to_string(CHAPTER).unwrap();
    let merge = text.split("--wrap '").nth(1).unwrap().split('\'').next().unwrap();
    let arguments = ["sh".to_owned(), "-c".to_owned(), place.here(merge, "/shared")];
    assert!(place.command(&arguments).status().unwrap().success());
    assert_eq!(fs::read(place.path("dram/sweep.parquet")).unwrap(), place.local());
}

#[test]
fn the_indexed_job_of_kubernetes_makes_the_bytes_of_a_local_sweep() {
    let place = Place::new();
    let job = block("Kubernetes", "yaml");
    for line in ["kind: Job", "  completions: 64", "  completionMode: Indexed", "restartPolicy: OnFailure"] {
        assert!(job.contains(line), "{line}");
    }
    let command = job.lines().find_map(|line| line.trim().strip_prefix("command: ")).unwrap();
    let arguments: Vec<String> = serde_json::from_str(&place.here(command, "/runs")).unwrap();
    place.run(&|index| {
        let mut command = place.command(&arguments);
        command.env("JOB_COMPLETION_INDEX", index.to_string()).env("RAYON_NUM_THREADS", "1");
        command
    });
    let merge = ["thermocline", "sweep", "--merge", "dram"].map(str::to_owned);
    assert!(place.command(&merge).status().unwrap().success());
    assert_eq!(fs::read(place.path("dram/sweep.parquet")).unwrap(), place.local());
}
