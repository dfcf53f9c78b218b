//! Whole pods against golden files (`UPDATE_GOLDEN=1` writes them).

use serde_json::Value;

use crate::cluster::{file, golden, pod_of};

#[test]
fn a_pod_gets_exactly_what_the_golden_files_show() {
    for (name, cluster) in golden() {
        let injected = cluster.injected(&pod_of(name)).pod;
        let path = file(&format!("{name}.injected.yaml"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, serde_saphyr::to_string(&injected).unwrap()).unwrap();
        }
        let expected: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(
            injected, expected,
            "{name}: run with UPDATE_GOLDEN=1 and look at the difference"
        );
    }
}
