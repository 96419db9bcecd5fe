//! Reads the kernel's type information (BTF), as far as is needed to determine whether a function,
//! a field or a tracepoint exists.
//!
//! Format: Linux Documentation/bpf/btf.rst. Needs neither libbpf nor, if `/sys/kernel/btf/vmlinux`
//! is readable, a privilege.

use std::io;
use std::path::{Path, PathBuf};

/// Where the running kernel publishes its BTF.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;
/// Anonymous members and modifiers nest only a few levels deep; deeper nesting is a loop.
const DEPTH_MAX: u32 = 16;

mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
    pub(super) const LAST: u32 = ENUM64;
}

/// Why a kernel's BTF cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The kernel has none.
    #[error("{}: this kernel does not offer BTF: boot one built with CONFIG_DEBUG_INFO_BTF", .0.display())]
    Absent(PathBuf),
    /// It exists but cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It exists but is not BTF in the format that we know.
    #[error("{}: not usable BTF: {what} at byte {at}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
        /// Where.
        at: usize,
    },
}

/// The type information of one kernel.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    /// Where each type starts; type ids start at 1.
    types: Vec<u32>,
    strings: usize,
}

#[derive(Clone, Copy)]
struct Type {
    at: usize,
    name: u32,
    kind: u32,
    vlen: usize,
    /// Size in bytes, or the id of the type referred to.
    size_or_type: u32,
}

