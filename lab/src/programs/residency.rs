//! Where a process's pages are, read from procfs and sysfs without any part of Thermocline.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, bail};
use thermocline_core::units::{NodeId, PAGE_SIZE, PAGES_PER_MIB, Pfn};

/// Linux Documentation/admin-guide/mm/pagemap.rst: bit 63 present, bit 62 swapped, bits 0 to 54 the
/// page frame.
const PRESENT: u64 = 1 << 63;
const PFN_MASK: u64 = (1 << 55) - 1;
/// Mappings this close belong together.
const NEAR_BYTES: u64 = 1 << 30;
/// x86-64 user space ends here with four-level page tables (Linux
/// Documentation/arch/x86/x86_64/mm.rst).
const USER_END: u64 = 1 << 47;

/// Page frames of each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMap {
    /// Memory blocks, ascending and apart.
    blocks: Vec<(Range<u64>, NodeId)>,
}

impl NodeMap {
    /// Reads the nodes' memory blocks below `sys` (normally /sys).
    ///
    /// # Errors
    /// When sysfs does not show memory blocks (no memory hotplug in this kernel) or cannot be read.
    pub fn read(sys: &Path) -> anyhow::Result<NodeMap> {
        let path = sys.join("devices/system/memory/block_size_bytes");
        let text = fs::read_to_string(&path).with_context(|| {
            format!("cannot read {}: this kernel does not show its memory blocks", path.display())
        })?;
        let bytes = u64::from_str_radix(text.trim(), 16)
            .with_context(|| format!("{} holds {text:?} instead of a hexadecimal size", path.display()))?;
        let pages = bytes / PAGE_SIZE;
        let mut blocks = Vec::new();
        let nodes = sys.join("devices/system/node");
        for (node, path) in numbered(&nodes, "node")? {
            for (block, _) in numbered(&path, "memory")? {
                blocks.push((block * pages..(block + 1) * pages, NodeId(node as u16)));
            }
        }
        if blocks.is_empty() {
            bail!("no node in {} shows a memory block", nodes.display());
        }
        blocks.sort_unstable_by_key(|(range, _)| range.start);
        Ok(NodeMap { blocks })
    }

    /// The node of a page frame; `None` if it is in no node's memory.
    pub fn node(&self, pfn: Pfn) -> Option<NodeId> {
        let after = self.blocks.partition_point(|(range, _)| range.start <= pfn.0);
        let (range, node) = self.blocks.get(after.checked_sub(1)?)?;
        range.contains(&pfn.0).then_some(*node)
    }
}

/// The nodes that have CPUs, below `sys` (normally /sys): assumed to be DRAM by default.
///
/// # Errors
/// When the list cannot be read or understood.
pub fn nodes_with_cpus(sys: &Path) -> anyhow::Result<Vec<NodeId>> {
    let path = sys.join("devices/system/node/has_cpu");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    parse_node_list(text.trim()).with_context(|| format!("{} holds {text:?}", path.display()))
}

/// Parses a list such as `0-1,3`.
///
/// # Errors
/// When it is not a list.
pub fn parse_node_list(list: &str) -> anyhow::Result<Vec<NodeId>> {
    let mut nodes = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.trim().parse::<u16>().and_then(|first| Ok(first..=last.trim().parse()?));
        nodes.extend(
            range.with_context(|| format!("{part:?} is neither a node nor a range of nodes"))?.map(NodeId),
        );
    }
    Ok(nodes)
}

/// Entries of `folder` whose name is `prefix` and a number.
fn numbered(folder: &Path, prefix: &str) -> anyhow::Result<Vec<(u64, std::path::PathBuf)>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix)).map(str::parse);
        if let Some(Ok(number)) = number {
            found.push((number, entry.path()));
        }
    }
    Ok(found)
}

