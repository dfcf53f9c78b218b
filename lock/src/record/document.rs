//! JSON documents.

/// Reads a document; `None` for longer data, and for data that are not an object. (serde would read an array as the
/// fields in their order.)
pub(crate) fn document<T: serde::de::DeserializeOwned>(data: &[u8], longest: usize) -> Option<T> {
    let is_it = data.len() <= longest && data.trim_ascii_start().first() == Some(&b'{');
    is_it.then(|| serde_json::from_slice(data).ok()).flatten()
}
