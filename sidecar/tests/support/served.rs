//! A keeper's socket and probes, served in a thread, with the test in the place of the lock.

#![allow(dead_code, reason = "each test uses its part of it")]

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_daemon::token::AppToken;
use lockkeeper_lock::{BootInstant, FencingToken, LockState, LockStatus};
use lockkeeper_sidecar::admin::AdminServer;
use lockkeeper_sidecar::args::{self, Parsed, RunSettings};
use lockkeeper_sidecar::metrics::{self, LockMetrics};
use lockkeeper_sidecar::peer::Users;
use lockkeeper_sidecar::probes::AppProbes;
use lockkeeper_sidecar::probes::health::{Health, Running};
use lockkeeper_sidecar::socket::{self, Command, SocketServer, Tree};
use lockkeeper_sidecar::view::{Guarded, KeeperView};
use tokio::sync::{mpsc, oneshot, watch};

#[path = "eventually.rs"]
pub mod eventually;

pub use eventually::PATIENCE;

pub struct Served {
    pub status: Option<watch::Sender<LockStatus>>,
    pub commands: Option<mpsc::Receiver<Command>>,
    pub guarded: watch::Sender<Guarded>,
    pub app: watch::Sender<Option<Running>>,
    pub metrics: LockMetrics,
    pub socket: PathBuf,
    pub admin: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub fn settings() -> RunSettings {
    settings_with(&[])
}

fn settings_with(options: &[&str]) -> RunSettings {
    let words = [
        "lockkeeper",
        "run",
        "--connect",
        "zk:2181",
        "--lock",
        "/locks/report",
    ];
    let words = words.iter().chain(options).chain(&["--", "true"]);
    match args::parse(words.map(OsString::from)) {
        Ok(Parsed::Do(args::Command::Run(args))) => args.check().unwrap(),
        other => panic!("{other:?}"),
    }
}

impl Served {
    pub fn start(directory: &Path) -> Self {
        Self::start_with(directory, PATIENCE)
    }

    pub fn start_with(directory: &Path, release_timeout: Duration) -> Self {
        Self::start_serving(
            directory,
            release_timeout,
            (AppProbes::default(), None),
            Users::own(),
            &settings(),
        )
    }

    /// Of a run with more options.
    pub fn start_as(directory: &Path, options: &[&str]) -> Self {
        let settings = settings_with(options);
        Self::start_serving(
            directory,
            PATIENCE,
            (AppProbes::default(), None),
            Users::own(),
            &settings,
        )
    }

    /// Of a pod with more options: the keeper sees no process of the application.
    pub fn start_in_pod(directory: &Path, options: &[&str]) -> Self {
        let settings = settings_with(options);
        let probes = (AppProbes::default(), None);
        Self::start_seeing(directory, PATIENCE, probes, Users::own(), &settings, None)
    }

    /// For a release by these users.
    pub fn start_for(directory: &Path, users: Users) -> Self {
        Self::start_serving(
            directory,
            PATIENCE,
            (AppProbes::default(), None),
            users,
            &settings(),
        )
    }

    /// With probes of an application, which does not run yet.
    pub fn start_probing(directory: &Path, release_timeout: Duration, probes: AppProbes) -> Self {
        Self::start_serving(
            directory,
            release_timeout,
            (probes, None),
            Users::own(),
            &settings(),
        )
    }

    /// The same, for clients with this token.
    pub fn start_behind(directory: &Path, probes: AppProbes, token: &str) -> Self {
        let token = AppToken::parse(token).unwrap();
        Self::start_serving(
            directory,
            PATIENCE,
            (probes, Some(token)),
            Users::own(),
            &settings(),
        )
    }

    fn start_serving(
        directory: &Path,
        release_timeout: Duration,
        probes: (AppProbes, Option<AppToken>),
        users: Users,
        settings: &RunSettings,
    ) -> Self {
        // What the test starts is inside.
        let tree = Tree {
            guard: rustix::process::getpid(),
            keeper: None,
            has_elders: false,
        };
        Self::start_seeing(directory, release_timeout, probes, users, settings, Some(tree))
    }