impl Btf {
    /// Reads raw BTF from `path`, usually [`VMLINUX`].
    ///
    /// # Errors
    /// [`BtfError::Absent`] if there is no such file; [`BtfError::Read`] or [`BtfError::Malformed`]
    /// if it cannot be used.
    pub fn read(path: &Path) -> Result<Btf, BtfError> {
        let bytes = crate::root::read_bytes(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BtfError::Absent(path.to_owned()),
            _ => BtfError::Read { path: path.to_owned(), source: error },
        })?;
        Btf::parse(bytes).map_err(|(what, at)| BtfError::Malformed { path: path.to_owned(), what, at })
    }

    /// Indexes raw BTF. The error says what is wrong, and at which byte.
    fn parse(bytes: Vec<u8>) -> Result<Btf, (&'static str, usize)> {
        if bytes.len() < HEADER_BYTES || u16::from_ne_bytes([bytes[0], bytes[1]]) != MAGIC {
            return Err(("no BTF header", 0));
        }
        let field = |at: usize| u32_at(&bytes, at).unwrap_or(0) as usize;
        let start = field(4).saturating_add(field(8));
        let end = start.saturating_add(field(12));
        let strings = field(4).saturating_add(field(16));
        if end > bytes.len() || strings.saturating_add(field(20)) > bytes.len() {
            return Err(("a section beyond the end of the file", 8));
        }
        let mut types = Vec::new();
        let mut at = start;
        while at < end {
            let info = u32_at(&bytes, at + 4).ok_or(("a type cut short", at))?;
            let extra = extra_bytes(info).ok_or(("a type of unknown kind", at))?;
            types.push(u32::try_from(at).map_err(|_| ("a file above 4 GiB", at))?);
            at += TYPE_BYTES + extra;
        }
        if at != end {
            return Err(("a type beyond the end of its section", at));
        }
        Ok(Btf { bytes, types, strings })
    }

    /// The names of a function's parameters, in order; `None` if no such function can be attached
    /// to.
    pub fn function(&self, name: &str) -> Option<Vec<&str>> {
        let function = self.find(name, &[kind::FUNC])?;
        let prototype = self.type_of(function.size_or_type).filter(|t| t.kind == kind::FUNC_PROTO)?;
        (0..prototype.vlen)
            .map(|i| self.name(u32_at(&self.bytes, prototype.at + TYPE_BYTES + i * 8)?))
            .collect()
    }

    /// Whether a tracepoint exists that BPF programs can attach to with types (`tp_btf`).
    pub fn has_tracepoint(&self, name: &str) -> bool {
        self.find(&format!("btf_trace_{name}"), &[kind::TYPEDEF]).is_some()
    }

    /// Whether struct `name` has a field `field`, also within its anonymous structs and unions.
    pub fn has_field(&self, name: &str, field: &str) -> bool {
        self.member(name, field).is_some()
    }

    /// The size of struct `name`, in bytes.
    pub fn size(&self, name: &str) -> Option<u32> {
        self.find(name, &[kind::STRUCT]).map(|found| found.size_or_type)
    }

    /// The number of elements of the array `field` of struct `name`.
    pub fn array_len(&self, name: &str, field: &str) -> Option<u32> {
        let array = self.member(name, field).filter(|t| t.kind == kind::ARRAY)?;
        u32_at(&self.bytes, array.at + TYPE_BYTES + 8)
    }

    /// The value of `member` of enum `name`, if it has at most 32 bits.
    pub fn enum_value(&self, name: &str, member: &str) -> Option<u32> {
        let of = self.find(name, &[kind::ENUM])?;
        (0..of.vlen)
            .map(|i| of.at + TYPE_BYTES + i * 8)
            .find(|&at| u32_at(&self.bytes, at).and_then(|n| self.name(n)) == Some(member))
            .and_then(|at| u32_at(&self.bytes, at + 4))
    }

    fn member(&self, name: &str, field: &str) -> Option<Type> {
        self.member_of(self.find(name, &[kind::STRUCT])?, field, DEPTH_MAX)
    }

    fn member_of(&self, of: Type, field: &str, depth: u32) -> Option<Type> {
        let depth = depth.checked_sub(1)?;
        (0..of.vlen).find_map(|i| {
            let at = of.at + TYPE_BYTES + i * 12;
            let name = self.name(u32_at(&self.bytes, at)?)?;
            let inner = self.resolve(u32_at(&self.bytes, at + 4)?);
            match inner {
                Some(inner) if name.is_empty() && matches!(inner.kind, kind::STRUCT | kind::UNION) => {
                    self.member_of(inner, field, depth)
                }
                _ if name == field => inner,
                _ => None,
            }
        })
    }

    /// Follows typedefs and modifiers.
    fn resolve(&self, id: u32) -> Option<Type> {
        let mut t = self.type_of(id)?;
        for _ in 0..DEPTH_MAX {
            match t.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::TYPE_TAG => {
                    t = self.type_of(t.size_or_type)?
                }
                _ => return Some(t),
            }
        }
        None
    }

    fn find(&self, name: &str, kinds: &[u32]) -> Option<Type> {
        (1..=self.types.len() as u32)
            .filter_map(|id| self.type_of(id))
            .find(|t| kinds.contains(&t.kind) && self.name(t.name) == Some(name))
    }

    fn type_of(&self, id: u32) -> Option<Type> {
        let at = *self.types.get(id.checked_sub(1)? as usize)? as usize;
        let info = u32_at(&self.bytes, at + 4)?;
        Some(Type {
            at,
            name: u32_at(&self.bytes, at)?,
            kind: info >> 24 & 0x1f,
            vlen: (info & 0xffff) as usize,
            size_or_type: u32_at(&self.bytes, at + 8)?,
        })
    }

    fn name(&self, offset: u32) -> Option<&str> {
        let rest = self.bytes.get(self.strings.checked_add(offset as usize)?..)?;
        let end = rest.iter().position(|&b| b == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    }
}

