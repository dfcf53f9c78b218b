//! Ensembles that a lock names, and tenants of the operator's own ensemble, cannot harm it.

mod churn;
mod ensembles;
mod floods;
#[path = "../../../operator/tests/strangers/hostile.rs"]
#[expect(
    dead_code,
    reason = "one kind of server is for the tests of the operator alone"
)]
mod hostile;
mod limited;
mod objects;
