//! The ensemble of a lock that is not in the operator's ensemble.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::cel;
use crate::duration::ApiDuration;

pub(crate) const MIN_TICK_TIME: ApiDuration = ApiDuration::from_millis(100);
pub(crate) const MAX_TICK_TIME: ApiDuration = ApiDuration::from_secs(60);

/// An ensemble, and how to connect to it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = cel::tls())]
pub struct ZooKeeperSpec {
    /// Servers of the ensemble, separated by commas, and the path below which all other paths are, if any:
    /// `zk-0:2181,zk-1:2181/team`; `tcp+tls://zk-0:2281` for TLS. From 1 to 1024 characters. While pods hold or await
    /// the lock, one of the (first fifteen) servers must stay, and the path too.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = cel::connect())]
    pub connect: String,

    /// The ensemble's `tickTime`, on which the safety of the lock depends: must not be shorter than the true one. A
    /// duration, from `100ms` to `1m`. Default: `2s`, as in ZooKeeper's sample of `zoo.cfg`. Without such a line ZooKeeper
    /// takes 3 s: state that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = cel::between("tickTime", MIN_TICK_TIME, MAX_TICK_TIME))]
    pub tick_time: Option<ApiDuration>,

    /// Secret in the lock's namespace with the identity of the pods, which is also the operator's in this ensemble: key
    /// `auth`, `digest:USER:PASSWORD`. During a rotation further lines hold further identities. Default: the one that
    /// the operator creates, `lockkeeper-zookeeper`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret: Option<SecretRef>,

    /// Secret in the lock's namespace with certificates: key `ca.crt` for the authorities that sign those of the
    /// ensemble; keys `tls.crt` and `tls.key` for the pods' own, if the ensemble requires one. Required if `connect`
    /// names servers with `tcp+tls://`, and only then. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_secret: Option<SecretRef>,
}

/// A Secret of the same namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret, from 1 to 253 characters.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}
