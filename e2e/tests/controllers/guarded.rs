//! A pod's two programs as processes beside the operator: the keeper with the settings that the webhook would have given
//! it, and a container with the guard, whose application writes a record.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddrV4;
use std::process::Command;

use kube::ResourceExt;
use lockkeeper_product::beside::{Environment, Tenant};
use lockkeeper_product::binaries;
use lockkeeper_product::pod::{BOUND, Pod};
use lockkeeper_testbed::eventually::eventually;
use lockkeeper_testbed::process::wait_for;
use rustix::process::{Signal, kill_process};

use crate::environment::operator_identity;

/// They end when it is dropped, as with the crash of a machine: the session is left to expire.
pub struct Guarded {
    pub pod: Pod,
    door: SocketAddrV4,
    options: Vec<String>,
}

impl Guarded {
    /// Starts them for a new pod. `more` are the settings of the lock when the pod was made, as options of the keeper.
    pub async fn start(
        environment: &Environment,
        space: &Tenant,
        lock: &str,
        name: &str,
        more: &[&str],
    ) -> Self {
        let object = space.pod(name, lock).await;
        let auth = eventually("the Secret of the namespace", async || space.identities().await).await;
        let host = environment.ensemble.client(name).unwrap();
        let door = SocketAddrV4::new(host.address(), 9808);
        let folder = format!("{name}-{:016x}", fastrand::u64(..));
        let pod = Pod::on(host, &environment.ensemble, &folder);
        fs::write(pod.volume.join("auth"), auth).unwrap();
        let in_volume = |file: &str| pod.volume.join(file).to_str().unwrap().to_owned();
        let options = [
            ("connect", environment.ensemble.connect_string()),
            ("lock", format!("/lockkeeper/locks/{}/{lock}", space.name)),
            ("control", format!("/lockkeeper/control/{}/{lock}", space.name)),
            ("auth-file", in_volume("auth")),
            ("reader", format!("digest:{}", operator_identity().acl_id())),
            ("session-timeout", "15s".to_owned()),
            ("stop-grace", "400ms".to_owned()),
            ("tick-time", "1s".to_owned()),
            ("admin-listen", door.to_string()),
            ("socket", in_volume("lock.sock")),
            ("guard-socket", in_volume("guard.sock")),
            ("lease-file", in_volume("lease.env")),
            ("pod-namespace", space.name.clone()),
            ("pod-name", name.to_owned()),
            ("pod-uid", object.uid().unwrap()),
            ("pod-node", "n1".to_owned()),
        ];
        let options = options.map(|(option, value)| format!("--{option}={value}"));
        let more = more.iter().map(|&option| option.to_owned());
        let mut guarded = Self {
            pod,
            door,
            options: options.into_iter().chain(more).collect(),
        };
        guarded.start_keeper();
        guarded.pod.start_container(name, &[]);
        guarded
    }

    fn start_keeper(&mut self) {
        let mut command = Command::new(binaries::lockkeeper().unwrap());
        command
            .args(["sidecar", "--provisioned"])
            .args(&self.options)
            .current_dir(&self.pod.volume)
            .stderr(self.pod.log());
        self.pod.sidecar = Some(self.pod.host.spawn("sidecar", command).unwrap());
    }

    /// Waits until the keeper answers at this path that it is not so, with a sentence that has all these parts.
    pub fn wait_until_it_says(&self, path: &str, parts: &[String]) {
        wait_for(BOUND, || {
            let (status, said) = self.probe(path)?;
            (status == 503 && parts.iter().all(|part| said.contains(part.as_str()))).then_some(())
        })
        .unwrap_or_else(|| panic!("{parts:?}: {:?}\n{}", self.probe(path), self.pod.said()));
    }

    pub fn has_run(&self) -> bool {
        !self.pod.records().is_empty()
    }

    /// Status and body of a path of the port for probes.
    pub fn probe(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = self.pod.host.connect(self.door, BOUND).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let answer = io::read_to_string(stream).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Ends it as a kubelet ends a pod: the container first. The keeper has left the queue then.
    pub fn leave(mut self) {
        kill_process(self.pod.guard(), Signal::TERM).unwrap();
        self.pod.container_ends();
        assert_eq!(self.pod.end_sidecar(), Some(0), "{}", self.pod.said());
    }
}
