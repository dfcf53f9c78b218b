//! Lines of `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mount<'a> {
    /// The directory or file of its file system that is mounted, as [`decoded`] reads it.
    pub root: &'a [u8],
    /// Where it is mounted, as [`decoded`] reads it.
    pub point: &'a [u8],
    /// The kind of file system; empty when the line was cut off before it.
    pub kind: &'a [u8],
}

impl<'a> Mount<'a> {
    /// Fields 4 and 5 of a line, and the first after the hyphen that ends the optional ones.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        fields.find(|field| *field == b"-");
        Some(Self {
            root,
            point,
            kind: fields.next().unwrap_or_default(),
        })
    }
}

/// What a field means: blank, tab, line end and backslash are written as `\` and three octal digits.
pub(super) fn decoded(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = || {
            let digits = after.get(..3)?;
            let number = std::str::from_utf8(digits).ok()?;
            let value = u8::from_str_radix(number, 8).ok()?;
            digits.iter().all(u8::is_ascii_digit).then_some(value)
        };
        let (value, len) = match (byte, octal()) {
            (b'\\', Some(value)) => (value, 4),
            _ => (byte, 1),
        };
        text.push(value);
        rest = &rest[len..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_root_and_mount_point_and_kind_with_and_without_optional_fields() {
        for optional in ["", "shared:1 ", "shared:1 master:2 propagate_from:3 "] {
            let line =
                format!("36 35 98:0 /mnt1 /mnt2 rw,noatime {optional}- ext3 /dev/root rw,errors=continue");
            let mount = Mount::parse(line.as_bytes()).expect("a mount");
            assert_eq!(
                (mount.root, mount.point, mount.kind),
                (&b"/mnt1"[..], &b"/mnt2"[..], &b"ext3"[..])
            );
        }
        assert_eq!(Mount::parse(b"36 35 98:0 /mnt1"), None);
        assert_eq!(
            Mount::parse(b"36 35 98:0 /mnt1 /mnt2 rw").expect("a mount").kind,
            b""
        );
    }

    #[test]
    fn what_is_written_in_octal_digits_is_read() {
        let read = |field: &str| String::from_utf8(decoded(field.as_bytes())).expect("text");
        assert_eq!(read("/a\\040b\\011c\\012d\\134e"), "/a b\tc\nd\\e");
        assert_eq!(read("/a\\04"), "/a\\04");
        assert_eq!(read("/a\\999\\"), "/a\\999\\");
    }
}
