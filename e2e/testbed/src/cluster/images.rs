//! Images for the cluster: built from a Dockerfile by buildah, or by docker where there is no buildah,
//! and pushed to a registry that the nodes pull from.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::layout::{REGISTRY_INSIDE, directory, registry_port_outside};
use crate::{Host, Process, Unsupported};

/// Names a registry that the nodes of a cluster of the user's own pull from, such as
/// `registry.example.org/tests`, or `http://localhost:5001` for one without TLS.
pub const REGISTRY: &str = "LOCKKEEPER_E2E_REGISTRY";

/// Buildah writes what it knows of images to a fixed path: it gets that path for itself.
const WITHOUT_TRACES: &str = r#"mount --bind "$0" /var/lib/containers; exec "$@""#;

/// The registry of the images, and the tool that makes them.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    tool: Tool,
    /// Prefix of image names for the tool that pushes.
    push: String,
    /// Prefix of image names for nodes.
    pull: String,
    /// Whether it speaks TLS.
    encrypted: bool,
    /// The host from which buildah pushes.
    host: Option<Host>,
}

#[derive(Clone, Copy, Debug)]
enum Tool {
    Buildah,
    Docker,
}

impl Registry {
    /// The registry of the cluster.
    ///
    /// # Errors
    /// When there is neither buildah nor a docker engine.
    pub(crate) fn own(control_plane: &Host) -> Result<Self, Unsupported> {
        let tool = Tool::find()?;
        let pull = REGISTRY_INSIDE.to_owned();
        Ok(match tool {
            Tool::Buildah => Self {
                tool,
                push: pull.clone(),
                pull,
                encrypted: false,
                host: Some(control_plane.clone()),
            },
            // The engine runs somewhere on this machine; it allows plain HTTP on 127.0.0.1.
            Tool::Docker => Self {
                tool,
                push: format!("127.0.0.1:{}", registry_port_outside()),
                pull,
                encrypted: false,
                host: None,
            },
        })
    }

    /// The registry that [`REGISTRY`] names.
    ///
    /// # Errors
    /// When it names none, or no tool can make images.
    pub(crate) fn foreign() -> Result<Self, Unsupported> {
        let Some(name) = std::env::var(REGISTRY).ok().filter(|name| !name.is_empty()) else {
            return Err(Unsupported::new(format!(
                "{REGISTRY} does not name a registry that the nodes of your cluster can pull from"
            )));
        };
        let encrypted = !name.starts_with("http://");
        let name = name.trim_start_matches("http://").to_owned();
        Ok(Self {
            tool: Tool::find()?,
            push: name.clone(),
            pull: name,
            encrypted,
            host: None,
        })
    }

    /// Builds the Dockerfile in `folder`, up to `stage` if there is one, and pushes the image as `name:tag`.
    /// Returns the name by which pods use it.
    ///
    /// # Errors
    /// When it cannot be built or pushed, with the output of the tool.
    pub(crate) fn push(&self, name: &str, folder: &Path, stage: Option<&str>) -> anyhow::Result<String> {
        let target = format!("{}/{name}", self.push);
        let stage = stage.map(|stage| format!("--target={stage}"));
        match self.tool {
            Tool::Docker => {
                self.run(
                    Command::new("docker")
                        .args(["build", "--quiet", "--tag", &target])
                        .args(stage)
                        .arg(folder),
                )?;
                self.run(Command::new("docker").args(["push", "--quiet", &target]))?;
            }
            Tool::Buildah => {
                self.run(
                    self.buildah("bud")?
                        .args(["--isolation", "chroot", "--quiet", "--tag", &target])
                        .args(stage)
                        .arg(folder),
                )?;
                let verify = format!("--tls-verify={}", self.encrypted);
                self.run(self.buildah("push")?.args(["--quiet", &verify, &target]))?;
                self.run(self.buildah("rmi")?.arg(&target))?;
            }
        }
        Ok(format!("{}/{name}", self.pull))
    }

    /// An image that contains only one static program, which it runs, and a link from `/var/run` to `/run`,
    /// as most images have.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) fn push_program(&self, name: &str, program: &Path) -> anyhow::Result<String> {
        let folder = tempfile::tempdir()?;
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("var"))?;
        fs::create_dir(root.join("run"))?;
        std::os::unix::fs::symlink("/run", root.join("var/run"))?;
        fs::copy(program, root.join("program"))
            .with_context(|| format!("cannot read {}", program.display()))?;
        fs::write(
            folder.path().join("Dockerfile"),
            "FROM scratch\nCOPY root /\nENTRYPOINT [\"/program\"]\n",
        )?;
        self.push(name, folder.path(), None)
    }

    /// Buildah with all its files in the cluster's directory, unless the images are for another cluster.
    fn buildah(&self, verb: &str) -> anyhow::Result<Command> {
        let mut command = Command::new("buildah");
        if self.host.is_some() {
            let directory = directory().join("buildah");
            fs::create_dir_all(&directory)?;
            command = Command::new("unshare");
            command
                .args(["--mount", "--propagation", "slave", "sh", "-ec", WITHOUT_TRACES])
                .arg(&directory)
                .args(["buildah", "--runroot"])
                .arg(directory.join("run"));
        }
        command.args(["--storage-driver", "vfs", verb]);
        Ok(command)
    }

    fn run(&self, command: &mut Command) -> anyhow::Result<()> {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let line = format!("{} {}", command.get_program().to_string_lossy(), words.join(" "));
        let mut owned = Command::new(command.get_program());
        owned
            .args(command.get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let process = match &self.host {
            Some(host) => host.spawn("image builder", owned)?,
            None => Process::spawn("image builder", owned)?,
        };
        let output = process.output()?;
        ensure!(
            output.status.success(),
            "{line} failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

/// Why no image can be built on this machine; `Ok` where it can.
///
/// # Errors
/// The reason.
pub(crate) fn can_build() -> Result<(), Unsupported> {
    Tool::find().map(drop)
}

impl Tool {
    fn find() -> Result<Self, Unsupported> {
        let answers = |program: &str, argument: &str| {
            Command::new(program)
                .arg(argument)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        if answers("buildah", "--version") {
            Ok(Self::Buildah)
        } else if answers("docker", "info") {
            Ok(Self::Docker)
        } else {
            Err(Unsupported::new(
                "images cannot be built: there is neither buildah (apt-get install buildah) nor a docker engine",
            ))
        }
    }
}
