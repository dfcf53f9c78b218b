//! The second act: a Deployment behind a lock, on two nodes of a real Kubernetes.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::timeline::MarkKind;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::{Installation, binaries};
use lockkeeper_testbed::{Cluster, Config, Unsupported};

use crate::console::Console;
use crate::options::{Ending, Options};
use crate::pictures;
use crate::pictures::ROLLOUT;
use crate::pods::{Run, Scene};
use crate::results::{draw, results_directory};

/// The manifest of a user; IMAGE and RECORDS are replaced for this machine.
const MANIFEST: &str = r#"
apiVersion: lockkeeper.io/v1alpha1
kind: DistributedLock
metadata: {name: report}
spec: {sessionTimeout: 15s, stopGrace: 600ms}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: report
  annotations: {lockkeeper.io/lock: report}
spec:
  replicas: 2
  selector: {matchLabels: {app: report}}
  template:
    metadata: {labels: {app: report}}
    spec:
      terminationGracePeriodSeconds: 10
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: DoNotSchedule
        matchLabelKeys: [pod-template-hash]
        labelSelector: {matchLabels: {app: report}}
      containers:
      - name: app
        image: IMAGE
        command: [/program, /records/pods.record, --name, $(POD)]
        env:
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        volumeMounts:
        - {name: records, mountPath: /records}
      volumes:
      - {name: records, hostPath: {path: RECORDS}}
"#;

pub(crate) fn play(options: &Options) -> anyhow::Result<Ending> {
    let mut console = Console::new();
    console.title("Lockkeeper on Kubernetes: two pods of a Deployment behind one lock, on two nodes.")?;
    let results = results_directory(options)?;
    let image = console.step("Building images (the first time: about four minutes)", || {
        binaries::image_context("operator")?;
        binaries::static_recorder()
    })?;
    let cluster = match console.step("Starting a cluster of two nodes (about ten seconds)", || {
        Cluster::start(&lockkeeper_testbed::cluster::Config::for_tests())
    }) {
        Err(error) if error.is::<Unsupported>() => {
            console.line(&format!("This act is left out: {error}."))?;
            return Ok(Ending::Clean);
        }
        cluster => cluster?,
    };
    let installation = console.step(
        "Starting three ZooKeeper servers beside it; helm install (about half a minute)",
        || Installation::start(&cluster, Config::default()),
    )?;
    let image = cluster.push_program("lockkeeper/recorder:1", &image)?;
    let mut scene = Scene::new(&installation, console, Arc::clone(&options.interrupted))?;
    let (first, second) = act(&mut scene, &image, &results)?;

    scene.console.clear()?;
    scene.read()?;
    pictures::of_rollout(&scene, &first, &second, &results)?;
    let report = check(&scene.records, Rule::Exclusive);
    let Scene {
        mut console,
        timeline,
        records,
        ..
    } = scene;
    console.title("What the pods wrote down, checked:")?;
    let end = timeline.end();
    let bars = console.screen(end - timeline.start()).bars(&timeline, end);
    console.print(&format!("\n{bars}\n"))?;
    if report.is_clean() {
        console.line(&format!(
            "Nobody ran at the same moment as another: {} holds, 0 overlaps, tokens grew.",
            report.holds.len()
        ))?;
    } else {
        console.print(&format!("{report}"))?;
    }
    draw(&mut console, &timeline, results.join("kubernetes.svg"), options)?;
    console.line("Beside them: pod, rollout and handoff, each -light.svg and -dark.svg.")?;
    let lines: Vec<_> = records.iter().map(|record| format!("{record}\n")).collect();
    fs::write(results.join("pods.record"), lines.concat())?;
    drop(installation);
    console.step("Ending the cluster", || {
        drop(cluster);
        Ok(())
    })?;
    Ok(if report.is_clean() {
        Ending::Clean
    } else {
        Ending::Violated
    })
}

fn act(scene: &mut Scene<'_>, image: &str, results: &Path) -> anyhow::Result<(Run, Run)> {
    scene
        .console
        .title("A Deployment with the annotation lockkeeper.io/lock: report.")?;
    let records = scene.folder().display().to_string();
    let applied = BootInstant::now();
    scene
        .cluster()
        .apply(&MANIFEST.replace("IMAGE", image).replace("RECORDS", &records))?;
    let locks = ["get", "distributedlocks"];
    let first = scene.runs_after(0)?;
    let start = pictures::start_of(scene, &first, applied)?;
    pictures::write(
        &start,
        "How a guarded pod starts, with no contender before it",
        results,
        "pod.svg",
    )?;
    scene.kubectl_until(&locks, shows(&first, 1))?;
    scene.kubectl(&[
        "get",
        "pods",
        "--label-columns=lockkeeper.io/role",
        "--output=wide",
    ])?;

    scene
        .console
        .title("A rollout: the lock goes to a pod of the new revision, which is ready then.")?;
    scene.mark(MarkKind::Note, ROLLOUT);
    scene.kubectl(&["set", "env", "deployment/report", "VERSION=2"])?;
    let second = scene.runs_after(first.token)?;
    scene.kubectl(&["rollout", "status", "deployment/report", "--timeout=600s"])?;
    scene.timeline.unmark(ROLLOUT, BootInstant::now());
    say_gap(scene, &first, &second)?;
    scene.kubectl_until(&locks, shows(&second, 1))?;

    scene
        .console
        .title("The node of the holder is cut off. Its pod is stopped there, by its own guard, before the ensemble gives the lock away.")?;
    let node = scene
        .cluster()
        .kubectl(&["get", "pod", &second.pod, "--output=jsonpath={.spec.nodeName}"])?;
    let number = node.trim_start_matches('n').parse()?;
    scene.mark(MarkKind::Fault, "node cut off");
    scene.cluster().node(number)?.cut()?;
    let third = scene.runs_after(second.token)?;
    say_gap(scene, &second, &third)?;
    scene.kubectl_until(&locks, shows(&third, 0))?;
    scene.cluster().node(number)?.restore()?;
    scene.timeline.unmark("node cut off", BootInstant::now());
    scene
        .console
        .line("The cable is back, and the pod that was cut off queues again.")?;
    scene.kubectl_until(&locks, shows(&third, 1))?;
    Ok((first, second))
}

/// Whether the table names the holder, and at least this many waiters.
fn shows(run: &Run, waiting: u32) -> impl Fn(&str) -> bool {
    let (pod, token) = (run.pod.clone(), run.token.to_string());
    move |table| {
        let row = table.lines().find(|line| line.starts_with("report"));
        let mut words = row.unwrap_or_default().split_whitespace().skip(2);
        words.next() == Some(&pod)
            && words.next() == Some(&token)
            && words
                .next()
                .and_then(|count| count.parse::<u32>().ok())
                .is_some_and(|count| count >= waiting)
    }
}

/// Prints how long no application ran between the two.
fn say_gap(scene: &mut Scene<'_>, before: &Run, after: &Run) -> anyhow::Result<()> {
    let gap = scene
        .last_of(before.token)
        .map_or(Duration::ZERO, |last| after.began.saturating_since(last));
    let at = after.began.saturating_since(scene.timeline.start());
    let text = format!(
        "{} runs under token {}. Nobody ran for {:.3} s.",
        after.pod,
        after.token,
        gap.as_secs_f64()
    );
    Ok(scene.console.fact(at, &text)?)
}
