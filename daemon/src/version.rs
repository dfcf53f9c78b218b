//! Which build a program is.

/// The version of a program, the commit that it was built from, if it is one of a release (`make dist`), and its
/// optional features.
pub fn long(version: &str, features: &[&str]) -> String {
    let revision = match option_env!("LOCKKEEPER_REVISION") {
        Some(revision) => format!("commit {revision}"),
        None => "no release".to_owned(),
    };
    match features {
        [] => format!("{version} ({revision})"),
        features => format!("{version} ({revision}, with {})", features.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_is_no_release_says_so() {
        assert_eq!(long("0.1.0", &[]), "0.1.0 (no release)");
        assert_eq!(long("0.1.0", &["tls"]), "0.1.0 (no release, with tls)");
    }
}