/// The page frames behind `pages` consecutive pages of a process from virtual page `first` on, from
/// its pagemap below `proc` (normally /proc); `None` for a page that is not in memory.
///
/// # Errors
/// When the pagemap cannot be read, or hides page frames from a reader without CAP_SYS_ADMIN.
pub fn page_frames(proc: &Path, pid: u32, first: u64, pages: u64) -> anyhow::Result<Vec<Option<Pfn>>> {
    let path = proc.join(pid.to_string()).join("pagemap");
    let context = || format!("cannot read {}", path.display());
    let mut file = File::open(&path).with_context(context)?;
    file.seek(SeekFrom::Start(first * 8)).with_context(context)?;
    let mut frames = Vec::with_capacity(pages as usize);
    let mut chunk = vec![0u8; 64 * 1024];
    while (frames.len() as u64) < pages {
        let wanted = ((pages - frames.len() as u64) * 8).min(chunk.len() as u64) as usize;
        file.read_exact(&mut chunk[..wanted]).with_context(context)?;
        for entry in chunk[..wanted].as_chunks::<8>().0 {
            let entry = u64::from_ne_bytes(*entry);
            if entry & PRESENT == 0 {
                frames.push(None);
            } else if entry & PFN_MASK == 0 {
                bail!("{} hides page frames: run as root (CAP_SYS_ADMIN)", path.display());
            } else {
                frames.push(Some(Pfn(entry & PFN_MASK)));
            }
        }
    }
    Ok(frames)
}

/// A mapping of a process, with its numbers from numa_maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Virtual addresses.
    pub range: Range<u64>,
    /// Base pages by node.
    pub by_node: BTreeMap<NodeId, u64>,
}

/// The mappings of a process that overlap `range`, from its maps and numa_maps below `proc`
/// (normally /proc).
///
/// # Errors
/// When either cannot be read, as when the process has ended.
pub fn mappings(proc: &Path, pid: u32, range: &Range<u64>) -> anyhow::Result<Vec<Mapping>> {
    let folder = proc.join(pid.to_string());
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let nodes = parse_numa_maps(&read("numa_maps")?);
    let mut found = Vec::new();
    for line in read("maps")?.lines() {
        let bounds = line.split_whitespace().next().and_then(|bounds| bounds.split_once('-'));
        let Some((Ok(start), Ok(end))) =
            bounds.map(|(start, end)| (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)))
        else {
            bail!("{} has a line without bounds: {line:?}", folder.join("maps").display());
        };
        if start < range.end && range.start < end {
            let by_node = nodes.get(&start).cloned().unwrap_or_default();
            found.push(Mapping { range: start..end, by_node });
        }
    }
    Ok(found)
}

/// Where most of a process's memory is: the mappings with at least 1 MiB in memory that lie within
/// 1 GiB of each other. Distant ones, such as the heap, are small, and a range that included them
/// would include the memory of other processes too.
///
/// # Errors
/// When the process's maps cannot be read, or when it has no such mapping.
pub fn data_range(proc: &Path, pid: u32) -> anyhow::Result<Range<u64>> {
    let mut best: Option<(u64, Range<u64>)> = None;
    let mut group: Option<(u64, Range<u64>)> = None;
    for mapping in mappings(proc, pid, &(0..u64::MAX))? {
        let pages = mapping.by_node.values().sum();
        if pages < PAGES_PER_MIB {
            continue;
        }
        group = match group {
            Some((sum, range)) if mapping.range.start - range.end <= NEAR_BYTES => {
                Some((sum + pages, range.start..mapping.range.end))
            }
            _ => Some((pages, mapping.range)),
        };
        if group.as_ref().map(|g| g.0) > best.as_ref().map(|b| b.0) {
            best.clone_from(&group);
        }
    }
    Ok(best.with_context(|| format!("process {pid} has no mapping with 1 MiB in memory"))?.1)
}

/// The mapping with the most pages in memory.
///
/// # Errors
/// When the process's maps cannot be read, or when it has no memory.
pub fn largest_mapping(proc: &Path, pid: u32) -> anyhow::Result<Range<u64>> {
    let mappings = mappings(proc, pid, &(0..u64::MAX))?;
    let largest = mappings.into_iter().max_by_key(|mapping| mapping.by_node.values().sum::<u64>());
    Ok(largest.with_context(|| format!("process {pid} has no memory"))?.range)
}

