//! The keys of Secrets by which identities and certificates are read.

/// Key with the identity in use, and in a second line the one before the last rotation: as the sidecar's
/// `--auth-file` reads it.
pub(crate) const AUTH: &str = "auth";

/// Keys with certificates, where the ensemble speaks TLS, as in a lock's own `tlsSecret`.
pub(crate) const CA: &str = "ca.crt";
/// See [`CA`].
pub(crate) const CERTIFICATE: &str = "tls.crt";
/// See [`CA`].
pub(crate) const KEY: &str = "tls.key";
