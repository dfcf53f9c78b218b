//! The control: a client that renews as the lock does, and computes its lease by three rules at once.

use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use lockkeeper_lock::{BootInstant, Lease, Renewal};
use lockkeeper_testbed::Host;
use lockkeeper_testbed::ensemble::block_on;
use tokio::sync::oneshot;
use zookeeper_client::{Acls, Client, CreateMode};

/// The settings of a [`Control`]'s session.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub host: Host,
    /// The one server it knows.
    pub server: String,
    /// The parent of its node; created if missing.
    pub root: String,
    pub session_timeout: Duration,
    pub tick: Duration,
}

/// A running client. It holds a node below its root and writes `multi[check]` every eighth of T.
#[derive(Debug)]
pub(crate) struct Control {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<anyhow::Result<Claims>>,
}

/// The moment until which the client would have acted, by each rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims {
    pub token: i64,
    /// T from the moment when the last acknowledged write was sent.
    pub last_sent: BootInstant,
    /// T from the acknowledgement of the last acknowledged write.
    pub last_acknowledged: BootInstant,
    /// The lease of `lockkeeper_lock`.
    pub lease: BootInstant,
}

impl Control {
    /// Starts it and waits until its node exists.
    pub(crate) fn start(setup: Setup) -> anyhow::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn({
            move || {
                let host = setup.host.clone();
                block_on(&host, || renew(setup, ready, stopped))?
            }
        })?;
        let control = Self { stop, thread };
        match is_ready.recv() {
            Ok(()) => Ok(control),
            Err(_) => Err(control
                .claims()
                .err()
                .unwrap_or_else(|| anyhow!("the control client ended before it began"))),
        }
    }

    /// Ends it, and returns until when it would have acted.
    pub(crate) fn claims(self) -> anyhow::Result<Claims> {
        // Sending fails if the task has failed; then its result says why.
        let _ = self.stop.send(());
        self.thread
            .join()
            .map_err(|_| anyhow!("the control client panicked"))?
    }
}

async fn renew(
    setup: Setup,
    ready: std::sync::mpsc::Sender<()>,
    mut stopped: oneshot::Receiver<()>,
) -> anyhow::Result<Claims> {
    let asked = BootInstant::now();
    let client = Client::connector()
        .with_session_timeout(setup.session_timeout)
        .connect(&setup.server)
        .await
        .with_context(|| format!("the control client cannot connect to {}", setup.server))?;
    let session_timeout = client.session_timeout();
    client
        .mkdir(&setup.root, &CreateMode::Persistent.with_acls(Acls::anyone_all()))
        .await?;
    let prefix = format!("{}/control-", setup.root);
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let mut sent = BootInstant::now();
    let (stat, sequence) = client.create(&prefix, b"", &options).await?;
    let path = format!("{prefix}{sequence}");
    let mut lease = Lease::new(session_timeout, setup.tick);
    lease.attach(asked, session_timeout);
    let mut last = Renewal {
        sent,
        acknowledged: BootInstant::now(),
    };
    lease.acknowledge(last);
    let _ = ready.send(());
    loop {
        let pause = (sent + session_timeout / 8) - BootInstant::now();
        tokio::select! {
            _ = &mut stopped => break,
            () = tokio::time::sleep(pause) => {}
        }
        sent = BootInstant::now();
        let mut writer = client.new_multi_writer();
        writer.add_check_version(&path, -1)?;
        let written = tokio::select! {
            _ = &mut stopped => break,
            written = writer.commit() => written,
        };
        if written.is_err() {
            // Its node or its connection is gone: it acts by the answers until then.
            let _ = stopped.await;
            break;
        }
        last = Renewal {
            sent,
            acknowledged: BootInstant::now(),
        };
        lease.acknowledge(last);
    }
    Ok(Claims {
        token: stat.czxid,
        last_sent: last.sent + session_timeout,
        last_acknowledged: last.acknowledged + session_timeout,
        lease: lease.end().context("the first write proves a lease")?,
    })
}
