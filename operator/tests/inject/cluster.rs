//! The cluster that a pod comes into in these tests, and ways to look at what became of the pod.

use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_daemon::log::LogFormat;
use lockkeeper_daemon::token::AppToken;
use lockkeeper_operator::admission::inject::{
    ClusterFacts, Context, ImageConfig, ImageQuestion, ImageUnknown, Injection, Refusal, Replicas,
    SidecarConfig, Subject, image_question, inject,
};
use serde_json::{Value, json};

pub const OLD: ClusterFacts = ClusterFacts {
    is_known: true,
    image_volumes: false,
    file_key_ref: false,
    restart_all_containers: false,
};
pub const NEW: ClusterFacts = ClusterFacts {
    is_known: true,
    image_volumes: true,
    file_key_ref: true,
    restart_all_containers: true,
};

/// In the place of what is drawn for each pod.
pub const TOKEN: &str = "DRAWN-FOR-THIS-POD-DRAWN-FOR-THI";

/// A cluster, by what the operator knows of it when it is asked about a pod.
pub struct Cluster {
    pub facts: ClusterFacts,
    pub sidecar: SidecarConfig,
    pub lock: Option<DistributedLockSpec>,
    pub ensemble: String,
    pub replicas: Replicas,
    pub image: Result<ImageConfig, ImageUnknown>,
    /// A node that could not gate the pod.
    pub ungated: Option<String>,
    pub token: AppToken,
}

impl Cluster {
    pub fn new(facts: ClusterFacts) -> Self {
        Self {
            facts,
            sidecar: SidecarConfig {
                image: "registry.example/lockkeeper:0.1.0".to_owned(),
                pull_policy: None,
                resources: serde_json::from_value(
                    json!({ "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "memory": "64Mi" } }),
                )
                .unwrap(),
                connect: Some("zk-0:2181,zk-1:2181".to_owned()),
                own_connect: "zk-0:2181,zk-1:2181".to_owned(),
                has_certificate: false,
                tick_time: Duration::from_secs(2),
                root: "/lockkeeper".to_owned(),
                log_format: LogFormat::Json,
                readers: vec!["digest:operator:HASH=".to_owned()],
            },
            lock: None,
            ensemble: "6f1d57a4-2c3b-4d5e-8f90-a1b2c3d4e5f6".to_owned(),
            replicas: Replicas::One,
            image: Err(ImageUnknown::NotAsked),
            ungated: None,
            token: AppToken::parse(TOKEN).unwrap(),
        }
    }

    pub fn lock(mut self, spec: Value) -> Self {
        self.lock = Some(serde_json::from_value(spec).unwrap());
        self
    }

    pub fn image(mut self, entrypoint: &[&str], cmd: &[&str], user: &str) -> Self {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        self.image = Ok(ImageConfig {
            entrypoint: words(entrypoint),
            cmd: words(cmd),
            user: user.to_owned(),
        });
        self
    }

    pub fn inject(&self, pod: &Value) -> Result<Option<Injection>, Refusal> {
        inject(
            &Subject::read(pod)?,
            &Context {
                cluster: &self.facts,
                sidecar: &self.sidecar,
                namespace: "shop",
                lock: self.lock.as_ref(),
                ensemble: &self.ensemble,
                replicas: self.replicas,
                ungated: self.ungated.as_deref(),
                image: self.image.as_ref(),
                client_certificate: false,
                app_token: &self.token,
            },
        )
    }

    pub fn injected(&self, pod: &Value) -> Injection {
        self.inject(pod)
            .unwrap_or_else(|refusal| panic!("{refusal}"))
            .expect("the pod names a lock")
    }

    pub fn refusal(&self, pod: &Value) -> String {
        let sentence = self.inject(pod).expect_err("the pod is refused").to_string();
        assert!(!sentence.contains('\n') && !sentence.ends_with('.'), "{sentence}");
        sentence
    }
}

pub fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/pods")
        .join(name)
}

pub fn pod_of(name: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(file(&format!("{name}.yaml"))).unwrap()).unwrap()
}

/// A pod with one container, `app`, whose command is given.
pub fn simple() -> Value {
    json!({
        "metadata": { "name": "app", "annotations": { "lockkeeper.io/lock": "app" } },
        "spec": { "containers": [{ "name": "app", "image": "app:1", "command": ["/app"] }] },
    })
}

pub fn env<'a>(container: &'a Value, name: &str) -> &'a Value {
    let mut all = container["env"].as_array().into_iter().flatten();
    all.find(|var| var["name"] == name)
        .map_or(&Value::Null, |var| &var["value"])
}

pub fn sidecar(pod: &Value) -> &Value {
    let last = pod["spec"]["initContainers"].as_array().unwrap().last().unwrap();
    assert_eq!(
        last["name"], "lockkeeper",
        "the sidecar is not the last init container"
    );
    last
}

/// The pods of the golden files, and the clusters that they come into.
pub fn golden() -> [(&'static str, Cluster); 4] {
    [
        ("probes", Cluster::new(NEW)),
        (
            "image-command",
            Cluster::new(OLD).image(&["/entry", "$(x)"], &["serve"], ""),
        ),
        ("guaranteed", Cluster::new(NEW)),
        ("signal", Cluster::new(NEW).image(&["/legacy"], &[], "daemon")),
    ]
}

/// The image that has to be looked up for a pod.
pub fn question_of(pod: &Value) -> Option<ImageQuestion> {
    image_question(&Subject::read(pod).unwrap()).unwrap()
}