/// All of a process's memory as a few ranges: mappings within 1 GiB of each other are joined.
/// Address space layout randomisation keeps the ranges of two programs apart.
///
/// # Errors
/// When the process's maps cannot be read, as when it has ended.
pub fn program_ranges(proc: &Path, pid: u32) -> anyhow::Result<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for mapping in mappings(proc, pid, &(0..USER_END))? {
        match ranges.last_mut() {
            Some(last) if mapping.range.start - last.end <= NEAR_BYTES => last.end = mapping.range.end,
            _ => ranges.push(mapping.range),
        }
    }
    Ok(ranges)
}

/// The virtual addresses from the first to the last large (1 MiB or more) writable anonymous
/// mapping above the brk heap: where an allocator keeps a program's data, and the range for the
/// plugin to count. `None` if there is none.
///
/// # Errors
/// When the process's maps below `proc` (normally /proc) cannot be read, as when it has ended.
pub fn data_span(proc: &Path, pid: u32) -> anyhow::Result<Option<Range<u64>>> {
    const LARGE: u64 = 1 << 20;
    let path = proc.join(pid.to_string()).join("maps");
    let maps = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut span: Option<Range<u64>> = None;
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Bounds, permissions, offset, device, inode 0: a file or a name such as [heap] would
        // follow.
        let &[bounds, "rw-p", _, _, "0"] = fields.as_slice() else { continue };
        let Some((Ok(start), Ok(end))) = bounds
            .split_once('-')
            .map(|(start, end)| (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)))
        else {
            continue;
        };
        if end.saturating_sub(start) >= LARGE {
            span = Some(span.map_or(start..end, |span| span.start.min(start)..span.end.max(end)));
        }
    }
    Ok(span)
}

