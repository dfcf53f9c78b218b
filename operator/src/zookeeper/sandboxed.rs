//! The process with the session in one ensemble: a mirror and a tree, behind two pipes.

use std::io::{stdin, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use lockkeeper_lock::Agreement;
use lockkeeper_lock::zookeeper::{Credentials, ZooKeeper};
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::sync::{mpsc, watch};

use super::sandbox::wire::{self, Ask, Hello, Numbered, Refused, Reply, Told};
use crate::identity::Identity;
use crate::lock_key::LockKey;
use crate::work_queue::WorkQueue;
use crate::zookeeper::allowed_hosts::guard;
use crate::zookeeper::direct::Direct;
use crate::zookeeper::nodes::{Agreed, Removal, Tree, TreeError};
use crate::zookeeper::paths::Layout;
use crate::zookeeper::queues::{Link, Mirror, View};
use crate::zookeeper::sandbox::{MEMORY, SESSION_TIMEOUT};

/// Stack of each thread, in bytes. The default of 2 MiB counts as memory, and none of them needs it; the resolver of
/// the C library needs the most, some 100 KiB.
const STACK: usize = 512 << 10;

/// Runs until the operator closes its pipe. It writes no log: it reports to the operator alone.
pub fn main() -> ExitCode {
    if let Err(error) = limit() {
        eprintln!("cannot limit the memory of this process: {error}");
        return ExitCode::FAILURE;
    }
    let Ok(Some(hello)) = wire::read(&mut stdin()) else {
        eprintln!("only the operator can start this process: it sends its requests over a pipe");
        return ExitCode::FAILURE;
    };
    // As in the operator: one process, one provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .build();
    let (ask, asked) = mpsc::channel(16);
    let (tell, told) = mpsc::channel(1);
    // Threads of their own, so that this process always ends with the operator, whatever it is doing.
    let started = spawn(move || hear(&ask)).and_then(|()| spawn(move || speak(told)));
    match (runtime, started) {
        (Ok(runtime), Ok(())) => match runtime.block_on(follow(hello, asked, tell)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                eprintln!("{reason}");
                ExitCode::FAILURE
            }
        },
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Limits the resources that a server could make this process use up.
fn limit() -> Result<(), rustix::io::Errno> {
    let most = |bytes| Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    // Heap, anonymous memory and the stacks of other threads (setrlimit(2)). Not RLIMIT_AS: that counts the
    // program itself too, which all processes share, and what the C library reserves and does not use.
    setrlimit(Resource::Data, most(MEMORY))?;
    setrlimit(Resource::Stack, most(2 << 20))?;
    // A core has the credentials in it.
    setrlimit(Resource::Core, most(0))?;
    // If CPU or memory are short, the operator takes precedence. It does no harm if this fails.
    let _ = rustix::process::nice(19);
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}

fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().stack_size(STACK).spawn(work).map(drop)
}

fn hear(ask: &mpsc::Sender<Numbered<Ask>>) {
    while let Ok(Some(asked)) = wire::read(&mut stdin()) {
        if ask.blocking_send(asked).is_err() {
            break;
        }
    }
    std::process::exit(0);
}

fn speak(mut told: mpsc::Receiver<Told>) {
    while let Some(told) = told.blocking_recv() {
        if wire::write(&mut stdout(), &told).is_err() {
            break;
        }
    }
    std::process::exit(0);
}

async fn follow(
    hello: Hello,
    mut asked: mpsc::Receiver<Numbered<Ask>>,
    tell: mpsc::Sender<Told>,
) -> Result<(), String> {
    let namespace: Arc<str> = hello.namespace.as_str().into();
    let (zookeeper, tree) = way_of(hello)?;
    let changes = Arc::<WorkQueue>::default();
    let (mirror, task) = Mirror::new(zookeeper, tree.clone(), Arc::clone(&changes));
    let mirroring = tokio::spawn(task.run());
    let mut link = mirror.watch_link();
    let queue = |key: &LockKey| Told::queue(&key.name, &mirror.queue(key));
    loop {
        tokio::select! {
            biased;
            Ok(()) = link.changed() => {
                let now = link.borrow_and_update().clone();
                let told = match now {
                    Link::Down(problem) => Told::down(&problem),
                    Link::Reading => Told::Reading,
                    Link::Up(connection) => {
                        // All changes of the new picture were announced before the link was up.
                        for key in changes.take().now_or_never().unwrap_or_default() {
                            let _ = tell.send(queue(&key)).await;
                        }
                        up(connection.session_id().0, mirror.view())
                    }
                };
                let _ = tell.send(told).await;
            }
            Some(Numbered { number, content }) = asked.recv() => {
                let way = mirror.link().up().cloned().map(|connection| {
                    let (tree, view) = (tree.clone(), mirror.view().clone());
                    Direct { connection, tree, view }
                });
                let (namespace, tell) = (Arc::clone(&namespace), tell.clone());
                tokio::spawn(async move {
                    let content = answer(way, &namespace, content).await.map_err(Refused::from);
                    let _ = tell.send(Told::Answer(Numbered { number, content })).await;
                });
            }
            keys = changes.take() => for key in keys {
                let _ = tell.send(queue(&key)).await;
            },
            else => break,
        }
    }
    // The mirror never ends by itself.
    mirroring.await.map_err(|error| error.to_string())
}

/// How to reach the ensemble, and the tree to maintain.
fn way_of(hello: Hello) -> Result<(ZooKeeper, Tree), String> {
    let Hello {
        connect,
        unnamed,
        root,
        namespace,
        identities,
        tls,
    } = hello;
    let connect = connect
        .parse()
        .map_err(|error| format!("zookeeper.connect: {error}"))?;
    let identities = identities.iter().map(|line| Identity::parse(line));
    let identities: Vec<_> = identities
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let tree = Tree::of_namespace(Layout::new(root), &namespace, &identities);
    let digests = identities.iter().map(Identity::digest_auth).collect();
    let credentials = Credentials::Digests(watch::channel(digests).1);
    let zookeeper = ZooKeeper::new(connect, SESSION_TIMEOUT).with_credentials(credentials);
    let zookeeper = if unnamed.is_empty() {
        zookeeper
    } else {
        zookeeper.with_guard(guard(unnamed))
    };
    let Some(wire::Tls { ca, own }) = tls else {
        return Ok((zookeeper, tree));
    };
    let own = own
        .as_ref()
        .map(|(certificate, key)| (certificate.as_str(), key.as_str()));
    let zookeeper = zookeeper.with_tls(&ca, own).map_err(|error| error.to_string())?;
    Ok((zookeeper, tree))
}

fn up(session: i64, view: &View) -> Told {
    let millis = |tick: Duration| u64::try_from(tick.as_millis()).unwrap_or(u64::MAX);
    Told::Up {
        session,
        id: view.id().unwrap_or_default().as_u64_pair(),
        tick_millis: view.tick_time().map(millis),
    }
}

/// Does what the operator asks for. The operator has checked its lease before it asked for a write.
async fn answer(way: Option<Direct>, namespace: &Arc<str>, ask: Ask) -> Result<Reply, TreeError> {
    let way = way.ok_or_else(|| TreeError::Away("there is no connection to the ensemble".to_owned()))?;
    let key = |name: String| LockKey::new(Arc::clone(namespace), name);
    let identities = |lines: Vec<String>| {
        let identities = lines.iter().map(|line| Identity::parse(line));
        identities
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| TreeError::Away(error.to_string()))
    };
    Ok(match ask {
        Ask::Ensure {
            name,
            identities: lines,
        } => {
            let repairs = way.ensure_lock(&key(name), &identities(lines)?).await?;
            Reply::Ensured {
                made: repairs.made,
                rights: repairs.rights,
            }
        }
        Ask::Agree {
            name,
            identities: lines,
            agreement,
        } => {
            let agreement = Agreement::parse(&agreement).ok().flatten();
            let agreement = agreement.ok_or_else(|| TreeError::Away("that is no agreement".to_owned()))?;
            match way.agree(&key(name), &identities(lines)?, agreement).await? {
                Agreed::Done => Reply::Agreed,
                Agreed::Pending { before } => Reply::Pending {
                    before: before.map(Agreement::to_data).unwrap_or_default(),
                },
            }
        }
        Ask::Remove { name } => match way.remove_lock(&key(name)).await? {
            Removal::Done => Reply::Removed,
            Removal::Goes => Reply::Goes,
            Removal::Left(what) => Reply::Left {
                what: wire::short(&what),
            },
            Removal::InUse => Reply::InUse,
        },
        Ask::RemoveContender {
            name,
            contender,
            token,
        } => Reply::ContenderRemoved {
            is_gone: way.remove_contender(&key(name), &contender, token).await?,
        },
        Ask::Yield { name, request } => Reply::Requested {
            is_new: way.request_yield(&key(name), &request).await?,
        },
        Ask::Endings { name, gone } => Reply::Endings {
            endings: way.endings(&key(name), &gone).await?,
        },
        Ask::LeftBehind { user } => {
            let pods = way.left_behind(namespace, &user).await?.into_iter();
            Reply::Behind {
                pods: pods
                    .map(|(key, who)| (key.name.to_string(), wire::short(&who)))
                    .collect(),
            }
        }
    })
}
