//! Writes the archive that the kernel unpacks as its first file system: the "newc" form of cpio, as
//! in the Linux documentation's initramfs buffer format.

/// An archive being written in memory.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

impl Archive {
    /// Adds a folder. Its parents must have been added before.
    pub(crate) fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER | 0o755, &[]);
    }

    /// Adds a file with the permission bits `mode`.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entry(path, REGULAR | mode, content);
    }

    /// Closes the archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let links = if mode & FOLDER != 0 { 2 } else { 1 };
        let name_len = path.len() as u32 + 1;
        // inode, mode, uid, gid, links, mtime, size, device major/minor, rdev major/minor, name
        // length, checksum
        let fields = [self.entries, mode, 0, 0, links, 0, content.len() as u32, 0, 0, 0, 0, name_len, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_header_and_padding_of_the_format() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/a", 0o755, b"hello");
        let bytes = archive.finish();
        assert_eq!(&bytes[..6], b"070701");
        // 110 bytes of header, "bin\0" ends at 114, padded to 116.
        assert_eq!(&bytes[110..116], b"bin\0\0\0");
        assert_eq!(&bytes[116..122], b"070701");
        let size = std::str::from_utf8(&bytes[116 + 54..116 + 62]).unwrap();
        assert_eq!(u32::from_str_radix(size, 16).unwrap(), 5);
        // name at 226, 6 bytes with its end, padded to 232; content padded to 240.
        assert_eq!(&bytes[226..240], b"bin/a\0hello\0\0\0");
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0"));
    }
}