/// Base pages by node for each mapping's start (Linux Documentation/filesystems/proc.rst:
/// `N<node>=<pages>`, in pages of `kernelpagesize_kB`).
fn parse_numa_maps(text: &str) -> BTreeMap<u64, BTreeMap<NodeId, u64>> {
    let mut mappings = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let Some(Ok(start)) = fields.next().map(|start| u64::from_str_radix(start, 16)) else { continue };
        let mut by_node = BTreeMap::new();
        let mut page_kib = PAGE_SIZE / 1024;
        for (key, value) in fields.filter_map(|field| field.split_once('=')) {
            let Ok(value) = value.parse::<u64>() else { continue };
            if key == "kernelpagesize_kB" {
                page_kib = value;
            } else if let Some(Ok(node)) = key.strip_prefix('N').map(str::parse) {
                by_node.insert(NodeId(node), value);
            }
        }
        by_node.values_mut().for_each(|pages| *pages *= page_kib * 1024 / PAGE_SIZE);
        mappings.insert(start, by_node);
    }
    mappings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sysfs() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let memory = sys.path().join("devices/system/memory");
        fs::create_dir_all(&memory).unwrap();
        fs::write(memory.join("block_size_bytes"), "8000000\n").unwrap();
        for (node, blocks) in [(0, 0..2), (1, 2..4), (2, 32..34)] {
            for block in blocks {
                let folder = sys.path().join(format!("devices/system/node/node{node}/memory{block}"));
                fs::create_dir_all(folder).unwrap();
            }
        }
        fs::write(sys.path().join("devices/system/node/has_cpu"), "0-1\n").unwrap();
        fs::create_dir_all(sys.path().join("devices/system/node/power")).unwrap();
        sys
    }

    #[test]
    fn nodes_of_page_frames() {
        let sys = sysfs();
        let nodes = NodeMap::read(sys.path()).unwrap();
        let block = 0x800_0000 / PAGE_SIZE;
        for (pfn, node) in
            [(0, Some(0)), (2 * block - 1, Some(0)), (2 * block, Some(1)), (33 * block, Some(2))]
        {
            assert_eq!(nodes.node(Pfn(pfn)), node.map(NodeId), "{pfn}");
        }
        assert_eq!(nodes.node(Pfn(4 * block)), None);
        assert_eq!(nodes.node(Pfn(34 * block)), None);
        assert_eq!(nodes_with_cpus(sys.path()).unwrap(), [NodeId(0), NodeId(1)]);
        let error = NodeMap::read(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/devices/system/memory"), "{error}");
    }

    #[test]
    fn node_lists() {
        assert_eq!(parse_node_list("0,2-3").unwrap(), [NodeId(0), NodeId(2), NodeId(3)]);
        assert!(parse_node_list("").is_err());
        assert!(parse_node_list("0-x").is_err());
    }

    #[test]
    fn pagemap_entries() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("7")).unwrap();
        let entries = [1, PRESENT | 1 << 61 | 5, 1 << 62 | 9, PRESENT | 6];
        let bytes: Vec<u8> = entries.iter().flat_map(|entry: &u64| entry.to_ne_bytes()).collect();
        fs::write(proc.path().join("7/pagemap"), &bytes).unwrap();
        let frames = page_frames(proc.path(), 7, 1, 3).unwrap();
        assert_eq!(frames, [Some(Pfn(5)), None, Some(Pfn(6))]);
        assert!(page_frames(proc.path(), 7, 1, 4).is_err());
        fs::write(proc.path().join("7/pagemap"), PRESENT.to_ne_bytes()).unwrap();
        let hidden = page_frames(proc.path(), 7, 0, 1).unwrap_err().to_string();
        assert!(hidden.contains("CAP_SYS_ADMIN"), "{hidden}");
    }

    #[test]
    fn data_lies_in_large_anonymous_mappings() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("7")).unwrap();
        let maps = "55cb96000000-55cb96c00000 rw-p 00000000 00:00 0 [heap]\n\
                    7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n\
                    7f0000200000-7f0000600000 rw-p 00000000 00:00 0 \n\
                    7f0001000000-7f0001100000 rw-p 00000000 00:00 0 \n\
                    7f0002000000-7f0004000000 r--p 00000000 00:00 0 \n\
                    7f0005000000-7f0006000000 rw-p 00000000 08:01 99 /lib/x.so\n";
        fs::write(proc.path().join("7/maps"), maps).unwrap();
        assert_eq!(data_span(proc.path(), 7).unwrap(), Some(0x7f00_0020_0000..0x7f00_0110_0000));
        fs::write(proc.path().join("7/maps"), "").unwrap();
        assert_eq!(data_span(proc.path(), 7).unwrap(), None);
        assert!(data_span(proc.path(), 8).is_err());
    }

    #[test]
    fn numa_maps_by_mapping() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("7")).unwrap();
        let maps = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n\
                    7f0000200000-7f0000600000 rw-p 00000000 00:00 0 \n\
                    7f0000600000-7f0000700000 r--p 00000000 00:00 0 [vvar]\n";
        let numa_maps = "7f0000000000 default anon=512 dirty=512 N0=500 N2=12 kernelpagesize_kB=4\n\
                         7f0000200000 bind:1 file=/x huge dirty=2 N1=2 kernelpagesize_kB=2048\n";
        fs::write(proc.path().join("7/maps"), maps).unwrap();
        fs::write(proc.path().join("7/numa_maps"), numa_maps).unwrap();
        let found = mappings(proc.path(), 7, &(0x7f00_001f_f000..0x7f00_0020_1000)).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].by_node, BTreeMap::from([(NodeId(0), 500), (NodeId(2), 12)]));
        assert_eq!(found[1].by_node, BTreeMap::from([(NodeId(1), 1024)]));
        assert_eq!(found[1].range, 0x7f00_0020_0000..0x7f00_0060_0000);
        assert_eq!(largest_mapping(proc.path(), 7).unwrap(), found[1].range);

        // The heap is far away, and smaller than the data.
        fs::write(
            proc.path().join("7/maps"),
            format!("55cb96000000-55cb96c00000 rw-p 00000000 00:00 0 [heap]\n{maps}"),
        )
        .unwrap();
        let heap = "55cb96000000 default anon=600 dirty=600 N2=600 kernelpagesize_kB=4\n";
        fs::write(proc.path().join("7/numa_maps"), format!("{heap}{numa_maps}")).unwrap();
        assert_eq!(data_range(proc.path(), 7).unwrap(), 0x7f00_0000_0000..0x7f00_0060_0000);
        assert_eq!(
            program_ranges(proc.path(), 7).unwrap(),
            [0x55cb_9600_0000..0x55cb_96c0_0000, 0x7f00_0000_0000..0x7f00_0070_0000]
        );
    }
}
