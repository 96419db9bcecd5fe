//! Selects kernel modules and their dependencies, in loading order.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::machine::apt::output_of;
use crate::{Error, Kernel, Result};

/// A module ready to be loaded.
#[derive(Debug)]
pub(crate) struct Module {
    /// Its file name without `.ko` and compression.
    pub(crate) name: String,
    /// Its uncompressed object.
    pub(crate) object: Vec<u8>,
}

/// Reads the named modules of a kernel and everything they depend on, dependencies first. A
/// built-in module yields nothing. If a module is missing altogether, the guest reports it.
pub(crate) fn closure(kernel: &Kernel, names: &[&str]) -> Result<Vec<Module>> {
    let folder = kernel.modules();
    let path = folder.join("modules.dep");
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    order(&text, names).into_iter().map(|file| read(&folder.join(file))).collect()
}

/// The files to load for `names`, from depmod's table. Each line has a file and the files that it
/// depends on, the deepest dependency last.
fn order<'a>(table: &'a str, names: &[&str]) -> Vec<&'a str> {
    let needs: BTreeMap<&str, (&str, &str)> = table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(file, needs)| (stem(file), (file, needs)))
        .collect();
    let mut files = Vec::new();
    for (file, needs) in names.iter().filter_map(|name| needs.get(name)) {
        for file in needs.split_whitespace().rev().chain([*file]) {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    files
}

fn stem(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(".ko").next().unwrap_or(name)
}

fn read(path: &Path) -> Result<Module> {
    let name = stem(&path.to_string_lossy()).to_owned();
    let object = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => output_of(Command::new("xz").arg("-dc").arg(path), "xz", "xz-utils")?.stdout,
        Some("zst") => output_of(Command::new("zstd").arg("-dc").arg(path), "zstd", "zstd")?.stdout,
        _ => fs::read(path).map_err(Error::file("read", path))?,
    };
    Ok(Module { name, object })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first_and_once() {
        let table = "kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n\
                     kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n\
                     kernel/fs/overlayfs/overlay.ko.xz:\n";
        assert_eq!(
            order(table, &["9p", "9pnet_virtio", "overlay", "builtin"]),
            [
                "kernel/fs/netfs/netfs.ko.xz",
                "kernel/net/9p/9pnet.ko.xz",
                "kernel/fs/9p/9p.ko.xz",
                "kernel/net/9p/9pnet_virtio.ko.xz",
                "kernel/fs/overlayfs/overlay.ko.xz",
            ]
        );
    }
}