/// Number of bytes that follow a type of this kind and length; `None` for a kind that this reader
/// does not know.
fn extra_bytes(info: u32) -> Option<usize> {
    let vlen = (info & 0xffff) as usize;
    Some(match info >> 24 & 0x1f {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => vlen * 12,
        kind::ENUM | kind::FUNC_PROTO => vlen * 8,
        0 => return None,
        other if other <= kind::LAST => 0,
        _ => return None,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
}

#[cfg(test)]
impl Btf {
    /// BTF with only these functions, each with the names of its parameters.
    pub(super) fn of_functions(functions: &[(&str, &[&str])]) -> Btf {
        let mut strings = b"\0long\0".to_vec();
        let mut types = vec![1, kind::INT << 24, 8, 64];
        let mut name = |s: &str| {
            let at = strings.len() as u32;
            strings.extend(s.as_bytes());
            strings.push(0);
            at
        };
        for (number, (function, params)) in functions.iter().enumerate() {
            types.extend([0, kind::FUNC_PROTO << 24 | params.len() as u32, 1]);
            types.extend(params.iter().flat_map(|param| [name(param), 1]));
            types.extend([name(function), kind::FUNC << 24, 2 + 2 * number as u32]);
        }
        let types: Vec<u8> = types.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let (types_len, strings_len) = (types.len() as u32, strings.len() as u32);
        let mut bytes = [MAGIC.to_ne_bytes(), [1, 0]].concat();
        for word in [HEADER_BYTES as u32, 0, types_len, types_len, strings_len] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(types);
        bytes.extend(strings);
        Btf::parse(bytes).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF with one struct `folio { flags; union { index; } }` (u64 each), one enum and one
    /// function.
    fn sample() -> Vec<u8> {
        let strings = b"\0folio\0flags\0index\0zone_type\0MAX\0check\0vmf\0addr\0u64\0\0";
        let name = |s: &str| {
            let needle = [b"\0", s.as_bytes(), b"\0"].concat();
            strings.windows(needle.len()).position(|w| w == needle).unwrap() as u32 + 1
        };
        let mut t: Vec<u32> = Vec::new();
        t.extend([name("u64"), kind::INT << 24, 8, 64]); // 1
        t.extend([0, kind::UNION << 24 | 1, 8, name("index"), 1, 0]); // 2
        t.extend([name("folio"), kind::STRUCT << 24 | 2, 16, name("flags"), 1, 0, 0, 2, 64]); // 3
        t.extend([name("zone_type"), kind::ENUM << 24 | 1, 4, name("MAX"), 5]); // 4
        t.extend([0, kind::FUNC_PROTO << 24 | 2, 1, name("vmf"), 1, name("addr"), 1]); // 5
        t.extend([name("check"), kind::FUNC << 24, 5]); // 6
        let types: Vec<u8> = t.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let header = [24u32, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
        bytes.extend(header.iter().flat_map(|w| w.to_ne_bytes()));
        bytes.extend(types);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn finds_functions_fields_and_enums() {
        let btf = Btf::parse(sample()).unwrap();
        assert_eq!(btf.function("check"), Some(vec!["vmf", "addr"]));
        assert_eq!(btf.function("folio"), None, "a struct is no function");
        assert!(btf.has_field("folio", "flags"));
        assert!(btf.has_field("folio", "index"), "within an anonymous union");
        assert!(!btf.has_field("folio", "private"));
        assert_eq!((btf.size("folio"), btf.size("zone_type")), (Some(16), None));
        assert_eq!(btf.enum_value("zone_type", "MAX"), Some(5));
        assert!(!btf.has_tracepoint("check"));
    }

    #[test]
    fn damaged_input_is_an_error_or_finds_nothing_and_never_panics() {
        let good = sample();
        for cut in 0..good.len() {
            if let Ok(btf) = Btf::parse(good[..cut].to_vec()) {
                btf.function("check");
            }
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            if let Ok(btf) = Btf::parse(bad) {
                btf.function("check");
                btf.has_field("folio", "index");
                btf.enum_value("zone_type", "MAX");
            }
        }
        assert!(Btf::parse(vec![0; 100]).is_err());
    }

    #[test]
    fn reads_the_running_kernels() {
        match Btf::read(Path::new(VMLINUX)) {
            Ok(btf) => {
                assert!(btf.has_field("task_struct", "tgid"));
                assert!(btf.has_tracepoint("sched_process_exit"));
                assert_eq!(btf.function("do_exit"), Some(vec!["code"]));
            }
            Err(error) => eprintln!("skipped: {error}"),
        }
    }

    #[test]
    fn an_absent_file_is_told_apart() {
        assert!(matches!(Btf::read(Path::new("/nonexistent/btf")), Err(BtfError::Absent(_))));
    }
}
