//! A queue in which the lock changes hands all the time, also during faults of the servers.

use std::time::Duration;

use lockkeeper_lock::ContenderData;
use lockkeeper_lock::zookeeper::{Credentials, Onlooker, ZooKeeper};
use lockkeeper_product::beside::{Environment, Tenant};
use lockkeeper_testbed::eventually::BOUND;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use zookeeper_client::{Acls, CreateMode, Error};

use crate::environment::operator_identity;

/// Number of contenders in the queue.
const LENGTH: usize = 3;

/// Time between two changes: there are many in a second, in which the operator writes one status.
const PACE: Duration = Duration::from_millis(50);

/// The queue of the lock `report` of a namespace.
pub struct Churn {
    stop: watch::Sender<bool>,
    task: JoinHandle<Vec<String>>,
}

struct Turns {
    zookeeper: ZooKeeper,
    servers: usize,
    namespace: String,
    root: String,
    made: usize,
}

impl Churn {
    /// Begins when the lock root is there.
    pub fn start(environment: &Environment, space: &Tenant) -> Self {
        let connect = environment.ensemble.connect_string().parse().unwrap();
        let turns = Turns {
            zookeeper: ZooKeeper::new(connect, BOUND)
                .with_credentials(Credentials::Digest(operator_identity().digest_auth())),
            servers: environment.ensemble.len(),
            namespace: space.name.clone(),
            root: format!("/lockkeeper/locks/{}/report", space.name),
            made: 0,
        };
        let (stop, stopped) = watch::channel(false);
        Self {
            stop,
            task: tokio::spawn(turns.go(stopped)),
        }
    }

    /// Ends; returns the holder and the waiters, in their order.
    pub async fn stop(self) -> Vec<String> {
        self.stop.send_replace(true);
        self.task.await.unwrap()
    }
}

impl Turns {
    async fn go(mut self, stopped: watch::Receiver<bool>) -> Vec<String> {
        for server in (0..self.servers).cycle() {
            if let Ok(connection) = self.zookeeper.onlooker(server, Duration::from_secs(4)).await {
                // Every error comes from this connection, or from an earlier one.
                loop {
                    let is_last = *stopped.borrow();
                    let Ok(pods) = self.turn(&connection, is_last).await else {
                        break;
                    };
                    if let Some(pods) = pods {
                        return pods;
                    }
                    tokio::time::sleep(PACE).await;
                }
            }
            tokio::time::sleep(PACE).await;
        }
        unreachable!("there is a server")
    }

    /// One change, computed from the present nodes, so that an interrupted earlier turn does not matter.
    /// Returns the pods if this is the last turn and everything is in order.
    async fn turn(&mut self, connection: &Onlooker, is_last: bool) -> Result<Option<Vec<String>>, Error> {
        let mut queue = connection.list_children(&self.root).await?;
        queue.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
        if queue.len() < LENGTH {
            self.made += 1;
            let pod = format!("{}-{}", self.namespace, self.made);
            let options = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
            let path = format!("{}/_c_{pod}-lock-", self.root);
            let data = self.document(&pod, "waiting");
            connection.create(&path, &data, &options).await?;
            return Ok(None);
        }
        let first = format!("{}/{}", self.root, queue[0]);
        let data = ContenderData::parse(&connection.get_data(&first).await?.0);
        if !data.is_held() {
            let pod = data.pod.map(|pod| pod.name).unwrap_or_default();
            connection
                .set_data(&first, &self.document(&pod, "held"), None)
                .await?;
            return Ok(None);
        }
        if !is_last {
            connection.delete(&first, None).await?;
            return Ok(None);
        }
        let pod = |name: &String| {
            name.strip_prefix("_c_")?
                .rsplit_once("-lock-")
                .map(|(pod, _)| pod.to_owned())
        };
        Ok(Some(queue.iter().filter_map(pod).collect()))
    }

    fn document(&self, pod: &str, state: &str) -> Vec<u8> {
        let namespace = &self.namespace;
        let pod = json!({"namespace": namespace, "name": pod, "uid": pod, "node": "n1"});
        json!({"v": 1, "state": state, "pod": pod})
            .to_string()
            .into_bytes()
    }
}