    fn start_seeing(
        directory: &Path,
        release_timeout: Duration,
        (probes, token): (AppProbes, Option<AppToken>),
        users: Users,
        settings: &RunSettings,
        tree: Option<Tree>,
    ) -> Self {
        let (app, app_now) = watch::channel(None);
        let health = Health::new(app_now, probes);
        let socket = directory.join("lock.sock");
        let (status, watch_status) = watch::channel(waiting(2));
        let (send_command, commands) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel::<()>();
        let (guarded, watch_guarded) = watch::channel(Guarded::default());
        let view = KeeperView::new(watch_status, watch_guarded, settings.lock.about());
        let mut registry = metrics::registry(None);
        let metrics = LockMetrics::register(&mut registry);
        metrics::register_view(view.clone(), &mut registry);
        let (tell_address, address) = std::sync::mpsc::channel();
        let (path, counted) = (socket.clone(), metrics.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let server = SocketServer::bind(&path).unwrap();
                let admin = AdminServer::bind("127.0.0.1:0".parse().unwrap())
                    .unwrap()
                    .with_app_token(token);
                tell_address.send(admin.local_address().unwrap()).unwrap();
                let (stop_both, watch_stop) = watch::channel(false);
                let until_stop = |mut stop: watch::Receiver<bool>| async move {
                    let _ = stop.wait_for(|stop| *stop).await;
                };
                tokio::join!(
                    server.serve(
                        socket::Served {
                            view: view.clone(),
                            health: health.clone(),
                            commands: send_command,
                            release_timeout,
                            users,
                            tree,
                        },
                        until_stop(watch_stop.clone())
                    ),
                    admin.serve(view, health, counted, registry, until_stop(watch_stop)),
                    async {
                        let _ = stopped.await;
                        stop_both.send_replace(true);
                    }
                );
            });
        });
        Self {
            status: Some(status),
            commands: Some(commands),
            guarded,
            app,
            metrics,
            socket,
            admin: address.recv_timeout(PATIENCE).unwrap(),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub fn publish(&self, status: LockStatus) {
        self.status.as_ref().unwrap().send_replace(status);
    }

    pub fn next_command(&mut self) -> oneshot::Sender<Result<(), String>> {
        step_down(self.commands.as_mut().unwrap())
    }

    /// Sends bytes and reads the answer to its end.
    pub fn ask(&self, bytes: &str) -> String {
        request(&self.socket, bytes)
    }

    pub fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: lock\r\n\r\n"))
    }

    /// The JSON object of `GET /v1/lock`.
    pub fn lock(&self) -> serde_json::Value {
        let answer = self.get("/v1/lock");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("content-type: application/json\r\n"), "{answer}");
        serde_json::from_str(body(&answer)).unwrap()
    }

    pub fn connect(&self) -> UnixStream {
        connect(&self.socket)
    }

    pub fn probe(&self, path: &str) -> String {
        self.probe_raw(&format!("GET {path} HTTP/1.1\r\nhost: lock\r\n\r\n"))
    }

    pub fn probe_raw(&self, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(self.admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        read_all(&mut stream)
    }

    /// Ends the servers and waits until they have ended.
    pub fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for the wish that the lock is released.
pub fn step_down(commands: &mut mpsc::Receiver<Command>) -> oneshot::Sender<Result<(), String>> {
    match commands.blocking_recv().unwrap() {
        Command::StepDown(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// Sends bytes to a socket and reads the answer to its end.
pub fn request(socket: &Path, bytes: &str) -> String {
    let mut stream = connect(socket);
    stream.write_all(bytes.as_bytes()).unwrap();
    read_all(&mut stream)
}

fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub fn body(answer: &str) -> &str {
    answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body)
        .unwrap_or_else(|| panic!("no body: {answer:?}"))
}

pub fn waiting(position: usize) -> LockStatus {
    LockStatus {
        state: LockState::Waiting,
        token: Some(FencingToken(4_294_967_331)),
        position: Some(position),
        session: Some(0x1000_0abc),
        session_timeout: Some(Duration::from_secs(15)),
        ..LockStatus::new()
    }
}

/// Held, with a lease that ends after `left` (the margin of 350 ms included).
pub fn held(left: Duration) -> LockStatus {
    LockStatus {
        state: LockState::Held,
        position: Some(0),
        lease_end: Some(BootInstant::now() + left),
        ..waiting(0)
    }
}

fn read_all(stream: &mut impl Read) -> String {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // The server has answered and closed before it read everything that was sent.
        Err(error) if error.kind() == ErrorKind::ConnectionReset && !answer.is_empty() => {}
        Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&answer)),
    }
    String::from_utf8(answer).unwrap()
}
