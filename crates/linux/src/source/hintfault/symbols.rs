//! Addresses of the kernel's variables.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Where the running kernel shows its symbols.
pub(super) const KALLSYMS: &str = "/proc/kallsyms";

/// The address of a symbol of the kernel itself, from a file such as [`KALLSYMS`]. `None` where there
/// is none of that name, or addresses are hidden: that takes CAP_SYSLOG, or `kernel.kptr_restrict` and
/// `kernel.perf_event_paranoid` as they are on few machines.
pub(super) fn address(file: &Path, symbol: &str) -> Option<u64> {
    let mut lines = BufReader::with_capacity(1 << 16, File::open(file).ok()?);
    let mut line = String::new();
    while lines.read_line(&mut line).ok()? > 0 {
        // `ADDRESS TYPE NAME`, and `[MODULE]` behind those of modules.
        let mut words = line.split_ascii_whitespace();
        if let (Some(address), Some(_), Some(name), None) =
            (words.next(), words.next(), words.next(), words.next())
            && name == symbol
        {
            return u64::from_str_radix(address, 16).ok().filter(|&address| address > 0);
        }
        line.clear();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_symbol_is_found_and_a_hidden_one_is_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let find = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            address(file.path(), "vmemmap_base")
        };
        let others = "ffffffff81000000 T _stext\nffffffff82470220 r __ksymtab_vmemmap_base\n";
        let own = "ffffffff82415730 D vmemmap_base\n";
        let modules = "ffffffffc0000000 d vmemmap_base\t[odd]\n";
        assert_eq!(find(&format!("{others}{modules}{own}")), Some(0xffff_ffff_8241_5730));
        assert_eq!(find(&format!("{others}{modules}")), None);
        assert_eq!(find("0000000000000000 D vmemmap_base\n"), None);
        assert_eq!(address(Path::new("/nonexistent"), "vmemmap_base"), None);
    }
}
