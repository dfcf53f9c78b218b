//! Names that the injected parts of a pod have. The sidecar's side of them is in `lockkeeper --help`.

/// Init container that copies the binary where image volumes are not to be had.
pub(crate) const INSTALL: &str = "lockkeeper-install";
pub(crate) const BINARY_VOLUME: &str = "lockkeeper-bin";
/// Volume with the sockets and the lease file.
pub(crate) const RUN_VOLUME: &str = "lockkeeper-run";
pub(crate) const AUTH_VOLUME: &str = "lockkeeper-auth";

/// Where the guarded container sees the binary's folder.
pub(crate) const BINARY_DIR: &str = "/lockkeeper";
pub(crate) const BINARY: &str = "/lockkeeper/lockkeeper";
/// Where `lockkeeper-install` copies to. Not [`BINARY_DIR`]: in the sidecar's image that is a file.
pub(crate) const INSTALL_DIR: &str = "/install";
/// Sockets and lease file.
pub(crate) const RUN_DIR: &str = "/run/lockkeeper";
/// Credentials and certificates.
pub(crate) const AUTH_DIR: &str = "/run/secrets/lockkeeper";
/// File in [`RUN_DIR`] that is there only while the lock is held.
pub(crate) const LEASE_FILE: &str = "lease.env";
/// Variable in it.
pub(crate) const TOKEN: &str = "LOCKKEEPER_FENCING_TOKEN";

/// Probes, metrics, and the application's own probes.
pub(crate) const PORT: u16 = 9808;
/// Exit codes with which a sidecar that guards by signals says that nothing of the application is left, and that it is
/// enough to start the sidecar again: it was asked to end (0, 143 for SIGTERM), or cannot work (64, 69, 73, 77).
pub(crate) const NOTHING_LEFT: [i32; 6] = [0, 64, 69, 73, 77, 143];
/// User of the sidecar where nothing says another one: `nonroot` of the distroless images.
pub(crate) const USER: i64 = 65532;

/// Secret of a namespace with the identity of its pods, made by the operator.
pub(crate) const CREDENTIALS_SECRET: &str = "lockkeeper-zookeeper";
