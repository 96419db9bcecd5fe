//! Inputs that fuzzing found, and variations of them: every law holds for each.

use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use thermocline_inputs::{ALL, Check};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Of each target.
const VARIATIONS: usize = 10_000;
/// Changes of a variation at most.
const CHANGES_MAX: usize = 8;
/// Numbers at which bounds are often wrong.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];

#[test]
fn every_law_holds_for_hostile_input() {
    let mut broken = Vec::new();
    for (name, check, bytes_max) in ALL {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name}: its archive is empty");
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let varied = (0..VARIATIONS).map(|_| vary(&seeds, bytes_max, &mut rng));
        let first = seeds.iter().cloned().chain(varied).find(|input| !holds(check, input));
        broken.extend(first.map(|input| format!("{name}: {}", kept(name, &input).display())));
    }
    assert!(broken.is_empty(), "laws were broken by these inputs:\n{}", broken.join("\n"));
}

#[test]
fn every_law_has_a_fuzz_target() {
    let targets = std::fs::read_dir(Path::new(WORKSPACE).join("fuzz/fuzz_targets")).expect("it is a folder");
    let mut found: Vec<_> =
        targets.map(|file| file.expect("it can be read").path().file_stem().map(PathBuf::from)).collect();
    found.sort();
    // The engine's steps and laws are those of its property tests.
    let mut names: Vec<_> = ALL.iter().map(|(name, ..)| Some(PathBuf::from(name))).collect();
    names.push(Some(PathBuf::from("engine")));
    names.sort();
    assert_eq!(found, names);
}

fn holds(check: Check, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| check(input))).is_ok()
}

/// The file that keeps an input, for `cargo fuzz run NAME FILE`.
fn kept(name: &str, input: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("broken-{name}"));
    std::fs::write(&path, input).expect("the folder of temporary files can be written");
    path
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(WORKSPACE).join(format!("fuzz/seeds/{name}.tar.gz"));
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let entries = archive.entries().expect("it is an archive");
    let files =
        entries.map(|entry| entry.expect("it is whole")).filter(|e| e.header().entry_type().is_file());
    files
        .map(|mut entry| {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("it is whole");
            bytes
        })
        .collect()
}

/// An input with a few changes: bits, bytes, numbers, cuts, repetitions, and the end of another.
fn vary(seeds: &[Vec<u8>], bytes_max: usize, rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut below = |end: usize| if end == 0 { 0 } else { (rng.next_u64() % end as u64) as usize };
    let mut out = seeds[below(seeds.len())].clone();
    for _ in 0..=below(CHANGES_MAX) {
        let at = below(out.len());
        match below(6) {
            _ if out.is_empty() => out.push(below(256) as u8),
            0 => out[at] ^= 1 << below(8),
            1 => out[at] = below(256) as u8,
            2 => {
                let number = EDGES[below(EDGES.len())].wrapping_sub(below(2) as u64).to_le_bytes();
                let bytes = 1 << below(4);
                out.iter_mut().skip(at).zip(&number[..bytes]).for_each(|(byte, new)| *byte = *new);
            }
            3 => out.truncate(at),
            4 => {
                let again = out[at..(at + 1 + below(64)).min(out.len())].to_vec();
                out.splice(at..at, again);
            }
            _ => {
                let other = &seeds[below(seeds.len())];
                out.truncate(at);
                out.extend_from_slice(&other[below(other.len())..]);
            }
        }
    }
    out.truncate(bytes_max);
    out
}
