//! Where the command of a wrapped container comes from.

use lockkeeper_operator::admission::inject::ImageQuestion;
use serde_json::{Value, json};

use crate::cluster::{Cluster, OLD, question_of, simple};

#[test]
fn the_command_of_an_image_is_taken_as_kubernetes_would() {
    let cluster = Cluster::new(OLD).image(&["/entry", "-x"], &["serve", "$(HOME)"], "");
    let command = ["/lockkeeper/lockkeeper", "guard", "--"];
    for (given, rest, args) in [
        (json!({}), vec!["/entry", "-x"], json!(["serve", "$$(HOME)"])),
        (
            json!({ "args": ["$(MODE)"] }),
            vec!["/entry", "-x"],
            json!(["$(MODE)"]),
        ),
        (json!({ "command": ["/own"] }), vec!["/own"], Value::Null),
    ] {
        let mut pod = simple();
        pod["spec"]["containers"][0] = json!({ "name": "app", "image": "app:1" });
        for (field, words) in given.as_object().unwrap() {
            pod["spec"]["containers"][0][field] = words.clone();
        }
        let app = cluster.injected(&pod).pod["spec"]["containers"][0].clone();
        assert_eq!(
            app["command"],
            json!([&command[..], &rest[..]].concat()),
            "{given}"
        );
        assert_eq!(app["args"], args, "{given}");
    }
}

#[test]
fn an_image_is_looked_up_only_where_something_depends_on_it() {
    let mut pod = simple();
    assert_eq!(question_of(&pod), None);
    pod["spec"]["containers"][0]["command"].take();
    pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/arch": "arm64" });
    let question = ImageQuestion {
        image: "app:1".to_owned(),
        architecture: Some("arm64".to_owned()),
    };
    assert_eq!(question_of(&pod), Some(question.clone()));
    pod["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("signal");
    assert_eq!(question_of(&pod), Some(question));
    pod["spec"]["securityContext"] = json!({ "runAsUser": 7 });
    assert_eq!(question_of(&pod), None);
}
