//! What clients of the server are promised.

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;

use super::*;

#[derive(Clone)]
struct Greeting;

impl Routes for Greeting {
    async fn answer(self, _: Request<Incoming>, _: Stopping) -> Answer {
        text(hyper::StatusCode::OK, "text/plain", "hello\n")
    }
}

#[tokio::test]
async fn a_server_that_ends_waits_until_a_client_has_taken_its_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let (stop, stopped) = oneshot::channel::<()>();
    let mut serving = std::pin::pin!(serve(listener, Greeting, async {
        let _ = stopped.await;
    }));
    let mut client = UnixStream::connect(&path).await.expect("connected");
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("sent");
    let mut answer = String::new();
    tokio::select! {
        () = &mut serving => panic!("it has not been stopped"),
        read = client.read_to_string(&mut answer) => assert!(read.is_ok()),
    }
    assert!(answer.ends_with("hello\n"), "{answer}");
    drop(stop);
    let early = tokio::time::timeout(LINGER / 20, &mut serving).await;
    assert!(early.is_err(), "the client still has the connection");
    drop(client);
    serving.await;
}
