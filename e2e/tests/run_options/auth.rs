//! Identities and paths.

use std::path::PathBuf;

use lockkeeper_testbed::Ensemble;
use zookeeper_client::{Acls, CreateMode, Error};

use crate::harness::{Run, contenders, ensemble, with_client};

fn auth_file(ensemble: &Ensemble, name: &str, content: &str) -> PathBuf {
    let path = ensemble.directory().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn with_an_identity_the_world_has_no_right_to_anything() {
    let ensemble = ensemble();
    let lock = "/auth/report";
    let alice = auth_file(&ensemble, "alice", "alice:secret\n");
    let options = ["--auth-file", alice.to_str().unwrap()];
    let mut holder = Run::start(
        &ensemble,
        "auth-alice",
        lock,
        &options,
        &["sh", "-c", "echo ran; exec sleep 600"],
    );
    assert_eq!(holder.first_line(), "ran");

    for path in [lock.to_owned(), format!("{lock}-control")] {
        let read = with_client(&ensemble, async |client| client.get_data(&path).await.map(drop));
        assert!(matches!(read, Err(Error::NoAuth)), "{path}: {read:?}");
        let listed = with_client(&ensemble, async |client| client.list_children(&path).await);
        assert!(matches!(listed, Err(Error::NoAuth)), "{path}: {listed:?}");
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let made = with_client(&ensemble, async |client| {
            client.create(&format!("{path}/x"), b"", &options).await.map(drop)
        });
        assert!(matches!(made, Err(Error::NoAuth)), "{path}: {made:?}");
    }
    let children = with_client(&ensemble, async |client| {
        client.auth("digest", b"alice:secret").await?;
        client.list_children(lock).await
    });
    let contender = format!("{lock}/{}", children.unwrap()[0]);
    let deleted = with_client(&ensemble, async |client| client.delete(&contender, None).await);
    assert!(matches!(deleted, Err(Error::NoAuth)), "{deleted:?}");

    let mallory = auth_file(&ensemble, "mallory", "mallory:guess\n");
    for (name, options) in [
        ("auth-mallory", vec!["--auth-file", mallory.to_str().unwrap()]),
        ("auth-nobody", vec![]),
    ] {
        let mut other = Run::start(&ensemble, name, lock, &options, &["echo", "ran"]);
        assert_eq!(
            (other.code(), other.stdout().as_str()),
            (77, ""),
            "{}",
            other.stderr()
        );
        let sentences = other.sentences();
        assert_eq!(sentences.len(), 1, "{}", other.stderr());
        assert!(sentences[0].contains(lock), "{sentences:?}");
    }
    holder.signal(rustix::process::Signal::TERM);
    assert_eq!(holder.code(), 143, "{}", holder.stderr());
}

#[test]
fn a_chroot_stands_for_the_root_and_is_made_when_it_is_missing() {
    let ensemble = ensemble();
    let connect = format!("{}/auth-chroot/deep", ensemble.connect_string());
    let command = ["sh", "-c", "echo $LOCKKEEPER_LOCK"];
    let mut run = Run::start(
        &ensemble,
        "chroot",
        "/jobs/report",
        &["--connect", &connect],
        &command,
    );
    assert_eq!(
        (run.code(), run.stdout().as_str()),
        (0, "/jobs/report\n"),
        "{}",
        run.stderr()
    );
    assert_eq!(
        contenders(&ensemble, "/auth-chroot/deep/jobs/report"),
        Some(vec![])
    );
    assert_eq!(contenders(&ensemble, "/jobs/report"), None);
}
