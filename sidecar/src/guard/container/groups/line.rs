//! One line of `/proc/PID/cgroup`: a group in one hierarchy.

/// Of a line `number:controllers:path`, what names the hierarchy and the path.
pub(super) fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let number = line.iter().position(|byte| *byte == b':')?;
    let controllers = line[number + 1..].iter().position(|byte| *byte == b':')?;
    let (hierarchy, path) = line.split_at(number + 1 + controllers + 1);
    path.starts_with(b"/").then_some((hierarchy, path))
}

pub(super) fn is_in(line: &[u8], group: &[u8]) -> bool {
    line.strip_prefix(group)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether the group of this line is one in which we are not: not ours, and none above us.
pub(super) fn tells_apart(line: &[u8], own: &[Vec<u8>]) -> bool {
    let Some((hierarchy, path)) = split(line) else {
        return false;
    };
    let is_above = |parts: &[u8]| {
        parts
            .split(|byte| *byte == b'/')
            .all(|part| part.is_empty() || part == b"..")
    };
    // Also where we are not in that hierarchy at all.
    !is_above(path)
        && own
            .iter()
            .filter(|own| own.starts_with(hierarchy))
            .all(|own| !is_in(own, line))
}
